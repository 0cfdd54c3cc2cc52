// The cache as a deterministic state machine: events in, commands out. The live engine and the simulator use the
// same class. One thread at a time may call it.
#pragma once

#include <memory>
#include <span>

#include "core/event_log.h"
#include "core/evict/eviction.h"
#include "core/host_level.h"
#include "core/predict/token_routers.h"
#include "core/predict/worth.h"
#include "core/residency.h"
#include "core/schedule/copy_desk.h"
#include "core/schedule/scheduler.h"
#include "core/spec.h"

namespace outrider {

// A method: its parts by name. The driver applies the allocation (allocate/registry.h).
struct Composition {
    Spec predictor;               // an empty name: a reactive cache
    std::vector<Spec> evictions;  // the first one decides, unless tuned otherwise
    Spec prefill;                 // schedulers
    Spec decode;
    int32_t n_predict = 0;     // experts asked of the predictor; 0: as many as a token uses
    int32_t n_fetch = 0;       // experts of a forecast that are fetched at most; 0: all
    int32_t depth = 1;         // forecasts are fetched for the next `depth` layers
    bool weighs = false;  // fetch worthwhile experts (predict/worth.h), forecast or not; otherwise all forecasts
    bool prefill_prefetch = true;  // fetch forecasts in prompts too; otherwise prompts only teach the predictor
    Hybrid hybrid = Hybrid::off;   // whether the host computes some of the missing experts
};

class Core {
  public:
    // `n_host_slot`: [layer], experts that the host store keeps (host_level.h); 0 where the layer's slots are filled
    // from the file; empty: there is no store. Throws std::invalid_argument, a sentence, when a part cannot be made.
    Core(const Surroundings & around, const Composition & composition, std::vector<int32_t> n_host_slot = {});
    ~Core();

    // Appends the commands that answer the event to `out`; obey them in this order. Throws std::invalid_argument,
    // and changes nothing, for settings (Tuned) and speeds (Measured) that make no sense.
    void handle(const Event & event, Commands & out);

    // For events that no command answers: RequestBegan, Tuned, Measured, Kept.
    void handle(const Event & event);

    // Whether the layer's choice need not be read: all its experts stay resident, expert i in slot i, and no
    // forecast depends on the choice.
    bool may_skip(Layer layer) const;
    // Whether a part uses the router's weights.
    bool wants_weights() const;
    bool wants_gate_input() const {
        return predictor_ && predictor_->wants_input() && (tuning_.prefetch || phase_ == Phase::prefill);
    }
    bool idle() const { return scheduler_->idle(); }
    // Whether a copy into a slot is in flight.
    bool copies() const { return desk_.any_open(); }
    // Events handled so far.
    uint64_t n_event() const { return n_event_; }
    double planned_device_us() const { return scheduler_->planned_device_us(); }

    const Shape & shape() const { return shape_; }
    const Layout & layout() const { return residency_.layout(); }
    const Residency & residency() const { return residency_; }
    // The host store, or null.
    const HostLevel * host() const { return host_.get(); }
    HostLevel * host() { return host_.get(); }
    const Tuning & tuning() const { return tuning_; }
    // The worth of keeping an expert, by the eviction that decides: the lowest leaves first.
    double worth(Layer layer, Expert expert) const { return chosen_->keep(layer, Part::top, expert); }
    // [layer][expert]: a Cell. Of a cut expert, its top's.
    std::vector<uint8_t> snapshot() const;

    // Append every event from now on to `log`, with the commands that answer it; null: stop.
    void record(EventLog * log) { log_ = log; }
    // Aborts the process if an invariant does not hold.
    void check() const;

