// MoEpic's cache priority (section 3.3, Eq. 4): mu * rho^(nu / omega), with mu an expert's activations
// and nu the tokens since the last one. The lowest leaves.
#include <cmath>
#include <limits>

#include "core/allocate/moepic_statistics.h"
#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

class Lcp final : public Eviction {
  public:
    // Numbers: omega (128), tokens; rho (0.25). Priorities go on from those of `past`, if there are any: a new layout
    // keeps them.
    Lcp(const Spec & spec, const Shape & shape, const MoepicStatistics * past)
        : count_(shape, 0),
          log_count_(shape, -std::numeric_limits<double>::infinity()),
          last_(shape, 0),
          clock_(size_t(shape.n_layer), 0) {
        SpecReader settings(spec, "eviction");
        const double omega = settings.number("omega", 128, 1e-3, 1e9);
        const double rho = settings.number("rho", 0.25, 1e-9, 1);
        settings.finish();
        log_decay_ = std::log(rho) / omega;
        for (Layer l = 0; past && l < shape.n_layer; l++) {
            clock_[size_t(l)] = double(past->state().clock[size_t(l)]);
            for (Expert e = 0; e < shape.n_expert; e++) {
                const auto at = size_t(l) * size_t(shape.n_expert) + size_t(e);
                count_.at(l, e) = past->state().used[at];
                log_count_.at(l, e) = std::log(count_.at(l, e));
                last_.at(l, e) = double(past->state().last[at]);
            }
        }
    }

    // Every token of a prompt counts by itself.
    void routed(const Routing & routing, std::span<const Demand> demands) override {
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

    // The logarithm of the priority: same order, no overflow or underflow.
    double keep(Layer layer, Part, Expert expert) const override {
        return log_count_.at(layer, expert) + log_decay_ * (clock_[size_t(layer)] - last_.at(layer, expert));
    }

  private:
    double log_decay_;
    PerExpert<double> count_;
    PerExpert<double> log_count_;
    PerExpert<double> last_;  // the layer's clock at the last activation
    std::vector<double> clock_;  // [layer], in tokens
};

}  // namespace

std::unique_ptr<Eviction> make_lcp(const Spec & spec, const Surroundings & around) {
    return std::make_unique<Lcp>(spec, around.shape, around.statistics.get());
}

}  // namespace outrider
