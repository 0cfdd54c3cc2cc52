// INVARIANT: a needed part that is not computed is either without a slot (and waits in serve()), or
// ready, or in a pending slot all of whose missing chunks are flying, or in one that is broken and
// waits for its last flight.
// Unless the order is strict, its slot is pinned from the moment it has one; with a strict order, from
// its Compute on, since an expert further down may have to give way to the first one.
#include "ordered.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <utility>

namespace outrider {
namespace {

// Whose slots an expert would have, were it not in the stage.
Part own(Part part) { return part == Part::staged ? Part::top : part; }

}  // namespace

OrderedScheduler::OrderedScheduler(Residency & residency, Eviction & eviction, CopyDesk & desk, OrderedOptions options,
                                   const HostShare & host)
    : residency_(residency),
      eviction_(eviction),
      desk_(desk),
      options_(options),
      host_(host),
      prefetched_(residency.layout().layers.size()),
      wanted_(size_t(residency.n_expert()) * n_place, 0) {}

void OrderedScheduler::pass_began(Phase phase) {
    assert(idle());
    phase_ = phase;
    ahead_ = none;
    residency_.reclaim();
}

// ---- forecasts ------------------------------------------------------------------------------

void OrderedScheduler::push_predicted(const Forecast & forecast, Commands & out) {
    if (options_.prefetch_after_first && !any_issued_ && !idle()) {
        held_.push_back(forecast);
        return;
    }
    fetch_predicted(forecast, out);
}

void OrderedScheduler::fetch_predicted(const Forecast & forecast, Commands & out) {
    if (streams_ && residency_.pool({forecast.layer, Part::staged}) != none) {
        return;  // what it needs comes through the stage, and would displace here what it needs as well
    }
    for (Expert e : forecast.experts) {
        wanted(e, Part::top) = wanted(e, Part::bottom) = 1;
    }
    bool room = true;
    for (size_t i = 0; i < forecast.experts.size() && room; i++) {
        for (Part part : parts) {
            const Place place{forecast.layer, part};
            const Expert e = forecast.experts[i];
            if (residency_.pool(place) == none || residency_.find(place, e) != none ||
                residency_.find({forecast.layer, Part::staged}, e) != none) {
                continue;
            }
            const Slot slot = acquire_for_prefetch(place, e);
            if (slot == none) {
                room = false;
                break;
            }
            residency_.assign(place, slot, e, true);
            desk_.order(residency_.pool(place), slot, Urgency::low, options_.chunks, out);
            prefetched_[place.layer].push_back(e);
        }
    }
    for (Expert e : forecast.experts) {
        wanted(e, Part::top) = wanted(e, Part::bottom) = 0;
    }
}

// What was fetched for this layer in vain; said before the needs take their slots.
void OrderedScheduler::disappoint(Layer layer) {
    for (Expert e : prefetched_[layer]) {
        for (Part part : parts) {
            const Place place{layer, part};
            const Pool pool = residency_.pool(place);
            const Slot slot = pool == none ? none : residency_.find(place, e);
            if (slot != none && residency_.at(pool, slot).prefetched && !residency_.at(pool, slot).used) {
                eviction_.disappointed(layer, e);
                break;
            }
        }
    }
    prefetched_[layer].clear();
}

// ---- needs ----------------------------------------------------------------------------------

void OrderedScheduler::push_precise(Layer layer, std::span<const Demand> demands, Commands & out) {
    assert(idle());
    layer_ = layer;
    needs_.clear();
    n_fetched_ = n_staged_ = 0;
    n_issued_ = n_issued_token_ = 0;
    any_issued_ = false;
    for (const Demand & d : demands) {
        for (Part part : parts) {
            if (residency_.pool({layer, part}) == none) {
                continue;
            }
            const bool staged = part == Part::top && residency_.find({layer, part}, d.expert) == none &&
                                residency_.find({layer, Part::staged}, d.expert) != none;
            needs_.push_back({d.expert, staged ? Part::staged : part, d.n_token});
            n_staged_ += staged;
        }
    }
    n_open_ = needs_.size();
    for (Need & need : needs_) {
        count(need);
    }
    disappoint(layer);
    share_with_host();
    sweep_stage();
    streams_ = phase_ == Phase::prefill && !strict() && options_.n_stream > 0 && (n_staged_ > 0 || layer_streams());
    sort_needs();
    Order order{layer, {}};
    for (const Need & need : needs_) {
        if (std::find(order.experts.begin(), order.experts.end(), need.expert) == order.experts.end()) {
            order.experts.push_back(need.expert);
        }
    }
    out.push_back(std::move(order));

    if (options_.early_preemption) {
        for (Part part : {Part::top, Part::bottom, Part::staged}) {
            desk_.call_back_low({layer, part}, none, out);
        }
    }
    serve(out);
    if (options_.fill && options_.early_preemption && residency_.is_whole(layer)) {
        fill(out);
    }
}

void OrderedScheduler::count(const Need & need) {
    LayerCounts & counts = residency_.counts(layer_);
    const Slot slot = slot_of(need);
    if (slot == none) {
        counts.misses++;
        return;
    }
    const Pool pool = pool_of(need);
    (residency_.at(pool, slot).state == SlotState::ready ? counts.hits : counts.late)++;
    residency_.mark_used(pool, slot);
    if (!strict()) {
        residency_.set_pinned(pool, slot, true);
    }
}

// What is not here is copied, or computed by the host where it lies.
void OrderedScheduler::share_with_host() {
    all_on_host_ = false;
    planned_device_us_ = 0;
    const bool whole = !residency_.layout().layers[layer_].is_cut();
    if (host_.hybrid == Hybrid::off || !whole || !host_.speeds[size_t(layer_)].possible) {
        return;
    }
    const HostSpeeds & speeds = host_.speeds[size_t(layer_)];
    std::vector<Missing> missing;
    std::vector<Need *> needs;
    DeviceQueue queue;
    for (Need & need : needs_) {
        const Place place{layer_, need.part};
        const uint64_t bytes = residency_.bytes_of(place, residency_.all_chunks(layer_));
        const Slot slot = slot_of(need);
        const SlotInfo * info = slot == none ? nullptr : &residency_.at(pool_of(need), slot);
        if (info && info->state == SlotState::ready) {
            queue.compute_us += rows_us(speeds.device_us_per_byte, speeds.device_row_us_per_byte, bytes, need.n_token);
            continue;
        }
        missing.push_back({bytes, bytes - (info ? residency_.bytes_of(place, info->arrived) : 0), need.n_token});
        needs.push_back(&need);
    }
    queue.copy_us = double(desk_.begun_bytes(speeds.n_copy, layer_)) * speeds.link_us_per_byte;
    const auto [on_host, device_us] = host_share(host_.hybrid, speeds, missing, queue);
    planned_device_us_ = device_us;
    all_on_host_ = !needs.empty();
    LayerCounts & counts = residency_.counts(layer_);
    for (size_t i = 0; i < needs.size(); i++) {
        all_on_host_ = all_on_host_ && on_host[i];
        if (!on_host[i]) {
            continue;
        }
        needs[i]->on_host = true;
        counts.on_host++;
        counts.host_rows += uint64_t(needs[i]->n_token);
        if (const Slot slot = slot_of(*needs[i]); slot != none) {
            residency_.set_pinned(pool_of(*needs[i]), slot, false);  // it may still come, for others
        }
    }
}

// What the host has computed is brought too, for the next time, where nobody waits for the link: into a
// free slot, or in place of what is less worth keeping.
void OrderedScheduler::keep_for_later(const Need & need, Commands & out) {
    const Pool pool = pool_of(need);
    if (!all_on_host_ || desk_.any_open() || slot_of(need) != none || is_buffer(pool)) {
        return;
    }
    Slot slot = residency_.free_slot({layer_, need.part}, need.expert);
    if (slot == none && host_.hybrid == Hybrid::by_speed && !residency_.is_whole(layer_)) {
        want_open_needs(true);
        slot = least_worthy(pool, layer_);
        want_open_needs(false);
        if (slot != none) {
            const SlotInfo & info = residency_.at(pool, slot);
            if (eviction_.keep(info.layer, info.part, info.expert) >= eviction_.keep(layer_, need.part, need.expert)) {
                return;
            }
            residency_.release(pool, slot);
        }
    }
    if (slot != none) {
        residency_.assign({layer_, need.part}, slot, need.expert, false);
        residency_.mark_used(pool, slot);
        desk_.order(pool, slot, Urgency::low, options_.chunks, out);
    }
}

// A bottom never comes before its top: the sorts are stable, and equals are as the router named them.
void OrderedScheduler::sort_needs() {
    if (strict()) {
        return;
    }
    const auto arrived = [&](const Need & need) {
        const Slot slot = slot_of(need);
        return slot == none ? 0 : std::popcount(residency_.at(pool_of(need), slot).arrived);
    };
    for (size_t i = 0; i < needs_.size(); i++) {
        const bool bottom_of_last = needs_[i].part == Part::bottom && i > 0 && needs_[i - 1].expert == needs_[i].expert;
        needs_[i].n_arrived = arrived(needs_[i]);
        if (bottom_of_last) {
            needs_[i].n_arrived = std::min(needs_[i].n_arrived, needs_[i - 1].n_arrived);
        }
    }
    if (phase_ == Phase::prefill && options_.order == ComputeOrder::arrived) {
        rank_needs();
    }
    const auto before = [&](const Need & a, const Need & b) {
        if (options_.order == ComputeOrder::tokens && a.n_token != b.n_token) {
            return a.n_token > b.n_token;
        }
        return a.n_arrived != b.n_arrived ? a.n_arrived > b.n_arrived : a.rank < b.rank;
    };
    if (needs_.size() > 32) {
        std::stable_sort(needs_.begin(), needs_.end(), before);
        return;
    }
    for (size_t i = 1; i < needs_.size(); i++) {  // one token's: no memory is asked for
        for (size_t j = i; j > 0 && before(needs_[j], needs_[j - 1]); j--) {
            std::swap(needs_[j], needs_[j - 1]);
        }
    }
}

// What is missing is read in the order of the file, as far as that is free. A layer that streams ends
// with those most worth keeping, since the last ones read stay; and of the resident ones the least
// worthy are computed first, since others take their slots.
void OrderedScheduler::rank_needs() {
    std::vector<double> worths;
    for (const Need & need : needs_) {
        worths.push_back(streams_ ? eviction_.keep(layer_, need.part, need.expert) : 0);
    }
    std::array<double, 2> worthy{};  // [part]: as much as this
    for (Part part : parts) {
        std::vector<double> of_part;
        for (size_t i = 0; i < needs_.size(); i++) {
            if (own(needs_[i].part) == part) {
                of_part.push_back(worths[i]);
            }
        }
        const size_t n_slot = of_part.empty() ? 0 : size_t(residency_.n_slot(residency_.pool({layer_, part})));
        if (n_slot < of_part.size()) {
            std::nth_element(of_part.begin(), of_part.begin() + int64_t(n_slot), of_part.end(), std::greater<>());
            worthy[size_t(part)] = of_part[n_slot];
        }
    }
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        need.stays = streams_ && worths[i] > worthy[size_t(own(need.part))];
        need.rank = need.n_arrived > 0 ? worths[i] : need.expert + (need.stays ? residency_.n_expert() : 0);
        if (need.part == Part::bottom && i > 0 && needs_[i - 1].expert == need.expert &&
            (needs_[i - 1].n_arrived > 0) == (need.n_arrived > 0)) {
            need.rank = std::max(need.rank, needs_[i - 1].rank);
        }
    }
}

