// What the host computes of a layer, and what it brings afterwards.
#include <algorithm>

#include "ordered.h"

namespace outrider {

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
    bool any_far = false;
    for (Need & need : needs_) {
        const Place place{layer_, need.part};
        const uint64_t bytes = residency_.bytes_of(place, residency_.all_chunks(layer_));
        const Slot slot = slot_of(need);
        const SlotInfo * info = slot == none ? nullptr : &residency_.at(pool_of(need), slot);
        if (info && info->state == SlotState::ready) {
            queue.compute_us += rows_us(speeds.device_us_per_byte, speeds.device_row_us_per_byte, bytes, need.n_token);
            continue;
        }
        const uint64_t bytes_left = bytes - (info ? residency_.bytes_of(place, info->arrived) : 0);
        if (host_.hybrid == Hybrid::by_speed && host_.has && !host_.has(layer_, need.expert)) {
            any_far = true;  // the file would have to be read for the host, too
            queue.copy_us += double(bytes_left) * speeds.link_us_per_byte;
            queue.compute_us += rows_us(speeds.device_us_per_byte, speeds.device_row_us_per_byte, bytes, need.n_token);
            continue;
        }
        missing.push_back({bytes, bytes_left, need.n_token});
        needs.push_back(&need);
    }
    queue.copy_us += double(desk_.begun_bytes(speeds.n_copy, layer_)) * speeds.link_us_per_byte;
    const auto [on_host, device_us] = host_share(host_.hybrid, speeds, missing, queue);
    planned_device_us_ = device_us;
    all_on_host_ = !needs.empty() && !any_far;
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

}  // namespace outrider
