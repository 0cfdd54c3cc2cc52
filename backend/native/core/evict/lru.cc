#include "core/evict/lru.h"

namespace outrider {

// Token by token: the experts of a prompt's last tokens are the most recent.
void Lru::routed(const Routing & routing, std::span<const Demand>) {
    for (Expert e : routing.ids) {
        stamp_.at(routing.layer, e) = ++now_;
    }
}

void Lru::forecast(const Forecast & forecast) {
    for (Expert e : forecast.experts) {
        stamp_.at(forecast.layer, e) = ++now_;
    }
}

void Lru::disappointed(Layer layer, Expert expert) { stamp_.at(layer, expert) = 0; }

}  // namespace outrider
