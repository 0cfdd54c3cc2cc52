// Who is evicted for whom.
#pragma once

#include "core/schedule/ordered_part.h"

namespace outrider {

class Victims : OrderedPart {
  public:
    explicit Victims(const OrderedPart & part)
        : OrderedPart(part), wanted_(size_t(residency_.n_expert()) * n_place, 0) {}

    // The slot of the part, or half part, that may leave and is least worth keeping in the pool, or `none`. Parts of
    // `layer` that are wanted may not leave.
    Slot find(Pool pool, Layer layer) const;
    // For the layer in progress: no part that it needs may leave.
    Slot find_beside_needs(Pool pool);
    // Want both parts of these experts, or want them no longer.
    void want(std::span<const Expert> experts, bool wanted);
    // The distance of a layer from the one in progress, 1 to n_layer.
    int32_t n_ahead(Layer layer) const {
        return layer > needs_.layer() ? layer - needs_.layer() : layer - needs_.layer() + n_layer();
    }

  private:
    size_t index(Expert expert, Part part) const { return size_t(expert) * n_place + size_t(part); }

    std::vector<uint8_t> wanted_;  // [expert, place]; all 0 between choices
};

}  // namespace outrider
