#include "core/evict/static.h"

#include <algorithm>

#include "core/spec_reader.h"

namespace outrider {

Static::Static(const Spec & spec, const Shape & shape) : n_token_(size_t(shape.n_layer), 0), count_(shape, 0) {
    SpecReader settings(spec, "eviction");
    n_warmup_ = settings.number("warmup", 64, 0, 1e9);
    const auto popularity = settings.find("popularity", {shape.n_layer, shape.n_expert});
    settings.finish();
    if (popularity) {
        std::ranges::copy(popularity->values, count_.all().begin());
        n_warmup_ = 0;
    }
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
