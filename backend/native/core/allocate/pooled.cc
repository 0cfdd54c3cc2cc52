// Slots shared by all layers of a kind.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "core/allocate/registry.h"
#include "core/allocate/split.h"

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

// One pool for all layers (MoE-Infinity, Algorithm 1: one cache for the whole model), one per kind
// where layers' experts differ in shape. Each kind gets its share of the bytes, and at least the
// experts of one token. Number of the spec: buffer, 1: computed experts are released (Klotski, section 5).
Layout allocate_one_pool(const Spec & spec, const Shape & shape, double cache_rate) {
    const std::vector<int32_t> kinds = kinds_of(shape);
    const std::vector<Kind> all = gather(shape, kinds);
    auto rest_bytes = double(rate_bytes(shape, cache_rate));
    double open_bytes = 0;  // of the experts of kinds that have no slots yet
    std::vector<size_t> order;
    for (size_t k = 0; k < all.size(); k++) {
        open_bytes += double(all[k].slot_bytes()) * double(all[k].n_expert);
        order.push_back(k);
    }
    // The smallest kinds first: those whose share is below their minimum take the minimum, and the others divide the
    // rest.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a].n_expert < all[b].n_expert; });
    std::vector<int32_t> n_slot(all.size());
    for (size_t k : order) {
        const auto slot_bytes = double(all[k].slot_bytes());
        const double share = open_bytes > 0 ? std::max(rest_bytes, 0.0) / open_bytes : 1;
        n_slot[k] = clamped(uint64_t(share * double(all[k].n_expert) * (1 + 1e-12)), shape, all[k]);
        rest_bytes -= slot_bytes * n_slot[k];
        open_bytes -= slot_bytes * double(all[k].n_expert);
    }
    return layout_of(kinds, n_slot, spec.number("buffer", 0) != 0);
}

// Klotski (section 6.1): experts pass through a buffer that the layers of a kind share, and the memory left over keeps
// whole layers, the first ones of the model. Of each kind, the buffer has room for the experts of `window` layers, by
// default 1, and for those that are fetched ahead of the next gate. What is too little for a layer enlarges the buffer.
Layout allocate_klotski(const Spec & spec, const Shape & shape, double cache_rate) {
    const double window = spec.number("window", 1);
    if (!(window >= 0)) {
        throw std::invalid_argument("The number window of the allocation is below 0");
    }
    Layout layout = allocate_one_pool({"one_pool", {{"buffer", 1.0}}}, shape, cache_rate);
    const auto n_buffer = int32_t(std::min(window * shape.n_expert, 1e9)) + shape.n_expert_used;
    for (Layer l = 0; l < shape.n_layer; l++) {
        PoolLayout & buffer = layout.pools[size_t(layout.layers[size_t(l)].pool[0])];
        if (buffer.n_slot - shape.n_expert >= n_buffer) {
            buffer.n_slot -= shape.n_expert;
            layout.layers[size_t(l)].pool[0] = Pool(layout.pools.size());
            layout.pools.push_back({shape.n_expert, false});
        }
    }
    return layout;
}

// DuoServe-MoE: experts pass through `k_slots` slots, at any rate, and none is kept, for a low peak of memory. Fewer if
// the rate does not allow that many, but at least those of one token.
Layout allocate_stream(const Spec & spec, const Shape & shape, double cache_rate) {
    const double k_slots = spec.number("k_slots", 2.0 * shape.n_expert_used);
    if (!(k_slots >= 1)) {
        throw std::invalid_argument("The number k_slots of the allocation is below 1");
    }
    const auto n_slot = uint64_t(std::min(k_slots, double(shape.n_layer) * shape.n_expert));
    const std::vector<int32_t> kinds = kinds_of(shape);
    const uint64_t budget_bytes = rate_bytes(shape, cache_rate);
    const std::vector<Kind> all = gather(shape, kinds);
    uint64_t row_bytes = 0;  // of one slot of every kind
    for (const Kind & kind : all) {
        row_bytes += kind.slot_bytes();
    }
    const uint64_t fitting = row_bytes > 0 ? budget_bytes / row_bytes : n_slot;
    std::vector<int32_t> n_slots;
    for (const Kind & kind : all) {
        n_slots.push_back(clamped(std::min(n_slot, fitting), shape, kind));
    }
    return layout_of(kinds, n_slots, true);
}

}  // namespace outrider
