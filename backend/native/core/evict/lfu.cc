#include "core/evict/lfu.h"

#include <cmath>

#include "core/spec_reader.h"

namespace outrider {

Lfu::Lfu(const Spec & spec, const Shape & shape) : count_(shape, 0) {
    SpecReader settings(spec, "eviction");
    const double half_life = settings.number("half_life", 0, 0, 1e9);
    settings.finish();
    if (half_life > 0) {
        growth_ = std::exp2(1 / half_life);
    }
}

void Lfu::pass_began(Phase) {
    worth_ *= growth_;
    if (worth_ > 1e100) {
        for (double & count : count_.all()) {
            count /= worth_;
        }
        worth_ = 1;
    }
}

void Lfu::routed(const Routing & routing, std::span<const Demand> demands) {
    for (const Demand & d : demands) {
        count_.at(routing.layer, d.expert) += d.n_token * worth_;
    }
}

}  // namespace outrider
