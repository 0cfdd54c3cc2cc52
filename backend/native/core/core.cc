#include "core.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "allocate/moepic_statistics.h"
#include "event_log.h"
#include "evict/registry.h"
#include "predict/registry.h"
#include "schedule/by_phase.h"
#include "schedule/registry.h"

namespace outrider {
namespace {

// All evictions of a composition hear everything, and the chosen one is asked: so a policy that
// takes over knows the past.
class Chosen final : public Eviction {
  public:
    Chosen(const std::vector<std::unique_ptr<Eviction>> & all, const Tuning & tuning) : all_(all), tuning_(tuning) {}

    void request_began() override {
        for (const auto & e : all_) e->request_began();
    }
    void pass_began(Phase phase) override {
        for (const auto & e : all_) e->pass_began(phase);
    }
    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const auto & e : all_) e->routed(routing, demands);
    }
    void forecast(const Forecast & forecast) override {
        for (const auto & e : all_) e->forecast(forecast);
    }
    void disappointed(Layer layer, Expert expert) override {
        for (const auto & e : all_) e->disappointed(layer, expert);
    }
    double keep(Layer layer, Part part, Expert expert) const override {
        return all_[size_t(tuning_.eviction)]->keep(layer, part, expert);
    }

  private:
    const std::vector<std::unique_ptr<Eviction>> & all_;
    const Tuning & tuning_;
};

// Appends to the log, when the event is over, what it was and what was answered.
class Logged {
  public:
    template <typename MakeEvent>
    Logged(EventLog * log, const Commands & out, MakeEvent && make) : log_(log), out_(out), n_before_(out.size()) {
        if (log_) {
            event_ = make();
        }
    }
    ~Logged() {
        if (log_) {
            log_->entries.push_back({std::move(event_), Commands(out_.begin() + int64_t(n_before_), out_.end())});
        }
    }

  private:
    EventLog * log_;
    const Commands & out_;
    size_t n_before_;
    Event event_;
};

// When the event is over, but before it is logged: copies go by way of the host's store, if there is one.
class Descent {
  public:
    Descent(HostLevel * host, Commands & out) : host_(host), out_(out), n_before_(out.size()) {}
    ~Descent() {
        if (host_) {
            host_->descend(out_, n_before_);
        }
    }

  private:
    HostLevel * host_;
    Commands & out_;
    size_t n_before_;
};

const Commands no_commands;

}  // namespace

Core::Core(const Surroundings & around, const Composition & composition, std::vector<int32_t> n_host_slot)
    : shape_(around.shape),
      composition_(composition),
      tuning_{true, composition.depth, composition.min_precision, 0},
      residency_(around.shape, around.layout),
      desk_(residency_),
      speeds_(size_t(around.shape.n_layer)),
      statistics_(around.statistics),
      confidence_{Confidence(around.shape.n_layer, around.shape.n_expert, composition.min_precision),
                  Confidence(around.shape.n_layer, around.shape.n_expert, composition.min_precision)},
      waiting_(size_t(around.shape.n_layer)),
      told_(size_t(around.shape.n_layer)),
      found_(size_t(around.shape.n_layer) * size_t(around.shape.n_expert), 0),
      few_(size_t(around.shape.n_layer), 0),
      n_token_of_(size_t(around.shape.n_expert), 0) {
    if (composition_.n_predict <= 0) {
        composition_.n_predict = shape_.n_expert_used;
    }
    if (composition_.evictions.empty()) {
        throw std::invalid_argument("A method needs an eviction");
    }
    for (const Spec & spec : composition_.evictions) {
        evictions_.push_back(make_eviction(spec, around));
    }
    chosen_ = std::make_unique<Chosen>(evictions_, tuning_);
    const auto in_memory = [this](Layer l, Expert e) {
        return !host_ || host_->n_slot(l) == 0 || host_->find(l, e) != none;
    };
    const HostShare host{composition.hybrid, speeds_, in_memory};
    scheduler_ = std::make_unique<ByPhase>(make_scheduler(composition_.prefill, residency_, *chosen_, desk_, host),
                                           make_scheduler(composition_.decode, residency_, *chosen_, desk_, host));
    if (!n_host_slot.empty()) {
        host_ = std::make_unique<HostLevel>(shape_, residency_, *chosen_, std::move(n_host_slot));
    }
    predictor_ = make_predictor(composition_.predictor, around, composition_.n_predict);
    tune(tuning_);
}

Core::~Core() = default;

