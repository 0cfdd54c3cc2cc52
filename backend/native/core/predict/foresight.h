// What predictors that know the future share: where in the trace they are, and what is due.
#pragma once

#include "../spec.h"
#include "predictor.h"

namespace outrider {

class SpecReader;

// Every layer of every pass is due once, as soon as it is at most `lookahead` layers after the
// present one, those of the next pass included unless it begins a request. The passes must be those of the future, in
// order; after its end nothing is due.
class Foresight {
  public:
    // Number: lookahead, 1 .. n_layer.
    // Throws std::invalid_argument where there is no future, or one of another model.
    Foresight(SpecReader & settings, const Surroundings & around, int32_t default_lookahead);

    // Layers, numbered over all passes.
    struct Due {
        int64_t begin;
        int64_t end;
    };
    Due pass_began();
    Due routed(Layer layer);
    Layer layer_of(int64_t at) const { return Layer(at % n_layer_); }

    // The experts that the layer will choose, each once, with the number of tokens as scores: those
    // of most tokens first, of equals the one that was chosen first.
    Forecast truth(int64_t at);
    // What the layer's tokens will choose, one after the other.
    std::span<const Expert> choices(int64_t at) const {
        return future_->passes[size_t(at / n_layer_)].ids[size_t(at % n_layer_)];
    }

  private:
    Due due_after(int64_t present);

    std::shared_ptr<const Future> future_;
    int32_t n_layer_;
    int32_t lookahead_;
    int64_t pass_ = -1;
    int64_t told_ = 0;             // all before this were due
    std::vector<int32_t> counts_;  // [n_expert], 0 between calls
};

}  // namespace outrider
