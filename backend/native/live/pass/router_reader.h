// Reads what the routers of a pass computed: choices, weights, and the inputs of their layers. Replaces forced
// choices, and tells a recorder.
#pragma once

#include <span>
#include <vector>

#include "core/core.h"
#include "live/compute/device_work.h"
#include "live/graph/forced_routing.h"
#include "live/graph/moe_graph.h"
#include "live/pass/recorder.h"

namespace outrider {

// Belongs to the decoding thread. Spans hold until the next read().
class RouterReader {
  public:
    explicit RouterReader(const MoeGraph & graph) : graph_(graph) {}

    // From the next pass on; null: nobody. They outlive their use.
    void record(Recorder * recorder) { recorder_ = recorder; }
    void force(const ForcedRouting * forced) { forced_ = forced; }
    // Whether somebody needs the routers' choices, beside the core.
    bool is_watched() const { return recorder_ || forced_; }

    void request_began();
    void begin_pass(Phase phase, std::span<const int32_t> tokens, std::span<const int32_t> sequences);
    void end_pass(bool whole);
    // Note a node of the pass that holds a router's scores or probabilities.
    void note(ggml_tensor * node);

    // Read the input of a layer whose router has just run, before read(): its memory may be in other use then.
    void read_input(Layer layer, DeviceWork & work);
    // Whether the last call was read_input() of this layer.
    bool has_input(Layer layer) const { return input_of_ == layer; }

    // Read the choice `topk` of a layer and what else the core and the recorder want, in one round trip to the layer's
    // device. At a late stop the weights are `final_weights` (null: unknown); otherwise they follow from the
    // probabilities. Throws std::runtime_error for an expert that does not exist.
    void read(ggml_tensor * topk, Layer layer, DeviceWork & work, const Core & core, bool late,
              const ggml_tensor * final_weights);
    // Take what a router of one token computed, as read() would: the choice, and the weights and the input or nothing.
    void take(std::span<const int32_t> ids, std::span<const float> weights, std::span<const float> input);
    // Tell the recorder the values that were read.
    void show_recorder(Layer layer);

    int32_t n_token() const { return n_token_; }
    std::span<const Expert> ids() const { return ids_; }  // [n_token][Shape::used]
    // Scores of the same shape, or empty if they are not known or the core does not want them.
    std::span<const float> weights_for(const Core & core) const {
        return core.wants_weights() ? std::span<const float>(weights_) : std::span<const float>();
    }
    std::span<const float> input() const { return input_; }  // [rows][n_embd], or empty

  private:
    const ggml_tensor * readable_probabilities(Layer layer) const;
    const ggml_tensor * readable_input(Layer layer) const;
    void take_ids(const ggml_tensor * topk);
    void check_ids() const;
    void take_weights(const ggml_tensor * probabilities);
    void replace(ForcedValues values);
    void round_to_half(std::vector<float> & values);

    static void read_floats(const ggml_tensor * from, std::vector<float> & to, DeviceWork & work);

    const MoeGraph & graph_;
    Recorder * recorder_ = nullptr;
    const ForcedRouting * forced_ = nullptr;
    Layer input_of_ = none;  // has_input()
    std::vector<ggml_tensor *> logits_, probabilities_of_;  // [layer], of this pass
    int32_t n_token_ = 0;
    std::vector<uint8_t> choice_;  // bytes of `topk`
    std::vector<Expert> ids_;
    std::vector<float> weights_, probabilities_, input_;  // or empty
    std::vector<ggml_fp16_t> half_;
};

}  // namespace outrider