  private:
    void on(const RequestBegan & e, Commands & out);
    void on(const Tuned & e, Commands & out);
    void on(const Measured & e, Commands & out);
    void on(const PassBegan & e, Commands & out);
    void on(const Reached & e, Commands & out);
    void on(const Routed & e, Commands & out);
    void on(const GateSeen & e, Commands & out);
    void on(const Stocked & e, Commands & out);
    void on(const Kept & e, Commands & out);
    void on(const Predicted & e, Commands & out);
    void on(const Copied & e, Commands & out);
    void on(const Cancelled & e, Commands & out);
    void on(const Failed & e, Commands & out);
    void on(const Computed & e, Commands & out);
    void on(const Withdrawn & e, Commands & out);
    void on(const CaughtUp & e, Commands & out);
    void on(const Aborted &, Commands & out);
    void on(const Unasked & e, Commands & out);
    bool is_of_host(Ticket ticket) const { return host_ && HostLevel::owns(ticket); }
    size_t n_fetch() const { return size_t(composition_.n_fetch > 0 ? composition_.n_fetch : shape_.n_expert); }
    bool is_joint() const { return phase_ == Phase::decode && sequences_.size() > 1; }
    bool is_many() const { return phase_ == Phase::prefill || is_joint(); }
    Worth & worth(bool many) { return worth_[many ? 0 : 1]; }
    bool weighs_token() const { return composition_.weighs && uses_forecasts() && !is_many(); }
    bool uses_forecasts() const { return phase_ == Phase::decode ? tuning_.prefetch : composition_.prefill_prefetch; }
    std::span<uint8_t> found(Layer layer);
    void find_demands(const Routing & routing);
    void judge_forecast(Layer layer);
    void note_host(const Commands & out, size_t first);
    void take(Forecasts & forecasts);
    void fetch_known(std::span<const int32_t> tokens, Commands & out);
    void cut_to_needs(Forecast & forecast) const;
    Forecast weighed(const Forecast & forecast);
    bool lacks(Layer layer, Expert expert) const;
    void rank_absent(Layer layer);
    size_t n_before(Expert expert) const;
    void push_due(Commands & out, bool all = false);
    void push_best(bool all, Commands & out);
    void expect_reuse(Layer layer, int32_t n_ahead);
    void add_candidate(Layer layer, Expert expert, double p, int32_t n_ahead);
    void drop_waiting(Layer layer);
    Slot make_room(Place place, std::span<const Expert> wanted);
    const SlotInfo * first_part(Layer layer, Expert expert) const;

    Shape shape_;
    Composition composition_;
    Tuning tuning_;
    Residency residency_;
    CopyDesk desk_;
    std::vector<HostSpeeds> speeds_;  // [layer]
    std::vector<std::unique_ptr<Eviction>> evictions_;
    std::unique_ptr<Eviction> chosen_;  // of evictions_; the schedulers ask this one
    std::unique_ptr<Scheduler> scheduler_;
    std::unique_ptr<HostLevel> host_;
    std::unique_ptr<Predictor> predictor_;
    TokenRouters token_routers_;
    std::shared_ptr<MoepicStatistics> statistics_;
    std::array<Worth, 2> worth_;  // of reads for many tokens, and for one
    std::vector<Forecast> waiting_;  // [layer]: not yet within the depth, or, where they are weighed, not yet routed
    int32_t n_waiting_ = 0;
    std::vector<std::vector<Expert>> forecast_;  // [layer]: the last forecast, judged when the layer is routed
    bool waited_ = false;  // a copy was cancelled since the last gate
    Phase phase_ = Phase::prefill;
    std::vector<int32_t> sequences_;  // of the pass (PassBegan)
    Layer layer_ = none;  // the last one routed in this pass
    std::vector<uint8_t> found_;  // [layer * n_expert + expert]: Cell::found and Cell::on_host
    Forecasts forecasts_;  // of the event in progress
    std::vector<Demand> demands_;  // of the event in progress
    size_t n_needed_ = 0;  // experts of the last layer routed in this pass
    int32_t n_token_ = 0;  // maximum over the layers routed in this pass
    std::vector<uint8_t> few_;  // [layer]: the last prompt routed it for fewer tokens than the layer before
    std::vector<int32_t> n_token_of_;  // [expert], zero between events
    struct Candidate {
        Layer layer;
        Expert expert;
        double p, value;
    };
    std::vector<Candidate> candidates_;  // of the event in progress
    std::vector<std::pair<double, Expert>> absent_;  // of a layer, with the worth of keeping them
    EventLog * log_ = nullptr;
    uint64_t n_event_ = 0;
};

}  // namespace outrider
