#include "core/allocate/registry.h"

#include <stdexcept>

namespace outrider {
namespace {

constexpr std::pair<const char *, Allocate *> allocations[] = {
    {"klotski", allocate_klotski}, {"moepic", allocate_moepic}, {"one_pool", allocate_one_pool},
    {"planned", allocate_planned}, {"stream", allocate_stream}, {"uniform", allocate_uniform},
};

}  // namespace

Layout allocate(const Spec & spec, const Shape & shape, double cache_rate) {
    Allocate * const make = part_called(spec.name, allocations, "allocation");
    if (shape.n_layer < 1 || shape.n_expert_used < 1 || shape.n_expert_used > shape.n_expert) {
        throw std::invalid_argument("There is nothing to allocate for a model without experts");
    }
    Layout layout = make(spec, shape, cache_rate);
    layout.validate(shape);
    return layout;
}

std::vector<std::string> allocation_names() { return names_of(allocations); }

}  // namespace outrider
