#include "live/compute/wave.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <map>
#include <stdexcept>

#include "live/ggml/clock.h"
#include "live/ggml/devices.h"
#include "live/memory/slab.h"

namespace outrider {
namespace {

constexpr size_t max_tensor = 128;

// Devices use other kernels for mat-muls of more tokens than this.
constexpr int64_t max_few_token = 8;

constexpr int64_t index_alignment = 64;  // numbers

// Rows of a layer that are written one by one. A graph writes more.
constexpr size_t max_put_row = 64;

// Pairs of the largest wave. On a device each wave costs a launch and a wait.
constexpr size_t max_host_pair = 1024;
constexpr size_t max_device_pair = 8192;

constexpr char failed[] = "The device failed while computing a layer's experts";

// Return a leaf with the memory of `t`. A wave's graph must not refer to llama.cpp's nodes.
ggml_tensor * leaf_like(ggml_context * ctx, const ggml_tensor * t, int64_t ne0, int64_t ne1) {
    ggml_tensor * leaf = ggml_new_tensor_2d(ctx, t->type, ne0, ne1);
    leaf->buffer = t->buffer ? t->buffer : t->view_src->buffer;
    leaf->data = t->data;
    return leaf;
}

// Pad to `n_row` rows. Padding uses a free slot if there is one, so that no used expert gets more rows. Otherwise it
// uses another slot than the row before it, which may be of the same token.
void pad(std::vector<Pair> & pairs, size_t n_row, int32_t n_slot) {
    if (pairs.size() == n_row) {
        return;
    }
    Pair padding = pairs.back();
    std::vector<bool> is_used(size_t(n_slot), false);
    for (const Pair & p : pairs) {
        is_used[size_t(p.slot)] = true;
    }
    const auto free = std::find(is_used.begin(), is_used.end(), false);
    padding.slot = free != is_used.end() ? Slot(free - is_used.begin()) : (padding.slot + 1) % n_slot;
    pairs.resize(n_row, padding);
}

// Put pairs of different experts beside each other, two to a token: the first half of them, which are sorted by
// expert, beside the second half.
void pair_up(std::vector<Pair> & pairs) {
    const std::vector<Pair> sorted = pairs;
    const size_t n_token = (sorted.size() + 1) / 2;
    for (size_t i = 0; i < sorted.size(); i++) {
        pairs[i] = sorted[i / 2 + (i % 2) * n_token];
    }
}

// The row of the segment's last node that a pair gives.
int32_t row_of(const Pair & pair, const Segment & segment) {
    return int32_t(pair.token * segment.ids->ne[0] + pair.choice);
}

bool can_pair_up(std::span<const Pair> pairs) {
    const size_t n_token = (pairs.size() + 1) / 2;
    for (size_t i = n_token; i < pairs.size(); i++) {
        if (pairs[i].slot == pairs[i - n_token].slot) {
            return false;
        }
    }
    return true;
}

}  // namespace

WaveRunner::WaveRunner(ggml_backend_dev_t device, int n_thread, size_t max_row, SlotsOf slots_of,
                       ConstantOf constant_of)
    : backend_(ggml_backend_dev_init(device, nullptr)),
      is_host_(ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(device))),
      max_pair_(is_host_ ? max_host_pair : max_device_pair),
      n_reserved_(std::min(max_row, max_pair_)),
      is_reserved_(max_row == 0),
      slots_of_(std::move(slots_of)),
      constant_of_(std::move(constant_of)),
      meta_(ggml_tensor_overhead() * max_tensor + ggml_graph_overhead_custom(max_tensor, false)),
      kept_meta_(ggml_tensor_overhead() * max_tensor) {
    if (!backend_) {
        throw std::runtime_error("The device " + std::string(ggml_backend_dev_name(device)) + " could not be used");
    }
    const auto set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
    if (set_n_threads) {
        set_n_threads(backend_.get(), n_thread);
    }
    allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_.get())));
    if (!is_host_) {
        const auto n_index_row = size_t(GGML_PAD(int64_t(max_pair_) + max_few_token + 1, index_alignment));
        staging_ = pinned_memory(device, size_t(n_index) * n_index_row * sizeof(int32_t));
        if (!staging_) {
            throw std::runtime_error(no_memory);
        }
    }
}

