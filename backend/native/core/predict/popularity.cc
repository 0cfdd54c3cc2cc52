// The experts that each layer chose most often so far: the baseline of all predictors.
#include <algorithm>

#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// Numbers: online, 1 (the default): learns from routings while it runs, 0: does not. Arrays: counts
// [n_layer][n_expert], the initial counts; optional, not negative. When a pass begins it forecasts all layers.
class Popularity final : public Predictor {
  public:
    Popularity(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_layer_(around.shape.n_layer),
          n_expert_(around.shape.n_expert),
          n_predict_(forecast_size(around.shape, n_predict)),
          counts_(size_t(n_layer_) * size_t(n_expert_), 0.0f) {
        SpecReader settings(spec, "predictor");
        online_ = settings.whole("online", 1, 0, 1) == 1;
        if (const auto counts = settings.find_counts("counts", {n_layer_, n_expert_})) {
            counts_ = counts->values;
        }
        settings.finish();
    }

    void pass_began(Phase, std::span<const int32_t>, Forecasts & out) override {
        for (Layer l = 0; l < n_layer_; l++) {
            const auto counts = std::span<const float>(counts_).subspan(size_t(l) * n_expert_, n_expert_);
            Forecast forecast = best_of(l, counts, n_predict_, 0.0f);
            if (!forecast.experts.empty()) {
                out.push_back(std::move(forecast));
            }
        }
    }

    void routed(const Routing & routing, Forecasts &) override {
        if (online_) {
            float * counts = &counts_[size_t(routing.layer) * n_expert_];
            for (Expert e : routing.ids) {
                counts[e] += 1;
            }
        }
    }

  private:
    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    bool online_;
    std::vector<float> counts_;  // [layer * n_expert + expert]
};

}  // namespace

std::unique_ptr<Predictor> make_popularity(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<Popularity>(spec, around, n_predict);
}

}  // namespace outrider
