// Fetches experts ahead of a layer's gate, from forecasts.
//
// While a layer of a prompt computes, and while the attention of the next one does, the link would be idle. So a
// prompt reads ahead for the next layers, into their slots or through the stage: as much as the link brought before
// the last gates, and a little more. A token's forecasts are fetched at once; what is certain is not cancelled.
#pragma once

#include "core/schedule/victims.h"

namespace outrider {

class ReadAhead : OrderedPart {
  public:
    ReadAhead(const OrderedPart & part, Victims & victims);

    void pass_began() { routed_ = none; }
    // Call it before copies for the layer that have not begun are cancelled.
    void reached(Layer layer) { n_open_ = desk_.n_low(layer); }
    // At a layer's gate, before its needs take slots: judge the orders ahead of it.
    void gate(Layer layer);
    // A forecast came: order its experts now, or, in a prompt, as the link has room.
    void expect(const Forecast & forecast, Commands & out);
    void fetch(const Forecast & forecast, Commands & out);
    // The recent share of the experts displaced by a token's forecasts that the layer's next token needed.
    double regret_of_tokens() const { return token_regret_; }
    // Read ahead as many experts as have room, if no need waits for a slot.
    void run(Commands & out);

  private:
    struct Expected {  // of a layer that was not routed yet
        std::vector<Expert> experts;  // the most probable first
        size_t n_read = 0;            // the first ones: resident or ordered
    };

    bool lacks(Place place, Expert expert) const;
    bool claim(Place place, Expert expert);
    void order_claimed(Place place, Expert expert, Urgency urgency, Commands & out, bool whole = false);
    bool run_layer(Layer layer, Commands & out);
    void disappoint(Layer layer);
    void judge(Layer layer);

    Victims & victims_;
    Layer routed_ = none;  // the last one in this pass
    std::vector<Expected> expected_;               // [layer]
    std::vector<std::vector<Expert>> prefetched_;  // [layer], since it was last routed
    std::vector<std::vector<Expert>> displaced_;   // [layer]: evicted for a prefetch, since it was last routed
    double regret_ = 0;        // the recent share of displaced experts that were needed after all
    double token_regret_ = 0;  // the same without prompts
    size_t most_open_ = 48;    // low copies in flight at most
    size_t n_open_ = 0;        // low copies in flight for the layer that was reached last
    bool held_back_ = false;   // more would have been ordered without this limit
};

}  // namespace outrider
