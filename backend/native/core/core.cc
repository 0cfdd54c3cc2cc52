#include "core/core.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/allocate/moepic_statistics.h"
#include "core/evict/registry.h"
#include "core/predict/registry.h"
#include "core/schedule/by_phase.h"
#include "core/schedule/registry.h"

namespace outrider {
namespace {

// Passes every event to all evictions of a composition and asks the chosen one. So an eviction that takes over
// knows the past.
class Chosen final : public Eviction {
  public:
    Chosen(const std::vector<std::unique_ptr<Eviction>> & all, const Tuning & tuning) : all_(all), tuning_(tuning) {}

    void request_began() override {
        for (const auto & e : all_) e->request_began();
    }
    void sequence_began(int32_t sequence) override {
        for (const auto & e : all_) e->sequence_began(sequence);
    }
    void pass_began(Phase phase) override {
        for (const auto & e : all_) e->pass_began(phase);
    }
    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const auto & e : all_) e->routed(routing, demands);
    }
    void accessed(Layer layer, Expert expert) override {
        for (const auto & e : all_) e->accessed(layer, expert);
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

}  // namespace

std::vector<int32_t> Routing::last_tokens() const {
    std::vector<int32_t> last;
    std::vector<int32_t> seen;
    for (int32_t t = n_token; t-- > 0 && (seen.empty() || !sequences.empty());) {
        if (std::find(seen.begin(), seen.end(), sequence(t)) == seen.end()) {
            seen.push_back(sequence(t));
            last.push_back(t);
        }
    }
    std::reverse(last.begin(), last.end());
    return last;
}

Core::Core(const Surroundings & around, const Composition & composition, std::vector<int32_t> n_host_slot)
    : shape_(around.shape),
      composition_(composition),
      tuning_{.depth = composition.depth},
      residency_(around.shape, around.layout),
      desk_(residency_),
      speeds_(size_t(around.shape.n_layer)),
      token_routers_(around),
      statistics_(around.statistics),
      worth_{Worth(around.shape.n_layer), Worth(around.shape.n_layer)},
      waiting_(size_t(around.shape.n_layer)),
      forecast_(size_t(around.shape.n_layer)),
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
    handle(Tuned{tuning_});  // throws if the composition's numbers make no sense
}

Core::~Core() = default;

void Core::handle(const Event & event, Commands & out) {
    const size_t first = out.size();
    n_event_++;
    std::visit([&](const auto & e) { on(e, out); }, event);
    if (host_) {
        host_->filter(event, out, first);
    }
    if (log_) {
        log_->append(event, std::span(out).subspan(first));
    }
}

void Core::handle(const Event & event) {
    Commands out;
    handle(event, out);
}

void Core::on(const RequestBegan & e, Commands &) {
    e.sequence == 0 ? chosen_->request_began() : chosen_->sequence_began(e.sequence);
    if (predictor_) {
        e.sequence == 0 ? predictor_->request_began() : predictor_->sequence_began(e.sequence);
    }
}

void Core::on(const Tuned & e, Commands &) {
    const Tuning & tuning = e.tuning;
    if (tuning.eviction < 0 || tuning.eviction >= int32_t(evictions_.size())) {
        throw std::invalid_argument("There is no eviction of that number");
    }
    if (tuning.depth < 0 || !(tuning.copy_cost >= 0 && tuning.copy_cost <= 1)) {
        throw std::invalid_argument("A depth is 0 or more, and the cost of a copy 0 to 1");
    }
    tuning_ = tuning;
    for (Worth & worth : worth_) {
        worth.set_copy_cost(tuning.copy_cost);
    }
}

void Core::on(const Measured & e, Commands &) {
    if (e.speeds.size() != speeds_.size()) {
        throw std::invalid_argument("Speeds are told for every layer");
    }
    for (const HostSpeeds & s : e.speeds) {
        for (double us : {s.link_us_per_byte, s.host_us, s.host_us_per_byte, s.host_row_us_per_byte,
                          s.device_us_per_byte, s.device_row_us_per_byte, s.device_times}) {
            if (!(std::isfinite(us) && us >= 0)) {
                throw std::invalid_argument("A measured time is a number of at least 0");
            }
        }
    }
    std::copy(e.speeds.begin(), e.speeds.end(), speeds_.begin());
}

