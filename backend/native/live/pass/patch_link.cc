// How fast experts come when nothing else is done: the bound that no schedule can beat.
#include <algorithm>
#include <chrono>
#include <random>
#include <stdexcept>

#include "live/pass/patch.h"

namespace outrider {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

}  // namespace

double Patch::measure_link(double seconds, bool by_chunk) {
    std::lock_guard lock(mutex_);
    if (!core_) {
        throw std::runtime_error("The expert cache has no memory");
    }
    const Residency & residency = core_->residency();
    for (Pool pool = 0; pool < residency.n_pool(); pool++) {
        for (Slot slot = 0; slot < residency.n_slot(pool); slot++) {
            if (residency.at(pool, slot).state != SlotState::free) {
                throw std::runtime_error("The speed of copies is measured before anything is cached");
            }
        }
    }
    std::mt19937 random(1);
    Ticket ticket = 0;
    uint64_t n_byte = 0;
    const auto collect = [&](size_t n_left) {
        while (pool_->n_open() > n_left) {
            const auto arrival = pool_->wait_arrival(std::chrono::seconds(1));
            if (arrival && !arrival->error.empty()) {
                pool_->drain();
                throw std::runtime_error(arrival->error);
            }
        }
    };
    const auto began = Clock::now();
    for (Layer layer = 0; seconds_since(began) < seconds; layer = (layer + 1) % graph_.shape.n_layer) {
        const int32_t n_chunk = by_chunk ? residency.n_chunk(layer) : 1;
        const Pool pool = residency.pool({layer, Part::top});
        const int32_t n_expert = std::min(graph_.shape.n_expert_used, residency.n_slot(pool));
        const int32_t first = int32_t(random() % uint32_t(graph_.shape.n_expert));
        for (int32_t i = 0; i < n_expert; i++) {
            const Expert expert = (first + i * 37) % graph_.shape.n_expert;  // apart, where it can be
            for (Chunk chunk = 0; chunk < n_chunk; chunk++) {
                const Copy copy{++ticket, layer, expert, Part::top, by_chunk ? chunk : whole_expert, i, Urgency::high};
                n_byte += slab_->bytes_of(copy);
                pool_->submit(copy);
            }
        }
        // The next layer's begin while the last of this one's end, where they have other slots.
        const Pool next = residency.pool({(layer + 1) % graph_.shape.n_layer, Part::top});
        collect(next == pool ? 0 : size_t(n_expert) * size_t(n_chunk) / 2);
    }
    collect(0);
    return double(n_byte) / seconds_since(began);
}

}  // namespace outrider
