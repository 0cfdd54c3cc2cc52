// A fixed set (ProMoE, section 7.1: Static): the most used experts, by a given table or by the first tokens. Others
// leave as soon as they are computed. During the warm-up it is LFU.
#include <algorithm>

#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

class Static final : public Eviction {
  public:
    // Number: warmup (64), tokens counted per layer; the pass that reaches it counts in full.
    // Array: popularity [n_layer, n_expert], instead of counting.
    Static(const Spec & spec, const Shape & shape) : n_token_(size_t(shape.n_layer), 0), count_(shape, 0) {
        SpecReader settings(spec, "eviction");
        n_warmup_ = settings.number("warmup", 64, 0, 1e9);
        const auto popularity = settings.find("popularity", {shape.n_layer, shape.n_expert});
        settings.finish();
        if (popularity) {
            std::ranges::copy(popularity->values, count_.all().begin());
            n_warmup_ = 0;
        }
    }

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        double & n_token = n_token_[size_t(routing.layer)];
        if (n_token >= n_warmup_) {
            return;
        }
        n_token += routing.n_token;
        for (const Demand & d : demands) {
            count_.at(routing.layer, d.expert) += d.n_token;
        }
    }

    double keep(Layer layer, Part, Expert expert) const override { return count_.at(layer, expert); }

  private:
    double n_warmup_;
    std::vector<double> n_token_;  // [layer]: counted so far
    PerExpert<double> count_;
};

}  // namespace

std::unique_ptr<Eviction> make_static(const Spec & spec, const Surroundings & around) {
    return std::make_unique<Static>(spec, around.shape);
}

}  // namespace outrider
