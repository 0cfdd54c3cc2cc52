// Which slots there are, and how each layer's experts are cut: what an allocation decides.
#pragma once

#include "types.h"

namespace outrider {

struct PoolLayout {
    int32_t n_slot = 0;
    // What was computed leaves first: slots to pass through, not a cache.
    bool buffer = false;
};

struct LayerLayout {
    // The share of an expert's hidden width that is its top part: i / Shape::cuts(). MoEpic's theta.
    double top_share = 1;
    // [part]: whose slots hold this layer's parts; `none` where the part is empty
    std::array<Pool, 2> pool{none, none};
    // Whose slots a prompt's experts pass through beside those; `none`: only through the layer's own.
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
    // The same with a stage of n_slot slots for all layers of a kind that lack slots for some of their
    // experts, but no more than two of them can use. Cut experts, and slots that are buffers, get none.
    Layout staged(const Shape & shape, int32_t n_slot) const;

    // Bytes of all slots together but the stages'; a slot of a pool is as large as the largest part that it
    // may hold.
    uint64_t bytes(const Shape & shape) const;
    uint64_t stage_bytes(const Shape & shape) const;
    // Whether all experts of the layer have room in slots that no other layer uses: then expert i is in slot i.
    bool is_whole(const Shape & shape, Layer layer) const;
    bool any_cut() const;
    // Throws std::invalid_argument where it does not fit the shape: a layer without room for one
    // expert, a pool that layers of different kinds share, a share that the tensors' blocks forbid.
    void validate(const Shape & shape) const;

  private:
    uint64_t pool_bytes(const Shape & shape, Pool pool) const;
};

}  // namespace outrider
