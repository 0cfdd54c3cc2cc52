// INVARIANT: a part that the device waits for has no slot (and is served next), or it is ready, or its slot is pending
// and all missing chunks are in flight, or its slot is broken and waits for its last flight. Parts found at the gate,
// and those that got a slot since, are pinned until they are computed; in a strict order only from their Compute on,
// since a later expert may have to give way to the first. check() states this in code.
#include "core/schedule/ordered.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace outrider {
namespace {

constexpr int32_t max_attempts = 3;      // copies of a part, until it is given up
constexpr int32_t max_stream_token = 64;  // rows of the experts that a streaming layer computes together

}  // namespace

OrderedScheduler::OrderedScheduler(Residency & residency, Eviction & eviction, CopyDesk & desk,
                                   const OrderedOptions & options, const HostShare & host)
    : OrderedState{options, true, NeedList(residency)},
      OrderedPart(residency, eviction, desk, OrderedState::options, many, needs),
      victims_(*this),
      ahead_(*this, victims_),
      stage_(*this, victims_),
      sharing_(*this, victims_, host) {}

void OrderedScheduler::pass_began(Phase, bool is_many) {
    assert(idle());
    many = is_many;
    first_of_ = none;
    ahead_.pass_began();
    stage_.restart();
    residency_.reclaim();
}

void OrderedScheduler::push_predicted(const Forecast & forecast, Commands & out) {
    if (options_.prefetch_after_first && !needs_.any_issued() && !idle()) {
        held_.push_back(forecast);
    } else {
        ahead_.expect(forecast, out);
    }
}

// ---- needs ----------------------------------------------------------------------------------

void OrderedScheduler::gate_reached(Layer layer, Commands & out) {
    ahead_.reached(layer);
    if (options_.early_preemption) {
        for (Part part : places) {
            desk_.call_back_low({layer, part}, none, out);
        }
    }
}

void OrderedScheduler::push_precise(Layer layer, std::span<const Demand> demands, Commands & out) {
    assert(idle());
    needs_.begin(layer, demands);
    for (Need & need : needs_) {
        count(need);
    }
    ahead_.gate(layer);
    if (many) {
        stage_.note_choice();
    }
    sharing_.share();
    stage_.sweep();
    needs_.set_streams(may_stream() && (needs_.n_staged() > 0 || needs_.exceeds_slots()));
    if (strict()) {
        needs_.sort_by_id();
    } else {
        const bool ranked = many_ && options_.order == ComputeOrder::arrived;
        needs_.sort(options_.order == ComputeOrder::tokens, ranked ? &eviction_ : nullptr);
    }
    Order order{layer, {}};
    for (const Need & need : needs_) {
        if (std::find(order.experts.begin(), order.experts.end(), need.expert) == order.experts.end()) {
            order.experts.push_back(need.expert);
        }
    }
    out.push_back(std::move(order));
    sharing_.begin(out);
    serve(out);
    if (options_.fill && options_.early_preemption && residency_.is_whole(layer)) {
        fill(out);
    }
}

// How the part was found at the gate.
void OrderedScheduler::count(Need & need) {
    LayerCounts & counts = residency_.counts(needs_.layer());
    const Slot slot = needs_.slot_of(need);
    if (slot == none) {
        counts.misses++;
        return;
    }
    const Pool pool = needs_.pool_of(need);
    need.hit = residency_.at(pool, slot).state == SlotState::ready;
    (need.hit ? counts.hits : counts.late)++;
    residency_.mark_used(pool, slot);
    if (!strict()) {
        residency_.set_pinned(pool, slot, true);
    }
}

// How many missing parts may have slots and not be computed.
size_t OrderedScheduler::max_open() const {
    const bool few = needs_.streams() && (options_.max_open == 0 || options_.n_stream < options_.max_open);
    const int32_t n = few ? options_.n_stream : options_.max_open;
    return n > 0 ? size_t(n) : needs_.size();
}