void WaveRunner::send(ggml_tensor * to, std::span<const int32_t> from, ggml_backend_buffer_t staging) {
    if (!stream_) {
        ggml_backend_tensor_set(to, from.data(), 0, from.size_bytes());
        return;
    }
    void * bytes = ggml_backend_buffer_get_base(staging);
    std::memcpy(bytes, from.data(), from.size_bytes());
    send_async(stream_, to, bytes, 0, from.size_bytes());
}

void WaveRunner::begin() {
    kept_.clear();
    n_staged_row_ = 0;  // the device has been waited for since the layer before
    kept_context_.reset();  // first: the next one uses the same memory
    kept_context_.reset(ggml_init({kept_meta_.size(), kept_meta_.data(), true}));
}

void WaveRunner::keep_inputs(const Segment & segment, const ggml_tensor * node) {
    const auto buft = ggml_backend_get_default_buffer_type(backend_.get());
    for (const ggml_tensor * s : node->src) {
        if (!s || slots_of_(s, Part::top) || source_kind(segment, s) != SourceKind::rows ||
            std::any_of(kept_.begin(), kept_.end(), [&](const Kept & k) { return k.source == s; })) {
            continue;
        }
        ggml_tensor * rows = ggml_new_tensor_2d(kept_context_.get(), s->type, s->ne[0], s->ne[1] * s->ne[2]);
        const size_t size = ggml_backend_buft_get_alloc_size(buft, rows);
        if (kept_buffers_.size() == kept_.size()) {
            kept_buffers_.emplace_back();
        }
        ggml_backend_buffer_ptr & buffer = kept_buffers_[kept_.size()];
        if (!buffer || ggml_backend_buffer_get_size(buffer.get()) < size) {
            buffer.reset();  // first: memory may be short
            buffer.reset(ggml_backend_buft_alloc_buffer(buft, size));
            if (!buffer) {
                throw std::runtime_error(no_memory);
            }
        }
        ggml_backend_tensor_alloc(buffer.get(), rows, ggml_backend_buffer_get_base(buffer.get()));
        ggml_tensor * from = leaf_like(kept_context_.get(), s, rows->ne[0], rows->ne[1]);
        if (stream_ && orders_copies(ggml_backend_get_device(stream_))) {
            ggml_backend_tensor_copy_async(stream_, stream_, from, rows);
        } else {
            ggml_backend_tensor_copy(from, rows);
        }
        kept_.push_back({s, rows});
    }
}

void WaveRunner::run(const Segment & segment, std::span<const Pair> pairs, Part part, bool add) {
    const Rows how = add ? Rows::added : Rows::put;
    if (segment.ids->ne[1] == 1 && !pairs.empty()) {
        run_token(segment, pairs, part, how, {});
        return;
    }
    for (size_t i = 0; i < pairs.size(); i += max_pair_) {
        run_some(segment, pairs.subspan(i, std::min(max_pair_, pairs.size() - i)), part, how, {});
    }
}

void WaveRunner::compute_rows(const Segment & segment, std::span<const Pair> pairs, std::span<float> rows) {
    const size_t width = size_t(segment.nodes.back()->ne[0]);
    if (segment.ids->ne[1] == 1 && !pairs.empty()) {
        run_token(segment, pairs, Part::top, Rows::left, rows);
        return;
    }
    for (size_t i = 0; i < pairs.size(); i += max_pair_) {
        const size_t n = std::min(max_pair_, pairs.size() - i);
        run_some(segment, pairs.subspan(i, n), Part::top, Rows::left, rows.subspan(i * width, n * width));
    }
}

