#include "core/evict/random.h"

#include "core/spec_reader.h"
#include "core/splitmix.h"

namespace outrider {

Random::Random(const Spec & spec, const Shape & shape) : n_need_(shape, 0) {
    SpecReader settings(spec, "eviction");
    seed_ = uint64_t(settings.whole("seed", 0, 0, 1 << 30));
    settings.finish();
}

void Random::routed(const Routing & routing, std::span<const Demand> demands) {
    for (const Demand & d : demands) {
        n_need_.at(routing.layer, d.expert)++;
    }
}

double Random::keep(Layer layer, Part, Expert expert) const {
    const uint64_t which = (uint64_t(layer) << 32) + uint64_t(expert);
    return double(splitmix(splitmix(splitmix(seed_) + which) + n_need_.at(layer, expert)) >> 11);
}

}  // namespace outrider
