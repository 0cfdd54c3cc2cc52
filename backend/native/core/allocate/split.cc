#include "core/allocate/split.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace outrider {

uint64_t slot_bytes(const Shape & shape, int32_t n_slot) {
    uint64_t row_bytes = 0;
    for (Layer l = 0; l < shape.n_layer; l++) {
        row_bytes += shape.expert_bytes(l);
    }
    return row_bytes * uint64_t(n_slot);
}

std::vector<int32_t> kinds_of(const Shape & shape) {
    std::vector<int32_t> kinds;
    std::vector<Layer> first;  // [kind]
    for (Layer l = 0; l < shape.n_layer; l++) {
        const auto it = std::find_if(first.begin(), first.end(), [&](Layer f) { return shape.same_kind(f, l); });
        kinds.push_back(int32_t(it - first.begin()));
        if (it == first.end()) {
            first.push_back(l);
        }
    }
    return kinds;
}

double nearest_share(const Shape & shape, Layer layer, double share) {
    if (share <= 0) {
        return 0;
    }
    const int32_t n_cut = shape.cuts(layer);
    return double(std::clamp(int32_t(std::lround(share * n_cut)), 1, n_cut)) / n_cut;
}

uint64_t top_bytes(const Shape & shape, Layer layer, double share) {
    Layout layout;
    layout.layers.assign(size_t(layer) + 1, {share});
    uint64_t sum = 0;
    for (Chunk c = 0; c < Chunk(shape.chunk_bytes[layer].size()); c++) {
        sum += layout.chunk_bytes(shape, layer, Part::top, c);
    }
    return sum;
}

Layout split_layout(const Shape & shape, const Split & split) {
    const std::vector<int32_t> kinds = kinds_of(shape);
    Layout layout;
    layout.layers.resize(size_t(shape.n_layer));
    std::vector<Pool> bottoms;            // [kind]
    std::vector<int32_t> n_least, n_all;  // [kind]: bottoms without which it cannot compute; that there are
    for (Layer l = 0; l < shape.n_layer; l++) {
        LayerLayout & layer = layout.layers[l];
        layer.top_share = split.top_share[l];
        if (layer.top_share > 0) {
            layer.pool[size_t(Part::top)] = Pool(layout.pools.size());
            layout.pools.push_back({split.n_top[l], false});
        }
        if (layer.top_share < 1) {
            const auto kind = size_t(kinds[l]);
            if (kind >= bottoms.size()) {
                bottoms.resize(kind + 1, none);
                n_least.resize(kind + 1, 1);
                n_all.resize(kind + 1, 0);
            }
            n_least[kind] = std::max(n_least[kind], layer.top_share > 0 ? 1 : shape.n_expert_used);
            n_all[kind] += shape.n_expert;
        }
    }
    for (Layer l = 0; l < shape.n_layer; l++) {
        LayerLayout & layer = layout.layers[l];
        if (layer.top_share < 1) {
            const auto kind = size_t(kinds[l]);
            if (bottoms[kind] == none) {
                bottoms[kind] = Pool(layout.pools.size());
                layout.pools.push_back({std::clamp(split.n_bottom, n_least[kind], n_all[kind]), true});
            }
            layer.pool[size_t(Part::bottom)] = bottoms[kind];
        }
    }
    return layout;
}

int32_t fitting_n_bottom(const Shape & shape, Split split, uint64_t budget_bytes) {
    while (split.n_bottom > 1 && split_layout(shape, split).bytes(shape) > budget_bytes) {
        split.n_bottom--;
    }
    return split.n_bottom;
}

void hand_out(const Shape & shape, uint64_t budget_bytes, const Worth & worth, Split & split) {
    uint64_t used_bytes = split_layout(shape, split).bytes(shape);
    std::vector<uint64_t> slot_bytes;
    std::vector<double> next;  // [layer]: worth of one slot more
    const auto value = [&](Layer l) { return split.n_top[l] < shape.n_expert ? worth(l, split.n_top[l] + 1) : 0.0; };
    for (Layer l = 0; l < shape.n_layer; l++) {
        slot_bytes.push_back(top_bytes(shape, l, split.top_share[l]));
        next.push_back(slot_bytes[l] > 0 ? value(l) : 0.0);
    }
    for (;;) {
        Layer best = none;
        for (Layer l = 0; l < shape.n_layer; l++) {
            if (next[l] > 0 && used_bytes + slot_bytes[l] <= budget_bytes && (best == none || next[l] > next[best])) {
                best = l;
            }
        }
        if (best == none) {
            return;
        }
        split.n_top[best]++;
        used_bytes += slot_bytes[best];
        next[best] = value(best);
    }
}

void require_share(double value, const std::string & what) {
    if (!(value >= 0 && value <= 1)) {
        throw std::invalid_argument(what + " is not a share from 0 to 1");
    }
}

}  // namespace outrider
