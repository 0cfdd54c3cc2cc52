// What has to be known of a model to patch its graph, and how it is learned: llama.cpp shows two
// passes in which nothing is computed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "live/graph/segment.h"
#include "live/memory/expert_buffers.h"
#include "live/memory/slab.h"

namespace outrider {

// Where computing may stop for a layer's routing: just before its first expert mat-mul, so that a device
// has computed the router in one piece. See SegmentFinder::Found.
struct LateStop {
    size_t n_node = 0;  // from the router's choice to that mat-mul; 0: not known
    bool keeps_input = false;
    bool keeps_weights = false;
};

struct MoeGraph {
    Shape shape;
    std::vector<int> numbers;                       // [layer], the model's own numbering
    std::vector<ggml_backend_dev_t> devices;        // [layer]: where llama.cpp computes it
    std::vector<LateStop> late_stops;               // [layer]
    std::unordered_map<int, Layer> layer_of_number; // by the number in the nodes' names
    std::vector<ExpertTensor> tensors;              // by layer and chunk
    std::unordered_map<const ggml_tensor *, Layer> layer_of_tensor;
    std::vector<std::vector<bool>> patterns;        // [layer], see SegmentFinder::Found
    // [layer][n_expert * n_embd]: a router for the input of the layer before, or empty where it
    // cannot be read (repacked, or of another shape).
    std::vector<std::vector<float>> routers;
    int32_t n_embd = 0;
};

class Probe {
  public:
    // `buffers`: what the model was loaded with; `files`: where its experts are.
    Probe(const ExpertFiles & files, const ExpertBuffers & buffers);

    ~Probe();
    Probe(const Probe &) = delete;
    Probe & operator=(const Probe &) = delete;

    // Where a device computes: first one pass of one token in a context of its own. Until the experts
    // are on the layers' devices, llama.cpp would compute them elsewhere, and show another graph.
    void find_devices() { finding_devices_ = true; }
    // One pass of one token and then one of two, in a context that is thrown away.
    void pass_began() { finder_.pass_began(); }
    // For every node of the pass, before it would run; it will not.
    void see(ggml_tensor * node);
    // Returns why the model cannot be cached, or "".
    std::string pass_ended();

    // After both passes, with their context still there: what was learned, or why the model cannot
    // be cached in `objection`.
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
    const std::map<const ggml_tensor *, Layer> numbers_;  // as in the tensors' names
    SegmentFinder finder_;
    std::vector<Findings> passes_;
    bool finding_devices_ = false;
    ggml_backend_dev_t last_device_ = nullptr;       // of the last router's choice that was seen
    std::map<Layer, ggml_backend_dev_t> device_of_;  // by the number in the tensors' names
    std::vector<std::pair<ggml_tensor *, ggml_tensor>> aimed_;  // as llama.cpp made them
    std::vector<ggml_backend_buffer_t> aims_;
};

}  // namespace outrider
