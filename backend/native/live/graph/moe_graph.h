// The knowledge of a model that a patch needs, and the probe that learns it from two passes that compute nothing.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/spec.h"
#include "live/graph/segment.h"
#include "live/memory/expert_buffers.h"
#include "live/memory/slab.h"

namespace outrider {

// A stop just before a layer's first expert mat-mul, so that a device computes the router in one piece. See
// SegmentFinder::Found.
struct LateStop {
    size_t n_node = 0;  // from the router's choice to that mat-mul; 0: unknown
    bool keeps_input = false;
    bool keeps_weights = false;
};

struct MoeGraph {
    Shape shape;
    std::vector<int> numbers;                       // [layer], numbers in the tensors' names
    std::vector<ggml_backend_dev_t> devices;        // [layer]: computes it
    std::vector<LateStop> late_stops;               // [layer]
    std::unordered_map<int, Layer> layer_of_number; // by llama.cpp's number in the nodes' names
    std::vector<ExpertTensor> tensors;              // by layer and chunk
    std::unordered_map<const ggml_tensor *, Layer> layer_of_tensor;
    std::vector<std::vector<PatternNode>> patterns; // [layer], see SegmentFinder::Found
    // [layer][n_expert * n_embd]: a router for the input of the layer before. Empty if it cannot be read (repacked, or
    // of another shape).
    std::vector<std::vector<float>> routers;
    std::vector<RouterBias> router_biases;  // [layer]
    std::vector<std::vector<Expert>> token_experts;  // [layer], see Surroundings
    int32_t n_embd = 0;
};

class Probe {
  public:
    // `buffers`: what the model was loaded with; `files`: the places of its experts.
    Probe(const ExpertFiles & files, const ExpertBuffers & buffers);

    ~Probe();
    Probe(const Probe &) = delete;
    Probe & operator=(const Probe &) = delete;

    // If a device computes: precede the probe by a pass of one token in a context of its own. Until the experts are on
    // their layers' devices, llama.cpp shows another graph.
    void find_devices() { finding_devices_ = true; }
    // A pass of one token, then one of two, in a context that is thrown away.
    void pass_began() { finder_.pass_began(); }
    // See a node before it runs, and keep it from running.
    void see(ggml_tensor * node);
    // Return why the model cannot be cached, or "".
    std::string pass_ended();

    // Return the learned structure, or set `objection` to the reason why the model cannot be cached. REQUIRES: both
    // passes; their context still exists.
    MoeGraph result(std::string & objection);

  private:
    using Findings = std::map<Layer, SegmentFinder::Found>;  // by the number in the tensors' names

    std::string compare() const;
    void adopt_segments(const Findings & findings, MoeGraph & graph) const;

    void aim();
    void restore();
    ggml_backend_dev_t device_of(int number) const;

    const ExpertFiles & files_;
    const ExpertBuffers & buffers_;
    const std::map<const ggml_tensor *, Layer> numbers_;  // in the tensors' names
    SegmentFinder finder_;
    std::vector<Findings> passes_;
    bool finding_devices_ = false;
    ggml_backend_dev_t last_device_ = nullptr;  // of the last router's choice
    std::map<Layer, ggml_backend_dev_t> device_of_;  // by the number in the tensors' names
    std::vector<std::pair<ggml_tensor *, ggml_tensor>> aimed_;  // as llama.cpp made them
    std::vector<ggml_backend_buffer_ptr> aims_;
};

}  // namespace outrider
