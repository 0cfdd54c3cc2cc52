// Finds the first layer of a pass whose output has a value that is not finite. For a pass that is repeated after it
// gave such logits: it stops at the output of every layer.
#pragma once

#include <optional>
#include <vector>

#include "ggml.h"

namespace outrider {

// Belongs to the decoding thread.
class LayerCheck {
  public:
    // Whether to stop after this node.
    bool wants(const ggml_tensor * node) const;
    // `node` has run.
    void look(const ggml_tensor * node);
    // The model's number of the first bad layer, or nothing.
    std::optional<int> layer() const { return layer_; }

    // The same without a patch: for llama_context_params.cb_eval and cb_eval_user_data.
    static bool callback(ggml_tensor * node, bool ask, void * self);

  private:
    std::optional<int> layer_;
    std::vector<float> values_;
};

}  // namespace outrider
