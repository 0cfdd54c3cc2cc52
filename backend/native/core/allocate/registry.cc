#include "core/allocate/registry.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "core/allocate/planned.h"
#include "core/allocate/pooled.h"
#include "core/allocate/uniform.h"

namespace outrider {
namespace {

using Allocate = std::function<Layout(const Spec & spec, const Shape & shape, double cache_rate)>;

Layout uniform(const Spec & spec, const Shape & shape, double cache_rate) {
    return allocate_uniform(shape, cache_rate, spec.number("top_share", 1));
}

Layout one_pool(const Spec & spec, const Shape & shape, double cache_rate) {
    return allocate_one_pool(shape, cache_rate, spec.number("buffer", 0) != 0);
}

Layout stream(const Spec & spec, const Shape & shape, double cache_rate) {
    const double k_slots = spec.number("k_slots", 2.0 * shape.n_expert_used);
    if (!(k_slots >= 1)) {
        throw std::invalid_argument("The number k_slots of the allocation is below 1");
    }
    return allocate_stream(shape, cache_rate, int32_t(std::min(k_slots, double(shape.n_layer) * shape.n_expert)));
}

// Uniform with theta = 0.5 (MoEpic, Algorithm 1, line 4), until the configurator has a plan (moepic_configurator.h).
Layout moepic(const Spec & spec, const Shape & shape, double cache_rate) {
    return spec.has("n_slot") ? allocate_planned(spec, shape, cache_rate)
                              : allocate_uniform(shape, cache_rate, spec.number("top_share", 0.5));
}

const std::map<std::string, Allocate> & registry() {
    static const std::map<std::string, Allocate> all{
        {"uniform", uniform},          {"one_pool", one_pool}, {"stream", stream},
        {"planned", allocate_planned}, {"moepic", moepic},
    };
    return all;
}

}  // namespace

Layout allocate(const Spec & spec, const Shape & shape, double cache_rate) {
    const auto it = registry().find(spec.name);
    if (it == registry().end()) {
        throw std::invalid_argument("There is no allocation called " + spec.name);
    }
    if (shape.n_layer < 1 || shape.n_expert_used < 1 || shape.n_expert_used > shape.n_expert) {
        throw std::invalid_argument("There is nothing to allocate for a model without experts");
    }
    Layout layout = it->second(spec, shape, cache_rate);
    layout.validate(shape);
    return layout;
}

std::vector<std::string> allocation_names() {
    std::vector<std::string> names;
    for (const auto & [name, part] : registry()) {
        names.push_back(name);
    }
    return names;
}

}  // namespace outrider
