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

std::unique_ptr<PieceRunner> PieceRunner::make(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph) {
    std::unique_ptr<PieceRunner> made(new PieceRunner(pieces, backend, graph));
    const bool is_made = made->make_slots() && made->make_staging() && made->make_graph();
    return is_made ? std::move(made) : nullptr;
}

PieceRunner::PieceRunner(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph)
    : pieces_(pieces),
      backend_(backend),
      device_(ggml_backend_get_device(backend)),
      n_used_(graph.shape.n_expert_used),
      n_embd_(graph.n_embd) {}

bool PieceRunner::make_slots() {
    context_.reset(ggml_init({ggml_tensor_overhead() * pieces_.layers.size(), nullptr, true}));
    for (const RoutedNodes & layer : pieces_.layers) {
        slots_.push_back(ggml_new_tensor_2d(context_.get(), GGML_TYPE_I32, layer.ids->ne[0], 1));
        ggml_format_name(slots_.back(), "slots of layer %d", int(layer.layer));
    }
    const auto memory = ggml_backend_dev_buffer_type(device_);
    memory_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), memory));
    return memory_ != nullptr;
}

bool PieceRunner::make_staging() {
    const size_t sizes[] = {size_t(n_used_) * sizeof(int32_t), size_t(n_used_) * sizeof(float),
                            size_t(n_embd_) * sizeof(float), size_t(n_used_) * sizeof(int32_t)};
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
        staging_.push_back({static_cast<int32_t *>(parts[0]), static_cast<float *>(parts[1]),
                            static_cast<float *>(parts[2]), static_cast<int32_t *>(parts[3])});
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

void PieceRunner::begin(Wanted wanted) { wanted_ = wanted; }

void PieceRunner::end() {
    for (const RoutedNodes & layer : pieces_.layers) {
        for (ggml_tensor * node : layer.mat_muls) {
            node->src[2] = layer.ids;
        }
    }
}

void PieceRunner::set_slots(size_t layer, std::span<const int32_t> slots) {
    Staging & s = staging_[layer];
    if (s.sent && std::ranges::equal(slots, std::span(s.slots, slots.size()))) {
        return;
    }
    s.sent = true;
    std::ranges::copy(slots, s.slots);
    send_async(backend_, slots_[layer], s.slots, 0, slots.size_bytes());
}

// The graph of a piece: a view of the whole one, as ggml_graph_view() makes it.
void PieceRunner::view(size_t piece, ggml_cgraph & graph) {
    const size_t begin = piece == 0 ? 0 : pieces_.ends[piece - 1];
    graph.n_nodes = int(pieces_.ends[piece] - begin);
    graph.nodes = pieces_.nodes.data() + begin;
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
    view(piece, graph);
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
    bring(layer.ids, staging_[piece].ids, n_used(piece));
    if (wanted_.weights && layer.weights) {
        bring(layer.weights, staging_[piece].weights, n_used(piece));
    }
    if (wanted_.input && layer.input) {
        bring(layer.input, staging_[piece].input, size_t(n_embd_));
    }
}

void PieceRunner::wait_for(ggml_backend_event_t event) {
    ggml_backend_event_wait(backend_, event);
    computing_ = true;
}

std::span<const float> PieceRunner::weights(size_t layer) const {
    const bool there = wanted_.weights && pieces_.layers[layer].weights;
    return {staging_[layer].weights, there ? n_used(layer) : 0};
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
