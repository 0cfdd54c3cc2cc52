// The vocabulary of the core: what happens (events are methods of Core) and what shall be done
// (commands). Nothing here knows a clock, a thread, a file or ggml.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace outrider {

using Layer = int32_t;   // index among the MoE layers, 0 .. n_layer - 1
using Expert = int32_t;  // index of a routed expert within its layer
using Slot = int32_t;    // index of a place for one expert within its layer
using Chunk = int32_t;   // index of one of an expert's matrices; whole_expert for all of them
using Ticket = uint64_t; // names one copy for as long as it lives

inline constexpr Chunk whole_expert = -1;
inline constexpr int32_t none = -1;

enum class Phase : uint8_t { prefill, decode };
enum class Urgency : uint8_t { low, high };

// free -> pending -> ready -> free; quarantined after a failed copy, until the next pass.
enum class SlotState : uint8_t { free, pending, ready, quarantined };

// At routing time a needed expert is one of these.
enum class Found : uint8_t { hit, late, miss };

// Bring one chunk (or all) of an expert into its slot.
struct Copy {
    Ticket ticket;
    Layer layer;
    Expert expert;
    Chunk chunk;
    Slot slot;
    Urgency urgency;
};

// Do not begin this copy. The driver answers with cancelled() if it had not begun; otherwise the
// copy ends as usual.
struct Cancel {
    Ticket ticket;
};

// The experts of a routed layer, in the order in which they are to be computed.
struct Order {
    Layer layer;
    std::vector<Expert> experts;
};

// This expert is ready and pinned: compute it, then say computed().
struct Compute {
    Layer layer;
    Expert expert;
    Slot slot;
};

// This expert cannot be had: its copies failed again and again.
struct GiveUp {
    Layer layer;
    Expert expert;
};

using Command = std::variant<Copy, Cancel, Order, Compute, GiveUp>;
using Commands = std::vector<Command>;

// Sizes that never change while a model is loaded.
struct Shape {
    int32_t n_layer = 0;
    int32_t n_expert = 0;
    int32_t n_expert_used = 0;
    // chunk_bytes[layer][chunk]: bytes of each matrix of one expert
    std::vector<std::vector<uint64_t>> chunk_bytes;
};

}  // namespace outrider
