// How a token is computed in pieces: learned from the nodes of a token before, for the same graph of llama.cpp.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/core.h"
#include "live/compute/piece_runner.h"
#include "live/graph/moe_graph.h"

namespace outrider {

// Belongs to the decoding thread.
class TokenPlan {
  public:
    explicit TokenPlan(const MoeGraph & graph) : graph_(graph) {}

    // Between passes: the scheduler or the slots change.
    void forget() {
        drop();
        n_in_vain_ = 0;
    }
    // A pass of `n_token` tokens begins; it may be divided.
    void begin_pass(size_t n_token, bool may_divide);
    // See a node before it runs. Return whether the rest can be computed in pieces.
    bool sees_first(ggml_tensor * node);
    // Return whether to stop there and do so: the pieces bring what the core wants.
    bool starts(ggml_tensor * node, const Core & core);
    // Return whether the stop at this node is that one. runner() then computes the token.
    bool take_stop(ggml_tensor * node);
    PieceRunner & runner() const { return *runner_; }
    // The pass was computed. Learn from it how the next token can be. `fits`: whether this device's layer may be
    // computed so.
    void learn(ggml_backend_sched_t scheduler, const std::function<bool(Layer, ggml_backend_dev_t)> & fits);
    // Wait for pieces that are being computed.
    void finish();

  private:
    enum class Division : uint8_t { off, undecided, learning, ordinary, planned, starting };

    void drop();
    void decide(const ggml_tensor * first);

    const MoeGraph & graph_;
    Division division_ = Division::off;
    std::vector<ggml_tensor *> seen_;  // nodes of a token, while learning
    // `runner_` is for the graph whose first node is `planned_` and bears `number_`; null: that graph cannot be
    // computed so.
    const ggml_tensor * planned_ = nullptr;
    uint64_t number_ = 0;
    int n_in_vain_ = 0;  // the next token had another graph, in a row
    std::unique_ptr<PieceRunner> runner_;
    ggml_op first_op_ = GGML_OP_NONE;  // of the first node of the first piece
};

}  // namespace outrider