// Fetches all experts of a layer that has a slot for each, so that its choice need not be read any more.
void OrderedScheduler::fill(Commands & out) {
    const Place place{needs_.layer(), Part::top};
    for (Expert e = 0; e < residency_.n_expert(); e++) {
        if (const Slot slot = residency_.find(place, e); slot != none) {
            complete(place, slot, out);
            continue;
        }
        if (const Slot slot = residency_.free_slot(place, e); slot != none) {
            residency_.assign(place, slot, e, true);
            order(place, slot, Urgency::low, out);
        }
    }
}

// Gives slots to needed parts without one, in order, and sends what can be computed.
void OrderedScheduler::serve(Commands & out) {
    const bool gathers = options_.gather && !many_;
    bool slots_left = true;
    bool all_issued = true;  // of the needs before
    bool all_done = true;    // of the needs before: computed, or gathered
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        if (need.on_host) {
            continue;
        }
        if (need.issued) {
            all_done = all_done && (need.computed || gathers);
            continue;
        }
        const bool has_slot = try_fetch(i, all_done, slots_left, out);
        if (has_slot && !needs_.streams() && needs_.can_compute(need, gathers) && (!strict() || all_issued)) {
            issue(need, out);
        } else {
            all_issued = false;
        }
        all_done = all_done && need.issued && gathers;
    }
    if (needs_.streams() && stage_.pool() != none) {
        issue_wave(out);
        stage_.order_ahead(out);
    } else if (needs_.streams()) {
        issue_some(out);
    }
    ahead_.run(out);
    if (options_.first_ahead && !idle() && !needs_.any_without_slot()) {
        fetch_first_of_next(out);
    }
    if (needs_.any_issued() && !held_.empty()) {
        for (const Forecast & forecast : std::exchange(held_, {})) {
            ahead_.fetch(forecast, out);
        }
    }
}

// All experts of a prompt's next layer will be needed. The first one is fetched while attention computes.
void OrderedScheduler::fetch_first_of_next(Commands & out) {
    const Layer next = needs_.layer() + 1;
    if (next >= n_layer() || first_of_ == next) {
        return;
    }
    const Pool pool = residency_.pool({next, Part::top});
    if (pool != none && residency_.free_slot(pool) != none) {
        first_of_ = next;
        ahead_.fetch({next, {0}}, out);
    }
}

// True when the need has a slot. `slots_left`: false once a need got none, so that those behind it do not overtake it.
bool OrderedScheduler::try_fetch(size_t position, bool all_done, bool & slots_left, Commands & out) {
    Need & need = needs_[position];
    const bool may_fetch = options_.early_preemption || all_done;
    Slot slot = needs_.slot_of(need);
    if (slot == none && need.part == Part::staged) {  // its copy failed
        needs_.unstage(need);
    }
    if (slot == none && (!may_fetch || need.attempts >= max_attempts)) {
        return false;
    }
    if (slot == none && needs_.streams() && stage_.takes(need)) {
        slot = stage_.acquire();
        if (slot == none && needs_.n_staged() > 0) {
            return false;  // a part in the stage will leave it
        }
        if (slot != none) {
            needs_.stage(need);
            residency_.assign({needs_.layer(), need.part}, slot, need.expert, false);
            residency_.mark_used(stage_.pool(), slot);
            residency_.set_pinned(stage_.pool(), slot, true);
        }
    }
    const Place place{needs_.layer(), need.part};
    const Pool pool = residency_.pool(place);
    if (slot == none) {
        // The first need never waits for those behind it, which wait for it.
        if (!slots_left || (!all_done && needs_.n_fetched() >= max_open())) {
            return false;
        }
        slot = acquire(position);
        if (slot == none) {
            slots_left = is_cut(place.layer);  // tops and bottoms have different pools: neither waits for the other's
            return false;
        }
        residency_.assign(place, slot, need.expert, false);
        residency_.mark_used(pool, slot);
        needs_.fetch(need);
        if (!strict()) {
            residency_.set_pinned(pool, slot, true);
        }
    } else if (may_fetch && !options_.early_preemption && !need.promoted) {
        need.promoted = true;
        desk_.call_back_low(place, slot, out);
    }
    const SlotInfo & info = residency_.at(pool, slot);
    const bool lacks = (info.arrived | info.flying) != residency_.all_chunks(place.layer);
    if (info.state == SlotState::pending && !info.broken && lacks) {
        // All chunks of a new expert. If copies of an expert were cancelled earlier, the chunks that are not in
        // flight: a half-loaded expert would hold its slot forever.
        order(place, slot, Urgency::high, out);
    }
    return true;
}

