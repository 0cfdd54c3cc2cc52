// Records the routing of a patched model in memory, for a trace (backend/traces/trace.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"

namespace outrider {

struct RecorderOptions {
    int32_t n_layer = 0;
    int32_t n_expert = 0;
    int32_t n_expert_used = 0;
    int32_t n_embd = 0;      // width of the inputs
    bool weights = true;     // of the chosen experts
    bool scores = false;     // of all experts
    bool inputs = false;     // of each layer's router and experts
    uint64_t max_bytes = 0;  // of the recording; 0: no limit
    std::vector<int32_t> n_used{};  // [layer]: experts of a token; empty: n_expert_used

    int32_t used(Layer layer) const { return n_used.empty() ? n_expert_used : n_used[size_t(layer)]; }
};

// Rows are ordered by pass and token. Floats are the bits of f16.
struct Recording {
    std::vector<uint8_t> phases;      // [pass], Phase
    std::vector<int32_t> requests;    // [pass], counted from 0
    std::vector<int32_t> n_token;     // [pass]
    // [pass][layer]: tokens that the layer routed, the last ones of the pass. llama.cpp computes the last layer only
    // for tokens whose logits are wanted. Rows that were not routed are zero.
    std::vector<int32_t> n_routed;
    std::vector<int32_t> tokens;  // [token], ids
    std::vector<int32_t> sequences;  // [token]; empty where no pass had several
    // [token][layer][n_expert_used], each of id_bytes. A layer that uses fewer repeats its last one, of weight 0.
    std::vector<uint8_t> ids;
    int32_t id_bytes = 1;
    std::vector<uint16_t> weights;  // [token][layer][n_expert_used], or empty
    std::vector<uint16_t> scores;  // [token][layer][n_expert], or empty
    std::vector<uint16_t> inputs;  // [token][layer][n_embd], or empty
    std::vector<uint8_t> has_inputs;  // [layer]: every routed row has its input

    uint64_t bytes() const;
};

// Belongs to the decoding thread. In a pass, each layer calls routed(), then scores() and input(). Allocates only at
// the beginning of a pass.
class Recorder {
  public:
    // Throws std::invalid_argument for sizes that make no sense.
    explicit Recorder(const RecorderOptions & options);

    void request_began();
    // `tokens`: the ids of all tokens of the pass.
    // `sequences`: of the tokens, or empty (PassBegan).
    void pass_began(Phase phase, std::span<const int32_t> tokens, std::span<const int32_t> sequences = {});
    // `ids`, and `weights` or empty: [n_token][used], of the last n_token tokens of the pass. Weights are the
    // router's probabilities (scores after softmax or sigmoid), before the chosen ones are scaled to a sum of one.
    void routed(Layer layer, std::span<const Expert> ids, int32_t n_token, std::span<const float> weights);
    // Probabilities of all experts: [n_token][n_expert], of the same tokens or of the whole pass.
    void scores(Layer layer, std::span<const float> values);
    // The router's input: [n_token][n_embd], of the same tokens or of the whole pass.
    void input(Layer layer, std::span<const float> rows);
    // Drop the pass if it is not `whole` or inconsistent.
    void pass_ended(bool whole);

    // Return what the recorder needs now. False outside a recorded pass.
    bool wants_weights() const { return open_ && options_.weights; }
    bool wants_scores() const { return open_ && options_.scores; }
    bool wants_inputs() const { return open_ && options_.inputs; }

    const RecorderOptions & options() const { return options_; }
    // Return whether the limit was reached. Nothing more is recorded then.
    bool full() const { return full_; }
    int64_t n_pass() const { return int64_t(kept_.n_token.size()) - (open_ ? 1 : 0); }
    int64_t n_token() const { return int64_t(kept_.tokens.size()) - (open_ ? n_token_ : 0); }
    int64_t n_dropped() const { return n_dropped_; }
    uint64_t bytes() const { return kept_.bytes(); }

    // Return the recording, and begin an empty one. Throws std::logic_error within a pass.
    Recording take();

  private:
    uint64_t pass_bytes(size_t n_token) const;
    bool exists(Layer layer) const { return layer >= 0 && layer < options_.n_layer; }
    // Store rows [n_token][n] of a layer as the first values of rows of `width`.
    void put_halves(std::vector<uint16_t> & to, Layer layer, int32_t width, std::span<const float> from, int32_t n);
    template <typename Id>
    void put_ids(Layer layer, std::span<const Expert> ids);
    std::span<const float> last_rows(Layer layer, std::span<const float> rows, int32_t width);
    int32_t & n_routed(Layer layer) { return kept_.n_routed[kept_.n_routed.size() - size_t(options_.n_layer) + layer]; }
    void start();

    RecorderOptions options_;
    Recording kept_;
    bool has_weights_ = true, has_scores_ = true;  // of every routed row
    bool full_ = false;
    int32_t request_ = -1;
    int64_t n_dropped_ = 0;

    // The pass in progress.
    bool open_ = false;
    bool broken_ = false;
    int32_t n_token_ = 0;
    std::vector<uint8_t> seen_;  // [layer]: bit 0: weights, 1: scores, 2: input
};

}  // namespace outrider
