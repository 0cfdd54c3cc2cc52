// A small network per layer that learned from traces which experts a later layer chooses (ProMoE, sections 4.3
// and 4.4): a two-layer MLP on the layer's MoE input, computed on the CPU. The last layers predict the first ones of
// the next token.
#include <algorithm>
#include <cmath>

#include "core/predict/mat_vec.h"
#include "core/predict/matrix.h"
#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

void activate(int32_t activation, std::vector<float> & values) {
    for (float & v : values) {
        switch (activation) {
            case 0: v = v > 0 ? v : 0; break;
            case 1: v = v / (1 + std::exp(-v)); break;
            default: v = 0.5f * v * (1 + std::erf(v * 0.70710678f)); break;
        }
    }
}

void add_rows(const std::shared_ptr<const Array> & table, std::span<const Expert> rows, float * sum) {
    if (table) {
        const auto n = int32_t(table->shape[1]);
        for (Expert e : rows) {
            add_scaled(table->values.data() + int64_t(e) * n, 1.0f, n, sum);
        }
    }
}

void begin_with(const std::shared_ptr<const Array> & bias, float * values, int64_t n) {
    if (bias) {
        std::copy_n(bias->values.begin(), n, values);
    } else {
        std::fill_n(values, n, 0.0f);
    }
}

// Numbers: stride, 1 or 2, or 0 (the default): every stride that has arrays;
// activation, 0: ReLU, 1: SiLU, 2: GELU (exact); bytes, 1: keeps w1, w2 and skip* in memory as
// bytes with a factor for each row, to read less memory; by default 0.
//
// Arrays "l<layer>.s<stride>.<name>": the network of `layer` for the layer `stride` later. With x the MoE input
// [n_embd], h the hidden width and r any rank,
//     hidden = activation(w1 x + b1 + sum of hidden_chosen[e] + sum of hidden_before[e])
//     scores = w2 hidden + b2 + router * (R x) + skip x + skip_up (skip_down x)
//              + sum of chosen[e] + sum of before[e]
// of shapes w1 [h][n_embd], b1 [h], w2 [n_expert][h], b2 [n_expert], router [n_expert],
// skip [n_expert][n_embd], skip_down [r][n_embd], skip_up [n_expert][r], chosen and before
// [n_expert][n_expert], hidden_chosen and hidden_before [n_expert][h]. All are optional;
// absent ones are left out of the sum. R is the later layer's own router, so router = 1 alone is the next-router
// predictor. `chosen` sums over the experts that `layer` chose for the token, `before` over those that the later layer
// chose for the token before it (left out where a pass has several tokens of a sequence: it is unknown yet). A layer
// without arrays is not predicted.
//
// The last layers do not know the next token, so the first layers can be forecast again when a pass begins.
// "token.rows" [n_vocab][r] has a row for every token id, and arrays "t<layer>.<name>" are the network of that layer
// with x = that row, [r] instead of [n_embd]. They have no router, chosen and hidden_chosen, but w1_last [h][n_embd]:
// its product with the last layer's MoE input of the token before, where known, is added before the activation. With a
// stride, the networks of the layers below it are used.
class Learned final : public Predictor {
  public:
    Learned(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_layer_(around.shape.n_layer),
          n_expert_(around.shape.n_expert),
          n_embd_(around.n_embd),
          n_predict_(forecast_size(around.shape, n_predict)),
          networks_(n_layer_),
          last_(n_layer_),
          routed_scores_(n_expert_),
          poll_(n_expert_) {
        SpecReader settings(spec, "predictor");
        const int32_t only = settings.whole("stride", 0, 0, 2);
        activation_ = settings.whole("activation", 0, 0, 2);
        bytes_ = settings.whole("bytes", 0, 0, 1) == 1;
        bool any = false;
        for (Layer layer = 0; layer < n_layer_; layer++) {
            for (int32_t stride = 1; stride <= 2; stride++) {
                Network network = load(settings, around, layer, stride);
                if (network.target != none && (only == 0 || only == stride)) {
                    networks_[layer].push_back(std::move(network));
                    any = true;
                }
            }
        }
        any = load_tokens(settings, only) || any;
        settings.finish();
        if (!any) {
            settings.refuse(only == 0 ? "needs the arrays of at least one layer"
                                      : numbered("has no arrays for stride ", only));
        }
    }

    bool wants_input() const override { return true; }

    void request_began() override {
        for (Last & last : last_) {
            last = {};
        }
        last_input_.clear();
    }

    void pass_began(Phase, std::span<const int32_t> tokens, Forecasts & out) override {
        const auto n_token = int32_t(tokens.size());
        if (n_token == 0) {
            return;
        }
        if (n_token > 1) {
            last_input_.clear();  // it precedes only the first of these tokens
        }
        for (Network & network : of_token_) {
            const auto before = n_token == 1 ? last_[network.target].of(0) : std::span<const Expert>();
            out.push_back(poll_.ask(network.target, Asked(n_token), n_predict_, [&](int32_t token, float * row) {
                const int32_t id = tokens[size_t(token)];
                const bool is_known = id >= 0 && id < token_rows_->shape[0];
                const float * x = is_known ? &token_rows_->values[size_t(id) * no_row_.size()] : no_row_.data();
                score(network, x, {}, before, row);
            }));
        }
    }

    void routed(const Routing & routing, Forecasts &) override {
        ids_.assign(routing.ids.begin(), routing.ids.end());
        present_ = {routing.layer, routing.n_token, ids_};
        if (routing.n_token > 0) {
            last_tokens_ = routing.last_tokens();
            sequences_.clear();
            Last & last = last_[routing.layer];
            last.sequences.clear();
            last.ids.clear();
            for (int32_t t : last_tokens_) {
                const auto of_token = routing.of(t);
                last.sequences.push_back(routing.sequence(t));
                last.ids.insert(last.ids.end(), of_token.begin(), of_token.end());
            }
            for (int32_t t = 0; t < routing.n_token; t++) {
                sequences_.push_back(routing.sequence(t));
            }
        }
    }

    void gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Forecasts & out) override {
        if (n_token <= 0 || input.size() < size_t(n_token) * size_t(n_embd_)) {
            return;
        }
        if (layer == n_layer_ - 1 && !of_token_.empty()) {
            last_input_.assign(input.begin() + int64_t(n_token - 1) * n_embd_,
                               input.begin() + int64_t(n_token) * n_embd_);
        }
        const bool knows_chosen = present_.layer == layer && present_.n_token == n_token;
        const size_t n_used = ids_.size() / size_t(n_token);
        for (Network & network : networks_[layer]) {
            const bool of_next = network.target <= layer;
            const bool is_joint = knows_chosen && last_tokens_.size() == size_t(n_token);  // one of each sequence
            const int32_t n_next = knows_chosen ? int32_t(last_tokens_.size()) : 1;
            const Asked tokens(of_next ? n_next : n_token);
            out.push_back(poll_.ask(network.target, tokens, n_predict_, [&](int32_t token, float * row) {
                if (of_next) {
                    token = knows_chosen ? last_tokens_[size_t(token)] : n_token - 1;
                }
                const int32_t sequence = knows_chosen ? sequences_[size_t(token)] : 0;
                const auto before = n_token == 1 || is_joint || of_next ? last_[network.target].find(sequence)
                                                                        : std::span<const Expert>();
                const auto chosen =
                    knows_chosen ? present_.ids.subspan(size_t(token) * n_used, n_used) : std::span<const Expert>();
                score(network, input.data() + int64_t(token) * n_embd_, chosen, before, row);
            }));
        }
    }

