#include "core/allocate/registry.h"

#include <algorithm>
#include <stdexcept>

namespace outrider {
namespace {

constexpr std::pair<const char *, Allocate *> allocations[] = {
    {"klotski", allocate_klotski}, {"moepic", allocate_moepic}, {"one_pool", allocate_one_pool},
    {"planned", allocate_planned}, {"stream", allocate_stream}, {"uniform", allocate_uniform},
};

}  // namespace

Layout allocate(const Spec & spec, const Shape & shape, int32_t n_slot) {
    Allocate * const make = part_called(spec.name, allocations, "allocation");
    if (shape.n_layer < 1 || shape.n_expert_used < 1 || shape.n_expert_used > shape.n_expert) {
        throw std::invalid_argument("There is nothing to allocate for a model without experts");
    }
    for (Layer l = 0; l < shape.n_layer; l++) {
        if (shape.expert_bytes(l) == 0) {
            throw std::invalid_argument("There is nothing to allocate for experts without bytes");
        }
    }
    if (n_slot < 0) {
        throw std::invalid_argument("The number of slots is below 0");
    }
    Layout layout = make(spec, shape, std::clamp(n_slot, shape.n_expert_used, shape.n_expert));
    layout.validate(shape);
    return layout;
}

std::vector<std::string> allocation_names() { return names_of(allocations); }

}  // namespace outrider
