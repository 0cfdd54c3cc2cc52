#include "live/pass/graph_hook.h"

#include <algorithm>

namespace outrider {

GraphHook::Seen GraphHook::see(ggml_tensor * node) {
    if (choice_) {
        if (is_weights(node, choice_)) {
            final_weights_ = node;
        }
        if (--n_to_stop_ == 0) {
            return Seen::stop;
        }
    }
    if (node->op == GGML_OP_MUL_MAT_ID) {
        const auto it = graph_.layer_of_tensor.find(node->src[0]);
        const bool is_expert = it != graph_.layer_of_tensor.end();
        if (is_expert && choice_) {
            return Seen::disorder;
        }
        if (is_expert && it->second == layer_) {
            if (slot_ids_) {
                undo_.push_back({node, node->op, node->src[2]});
                node->src[2] = slot_ids_;
                return Seen::handled;
            }
            if (segment_.nodes.empty()) {
                segment_.ids = node->src[2];
            }
        }
    }
    if (in_waves() && !segment_ended()) {
        const PatternNode & expected = pattern()[n_seen_];
        if (expected.of_segment ? !expected.matches(node) : is_of_layer(node)) {
            return Seen::disorder;
        }
        n_seen_++;
        if (!expected.of_segment) {
            return Seen::handled;
        }
        skip(node);
        segment_.nodes.push_back(node);
        // If llama.cpp computes nodes in between, they may overwrite the inputs: stop at each node to copy them.
        const bool has_gaps =
            std::any_of(pattern().begin(), pattern().end(), [](const PatternNode & n) { return !n.of_segment; });
        return segment_ended() || has_gaps ? Seen::stop : Seen::handled;
    }
    if (aborted() && node->op == GGML_OP_MUL_MAT_ID) {
        skip(node);
        return Seen::handled;
    }
    return Seen::other;
}

// Return whether the node is of the layer's expert computation.
bool GraphHook::is_of_layer(const ggml_tensor * node) const {
    const auto it = graph_.layer_of_tensor.find(node->src[0]);
    return segment_.feeds(node) || (it != graph_.layer_of_tensor.end() && it->second == layer_);
}

void GraphHook::skip(ggml_tensor * node) {
    undo_.push_back({node, node->op, nullptr});
    node->op = GGML_OP_NONE;
}

void GraphHook::begin_pass() {
    begin_layer(none);
    choice_ = nullptr;
}

bool GraphHook::end_pass() { return std::exchange(mode_, Mode::remap) != Mode::aborted; }

void GraphHook::plan_stop(ggml_tensor * topk, Layer layer, size_t n_node) {
    choice_ = topk;
    choice_layer_ = layer;
    final_weights_ = nullptr;
    stops_late_ = n_node > 0;
    n_to_stop_ = n_node;
}

void GraphHook::begin_layer(Layer layer) {
    layer_ = layer;
    end_waves();
}

void GraphHook::begin_waves() {
    mode_ = Mode::waves;
    n_seen_ = 0;
}

void GraphHook::end_waves() {
    mode_ = Mode::remap;
    slot_ids_ = nullptr;
    segment_.ids = nullptr;
    segment_.nodes.clear();
}

void GraphHook::undo() {
    for (const Undo & u : undo_) {
        u.node->op = u.op;
        if (u.ids) {
            u.node->src[2] = u.ids;
        }
    }
    undo_.clear();
}

// Changes stay until the pass ends: some of these nodes may still run, and must not read beyond the slots.
void GraphHook::abort() {
    mode_ = Mode::aborted;
    choice_ = nullptr;
    slot_ids_ = nullptr;
}

}  // namespace outrider
