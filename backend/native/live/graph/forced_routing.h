// Routing by a recording: what the routers choose is replaced, so that a model of random weights is
// driven by the routing of a real one. For experiments, with and without a patch.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "ggml.h"

namespace outrider {

// The routers still compute, and the weights of the experts are theirs; only the choice is another.
class ForcedRouting {
  public:
    // `layers`: the model's own numbers of its MoE layers. `ids`: [n_token][layer][n_expert_used].
    // Throws std::invalid_argument where the sizes do not fit together.
    ForcedRouting(const std::vector<int> & layers, int32_t n_expert, int32_t n_expert_used, std::vector<Expert> ids);

    // The next pass is of n_token tokens, which are routed as the rows of `ids` from first_row on.
    // Throws std::out_of_range where there are not so many.
    void begin_pass(int64_t first_row, int32_t n_token);
    // Replaces the choice of a layer (its number among `layers`) by that of the last rows of the pass:
    // llama.cpp computes the last layer only for them. `topk` has run, and nothing that depends on
    // it. Throws std::runtime_error where the model chooses another number of experts.
    void write(ggml_tensor * topk, Layer layer) const;

    // The same without a patch: for llama_context_params.cb_eval and cb_eval_user_data.
    static bool callback(ggml_tensor * node, bool ask, void * self);
    // Why the callback ended a pass; empty where it did not.
    const std::string & error() const { return error_; }

  private:
    bool computed(ggml_tensor * node);

    std::unordered_map<int, Layer> layer_of_number_;
    size_t n_layer_;
    size_t n_used_;
    std::vector<Expert> ids_;
    size_t first_row_ = 0;
    size_t n_token_ = 0;
    std::string error_;
};

}  // namespace outrider