void Core::request_began() {
    const Logged logged(log_, no_commands, [] { return RequestBegan{}; });
    chosen_->request_began();
    if (predictor_) {
        predictor_->request_began();
    }
}

void Core::tune(const Tuning & tuning) {
    if (tuning.eviction < 0 || tuning.eviction >= int32_t(evictions_.size())) {
        throw std::invalid_argument("There is no eviction of that number");
    }
    if (tuning.depth < 0 || !(tuning.min_precision >= 0 && tuning.min_precision <= 1)) {
        throw std::invalid_argument("A depth is 0 or more, and a precision 0 to 1");
    }
    const Logged logged(log_, no_commands, [&] { return Tuned{tuning}; });
    tuning_ = tuning;
    for (Confidence & confidence : confidence_) {
        confidence.set_min_precision(tuning.min_precision);
    }
}

void Core::measured(std::span<const HostSpeeds> speeds) {
    if (speeds.size() != speeds_.size()) {
        throw std::invalid_argument("Speeds are told for every layer");
    }
    for (const HostSpeeds & s : speeds) {
        for (double us : {s.link_us_per_byte, s.host_us, s.host_us_per_byte, s.host_row_us_per_byte,
                          s.device_us_per_byte, s.device_row_us_per_byte, s.device_times}) {
            if (!(std::isfinite(us) && us >= 0)) {
                throw std::invalid_argument("A measured time is a number of at least 0");
            }
        }
    }
    const Logged logged(log_, no_commands, [&] { return Measured{{speeds.begin(), speeds.end()}}; });
    std::copy(speeds.begin(), speeds.end(), speeds_.begin());
}

void Core::pass_began(Phase phase, std::span<const int32_t> tokens, Commands & out) {
    const Logged logged(log_, out, [&] { return PassBegan{phase, {tokens.begin(), tokens.end()}}; });
    const Descent descent(host_.get(), out);
    phase_ = phase;
    layer_ = none;
    n_needed_ = 0;
    n_token_ = 0;
    chosen_->pass_began(phase);
    scheduler_->pass_began(phase);
    if (host_) {
        host_->pass_began();
    }
    if (predictor_) {
        forecasts_.clear();
        predictor_->pass_began(phase, tokens, forecasts_);
        heard(forecasts_);
    }
    push_due(out);
}

void Core::routed(const Routing & routing, Commands & out) {
    const Logged logged(log_, out, [&] {
        return Routed{routing.layer,
                      routing.n_token,
                      {routing.ids.begin(), routing.ids.end()},
                      {routing.weights.begin(), routing.weights.end()}};
    });
    const Descent descent(host_.get(), out);
    layer_ = routing.layer;
    confidence_[size_t(phase_)].gate_passed(std::exchange(waited_, false));
    find_demands(routing);
    judge_forecast(routing.layer);
    chosen_->routed(routing, demands_);
    if (statistics_) {
        statistics_->routed(routing);
    }
    if (host_) {
        host_->routed(routing.layer, demands_);
    }
    n_needed_ = demands_.size();
    if (phase_ == Phase::prefill) {
        few_[size_t(routing.layer)] = routing.n_token < n_token_;
        n_token_ = std::max(n_token_, routing.n_token);
    }
    const size_t n_before = out.size();
    scheduler_->push_precise(routing.layer, demands_, out);
    note_host(out, n_before);
    forget_waiting(routing.layer);  // too late
    if (predictor_) {
        forecasts_.clear();
        predictor_->routed(routing, forecasts_);
        heard(forecasts_);
    }
    push_due(out);
}

// Each needed expert once, in the router's order, with its number of tokens; and how it was found.
void Core::find_demands(const Routing & routing) {
    uint8_t * found = &found_[size_t(routing.layer) * size_t(shape_.n_expert)];
    std::fill(found, found + shape_.n_expert, uint8_t(0));
    demands_.clear();
    for (Expert e : routing.ids) {
        if (n_token_of_[size_t(e)]++ == 0) {
            demands_.push_back({e, 0});
        }
    }
    for (Demand & d : demands_) {
        d.n_token = std::exchange(n_token_of_[size_t(d.expert)], 0);
        const SlotInfo * info = first_part(routing.layer, d.expert);
        found[d.expert] = info == nullptr ? 12 : info->state == SlotState::ready ? 4 : 8;
    }
}

// What the host was told to compute.
void Core::note_host(const Commands & out, size_t first) {
    for (size_t i = first; i < out.size(); i++) {
        if (const auto * compute = std::get_if<Compute>(&out[i]); compute && compute->slot == none) {
            found_[size_t(compute->layer) * size_t(shape_.n_expert) + size_t(compute->expert)] |= 32;
        }
    }
}

