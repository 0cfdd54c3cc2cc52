// Forecasts which experts later layers will choose, from the routings so far.
#pragma once

#include <vector>

#include "core/types.h"

namespace outrider {

// Experts that `layer` will probably choose, the most probable first. A layer at or before the present one is of the
// next pass.
struct Forecast {
    Layer layer = none;
    std::vector<Expert> experts;
    std::vector<float> scores{};  // [experts]: the higher, the more probable; may be empty
    bool certain = false;         // the layer will choose these and no others
    bool spare = false;           // to be read while the link would be idle; the scores are probabilities
};
using Forecasts = std::vector<Forecast>;

// Called in this order: pass_began, then for each layer routed and gate_seen. Each may add forecasts for any layer, of
// at most n_predict experts (set by the registry) for each token of the pass.
class Predictor {
  public:
    virtual ~Predictor() = default;

    // Whether gate_seen() is to be called: the driver then has to read the layer's input.
    virtual bool wants_input() const { return false; }
    // Whether routed() uses the router's weights.
    virtual bool wants_weights() const { return false; }

    // A new conversation begins, or several that are computed jointly; those before have ended.
    virtual void request_began() {}
    // A sequence begins beside others.
    virtual void sequence_began(int32_t sequence) { (void) sequence; }
    // `tokens`: ids of the pass's tokens; empty if unknown.
    virtual void pass_began(Phase, std::span<const int32_t> tokens, Forecasts & out) { (void) tokens, (void) out; }
    virtual void routed(const Routing &, Forecasts &) {}
    // `input`: the MoE input of `layer`, n_token rows of n_embd values.
    virtual void gate_seen(Layer, std::span<const float> input, int32_t n_token, Forecasts & out) {
        (void) input, (void) n_token, (void) out;
    }
};

}  // namespace outrider