void Core::on(const PassBegan & e, Commands & out) {
    phase_ = e.phase;
    sequences_.assign(e.sequences.begin(), e.sequences.end());
    layer_ = none;
    n_needed_ = 0;
    n_token_ = 0;
    chosen_->pass_began(e.phase);
    scheduler_->pass_began(e.phase, is_many());
    fetch_known(e.tokens, out);
    if (predictor_) {
        forecasts_.clear();
        predictor_->pass_began(e.phase, e.tokens, forecasts_);
        take(forecasts_);
    }
    push_due(out);
}

void Core::on(const Reached & e, Commands & out) {
    scheduler_->gate_reached(e.layer, out);
    // Reads for later layers are ordered again, beside better ones.
    for (int32_t ahead = 1; weighs_token() && ahead <= std::min(tuning_.depth, shape_.n_layer - 1); ahead++) {
        const Layer layer = (e.layer + ahead) % shape_.n_layer;
        for (Part part : places) {
            if (!residency_.is_whole(layer)) {
                desk_.call_back_low({layer, part}, none, out);
            }
        }
    }
}

void Core::on(const Routed & e, Commands & out) {
    Routing routing = e.routing;
    if (size_t(routing.n_token) <= sequences_.size()) {
        routing.sequences = std::span(sequences_).last(size_t(routing.n_token));
    }
    layer_ = routing.layer;
    worth(is_many()).gate_passed(std::exchange(waited_, false));
    find_demands(routing);
    judge_forecast(routing.layer);
    chosen_->routed(routing, demands_);
    if (statistics_) {
        statistics_->routed(routing);
    }
    n_needed_ = demands_.size();
    if (phase_ == Phase::prefill) {
        few_[size_t(routing.layer)] = routing.n_token < n_token_;
        n_token_ = std::max(n_token_, routing.n_token);
    }
    const size_t n_before = out.size();
    scheduler_->push_precise(routing.layer, demands_, out);
    note_host(out, n_before);
    for (Worth & worth : worth_) {
        worth.set_victim(scheduler_->regret());
    }
    drop_waiting(routing.layer);  // it comes too late
    if (predictor_) {
        forecasts_.clear();
        predictor_->routed(routing, forecasts_);
        take(forecasts_);
    }
    push_due(out, !wants_gate_input());
}

std::span<uint8_t> Core::found(Layer layer) {
    return std::span(found_).subspan(size_t(layer) * size_t(shape_.n_expert), size_t(shape_.n_expert));
}

// Collects each needed expert once, in the router's order, with its number of tokens, and notes how it was found.
void Core::find_demands(const Routing & routing) {
    const auto cells = found(routing.layer);
    std::fill(cells.begin(), cells.end(), uint8_t(Cell::absent));
    demands_.clear();
    for (Expert e : routing.ids) {
        if (n_token_of_[size_t(e)]++ == 0) {
            demands_.push_back({e, 0});
        }
    }
    for (Demand & d : demands_) {
        d.n_token = std::exchange(n_token_of_[size_t(d.expert)], 0);
        const SlotInfo * info = first_part(routing.layer, d.expert);
        cells[size_t(d.expert)] = info == nullptr                   ? Cell::miss
                                  : info->state == SlotState::ready ? Cell::hit
                                                                    : Cell::late;
    }
}

// Notes which experts the host was told to compute.
void Core::note_host(const Commands & out, size_t first) {
    for (size_t i = first; i < out.size(); i++) {
        if (const auto * compute = std::get_if<Compute>(&out[i]); compute && compute->slot == none) {
            found(compute->layer)[size_t(compute->expert)] |= Cell::on_host;
        }
    }
}

void Core::judge_forecast(Layer layer) {
    const auto cells = found(layer);
    for (Worth & worth : worth_) {
        worth.judge(layer, cells);
    }
    LayerCounts & counts = residency_.counts(layer);
    for (Expert e : forecast_[size_t(layer)]) {
        const SlotInfo * info = first_part(layer, e);
        counts.predicted++;
        counts.predicted_used += cells[size_t(e)] != 0;
        counts.predicted_ready += info != nullptr && info->state == SlotState::ready;
    }
    forecast_[size_t(layer)].clear();
}