bool OrderedScheduler::layer_streams() const {
    return std::any_of(parts.begin(), parts.end(), [&](Part part) {
        const Pool pool = residency_.pool({layer_, part});
        return pool != none && must_stream(pool);
    });
}

// Whether more parts are missing than find room beside the needed ones that are here.
bool OrderedScheduler::must_stream(Pool pool) const {
    int32_t n_room = 0;
    for (Slot s = 0; s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        n_room += info.state == SlotState::free || (info.state == SlotState::ready && !info.pinned);
    }
    for (const Need & need : needs_) {
        n_room -= pool_of(need) == pool && slot_of(need) == none && !need.on_host;
    }
    return n_room < 0;
}

// How many missing parts may have slots, not computed, at the same time.
size_t OrderedScheduler::max_open() const {
    const int32_t n = streams_ && (options_.max_open == 0 || options_.n_stream < options_.max_open) ? options_.n_stream
                                                                                                    : options_.max_open;
    return n > 0 ? size_t(n) : needs_.size();
}

// Gives slots to needed parts without one, in order, and says what can be computed.
void OrderedScheduler::serve(Commands & out) {
    bool slots_left = true;
    bool all_issued = true;    // of those before
    bool all_computed = true;  // of those before
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        if (need.on_host) {
            if (!std::exchange(need.issued, true)) {
                out.push_back(Compute{layer_, need.expert, need.part, none});
            }
            continue;
        }
        if (need.issued) {
            all_computed = all_computed && need.computed;
            continue;
        }
        const bool has_slot = try_fetch(i, all_computed, slots_left, out);
        if (has_slot && !streams_ && can_compute(need) && (!strict() || all_issued)) {
            issue(need, out);
        } else {
            all_issued = false;
        }
        all_computed = false;
    }
    if (streams_ && stage() != none) {
        issue_batch(out);
        stage_ahead(out);
    } else if (streams_) {
        issue_some(out);
    }
    if (any_issued_ && !held_.empty()) {
        for (const Forecast & forecast : std::exchange(held_, {})) {
            fetch_predicted(forecast, out);
        }
    }
}

