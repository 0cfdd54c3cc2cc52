#include "core/walk.h"

#include <algorithm>
#include <utility>

namespace outrider {

void Walk::begin_pass() {
    aborted_ = false;
    collect();
}

void Walk::tell_of(const PassBegan & event) {
    for (size_t i = 0; i < event.sequences.size(); i++) {
        const int32_t sequence = event.sequences[i];
        if (sequence == 0 || (i > 0 && event.sequences[i - 1] == sequence)) {
            continue;
        }
        const auto it = std::ranges::find(sequences_, sequence);
        if (it != sequences_.end()) {
            std::rotate(it, it + 1, sequences_.end());
            continue;
        }
        core_.handle(RequestBegan{sequence});
        if (sequences_.size() == most_sequences_) {
            sequences_.erase(sequences_.begin());
        }
        sequences_.push_back(sequence);
    }
    tell(event);
}

void Walk::begin_layer() {
    require(state_ == State::over && computing_.empty(), "the layer before is over");
    collect();
    ready_.clear();
    n_needed_ = 0;
    state_ = State::begun;
}

void Walk::route(const Routing & routing, bool gathers, Obey when) {
    require(state_ == State::begun, "a layer begins before it is routed");
    layer_ = routing.layer;
    note(Reached{layer_}, when);
    note(Routed{routing}, when);
    obey();
    gathers_ = gathers && routing.n_token == 1 && has_slots();
    state_ = State::routed;
}

// Return whether the layer has slots for all that it needs.
bool Walk::has_slots() const {
    return std::ranges::none_of(parts, [&](Part part) {
        const Pool pool = layout().pool_of(part);
        return pool != none && size_t(core_.layout().pools[size_t(pool)].n_slot) < n_needed_;
    });
}

Walk::Step Walk::next() {
    if (state_ == State::routed) {
        // The bottom of a cut expert follows when its top is computed.
        if (gathers_ && ready_.size() < n_part() * n_needed_ && driver_.copies()) {
            return Step::wait;
        }
        const bool own_slots = std::ranges::none_of(ready_, [](const Compute & c) { return c.part == Part::staged; });
        // llama.cpp's own nodes cannot compute experts that are cut.
        const bool at_once = has_all() && own_slots && !layout().is_cut();
        if (!at_once) {
            state_ = State::waves;
            return Step::waves;
        }
        state_ = State::over;
        computing_.swap(ready_);
        return Step::slots;
    }
    if (state_ == State::waves) {
        require(computing_.empty(), "a wave is computed before the next one");
        collect();
        share_with_host();
        if (!ready_.empty()) {
            computing_.swap(ready_);
            return Step::wave;
        }
        if (!core_.idle()) {
            return Step::wait;
        }
        state_ = State::over;
    }
    return Step::over;
}

void Walk::waited(const std::optional<CopyEnd> & end) {
    if (end) {
        note(*end);
    }
    collect();
}

void Walk::computed(Obey when) {
    for (const Compute & c : computing_) {
        note(Computed{c.layer, c.expert, c.part}, when);
    }
    computing_.clear();
    obey();
}

void Walk::abort() {
    computing_.clear();
    ready_.clear();
    commands_.clear();
    state_ = State::over;
    aborted_ = true;
    tell(Aborted{});
}

void Walk::collect() {
    while (const auto end = driver_.take()) {
        note(*end);
    }
}

// Report the experts that the host has computed; then let the core balance the shares.
void Walk::share_with_host() {
    while (const auto c = driver_.take_from_host()) {
        tell(Computed{c->layer, c->expert, c->part});
    }
    if (const auto us = driver_.caught_up_us()) {
        tell(CaughtUp{*us});
    }
}

void Walk::note(const CopyEnd & end) { end.failed ? tell(Failed{end.ticket}) : tell(Copied{end.ticket}); }

void Walk::note(const Event & event, Obey when) {
    core_.handle(event, commands_);
    if (when == Obey::each) {
        obey();
    }
}

// Obey the core's commands, also those that it adds meanwhile.
void Walk::obey() {
    for (size_t i = 0; i < commands_.size(); i++) {
        // Copy the command's fields before the list grows.
        if (const auto * compute = std::get_if<Compute>(&commands_[i])) {
            compute->slot == none ? driver_.compute_on_host(*compute) : ready_.push_back(*compute);
        } else if (const auto * copy = std::get_if<Copy>(&commands_[i])) {
            if (const auto end = driver_.submit(*copy, gave_up_)) {
                core_.handle(end->failed ? Event(Failed{end->ticket}) : Event(Copied{end->ticket}), commands_);
            }
        } else if (const auto * cancel = std::get_if<Cancel>(&commands_[i])) {
            const Ticket ticket = cancel->ticket;
            if (driver_.cancel(ticket)) {
                core_.handle(Cancelled{ticket}, commands_);
            }
        } else if (const auto * back = std::get_if<Withdraw>(&commands_[i])) {
            const auto [layer, expert] = *back;
            if (driver_.withdraw(expert)) {
                core_.handle(Withdrawn{layer, expert}, commands_);
            }
        } else if (const auto * order = std::get_if<Order>(&commands_[i])) {
            n_needed_ = order->experts.size();
        } else {
            gave_up_ = true;
        }
    }
    commands_.clear();
    driver_.submitted();
    // Not earlier: the core relies on the copies that it ordered after it gave up.
    if (std::exchange(gave_up_, false) && !aborted_) {
        driver_.gave_up();
    }
}

}  // namespace outrider
