#include "sim/links.h"

#include <algorithm>
#include <cmath>

namespace outrider {
namespace {

constexpr double instant = 1e15;  // bytes in a microsecond

double speed(double bytes_per_us) { return bytes_per_us > 0 ? bytes_per_us : instant; }

}  // namespace

Links::Links(const Core & core, const Machine & machine)
    : shape_(core.shape()),
      joins_(machine.joined_bytes > 0),
      link_(speed(machine.link_bytes_per_us), machine.link_latency_us, machine.n_link, machine.joined_bytes) {
    if (const HostLevel * host = core.host()) {
        file_.emplace(speed(machine.file_bytes_per_us), machine.file_latency_us, machine.n_file, machine.joined_bytes);
        for (Layer l = 0; l < shape_.n_layer; l++) {
            here_.emplace_back(size_t(host->n_slot(l)), 0);
            for (Slot s = 0; s < host->n_slot(l); s++) {
                here_.back()[size_t(s)] = host->residency().at(l, s).arrived;
            }
        }
    }
}

uint32_t Links::mask_of(const Copy & copy) const {
    return copy.chunk == whole_expert ? (1u << shape_.chunk_bytes[copy.layer].size()) - 1 : 1u << copy.chunk;
}

// Names the range of the file that has the part's chunks.
int64_t Links::range_of(const Copy & copy) const {
    const int64_t place = int64_t(copy.layer) * int64_t(n_place) + int64_t(copy.part);
    return joins_ ? place * shape_.n_expert + copy.expert : Link::apart;
}

void Links::submit(const Copy & copy, double n_bytes) {
    if (copy.route == Route::file_to_host) {
        here_[copy.layer][copy.slot] &= ~mask_of(copy);
        reading_.push_back({copy, n_bytes});
        file_->submit(copy.ticket, copy.urgency, n_bytes, range_of(copy));
    } else if (copy.route == Route::host_to_slot) {
        const uint32_t mask = mask_of(copy);
        if ((here_[copy.layer][copy.from_slot] & mask) == mask) {
            link_.submit(copy.ticket, copy.urgency, n_bytes);
        } else {
            waiting_.push_back({copy, n_bytes});
        }
    } else {
        (file_ ? *file_ : link_).submit(copy.ticket, copy.urgency, n_bytes, range_of(copy));
    }
}

void Links::begin() {
    link_.begin();
    if (file_) {
        file_->begin();
    }
}

bool Links::cancel(Ticket ticket) {
    const auto is = [&](const Sent & s) { return s.copy.ticket == ticket; };
    if (std::erase_if(waiting_, is) > 0 || link_.cancel(ticket)) {
        return true;
    }
    if (file_ && file_->cancel(ticket)) {
        std::erase_if(reading_, is);
        return true;
    }
    return false;
}

void Links::advance(double until_us) {
    if (!file_) {
        link_.advance(until_us);
        return;
    }
    for (double next; (next = std::min(link_.next_event_us(), file_->next_event_us())) <= until_us;) {
        step(next);
    }
    step(until_us);
}

bool Links::advance_to_arrival(double limit_us) {
    if (!file_) {
        return link_.advance_to_arrival(limit_us);
    }
    while (arrivals_.empty()) {
        const double next = std::min(link_.next_event_us(), file_->next_event_us());
        if (!std::isfinite(next) || next > limit_us) {
            if (std::isfinite(limit_us)) {
                step(limit_us);
            }
            return false;
        }
        step(next);
    }
    return true;
}

bool Links::take_arrival(Ticket & ticket) {
    if (!file_) {
        return link_.take_arrival(ticket);
    }
    if (arrivals_.empty()) {
        return false;
    }
    ticket = arrivals_.front();
    arrivals_.pop_front();
    return true;
}

// REQUIRES: a host store; no event on either link before `at_us`.
void Links::step(double at_us) {
    link_.advance(at_us);
    file_->advance(at_us);
    Ticket ticket;
    while (link_.take_arrival(ticket)) {
        arrivals_.push_back(ticket);
    }
    while (file_->take_arrival(ticket)) {
        arrivals_.push_back(ticket);
        pass_on(ticket);
    }
}

// Submits the copies that waited for this one from the file.
void Links::pass_on(Ticket ticket) {
    const auto it =
        std::find_if(reading_.begin(), reading_.end(), [&](const Sent & s) { return s.copy.ticket == ticket; });
    if (it == reading_.end()) {
        return;  // straight into a slot
    }
    const Copy read = it->copy;
    reading_.erase(it);
    uint32_t & here = here_[read.layer][read.slot];
    here |= mask_of(read);
    std::erase_if(waiting_, [&](const Sent & w) {
        const uint32_t mask = mask_of(w.copy);
        if (w.copy.layer != read.layer || w.copy.from_slot != read.slot || (here & mask) != mask) {
            return false;
        }
        link_.submit(w.copy.ticket, w.copy.urgency, w.n_bytes);
        return true;
    });
    link_.begin();
}

}  // namespace outrider
