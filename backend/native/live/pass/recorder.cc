// INVARIANT: outside a pass all vectors hold whole passes of the same number.
#include "live/pass/recorder.h"

#include <ggml.h>

#include <algorithm>
#include <stdexcept>

namespace outrider {
namespace {

constexpr float max_half = 65504.0f;
constexpr uint8_t seen_weights = 1, seen_scores = 2, seen_input = 4;

template <typename T>
uint64_t bytes_of(const std::vector<T> & values) {
    return values.size() * sizeof(T);
}

}  // namespace

uint64_t Recording::bytes() const {
    return bytes_of(phases) + bytes_of(requests) + bytes_of(n_token) + bytes_of(n_routed) + bytes_of(tokens) +
           bytes_of(sequences) + bytes_of(ids) + bytes_of(weights) + bytes_of(scores) + bytes_of(inputs);
}

Recorder::Recorder(const RecorderOptions & options) : options_(options) {
    const auto & o = options_;
    if (o.n_layer < 1 || o.n_expert < 1 || o.n_expert > 1 << 16 || o.n_expert_used < 1 ||
        o.n_expert_used > o.n_expert || (o.inputs && o.n_embd < 1) ||
        (!o.n_used.empty() && o.n_used.size() != size_t(o.n_layer)) ||
        !std::ranges::all_of(o.n_used, [&](int32_t n) { return n >= 1 && n <= o.n_expert_used; })) {
        throw std::invalid_argument("A recorder needs layers, experts and the width of their inputs");
    }
    start();
}

void Recorder::start() {
    kept_ = {};
    kept_.id_bytes = options_.n_expert <= 256 ? 1 : 2;
    kept_.has_inputs.assign(size_t(options_.n_layer), options_.inputs);
    has_weights_ = options_.weights;
    has_scores_ = options_.scores;
}

void Recorder::request_began() { request_++; }

uint64_t Recorder::pass_bytes(size_t n_token) const {
    const auto & o = options_;
    const uint64_t n_half = (o.weights ? uint64_t(o.n_expert_used) : 0) + (o.scores ? uint64_t(o.n_expert) : 0) +
                            (o.inputs ? uint64_t(o.n_embd) : 0);
    const uint64_t row_bytes = uint64_t(o.n_expert_used) * uint64_t(kept_.id_bytes) + n_half * sizeof(uint16_t);
    const uint64_t n_layer = uint64_t(o.n_layer);
    return n_token * (n_layer * row_bytes + sizeof(int32_t)) + 9 + n_layer * sizeof(int32_t);
}

void Recorder::pass_began(Phase phase, std::span<const int32_t> tokens, std::span<const int32_t> sequences) {
    if (open_) {
        pass_ended(false);  // the last pass did not end
    }
    if (tokens.empty() || full_) {
        return;
    }
    const uint64_t sequence_bytes = sequences.size_bytes();
    if (options_.max_bytes > 0 && bytes() + pass_bytes(tokens.size()) + sequence_bytes > options_.max_bytes) {
        full_ = true;
        return;
    }
    open_ = true;
    broken_ = false;
    n_token_ = int32_t(tokens.size());
    seen_.assign(size_t(options_.n_layer), 0);
    kept_.phases.push_back(uint8_t(phase));
    kept_.requests.push_back(std::max(request_, 0));
    kept_.n_token.push_back(n_token_);
    kept_.n_routed.resize(kept_.n_routed.size() + size_t(options_.n_layer), 0);
    if (sequences.size() == tokens.size()) {
        kept_.sequences.resize(kept_.tokens.size(), 0);
        kept_.sequences.insert(kept_.sequences.end(), sequences.begin(), sequences.end());
    } else if (!kept_.sequences.empty()) {
        kept_.sequences.resize(kept_.tokens.size() + tokens.size(), 0);
    }
    kept_.tokens.insert(kept_.tokens.end(), tokens.begin(), tokens.end());
    const size_t n_row = kept_.tokens.size() * size_t(options_.n_layer);
    kept_.ids.resize(n_row * size_t(options_.n_expert_used) * size_t(kept_.id_bytes), 0);
    if (options_.weights) {
        kept_.weights.resize(n_row * size_t(options_.n_expert_used), 0);
    }
    if (options_.scores) {
        kept_.scores.resize(n_row * size_t(options_.n_expert), 0);
    }
    if (options_.inputs) {
        kept_.inputs.resize(n_row * size_t(options_.n_embd), 0);
    }
}

void Recorder::routed(Layer layer, std::span<const Expert> ids, int32_t n_token, std::span<const float> weights) {
    if (!open_ || broken_) {
        return;
    }
    const size_t n_id = exists(layer) ? size_t(std::max(n_token, 0)) * size_t(options_.used(layer)) : 0;
    const auto is_expert = [&](Expert e) { return e >= 0 && e < options_.n_expert; };
    if (!exists(layer) || n_token < 0 || n_token > n_token_ || ids.size() != n_id ||
        !std::all_of(ids.begin(), ids.end(), is_expert)) {
        broken_ = true;
        return;
    }
    n_routed(layer) = n_token;
    if (kept_.id_bytes == 1) {
        put_ids<uint8_t>(layer, ids);
    } else {
        put_ids<uint16_t>(layer, ids);
    }
    if (options_.weights && weights.size() == n_id) {
        put_halves(kept_.weights, layer, options_.n_expert_used, weights, options_.used(layer));
        seen_[layer] |= seen_weights;
    }
}

// Some architectures compute a layer's router for all tokens, and its experts for the last ones.
std::span<const float> Recorder::last_rows(Layer layer, std::span<const float> rows, int32_t width) {
    const size_t n = size_t(n_routed(layer)) * size_t(width);
    const size_t n_all = size_t(n_token_) * size_t(width);
    return rows.size() == n || rows.size() == n_all ? rows.last(n) : std::span<const float>{};
}

void Recorder::scores(Layer layer, std::span<const float> values) {
    if (!wants_scores() || !exists(layer) || broken_) {
        return;
    }
    if (const auto rows = last_rows(layer, values, options_.n_expert); !rows.empty()) {
        put_halves(kept_.scores, layer, options_.n_expert, rows, options_.n_expert);
        seen_[layer] |= seen_scores;
    }
}

void Recorder::input(Layer layer, std::span<const float> rows) {
    if (!wants_inputs() || !exists(layer) || broken_) {
        return;
    }
    if (const auto last = last_rows(layer, rows, options_.n_embd); !last.empty()) {
        put_halves(kept_.inputs, layer, options_.n_embd, last, options_.n_embd);
        seen_[layer] |= seen_input;
    }
}

void Recorder::pass_ended(bool whole) {
    if (!open_) {
        return;
    }
    open_ = false;
    if (whole && !broken_) {
        for (Layer l = 0; l < options_.n_layer; l++) {
            if (n_routed(l) > 0) {
                has_weights_ &= (seen_[l] & seen_weights) > 0;
                has_scores_ &= (seen_[l] & seen_scores) > 0;
                kept_.has_inputs[l] &= (seen_[l] & seen_input) > 0;
            }
        }
        return;
    }
    n_dropped_++;
    kept_.phases.pop_back();
    kept_.requests.pop_back();
    kept_.n_token.pop_back();
    kept_.n_routed.resize(kept_.n_routed.size() - size_t(options_.n_layer));
    kept_.tokens.resize(kept_.tokens.size() - size_t(n_token_));
    kept_.sequences.resize(std::min(kept_.sequences.size(), kept_.tokens.size()));
    const size_t n_row = kept_.tokens.size() * size_t(options_.n_layer);
    kept_.ids.resize(n_row * size_t(options_.n_expert_used) * size_t(kept_.id_bytes));
    kept_.weights.resize(options_.weights ? n_row * size_t(options_.n_expert_used) : 0);
    kept_.scores.resize(options_.scores ? n_row * size_t(options_.n_expert) : 0);
    kept_.inputs.resize(options_.inputs ? n_row * size_t(options_.n_embd) : 0);
}

Recording Recorder::take() {
    if (open_) {
        throw std::logic_error("A recording cannot be taken within a pass");
    }
    Recording taken = std::move(kept_);
    if (!has_weights_) {
        taken.weights = {};
    }
    if (!has_scores_) {
        taken.scores = {};
    }
    if (std::none_of(taken.has_inputs.begin(), taken.has_inputs.end(), [](uint8_t has) { return has; })) {
        taken.inputs = {};
    }
    start();
    return taken;
}

// Store the rows of the last n_routed tokens of the pass.
template <typename Id>
void Recorder::put_ids(Layer layer, std::span<const Expert> ids) {
    const size_t k = size_t(options_.n_expert_used), stride = k * size_t(options_.n_layer);
    const size_t n = size_t(options_.used(layer)), n_row = ids.size() / n;
    Id * row = reinterpret_cast<Id *>(kept_.ids.data()) + (kept_.tokens.size() - n_row) * stride + size_t(layer) * k;
    for (size_t t = 0; t < n_row; t++, row += stride) {
        std::copy_n(ids.begin() + std::ptrdiff_t(t * n), n, row);
        std::fill_n(row + n, k - n, row[n - 1]);
    }
}

void Recorder::put_halves(std::vector<uint16_t> & to, Layer layer, int32_t width, std::span<const float> from,
                          int32_t n) {
    const size_t w = size_t(width), stride = w * size_t(options_.n_layer);
    const size_t n_row = from.size() / size_t(n);
    uint16_t * row = to.data() + (kept_.tokens.size() - n_row) * stride + size_t(layer) * w;
    for (size_t t = 0; t < n_row; t++, row += stride) {
        for (size_t i = 0; i < size_t(n); i++) {
            // Clamp to the range of f16. NaN stays NaN.
            row[i] = ggml_fp32_to_fp16(std::clamp(from[t * size_t(n) + i], -max_half, max_half));
        }
    }
}

}  // namespace outrider