void Core::on(const GateSeen & e, Commands & out) {
    if (predictor_) {
        forecasts_.clear();
        predictor_->gate_seen(e.layer, e.input, e.n_token, forecasts_);
        take(forecasts_);
    }
    push_due(out, true);
}

void Core::on(const Stocked & e, Commands & out) {
    const Place place{e.layer, Part::top};
    const Pool pool = residency_.pool(place);
    if (pool == none || residency_.layout().pools[size_t(pool)].buffer) {
        return;
    }
    for (Expert expert : e.experts) {
        if (residency_.find(place, expert) != none) {
            continue;
        }
        Slot slot = residency_.free_slot(place, expert);
        if (slot == none && !e.wanted.empty() && !residency_.is_whole(e.layer)) {
            slot = make_room(place, e.wanted);
        }
        if (slot != none) {
            residency_.assign(place, slot, expert, true);
            desk_.order(pool, slot, Urgency::low, true, out);
        }
    }
    if (!e.wanted.empty()) {
        chosen_->forecast({e.layer, {e.experts.begin(), e.experts.end()}, {}});
    }
}

void Core::on(const Kept & e, Commands &) {
    const Place place{e.layer, Part::top};
    const Pool pool = residency_.pool(place);
    if (e.in_store) {
        host_->keep(e.layer, e.slot, e.expert);
        return;
    }
    if (pool == none || layout().pools[size_t(pool)].buffer) {
        return;
    }
    const Slot slot = e.slot != none ? e.slot : residency_.free_slot(place, e.expert);
    if (slot != none) {
        residency_.keep(place, slot, e.expert);
    }
}

// Free the slot of the part that is least worth keeping, among the layer's parts of experts that are not wanted.
Slot Core::make_room(Place place, std::span<const Expert> wanted) {
    const Pool pool = residency_.pool(place);
    Slot victim = none;
    double lowest = 0;
    for (Slot s = 0; s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        if (info.layer != place.layer || info.part != place.part || info.state != SlotState::ready || info.pinned ||
            std::ranges::find(wanted, info.expert) != wanted.end()) {
            continue;
        }
        const double keep = chosen_->keep(info.layer, info.part, info.expert);
        if (victim == none || keep < lowest) {
            victim = s;
            lowest = keep;
        }
    }
    if (victim != none) {
        residency_.release(pool, victim);
    }
    return victim;
}

void Core::on(const Predicted & e, Commands & out) {
    Forecasts forecasts{e.forecast};
    take(forecasts);
    push_due(out);
}

// Keeps each forecast until its layer is within the depth, without the ranks that are wrong too often.
void Core::take(Forecasts & forecasts) {
    if (!uses_forecasts()) {
        return;
    }
    for (Forecast & forecast : forecasts) {
        if (forecast.layer < 0 || forecast.layer >= shape_.n_layer || forecast.experts.empty() ||
            token_routers_.knows(forecast.layer)) {
            continue;
        }
        cut_to_needs(forecast);
        const auto & experts = forecast.experts;
        forecast_[size_t(forecast.layer)].assign(experts.begin(),
                                                 experts.begin() + int64_t(std::min(n_fetch(), experts.size())));
        if (statistics_) {
            statistics_->forecast(forecast);
        }
        // A layer at or before the present one is of the next pass, which most likely decodes.
        Forecast kept = composition_.weighs ? weighed(forecast) : forecast;
        chosen_->forecast(kept);
        if (kept.experts.size() > n_fetch()) {
            kept.experts.resize(n_fetch());
        }
        if (host_) {
            host_->expect(kept);
        }
        n_waiting_ += waiting_[size_t(forecast.layer)].layer == none;
        waiting_[size_t(forecast.layer)] = std::move(kept);
    }
}

