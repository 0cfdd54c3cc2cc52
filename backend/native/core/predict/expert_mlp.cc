// DuoServe-MoE's ExpertMLP (section 4): a deep network that sees the experts that a token chose in all layers before,
// the popularity of the next layer's experts, and their affinity to the last choice.
#include <algorithm>

#include "core/predict/mat_vec.h"
#include "core/predict/matrix.h"
#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// One network for all layers. After layer l - 1 of a decode pass of one token it predicts layer l. It predicts nothing
// in prefill (section 5). Its input, of (n_layer - 1) * n_expert_used + 2 * n_expert values:
//   history: the chosen experts of the layers 0 .. l - 1 in the router's order, each as (index + 1) /
//     n_expert; 0 for those to come; a layer that uses fewer than n_expert_used repeats its last one;
//   popularity of layer l (Eq. 2);
//   affinity: the mean of the rows of layer l's affinity matrix (Eq. 3) of the experts chosen in l - 1
//     (section 5.1 calls it a vector; 0 for rows that were never seen).
// Number: bytes, 1: keeps w0, w1, ... in memory as bytes with a factor for each row; by default 0.
// Arrays: w0, w1, ... [outputs][inputs] and b0, b1, ... [outputs], any number of layers with ReLU between them (the
// paper has seven, of hidden widths from 2048 down to 64; fold batch norm in, since it follows the product directly);
// popularity [n_layer][n_expert]; affinity [n_layer][n_expert][n_expert], whose [l][i][j] is
// P(j in layer l | i in layer l - 1); [0] is unused.
class ExpertMlp final : public Predictor {
  public:
    ExpertMlp(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_layer_(around.shape.n_layer),
          n_expert_(around.shape.n_expert),
          n_expert_used_(around.shape.n_expert_used),
          shape_(around.shape),
          n_predict_(forecast_size(around.shape, n_predict)),
          input_(size_t(n_layer_ - 1) * n_expert_used_ + 2 * size_t(n_expert_)),
          poll_(n_expert_) {
        SpecReader settings(spec, "predictor");
        const bool bytes = settings.whole("bytes", 0, 0, 1) == 1;
        popularity_ = settings.need("popularity", {n_layer_, n_expert_});
        affinity_ = settings.need("affinity", {n_layer_, n_expert_, n_expert_});
        auto n_input = int64_t(input_.size());
        for (int32_t i = 0; i == 0 || spec.has(numbered("w", i)); i++) {
            Matrix weights(settings.need(numbered("w", i), {-1, n_input}), bytes);
            n_input = weights.n_row();
            products_.push_back({std::move(weights), settings.need(numbered("b", i), {n_input})});
        }
        if (n_input != n_expert_) {
            settings.refuse("needs one output for each expert");
        }
        settings.finish();
    }

    void pass_began(Phase phase, std::span<const int32_t>, Forecasts &) override {
        n_known_ = phase == Phase::decode ? 0 : none;
        std::fill(input_.begin(), input_.end(), 0.0f);
        histories_.clear();
    }

    // A pass of several sequences has one token of each; every token is asked.
    void routed(const Routing & routing, Forecasts & out) override {
        const Layer target = routing.layer + 1;
        const size_t n_history = input_.size() - 2 * size_t(n_expert_);
        const auto n_token = size_t(std::max(routing.n_token, 0));
        if (routing.layer == 0) {
            histories_.assign(n_token * n_history, 0.0f);
        }
        if (routing.layer != n_known_ || target == n_layer_ || n_token == 0 ||
            (n_token > 1 && routing.last_tokens().size() != n_token) || histories_.size() != n_token * n_history ||
            routing.ids.size() != n_token * size_t(shape_.used(routing.layer))) {
            n_known_ = none;
            return;
        }
        n_known_++;
        for (size_t t = 0; t < n_token; t++) {
            const auto ids = routing.of(int32_t(t));
            for (size_t i = 0; i < size_t(n_expert_used_); i++) {
                histories_[t * n_history + size_t(routing.layer) * n_expert_used_ + i] =
                    float(ids[std::min(i, ids.size() - 1)] + 1) / float(n_expert_);
            }
        }
        out.push_back(poll_.ask(target, Asked(routing.n_token), n_predict_, [&](int32_t token, float * scores) {
            std::copy_n(&histories_[size_t(token) * n_history], n_history, input_.begin());
            score(target, routing.of(token), scores);
        }));
    }

  private:
    // The scores of a layer, for a token whose history is in input_ and that chose `ids` in the layer before.
    void score(Layer target, std::span<const Expert> ids, float * scores) {
        float * popularity = &input_[input_.size() - 2 * size_t(n_expert_)];
        float * affinity = popularity + n_expert_;
        std::copy_n(popularity_->values.begin() + int64_t(target) * n_expert_, n_expert_, popularity);
        std::fill_n(affinity, n_expert_, 0.0f);
        for (const Expert e : ids) {
            add_scaled(affinity_->values.data() + (int64_t(target) * n_expert_ + e) * n_expert_,
                       1.0f / float(ids.size()), n_expert_, affinity);
        }
        values_ = input_;
        for (size_t i = 0; i < products_.size(); i++) {
            next_ = products_[i].bias->values;
            products_[i].weights.add_product(values_.data(), next_.data());
            if (i + 1 < products_.size()) {
                for (float & v : next_) {
                    v = v > 0 ? v : 0;
                }
            }
            std::swap(values_, next_);
        }
        std::copy_n(values_.begin(), n_expert_, scores);
    }

    using Weights = std::shared_ptr<const Array>;
    struct Product {
        Matrix weights;
        Weights bias;
    };

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_expert_used_;
    Shape shape_;
    int32_t n_predict_;
    std::vector<Product> products_;
    Weights popularity_;
    Weights affinity_;
    int32_t n_known_ = 0;         // layers of this pass whose choice is in the history; none: do not predict
    std::vector<float> input_;    // history, popularity, affinity
    std::vector<float> histories_;  // [token][n_history], of this pass
    Poll poll_;
    std::vector<float> values_, next_;
};

}  // namespace

std::unique_ptr<Predictor> make_expert_mlp(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<ExpertMlp>(spec, around, n_predict);
}

}  // namespace outrider
