#include "live/graph/pieces.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_set>

namespace outrider {
namespace {

ggml_backend_buffer_t buffer_of(const ggml_tensor * t) { return t->view_src ? t->view_src->buffer : t->buffer; }

const ggml_tensor * owner(const ggml_tensor * t) { return t->view_src ? t->view_src : t; }

// The bytes that a node writes or a source has. Some devices use more memory behind a result. Addresses on Vulkan are
// those within a buffer.
struct Range {
    ggml_backend_buffer_t buffer;
    uintptr_t begin, end;

    explicit Range(const ggml_tensor * t) : buffer(buffer_of(t)), begin(reinterpret_cast<uintptr_t>(t->data)) {
        end = begin + (t->view_src ? ggml_nbytes(t)
                                   : ggml_backend_buft_get_alloc_size(ggml_backend_buffer_get_type(t->buffer), t));
    }
    bool meets(const Range & other) const { return buffer == other.buffer && begin < other.end && other.begin < end; }
};

// Return whether the node reads this source. Not if it only writes into it.
bool reads(const ggml_tensor * node, int source) {
    return !(node->op == GGML_OP_SET_ROWS && source == 2) && !(node->op == GGML_OP_CPY && source == 1);
}

// Finds out whether a piece can be computed twice.
class Repeat {
  public:
    using Nodes = std::unordered_set<const ggml_tensor *>;

    // `all`: of the pieces.
    Repeat(std::span<ggml_tensor * const> piece, const Nodes & all, std::set<ggml_tensor *> & moved)
        : piece_(piece), all_(all), inside_(piece.begin(), piece.end()), moved_(moved) {
        for (const ggml_tensor * node : piece) {
            writes_.push_back(computes_nothing(node) ? std::optional<Range>() : Range(node));
        }
    }

    // `first`: what the piece reads before its first node.
    bool is_same(const ggml_tensor * first) {
        bool same = keeps(first, 0);
        for (size_t i = 0; i < piece_.size() && same; i++) {
            for (int k = 0; k < GGML_MAX_SRC && writes_[i]; k++) {
                const ggml_tensor * s = piece_[i]->src[k];
                same = same && (!s || !reads(piece_[i], k) || keeps(s, i));
            }
        }
        return same;
    }

  private:
    bool is_inside(const ggml_tensor * s) const { return inside_.count(computes_nothing(s) ? owner(s) : s) > 0; }

    // Return whether the piece, computed again, finds what node `reader` reads. Moves what is overwritten.
    bool keeps(const ggml_tensor * s, size_t reader) {
        const ggml_backend_buffer_t buffer = buffer_of(s);
        if (is_inside(s) || !buffer || ggml_nelements(s) == 0 ||
            ggml_backend_buffer_get_usage(buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
            return true;
        }
        const Range read(s);
        bool overwritten = false;
        for (size_t i = 0; i < piece_.size(); i++) {
            if (!writes_[i] || !read.meets(*writes_[i])) {
                continue;
            }
            // Of a cache, the rows that are written before they are read are the same the second time.
            const bool in_state = piece_[i]->view_src && !all_.count(piece_[i]->view_src);
            if (in_state && i < reader) {
                continue;
            }
            if (piece_[i]->view_src) {
                return false;
            }
            overwritten = true;
        }
        if (!overwritten) {
            return true;
        }
        if (ggml_backend_buffer_get_usage(buffer) != GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
            return false;
        }
        moved_.insert(const_cast<ggml_tensor *>(owner(s)));
        return true;
    }

    std::span<ggml_tensor * const> piece_;
    const Nodes & all_;
    const Nodes inside_;
    std::vector<std::optional<Range>> writes_;  // [node]
    std::set<ggml_tensor *> & moved_;
};

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

bool computes_nothing(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_NONE:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return true;
        default: return ggml_nelements(node) == 0 || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0;
    }
}

std::optional<Pieces> divide(std::span<ggml_tensor * const> nodes, const MoeGraph & graph) {
    Pieces pieces;
    pieces.nodes.assign(nodes.begin(), nodes.end());
    if (!find_layers(graph, pieces)) {
        return std::nullopt;
    }
    const Repeat::Nodes all(nodes.begin(), nodes.end());
    std::set<ggml_tensor *> moved;
    pieces.repeatable.push_back(true);
    for (size_t p = 1; p < pieces.ends.size(); p++) {
        const auto piece = nodes.subspan(pieces.ends[p - 1], pieces.ends[p] - pieces.ends[p - 1]);
        pieces.repeatable.push_back(Repeat(piece, all, moved).is_same(pieces.layers[p - 1].ids));
    }
    pieces.moved.assign(moved.begin(), moved.end());
    return pieces;
}

}  // namespace outrider