Slot OrderedScheduler::acquire(size_t position) {
    const Need & need = needs_[position];
    const Place place{needs_.layer(), need.part};
    const Pool pool = residency_.pool(place);
    if (const Slot slot = residency_.free_slot(place, need.expert); slot != none) {
        return slot;
    }
    if (residency_.is_whole(place.layer)) {  // its slot is quarantined
        residency_.reclaim();
        return residency_.free_slot(place, need.expert);
    }
    Slot victim = options_.plain ? victims_.find(pool, none) : victims_.find_beside_needs(pool);
    // In a strict order an expert may have to leave before its turn, and come back.
    for (size_t i = needs_.size(); strict() && i-- > position + 1 && victim == none;) {
        const Slot slot = needs_.slot_of(needs_[i]);
        if (slot != none && needs_.pool_of(needs_[i]) == pool && !needs_[i].issued &&
            residency_.at(pool, slot).state == SlotState::ready) {
            victim = slot;
        }
    }
    if (victim == none) {
        residency_.reclaim();  // a slot that failed once is better than none
        return residency_.free_slot(pool);
    }
    lose(residency_.at(pool, victim));
    residency_.release(pool, victim);
    return victim;
}

// An expert that leaves before its turn was no hit.
void OrderedScheduler::lose(const SlotInfo & info) {
    if (Need * need = needs_.find(info.layer, info.expert, info.part); need && need->is_open()) {
        needs_.unfetch(*need);
        if (std::exchange(need->hit, false)) {
            residency_.counts(info.layer).hits--;
            residency_.counts(info.layer).misses++;
        }
    }
}

// ---- computing --------------------------------------------------------------------------------

void OrderedScheduler::issue(Need & need, Commands & out) {
    const Slot slot = needs_.slot_of(need);
    residency_.set_pinned(needs_.pool_of(need), slot, true);
    needs_.issue(need);
    eviction_.accessed(needs_.layer(), need.expert);
    out.push_back(Compute{needs_.layer(), need.expert, need.part, slot});
}

// A layer that streams through its own slots computes little at a time, so that slots come free for reads that go on
// meanwhile; and first the parts whose slots others wait for.
void OrderedScheduler::issue_some(Commands & out) {
    const int32_t most = std::max(options_.n_stream / 4, 1);
    for (const bool fetched : {true, false}) {
        for (Need & need : needs_) {
            if (need.issued || need.fetched != fetched || !needs_.can_compute(need)) {
                continue;
            }
            if (needs_.n_issued() > 0 &&
                (needs_.n_issued() >= most || needs_.n_issued_token() + need.n_token > max_stream_token)) {
                return;
            }
            issue(need, out);
        }
    }
}

// A layer that streams through the stage computes several experts together, so that little time is lost between them.
// Copies go on meanwhile.
void OrderedScheduler::issue_wave(Commands & out) {
    size_t n_ready = 0;
    size_t n_coming = 0;
    for (const Need & need : needs_) {
        if (!need.issued) {
            (needs_.can_compute(need) ? n_ready : n_coming) += needs_.slot_of(need) != none;
        }
    }
    if (n_coming > 0 && n_ready < stage_.wave_size()) {
        return;
    }
    for (Need & need : needs_) {
        if (!need.issued && needs_.can_compute(need)) {
            issue(need, out);
        }
    }
}

