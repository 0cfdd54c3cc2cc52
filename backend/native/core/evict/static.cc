#include "static.h"

#include <cmath>
#include <limits>

#include "numbers.h"

namespace outrider {

Static::Static(const Spec & spec, const Shape & shape) : n_token_(size_t(shape.n_layer), 0), count_(shape, 0) {
    Numbers numbers(spec);
    n_warmup_ = numbers.between("warmup", 64, 0, 1e9);
    numbers.finish("popularity");
    if (!spec.has("popularity")) {
        return;
    }
    const Array & given = spec.array("popularity");
    if (given.shape != std::vector<int64_t>{shape.n_layer, shape.n_expert} ||
        given.values.size() != count_.all().size()) {
        numbers.refuse("needs a popularity for each expert of each layer");
    }
    for (size_t i = 0; i < given.values.size(); i++) {
        const double value = double(given.values[i]);
        count_.all()[i] = std::isfinite(value) ? value : -std::numeric_limits<double>::infinity();
    }
    n_warmup_ = 0;
}

void Static::routed(const Routing & routing, std::span<const Demand> demands) {
    double & n_token = n_token_[size_t(routing.layer)];
    if (n_token >= n_warmup_) {
        return;
    }
    n_token += routing.n_token;
    for (const Demand & d : demands) {
        count_.at(routing.layer, d.expert) += d.n_token;
    }
}

}  // namespace outrider