void WaveRunner::write_rows(const Segment & segment, std::span<const Pair> pairs, std::span<const float> rows) {
    const size_t width = size_t(segment.nodes.back()->ne[0]);
    if (n_staged_row_ + pairs.size() <= max_put_row) {
        put_rows(segment, pairs, rows);
        return;
    }
    for (size_t i = 0; i < pairs.size(); i += max_pair_) {
        const auto some = pairs.subspan(i, std::min(max_pair_, pairs.size() - i));
        ggml_context * ctx = ggml_init({meta_.size(), meta_.data(), true});
        const std::unique_ptr<ggml_context, void (*)(ggml_context *)> owner(ctx, ggml_free);
        ggml_tensor * made = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, int64_t(width), int64_t(some.size()));
        Wave wave;
        wave.graph = ggml_new_graph_custom(ctx, max_tensor, false);
        ggml_tensor * places = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, int64_t(some.size()));
        ggml_set_input(made);
        ggml_set_input(places);
        wave.out = result_leaf(ctx, segment);
        wave.written = ggml_set_rows(ctx, wave.out, made, places);
        ggml_build_forward_expand(wave.graph, wave.written);
        if (!ggml_gallocr_alloc_graph(allocator_.get(), wave.graph)) {
            throw std::runtime_error(no_memory);
        }
        ggml_backend_tensor_set(made, rows.data() + i * width, 0, some.size() * width * sizeof(float));
        i32_.resize(some.size());
        std::transform(some.begin(), some.end(), i32_.begin(), [&](const Pair & p) { return row_of(p, segment); });
        ggml_backend_tensor_set(places, i32_.data(), 0, i32_.size() * sizeof(int32_t));
        compute(wave);
    }
}

// Write each row to its place. The kernels that use it come later on the stream.
void WaveRunner::put_rows(const Segment & segment, std::span<const Pair> pairs, std::span<const float> rows) {
    const size_t width = size_t(segment.nodes.back()->ne[0]);
    const size_t n_byte = width * sizeof(float);
    const ggml_context_ptr context(ggml_init({meta_.size(), meta_.data(), true}));
    ggml_tensor * out = result_leaf(context.get(), segment);
    if (stream_ && (!row_staging_ || ggml_backend_buffer_get_size(row_staging_.get()) < max_put_row * n_byte)) {
        ggml_backend_synchronize(stream_);
        row_staging_ = pinned_memory(ggml_backend_get_device(stream_), max_put_row * n_byte);
        if (!row_staging_) {
            throw std::runtime_error(no_memory);
        }
    }
    for (size_t i = 0; i < pairs.size(); i++) {
        const size_t offset = size_t(row_of(pairs[i], segment)) * n_byte;
        if (!stream_) {
            ggml_backend_tensor_set(out, &rows[i * width], offset, n_byte);
            continue;
        }
        auto * staged =
            static_cast<uint8_t *>(ggml_backend_buffer_get_base(row_staging_.get())) + n_staged_row_ * n_byte;
        std::memcpy(staged, &rows[i * width], n_byte);
        send_async(stream_, out, staged, offset, n_byte);
        n_staged_row_++;
    }
}

// A device's kernels round differently, and ggml chooses among them by the number of tokens of a mat-mul. So a wave of
// a pass of few tokens has as many tokens as the pass, and a wave of many tokens has many. ggml-cuda sorts the rows of
// many tokens by expert: one row after the other if a token has one choice, 32 rows at a time if it has two. The
// experts of a token must differ there. The CPU's kernels round alike for any number of tokens. With repacked weights
// they do not for any number of rows of an expert: no padding there.
WaveRunner::Form WaveRunner::form_of(std::span<const Pair> pairs, int64_t n_token) const {
    const auto n_pair = int64_t(pairs.size());
    if (is_host_) {
        return {1, n_pair};
    }
    if (n_token <= max_few_token) {
        return {(n_pair + n_token - 1) / n_token, n_token};
    }
    if (n_pair > 2 * max_few_token && can_pair_up(pairs)) {
        return {2, (n_pair + 1) / 2, true};
    }
    return {1, std::max(n_pair, max_few_token + 1)};
}

