#include "core/layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace outrider {

uint64_t Shape::expert_bytes(Layer layer) const {
    return std::accumulate(chunk_bytes[layer].begin(), chunk_bytes[layer].end(), uint64_t(0));
}

bool Shape::same_kind(Layer a, Layer b) const {
    return kind.empty() ? chunk_bytes[a] == chunk_bytes[b] : kind[a] == kind[b];
}

Layout Layout::per_layer(const std::vector<int32_t> & n_slot) {
    Layout layout;
    for (size_t l = 0; l < n_slot.size(); l++) {
        layout.pools.push_back({n_slot[l], false});
        layout.layers.push_back({1.0, {Pool(l), none}});
    }
    return layout;
}

Layout Layout::staged(const Shape & shape, int32_t n_slot) const {
    Layout result = *this;
    std::vector<int32_t> n_missing(size_t(shape.n_layer), 0);
    for (Layer l = 0; l < shape.n_layer; l++) {
        const LayerLayout & layer = layers[l];
        if (!layer.is_cut() && layer.pool[0] != none && !pools[layer.pool[0]].buffer) {
            n_missing[l] = std::max(shape.n_expert - pools[layer.pool[0]].n_slot, 0);
        }
    }
    for (Layer first = 0; first < shape.n_layer; first++) {
        if (n_missing[first] == 0 || result.layers[first].stage != none) {
            continue;
        }
        int32_t n_most = 0;
        for (Layer l = first; l < shape.n_layer; l++) {
            if (n_missing[l] > 0 && shape.same_kind(first, l)) {
                result.layers[l].stage = Pool(result.pools.size());
                n_most = std::max(n_most, 2 * n_missing[l]);
            }
        }
        result.pools.push_back({std::min(n_slot, n_most), true});
    }
    return n_slot > 0 ? result : *this;
}

uint64_t Layout::chunk_bytes(const Shape & shape, Layer layer, Part part, Chunk chunk) const {
    const uint64_t whole = shape.chunk_bytes[layer][chunk];
    const auto top = uint64_t(std::llround(double(whole) * layers[layer].top_share));
    return part == Part::staged ? whole : part == Part::top ? top : whole - top;
}

uint64_t Layout::pool_bytes(const Shape & shape, Pool pool) const {
    std::vector<uint64_t> slot;  // [chunk]
    for (Layer l = 0; l < shape.n_layer; l++) {
        for (Part part : {Part::top, Part::bottom, Part::staged}) {
            if (layers[l].pool_of(part) != pool) {
                continue;
            }
            slot.resize(std::max(slot.size(), shape.chunk_bytes[l].size()));
            for (Chunk c = 0; c < Chunk(shape.chunk_bytes[l].size()); c++) {
                slot[c] = std::max(slot[c], chunk_bytes(shape, l, part, c));
            }
        }
    }
    return uint64_t(pools[pool].n_slot) * std::accumulate(slot.begin(), slot.end(), uint64_t(0));
}

uint64_t Layout::bytes(const Shape & shape) const {
    uint64_t sum = 0;
    for (Pool p = 0; p < Pool(pools.size()); p++) {
        sum += pool_bytes(shape, p);
    }
    return sum - stage_bytes(shape);
}

uint64_t Layout::stage_bytes(const Shape & shape) const {
    uint64_t sum = 0;
    for (Pool p = 0; p < Pool(pools.size()); p++) {
        const bool is_stage = std::any_of(layers.begin(), layers.end(), [&](const auto & l) { return l.stage == p; });
        sum += is_stage ? pool_bytes(shape, p) : 0;
    }
    return sum;
}

bool Layout::is_whole(const Shape & shape, Layer layer) const {
    const Pool pool = layers[layer].pool[0];
    if (layers[layer].is_cut() || pool == none || pools[pool].buffer || pools[pool].n_slot != shape.n_expert) {
        return false;
    }
    return std::count_if(layers.begin(), layers.end(), [&](const auto & l) { return l.pool[0] == pool; }) == 1;
}

bool Layout::any_cut() const {
    return std::any_of(layers.begin(), layers.end(), [](const LayerLayout & l) { return l.is_cut(); });
}

void Layout::validate(const Shape & shape) const {
    const auto require = [](bool condition, const std::string & what) {
        if (!condition) {
            throw std::invalid_argument(what);
        }
    };
    require(int32_t(layers.size()) == shape.n_layer, "The layout has another number of layers than the model");
    std::vector<Layer> first(pools.size(), none);  // layer of each pool
    for (Layer l = 0; l < shape.n_layer; l++) {
        const LayerLayout & layer = layers[l];
        require(layer.pool[0] != none || layer.pool[1] != none, "A layer has no slots");
        require(layer.top_share >= 0 && layer.top_share <= 1, "A part of an expert is 0 to 1 of it");
        require((layer.top_share > 0) == (layer.pool[0] != none) && (layer.top_share < 1) == (layer.pool[1] != none),
                "A part of an expert has bytes if and only if it has slots");
        const double cuts = layer.top_share * shape.cuts(l);
        require(std::abs(cuts - std::round(cuts)) < 1e-6, "An expert is cut within a block of its weights");
        for (Part part : parts) {
            const Pool p = layer.pool[size_t(part)];
            if (p == none) {
                continue;
            }
            require(p >= 0 && p < Pool(pools.size()), "A layer uses slots that do not exist");
            require(pools[p].n_slot > 0, "A layer has no slots");
            require(first[p] == none || shape.same_kind(first[p], l), "Layers of different kinds share their slots");
            first[p] = l;
        }
        if (layer.stage != none) {
            require(layer.stage >= 0 && layer.stage < Pool(pools.size()) && pools[layer.stage].n_slot > 0 &&
                        pools[layer.stage].buffer && !layer.is_cut() && layer.pool[0] != none,
                    "A stage is a buffer for whole experts beside a layer's own slots");
        }
    }
    for (const LayerLayout & a : layers) {
        for (size_t l = 0; l < layers.size() && a.stage != none; l++) {
            const bool same = layers[l].stage == a.stage;
            require(layers[l].pool[0] != a.stage && layers[l].pool[1] != a.stage, "A stage is nobody's own slots");
            require(!same || shape.same_kind(Layer(&a - layers.data()), Layer(l)),
                    "Layers of different kinds share their slots");
        }
    }
}

}  // namespace outrider