  private:
    using Weights = std::shared_ptr<const Array>;
    struct Network {
        Layer target = none;
        Matrix w1, w1_last, w2, skip, skip_down, skip_up;
        Weights b1, b2, router, chosen, before, hidden_chosen, hidden_before;
        std::span<const float> own_router{};  // of the target
    };

    Network load(SpecReader & settings, const std::string & prefix, int64_t n_input) const {
        const auto find = [&](const char * name, std::vector<int64_t> shape) {
            return settings.find(prefix + name, shape);
        };
        const auto matrix = [&](const char * name, std::vector<int64_t> shape) {
            return Matrix(find(name, std::move(shape)), bytes_);
        };
        Network n;
        n.w1 = matrix("w1", {-1, n_input});
        const int64_t n_hidden = n.w1 ? n.w1.n_row() : -1;
        n.b1 = find("b1", {n_hidden});
        n.w2 = matrix("w2", {n_expert_, n_hidden});
        n.b2 = find("b2", {n_expert_});
        n.skip = matrix("skip", {n_expert_, n_input});
        n.skip_down = matrix("skip_down", {-1, n_input});
        n.skip_up = matrix("skip_up", {n_expert_, n.skip_down ? n.skip_down.n_row() : -1});
        n.before = find("before", {n_expert_, n_expert_});
        n.hidden_before = find("hidden_before", {n_expert_, n_hidden});
        if (bool(n.w1) != bool(n.w2) || (!n.w1 && (n.b1 || n.hidden_before))) {
            settings.refuse("needs both arrays " + prefix + "w1 and " + prefix + "w2 or none");
        }
        if (bool(n.skip_down) != bool(n.skip_up)) {
            settings.refuse("needs both arrays " + prefix + "skip_down and " + prefix + "skip_up or none");
        }
        return n;
    }

