// Least recently used. A predicted expert counts as used (ProMoE, section 6.1): a correct
// prediction of something resident thereby delays its eviction. What was fetched in vain leaves
// next: otherwise every wrong forecast would push out something that was needed once.
#pragma once

#include "eviction.h"

namespace outrider {

class Lru final : public Eviction {
  public:
    explicit Lru(const std::vector<int32_t> & n_slot);

    void touched(Layer layer, Slot slot, Expert expert) override;
    void disappointed(Layer layer, Slot slot) override;
    double keep(Layer layer, Slot slot) const override;

  private:
    std::vector<std::vector<uint64_t>> stamp_;  // [layer][slot]: time of the last touch
    uint64_t now_ = 0;
};

}  // namespace outrider
