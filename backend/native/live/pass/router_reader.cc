#include "live/pass/router_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace outrider {
namespace {

constexpr float max_half = 65504;

void softmax(std::span<float> values) {
    const float largest = *std::max_element(values.begin(), values.end());
    float sum = 0;
    for (float & v : values) {
        v = std::exp(v - largest);
        sum += v;
    }
    for (float & v : values) {
        v /= sum;
    }
}

}  // namespace

void RouterReader::request_began() {
    if (recorder_) {
        recorder_->request_began();
    }
}

void RouterReader::begin_pass(Phase phase, std::span<const int32_t> tokens, std::span<const int32_t> sequences) {
    logits_.assign(size_t(graph_.shape.n_layer), nullptr);
    probabilities_of_.assign(size_t(graph_.shape.n_layer), nullptr);
    input_of_ = none;
    if (recorder_) {
        recorder_->pass_began(phase, tokens, sequences);
    }
}

void RouterReader::end_pass(bool whole) {
    if (recorder_) {
        recorder_->pass_ended(whole);
    }
}

void RouterReader::note(ggml_tensor * node) {
    if (std::strncmp(node->name, "ffn_moe_", 8) != 0) {
        return;
    }
    const auto note = [&](std::optional<int> il, std::vector<ggml_tensor *> & of_layer) {
        const auto it = il ? graph_.layer_of_number.find(*il) : graph_.layer_of_number.end();
        if (it != graph_.layer_of_number.end()) {
            of_layer[size_t(it->second)] = node;
        }
    };
    note(layer_of_logits(node), logits_);
    note(layer_in_name(node, "ffn_moe_probs"), probabilities_of_);
}

// Read all of a tensor; nothing if there is none.
void RouterReader::read_floats(const ggml_tensor * from, std::vector<float> & to, DeviceWork & work) {
    to.resize(from ? size_t(ggml_nelements(from)) : 0);
    if (from) {
        work.read(from, to.data(), ggml_nbytes(from));
    }
}

void RouterReader::read_input(Layer layer, DeviceWork & work) {
    read_floats(readable_input(layer), input_, work);
    work.end_reads();
    input_of_ = layer;
}

void RouterReader::read(ggml_tensor * topk, Layer layer, DeviceWork & work, const Core & core, bool late,
                        const ggml_tensor * final_weights) {
    if (forced_) {
        forced_->write(topk, layer);
    }
    const bool wants_weights = recorder_ || core.wants_weights();
    const bool wants_input = core.wants_gate_input() || (recorder_ && recorder_->wants_inputs());
    n_token_ = int32_t(topk->ne[1]);
    const ggml_tensor * probabilities = wants_weights && !late ? readable_probabilities(layer) : nullptr;
    choice_.resize(ggml_nbytes(topk));
    work.read(topk, choice_.data(), choice_.size());
    read_floats(probabilities, probabilities_, work);
    read_floats(wants_weights && late ? final_weights : nullptr, weights_, work);
    if (!has_input(layer)) {
        read_floats(wants_input ? readable_input(layer) : nullptr, input_, work);
    }
    input_of_ = none;
    work.end_reads();
    take_ids(topk);
    if (probabilities) {
        take_weights(probabilities);
    }
    round_to_half(weights_);
    round_to_half(input_);
    if (forced_) {
        replace(forced_->values(layer, n_token_));
    }
}

// `topk` may be a view into a sorted list of all experts. Its rows are then n_expert apart.
void RouterReader::take_ids(const ggml_tensor * topk) {
    const auto n_row = size_t(topk->ne[1]);
    const size_t row = size_t(topk->ne[0]) * sizeof(int32_t);
    ids_.resize(size_t(topk->ne[0]) * n_row);
    for (size_t i = 0; i < n_row; i++) {
        std::memcpy(reinterpret_cast<uint8_t *>(ids_.data()) + i * row, choice_.data() + i * topk->nb[1], row);
    }
    check_ids();
}

void RouterReader::take(std::span<const int32_t> ids, std::span<const float> weights, std::span<const float> input) {
    n_token_ = 1;
    ids_.assign(ids.begin(), ids.end());
    weights_.assign(weights.begin(), weights.end());
    input_.assign(input.begin(), input.end());
    probabilities_.clear();
    input_of_ = none;
    check_ids();
    round_to_half(weights_);
    round_to_half(input_);
}

void RouterReader::show_recorder(Layer layer) {
    if (!recorder_) {
        return;
    }
    recorder_->routed(layer, ids_, n_token_, weights_);
    if (!probabilities_.empty()) {
        recorder_->scores(layer, probabilities_);
    }
    if (!input_.empty()) {
        recorder_->input(layer, input_);
    }
}

// Replace the read values where other values are forced.
void RouterReader::replace(ForcedValues values) {
    if (!weights_.empty() && !values.weights.empty()) {
        weights_ = std::move(values.weights);
    }
    if (!input_.empty() && !values.inputs.empty()) {
        input_ = std::move(values.inputs);
    }
}

void RouterReader::check_ids() const {
    for (Expert e : ids_) {
        if (e < 0 || e >= graph_.shape.n_expert) {
            throw std::runtime_error("The router chose an expert that does not exist");
        }
    }
}

// Return the probabilities of all experts, before llama.cpp normalises or scales the chosen ones. Null if they cannot
// be read.
const ggml_tensor * RouterReader::readable_probabilities(Layer layer) const {
    const ggml_tensor * of = probabilities_of_[size_t(layer)];
    const bool fits = of && of->type == GGML_TYPE_F32 && of->ne[0] == graph_.shape.n_expert && of->ne[1] == n_token_ &&
                      ggml_nelements(of) == of->ne[0] * of->ne[1] && ggml_is_contiguous(of);
    return fits ? of : nullptr;
}

// Return the layer's MoE input, or null if it cannot be read.
const ggml_tensor * RouterReader::readable_input(Layer layer) const {
    const ggml_tensor * logits = logits_[size_t(layer)];
    const ggml_tensor * input = logits ? logits->src[1] : nullptr;
    const bool fits =
        input && input->type == GGML_TYPE_F32 && input->ne[0] == graph_.n_embd && ggml_is_contiguous(input);
    return fits ? input : nullptr;
}

// Compute the chosen experts' weights from the probabilities that were read.
void RouterReader::take_weights(const ggml_tensor * of) {
    const size_t n_used = ids_.size() / size_t(n_token_);
    // Some architectures apply the softmax after the choice. The tensor then holds scores.
    const bool are_scores = of->op == GGML_OP_MUL_MAT || of->op == GGML_OP_ADD;
    weights_.resize(ids_.size());
    for (size_t t = 0; t < size_t(n_token_); t++) {
        const float * of_token = &probabilities_[t * size_t(of->ne[0])];
        float * weights = &weights_[t * n_used];
        for (size_t k = 0; k < n_used; k++) {
            weights[k] = of_token[ids_[t * n_used + k]];
        }
        if (are_scores) {
            softmax({weights, n_used});
        }
    }
}

// A trace stores halves. The core gets the same values, so that a replayed trace gives the same decisions.
void RouterReader::round_to_half(std::vector<float> & values) {
    for (float & v : values) {
        v = std::clamp(v, -max_half, max_half);
    }
    half_.resize(values.size());
    ggml_fp32_to_fp16_row(values.data(), half_.data(), int64_t(values.size()));
    ggml_fp16_to_fp32_row(half_.data(), values.data(), int64_t(values.size()));
}

}  // namespace outrider
