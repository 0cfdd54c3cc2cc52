#include "live/pass/link_probe.h"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "live/ggml/clock.h"

namespace outrider {

double measure_link(Cache & cache, const Shape & shape, double seconds, bool by_chunk) {
    const Residency & residency = cache.core->residency();
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
        while (cache.pool->n_open() > n_left) {
            const auto arrival = cache.pool->wait_arrival(std::chrono::seconds(1));
            if (arrival && !arrival->error.empty()) {
                cache.pool->drain();
                throw std::runtime_error(arrival->error);
            }
        }
    };
    const uint64_t began_us = now_us();
    const auto seconds_passed = [&] { return double(now_us() - began_us) / 1e6; };
    for (Layer layer = 0; seconds_passed() < seconds; layer = (layer + 1) % shape.n_layer) {
        const int32_t n_chunk = by_chunk ? residency.n_chunk(layer) : 1;
        const Pool pool = residency.pool({layer, Part::top});
        const int32_t n_expert = std::min(shape.n_expert_used, residency.n_slot(pool));
        const int32_t first = int32_t(random() % uint32_t(shape.n_expert));
        for (int32_t i = 0; i < n_expert; i++) {
            const Expert expert = (first + i * 37) % shape.n_expert;  // not adjacent in the file
            for (Chunk chunk = 0; chunk < n_chunk; chunk++) {
                const Copy copy{++ticket, layer, expert, Part::top, by_chunk ? chunk : whole_expert, i, Urgency::high};
                n_byte += cache.slab->bytes_of(copy);
                cache.pool->submit(copy);
            }
        }
        cache.pool->begin();
        // The copies of two layers overlap if the layers have different slots.
        const Pool next = residency.pool({(layer + 1) % shape.n_layer, Part::top});
        collect(next == pool ? 0 : size_t(n_expert) * size_t(n_chunk) / 2);
    }
    collect(0);
    return double(n_byte) / seconds_passed();
}

}  // namespace outrider
