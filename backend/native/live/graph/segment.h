// Finds a layer's expert computation in llama.cpp's graph, without a table of architectures.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "ggml.h"
#include "live/graph/cut.h"

namespace outrider {

// Return 12 for "ffn_moe_topk-12" and stem "ffn_moe_topk"; nothing for other names, also of views.
std::optional<int> layer_in_name(const ggml_tensor * node, const char * stem);
// Return the number of the layer whose router's mat-mul this is. Scores that are used unchanged have the probabilities'
// name.
std::optional<int> layer_of_logits(const ggml_tensor * node);

// The nodes from a layer's first expert mat-mul to the last node with one row per (token, chosen expert): all nodes
// that depend on the experts' weights, and no others. The multiplication by the chosen experts' weights is left out at
// the end: devices compute it in one kernel with the sum over the experts, which rounds differently.
struct Segment {
    ggml_tensor * ids = nullptr;  // [n_expert_used, n_token], the router's choice
    std::vector<ggml_tensor *> nodes;  // in the graph's order; the last one holds the result
    bool contains(const ggml_tensor * t) const;
    // Return whether the node reads, or is a view of, a node of the segment.
    bool feeds(const ggml_tensor * node) const;
};

// A node that llama.cpp computes between a segment's first node and its last one, as the probe saw it.
struct PatternNode {
    bool of_segment;  // false: it does not depend on the experts' weights; the rest is empty then
    ggml_op op = GGML_OP_NONE;
    std::string name{};  // empty: llama.cpp gave it none

    bool operator==(const PatternNode &) const = default;
    // Return whether this may be `node`.
    bool matches(const ggml_tensor * node) const;
};
// Return the node's name. Empty for a name that only numbers the node.
std::string_view given_name(const ggml_tensor * node);

// The role of a source of a segment's node.
enum class SourceKind {
    inside,  // computed in the segment
    ids,  // the router's choice
    constant,  // a weight that is not routed, such as a table of biases
    rows,  // one row per token or per (token, chosen expert), computed before
    unknown,
};
// REQUIRES: `s` is not an expert tensor.
SourceKind source_kind(const Segment & segment, const ggml_tensor * s);

// Return whether the node has the form of the chosen experts' weights: [n_expert_used, n_token], in any arrangement.
// The experts' rows are multiplied by the last such node between the choice and the experts.
bool is_weights(const ggml_tensor * node, const ggml_tensor * ids);

// The biases between a router's mat-mul and its choice, and its gate. Null: there is none.
struct RouterNodes {
    const ggml_tensor * added = nullptr;  // to the products
    const ggml_tensor * selected = nullptr;  // to the probabilities, for the choice only
    bool sigmoid = false;
};

// Sees the nodes of a pass in llama.cpp's order.
class SegmentFinder {
  public:
    // `layer_of`: the layer of every expert tensor, in any numbering.
    explicit SegmentFinder(std::map<const ggml_tensor *, Layer> layer_of) : layer_of_(std::move(layer_of)) {}

    void pass_began();
    void see(ggml_tensor * node);
    // After a pass: return why this graph cannot be cached, or "".
    std::string pass_ended();

    struct Found {
        Segment segment;
        std::vector<PatternNode> pattern;  // from the segment's first node to its last
        size_t n_between = 0;  // other nodes since the segment's last node so far
        // Its end was seen. Not set if another device continues with a copy of its result.
        bool closed = false;
        std::string objection;  // why it cannot be computed in waves
        const ggml_tensor * logits = nullptr;  // the router's mat-mul
        RouterNodes router;
        const ggml_tensor * table = nullptr;  // of the experts of each token id, where the choice is a row of one
        CutFinder cut;
        int il = -1;  // llama.cpp's number of the layer
        // Nodes from the router's choice to the first expert mat-mul.
        size_t n_to_experts = 0;
        // The tensors that are still in memory at the first expert mat-mul.
        bool keeps_input = false;  // the router's input
        bool keeps_weights = false;  // the chosen experts' final weights
    };
    const std::map<Layer, Found> & found() const { return found_; }

  private:
    void grow(Found & found, ggml_tensor * node);
    void leave_out_weights(Found & found) const;
    std::string objection() const;

    std::map<const ggml_tensor *, Layer> layer_of_;
    std::map<Layer, Found> found_;
    std::map<int, ggml_tensor *> topk_;  // by llama.cpp's number of the layer
    std::map<int, ggml_tensor *> logits_;
    std::map<int, RouterNodes> routers_;
    std::map<int, const ggml_tensor *> tables_;
    std::string objection_;
    Layer open_ = none;
    const ggml_tensor * last_topk_ = nullptr;
    size_t n_since_topk_ = 0;
    bool saw_weights_ = false;  // since last_topk_
};

}  // namespace outrider
