// MoEpic's cache priority (section 3.3, Eq. 4): mu * rho^(nu / omega), with mu an expert's activations
// and nu the tokens since the last one.
#pragma once

#include <cmath>
#include <stdexcept>

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class Lcp final : public Eviction {
  public:
    // Numbers: omega (128), tokens; rho (0.25).
    Lcp(const Spec & spec, const Surroundings & around)
        : count_(around.shape, 0), last_(around.shape, 0), clock_(size_t(around.shape.n_layer), 0) {
        const double omega = spec.number("omega", 128);
        const double rho = spec.number("rho", 0.25);
        if (!(omega > 0 && rho > 0 && rho <= 1)) {
            throw std::invalid_argument("The eviction lcp takes an omega above 0 and a rho above 0, at most 1");
        }
        log_decay_ = std::log(rho) / omega;
    }

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        clock_[size_t(routing.layer)] += routing.n_token;
        for (const Demand & d : demands) {
            count_.at(routing.layer, d.expert) += d.n_token;
            last_.at(routing.layer, d.expert) = clock_[size_t(routing.layer)];
        }
    }
    // Its logarithm orders alike, and neither overflows nor vanishes.
    double keep(Layer layer, Part, Expert expert) const override {
        return std::log(count_.at(layer, expert)) + log_decay_ * (clock_[size_t(layer)] - last_.at(layer, expert));
    }

  private:
    double log_decay_;
    PerExpert<double> count_;
    PerExpert<double> last_;
    std::vector<double> clock_;  // [layer], in tokens
};

}  // namespace outrider
