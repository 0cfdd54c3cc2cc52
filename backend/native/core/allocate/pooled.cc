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
    uint64_t row_bytes = 0;               // of one expert of each of its layers

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
        kind.row_bytes += shape.expert_bytes(l);
    }
    return all;
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
// where layers' experts differ in shape, with the memory of its layers.
// Number of the spec: buffer, 1: computed experts are released (Klotski, section 5).
Layout allocate_one_pool(const Spec & spec, const Shape & shape, int32_t n_slot) {
    const std::vector<int32_t> kinds = kinds_of(shape);
    std::vector<int32_t> n_slots;
    for (const Kind & kind : gather(shape, kinds)) {
        n_slots.push_back(int32_t(uint64_t(n_slot) * kind.row_bytes / kind.slot_bytes()));
    }
    return layout_of(kinds, n_slots, spec.number("buffer", 0) != 0);
}

// Klotski (section 6.1): experts pass through a buffer that the layers of a kind share, and the memory left over
// keeps whole layers, the first ones of the model. For each kind, the buffer has room for the experts of `window`
// layers, by default 1, and for those that are fetched ahead of the next gate. What is too little for a layer
// enlarges the buffer.
Layout allocate_klotski(const Spec & spec, const Shape & shape, int32_t n_slot) {
    const double window = spec.number("window", 1);
    if (!(window >= 0)) {
        throw std::invalid_argument("The number window of the allocation is below 0");
    }
    Layout layout = allocate_one_pool({"one_pool", {{"buffer", 1.0}}}, shape, n_slot);
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

// DuoServe-MoE: experts pass through `k_slots` slots, however much memory there is, and none is kept, for a low peak of
// memory. Fewer if there is not room for that many, but at least those of one token.
Layout allocate_stream(const Spec & spec, const Shape & shape, int32_t n_slot) {
    const double k_slots = spec.number("k_slots", 2.0 * shape.n_expert_used);
    if (!(k_slots >= 1)) {
        throw std::invalid_argument("The number k_slots of the allocation is below 1");
    }
    const std::vector<int32_t> kinds = kinds_of(shape);
    const std::vector<Kind> all = gather(shape, kinds);
    uint64_t all_bytes = 0;  // of one slot of every kind
    for (const Kind & kind : all) {
        all_bytes += kind.slot_bytes();
    }
    const uint64_t n_fitting = slot_bytes(shape, n_slot) / all_bytes;
    std::vector<int32_t> n_slots;
    for (int32_t k = 0; k < int32_t(all.size()); k++) {
        const auto n_expert = double(shape.n_expert) * double(std::count(kinds.begin(), kinds.end(), k));
        const double n = std::min({k_slots, double(n_fitting), n_expert});
        n_slots.push_back(std::max(int32_t(n), shape.n_expert_used));
    }
    return layout_of(kinds, n_slots, true);
}

}  // namespace outrider