void OrderedScheduler::computed(Layer layer, Expert expert, Part part, Commands & out) {
    Need * need = needs_.find(layer, expert, part);
    assert(need && need->issued && !need->computed);
    needs_.finish(*need);
    if (need->on_host) {
        sharing_.computed(*need, out);
        serve(out);  // its slot, if copies filled one meanwhile, may leave now
        return;
    }
    const Pool pool = needs_.pool_of(*need);
    const Slot slot = needs_.slot_of(*need);
    residency_.set_pinned(pool, slot, false);
    if (is_buffer(pool)) {
        residency_.release(pool, slot);
    }
    serve(out);
}

void OrderedScheduler::withdrawn(Layer layer, Expert expert, Commands & out) {
    sharing_.withdrawn(layer, expert);
    serve(out);
}

// ---- how copies end ---------------------------------------------------------------------------

void OrderedScheduler::copied(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_arrived(flight.pool, flight.slot, flight.mask);
    sharing_.copied();
    settle(flight.pool, flight.slot, out);
}

void OrderedScheduler::cancelled(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_cancelled(flight.pool, flight.slot, flight.mask);
    const SlotInfo & info = residency_.at(flight.pool, flight.slot);
    if (!info.broken && needs_.is_open(info)) {
        order(flight.place, flight.slot, Urgency::high, out);
    } else if (!info.broken && sharing_.keeps(info)) {
        order(flight.place, flight.slot, Urgency::low, out);
    } else {
        settle(flight.pool, flight.slot, out);
    }
}

void OrderedScheduler::failed(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_failed(flight.pool, flight.slot, flight.mask);
    settle(flight.pool, flight.slot, out);
}

void OrderedScheduler::aborted(Commands & out) {
    const Layer layer = needs_.layer();
    needs_.clear();
    held_.clear();
    stage_.restart();
    if (layer == none) {
        return;
    }
    desk_.call_back(layer, out);
    for (Part part : places) {
        const Pool pool = residency_.pool({layer, part});
        for (Slot s = 0; pool != none && s < residency_.n_slot(pool); s++) {
            if (residency_.at(pool, s).layer == layer && residency_.at(pool, s).pinned) {
                residency_.set_pinned(pool, s, false);
            }
            settle(pool, s, out);
        }
    }
}

// After a copy into this slot has ended, or its layer was aborted: decides what becomes of the slot.
void OrderedScheduler::settle(Pool pool, Slot slot, Commands & out) {
    const SlotInfo & info = residency_.at(pool, slot);
    if (info.flying != 0) {
        return;  // until the last copy ends
    }
    const bool is_staged = info.part == Part::staged && info.layer <= needs_.layer();
    if (info.state == SlotState::pending || (info.state == SlotState::ready && is_staged)) {
        Need * need = needs_.find(info.layer, info.expert, info.part);
        need = need && need->is_open() ? need : nullptr;
        const bool broken = info.broken;
        if (broken && info.pinned) {
            residency_.set_pinned(pool, slot, false);
        }
        if (broken || (!need && is_staged)) {
            residency_.release(pool, slot);  // a staged expert is of no use after its layer
        } else if (!need && info.arrived == 0) {
            residency_.restore(pool, slot);  // no copy had begun
        }  // else chunks that have arrived stay until they are evicted
        if (broken && need) {
            needs_.unfetch(*need);
            if (++need->attempts >= max_attempts) {
                out.push_back(GiveUp{needs_.layer(), need->expert});
                return;
            }
        }
    }
    if (!idle()) {
        serve(out);  // a need may wait for this slot, even if it was another layer's
    }
}

void OrderedScheduler::check() const {
    needs_.check();
    for (const Need & need : needs_) {
        if (!need.is_open() || needs_.slot_of(need) == none) {
            continue;
        }
        const SlotInfo & info = needs_.info_of(need);
        const uint32_t all = residency_.all_chunks(info.layer);
        require(info.state == SlotState::ready || (info.arrived | info.flying) == all || (info.broken && info.flying),
                "what the device waits for is in flight");
        require(info.pinned || !need.fetched || strict(), "what was fetched for the layer is pinned");
    }
}

}  // namespace outrider
