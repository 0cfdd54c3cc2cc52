#include "core/copy_schedule.h"

#include <algorithm>

#include "core/core.h"
#include "core/splitmix.h"

namespace outrider {

uint64_t CopySchedule::chance(Ticket ticket, uint64_t use) const {
    return splitmix(splitmix(splitmix(rule_.seed) + use) + ticket);
}

void CopySchedule::submit(const Copy & copy) {
    const uint64_t n = uint64_t(rule_.n_event) + 1;
    const uint64_t begins = core_.n_event() + chance(copy.ticket, 0) % n;
    open_.push_back({copy, begins, begins + chance(copy.ticket, 1) % n});
}

// Return whether no copy in flight still brings the bytes of this one.
bool CopySchedule::is_here(const Copy & copy) const {
    return copy.route != Route::host_to_slot || std::ranges::none_of(open_, [&](const Open & o) {
               const bool overlap =
                   o.copy.chunk == whole_expert || copy.chunk == whole_expert || o.copy.chunk == copy.chunk;
               return o.copy.route == Route::file_to_host && o.copy.layer == copy.layer &&
                      o.copy.slot == copy.from_slot && overlap;
           });
}

bool CopySchedule::cancel(Ticket ticket) {
    const auto it = std::ranges::find_if(open_, [&](const Open & o) { return o.copy.ticket == ticket; });
    if (it == open_.end() || (it->begins <= core_.n_event() && is_here(it->copy))) {
        return false;
    }
    open_.erase(it);
    return true;
}

std::optional<CopySchedule::End> CopySchedule::take(bool waits) {
    auto next = open_.end();
    for (auto it = open_.begin(); it != open_.end(); ++it) {
        const bool may_end = is_here(it->copy) && (waits || it->ends <= core_.n_event());
        if (may_end && (next == open_.end() || it->ends < next->ends)) {
            next = it;
        }
    }
    if (next == open_.end()) {
        return std::nullopt;
    }
    constexpr uint64_t whole = 1 << 20;
    const bool fails = next->copy.route == Route::file_to_slot &&
                       double(chance(next->copy.ticket, 2) % whole) < rule_.failing * double(whole);
    const End end{next->copy, fails};
    open_.erase(next);
    return end;
}

bool CopySchedule::stops() {
    const bool now = n_stop_ < rule_.stops.size() && core_.n_event() >= rule_.stops[n_stop_];
    n_stop_ += now ? 1 : 0;
    return now;
}

}  // namespace outrider
