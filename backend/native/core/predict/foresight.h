// What predictors that know the future share: their position in the trace, and which layers are due.
#pragma once

#include "core/predict/predictor.h"
#include "core/spec.h"

namespace outrider {

class SpecReader;

// Every layer of every pass is due once: when it is at most `lookahead` layers after the present one, also in the next
// pass unless that begins a request. The passes must be those of the future, in order; after its end nothing is due.
class Foresight {
  public:
    // Number: lookahead, 1 .. n_layer.
    // Throws std::invalid_argument without a future, or with that of another model.
    Foresight(SpecReader & settings, const Surroundings & around, int32_t default_lookahead);

    // Layers, numbered over all passes.
    struct Due {
        int64_t begin;
        int64_t end;
    };
    Due pass_began();
    Due routed(Layer layer);
    Layer layer_of(int64_t at) const { return Layer(at % n_layer_); }

    // The experts that the layer will choose, each once, with the number of tokens as scores: the most tokens first,
    // then the first chosen.
    Forecast truth(int64_t at);
    // The choices of the layer's tokens, in order.
    std::span<const Expert> choices(int64_t at) const {
        return future_->passes[size_t(at / n_layer_)].ids[size_t(at % n_layer_)];
    }

  private:
    Due due_after(int64_t present);

    std::shared_ptr<const Future> future_;
    int32_t n_layer_;
    int32_t lookahead_;
    int64_t pass_ = -1;
    int64_t told_ = 0;  // all before this were due
    std::vector<int32_t> counts_;  // [n_expert], 0 between calls
};

}  // namespace outrider
