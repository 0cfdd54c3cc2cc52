// Reads what the routers of a pass computed: choices, weights, and the inputs of their layers.
#pragma once

#include <span>
#include <vector>

#include "live/compute/device_work.h"
#include "live/graph/forced_routing.h"
#include "live/graph/moe_graph.h"

namespace outrider {

// Belongs to the decoding thread. Spans hold until the next read().
class RouterReader {
  public:
    explicit RouterReader(const MoeGraph & graph) : graph_(graph) {}

    void begin_pass();
    // Note a node of the pass that holds a router's scores or probabilities.
    void note(ggml_tensor * node);

    // Read the input of a layer whose router has just run, before read(): its memory may be in other use then.
    void read_input(Layer layer, DeviceWork & work);
    // Whether the last call was read_input() of this layer.
    bool has_input(Layer layer) const { return input_of_ == layer; }

    struct Wanted {
        bool weights;
        bool input;
    };
    // Read the choice `topk` of a layer and what else is wanted, in one round trip to the layer's device. At a late
    // stop the weights are `final_weights` (null: unknown); otherwise they follow from the probabilities. Throws
    // std::runtime_error for an expert that does not exist.
    void read(const ggml_tensor * topk, Layer layer, DeviceWork & work, Wanted wanted, bool late,
              const ggml_tensor * final_weights);
    // Take what a router of one token computed, as read() would: the choice, and the weights and the input or nothing.
    void take(std::span<const int32_t> ids, std::span<const float> weights, std::span<const float> input);

    // Replace what read() took where other values are forced.
    void replace(ForcedValues values);

    int32_t n_token() const { return n_token_; }
    std::span<const Expert> ids() const { return ids_; }  // [n_token][Shape::used]
    std::span<const float> weights() const { return weights_; }  // of the same shape, or empty
    std::span<const float> probabilities() const { return probabilities_; }  // [n_token][n_expert], or empty
    std::span<const float> input() const { return input_; }  // [rows][n_embd], or empty

  private:
    const ggml_tensor * readable_probabilities(Layer layer) const;
    const ggml_tensor * readable_input(Layer layer) const;
    void take_ids(const ggml_tensor * topk);
    void check_ids() const;
    void take_weights(const ggml_tensor * probabilities);
    void round_to_half(std::vector<float> & values);

    static void read_floats(const ggml_tensor * from, std::vector<float> & to, DeviceWork & work);

    const MoeGraph & graph_;
    Layer input_of_ = none;  // has_input()
    std::vector<ggml_tensor *> logits_, probabilities_of_;  // [layer], of this pass
    int32_t n_token_ = 0;
    std::vector<uint8_t> choice_;  // bytes of `topk`
    std::vector<Expert> ids_;
    std::vector<float> weights_, probabilities_, input_;
    std::vector<ggml_fp16_t> half_;
};

}  // namespace outrider