// Clone the segment's nodes with the form's rows. Return the clone of the last one.
ggml_tensor * WaveRunner::clone_chain(ggml_context * ctx, const Segment & segment, const Indices & indices, Part part) {
    const int64_t n_choice = indices.slots->ne[0];
    const int64_t n_token = indices.slots->ne[1];
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
                ggml_tensor * rows = leaf_like(ctx, kept.rows, kept.rows->ne[0], kept.rows->ne[1]);
                ggml_tensor * gathered = ggml_get_rows(ctx, rows, per_token ? indices.tokens : indices.rows);
                return clone_of[s] = ggml_reshape_3d(ctx, gathered, s->ne[0], n_choice, n_token);
            }
        }
        return constant_of_ ? constant_of_(s) : s;
    };
    for (ggml_tensor * node : segment.nodes) {
        ggml_tensor * clone;
        if (node->op == GGML_OP_VIEW) {
            ggml_tensor * of = clone_of.at(node->view_src);
            const size_t offset = node->view_offs - node->view_src->view_offs;
            clone = ggml_view_3d(ctx, of, node->ne[0], n_choice, n_token, of->nb[1], of->nb[2], offset);
        } else {
            ggml_tensor * first = source_for(node, node->src[0]);
            // The hidden rows of a part are shorter: a mat-mul's result is as wide as its matrix has rows, and other
            // nodes are as wide as their input.
            const int64_t width = node->op == GGML_OP_MUL_MAT_ID       ? first->ne[1]
                                  : node->ne[0] == node->src[0]->ne[0] ? first->ne[0]
                                                                       : node->ne[0];
            clone = ggml_new_tensor_3d(ctx, node->type, width, n_choice, n_token);
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

// Build a graph that computes n_pair rows and writes them. Padding comes last and is not written.
WaveRunner::Wave WaveRunner::build(ggml_context * ctx, const Segment & segment, Form form, int64_t n_pair, Part part,
                                   Rows how) {
    const int64_t n_row = form.n_row();
    // Some devices want aligned offsets.
    ggml_tensor * all = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, GGML_PAD(n_row, index_alignment), n_index);
    ggml_set_input(all);
    const auto index = [&](int64_t i, int64_t ne0, int64_t ne1) {
        return ggml_view_2d(ctx, all, ne0, ne1, size_t(ne0) * sizeof(int32_t), size_t(i) * all->nb[1]);
    };
    Wave wave;
    wave.graph = ggml_new_graph_custom(ctx, max_tensor, false);
    wave.n_slot = int32_t(slots_of_(segment.nodes.front()->src[0], part)->ne[2]);
    wave.form = form;
    wave.indices = {all, index(0, form.n_choice, form.n_token), index(1, form.n_choice, form.n_token),
                    index(2, n_row, 1), index(3, n_row, 1)};
    ggml_tensor * computed = clone_chain(ctx, segment, wave.indices, part);
    if (how == Rows::left) {
        wave.written = computed;
        ggml_set_output(computed);
    } else {
        wave.out = result_leaf(ctx, segment);
        ggml_tensor * flat = ggml_reshape_2d(ctx, computed, wave.out->ne[0], n_row);
        ggml_tensor * rows = wave.indices.rows;
        if (n_row > n_pair) {
            flat = ggml_view_2d(ctx, flat, flat->ne[0], n_pair, flat->nb[1], 0);
            rows = ggml_view_1d(ctx, rows, n_pair, 0);
        }
        if (how == Rows::added) {
            flat = ggml_add(ctx, ggml_get_rows(ctx, wave.out, rows), flat);
        }
        wave.written = ggml_set_rows(ctx, wave.out, flat, rows);
    }
    ggml_build_forward_expand(wave.graph, wave.written);
    return wave;
}

// Return the segment's last node as rows of (token, choice).
ggml_tensor * WaveRunner::result_leaf(ggml_context * ctx, const Segment & segment) const {
    const ggml_tensor * result = segment.nodes.back();
    return leaf_like(ctx, result, result->ne[0], segment.ids->ne[0] * segment.ids->ne[1]);
}

void WaveRunner::set_indices(const Wave & wave, const Segment & segment, std::span<const Pair> pairs) {
    rows_.assign(pairs.begin(), pairs.end());
    if (wave.form.pairs_up) {
        pair_up(rows_);
    }
    const auto n_row = size_t(wave.form.n_row());
    pad(rows_, n_row, wave.n_slot);
    const auto stride = size_t(wave.indices.all->ne[0]);
    i32_.assign(size_t(n_index) * stride, 0);
    for (size_t i = 0; i < n_row; i++) {
        const Pair & p = rows_[i];
        const std::array<int32_t, n_index> values{p.slot, p.expert, p.token, row_of(p, segment)};
        for (size_t k = 0; k < values.size(); k++) {
            i32_[k * stride + i] = values[k];
        }
    }
    send(wave.indices.all, i32_, staging_.get());
}

void WaveRunner::read_rows(const Wave & wave, std::span<float> rows) {
    if (!wave.out) {
        ggml_backend_tensor_get(wave.written, rows.data(), 0, rows.size_bytes());
    }
}

void WaveRunner::compute(const Wave & wave) {
    const uint64_t began_us = now_us();
    if (ggml_backend_graph_compute(stream(), wave.graph) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error(failed);
    }
    n_graph_++;
    graph_us_ += now_us() - began_us;
}

// Allocate the memory of the largest wave, so that none is allocated during an answer. If memory is short, each wave
// allocates its own buffers.
void WaveRunner::reserve(const Segment & segment, Part part, Rows how) {
    const ggml_context_ptr context(ggml_init({meta_.size(), meta_.data(), true}));
    ggml_context * ctx = context.get();
    std::vector<Pair> pairs(n_reserved_);
    for (size_t i = 0; i < pairs.size(); i++) {
        pairs[i].slot = int32_t(i);
    }
    const Form form = form_of(pairs, segment.ids->ne[1]);
    if (!ggml_gallocr_reserve(allocator_.get(), build(ctx, segment, form, int64_t(n_reserved_), part, how).graph)) {
        allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_.get())));
    }
    is_reserved_ = true;
}

