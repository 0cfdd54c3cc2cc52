#include "live/compute/piece_runner.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "live/ggml/devices.h"
#include "live/ggml/ggml_abi.h"

namespace outrider {
namespace {

constexpr size_t staging_alignment = 64;  // bytes

size_t aligned(size_t size, size_t alignment) { return (size + alignment - 1) / alignment * alignment; }

}  // namespace

std::unique_ptr<PieceRunner> PieceRunner::make(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph,
                                               bool ahead) {
    for (const bool how : {true, false}) {
        if (ahead || !how) {
            std::unique_ptr<PieceRunner> made(new PieceRunner(pieces, backend, graph, how));
            if (made->prepare()) {
                return made;
            }
        }
    }
    return nullptr;
}

PieceRunner::PieceRunner(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph, bool ahead)
    : pieces_(pieces),
      backend_(backend),
      device_(ggml_backend_get_device(backend)),
      n_used_(graph.shape.n_expert_used),
      n_expert_(graph.shape.n_expert),
      n_embd_(graph.n_embd),
      runs_ahead_(ahead) {
    if (!ahead) {
        pieces_.moved.clear();  // no piece is computed twice
    }
}

bool PieceRunner::prepare() {
    const auto memory = ggml_backend_dev_buffer_type(device_);
    return (!runs_ahead_ || make_events()) && make_slots(memory) && make_places(memory) && make_staging() &&
           make_graph();
}

bool PieceRunner::make_events() {
    for (size_t l = 0; l < pieces_.layers.size(); l++) {
        events_.emplace_back(ggml_backend_event_new(device_));
        if (!events_.back()) {
            return false;
        }
    }
    return true;
}

bool PieceRunner::make_slots(ggml_backend_buffer_type_t memory) {
    const size_t n_layer = pieces_.layers.size();
    context_.reset(ggml_init({ggml_tensor_overhead() * (3 * n_layer + 3 * pieces_.moved.size()), nullptr, true}));
    for (const RoutedNodes & layer : pieces_.layers) {
        ggml_tensor * sent = runs_ahead_ ? ggml_new_tensor_2d(context_.get(), GGML_TYPE_I32, 1, n_expert_)
                                         : ggml_new_tensor_2d(context_.get(), GGML_TYPE_I32, n_used_, 1);
        ggml_format_name(sent, "slots of layer %d", int(layer.layer));
        sent_.push_back(sent);
        if (!runs_ahead_) {
            slots_.push_back(sent);
            continue;
        }
        ggml_tensor * remap = ggml_get_rows(context_.get(), sent, layer.ids);
        remap->flags |= GGML_TENSOR_FLAG_COMPUTE;
        if (!ggml_backend_dev_supports_op(device_, remap)) {
            return false;
        }
        remaps_.push_back(remap);
        slots_.push_back(ggml_reshape_2d(context_.get(), remap, n_used_, 1));
    }
    memory_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), memory));
    return memory_ != nullptr;
}