bool OrderedScheduler::can_compute(const Need & need) {
    const Slot slot = slot_of(need);
    if (slot == none || residency_.at(pool_of(need), slot).state != SlotState::ready) {
        return false;
    }
    const Need * top = need.part == Part::bottom ? find_need(layer_, need.expert, Part::top) : nullptr;
    return top == nullptr || top->computed;
}

void OrderedScheduler::issue(Need & need, Commands & out) {
    const Slot slot = slot_of(need);
    residency_.set_pinned(pool_of(need), slot, true);
    need.issued = true;
    any_issued_ = true;
    n_issued_++;
    n_issued_token_ += need.n_token;
    out.push_back(Compute{layer_, need.expert, need.part, slot});
}

// While a layer streams, little is computed at a time, so that slots come free for reads that go on
// meanwhile; and first what holds a slot that others wait for.
void OrderedScheduler::issue_some(Commands & out) {
    const int32_t most = std::max(options_.n_stream / 4, 1);
    for (const bool fetched : {true, false}) {
        for (Need & need : needs_) {
            if (need.issued || need.fetched != fetched || !can_compute(need)) {
                continue;
            }
            if (n_issued_ > 0 && (n_issued_ >= most || n_issued_token_ + need.n_token > max_stream_token)) {
                return;
            }
            issue(need, out);
        }
    }
}

