#include "core/predict/learned.h"

#include <algorithm>
#include <cmath>

#include "core/predict/mat_vec.h"
#include "core/predict/next_router.h"
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

}  // namespace

Learned::Learned(const Spec & spec, const Surroundings & around, int32_t n_predict)
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

Learned::Network Learned::load(SpecReader & settings, const std::string & prefix, int64_t n_input) const {
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
Learned::Network Learned::load(SpecReader & settings, const Surroundings & around, Layer layer, int32_t stride) const {
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
bool Learned::load_tokens(SpecReader & settings, int32_t stride) {
    token_rows_ = settings.find("token.rows", {-1, -1});
    if (!token_rows_) {
        return false;
    }
    no_row_.resize(size_t(token_rows_->shape[1]));
    for (Layer layer = 0; layer < n_layer_; layer++) {
        Network n = load(settings, numbered("t", layer).append("."), token_rows_->shape[1]);
        if (n.w1) {
            n.w1_last = Matrix(settings.find(numbered("t", layer).append(".w1_last"), {n.w1.n_row(), n_embd_}), bytes_);
        }
        if ((n.w2 || n.b2 || n.skip || n.skip_up || n.before) && (stride == 0 || layer < stride)) {
            n.target = layer;
            of_token_.push_back(std::move(n));
        }
    }
    return !of_token_.empty();
}

void Learned::request_began() {
    for (auto & ids : last_) {
        ids.clear();
    }
    last_input_.clear();
}

void Learned::pass_began(Phase, std::span<const int32_t> tokens, Forecasts & out) {
    const auto n_token = int32_t(tokens.size());
    if (n_token == 0) {
        return;
    }
    if (n_token > 1) {
        last_input_.clear();  // it precedes only the first of these tokens
    }
    for (Network & network : of_token_) {
        const auto before = n_token == 1 ? std::span<const Expert>(last_[network.target]) : std::span<const Expert>();
        out.push_back(poll_.ask(network.target, Asked(n_token), n_predict_, [&](int32_t token, float * row) {
            const int32_t id = tokens[size_t(token)];
            const bool is_known = id >= 0 && id < token_rows_->shape[0];
            const float * x = is_known ? &token_rows_->values[size_t(id) * no_row_.size()] : no_row_.data();
            score(network, x, {}, before, row);
        }));
    }
}

void Learned::routed(const Routing & routing, Forecasts &) {
    ids_.assign(routing.ids.begin(), routing.ids.end());
    present_ = {routing.layer, routing.n_token, ids_};
    if (routing.n_token > 0) {
        const size_t n_used = ids_.size() / size_t(routing.n_token);
        last_[routing.layer].assign(ids_.end() - ptrdiff_t(n_used), ids_.end());
    }
}

void Learned::gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Forecasts & out) {
    if (n_token <= 0 || input.size() < size_t(n_token) * size_t(n_embd_)) {
        return;
    }
    if (layer == n_layer_ - 1 && !of_token_.empty()) {
        last_input_.assign(input.begin() + int64_t(n_token - 1) * n_embd_, input.begin() + int64_t(n_token) * n_embd_);
    }
    const bool knows_chosen = present_.layer == layer && present_.n_token == n_token;
    const size_t n_used = ids_.size() / size_t(n_token);
    for (Network & network : networks_[layer]) {
        const bool of_next = network.target <= layer;
        const int32_t first = of_next ? n_token - 1 : 0;
        const Asked tokens(n_token - first);
        const auto before =
            n_token == 1 || of_next ? std::span<const Expert>(last_[network.target]) : std::span<const Expert>();
        out.push_back(poll_.ask(network.target, tokens, n_predict_, [&](int32_t token, float * row) {
            token += first;
            const auto chosen =
                knows_chosen ? present_.ids.subspan(size_t(token) * n_used, n_used) : std::span<const Expert>();
            score(network, input.data() + int64_t(token) * n_embd_, chosen, before, row);
        }));
    }
}

void Learned::score(Network & n, const float * x, std::span<const Expert> chosen, std::span<const Expert> before,
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

}  // namespace outrider