void Core::judge_forecast(Layer layer) {
    const uint8_t * found = &found_[size_t(layer) * size_t(shape_.n_expert)];
    for (Confidence & confidence : confidence_) {
        confidence.judge(layer, {found, size_t(shape_.n_expert)});
    }
    LayerCounts & counts = residency_.counts(layer);
    for (Expert e : told_[size_t(layer)]) {
        const SlotInfo * info = first_part(layer, e);
        counts.predicted++;
        counts.predicted_used += found[e] != 0;
        counts.predicted_ready += info != nullptr && info->state == SlotState::ready;
    }
    told_[size_t(layer)].clear();
}

void Core::gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Commands & out) {
    const Logged logged(log_, out, [&] { return GateSeen{layer, n_token, {input.begin(), input.end()}}; });
    const Descent descent(host_.get(), out);
    if (predictor_) {
        forecasts_.clear();
        predictor_->gate_seen(layer, input, n_token, forecasts_);
        heard(forecasts_);
    }
    push_due(out);
}

void Core::predicted(const Forecast & forecast, Commands & out) {
    const Logged logged(log_, out, [&] { return Predicted{forecast}; });
    const Descent descent(host_.get(), out);
    Forecasts forecasts{forecast};
    heard(forecasts);
    push_due(out);
}

void Core::heard(Forecasts & forecasts) {
    if (!tuning_.prefetch || (phase_ == Phase::prefill && !composition_.prefill_prefetch)) {
        return;
    }
    for (Forecast & forecast : forecasts) {
        if (forecast.layer < 0 || forecast.layer >= shape_.n_layer || forecast.experts.empty()) {
            continue;
        }
        cut_to_needs(forecast);
        auto & told = told_[size_t(forecast.layer)];
        told.assign(forecast.experts.begin(),
                    forecast.experts.begin() + std::min<int64_t>(n_fetch(), int64_t(forecast.experts.size())));
        if (statistics_) {
            statistics_->forecast(forecast);
        }
        const Phase of = forecast.layer > layer_ ? phase_ : Phase::decode;  // the next pass is a token's, most likely
        Forecast kept = confidence_[size_t(of)].worthwhile(
            forecast, [&](Expert e) { return first_part(forecast.layer, e) == nullptr; });
        chosen_->forecast(kept);
        if (int32_t(kept.experts.size()) > n_fetch()) {
            kept.experts.resize(size_t(n_fetch()));
        }
        if (host_) {
            host_->expect(kept);
        }
        n_waiting_ += waiting_[size_t(forecast.layer)].layer == none;
        waiting_[size_t(forecast.layer)] = std::move(kept);
    }
}

// A later layer of a prompt will need about as many experts as the last one did, whatever else its tokens were
// expected to use; but llama.cpp computes the last one only for the tokens whose logits are asked for.
void Core::cut_to_needs(Forecast & forecast) const {
    if (phase_ != Phase::prefill || forecast.layer <= layer_ || n_needed_ == 0) {
        return;
    }
    const size_t n_needed = few_[size_t(forecast.layer)] ? 0 : n_needed_;
    const size_t n_most = std::max(n_needed, size_t(composition_.n_predict));
    if (forecast.experts.size() > n_most) {
        forecast.experts.resize(n_most);
        forecast.scores.resize(std::min(forecast.scores.size(), n_most));
    }
}

// Forecasts for the next layers, the nearest first; after the last layer comes the next pass's first.
void Core::push_due(Commands & out) {
    for (int32_t ahead = 1; n_waiting_ > 0 && ahead <= std::min(tuning_.depth, shape_.n_layer); ahead++) {
        Forecast & due = waiting_[size_t((layer_ + ahead) % shape_.n_layer)];
        if (due.layer != none) {
            scheduler_->push_predicted(due, out);
            forget_waiting(due.layer);
        }
    }
}

void Core::forget_waiting(Layer layer) {
    n_waiting_ -= waiting_[size_t(layer)].layer != none;
    waiting_[size_t(layer)].layer = none;
}

void Core::copied(Ticket ticket, Commands & out) {
    const Logged logged(log_, out, [&] { return Copied{ticket}; });
    const Descent descent(host_.get(), out);
    if (host_ && HostLevel::owns(ticket)) {
        host_->copied(ticket);
        return;
    }
    scheduler_->copied(ticket, out);
    if (host_) {
        host_->ended(ticket, true);
    }
}

