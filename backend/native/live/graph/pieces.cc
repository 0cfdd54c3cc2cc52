#include "live/graph/pieces.h"

namespace outrider {
namespace {

// Find the routers and the experts' mat-muls, and set the pieces' ends. Return whether all is as expected.
bool find_layers(const MoeGraph & graph, Pieces & pieces) {
    ggml_tensor * topk = nullptr;
    const ggml_tensor *logits = nullptr, *weights = nullptr;
    Layer routed = none;
    for (size_t i = 0; i < pieces.nodes.size(); i++) {
        ggml_tensor * node = pieces.nodes[i];
        weights = topk && is_weights(node, topk) ? node : weights;
        if (const auto il = layer_in_name(node, "ffn_moe_topk")) {
            const auto it = graph.layer_of_number.find(*il);
            topk = it != graph.layer_of_number.end() ? node : nullptr;
            routed = topk ? it->second : none;
            weights = nullptr;
        } else if (layer_of_logits(node)) {
            logits = node;
        }
        const auto it =
            node->op == GGML_OP_MUL_MAT_ID ? graph.layer_of_tensor.find(node->src[0]) : graph.layer_of_tensor.end();
        if (it == graph.layer_of_tensor.end()) {
            continue;
        }
        if (!topk || it->second != routed || node->src[2] != topk || topk->ne[1] != 1) {
            return false;
        }
        if (pieces.layers.empty() || pieces.layers.back().layer != routed) {
            const LateStop & stop = graph.late_stops[size_t(routed)];
            const ggml_tensor * input = logits && stop.keeps_input ? logits->src[1] : nullptr;
            const bool fits = input && input->type == GGML_TYPE_F32 && ggml_is_contiguous(input) &&
                              ggml_nelements(input) == graph.n_embd;
            pieces.layers.push_back({routed, topk, stop.keeps_weights ? weights : nullptr, fits ? input : nullptr, {}});
            pieces.ends.push_back(i);
        }
        pieces.layers.back().mat_muls.push_back(node);
    }
    pieces.ends.push_back(pieces.nodes.size());
    return !pieces.layers.empty() && pieces.ends.front() > 0;
}

}  // namespace

std::optional<Pieces> divide(std::span<ggml_tensor * const> nodes, const MoeGraph & graph) {
    Pieces pieces;
    pieces.nodes.assign(nodes.begin(), nodes.end());
    if (!find_layers(graph, pieces)) {
        return std::nullopt;
    }
    return pieces;
}

}  // namespace outrider
