// INVARIANT: a needed part that is not computed is either without a slot (and waits in serve()), or
// ready, or in a pending slot all of whose missing chunks are flying, or in one that is broken and
// waits for its last flight.
// Unless the order is strict, its slot is pinned from the moment it has one; with a strict order, from
// its Compute on, since an expert further down may have to give way to the first one.
#include "ordered.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace outrider {

OrderedScheduler::OrderedScheduler(Residency & residency, Eviction & eviction, CopyDesk & desk, OrderedOptions options,
                                   const HostShare & host)
    : residency_(residency),
      eviction_(eviction),
      desk_(desk),
      options_(options),
      host_(host),
      expected_(residency.layout().layers.size()),
      displaced_(residency.layout().layers.size()),
      prefetched_(residency.layout().layers.size()),
      wanted_(size_t(residency.n_expert()) * n_place, 0) {}

void OrderedScheduler::pass_began(Phase phase) {
    assert(idle());
    phase_ = phase;
    ahead_ = routed_ = none;
    residency_.reclaim();
}

// ---- forecasts ------------------------------------------------------------------------------

void OrderedScheduler::push_predicted(const Forecast & forecast, Commands & out) {
    if (options_.prefetch_after_first && !any_issued_ && !idle()) {
        held_.push_back(forecast);
        return;
    }
    if (reads_ahead() && forecast.layer > routed_) {
        expected_[size_t(forecast.layer)] = {forecast.experts};
        read_ahead(out);
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
            if (room && lacks(place, e)) {
                room = claim_ahead(place, e);
                if (room) {
                    order_ahead(place, e, out);
                }
            }
        }
    }
    for (Expert e : forecast.experts) {
        wanted(e, Part::top) = wanted(e, Part::bottom) = 0;
    }
}

// Whether there is such a part, and it is neither here nor on its way.
bool OrderedScheduler::lacks(Place place, Expert expert) const {
    return residency_.pool(place) != none && residency_.find(place, expert) == none &&
           residency_.find({place.layer, Part::staged}, expert) == none;
}

// Gives it a slot, from which it may be ordered; false where none is to be had.
bool OrderedScheduler::claim_ahead(Place place, Expert expert) {
    const Slot slot = acquire_for_prefetch(place, expert);
    if (slot != none) {
        residency_.assign(place, slot, expert, true);
    }
    return slot != none;
}

void OrderedScheduler::order_ahead(Place place, Expert expert, Commands & out) {
    desk_.order(residency_.pool(place), residency_.find(place, expert), Urgency::low, options_.chunks, out);
    prefetched_[place.layer].push_back(expert);
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
    layer_ = routed_ = layer;
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
    judge_ahead(layer);
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
    begin_on_host(out);
    serve(out);
    if (options_.fill && options_.early_preemption && residency_.is_whole(layer)) {
        fill(out);
    }
}

// Gives slots to needed parts without one, in order, and says what can be computed.
void OrderedScheduler::serve(Commands & out) {
    bool slots_left = true;
    bool all_issued = true;    // of those before
    bool all_computed = true;  // of those before
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        if (need.on_host) {
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
    read_ahead(out);
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

// ---- how copies and computation end -----------------------------------------------------------

void OrderedScheduler::copied(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_arrived(flight.pool, flight.slot, flight.mask);
    link_moved_ = true;
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
    if (!info.broken && is_kept(info)) {
        desk_.order(flight.pool, flight.slot, Urgency::low, options_.chunks, out);
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
        host_moved_ = true;
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