void Core::cancelled(Ticket ticket, Commands & out) {
    const Logged logged(log_, out, [&] { return Cancelled{ticket}; });
    const Descent descent(host_.get(), out);
    waited_ = true;
    if (host_ && HostLevel::owns(ticket)) {
        host_->cancelled(ticket, out);
        return;
    }
    scheduler_->cancelled(ticket, out);
    if (host_) {
        host_->ended(ticket, false);
    }
}

void Core::failed(Ticket ticket, Commands & out) {
    const Logged logged(log_, out, [&] { return Failed{ticket}; });
    const Descent descent(host_.get(), out);
    if (host_ && HostLevel::owns(ticket)) {
        host_->failed(ticket);
        return;
    }
    scheduler_->failed(ticket, out);
    if (host_) {
        host_->ended(ticket, false);
    }
}

void Core::computed(Layer layer, Expert expert, Part part, Commands & out) {
    const Logged logged(log_, out, [&] { return Computed{layer, expert, part}; });
    const Descent descent(host_.get(), out);
    scheduler_->computed(layer, expert, part, out);
    if (host_) {
        host_->computed(layer, expert, part);
    }
}

void Core::withdrawn(Layer layer, Expert expert, Commands & out) {
    const Logged logged(log_, out, [&] { return Withdrawn{layer, expert}; });
    const Descent descent(host_.get(), out);
    found_[size_t(layer) * size_t(shape_.n_expert) + size_t(expert)] &= uint8_t(~32);
    scheduler_->withdrawn(layer, expert, out);
}

void Core::caught_up(double us, Commands & out) {
    const Logged logged(log_, out, [&] { return CaughtUp{us}; });
    const Descent descent(host_.get(), out);
    const size_t n_before = out.size();
    scheduler_->balance(us, out);
    note_host(out, n_before);
}

bool Core::may_skip(Layer layer) const {
    if (!residency_.is_settled(layer)) {
        return false;
    }
    const bool forecasts =
        predictor_ && tuning_.prefetch && !(phase_ == Phase::prefill && !composition_.prefill_prefetch);
    for (int32_t ahead = 1; forecasts && ahead <= std::min(tuning_.depth, shape_.n_layer - 1); ahead++) {
        if (!residency_.is_settled((layer + ahead) % shape_.n_layer)) {
            return false;
        }
    }
    return true;
}

bool Core::wants_weights() const {
    return statistics_ || (predictor_ && predictor_->wants_weights()) ||
           std::any_of(evictions_.begin(), evictions_.end(), [](const auto & e) { return e->wants_weights(); });
}

void Core::unasked(Layer layer, int32_t n_token, Commands & out) {
    const Logged logged(log_, out, [&] { return Unasked{layer, n_token}; });
    const Descent descent(host_.get(), out);
    layer_ = layer;
    uint8_t * found = &found_[size_t(layer) * size_t(shape_.n_expert)];
    std::fill(found, found + shape_.n_expert, uint8_t(0));
    told_[size_t(layer)].clear();
    const int64_t n_most = std::min(int64_t(n_token) * shape_.n_expert_used, int64_t(shape_.n_expert));
    residency_.counts(layer).hits += uint64_t(n_most);
    push_due(out);
}

void Core::aborted(Commands & out) {
    const Logged logged(log_, out, [] { return Aborted{}; });
    const Descent descent(host_.get(), out);
    scheduler_->aborted(out);
    if (host_) {
        host_->aborted();
    }
}

// The slot of the expert's top, or of the whole expert where all of it is bottom or staged; null: absent.
const SlotInfo * Core::first_part(Layer layer, Expert expert) const {
    const Part part = residency_.pool({layer, Part::top}) != none ? Part::top : Part::bottom;
    for (const Place place : {Place{layer, part}, Place{layer, Part::staged}}) {
        if (const Slot slot = residency_.find(place, expert); slot != none) {
            return &residency_.at(residency_.pool(place), slot);
        }
    }
    return nullptr;
}

std::vector<uint8_t> Core::snapshot() const {
    std::vector<uint8_t> bytes(found_);
    for (Layer l = 0; l < shape_.n_layer; l++) {
        for (Expert e = 0; e < shape_.n_expert; e++) {
            if (const SlotInfo * info = first_part(l, e)) {
                bytes[size_t(l) * size_t(shape_.n_expert) + size_t(e)] |=
                    (info->state == SlotState::ready ? 1 : 2) | (info->pinned ? 16 : 0);
            }
        }
    }
    return bytes;
}

}  // namespace outrider