// True when the need has a slot. `slots_left`: false once a need got none, so that those behind
// it do not overtake it.
bool OrderedScheduler::try_fetch(size_t position, bool all_computed, bool & slots_left, Commands & out) {
    Need & need = needs_[position];
    const bool may_fetch = options_.early_preemption || all_computed;
    Slot slot = slot_of(need);
    if (slot == none && need.part == Part::staged) {  // its copy failed
        need.part = Part::top;
        n_staged_--;
    }
    if (slot == none && may_fetch && need.attempts < max_attempts && passes_through(need)) {
        slot = acquire_in_stage();
        if (slot == none && n_staged_ > 0) {
            return false;  // one of those that are there will leave
        }
        if (slot != none) {
            need.part = Part::staged;
            n_staged_++;
            residency_.assign({layer_, need.part}, slot, need.expert, false);
            residency_.mark_used(stage(), slot);
            residency_.set_pinned(stage(), slot, true);
        }
    }
    const Pool pool = pool_of(need);
    if (slot == none) {
        // The first one never waits for those behind it, which wait for it.
        const bool too_many = n_fetched_ >= max_open() && !all_computed;
        if (!slots_left || !may_fetch || too_many || need.attempts >= max_attempts) {
            return false;
        }
        slot = acquire_for_need(position);
        if (slot == none) {
            // A top must not starve for want of a bottom's slot: the pools differ.
            slots_left = residency_.layout().layers[layer_].is_cut();
            return false;
        }
        residency_.assign({layer_, need.part}, slot, need.expert, false);
        residency_.mark_used(pool, slot);
        need.fetched = true;
        n_fetched_++;
        if (!strict()) {
            residency_.set_pinned(pool, slot, true);
        }
    } else if (may_fetch && !options_.early_preemption && !need.promoted) {
        need.promoted = true;
        desk_.call_back_low({layer_, need.part}, slot, out);
    }
    const SlotInfo & info = residency_.at(pool, slot);
    if (info.state == SlotState::pending && !info.broken) {
        // All of a new one; of one whose copies were called back in an earlier pass, what is
        // not on its way: at once, for half an expert would keep its slot for ever.
        desk_.order(pool, slot, Urgency::high, options_.chunks, out);
    }
    return true;
}

