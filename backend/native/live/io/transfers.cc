#include "live/io/transfers.h"

#include <algorithm>
#include <cassert>

#include "live/ggml/clock.h"

namespace outrider {

Transfers::Transfers(int n_running, CopyWork read, std::unique_ptr<ReadRing> ring, Store store,
                     std::unique_ptr<CopySchedule> schedule)
    : n_chunk_(std::move(store.n_chunk)), schedule_(std::move(schedule)) {
    for (const int32_t n : store.n_slot) {
        contents_.emplace_back(size_t(n));
    }
    for (const auto & [layer, slot] : store.kept) {
        contents_[size_t(layer)][size_t(slot)].here = (1u << n_chunk_[size_t(layer)]) - 1;
    }
    const auto take = [this](std::span<const Copy> copies, std::vector<Arrival> arrivals) {
        deliver(copies, std::move(arrivals));
    };
    if (!store.n_slot.empty()) {
        store.send.deliver = take;
        store.send.copy = [this, copy = std::move(store.copy)](std::span<const Copy> copies) {
            copy(copies, [&](ggml_backend_event_t event) { begun(copies, event); });
        };
        sends_ = std::make_unique<TransferPool>(n_running > 0 ? store.n_sending : 0, std::move(store.send));
    }
    read.deliver = take;
    reads_ = std::make_unique<TransferPool>(n_running, std::move(read), std::move(ring));
}

uint32_t Transfers::mask_of(const Copy & copy) const {
    return copy.chunk == whole_expert ? (1u << n_chunk_[size_t(copy.layer)]) - 1 : 1u << copy.chunk;
}

void Transfers::submit(const Copy & copy) {
    {
        const Lock lock(mutex_);
        n_open_++;
        if (copy.route == Route::file_to_host) {
            Content & c = content(copy.layer, copy.slot);
            c.here &= ~mask_of(copy);
            c.failed &= ~mask_of(copy);
        }
    }
    if (schedule_) {
        schedule_->submit(copy);
    } else {
        order(copy);
    }
}

void Transfers::order(const Copy & copy) {
    if (copy.route == Route::host_to_slot) {
        send_when_there(copy);
    } else {
        reads_->submit(copy);
    }
}

// Perform the copy that ends now, if any.
void Transfers::end_scheduled(bool waits) {
    const auto end = schedule_ ? schedule_->take(waits) : std::nullopt;
    if (end && end->fails) {
        const Lock lock(mutex_);
        arrivals_.push_back({end->copy.ticket, "The copy fails by its schedule"});
    } else if (end) {
        order(end->copy);
    }
}

void Transfers::send_when_there(const Copy & copy) {
    {
        const Lock lock(mutex_);
        const Content & c = content(copy.layer, copy.from_slot);
        const uint32_t mask = mask_of(copy);
        if (c.failed & mask) {
            arrivals_.push_back({copy.ticket, read_error_});
            arrived_.notify_all();
            return;
        }
        if ((c.here & mask) != mask) {
            waiting_.push_back(copy);
            return;
        }
    }
    sends_->submit(copy);
    sends_->begin();
}

// Copies have ended. Begin the copies that waited for them, or let them fail too.
void Transfers::deliver(std::span<const Copy> copies, std::vector<Arrival> arrivals) {
    std::vector<Copy> begin;
    {
        const Lock lock(mutex_);
        for (size_t i = 0; i < copies.size(); i++) {
            const Copy & copy = copies[i];
            const std::string error = arrivals[i].error;
            if (end_way(copy.ticket)) {
                continue;
            }
            arrivals_.push_back(std::move(arrivals[i]));
            if (copy.route != Route::file_to_host) {
                continue;
            }
            Content & c = content(copy.layer, copy.slot);
            (error.empty() ? c.here : c.failed) |= mask_of(copy);
            read_error_ = error.empty() ? read_error_ : error;
            std::erase_if(waiting_, [&](const Copy & w) REQUIRES(mutex_) {
                if (w.layer != copy.layer || w.from_slot != copy.slot) {
                    return false;
                }
                const uint32_t mask = mask_of(w);
                if (c.failed & mask) {
                    arrivals_.push_back({w.ticket, read_error_});
                    return true;
                }
                if ((c.here & mask) == mask) {
                    begin.push_back(w);
                    return true;
                }
                return false;
            });
        }
    }
    arrived_.notify_all();
    for (const Copy & copy : begin) {
        sends_->submit(copy);
    }
    if (!begin.empty()) {
        sends_->begin();
    }
}

// Copies are on their way, until deliver().
void Transfers::begun(std::span<const Copy> copies, ggml_backend_event_t event) {
    {
        const Lock lock(mutex_);
        for (const Copy & copy : copies) {
            on_their_way_.push_back({copy, event});
        }
        woken_ = woken_ || tells_begun_;
    }
    arrived_.notify_all();
}

// A copy has ended. Return whether it was handed over.
bool Transfers::end_way(Ticket ticket) {
    const auto it = std::ranges::find_if(on_their_way_, [&](const OnItsWay & o) { return o.copy.ticket == ticket; });
    if (it == on_their_way_.end()) {
        return false;
    }
    const bool was_handed_over = it->is_handed_over;
    on_their_way_.erase(it);
    handed_over_us_ = was_handed_over ? now_us() : handed_over_us_;
    return was_handed_over;
}

std::vector<Ticket> Transfers::hand_over(Layer layer, const std::function<bool(const Copy &)> & wanted,
                                         const std::function<void(ggml_backend_event_t)> & wait) {
    std::vector<Ticket> tickets;
    ggml_backend_event_t last = nullptr;  // copies that were sent together have the same event
    const Lock lock(mutex_);
    for (OnItsWay & o : on_their_way_) {
        if (!o.is_handed_over && o.copy.layer == layer && wanted(o.copy)) {
            if (o.event != last) {
                wait(o.event);
                last = o.event;
            }
            o.is_handed_over = true;
            tickets.push_back(o.copy.ticket);
            n_open_--;
        }
    }
    return tickets;
}

void Transfers::tell_begun(bool wanted) {
    const Lock lock(mutex_);
    tells_begun_ = wanted;
}

uint64_t Transfers::handed_over_us() const {
    const Lock lock(mutex_);
    const bool is_open = std::ranges::any_of(on_their_way_, [](const OnItsWay & o) { return o.is_handed_over; });
    return is_open ? now_us() : handed_over_us_;
}

bool Transfers::cancel(Ticket ticket) {
    const Lock lock(mutex_);
    const auto waits = [&](const Copy & c) { return c.ticket == ticket; };
    const bool gone = (schedule_ && schedule_->cancel(ticket)) || std::erase_if(waiting_, waits) > 0 ||
                      reads_->cancel(ticket) || (sends_ && sends_->cancel(ticket));
    n_open_ -= gone ? 1 : 0;
    return gone;
}

std::optional<Arrival> Transfers::pop() {
    if (arrivals_.empty()) {
        return std::nullopt;
    }
    Arrival a = std::move(arrivals_.front());
    arrivals_.pop_front();
    n_open_--;
    return a;
}

std::optional<Arrival> Transfers::try_arrival() {
    end_scheduled(false);
    reads_->collect(ReadRing::Time::min());
    const Lock lock(mutex_);
    return pop();
}

std::optional<Arrival> Transfers::wait_arrival(std::chrono::milliseconds timeout) {
    end_scheduled(true);
    Lock lock(mutex_);
    assert(n_open_ > 0);
    const auto until = std::chrono::steady_clock::now() + timeout;
    const auto is_there = [this]() REQUIRES(mutex_) { return !arrivals_.empty() || woken_; };
    while (!is_there() && std::chrono::steady_clock::now() < until) {
        bool collects = false;
        {
            const Unlocked unlocked(mutex_);
            collects = reads_->collect(until);
        }
        if (!collects) {
            arrived_.wait_until(lock.native(), until, is_there);
        }
    }
    woken_ = false;
    return pop();
}

void Transfers::wake() {
    assert(!has_ring());
    {
        const Lock lock(mutex_);
        woken_ = true;
    }
    arrived_.notify_all();
}

size_t Transfers::n_open() const {
    const Lock lock(mutex_);
    return n_open_;
}

void Transfers::drain() {
    if (schedule_) {
        schedule_->clear();
    }
    reads_->drain();
    {
        const Lock lock(mutex_);
        waiting_.clear();
    }
    if (sends_) {
        sends_->drain();
    }
    const Lock lock(mutex_);
    arrivals_.clear();
    on_their_way_.clear();
    n_open_ = 0;
}

}  // namespace outrider