// Return the experts that are resident or worth a read, with their probabilities as scores.
Forecast Core::weighed(const Forecast & forecast) {
    // A layer at or before the present one is of the next pass, which most likely decodes.
    const int32_t n_ahead = (forecast.layer - layer_ + shape_.n_layer - 1) % shape_.n_layer + 1;
    Worth & its = worth(forecast.layer > layer_ ? is_many() : sequences_.size() > 1);
    its.forget(forecast.layer);
    rank_absent(forecast.layer);
    Forecast kept{forecast.layer, {}, {}};
    for (size_t rank = 0; rank < forecast.experts.size(); rank++) {
        const Expert e = forecast.experts[rank];
        const bool is_absent = lacks(forecast.layer, e);
        const double p = is_absent ? its.expect(forecast.layer, e, {int32_t(rank), n_before(e), n_ahead}) : 1;
        if (!is_absent || its.gain(p) > 0) {
            kept.experts.push_back(e);
            kept.scores.push_back(float(p));
        }
    }
    return kept;
}

// Whether the expert is neither resident nor on its way.
bool Core::lacks(Layer layer, Expert expert) const {
    const SlotInfo * info = first_part(layer, expert);
    return info == nullptr || (info->state == SlotState::pending && info->flying == 0);
}

void Core::rank_absent(Layer layer) {
    absent_.clear();
    for (Expert e = 0; e < shape_.n_expert; e++) {
        if (lacks(layer, e)) {
            absent_.emplace_back(chosen_->keep(layer, Part::top, e), e);
        }
    }
}

// Return how many absent experts of the ranked layer are more worth keeping than this one.
size_t Core::n_before(Expert expert) const {
    const auto it = std::find_if(absent_.begin(), absent_.end(), [&](const auto & a) { return a.second == expert; });
    return size_t(std::count_if(absent_.begin(), absent_.end(), [&](const auto & a) { return a.first > it->first; }));
}

// Fetches what layers will choose for sure. Neither depth, worth nor the switch of prefetching hold it back.
void Core::fetch_known(std::span<const int32_t> tokens, Commands & out) {
    if (phase_ == Phase::prefill && !composition_.prefill_prefetch) {
        return;
    }
    forecasts_.clear();
    token_routers_.tell(tokens, forecasts_);
    for (const Forecast & known : forecasts_) {
        if (phase_ == Phase::prefill && few_[size_t(known.layer)]) {
            continue;  // it computes some tokens only
        }
        forecast_[size_t(known.layer)] = known.experts;
        chosen_->forecast(known);
        if (host_) {
            host_->expect(known);
        }
        scheduler_->push_predicted(known, out);
    }
}

// A later layer of a prompt needs about as many experts as the last one did, so the forecast ends there. llama.cpp
// computes the last layer only for the tokens whose logits are asked for.
void Core::cut_to_needs(Forecast & forecast) const {
    if (!is_many() || forecast.layer <= layer_ || n_needed_ == 0) {
        return;
    }
    const size_t n_needed = few_[size_t(forecast.layer)] && !is_joint() ? 0 : n_needed_;
    const size_t n_most = std::max(n_needed, size_t(composition_.n_predict));
    if (forecast.experts.size() > n_most) {
        forecast.experts.resize(n_most);
        forecast.scores.resize(std::min(forecast.scores.size(), n_most));
    }
}

// Passes on the forecasts for the next layers, the nearest first. The first layer of the next pass follows the last.
// `all`: no forecast follows at this gate.
void Core::push_due(Commands & out, bool all) {
    if (weighs_token()) {
        push_best(all, out);
        return;
    }
    for (int32_t ahead = 1; n_waiting_ > 0 && ahead <= std::min(tuning_.depth, shape_.n_layer); ahead++) {
        Forecast & due = waiting_[size_t((layer_ + ahead) % shape_.n_layer)];
        if (due.layer != none) {
            scheduler_->push_predicted(due, out);
            drop_waiting(due.layer);
        }
    }
}

// Orders reads for the next layers, the most valuable first. At the next gate those that have not begun are cancelled
// and weighed against what is known then.
void Core::push_best(bool all, Commands & out) {
    candidates_.clear();
    for (int32_t ahead = 1; ahead <= std::min(tuning_.depth, shape_.n_layer); ahead++) {
        const Layer layer = (layer_ + ahead) % shape_.n_layer;
        if (const Forecast & due = waiting_[size_t(layer)]; due.layer != none) {
            for (size_t i = 0; i < due.experts.size(); i++) {
                if (lacks(layer, due.experts[i])) {
                    add_candidate(layer, due.experts[i], double(due.scores[i]), ahead);
                }
            }
        }
        if (all) {
            expect_reuse(layer, ahead);
        }
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate & a, const Candidate & b) { return a.value > b.value; });
    for (const Candidate & c : candidates_) {
        scheduler_->push_predicted({c.layer, {c.expert}, {float(c.p)}, false, true}, out);
    }
}

