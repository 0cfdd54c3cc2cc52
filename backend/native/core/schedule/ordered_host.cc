// What the host computes of a layer, and what it brings afterwards.
#include <algorithm>

#include "ordered.h"

namespace outrider {
namespace {

// What copies for later cost the others, of the time that they take: bandwidth of the memory, and where a device
// receives and computes in turns, as llama.cpp's rpc server does, all of it.
constexpr double cost_of_copies = 0.3;
// So many requests count as a hit, so that what is never used does not stay for ever.
constexpr double requests_per_hit = 16;

}  // namespace

// What is not here is copied, or computed by the host where it lies.
void OrderedScheduler::share_with_host() {
    all_on_host_ = shares_ = false;
    host_moved_ = link_moved_ = false;
    host_at_us_ = link_at_us_ = 0;
    queue_ = {};
    const bool whole = !residency_.layout().layers[layer_].is_cut();
    if (host_.hybrid == Hybrid::off || !whole || !host_.speeds[size_t(layer_)].possible) {
        return;
    }
    const HostSpeeds & speeds = host_.speeds[size_t(layer_)];
    std::vector<Missing> missing;
    std::vector<Need *> needs;
    bool any_far = false;
    for (Need & need : needs_) {
        const Missing m = missing_of(need);
        const Slot slot = slot_of(need);
        if (slot != none && residency_.at(pool_of(need), slot).state == SlotState::ready) {
            queue_.compute_us += device_us(speeds, m);
            continue;
        }
        if (host_.hybrid == Hybrid::by_speed && host_.has && !host_.has(layer_, need.expert)) {
            any_far = true;  // the file would have to be read for the host, too
            queue_.copy_us += double(m.bytes_left) * speeds.link_us_per_byte;
            queue_.compute_us += device_us(speeds, m);
            continue;
        }
        need.missing = m;
        missing.push_back(m);
        needs.push_back(&need);
    }
    queue_.copy_us += double(desk_.begun_bytes(speeds.n_copy, layer_)) * speeds.link_us_per_byte;
    const HostPlan plan = host_share(host_.hybrid, speeds, missing, queue_);
    for (size_t turn = 0; turn < plan.order.size(); turn++) {
        needs[plan.order[turn]]->host_turn = turn;
    }
    LayerCounts & counts = residency_.counts(layer_);
    size_t n_host = 0;
    for (size_t i = 0; i < needs.size(); i++) {
        if (!plan.on_host[i]) {
            continue;
        }
        n_host++;
        needs[i]->on_host = true;
        counts.on_host++;
        counts.host_rows += uint64_t(needs[i]->n_token);
        if (const Slot slot = slot_of(*needs[i]); slot != none) {
            residency_.set_pinned(pool_of(*needs[i]), slot, false);  // it may still come, for others
        }
    }
    all_on_host_ = n_host > 0 && n_host == needs.size() && !any_far;
    shares_ = host_.hybrid == Hybrid::by_speed && n_host > 0 && n_host < needs.size();
}

// The host's share, in the order in which it is to compute it.
void OrderedScheduler::begin_on_host(Commands & out) {
    std::vector<Need *> on_host;
    for (Need & need : needs_) {
        if (need.on_host) {
            on_host.push_back(&need);
        }
    }
    std::stable_sort(on_host.begin(), on_host.end(),
                     [](const Need * a, const Need * b) { return a->host_turn < b->host_turn; });
    for (Need * need : on_host) {
        need->issued = true;
        out.push_back(Compute{layer_, need->expert, need->part, none});
    }
}

Missing OrderedScheduler::missing_of(const Need & need) const {
    const Place place{layer_, need.part};
    const Slot slot = slot_of(need);
    const uint32_t all = residency_.all_chunks(layer_);
    const uint32_t arrived = slot == none ? 0 : residency_.at(pool_of(need), slot).arrived;
    return {residency_.bytes_of(place, all), residency_.bytes_of(place, all & ~arrived), need.n_token};
}

// For what is copied now.
double OrderedScheduler::planned_device_us() const {
    std::vector<const Need *> copied;
    for (const Need & need : needs_) {
        if (!need.on_host && need.missing.bytes > 0) {
            copied.push_back(&need);
        }
    }
    if (!shares_ || copied.empty()) {
        return 0;
    }
    std::sort(copied.begin(), copied.end(), [](const Need * a, const Need * b) { return a->host_turn < b->host_turn; });
    std::vector<Missing> missing;
    for (const Need * need : copied) {
        missing.push_back(need->missing);
    }
    return device_side_us(host_.speeds[size_t(layer_)], missing, queue_);
}

// Whether what was brought for the layer has saved the host more time by hits than it cost.
bool OrderedScheduler::copies_pay(const Need & need) const {
    const HostSpeeds & speeds = host_.speeds[size_t(layer_)];
    const LayerCounts & counts = residency_.counts(layer_);
    const uint64_t n_request = counts.hits + counts.late + counts.misses;
    const double n_hit = double(counts.hits) + double(n_request) / requests_per_hit;
    const double copied_us = double(counts.bytes_read) * speeds.link_us_per_byte;
    return cost_of_copies * copied_us < n_hit * host_us(speeds, missing_of(need));
}

// What the host has computed is brought too, for the next time, where nobody waits for the link: into a
// free slot, or in place of what is less worth keeping, while that pays.
void OrderedScheduler::keep_for_later(const Need & need, Commands & out) {
    const Pool pool = pool_of(need);
    if (!all_on_host_ || desk_.any_open() || slot_of(need) != none || is_buffer(pool)) {
        return;
    }
    Slot slot = residency_.free_slot({layer_, need.part}, need.expert);
    if (slot == none && host_.hybrid == Hybrid::by_speed && !residency_.is_whole(layer_) && copies_pay(need)) {
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

}  // namespace outrider
