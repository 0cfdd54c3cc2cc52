// Divides a token's graph just before each layer's first expert mat-mul, where the host must know the choice.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ggml.h"
#include "live/graph/moe_graph.h"

namespace outrider {

// The end of a piece: a layer's router, just before the layer's experts.
struct RoutedNodes {
    Layer layer;
    ggml_tensor * ids;  // [n_expert_used, 1], the choice
    const ggml_tensor * weights;  // the final ones of the chosen experts; null: unknown
    const ggml_tensor * input;  // of the router; null: it cannot be read at the end of the piece
    std::vector<ggml_tensor *> mat_muls;  // of the layer's experts, in the next piece
};

struct Pieces {
    std::vector<ggml_tensor *> nodes;  // of all pieces, in the graph's order
    std::vector<size_t> ends;  // [piece]: its nodes end here; one more than layers
    std::vector<RoutedNodes> layers;  // [piece]: piece l + 1 begins with the experts of layers[l]
};

// Divide the nodes that one device computes for a token, in the order of computing. Nothing if the graph differs from
// the probe's, or if no layer has experts.
std::optional<Pieces> divide(std::span<ggml_tensor * const> nodes, const MoeGraph & graph);

}  // namespace outrider
