#include "lru.h"

namespace outrider {

Lru::Lru(const std::vector<int32_t> & n_slot) {
    for (int32_t n : n_slot) {
        stamp_.emplace_back(n, 0);
    }
}

void Lru::touched(Layer layer, Slot slot, Expert) { stamp_[layer][slot] = ++now_; }

void Lru::disappointed(Layer layer, Slot slot) { stamp_[layer][slot] = 0; }

double Lru::keep(Layer layer, Slot slot) const { return double(stamp_[layer][slot]); }

}  // namespace outrider
