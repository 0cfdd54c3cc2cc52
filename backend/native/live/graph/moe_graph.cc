#include "live/graph/moe_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>
#include <stdexcept>
#include <tuple>

#include "live/ggml/values.h"

namespace outrider {
namespace {

// "blk.12.ffn_up_exps.weight" -> 12, or -1.
int number_in_tensor_name(const char * name) {
    int number = -1;
    return std::sscanf(name, "blk.%d.", &number) == 1 ? number : -1;
}

// Return the device that computes with the tensors of a buffer. A buffer of pinned host memory (CUDA_Host, Vulkan_Host)
// names its device, but the CPU computes with weights there.
ggml_backend_dev_t device_of_buffer(ggml_backend_buffer_t buffer) {
    const auto type = ggml_backend_buffer_get_type(buffer);
    return ggml_backend_buft_is_host(type) ? ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)
                                           : ggml_backend_buft_get_device(type);
}

// Weights that the CPU backend repacked cannot be read back.
bool is_readable(const ggml_tensor * w) {
    return w->buffer && (ggml_backend_buffer_is_host(w->buffer) ||
                         ggml_backend_dev_type(device_of_buffer(w->buffer)) != GGML_BACKEND_DEVICE_TYPE_CPU);
}

// Return the device on which llama.cpp computes `node`: that of the nearest weights among its sources, or null. `seen`:
// visited nodes.
ggml_backend_dev_t device_of_weights(const ggml_tensor * node, std::set<const ggml_tensor *> & seen) {
    if (!node || !seen.insert(node).second) {
        return nullptr;
    }
    if (node->buffer && ggml_backend_buffer_get_usage(node->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        return device_of_buffer(node->buffer);
    }
    for (const ggml_tensor * s : node->src) {
        if (const auto device = device_of_weights(s, seen)) {
            return device;
        }
    }
    return device_of_weights(node->view_src, seen);
}

// Return a row of `n` weights, or nothing if it is none.
std::vector<float> row_of_weights(const ggml_tensor * w, int64_t n) {
    if (!w || w->type != GGML_TYPE_F32 || w->ne[0] != n || ggml_nrows(w) != 1 || !is_readable(w) ||
        ggml_backend_buffer_get_usage(w->buffer) != GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        return {};
    }
    std::vector<float> weights(size_t(w->ne[0]));
    ggml_backend_tensor_get(w, weights.data(), 0, weights.size() * sizeof(float));
    return weights;
}

// Return the experts of every token id, or nothing if the router is no table.
std::vector<Expert> experts_of_tokens(const ggml_tensor * table) {
    if (!table || table->type != GGML_TYPE_I32 || !is_readable(table) || !ggml_is_contiguous(table) ||
        ggml_backend_buffer_get_usage(table->buffer) != GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        return {};
    }
    std::vector<Expert> experts(size_t(ggml_nelements(table)));
    ggml_backend_tensor_get(table, experts.data(), 0, ggml_nbytes(table));
    return experts;
}

// Return the weights of the norm before a router, or nothing if there are none.
std::vector<float> norm_weights(const ggml_tensor * logits) {
    const ggml_tensor * input = logits ? logits->src[1] : nullptr;
    return input ? row_of_weights(input->src[1], input->ne[0]) : std::vector<float>();
}

// Return the router's matrix as floats, or nothing if it cannot be read.
std::vector<float> router_weights(const ggml_tensor * logits, int32_t n_expert) {
    const ggml_tensor * w = logits ? logits->src[0] : nullptr;
    if (!w || !is_readable(w) || w->ne[1] != n_expert || !ggml_is_contiguous(w)) {
        return {};
    }
    std::vector<uint8_t> bytes(ggml_nbytes(w));
    ggml_backend_tensor_get(w, bytes.data(), 0, bytes.size());
    return values_of(w->type, bytes);
}

// The router will get the input of the layer before. Divide by that layer's norm weights and multiply by its own, so
// that only the change of the residual stream is missing.
void exchange_norms(std::vector<float> & router, const std::vector<float> & own, const std::vector<float> & shown) {
    if (own.empty() || own.size() != shown.size() || router.size() % own.size() != 0) {
        return;
    }
    for (size_t i = 0; i < router.size(); i++) {
        const size_t column = i % own.size();
        router[i] *= std::abs(shown[column]) > 1e-6f ? own[column] / shown[column] : 0.0f;
    }
}

std::map<const ggml_tensor *, Layer> numbers_of(const ExpertBuffers & buffers) {
    std::map<const ggml_tensor *, Layer> numbers;
    for (const ggml_tensor * t : buffers.tensors()) {
        numbers[t] = number_in_tensor_name(t->name);
    }
    return numbers;
}

// Return [layer]: layers are of one kind if their matrices have the same types, shapes and device.
std::vector<int32_t> kinds_of(const std::vector<ExpertTensor> & tensors, int32_t n_layer) {
    using Form = std::tuple<ggml_type, int64_t, int64_t, bool, ggml_backend_dev_t>;
    std::vector<std::vector<Form>> forms(static_cast<size_t>(n_layer));
    for (const ExpertTensor & t : tensors) {
        forms[t.layer].emplace_back(t.tensor->type, t.tensor->ne[0], t.tensor->ne[1], t.is_down, t.device);
    }
    std::map<std::vector<Form>, int32_t> numbers;
    std::vector<int32_t> kinds;
    for (const auto & form : forms) {
        kinds.push_back(numbers.emplace(form, int32_t(numbers.size())).first->second);
    }
    return kinds;
}

}  // namespace

Probe::Probe(const ExpertFiles & files, const ExpertBuffers & buffers)
    : files_(files), buffers_(buffers), numbers_(numbers_of(buffers)), finder_(numbers_) {}

Probe::~Probe() { restore(); }

void Probe::see(ggml_tensor * node) {
    if (!finding_devices_) {
        finder_.see(node);
    } else if (layer_in_name(node, "ffn_moe_topk")) {
        std::set<const ggml_tensor *> seen;
        last_device_ = device_of_weights(node, seen);
    } else if (const auto it = numbers_.find(node->src[0]); it != numbers_.end() && last_device_) {
        device_of_.emplace(it->second, last_device_);
    }
    node->op = GGML_OP_NONE;  // compute nothing, read no expert
}

ggml_backend_dev_t Probe::device_of(int number) const {
    const auto it = device_of_.find(number);
    return it != device_of_.end() ? it->second : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

// Place the experts on their layers' devices for ggml's scheduler, with memory for one expert.
void Probe::aim() {
    for (const auto & [own, number] : numbers_) {
        const auto buft = ggml_backend_dev_buffer_type(device_of(number));
        if (ggml_backend_buft_is_host(buft)) {
            continue;
        }
        auto * t = const_cast<ggml_tensor *>(own);
        ggml_tensor one = *t;
        one.ne[2] = 1;
        one.nb[3] = one.nb[2];
        ggml_backend_buffer_t buffer =
            aims_.emplace_back(ggml_backend_buft_alloc_buffer(buft, ggml_backend_buft_get_alloc_size(buft, &one)))
                .get();
        if (!buffer) {
            throw std::runtime_error(no_memory);
        }
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        aimed_.emplace_back(t, *t);
        place_tensor(one, buffer, ggml_backend_buffer_get_base(buffer));
        *t = one;
    }
}

void Probe::restore() {
    for (const auto & [tensor, as_made] : aimed_) {
        *tensor = as_made;
    }
    aimed_.clear();
    aims_.clear();
}

std::string Probe::pass_ended() {
    if (finding_devices_) {
        finding_devices_ = false;
        aim();
        return "";
    }
    const std::string objection = finder_.pass_ended();
    if (objection.empty()) {
        passes_.push_back(finder_.found());
    }
    return objection;
}

MoeGraph Probe::result(std::string & objection) {
    restore();
    MoeGraph graph;
    objection = compare();
    if (!objection.empty()) {
        return graph;
    }
    const Findings & findings = passes_.back();
    adopt_segments(findings, graph);
    std::vector<std::vector<float>> norms;
    for (const auto & [number, found] : findings) {
        graph.routers.push_back(router_weights(found.logits, graph.shape.n_expert));
        norms.push_back(norm_weights(found.logits));
        graph.router_biases.push_back({row_of_weights(found.router.added, graph.shape.n_expert),
                                       row_of_weights(found.router.selected, graph.shape.n_expert),
                                       found.router.sigmoid});
        graph.token_experts.push_back(experts_of_tokens(found.table));
    }
    for (Layer l = 0; l < graph.shape.n_layer; l++) {
        auto & router = graph.routers[l];
        const auto n_embd = int32_t(router.size() / size_t(graph.shape.n_expert));
        graph.n_embd = graph.n_embd == 0 ? n_embd : graph.n_embd;
        if (n_embd != graph.n_embd) {
            router.clear();
        } else if (l > 0) {
            exchange_norms(router, norms[l], norms[l - 1]);
        }
    }
    return graph;
}

std::string Probe::compare() const {
    if (passes_.size() < 2) {
        return "its graph could not be seen";
    }
    std::set<int> numbers;
    for (const auto & [number, found] : passes_[1]) {
        const auto it = passes_[0].find(number);
        if (it == passes_[0].end() || it->second.pattern != found.pattern) {
            return "its graph depends on the number of tokens";
        }
        if (!numbers.insert(found.il).second) {
            return "two blocks of experts share a layer";
        }
    }
    return "";
}

void Probe::adopt_segments(const Findings & findings, MoeGraph & graph) const {
    std::map<int, Layer> layer_of;  // by the number in the tensors' names
    for (const auto & [number, found] : findings) {
        const auto layer = Layer(graph.numbers.size());
        layer_of[number] = layer;
        graph.layer_of_number[found.il] = layer;
        graph.numbers.push_back(number);
        graph.devices.push_back(device_of(number));
        graph.patterns.push_back(found.pattern);
        const bool is_steady = passes_.front().at(number).n_to_experts == found.n_to_experts;
        graph.late_stops.push_back({is_steady ? found.n_to_experts : 0, found.keeps_input, found.keeps_weights});
        graph.shape.n_used.push_back(int32_t(found.segment.ids->ne[0]));
        graph.shape.n_cut.push_back(found.cut.n_cut());
    }
    for (ggml_tensor * t : buffers_.tensors()) {
        const auto it = layer_of.find(number_in_tensor_name(t->name));
        if (it != layer_of.end()) {
            graph.shape.n_expert = int32_t(t->ne[2]);
            const bool is_down = findings.at(it->first).cut.down() == t;
            graph.tensors.push_back({t, it->second, 0, files_.place(t->name), files_.packed(t->name),
                                     uint64_t(t->nb[2]), is_down, graph.devices[size_t(it->second)]});
        }
    }
    graph.shape.n_expert_used = std::ranges::max(graph.shape.n_used);
    if (std::ranges::min(graph.shape.n_used) == graph.shape.n_expert_used) {
        graph.shape.n_used.clear();
    }
    const auto order = [](const ExpertTensor & t) {
        const TensorPlace & place = t.packed ? *t.packed : t.place;
        return std::tuple(t.layer, place.part, place.offset);
    };
    std::stable_sort(graph.tensors.begin(), graph.tensors.end(),
                     [&](const ExpertTensor & a, const ExpertTensor & b) { return order(a) < order(b); });
    graph.shape.n_layer = int32_t(graph.numbers.size());
    graph.shape.chunk_bytes.resize(graph.numbers.size());
    for (ExpertTensor & t : graph.tensors) {
        t.chunk = Chunk(graph.shape.chunk_bytes[t.layer].size());
        graph.shape.chunk_bytes[t.layer].push_back(t.expert_bytes);
        graph.layer_of_tensor[t.tensor] = t.layer;
    }
    graph.shape.kind = kinds_of(graph.tensors, graph.shape.n_layer);
}

}  // namespace outrider
