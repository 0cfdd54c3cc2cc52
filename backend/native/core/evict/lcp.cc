#include "core/evict/lcp.h"

#include <cmath>
#include <limits>

#include "core/spec_reader.h"

namespace outrider {

Lcp::Lcp(const Spec & spec, const Shape & shape)
    : count_(shape, 0),
      log_count_(shape, -std::numeric_limits<double>::infinity()),
      last_(shape, 0),
      clock_(size_t(shape.n_layer), 0) {
    SpecReader settings(spec, "eviction");
    const double omega = settings.number("omega", 128, 1e-3, 1e9);
    const double rho = settings.number("rho", 0.25, 1e-9, 1);
    settings.finish();
    log_decay_ = std::log(rho) / omega;
}

// Every token of a prompt counts by itself.
void Lcp::routed(const Routing & routing, std::span<const Demand> demands) {
    double & clock = clock_[size_t(routing.layer)];
    const size_t n_used = routing.n_token > 0 ? routing.ids.size() / size_t(routing.n_token) : 0;
    for (size_t i = 0; i < routing.ids.size(); i++) {
        clock += i % n_used == 0;
        last_.at(routing.layer, routing.ids[i]) = clock;
    }
    for (const Demand & d : demands) {
        double & count = count_.at(routing.layer, d.expert);
        count += d.n_token;
        log_count_.at(routing.layer, d.expert) = std::log(count);
    }
}

}  // namespace outrider
