// The decision of an allocation: the slots of each layer, and how its experts are cut.
#pragma once

#include "core/types.h"

namespace outrider {

struct PoolLayout {
    int32_t n_slot = 0;
    // Experts pass through and leave when they are computed: no cache.
    bool buffer = false;
};

struct LayerLayout {
    // The top's share of an expert's hidden width: i / Shape::cuts(). MoEpic's theta.
    double top_share = 1;
    // [part]: the pool that holds this layer's parts; `none` for an empty part
    std::array<Pool, 2> pool{none, none};
    // The pool through which a prompt's experts pass beside the layer's own slots, or `none`.
    Pool stage = none;

    Pool pool_of(Part part) const { return part == Part::staged ? stage : pool[size_t(part)]; }
    bool is_cut() const { return pool[0] != none && pool[1] != none; }
};

struct Layout {
    std::vector<PoolLayout> pools;
    std::vector<LayerLayout> layers;  // [layer]

    // One pool for each layer, experts whole.
    static Layout per_layer(const std::vector<int32_t> & n_slot);

    // Bytes of one chunk of one part of an expert.
    uint64_t chunk_bytes(const Shape & shape, Layer layer, Part part, Chunk chunk) const;
    // The same layout with stages: of n_slot slots for each kind, but no more than two layers can use. A layer gets one
    // if it lacks slots for some of its experts, is not cut, and its slots are no buffer.
    Layout staged(const Shape & shape, int32_t n_slot) const;

    // Bytes of all slots without the stages. A slot is as large as the largest part that its pool may hold.
    uint64_t bytes(const Shape & shape) const;
    uint64_t stage_bytes(const Shape & shape) const;
    // Whether the layer's own pool has a slot for every expert. Then expert i is in slot i.
    bool is_whole(const Shape & shape, Layer layer) const;
    bool any_cut() const;
    // Throws std::invalid_argument for a layout that does not fit the shape: a layer without room for one expert, a
    // pool of layers of different kinds, a share at which the tensors cannot be cut.
    void validate(const Shape & shape) const;

  private:
    uint64_t pool_bytes(const Shape & shape, Pool pool) const;
};

}  // namespace outrider