void WaveRunner::run_some(const Segment & segment, std::span<const Pair> pairs, Part part, Rows how,
                          std::span<float> rows) {
    if (!is_reserved_) {
        reserve(segment, part, how);
    }
    const ggml_context_ptr context(ggml_init({meta_.size(), meta_.data(), true}));
    ggml_context * ctx = context.get();
    const Form form = form_of(pairs, segment.ids->ne[1]);
    const Wave wave = build(ctx, segment, form, int64_t(pairs.size()), part, how);
    if (!ggml_gallocr_alloc_graph(allocator_.get(), wave.graph)) {
        throw std::runtime_error(no_memory);
    }
    set_indices(wave, segment, pairs);
    compute(wave);
    read_rows(wave, rows);
}

double WaveRunner::measure(std::span<ggml_tensor * const> slots, int32_t n_row) {
    constexpr int32_t n_run = 4;
    const ggml_context_ptr context(ggml_init({meta_.size(), meta_.data(), true}));
    ggml_context * ctx = context.get();
    ggml_cgraph * graph = ggml_new_graph_custom(ctx, max_tensor, false);
    ggml_tensor * slot = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, n_row);
    std::vector<ggml_tensor *> inputs;
    for (ggml_tensor * t : slots) {
        inputs.push_back(ggml_new_tensor_3d(ctx, GGML_TYPE_F32, t->ne[0], 1, n_row));
        ggml_build_forward_expand(graph, ggml_mul_mat_id(ctx, t, inputs.back(), slot));
    }
    const ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx, backend_.get()));
    if (!buffer) {
        throw std::runtime_error(no_memory);
    }
    ggml_backend_buffer_clear(buffer.get(), 0);
    uint64_t began_us = 0;
    for (int32_t run = -1; run < n_run; run++) {  // the first warms up; each uses another slot
        i32_.assign(size_t(n_row), int32_t(std::max(run, 0) % slots.front()->ne[2]));
        ggml_backend_tensor_set(slot, i32_.data(), 0, i32_.size() * sizeof(int32_t));
        if (ggml_backend_graph_compute(backend_.get(), graph) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error(failed);
        }
        if (run < 0 || run == n_run - 1) {  // reading waits: some devices answer before they are done
            float value;
            ggml_backend_tensor_get(ggml_graph_node(graph, -1), &value, 0, sizeof value);
            began_us = run < 0 ? now_us() : began_us;
        }
    }
    return double(now_us() - began_us) / n_run;
}