// ---- the stage ------------------------------------------------------------------------------

// Whether a missing expert passes through the stage: the layer's own slots are for what it keeps.
bool OrderedScheduler::passes_through(const Need & need) const {
    return streams_ && stage() != none && need.part == Part::top && !need.stays &&
           residency_.free_slot({layer_, Part::top}, need.expert) == none;
}

// What was staged in vain, for this layer or one before it, gives way.
void OrderedScheduler::sweep_stage() {
    const Pool pool = stage();
    for (Slot s = 0; pool != none && s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        if (info.state == SlotState::ready && info.layer <= layer_ && !is_open(info)) {
            residency_.release(pool, s);
        }
    }
}

// A free slot of the stage, or one that waits for the layer that comes last.
Slot OrderedScheduler::acquire_in_stage() {
    const Pool pool = stage();
    if (const Slot slot = residency_.free_slot(pool); slot != none) {
        return slot;
    }
    const Slot victim = least_worthy(pool, layer_);
    if (victim != none) {
        residency_.release(pool, victim);
    }
    return victim;
}

// When all that this layer needs is here or on its way: the next layers', as far as there is room.
void OrderedScheduler::stage_ahead(Commands & out) {
    if (4 * needs_.size() < 3 * size_t(residency_.n_expert()) ||
        std::any_of(needs_.begin(), needs_.end(),
                    [&](const Need & n) { return !n.computed && !n.on_host && slot_of(n) == none; })) {
        return;
    }
    const auto n_layer = int32_t(residency_.layout().layers.size());
    if (ahead_ <= layer_) {
        ahead_ = layer_ + 1;
        ahead_from_ = 0;
        ahead_stays_.clear();
    }
    for (; ahead_ < n_layer && stage_layer(ahead_, out); ahead_++) {
        ahead_from_ = 0;
        ahead_stays_.clear();
    }
}

// True when all of its experts are here or on their way, but those for which it will make room itself.
bool OrderedScheduler::stage_layer(Layer layer, Commands & out) {
    const Place staged{layer, Part::staged};
    const Place own{layer, Part::top};
    if (residency_.pool(staged) == none) {
        return true;
    }
    if (ahead_stays_.empty()) {
        ahead_stays_ = worth_own_slots(layer);
    }
    for (Expert & e = ahead_from_; e < residency_.n_expert(); e++) {
        if (residency_.find(own, e) != none || residency_.find(staged, e) != none) {
            continue;
        }
        Place place = own;
        Slot slot = residency_.free_slot(own, e);
        if (slot == none) {
            if (ahead_stays_[size_t(e)]) {
                continue;
            }
            place = staged;
            slot = residency_.free_slot(residency_.pool(staged));
        }
        if (slot == none) {
            return false;
        }
        residency_.assign(place, slot, e, true);
        desk_.order(residency_.pool(place), slot, Urgency::low, options_.chunks, out);
    }
    return true;
}

// [expert]: whether it is among those that are most worth keeping, as many as the layer has slots.
std::vector<uint8_t> OrderedScheduler::worth_own_slots(Layer layer) const {
    std::vector<double> worths;
    for (Expert e = 0; e < residency_.n_expert(); e++) {
        worths.push_back(eviction_.keep(layer, Part::top, e));
    }
    const auto n_slot = int64_t(residency_.n_slot(residency_.pool({layer, Part::top})));
    std::vector<double> sorted = worths;
    std::nth_element(sorted.begin(), sorted.begin() + n_slot, sorted.end(), std::greater<>());
    std::vector<uint8_t> worth;
    for (double w : worths) {
        worth.push_back(w > sorted[size_t(n_slot)]);
    }
    return worth;
}

