// MoE-Infinity's eviction (section 4.7, Algorithm 1): the worth is (p + epsilon) * (1 - layer / L). Among equals the
// early layers stay: they are needed first, and nothing can be prefetched for them. p is the predicted share of a
// layer's activations (Algorithm 1, line 12, divides by the row's sum): from the last forecast for the layer in this
// request or, without one, from the request's own activations; of several sequences, from all of theirs. Without scores
// all experts of a forecast are equal. The paper gives no epsilon; it only has to order experts with p = 0.
#include <algorithm>
#include <cmath>

#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/predict/open_sequences.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

class EamEviction final : public Eviction {
  public:
    // Number: epsilon (1e-6).
    EamEviction(const Spec & spec, const Shape & shape)
        : shape_(shape), n_layer_(shape.n_layer), own_(shape, 0), forecast_(shape, 0), rows_(size_t(n_layer_)) {
        SpecReader settings(spec, "eviction");
        epsilon_ = settings.number("epsilon", 1e-6, 1e-12, 1);
        settings.finish();
    }

    void request_began() override {
        std::ranges::fill(own_.all(), 0.0);
        std::ranges::fill(rows_, Row{});
        open_.end_all([](auto &) {});
    }
    void sequence_began(int32_t) override {
        open_.begin([&](const std::vector<double> & used) {
            for (size_t i = 0; i < used.size(); i++) {
                own_.all()[i] -= used[i];
                rows_[i / size_t(shape_.n_expert)].sum -= used[i];
            }
        });
    }
    void pass_began(Phase) override { open_.pass_began(); }

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            own_.at(routing.layer, d.expert) += d.n_token;
            rows_[size_t(routing.layer)].sum += d.n_token;
        }
        for (int32_t t = 0; t < int32_t(routing.sequences.size()); t++) {
            auto & used = open_.of(routing.sequence(t));
            used.resize(own_.all().size());
            for (const Expert e : routing.of(t)) {
                used[size_t(routing.layer) * size_t(shape_.n_expert) + size_t(e)] += 1;
            }
        }
    }

    void forecast(const Forecast & forecast) override {
        const auto row = forecast_.row(forecast.layer);
        std::ranges::fill(row, 0.0);
        double sum = 0;
        for (size_t i = 0; i < forecast.experts.size(); i++) {
            const double score = i < forecast.scores.size() ? double(forecast.scores[i]) : 1.0;
            row[size_t(forecast.experts[i])] = std::isfinite(score) && score > 0 ? score : 0;
        }
        for (double score : row) {
            sum += score;
        }
        rows_[size_t(forecast.layer)].forecast_sum = sum;
    }

    double keep(Layer layer, Part, Expert expert) const override {
        const Row & row = rows_[size_t(layer)];
        double p = 0;
        if (row.forecast_sum > 0) {
            p = forecast_.at(layer, expert) / row.forecast_sum;
        } else if (row.sum > 0) {
            p = own_.at(layer, expert) / row.sum;
        }
        return (p + epsilon_) * (1 - double(layer) / n_layer_);
    }

  private:
    struct Row {
        double sum = 0;  // of the request's own activations
        double forecast_sum = 0;  // of the last forecast's scores; 0: there is none
    };
    Shape shape_;
    int32_t n_layer_;
    double epsilon_;
    PerExpert<double> own_;  // by the sequences that are being answered
    OpenSequences<std::vector<double>> open_;  // [layer * n_expert]: the share that each of them adds to it
    PerExpert<double> forecast_;
    std::vector<Row> rows_;  // [layer]
};

}  // namespace

std::unique_ptr<Eviction> make_eam(const Spec & spec, const Surroundings & around) {
    return std::make_unique<EamEviction>(spec, around.shape);
}

}  // namespace outrider
