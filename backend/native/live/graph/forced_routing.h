// Replaces the routers' choices by a recording, so that a model of random weights has the routing of a real one. For
// experiments, with and without a patch.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "ggml.h"

namespace outrider {

// Values of a router that a core gets beside the choice, in place of the model's. Each may be empty.
struct ForcedValues {
    std::vector<float> weights{};  // [n_token][layer][n_expert_used], or [n_token][Shape::used] of one layer
    std::vector<float> inputs{};   // [n_token][layer][n_embd]
};

// The model still computes with the router's own weights and inputs. Only the choice changes, and what a core learns.
class ForcedRouting {
  public:
    // `layers`: the numbers of the MoE layers in the model. `ids`: [n_token][layer][n_expert_used]. `n_used`: [layer],
    // the first experts of a row that count; empty: all. Throws std::invalid_argument if the sizes do not fit together.
    ForcedRouting(const std::vector<int> & layers, int32_t n_expert, int32_t n_expert_used, std::vector<Expert> ids,
                  ForcedValues values = {}, std::vector<int32_t> n_used = {});

    // The next pass has n_token tokens, routed by the rows of `ids` from first_row on. Throws std::out_of_range if
    // there are fewer.
    void begin_pass(int64_t first_row, int32_t n_token);
    // Replace the choice of a layer (an index into `layers`) by the last rows of the pass: llama.cpp computes the last
    // layer for some last tokens only. `topk` has run, and nothing that depends on it. Throws std::runtime_error if the
    // model chooses another number of experts.
    void write(ggml_tensor * topk, Layer layer) const;
    // Return the values of the last `n_row` rows of the pass in a layer; empty: those of the model.
    ForcedValues values(Layer layer, int32_t n_row) const;

    // The same without a patch: for llama_context_params.cb_eval and cb_eval_user_data.
    static bool callback(ggml_tensor * node, bool ask, void * self);
    // Return why the callback ended the pass, or "".
    const std::string & error() const { return error_; }

  private:
    bool computed(ggml_tensor * node);
    size_t used(Layer layer) const { return used_.empty() ? n_used_ : size_t(used_[size_t(layer)]); }

    std::unordered_map<int, Layer> layer_of_number_;
    size_t n_layer_;
    size_t n_used_;  // of a row
    std::vector<int32_t> used_;  // [layer], or empty
    std::vector<Expert> ids_;
    ForcedValues values_;
    size_t first_row_ = 0;
    size_t n_token_ = 0;
    std::string error_;
};

}  // namespace outrider
