#include "core/schedule/host_sharing.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace outrider {
namespace {

// The share of their time that copies for later cost the others: memory bandwidth, or all of it where a device
// receives and computes in turns, like llama.cpp's rpc server.
constexpr double cost_of_copies = 0.3;
// This many requests count as a hit, so that unused copies are tried again some time.
constexpr double requests_per_hit = 16;

bool by_turn(const Need * a, const Need * b) { return a->host_turn < b->host_turn; }

}  // namespace

void HostSharing::count(const Need & need, int sign) {
    LayerCounts & counts = residency_.counts(needs_.layer());
    counts.on_host += uint64_t(sign);
    counts.host_rows += uint64_t(sign * need.n_token);
}

Missing HostSharing::missing_of(const Need & need) const {
    const Place place{needs_.layer(), need.part};
    const uint32_t all = residency_.all_chunks(place.layer);
    const uint32_t arrived = needs_.slot_of(need) == none ? 0 : needs_.info_of(need).arrived;
    return {residency_.bytes_of(place, all), residency_.bytes_of(place, all & ~arrived), need.n_token};
}

// ---- at the gate ----------------------------------------------------------------------------

void HostSharing::share() {
    all_on_host_ = shares_ = false;
    host_moved_ = link_moved_ = false;
    host_at_us_ = link_at_us_ = 0;
    queue_ = {};
    if (host_.hybrid == Hybrid::off || is_cut(needs_.layer()) || !speeds().possible) {
        return;
    }
    std::vector<Missing> missing;
    std::vector<Need *> needs;
    bool any_far = false;
    for (Need & need : needs_) {
        const Missing m = missing_of(need);
        if (needs_.is_ready(need)) {
            queue_.compute_us += device_us(speeds(), m);
        } else if (host_.hybrid == Hybrid::by_speed && !in_memory(need)) {
            any_far = true;  // the host too would have to read the file
            queue_.copy_us += double(m.bytes_left) * speeds().link_us_per_byte;
            queue_.compute_us += device_us(speeds(), m);
        } else {
            need.missing = m;
            missing.push_back(m);
            needs.push_back(&need);
        }
    }
    queue_.copy_us += double(desk_.begun_bytes(speeds().n_copy, needs_.layer())) * speeds().link_us_per_byte;
    const HostPlan plan = host_share(host_.hybrid, speeds(), missing, queue_);
    for (size_t turn = 0; turn < plan.order.size(); turn++) {
        needs[plan.order[turn]]->host_turn = turn;
    }
    size_t n_host = 0;
    for (size_t i = 0; i < needs.size(); i++) {
        if (!plan.on_host[i]) {
            continue;
        }
        n_host++;
        needs_.give_to_host(*needs[i]);
        count(*needs[i], 1);
        if (const Slot slot = needs_.slot_of(*needs[i]); slot != none) {
            residency_.set_pinned(needs_.pool_of(*needs[i]), slot, false);  // it may still arrive, for the next time
        }
    }
    all_on_host_ = n_host > 0 && n_host == needs.size() && !any_far;
    shares_ = host_.hybrid == Hybrid::by_speed && n_host > 0 && n_host < needs.size();
}

void HostSharing::begin(Commands & out) {
    std::vector<Need *> on_host;
    for (Need & need : needs_) {
        if (need.on_host) {
            on_host.push_back(&need);
        }
    }
    std::stable_sort(on_host.begin(), on_host.end(), by_turn);
    for (Need * need : on_host) {
        needs_.issue_to_host(*need);
        out.push_back(Compute{needs_.layer(), need->expert, need->part, none});
    }
}

double HostSharing::planned_device_us() const {
    std::vector<const Need *> copied;
    for (const Need & need : needs_) {
        if (!need.on_host && need.missing.bytes > 0) {
            copied.push_back(&need);
        }
    }
    if (!shares_ || copied.empty()) {
        return 0;
    }
    std::sort(copied.begin(), copied.end(), by_turn);
    std::vector<Missing> missing;
    for (const Need * need : copied) {
        missing.push_back(need->missing);
    }
    return device_side_us(speeds(), missing, queue_);
}

// ---- while host and device compute ------------------------------------------------------------

// The remaining work of host and device, `us` after the gate. Running work counts as progressed since the last event.
// Overdue work is assumed to need its estimated time once more.
HostSharing::Rest HostSharing::rest(double us) {
    Rest rest;
    rest.queue.copy_us = double(desk_.begun_bytes(speeds().n_copy, needs_.layer())) * speeds().link_us_per_byte;
    rest.compute_us = queue_.compute_us;
    const Need * running = nullptr;
    for (Need & need : needs_) {
        rest.compute_us += need.on_host ? 0 : device_us(speeds(), need.missing);
        if (need.computed) {
            continue;
        }
        if (need.on_host) {
            rest.n_host++;
            rest.host_us += host_us(speeds(), need.missing);
            running = running && running->host_turn < need.host_turn ? running : &need;
            if (!need.withdrawing && !need.taken_over &&
                (!rest.last_on_host || need.host_turn > rest.last_on_host->host_turn)) {
                rest.last_on_host = &need;
            }
            continue;
        }
        const Missing m = missing_of(need);
        if (need.issued || needs_.can_compute(need)) {
            rest.queue.compute_us += device_us(speeds(), m);
            continue;
        }
        rest.any_waits = rest.any_waits || needs_.slot_of(need) == none;
        rest.to_come.push_back(m);
        if (need.missing.bytes > 0 &&
            (!rest.last_to_come || m.bytes_left >= missing_of(*rest.last_to_come).bytes_left)) {
            rest.last_to_come = &need;
            std::swap(rest.to_come.front(), rest.to_come.back());
        }
    }
    const double running_us = running ? host_us(speeds(), running->missing) : 0;
    const double flying_us = double(desk_.begun_bytes(speeds().n_copy, none)) * speeds().link_us_per_byte;
    rest.host_us -= us - host_at_us_ < running_us ? us - host_at_us_ : 0;
    rest.queue.copy_us -= us - link_at_us_ < flying_us ? us - link_at_us_ : 0;
    if (rest.last_on_host == running) {
        rest.last_on_host = nullptr;
    }
    return rest;
}

