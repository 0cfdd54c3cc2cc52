// A later layer's router applied to this layer's MoE input (MoEpic, Eq. 3). Needs no training: the
// residual stream changes little from one layer to the next.
#include <algorithm>

#include "core/predict/mat_vec.h"
#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// Numbers: stride, 1 (as in the paper) or 2.
// The first layers are predicted from the last layer's input of the previous token (section 4); after a pass of several
// tokens, of its last one. Layers with an unknown router are not predicted.
class NextRouter final : public Predictor {
  public:
    NextRouter(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_layer_(around.shape.n_layer),
          n_expert_(around.shape.n_expert),
          n_embd_(around.n_embd),
          n_predict_(forecast_size(around.shape, n_predict)),
          routers_(known_routers(spec, around)),
          biases_(around.router_biases),
          poll_(n_expert_) {
        SpecReader settings(spec, "predictor");
        stride_ = settings.whole("stride", 1, 1, 2);
        settings.finish();
    }

    bool wants_input() const override { return true; }

    void routed(const Routing & routing, Forecasts &) override {
        n_routed_ = routing.n_token;
        last_ = routing.last_tokens();
    }

    void gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Forecasts & out) override {
        const Layer target = layer_after(layer, stride_, n_layer_);
        if (target == none || routers_[target].empty() || n_token <= 0 ||
            input.size() < size_t(n_token) * size_t(n_embd_)) {
            return;
        }
        const bool of_next = target <= layer;  // of the next tokens
        if (of_next && n_token != n_routed_) {
            last_ = {n_token - 1};
        }
        const Asked tokens(of_next ? int32_t(last_.size()) : n_token);
        out.push_back(poll_.ask(target, tokens, n_predict_, [&](int32_t token, float * row) {
            token = of_next ? last_[size_t(token)] : token;
            std::fill(row, row + n_expert_, 0.0f);
            add_mat_vec(routers_[target].data(), input.data() + int64_t(token) * n_embd_, n_expert_, n_embd_, row);
            if (size_t(target) < biases_.size()) {
                choose_by(biases_[size_t(target)], {row, size_t(n_expert_)});
            }
        }));
    }

  private:
    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_embd_;
    int32_t n_predict_;
    int32_t stride_;
    std::vector<std::span<const float>> routers_;
    int32_t n_routed_ = 0;  // tokens of the layer routed last
    std::vector<int32_t> last_;  // of these, the last one of each sequence
    std::vector<RouterBias> biases_;
    Poll poll_;
};

}  // namespace

std::unique_ptr<Predictor> make_next_router(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<NextRouter>(spec, around, n_predict);
}

}  // namespace outrider
