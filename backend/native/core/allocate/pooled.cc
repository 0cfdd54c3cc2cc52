#include "pooled.h"

#include <algorithm>
#include <numeric>

#include "split.h"

namespace outrider {
namespace {

struct Kind {
    std::vector<uint64_t> chunk_bytes{};  // of a slot, the largest: Shape::kind may join layers that differ
    int64_t n_expert = 0;                 // in all its layers

    uint64_t slot_bytes() const { return std::accumulate(chunk_bytes.begin(), chunk_bytes.end(), uint64_t(0)); }
};

std::vector<Kind> gather(const Shape & shape, const std::vector<int32_t> & kinds) {
    std::vector<Kind> all;
    for (Layer l = 0; l < shape.n_layer; l++) {
        all.resize(std::max(all.size(), size_t(kinds[l]) + 1));
        Kind & kind = all[size_t(kinds[l])];
        kind.chunk_bytes.resize(std::max(kind.chunk_bytes.size(), shape.chunk_bytes[l].size()));
        for (size_t c = 0; c < shape.chunk_bytes[l].size(); c++) {
            kind.chunk_bytes[c] = std::max(kind.chunk_bytes[c], shape.chunk_bytes[l][c]);
        }
        kind.n_expert += shape.n_expert;
    }
    return all;
}

int32_t clamped(uint64_t n_slot, const Shape & shape, const Kind & kind) {
    return int32_t(std::clamp(int64_t(n_slot), int64_t(shape.n_expert_used), kind.n_expert));
}

Layout layout_of(const std::vector<int32_t> & kinds, const std::vector<int32_t> & n_slot, bool buffer) {
    Layout layout;
    for (int32_t n : n_slot) {
        layout.pools.push_back({n, buffer});
    }
    for (int32_t kind : kinds) {
        layout.layers.push_back({1.0, {Pool(kind), none}});
    }
    return layout;
}

}  // namespace

Layout allocate_one_pool(const Shape & shape, double cache_rate, bool buffer) {
    const std::vector<int32_t> kinds = kinds_of(shape);
    const uint64_t budget_bytes = rate_bytes(shape, cache_rate);
    const std::vector<Kind> all = gather(shape, kinds);
    double all_bytes = 0;
    for (const Kind & kind : all) {
        all_bytes += double(kind.slot_bytes()) * double(kind.n_expert);
    }
    std::vector<int32_t> n_slot;
    for (const Kind & kind : all) {
        const double part = double(budget_bytes) / std::max(all_bytes, 1.0);
        n_slot.push_back(clamped(uint64_t(part * double(kind.n_expert) + 1e-9), shape, kind));
    }
    return layout_of(kinds, n_slot, buffer);
}

Layout allocate_stream(const Shape & shape, double cache_rate, int32_t n_slot) {
    const std::vector<int32_t> kinds = kinds_of(shape);
    const uint64_t budget_bytes = rate_bytes(shape, cache_rate);
    const std::vector<Kind> all = gather(shape, kinds);
    uint64_t row_bytes = 0;  // of one slot of every kind
    for (const Kind & kind : all) {
        row_bytes += kind.slot_bytes();
    }
    const uint64_t fitting = row_bytes > 0 ? budget_bytes / row_bytes : uint64_t(n_slot);
    std::vector<int32_t> n_slots;
    for (const Kind & kind : all) {
        n_slots.push_back(clamped(std::min(uint64_t(n_slot), fitting), shape, kind));
    }
    return layout_of(kinds, n_slots, true);
}

}  // namespace outrider