void HostSharing::balance(double us, Commands & out) {
    if (!shares_ || needs_.n_open() == 0) {
        return;
    }
    host_at_us_ = std::exchange(host_moved_, false) ? us : host_at_us_;
    link_at_us_ = std::exchange(link_moved_, false) ? us : link_at_us_;
    Rest left = rest(us);
    const auto device_end_us = [&](std::span<const Missing> copied, double more_us) {
        const double rest_us = device_side_us(speeds(), copied, left.queue) * speeds().device_times;
        return std::max(rest_us, (left.compute_us + more_us) * speeds().device_times - us);
    };
    const double end_us = std::max(left.host_us, device_end_us(left.to_come, 0));
    if (left.n_host <= 1) {
        Need * need = left.last_to_come;
        if (!need || !in_memory(*need)) {
            return;
        }
        const double more_us = (left.n_host == 0 ? speeds().host_us : 0) + host_us(speeds(), need->missing);
        const auto others = std::span<const Missing>(left.to_come).subspan(1);
        const double device_end = device_end_us(others, -device_us(speeds(), need->missing));
        if (std::max(left.host_us + more_us, device_end) < end_us * (1 - least_gain)) {
            take_over(*need, out);
        }
    } else if (left.last_on_host && !left.any_waits && desk_.n_open(needs_.layer()) < speeds().n_copy) {
        const Missing m = missing_of(*left.last_on_host);
        left.to_come.push_back(m);
        const double device_end = device_end_us(left.to_come, device_us(speeds(), m));
        if (std::max(left.host_us - host_us(speeds(), m), device_end) < end_us) {
            left.last_on_host->withdrawing = true;
            out.push_back(Withdraw{needs_.layer(), left.last_on_host->expert});
        }
    }
}

// The host computes experts that were to be copied.
void HostSharing::take_over(Need & need, Commands & out) {
    needs_.issue_to_host(need);
    need.taken_over = true;
    count(need, 1);
    out.push_back(Compute{needs_.layer(), need.expert, need.part, none});
    if (const Slot slot = needs_.slot_of(need); slot != none) {
        residency_.set_pinned(needs_.pool_of(need), slot, false);
        desk_.call_back({needs_.layer(), need.part}, slot, out);
    }
}

bool HostSharing::keeps(const SlotInfo & info) const {
    const Need * need = needs_.find(info.layer, info.expert, info.part);
    return need && need->taken_over && !needs_.streams();
}

void HostSharing::withdrawn(Layer layer, Expert expert) {
    const auto it = std::find_if(needs_.begin(), needs_.end(), [&](const Need & n) { return n.expert == expert; });
    assert(layer == needs_.layer() && it != needs_.end() && it->withdrawing && it->on_host && !it->computed);
    (void) layer;
    needs_.take_from_host(*it);
    count(*it, -1);
    if (const Slot slot = needs_.slot_of(*it); slot != none && !strict()) {
        residency_.set_pinned(needs_.pool_of(*it), slot, true);
    }
}

// ---- for the next time ------------------------------------------------------------------------

void HostSharing::computed(const Need & need, Commands & out) {
    host_moved_ = true;
    keep_for_later(need, out);
}

// Whether the copies for this layer have saved the host more time by hits than they cost.
bool HostSharing::copies_pay(const Need & need) const {
    const LayerCounts & counts = residency_.counts(needs_.layer());
    const uint64_t n_request = counts.hits + counts.late + counts.misses;
    const double n_hit = double(counts.hits) + double(n_request) / requests_per_hit;
    const double copied_us = double(counts.bytes_read) * speeds().link_us_per_byte;
    return cost_of_copies * copied_us < n_hit * host_us(speeds(), missing_of(need));
}

// Copies an expert that the host has computed while the link is idle: into a free slot or, while that pays, in place
// of one less worth keeping.
void HostSharing::keep_for_later(const Need & need, Commands & out) {
    const Place place{needs_.layer(), need.part};
    const Pool pool = needs_.pool_of(need);
    if (!all_on_host_ || desk_.any_open() || needs_.slot_of(need) != none || is_buffer(pool)) {
        return;
    }
    Slot slot = residency_.free_slot(place, need.expert);
    if (slot == none && host_.hybrid == Hybrid::by_speed && !residency_.is_whole(place.layer) && copies_pay(need)) {
        slot = victims_.find_beside_needs(pool);
        if (slot != none) {
            const SlotInfo & info = residency_.at(pool, slot);
            if (eviction_.keep(info.layer, info.part, info.expert) >=
                eviction_.keep(place.layer, need.part, need.expert)) {
                return;
            }
            residency_.release(pool, slot);
        }
    }
    if (slot != none) {
        residency_.assign(place, slot, need.expert, false);
        residency_.mark_used(pool, slot);
        order(place, slot, Urgency::low, out);
    }
}

}  // namespace outrider
