// While host and device compute a layer: who has nothing left helps the other.
#include <algorithm>
#include <cassert>
#include <utility>

#include "ordered.h"

namespace outrider {

// What both have left, so long after the gate. What they are at has gone on since they were heard of last; what
// should have ended by then may take as long again.
OrderedScheduler::Rest OrderedScheduler::rest(double us) {
    const HostSpeeds & speeds = host_.speeds[size_t(layer_)];
    Rest rest;
    rest.queue.copy_us = double(desk_.begun_bytes(speeds.n_copy, layer_)) * speeds.link_us_per_byte;
    const Need * running = nullptr;
    rest.compute_us = queue_.compute_us;
    for (Need & need : needs_) {
        rest.compute_us += need.on_host ? 0 : device_us(speeds, need.missing);
        if (need.computed) {
            continue;
        }
        if (need.on_host) {
            rest.n_host++;
            rest.host_us += host_us(speeds, need.missing);
            running = running && running->host_turn < need.host_turn ? running : &need;
            if (!need.withdrawing && !need.taken_over &&
                (!rest.last_on_host || need.host_turn > rest.last_on_host->host_turn)) {
                rest.last_on_host = &need;
            }
            continue;
        }
        const Missing m = missing_of(need);
        if (need.issued || can_compute(need)) {
            rest.queue.compute_us += device_us(speeds, m);
            continue;
        }
        rest.any_waits = rest.any_waits || slot_of(need) == none;
        rest.to_come.push_back(m);
        if (need.missing.bytes > 0 &&
            (!rest.last_to_come || m.bytes_left >= missing_of(*rest.last_to_come).bytes_left)) {
            rest.last_to_come = &need;
            std::swap(rest.to_come.front(), rest.to_come.back());
        }
    }
    const double running_us = running ? host_us(speeds, running->missing) : 0;
    const double flying_us = double(desk_.begun_bytes(speeds.n_copy, none)) * speeds.link_us_per_byte;
    rest.host_us -= us - host_at_us_ < running_us ? us - host_at_us_ : 0;
    rest.queue.copy_us -= us - link_at_us_ < flying_us ? us - link_at_us_ : 0;
    if (rest.last_on_host == running) {
        rest.last_on_host = nullptr;
    }
    return rest;
}

// Host and device may be done sooner or later than was thought. Whoever is about to have nothing left takes from
// the other what that would come to last, if the layer will end sooner so.
void OrderedScheduler::balance(double us, Commands & out) {
    if (!shares_ || n_open_ == 0) {
        return;
    }
    host_at_us_ = std::exchange(host_moved_, false) ? us : host_at_us_;
    link_at_us_ = std::exchange(link_moved_, false) ? us : link_at_us_;
    const HostSpeeds & speeds = host_.speeds[size_t(layer_)];
    Rest left = rest(us);
    const auto device_end_us = [&](std::span<const Missing> copied, double more_us) {
        const double rest_us = device_side_us(speeds, copied, left.queue) * speeds.device_times;
        return std::max(rest_us, (left.compute_us + more_us) * speeds.device_times - us);
    };
    const double end_us = std::max(left.host_us, device_end_us(left.to_come, 0));
    if (left.n_host <= 1) {
        Need * need = left.last_to_come;
        if (!need || (host_.has && !host_.has(layer_, need->expert))) {
            return;
        }
        const double more_us = (left.n_host == 0 ? speeds.host_us : 0) + host_us(speeds, need->missing);
        const auto others = std::span<const Missing>(left.to_come).subspan(1);
        const double device_end = device_end_us(others, -device_us(speeds, need->missing));
        if (std::max(left.host_us + more_us, device_end) < end_us * (1 - least_gain)) {
            take_over(*need, out);
        }
    } else if (left.last_on_host && !left.any_waits && desk_.n_open(layer_) < speeds.n_copy) {
        const Missing m = missing_of(*left.last_on_host);
        left.to_come.push_back(m);
        const double device_end = device_end_us(left.to_come, device_us(speeds, m));
        if (std::max(left.host_us - host_us(speeds, m), device_end) < end_us) {
            left.last_on_host->withdrawing = true;
            out.push_back(Withdraw{layer_, left.last_on_host->expert});
        }
    }
}

// The host computes what was to be copied.
void OrderedScheduler::take_over(Need & need, Commands & out) {
    need.on_host = need.issued = need.taken_over = true;
    forget_fetch(need);
    LayerCounts & counts = residency_.counts(layer_);
    counts.on_host++;
    counts.host_rows += uint64_t(need.n_token);
    out.push_back(Compute{layer_, need.expert, need.part, none});
    if (const Slot slot = slot_of(need); slot != none) {
        residency_.set_pinned(pool_of(need), slot, false);
        desk_.call_back({layer_, need.part}, slot, out);
    }
}

// What the host has taken over still comes, for the next time: another has left for it.
bool OrderedScheduler::is_kept(const SlotInfo & info) {
    const Need * need = find_need(info.layer, info.expert, info.part);
    return need && need->taken_over && !streams_;
}

// The host will not compute this one: it is copied.
void OrderedScheduler::withdrawn(Layer layer, Expert expert, Commands & out) {
    const auto it = std::find_if(needs_.begin(), needs_.end(), [&](const Need & n) { return n.expert == expert; });
    assert(layer == layer_ && it != needs_.end() && it->withdrawing && it->on_host && !it->computed);
    Need & need = *it;
    need.on_host = need.issued = need.withdrawing = false;
    LayerCounts & counts = residency_.counts(layer);
    counts.on_host--;
    counts.host_rows -= uint64_t(need.n_token);
    if (const Slot slot = slot_of(need); slot != none && !strict()) {
        residency_.set_pinned(pool_of(need), slot, true);
    }
    serve(out);
}

}  // namespace outrider