// Adds the absent experts that are most worth keeping and that no forecast names.
void Core::expect_reuse(Layer layer, int32_t n_ahead) {
    constexpr size_t n_most = 4;
    if (residency_.is_whole(layer)) {
        return;
    }
    rank_absent(layer);
    const size_t n = std::min(n_most, absent_.size());
    std::partial_sort(absent_.begin(), absent_.begin() + ptrdiff_t(n), absent_.end(), std::greater<>());
    Worth & its = worth(false);
    for (size_t i = 0; i < n; i++) {
        const Expert e = absent_[i].second;
        const auto & named = forecast_[size_t(layer)];
        if (std::find(named.begin(), named.end(), e) != named.end()) {
            continue;
        }
        add_candidate(layer, e, its.expect(layer, e, {none, i, n_ahead}), n_ahead);
    }
}

void Core::add_candidate(Layer layer, Expert expert, double p, int32_t n_ahead) {
    const Worth & its = worth(false);
    if (const double gain = its.gain(p); gain > 0) {
        candidates_.push_back({layer, expert, p, its.urgency(n_ahead) * gain});
    }
}

void Core::drop_waiting(Layer layer) {
    n_waiting_ -= waiting_[size_t(layer)].layer != none;
    waiting_[size_t(layer)].layer = none;
}

// The schedulers do not know of the host store's own copies.
void Core::on(const Copied & e, Commands & out) {
    if (!is_of_host(e.ticket)) {
        scheduler_->copied(e.ticket, out);
    }
}

void Core::on(const Cancelled & e, Commands & out) {
    waited_ = true;
    if (!is_of_host(e.ticket)) {
        scheduler_->cancelled(e.ticket, out);
    }
}

void Core::on(const Failed & e, Commands & out) {
    if (!is_of_host(e.ticket)) {
        scheduler_->failed(e.ticket, out);
    }
}

void Core::on(const Computed & e, Commands & out) { scheduler_->computed(e.layer, e.expert, e.part, out); }

void Core::on(const Withdrawn & e, Commands & out) {
    found(e.layer)[size_t(e.expert)] &= uint8_t(~Cell::on_host);
    scheduler_->withdrawn(e.layer, e.expert, out);
}

void Core::on(const CaughtUp & e, Commands & out) {
    const size_t n_before = out.size();
    scheduler_->balance(e.us, out);
    note_host(out, n_before);
}

void Core::on(const Aborted &, Commands & out) { scheduler_->aborted(out); }

void Core::on(const Unasked & e, Commands & out) {
    layer_ = e.layer;
    const auto cells = found(e.layer);
    std::fill(cells.begin(), cells.end(), uint8_t(Cell::absent));
    forecast_[size_t(e.layer)].clear();
    for (Worth & worth : worth_) {
        worth.forget(e.layer);
    }
    const int64_t n_most = std::min(int64_t(e.n_token) * shape_.used(e.layer), int64_t(shape_.n_expert));
    residency_.counts(e.layer).hits += uint64_t(n_most);
    push_due(out);
}

bool Core::may_skip(Layer layer) const {
    if (!residency_.is_settled(layer)) {
        return false;
    }
    const bool forecasts = predictor_ && uses_forecasts();
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

// The slot of the expert's top, or of the whole expert where it is all bottom or staged; null: absent.
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
    std::vector<uint8_t> cells(found_);
    for (Layer l = 0; l < shape_.n_layer; l++) {
        for (Expert e = 0; e < shape_.n_expert; e++) {
            if (const SlotInfo * info = first_part(l, e)) {
                cells[size_t(l) * size_t(shape_.n_expert) + size_t(e)] |=
                    (info->state == SlotState::ready ? Cell::resident
                     : info->flying != 0             ? Cell::arriving
                                                     : Cell::absent) |
                    (info->pinned ? Cell::pinned : 0);
            }
        }
    }
    return cells;
}

void Core::check() const {
    residency_.check();
    scheduler_->check();
    if (host_) {
        host_->residency().check();
    }
}

}  // namespace outrider
