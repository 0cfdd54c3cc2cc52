#include "wave.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <map>
#include <stdexcept>

namespace outrider {
namespace {

constexpr size_t max_tensor = 128;

// A leaf with the memory of `t`: the graph of the wave must not reach into llama.cpp's.
ggml_tensor * leaf_like(ggml_context * ctx, const ggml_tensor * t, int64_t ne0, int64_t ne1) {
    ggml_tensor * leaf = ggml_new_tensor_2d(ctx, t->type, ne0, ne1);
    leaf->buffer = t->buffer ? t->buffer : t->view_src->buffer;
    leaf->data = t->data;
    return leaf;
}

}  // namespace

struct WaveRunner::Indices {
    int64_t n_pair;
    ggml_tensor * slots;     // [1, n_pair]
    ggml_tensor * experts;   // [1, n_pair]
    ggml_tensor * tokens;    // [n_pair]
    ggml_tensor * rows;      // [n_pair]: of (token, choice)
    ggml_tensor * out_rows;  // [n_pair]: the same, for set_rows
};

WaveRunner::WaveRunner(ggml_backend_dev_t device, int n_thread, SlotsOf slots_of)
    : backend_(ggml_backend_dev_init(device, nullptr)),
      slots_of_(std::move(slots_of)),
      meta_(ggml_tensor_overhead() * max_tensor + ggml_graph_overhead_custom(max_tensor, false)),
      kept_meta_(ggml_tensor_overhead() * max_tensor) {
    if (!backend_) {
        throw std::runtime_error("The device " + std::string(ggml_backend_dev_name(device)) + " could not be used");
    }
    const auto set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
    if (set_n_threads) {
        set_n_threads(backend_, n_thread);
    }
    allocator_ = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_));
}

WaveRunner::~WaveRunner() {
    ggml_gallocr_free(allocator_);
    if (kept_context_) {
        ggml_free(kept_context_);
    }
    for (auto * buffer : kept_buffers_) {
        ggml_backend_buffer_free(buffer);
    }
    ggml_backend_free(backend_);
}

void WaveRunner::begin() {
    kept_.clear();
    if (kept_context_) {
        ggml_free(kept_context_);
    }
    kept_context_ = ggml_init({kept_meta_.size(), kept_meta_.data(), true});
}

void WaveRunner::keep_inputs(const Segment & segment, const ggml_tensor * node) {
    const auto buft = ggml_backend_get_default_buffer_type(backend_);
    for (const ggml_tensor * s : node->src) {
        if (!s || slots_of_(s, Part::top) || source_kind(segment, s) != SourceKind::rows ||
            std::any_of(kept_.begin(), kept_.end(), [&](const Kept & k) { return k.source == s; })) {
            continue;
        }
        ggml_tensor * rows = ggml_new_tensor_2d(kept_context_, s->type, s->ne[0], s->ne[1] * s->ne[2]);
        const size_t size = ggml_backend_buft_get_alloc_size(buft, rows);
        if (kept_buffers_.size() == kept_.size()) {
            kept_buffers_.push_back(nullptr);
        }
        ggml_backend_buffer_t & buffer = kept_buffers_[kept_.size()];
        if (!buffer || ggml_backend_buffer_get_size(buffer) < size) {
            if (buffer) {
                ggml_backend_buffer_free(buffer);
            }
            buffer = ggml_backend_buft_alloc_buffer(buft, size);
            if (!buffer) {
                throw std::runtime_error("There is not enough memory to compute a layer's experts");
            }
        }
        ggml_backend_tensor_alloc(buffer, rows, ggml_backend_buffer_get_base(buffer));
        ggml_backend_tensor_copy(leaf_like(kept_context_, s, rows->ne[0], rows->ne[1]), rows);
        kept_.push_back({s, rows});
    }
}

void WaveRunner::run(const Segment & segment, std::span<const Pair> pairs, Part part, bool add) {
    for (size_t i = 0; i < pairs.size(); i += max_pair) {
        run_some(segment, pairs.subspan(i, std::min(max_pair, pairs.size() - i)), part, add);
    }
}

