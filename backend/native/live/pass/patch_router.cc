// What a pass reads of the layers' routers, and who is told.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "live/pass/patch.h"

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

// Remembers where a layer's router puts its scores and probabilities.
void Patch::note_router(ggml_tensor * node) {
    const auto note = [&](std::optional<int> il, std::vector<ggml_tensor *> & of_layer) {
        const auto it = il ? graph_.layer_of_number.find(*il) : graph_.layer_of_number.end();
        if (it != graph_.layer_of_number.end()) {
            of_layer[size_t(it->second)] = node;
        }
    };
    if (std::strncmp(node->name, "ffn_moe_", 8) == 0) {
        note(layer_of_logits(node), logits_);
        note(layer_in_name(node, "ffn_moe_probs"), probabilities_of_);
    }
}

// Whether computing may stop just before the layer's experts. A device then computes the router as stock
// llama.cpp does: a stop at the choice would cut a fused kernel in two, whose result is rounded otherwise. The
// CPU has no such kernels. By then the probabilities of all experts are gone, and routing can no longer be forced.
bool Patch::may_stop_late(Layer layer) const {
    const LateStop & stop = graph_.late_stops[size_t(layer)];
    const bool on_host = ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(graph_.devices[size_t(layer)]));
    return stop.n_node > 1 && !on_host && !late_stops_fail_ && !forced_ && !recorder_ &&
           (stop.keeps_weights || !core_->wants_weights()) && (stop.keeps_input || !core_->wants_gate_input());
}

// Reads all that is wanted of a layer's router in one round trip to the device that computed it: the choice,
// and where somebody uses them, the weights and the layer's input.
void Patch::read_router(const ggml_tensor * topk, Layer layer) {
    const bool wants_weights = recorder_ || core_->wants_weights();
    const bool wants_input = core_->wants_gate_input() || (recorder_ && recorder_->wants_inputs());
    const ggml_tensor * final_weights = wants_weights && stops_late_ ? final_weights_ : nullptr;
    const ggml_tensor * probabilities = wants_weights && !stops_late_ ? readable_probabilities(layer) : nullptr;
    const ggml_tensor * input = wants_input ? readable_input(layer) : nullptr;
    sorted_.resize(ggml_nbytes(topk));
    probabilities_.resize(probabilities ? size_t(ggml_nelements(probabilities)) : 0);
    gate_input_.resize(input ? size_t(ggml_nelements(input)) : 0);
    DeviceWork & work = *work_of_[size_t(layer)];
    work.read(topk, sorted_.data(), sorted_.size());
    if (probabilities) {
        work.read(probabilities, probabilities_.data(), ggml_nbytes(probabilities));
    }
    weights_.resize(final_weights ? size_t(ggml_nelements(final_weights)) : 0);
    if (final_weights) {
        work.read(final_weights, weights_.data(), ggml_nbytes(final_weights));
    }
    if (input) {
        work.read(input, gate_input_.data(), ggml_nbytes(input));
    }
    work.end_reads();
    take_ids(topk);
    if (probabilities) {
        take_weights(probabilities);
    }
    round_to_half(weights_);
    round_to_half(gate_input_);
}

// The choice may be a view into a sorted list of all experts: rows are n_expert apart.
void Patch::take_ids(const ggml_tensor * topk) {
    const auto n_row = size_t(topk->ne[1]);
    const size_t row = size_t(topk->ne[0]) * sizeof(int32_t);
    ids_.resize(size_t(topk->ne[0]) * n_row);
    for (size_t i = 0; i < n_row; i++) {
        std::memcpy(reinterpret_cast<uint8_t *>(ids_.data()) + i * row, sorted_.data() + i * topk->nb[1], row);
    }
    for (Expert e : ids_) {
        if (e < 0 || e >= graph_.shape.n_expert) {
            throw std::runtime_error("The router chose an expert that does not exist");
        }
    }
}

// The probabilities of all experts as the router made them, or null where they cannot be read. What llama.cpp
// makes of those of the chosen ones (norm, scale) has not been computed yet.
const ggml_tensor * Patch::readable_probabilities(Layer layer) const {
    const ggml_tensor * of = probabilities_of_[size_t(layer)];
    const bool fits = of && of->type == GGML_TYPE_F32 && of->ne[0] == graph_.shape.n_expert && of->ne[1] == n_token_ &&
                      ggml_nelements(of) == of->ne[0] * of->ne[1] && ggml_is_contiguous(of);
    return fits ? of : nullptr;
}

// The layer's MoE input, or null where there is none that can be read.
const ggml_tensor * Patch::readable_input(Layer layer) const {
    const ggml_tensor * logits = logits_[size_t(layer)];
    const ggml_tensor * input = logits ? logits->src[1] : nullptr;
    const bool fits =
        input && input->type == GGML_TYPE_F32 && input->ne[0] == graph_.n_embd && ggml_is_contiguous(input);
    return fits ? input : nullptr;
}

// The chosen experts' weights, from the probabilities that were read.
void Patch::take_weights(const ggml_tensor * of) {
    const auto n_used = size_t(graph_.shape.n_expert_used);
    // Some architectures put the softmax behind the choice: here are scores then.
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

// The core sees what a trace can hold, so that a trace replayed gives the same decisions.
void Patch::round_to_half(std::vector<float> & values) {
    for (float & v : values) {
        v = std::clamp(v, -max_half, max_half);
    }
    half_.resize(values.size());
    ggml_fp32_to_fp16_row(values.data(), half_.data(), int64_t(values.size()));
    ggml_fp16_to_fp32_row(half_.data(), values.data(), int64_t(values.size()));
}

void Patch::see_gate(Layer layer) {
    const bool has_input = !gate_input_.empty();
    if (has_input && core_->wants_gate_input()) {
        core_->gate_seen(layer, gate_input_, int32_t(gate_input_.size() / size_t(graph_.n_embd)), commands_);
        obey();
    }
    if (!recorder_) {
        return;
    }
    recorder_->routed(layer, ids_, n_token_, weights_);
    if (!probabilities_.empty()) {
        recorder_->scores(layer, probabilities_);
    }
    if (has_input) {
        recorder_->input(layer, gate_input_);
    }
}

}  // namespace outrider
