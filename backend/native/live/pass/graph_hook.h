// Changes llama.cpp's graph while it is computed, and undoes each change.
//
// INVARIANT: between two stops no node that the hook was shown has run. A node's `op` and `src` may therefore change
// from the moment it is shown until the next stop. Changes are undone at that stop: llama.cpp reuses the graph.
#pragma once

#include <utility>
#include <vector>

#include "live/graph/moe_graph.h"

namespace outrider {

// Belongs to the decoding thread.
class GraphHook {
  public:
    explicit GraphHook(const MoeGraph & graph) : graph_(graph) {}

    enum class Seen {
        other,     // not a node of the hook
        handled,   // changed; do not stop
        stop,      // stop after this node
        disorder,  // the nodes came in another order than in the probe
    };
    // Call for every node before it runs.
    Seen see(ggml_tensor * node);

    void begin_pass();
    // Returns whether the pass was not aborted.
    bool end_pass();
    // Plan the stop for the choice of `layer`: at `topk` itself, or late, `n_node` > 0 nodes after it.
    void plan_stop(ggml_tensor * topk, Layer layer, size_t n_node);
    // Return the choice that the stop was planned for, and forget it.
    ggml_tensor * take_choice() { return std::exchange(choice_, nullptr); }
    Layer choice_layer() const { return choice_layer_; }
    bool stops_late() const { return stops_late_; }
    // The weights of the chosen experts. Null unless the stop is late.
    const ggml_tensor * final_weights() const { return final_weights_; }

    // Compute `layer` unchanged until remap() or begin_waves() says otherwise.
    void begin_layer(Layer layer);
    // The expert mat-muls of the layer read `slot_ids` in place of expert ids.
    void remap(ggml_tensor * slot_ids) { slot_ids_ = slot_ids; }
    // llama.cpp skips the nodes of the layer's segment.
    void begin_waves();
    void end_waves();
    // Whether waves have begun and llama.cpp has reached the segment.
    bool in_waves() const { return mode_ == Mode::waves && segment_.ids; }
    bool segment_ended() const { return n_seen_ == pattern().size(); }
    Layer layer() const { return layer_; }
    const Segment & segment() const { return segment_; }

    void undo();
    // Compute no expert for the rest of the pass.
    void abort();
    bool aborted() const { return mode_ == Mode::aborted; }

  private:
    enum class Mode { remap, waves, aborted };
    struct Undo {  // a node before its change
        ggml_tensor * node;
        ggml_op op;
        ggml_tensor * ids;  // null: unchanged
    };

    const std::vector<PatternNode> & pattern() const { return graph_.patterns[size_t(layer_)]; }
    bool is_of_layer(const ggml_tensor * node) const;
    void skip(ggml_tensor * node);

    const MoeGraph & graph_;
    Mode mode_ = Mode::remap;
    Layer layer_ = none;                   // the last one routed
    ggml_tensor * slot_ids_ = nullptr;
    Segment segment_;                      // of the layer, as far as it was seen
    size_t n_seen_ = 0;                    // nodes since the segment's first
    ggml_tensor * choice_ = nullptr;       // a stop is planned for it
    Layer choice_layer_ = none;
    bool stops_late_ = false;
    size_t n_to_stop_ = 0;                 // nodes until the late stop
    const ggml_tensor * final_weights_ = nullptr;
    std::vector<Undo> undo_;
};

}  // namespace outrider
