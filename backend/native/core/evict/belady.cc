#include "core/evict/belady.h"

#include <limits>
#include <stdexcept>

namespace outrider {

Belady::Belady(const Surroundings & around) : n_layer_(around.shape.n_layer), uses_(around.shape, {}) {
    if (!around.future) {
        throw std::invalid_argument("The eviction belady needs a trace of what is to come");
    }
    const auto & passes = around.future->passes;
    for (size_t pass = 0; pass < passes.size(); pass++) {
        if (passes[pass].ids.size() != size_t(n_layer_)) {
            throw std::invalid_argument("The eviction belady was given a trace of another model");
        }
        for (Layer l = 0; l < n_layer_; l++) {
            for (Expert e : passes[pass].ids[size_t(l)]) {
                if (e < 0 || e >= around.shape.n_expert) {
                    throw std::invalid_argument("The eviction belady was given a trace of another model");
                }
                auto & uses = uses_.at(l, e).passes;
                if (uses.empty() || uses.back() != int64_t(pass)) {
                    uses.push_back(int64_t(pass));
                }
            }
        }
    }
}

void Belady::routed(const Routing & routing, std::span<const Demand> demands) {
    for (const Demand & d : demands) {
        Uses & uses = uses_.at(routing.layer, d.expert);
        while (uses.next < uses.passes.size() && uses.passes[uses.next] <= pass_) {
            uses.next++;
        }
    }
}

double Belady::keep(Layer layer, Part, Expert expert) const {
    const Uses & uses = uses_.at(layer, expert);
    return uses.next == uses.passes.size() ? -std::numeric_limits<double>::infinity()
                                           : -double(uses.passes[uses.next] * n_layer_ + layer);
}

}  // namespace outrider
