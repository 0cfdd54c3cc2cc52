// INVARIANT: if fewer than n_at_once_ copies are in flight, no high one waits; if fewer than n_low_, no low one;
// if none, none waits.
#include "sim/link.h"

#include <algorithm>
#include <limits>

namespace outrider {
namespace {

// The rounding error left of a copy that has ended.
constexpr double almost_no_bytes = 1e-6;

constexpr double small_copy_bytes = 256 << 10;  // as in live/io/transfer.cc

constexpr Ticket no_ticket = std::numeric_limits<Ticket>::max();

}  // namespace

Link::Link(double bytes_per_us, double latency_us, int32_t n_at_once, double joined_bytes)
    : bytes_per_us_(bytes_per_us),
      latency_us_(latency_us),
      n_at_once_(size_t(n_at_once)),
      joined_bytes_(joined_bytes),
      n_low_((n_at_once_ + 1) / 2) {}

void Link::submit(Ticket ticket, Urgency urgency, double n_bytes, int64_t range) {
    Queue & queue = urgency == Urgency::high ? high_ : urgency == Urgency::low ? low_ : spare_;
    queue.items.push_back({ticket, n_bytes, urgency == Urgency::spare ? apart : range});
}

bool Link::cancel(Ticket ticket) {
    for (Queue * queue : {&spare_, &low_, &high_}) {
        for (size_t i = queue->head; i < queue->items.size(); i++) {
            if (queue->items[i].ticket == ticket) {
                queue->items[i].ticket = no_ticket;
                return true;
            }
        }
    }
    return false;
}

void Link::advance(double until_us) {
    while (!running_.empty()) {
        const double next_us = next_event_us();
        if (next_us > until_us) {
            break;
        }
        step(next_us);
    }
    step(until_us);
}

bool Link::advance_to_arrival(double limit_us) {
    while (n_taken_ == arrivals_.size()) {
        const double next_us = running_.empty() ? std::numeric_limits<double>::infinity() : next_event_us();
        if (next_us == std::numeric_limits<double>::infinity() && limit_us == next_us) {
            return false;
        }
        if (next_us > limit_us) {
            step(limit_us);
            return false;
        }
        step(next_us);
    }
    return true;
}

bool Link::take_arrival(Ticket & ticket) {
    if (n_taken_ == arrivals_.size()) {
        arrivals_.clear();
        n_taken_ = 0;
        return false;
    }
    ticket = arrivals_[n_taken_++];
    return true;
}

void Link::begin() {
    while ((running_.size() < n_at_once_ && begin_next(high_, true)) ||
           (running_.size() < n_low_ && begin_next(low_, false)) ||
           (running_.size() < max_spare() && begin_next(spare_, false))) {
    }
}

// The copies in flight at which the next spare one waits.
size_t Link::max_spare() {
    const auto next = std::find_if(spare_.items.begin() + ptrdiff_t(spare_.head), spare_.items.end(),
                                   [](const Waiting & w) { return w.ticket != no_ticket; });
    return next != spare_.items.end() && next->n_bytes <= small_copy_bytes ? n_low_ : 1;
}

// Return whether a copy of the queue, with those that are read together with it, has begun.
bool Link::begin_next(Queue & queue, bool is_high) {
    Running next{{}, clock_us_ + latency_us_, 0};
    int64_t range = apart;
    for (; queue.head < queue.items.size(); queue.head++) {
        const Waiting & item = queue.items[queue.head];
        if (item.ticket == no_ticket) {
            continue;
        }
        if (!next.tickets.empty() &&
            (range == apart || item.range != range || (!is_high && next.n_bytes >= joined_bytes_))) {
            break;
        }
        range = item.range;
        next.tickets.push_back(item.ticket);
        next.n_bytes += item.n_bytes;
    }
    if (queue.head == queue.items.size()) {
        queue.items.clear();
        queue.head = 0;
    }
    if (next.tickets.empty()) {
        return false;
    }
    running_.push_back(std::move(next));
    return true;
}

double Link::next_event_us() const {
    size_t n_flowing = 0;
    double least_bytes = std::numeric_limits<double>::infinity();
    double next_us = std::numeric_limits<double>::infinity();
    for (const Running & r : running_) {
        if (r.flows_from_us > clock_us_) {
            next_us = std::min(next_us, r.flows_from_us);
        } else {
            n_flowing++;
            least_bytes = std::min(least_bytes, r.n_bytes);
        }
    }
    if (n_flowing > 0) {
        next_us = std::min(next_us, clock_us_ + least_bytes * double(n_flowing) / bytes_per_us_);
    }
    return next_us;
}

// REQUIRES: nothing ends or begins to flow before `at_us`.
void Link::step(double at_us) {
    const double passed_us = at_us - clock_us_;
    if (running_.empty()) {
        clock_us_ = at_us;
        return;
    }
    size_t n_flowing = 0;
    for (const Running & r : running_) {
        n_flowing += r.flows_from_us <= clock_us_;
    }
    const double n_moved = n_flowing > 0 ? passed_us * bytes_per_us_ / double(n_flowing) : 0;
    bool any_ended = false;
    for (Running & r : running_) {
        if (r.flows_from_us <= clock_us_) {
            r.n_bytes -= n_moved;
            // A rest below the clock's resolution would never end.
            if (r.n_bytes <= almost_no_bytes || at_us + r.n_bytes / bytes_per_us_ <= at_us) {
                any_ended = true;
                arrivals_.insert(arrivals_.end(), r.tickets.begin(), r.tickets.end());
                r.tickets.clear();
            }
        }
    }
    busy_us_ += passed_us;
    clock_us_ = at_us;
    if (any_ended) {
        std::erase_if(running_, [](const Running & r) { return r.tickets.empty(); });
        begin();
    }
}

}  // namespace outrider