// While a layer streams through the stage, several experts are computed together, so that little time is
// lost between them; copies go on meanwhile.
void OrderedScheduler::issue_batch(Commands & out) {
    size_t n_ready = 0;
    size_t n_coming = 0;
    for (const Need & need : needs_) {
        if (!need.issued) {
            (can_compute(need) ? n_ready : n_coming) += slot_of(need) != none;
        }
    }
    const auto n_wave = size_t(std::max(options_.n_wave, 1));
    const size_t enough = std::min(size_t(residency_.n_slot(stage())), needs_.size()) / n_wave;
    if (n_coming > 0 && n_ready < enough) {
        return;
    }
    for (Need & need : needs_) {
        if (!need.issued && can_compute(need)) {
            issue(need, out);
        }
    }
}

// A layer with a slot for every expert: it gets all of them, so that it need not be asked any more.
void OrderedScheduler::fill(Commands & out) {
    const Place place{layer_, Part::top};
    for (Expert e = 0; e < residency_.n_expert(); e++) {
        if (residency_.find(place, e) != none) {
            continue;
        }
        if (const Slot slot = residency_.free_slot(place, e); slot != none) {
            residency_.assign(place, slot, e, true);
            desk_.order(residency_.pool(place), slot, Urgency::low, options_.chunks, out);
        }
    }
}

// ---- slots ----------------------------------------------------------------------------------

Slot OrderedScheduler::acquire_for_prefetch(Place place, Expert expert) {
    const Pool pool = residency_.pool(place);
    if (const Slot slot = residency_.free_slot(place, expert); slot != none || residency_.is_whole(place.layer)) {
        return slot;
    }
    const Slot victim = least_worthy(pool, place.layer);
    if (victim != none && is_buffer(pool) && n_ahead(residency_.at(pool, victim).layer) <= n_ahead(place.layer)) {
        return none;  // what waits in a buffer was fetched for somebody who comes first
    }
    if (victim != none) {
        residency_.release(pool, victim);
    }
    return victim;
}

Slot OrderedScheduler::acquire_for_need(size_t position) {
    const Need & need = needs_[position];
    const Pool pool = pool_of(need);
    const Place place{layer_, need.part};
    if (const Slot slot = residency_.free_slot(place, need.expert); slot != none) {
        return slot;
    }
    if (residency_.is_whole(layer_)) {  // its slot failed once
        residency_.reclaim();
        return residency_.free_slot(place, need.expert);
    }
    want_open_needs(true);
    Slot victim = least_worthy(pool, layer_);
    want_open_needs(false);
    if (victim == none && strict()) {
        // In the router's order an expert may have to leave before its turn, and come back.
        for (size_t i = needs_.size(); i-- > position + 1 && victim == none;) {
            const Slot slot = slot_of(needs_[i]);
            if (slot != none && pool_of(needs_[i]) == pool && !needs_[i].issued &&
                residency_.at(pool, slot).state == SlotState::ready) {
                victim = slot;
                forget_fetch(needs_[i]);
            }
        }
    }
    if (victim == none) {
        // Rather a slot that failed once than none at all.
        residency_.reclaim();
        return residency_.free_slot(pool);
    }
    residency_.release(pool, victim);
    return victim;
}

void OrderedScheduler::want_open_needs(bool wanted_now) {
    for (const Need & n : needs_) {
        wanted(n.expert, n.part) = wanted_now && !n.computed;
    }
}

// Of the ready, unpinned parts in the pool that `layer` does not want, the one least worth keeping; or
// `none`.
Slot OrderedScheduler::least_worthy(Pool pool, Layer layer) {
    Slot victim = none;
    double lowest = 0;
    for (Slot s = 0; s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        if (info.state != SlotState::ready || info.pinned || (info.layer == layer && wanted(info.expert, info.part))) {
            continue;
        }
        if (is_buffer(pool) && is_open(info)) {
            continue;  // needed now, though a strict order has not pinned it yet
        }
        // In a buffer what was fetched in vain for a layer that is past leaves first: it is needed last.
        const double keep =
            is_buffer(pool) ? -double(n_ahead(info.layer)) : eviction_.keep(info.layer, info.part, info.expert);
        if (victim == none || keep < lowest) {
            victim = s;
            lowest = keep;
        }
    }
    return victim;
}