    // The network of `layer` for the layer `stride` later; its target is none if there is no such network.
    Network load(SpecReader & settings, const Surroundings & around, Layer layer, int32_t stride) const {
        const std::string prefix = numbered("l", layer).append(numbered(".s", stride)).append(".");
        Network n = load(settings, prefix, n_embd_);
        n.router = settings.find(prefix + "router", {n_expert_});
        n.chosen = settings.find(prefix + "chosen", {n_expert_, n_expert_});
        n.hidden_chosen = settings.find(prefix + "hidden_chosen", {n_expert_, n.w1 ? n.w1.n_row() : -1});
        if (!n.w1 && n.hidden_chosen) {
            settings.refuse("needs both arrays " + prefix + "w1 and " + prefix + "w2 or none");
        }
        const Layer target = layer_after(layer, stride, n_layer_);
        if (n.router) {
            const auto routers = known_routers(Spec{"learned"}, around);
            if (target == none || routers[target].empty()) {
                settings.refuse("needs a router that is not known for its array " + prefix + "router");
            }
            n.own_router = routers[target];
        }
        const bool any = n.w2 || n.b2 || n.router || n.skip || n.skip_up || n.chosen || n.before;
        n.target = any ? target : none;
        return n;
    }

    // Reads the networks that forecast the first layers from token ids; false if there are none to use.
    bool load_tokens(SpecReader & settings, int32_t stride) {
        token_rows_ = settings.find("token.rows", {-1, -1});
        if (!token_rows_) {
            return false;
        }
        no_row_.resize(size_t(token_rows_->shape[1]));
        for (Layer layer = 0; layer < n_layer_; layer++) {
            Network n = load(settings, numbered("t", layer).append("."), token_rows_->shape[1]);
            if (n.w1) {
                n.w1_last =
                    Matrix(settings.find(numbered("t", layer).append(".w1_last"), {n.w1.n_row(), n_embd_}), bytes_);
            }
            if ((n.w2 || n.b2 || n.skip || n.skip_up || n.before) && (stride == 0 || layer < stride)) {
                n.target = layer;
                of_token_.push_back(std::move(n));
            }
        }
        return !of_token_.empty();
    }

    void score(Network & n, const float * x, std::span<const Expert> chosen, std::span<const Expert> before,
               float * scores) {
        begin_with(n.b2, scores, n_expert_);
        if (n.w1) {
            hidden_.resize(size_t(n.w1.n_row()));
            begin_with(n.b1, hidden_.data(), int64_t(hidden_.size()));
            n.w1.add_product(x, hidden_.data());
            if (n.w1_last && !last_input_.empty()) {
                n.w1_last.add_product(last_input_.data(), hidden_.data());
            }
            add_rows(n.hidden_chosen, chosen, hidden_.data());
            add_rows(n.hidden_before, before, hidden_.data());
            activate(activation_, hidden_);
            n.w2.add_product(hidden_.data(), scores);
        }
        if (n.router) {
            std::fill(routed_scores_.begin(), routed_scores_.end(), 0.0f);
            add_mat_vec(n.own_router.data(), x, n_expert_, n_embd_, routed_scores_.data());
            for (Expert e = 0; e < n_expert_; e++) {
                scores[e] += n.router->values[e] * routed_scores_[e];
            }
        }
        if (n.skip) {
            n.skip.add_product(x, scores);
        }
        if (n.skip_down) {
            low_rank_.assign(size_t(n.skip_down.n_row()), 0.0f);
            n.skip_down.add_product(x, low_rank_.data());
            n.skip_up.add_product(low_rank_.data(), scores);
        }
        add_rows(n.chosen, chosen, scores);
        add_rows(n.before, before, scores);
    }

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_embd_;
    int32_t n_predict_;
    int32_t activation_ = 0;
    bool bytes_ = false;
    std::vector<std::vector<Network>> networks_;  // [layer], the nearest target first
    Weights token_rows_;
    std::vector<Network> of_token_;  // of the first layers, from the token's id
    std::vector<float> last_input_;  // [n_embd], of the last layer and token; or empty
    std::vector<float> no_row_;  // [r], of an unknown token id
    // The experts that a layer chose for the last token of each sequence of a pass.
    struct Last {
        std::vector<int32_t> sequences;
        std::vector<Expert> ids;

        std::span<const Expert> of(size_t i) const {
            const size_t n_used = sequences.empty() ? 0 : ids.size() / sequences.size();
            return std::span(ids).subspan(i * n_used, n_used);
        }
        std::span<const Expert> find(int32_t sequence) const {
            const auto it = std::find(sequences.begin(), sequences.end(), sequence);
            return it == sequences.end() ? std::span<const Expert>() : of(size_t(it - sequences.begin()));
        }
    };
    std::vector<Last> last_;  // [layer]
    std::vector<int32_t> last_tokens_, sequences_;  // of the layer routed last
    Routing present_{};  // ids_ of the layer routed last
    std::vector<Expert> ids_;
    std::vector<float> hidden_;
    std::vector<float> low_rank_;
    std::vector<float> routed_scores_;
    Poll poll_;
};

}  // namespace

std::unique_ptr<Predictor> make_learned(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<Learned>(spec, around, n_predict);
}

}  // namespace outrider
