#include "layout.h"

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

uint64_t Layout::chunk_bytes(const Shape & shape, Layer layer, Part part, Chunk chunk) const {
    const uint64_t whole = shape.chunk_bytes[layer][chunk];
    const auto top = uint64_t(std::llround(double(whole) * layers[layer].top_share));
    return part == Part::top ? top : whole - top;
}

uint64_t Layout::bytes(const Shape & shape) const {
    uint64_t sum = 0;
    for (Pool p = 0; p < Pool(pools.size()); p++) {
        std::vector<uint64_t> slot;  // [chunk]
        for (Layer l = 0; l < shape.n_layer; l++) {
            for (Part part : parts) {
                if (layers[l].pool[size_t(part)] != p) {
                    continue;
                }
                slot.resize(std::max(slot.size(), shape.chunk_bytes[l].size()));
                for (Chunk c = 0; c < Chunk(shape.chunk_bytes[l].size()); c++) {
                    slot[c] = std::max(slot[c], chunk_bytes(shape, l, part, c));
                }
            }
        }
        sum += uint64_t(pools[p].n_slot) * std::accumulate(slot.begin(), slot.end(), uint64_t(0));
    }
    return sum;
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
    }
}

}  // namespace outrider