// ---- how copies and computation end -----------------------------------------------------------

void OrderedScheduler::copied(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_arrived(flight.pool, flight.slot, flight.mask);
    settle(flight, out);
}

void OrderedScheduler::cancelled(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_cancelled(flight.pool, flight.slot, flight.mask);
    const SlotInfo & info = residency_.at(flight.pool, flight.slot);
    if (!info.broken && is_open(info)) {
        desk_.order(flight.pool, flight.slot, Urgency::high, options_.chunks, out);
        return;
    }
    settle(flight, out);
}

void OrderedScheduler::failed(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_failed(flight.pool, flight.slot, flight.mask);
    settle(flight, out);
}

void OrderedScheduler::computed(Layer layer, Expert expert, Part part, Commands & out) {
    Need * need = find_need(layer, expert, part);
    assert(need && need->issued && !need->computed);
    need->computed = true;
    n_open_--;
    n_staged_ -= part == Part::staged;
    if (need->on_host) {
        keep_for_later(*need, out);
        return;
    }
    n_issued_--;
    n_issued_token_ -= need->n_token;
    forget_fetch(*need);
    const Pool pool = pool_of(*need);
    const Slot slot = slot_of(*need);
    residency_.set_pinned(pool, slot, false);
    if (is_buffer(pool)) {
        residency_.release(pool, slot);
    }
    serve(out);
}

void OrderedScheduler::aborted(Commands & out) {
    const Layer layer = layer_;
    needs_.clear();
    held_.clear();
    n_open_ = 0;
    n_fetched_ = n_staged_ = 0;
    ahead_ = none;
    layer_ = none;
    if (layer == none) {
        return;
    }
    desk_.call_back(layer, out);
    for (Part part : {Part::top, Part::bottom, Part::staged}) {
        const Pool pool = residency_.pool({layer, part});
        for (Slot s = 0; pool != none && s < residency_.n_slot(pool); s++) {
            if (residency_.at(pool, s).layer == layer && residency_.at(pool, s).pinned) {
                residency_.set_pinned(pool, s, false);
            }
            settle({0, {layer, part}, pool, s, 0, Urgency::low, true}, out);
        }
    }
}

// After a copy into this slot has ended in whatever way: decide what becomes of the slot.
void OrderedScheduler::settle(const Flight & flight, Commands & out) {
    const SlotInfo & info = residency_.at(flight.pool, flight.slot);
    if (info.flying != 0) {
        return;  // nobody can do anything with a part of it
    }
    if (info.state == SlotState::pending) {
        const bool open = is_open(info);
        if (info.broken) {
            const Expert expert = info.expert;
            Need * need = open ? find_need(info.layer, expert, info.part) : nullptr;
            if (info.pinned) {
                residency_.set_pinned(flight.pool, flight.slot, false);
            }
            residency_.release(flight.pool, flight.slot);
            if (need) {
                forget_fetch(*need);
                if (++need->attempts >= max_attempts) {
                    out.push_back(GiveUp{layer_, expert});
                    return;
                }
            }
        } else if (!open) {
            residency_.release(flight.pool, flight.slot);  // dropped halfway: a part is of no use
        }
    } else if (info.part == Part::staged && info.state == SlotState::ready && info.layer <= layer_ && !is_open(info)) {
        residency_.release(flight.pool, flight.slot);  // its layer does without it
    }
    if (n_open_ > 0) {
        serve(out);  // the slot may be what a need waits for, even if it was another layer's
    }
}

void OrderedScheduler::forget_fetch(Need & need) {
    n_fetched_ -= need.fetched ? 1 : 0;
    need.fetched = false;
}

OrderedScheduler::Need * OrderedScheduler::find_need(Layer layer, Expert expert, Part part) {
    if (layer != layer_) {
        return nullptr;
    }
    const auto it = std::find_if(needs_.begin(), needs_.end(),
                                 [&](const Need & n) { return n.expert == expert && n.part == part; });
    return it == needs_.end() ? nullptr : &*it;
}

bool OrderedScheduler::is_open(const SlotInfo & info) {
    const Need * need = find_need(info.layer, info.expert, info.part);
    return need && !need->computed && !need->on_host;
}

}  // namespace outrider