void WaveRunner::run_token(const Segment & segment, std::span<const Pair> pairs, Part part, Rows how,
                           std::span<float> rows) {
    note_sources(segment);
    KeptWave & kept = kept_waves_[{segment.nodes.front()->src[0], pairs.size(), part, how}];
    if (kept.made_of != made_of_) {
        make_kept(kept, segment, pairs, part, how);
    }
    if (kept.wave.out) {
        kept.wave.out->data = kept.wave.written->data = segment.nodes.back()->data;
    }
    set_indices(kept.wave, segment, pairs);
    compute(kept.wave);
    read_rows(kept.wave, rows);
}

// Note everything that a wave's graph takes from llama.cpp's graph, except the place of the result.
void WaveRunner::note_sources(const Segment & segment) {
    made_of_.clear();
    const auto note = [&](const auto & value) {
        const auto * bytes = reinterpret_cast<const uint8_t *>(&value);
        made_of_.insert(made_of_.end(), bytes, bytes + sizeof value);
    };
    for (const ggml_tensor * node : segment.nodes) {
        note(node);
        note(node->op);
        note(node->op_params);
        note(node->ne);
        note(node->src);
        note(node->view_src);
        note(node->view_offs);
    }
    note(segment.ids);
    note(segment.nodes.back()->buffer);
    for (const Kept & kept : kept_) {
        note(kept.source);
        note(kept.rows->ne);
        note(kept.rows->buffer);  // a larger buffer may replace it at the same address
        note(kept.rows->data);
    }
}

void WaveRunner::make_kept(KeptWave & kept, const Segment & segment, std::span<const Pair> pairs, Part part, Rows how) {
    kept.made_of.clear();
    kept.meta.resize(meta_.size());
    kept.context.reset(ggml_init({kept.meta.size(), kept.meta.data(), true}));
    const Form form = form_of(pairs, segment.ids->ne[1]);
    kept.wave = build(kept.context.get(), segment, form, int64_t(pairs.size()), part, how);
    place(kept, pairs.size(), size_t(segment.ids->ne[0]));
    kept.made_of = made_of_;
}

// Give every tensor of the wave a place of its own in the arena. If the arena grows, the other kept waves are rebuilt
// at their next use.
void WaveRunner::place(KeptWave & kept, size_t n_pair, size_t n_choice) {
    const auto buft = ggml_backend_get_default_buffer_type(backend_.get());
    const size_t alignment = ggml_backend_buft_get_alignment(buft);
    const auto needs_place = [](const ggml_tensor * t) { return !t->view_src && !t->data; };
    size_t size = alignment;
    for (ggml_tensor * t = ggml_get_first_tensor(kept.context.get()); t;
         t = ggml_get_next_tensor(kept.context.get(), t)) {
        size += needs_place(t) ? GGML_PAD(ggml_backend_buft_get_alloc_size(buft, t), alignment) : 0;
    }
    if (!arena_ || ggml_backend_buffer_get_size(arena_.get()) < size) {
        const size_t most = size * n_choice / n_pair;  // a wave of all experts of a token
        arena_.reset();  // first: memory may be short
        arena_.reset(ggml_backend_buft_alloc_buffer(buft, most));
        for (auto & [key, other] : kept_waves_) {
            other.made_of.clear();
        }
        if (!arena_) {
            throw std::runtime_error(no_memory);
        }
    }
    ggml_tallocr places = ggml_tallocr_new(arena_.get());
    for (ggml_tensor * t = ggml_get_first_tensor(kept.context.get()); t;
         t = ggml_get_next_tensor(kept.context.get(), t)) {
        const ggml_status status = needs_place(t) ? ggml_tallocr_alloc(&places, t)
                                   : t->view_src  ? ggml_backend_view_init(t)
                                                  : GGML_STATUS_SUCCESS;
        if (status != GGML_STATUS_SUCCESS) {
            throw std::runtime_error(no_memory);
        }
    }
}

}  // namespace outrider