// Give the tensors that pieces overwrite memory of their own. Inputs are copied there.
bool PieceRunner::make_places(ggml_backend_buffer_type_t memory) {
    const size_t alignment = ggml_backend_buft_get_alignment(memory);
    std::vector<size_t> begins;
    size_t n_byte = 0;
    for (const ggml_tensor * t : pieces_.moved) {
        begins.push_back(n_byte);
        n_byte += aligned(ggml_backend_buft_get_alloc_size(memory, t), alignment);
    }
    if (n_byte == 0) {
        return true;
    }
    places_.reset(ggml_backend_buft_alloc_buffer(memory, n_byte));
    if (!places_) {
        return false;
    }
    auto * base = static_cast<uint8_t *>(ggml_backend_buffer_get_base(places_.get()));
    std::unordered_set<ggml_tensor *> seen(pieces_.nodes.begin(), pieces_.nodes.end());
    const std::unordered_set<ggml_tensor *> nodes = seen;
    for (const ggml_tensor * node : pieces_.nodes) {
        seen.insert(std::begin(node->src), std::end(node->src));
    }
    for (size_t i = 0; i < begins.size(); i++) {
        ggml_tensor * root = pieces_.moved[i];
        for (ggml_tensor * t : seen) {
            if (t && (t == root || t->view_src == root)) {
                moved_.push_back({t, t->buffer, t->data, base + begins[i] + (t == root ? 0 : t->view_offs)});
            }
        }
        if (nodes.count(root)) {
            continue;
        }
        if (!ggml_is_contiguous(root) || ggml_nbytes(root) % sizeof(int32_t) != 0) {
            return false;
        }
        // Not every device copies 64 bit integers.
        const auto n_word = int64_t(ggml_nbytes(root) / sizeof(int32_t));
        ggml_tensor * from = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, n_word);
        ggml_tensor * to = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, n_word);
        from->buffer = root->buffer;
        from->data = root->data;
        to->buffer = places_.get();
        to->data = base + begins[i];
        ggml_tensor * copy = ggml_cpy(context_.get(), from, to);
        copy->buffer = to->buffer;
        copy->data = to->data;
        copy->flags |= GGML_TENSOR_FLAG_COMPUTE;
        if (!ggml_backend_dev_supports_op(device_, copy)) {
            return false;
        }
        copies_.push_back(copy);
    }
    return true;
}

bool PieceRunner::make_staging() {
    const size_t sizes[] = {size_t(n_used_) * sizeof(int32_t), size_t(n_used_) * sizeof(float),
                            size_t(n_embd_) * sizeof(float), size_t(n_expert_) * sizeof(int32_t),
                            size_t(n_expert_) * sizeof(int32_t)};
    size_t n_byte = 0;
    for (const size_t size : sizes) {
        n_byte += aligned(size, staging_alignment);
    }
    pinned_ = pinned_memory(device_, n_byte * pieces_.layers.size());
    if (!pinned_) {
        return false;
    }
    auto * at = static_cast<uint8_t *>(ggml_backend_buffer_get_base(pinned_.get()));
    for (size_t l = 0; l < pieces_.layers.size(); l++) {
        void * parts[std::size(sizes)];
        for (size_t i = 0; i < std::size(sizes); i++) {
            parts[i] = at;
            at += aligned(sizes[i], staging_alignment);
        }
        staging_.push_back({static_cast<int32_t *>(parts[0]),
                            static_cast<float *>(parts[1]),
                            static_cast<float *>(parts[2]),
                            {static_cast<int32_t *>(parts[3]), static_cast<int32_t *>(parts[4])}});
    }
    return true;
}

// Count how often each node is used, as llama.cpp's graph does: kernels are fused by it. What comes from outside looks
// like a leaf meanwhile.
bool PieceRunner::make_graph() {
    const std::unordered_set<const ggml_tensor *> inside(pieces_.nodes.begin(), pieces_.nodes.end());
    std::vector<std::pair<ggml_tensor *, ggml_tensor>> outside;
    std::unordered_set<const ggml_tensor *> seen;
    for (const ggml_tensor * node : pieces_.nodes) {
        for (ggml_tensor * s : node->src) {
            if (s && !inside.count(s) && seen.insert(s).second && s->op != GGML_OP_NONE) {
                outside.emplace_back(s, *s);  // no leaf: threads that copy experts look at those
            }
        }
    }
    const size_t size = pieces_.nodes.size() + seen.size();
    graph_context_.reset(ggml_init({ggml_graph_overhead_custom(size, false), nullptr, true}));
    graph_ = ggml_new_graph_custom(graph_context_.get(), size, false);
    for (auto & [tensor, as_it_was] : outside) {
        tensor->op = GGML_OP_NONE;
        std::fill(std::begin(tensor->src), std::end(tensor->src), nullptr);
    }
    for (ggml_tensor * node : pieces_.nodes) {
        ggml_build_forward_order(graph_, node);
    }
    for (auto & [tensor, as_it_was] : outside) {
        *tensor = as_it_was;
    }
    return size_t(graph_->n_nodes) == pieces_.nodes.size() &&
           std::equal(pieces_.nodes.begin(), pieces_.nodes.end(), graph_->nodes);
}