// The segment's nodes with n_pair rows; returns what stands for the last one.
ggml_tensor * WaveRunner::clone_chain(ggml_context * ctx, const Segment & segment, const Indices & indices, Part part) {
    const int64_t n_pair = indices.n_pair;
    std::map<const ggml_tensor *, ggml_tensor *> clone_of;
    const auto source_for = [&](const ggml_tensor * node, ggml_tensor * s) -> ggml_tensor * {
        if (!s) {
            return s;
        }
        if (const auto it = clone_of.find(s); it != clone_of.end()) {
            return it->second;
        }
        if (ggml_tensor * slots = slots_of_(s, part)) {
            return slots;
        }
        if (s == segment.ids) {
            return node->op == GGML_OP_MUL_MAT_ID ? indices.slots : indices.experts;
        }
        for (const Kept & kept : kept_) {
            if (kept.source == s) {
                const bool per_token = s->ne[1] == 1 && segment.ids->ne[0] > 1;
                ggml_tensor * gathered = ggml_get_rows(ctx, kept.rows, per_token ? indices.tokens : indices.rows);
                return clone_of[s] = ggml_reshape_3d(ctx, gathered, s->ne[0], 1, n_pair);
            }
        }
        return s;  // a constant
    };
    for (ggml_tensor * node : segment.nodes) {
        ggml_tensor * clone;
        if (node->op == GGML_OP_VIEW) {
            ggml_tensor * of = clone_of.at(node->view_src);
            const size_t offset = node->view_offs - node->view_src->view_offs;
            clone = ggml_view_3d(ctx, of, node->ne[0], 1, n_pair, of->nb[1], of->nb[2], offset);
        } else {
            ggml_tensor * first = source_for(node, node->src[0]);
            // Of a part the hidden rows are shorter: as wide as the matrix has rows, and what is
            // made of them as wide as they are.
            const int64_t width = node->op == GGML_OP_MUL_MAT_ID       ? first->ne[1]
                                  : node->ne[0] == node->src[0]->ne[0] ? first->ne[0]
                                                                       : node->ne[0];
            clone = ggml_new_tensor_3d(ctx, node->type, width, 1, n_pair);
            clone->op = node->op;
            std::memcpy(clone->op_params, node->op_params, sizeof clone->op_params);
            for (int i = 0; i < GGML_MAX_SRC; i++) {
                clone->src[i] = source_for(node, node->src[i]);
            }
        }
        clone_of[node] = clone;
    }
    return clone_of.at(segment.nodes.back());
}

void WaveRunner::run_some(const Segment & segment, std::span<const Pair> pairs, Part part, bool add) {
    const auto n_pair = int64_t(pairs.size());
    const int64_t n_choice = segment.ids->ne[0];
    ggml_context * ctx = ggml_init({meta_.size(), meta_.data(), true});
    const std::unique_ptr<ggml_context, void (*)(ggml_context *)> owner(ctx, ggml_free);
    ggml_cgraph * graph = ggml_new_graph_custom(ctx, max_tensor, false);

    const auto new_index = [&](ggml_type type, int64_t ne0, int64_t ne1) {
        ggml_tensor * t = ggml_new_tensor_2d(ctx, type, ne0, ne1);
        ggml_set_input(t);
        return t;
    };
    const Indices indices{n_pair,
                          new_index(GGML_TYPE_I32, 1, n_pair),
                          new_index(GGML_TYPE_I32, 1, n_pair),
                          new_index(GGML_TYPE_I32, n_pair, 1),
                          new_index(GGML_TYPE_I32, n_pair, 1),
                          new_index(GGML_TYPE_I64, n_pair, 1)};
    ggml_tensor * computed = clone_chain(ctx, segment, indices, part);
    const ggml_tensor * result = segment.nodes.back();
    ggml_tensor * out = leaf_like(ctx, result, result->ne[0], n_choice * segment.ids->ne[1]);
    ggml_tensor * flat = ggml_reshape_2d(ctx, computed, result->ne[0], n_pair);
    if (add) {
        flat = ggml_add(ctx, ggml_get_rows(ctx, out, indices.rows), flat);
    }
    ggml_build_forward_expand(graph, ggml_set_rows(ctx, out, flat, indices.out_rows));

    if (!ggml_gallocr_alloc_graph(allocator_, graph)) {
        throw std::runtime_error("There is not enough memory to compute a layer's experts");
    }
    std::vector<int32_t> i32(pairs.size());
    const auto set_i32 = [&](ggml_tensor * t, auto && value) {
        if (t->buffer) {  // an index that nothing uses gets no memory
            std::transform(pairs.begin(), pairs.end(), i32.begin(), value);
            ggml_backend_tensor_set(t, i32.data(), 0, i32.size() * sizeof(int32_t));
        }
    };
    set_i32(indices.slots, [](const Pair & p) { return p.slot; });
    set_i32(indices.experts, [](const Pair & p) { return p.expert; });
    set_i32(indices.tokens, [](const Pair & p) { return p.token; });
    set_i32(indices.rows, [&](const Pair & p) { return int32_t(p.token * n_choice + p.choice); });
    std::vector<int64_t> i64(pairs.size());
    std::transform(pairs.begin(), pairs.end(), i64.begin(),
                   [&](const Pair & p) { return int64_t(p.token) * n_choice + p.choice; });
    ggml_backend_tensor_set(indices.out_rows, i64.data(), 0, i64.size() * sizeof(int64_t));

    if (ggml_backend_graph_compute(backend_, graph) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("The device failed while computing a layer's experts");
    }
}

}  // namespace outrider
