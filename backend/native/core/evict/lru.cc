#include "lru.h"

namespace outrider {

Lru::Lru(const Surroundings & around)
    : n_expert_(around.shape.n_expert), stamp_(size_t(around.shape.n_layer) * size_t(n_expert_), 0) {}

void Lru::routed(const Routing & routing, std::span<const Demand> demands) {
    for (const Demand & d : demands) {
        stamp_[index(routing.layer, d.expert)] = ++now_;
    }
}

void Lru::forecast(const Forecast & forecast) {
    for (Expert e : forecast.experts) {
        stamp_[index(forecast.layer, e)] = ++now_;
    }
}

void Lru::disappointed(Layer layer, Expert expert) { stamp_[index(layer, expert)] = 0; }

}  // namespace outrider