void PieceRunner::begin(Wanted wanted) {
    wanted_ = wanted;
    for (const Moved & m : moved_) {
        m.tensor->buffer = places_.get();
        m.tensor->data = m.place;
    }
    began_ = true;
}

void PieceRunner::end() {
    if (!std::exchange(began_, false)) {
        return;
    }
    for (const Moved & m : moved_) {
        m.tensor->buffer = m.buffer;
        m.tensor->data = m.data;
    }
    for (const RoutedNodes & layer : pieces_.layers) {
        for (ggml_tensor * node : layer.mat_muls) {
            node->src[2] = layer.ids;
        }
    }
}

void PieceRunner::set_slots(size_t layer, std::span<const int32_t> slots) {
    Staging & s = staging_[layer];
    if (s.sent && std::equal(slots.begin(), slots.end(), s.slots[s.now])) {
        return;
    }
    s.now ^= 1;
    s.sent = true;
    std::copy(slots.begin(), slots.end(), s.slots[s.now]);
    send_async(backend_, sent_[layer], s.slots[s.now], 0, slots.size_bytes());
}

// The graph of a piece: a view of the whole one, as ggml_graph_view() makes it, with nodes before it.
void PieceRunner::view(size_t piece, ggml_cgraph & graph, std::vector<ggml_tensor *> & nodes, bool remapped) const {
    if (piece == 0) {
        nodes = copies_;
    } else if (remapped && runs_ahead_) {
        nodes.push_back(remaps_[piece - 1]);
    }
    nodes.insert(nodes.end(), pieces_.nodes.begin() + int64_t(piece == 0 ? 0 : pieces_.ends[piece - 1]),
                 pieces_.nodes.begin() + int64_t(pieces_.ends[piece]));
    graph.n_nodes = int(nodes.size());
    graph.nodes = nodes.data();
    graph.use_counts = graph_->use_counts;
    graph.visited_hash_set = graph_->visited_hash_set;
    graph.order = graph_->order;
}

void PieceRunner::compute(size_t piece, bool remapped, bool brings) {
    if (piece > 0) {
        const RoutedNodes & layer = pieces_.layers[piece - 1];
        for (ggml_tensor * node : layer.mat_muls) {
            node->src[2] = remapped ? slots_[piece - 1] : layer.ids;
        }
    }
    ggml_cgraph graph{};
    std::vector<ggml_tensor *> nodes;
    view(piece, graph, nodes, remapped);
    computing_ = true;
    if (ggml_backend_graph_compute_async(backend_, &graph) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("The device failed to compute");
    }
    if (!brings) {
        return;
    }
    const RoutedNodes & layer = pieces_.layers[piece];
    const auto bring = [&](const ggml_tensor * from, void * to, size_t n) {
        ggml_backend_tensor_get_async(backend_, from, to, 0, n * sizeof(float));
    };
    bring(layer.ids, staging_[piece].ids, size_t(n_used_));
    if (wanted_.weights && layer.weights) {
        bring(layer.weights, staging_[piece].weights, size_t(n_used_));
    }
    if (wanted_.input && layer.input) {
        bring(layer.input, staging_[piece].input, size_t(n_embd_));
    }
    if (runs_ahead_) {
        ggml_backend_event_record(events_[piece].get(), backend_);
    }
}

void PieceRunner::wait_for(ggml_backend_event_t event) {
    ggml_backend_event_wait(backend_, event);
    computing_ = true;
}

void PieceRunner::wait_for(size_t layer) {
    if (runs_ahead_) {
        ggml_backend_event_synchronize(events_[layer].get());
    } else {
        finish();
    }
}

std::span<const float> PieceRunner::weights(size_t layer) const {
    const bool there = wanted_.weights && pieces_.layers[layer].weights;
    return {staging_[layer].weights, there ? size_t(n_used_) : 0};
}

std::span<const float> PieceRunner::input(size_t layer) const {
    const bool there = wanted_.input && pieces_.layers[layer].input;
    return {staging_[layer].input, there ? size_t(n_embd_) : 0};
}

void PieceRunner::finish() {
    if (std::exchange(computing_, false)) {
        ggml_backend_synchronize(backend_);
    }
}

}  // namespace outrider
