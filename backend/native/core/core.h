// The cache as a deterministic state machine: events in, commands out. The live engine and the
// simulator own the very same object; one thread at a time may use it.
#pragma once

#include <memory>
#include <span>

#include "evict/eviction.h"
#include "host_level.h"
#include "predict/confidence.h"
#include "predict/predictor.h"
#include "residency.h"
#include "schedule/copy_desk.h"
#include "schedule/host_share.h"
#include "schedule/scheduler.h"
#include "spec.h"

namespace outrider {

// A method: its parts by name. The allocation is applied by the driver (allocate/registry.h).
struct Composition {
    Spec predictor;               // an empty name: a reactive cache
    std::vector<Spec> evictions;  // the first one decides, until tune() says otherwise
    Spec prefill;                 // schedulers
    Spec decode;
    int32_t n_predict = 0;     // experts asked of the predictor; 0: as many as are used per token
    int32_t n_fetch = 0;       // of a forecast, how many are fetched at most; 0: all
    int32_t depth = 1;         // forecasts are fetched for the next `depth` layers
    double min_precision = 0;  // ranks of a forecast that are right less often are not fetched
    bool prefill_prefetch = true;  // forecasts count in prompts too; otherwise they only teach
    Hybrid hybrid = Hybrid::off;   // whether the host computes some of what is missing
};

// What may change between passes without losing the cache.
struct Tuning {
    bool prefetch = true;
    int32_t depth = 1;
    double min_precision = 0;
    int32_t eviction = 0;  // index into Composition::evictions
};

class EventLog;

class Core {
  public:
    // `n_host_slot`: experts of each layer that the host's memory keeps between the file and the slots,
    // 0 where a layer's slots are filled from the file; empty: there is no such store. Throws
    // std::invalid_argument, a sentence, where the parts cannot be made.
    Core(const Surroundings & around, const Composition & composition, std::vector<int32_t> n_host_slot = {});
    ~Core();

    // Every event appends what is to be done to `out`, to be obeyed in this order.
    void request_began();
    void tune(const Tuning & tuning);
    // [layer]: how fast things are now; until this is said the host computes nothing. Throws
    // std::invalid_argument for another number of layers and for what is negative or no number.
    void measured(std::span<const HostSpeeds> speeds);
    // `tokens`: ids of the pass's tokens, or empty where they are not known.
    void pass_began(Phase phase, std::span<const int32_t> tokens, Commands & out);
    void routed(const Routing & routing, Commands & out);
    // `input`: the MoE input of the layer, n_token rows of n_embd values. Say routed() first: the
    // needs of the present layer go before those of the next.
    void gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Commands & out);
    // A forecast from elsewhere, as if the predictor had made it.
    void predicted(const Forecast & forecast, Commands & out);
    void copied(Ticket ticket, Commands & out);
    void cancelled(Ticket ticket, Commands & out);
    void failed(Ticket ticket, Commands & out);
    void computed(Layer layer, Expert expert, Part part, Commands & out);
    // The host will not compute this expert, as it was told (Withdraw).
    void withdrawn(Layer layer, Expert expert, Commands & out);
    // While a layer is computed, now and then: all that has happened was told, so long after its routed().
    void caught_up(double us, Commands & out);
    void aborted(Commands & out);
    // Instead of routed(), where may_skip(layer): the layer's choice was not looked at. As hits count as many
    // experts as n_token tokens use at most.
    void unasked(Layer layer, int32_t n_token, Commands & out);

    // Whether all experts of the layer are here to stay, expert i in slot i, and nobody forecasts from its
    // choice: then nothing has to be known of it.
    bool may_skip(Layer layer) const;
    // Whether a part makes something of the router's weights.
    bool wants_weights() const;
    bool wants_gate_input() const { return predictor_ && predictor_->wants_input() && tuning_.prefetch; }
    bool idle() const { return scheduler_->idle(); }
    double planned_device_us() const { return scheduler_->planned_device_us(); }

    const Shape & shape() const { return shape_; }
    const Layout & layout() const { return residency_.layout(); }
    const Residency & residency() const { return residency_; }
    // What the host's memory keeps; null: there is no store.
    const HostLevel * host() const { return host_.get(); }
    HostLevel * host() { return host_.get(); }
    const Tuning & tuning() const { return tuning_; }
    // One byte per (layer, expert): 0 absent, 1 resident, 2 arriving; plus 4 for a hit, 8 for a
    // late one, 12 for a miss if it was needed in the layer's last pass; plus 16 while it is pinned,
    // that is needed by the layer in progress; plus 32 if the host computed it in the layer's last pass.
    // Of a cut expert, what its top is.
    std::vector<uint8_t> snapshot() const;

    // From now on every event and the commands that followed are appended to `log` (null: no more).
    void record(EventLog * log) { log_ = log; }

  private:
    int32_t n_fetch() const { return composition_.n_fetch > 0 ? composition_.n_fetch : shape_.n_expert; }
    void find_demands(const Routing & routing);
    void judge_forecast(Layer layer);
    void note_host(const Commands & out, size_t first);
    void heard(Forecasts & forecasts);
    void cut_to_needs(Forecast & forecast) const;
    void push_due(Commands & out);
    void forget_waiting(Layer layer);
    const SlotInfo * first_part(Layer layer, Expert expert) const;

    Shape shape_;
    Composition composition_;
    Tuning tuning_;
    Residency residency_;
    CopyDesk desk_;
    std::vector<HostSpeeds> speeds_;  // [layer]
    std::vector<std::unique_ptr<Eviction>> evictions_;
    std::unique_ptr<Eviction> chosen_;  // what the scheduler asks: the one that tune() chose
    std::unique_ptr<Scheduler> scheduler_;
    std::unique_ptr<HostLevel> host_;
    std::unique_ptr<Predictor> predictor_;
    std::shared_ptr<MoepicStatistics> statistics_;
    std::array<Confidence, 2> confidence_;  // [phase]: in forecasts of many tokens, and of one
    std::vector<Forecast> waiting_;  // [layer]: heard, and not yet within the depth
    int32_t n_waiting_ = 0;
    std::vector<std::vector<Expert>> told_;  // [layer]: forecast, to be judged when it is routed
    bool waited_ = false;  // since the last gate a copy was called back that had not begun
    Phase phase_ = Phase::prefill;
    Layer layer_ = none;             // the last one routed in this pass
    std::vector<uint8_t> found_;     // [layer * n_expert + expert]: 0, 4, 8 or 12, and 32, as in snapshot()
    Forecasts forecasts_;            // of the event in progress
    std::vector<Demand> demands_;    // likewise
    size_t n_needed_ = 0;            // experts of the last layer that was routed in this pass
    int32_t n_token_ = 0;            // the most that a layer of this pass was routed for
    std::vector<uint8_t> few_;       // [layer]: in the last prompt it was routed for fewer than the layer before
    std::vector<int32_t> n_token_of_;  // [expert], zero between events
    EventLog * log_ = nullptr;
};

}  // namespace outrider
