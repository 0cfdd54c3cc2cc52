// The vocabulary of the core: what happens (events are methods of Core) and what shall be done
// (commands). Nothing here knows a clock, a thread, a file or ggml.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace outrider {

using Layer = int32_t;   // index among the MoE layers, 0 .. n_layer - 1
using Expert = int32_t;  // index of a routed expert within its layer
using Pool = int32_t;    // index of a set of slots of equal size
using Slot = int32_t;    // index of a slot within its pool
using Chunk = int32_t;   // index of one of an expert's matrices; whole_expert for all of them
using Ticket = uint64_t; // names one copy for as long as it lives

inline constexpr Chunk whole_expert = -1;  // all chunks of the part in question
inline constexpr int32_t none = -1;

enum class Phase : uint8_t { prefill, decode };
enum class Urgency : uint8_t { low, high };

// From where to where a copy goes. Without a host store (host_level.h) all go from the file into slots.
enum class Route : uint8_t { file_to_slot, file_to_host, host_to_slot };

// The unit of residency is a part of an expert. Where a layer's experts are not cut, an expert is
// all top. Where they are (MoEpic, section 3.1), the top is the first rows of the up and gate matrices
// and columns of the down matrix, the bottom the rest, and the output is the sum of both outputs.
// `staged` is no part but another place for a whole expert: the slots through which a prompt's layers
// pass what they do not keep (LayerLayout::stage).
enum class Part : uint8_t { top, bottom, staged };
inline constexpr std::array parts{Part::top, Part::bottom};
inline constexpr size_t n_place = 3;  // of a layer's experts: a part's slots, or the stage

// free -> pending -> ready -> free; quarantined after a failed copy, until the next pass.
enum class SlotState : uint8_t { free, pending, ready, quarantined };

// At routing time a needed part is one of these.
enum class Found : uint8_t { hit, late, miss };

// Bring one chunk (or all) of a part of an expert into its slot. One from the host store may be
// ordered before its bytes are there: it begins when the copies that bring them have ended.
struct Copy {
    Ticket ticket;
    Layer layer;
    Expert expert;
    Part part;
    Chunk chunk;
    Slot slot;  // of the host store, where it goes there
    Urgency urgency;
    Route route = Route::file_to_slot;
    Slot from_slot = none;  // of the host store, where it comes from there
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

// This part is ready and pinned: compute it, then say computed(). A bottom is computed after its top.
// Slot `none`: the host shall compute it where it lies (schedule/host_share.h).
struct Compute {
    Layer layer;
    Expert expert;
    Part part;
    Slot slot;
};

// The host shall not compute this expert after all. The driver answers with withdrawn() if it had not begun;
// otherwise it is computed as usual.
struct Withdraw {
    Layer layer;
    Expert expert;
};

// This expert cannot be had: its copies failed again and again.
struct GiveUp {
    Layer layer;
    Expert expert;
};

using Command = std::variant<Copy, Cancel, Order, Compute, Withdraw, GiveUp>;
using Commands = std::vector<Command>;

// A router's choice for one layer of a pass.
struct Routing {
    Layer layer = none;
    int32_t n_token = 0;
    std::span<const Expert> ids;       // [n_token][n_expert_used]
    std::span<const float> weights{};  // of the same shape, or empty where they are not known
};

// An expert that a layer needs now, and for how many tokens.
struct Demand {
    Expert expert;
    int32_t n_token;
};

// Sizes that never change while a model is loaded.
struct Shape {
    int32_t n_layer = 0;
    int32_t n_expert = 0;
    int32_t n_expert_used = 0;
    // chunk_bytes[layer][chunk]: bytes of each matrix of one expert
    std::vector<std::vector<uint64_t>> chunk_bytes;
    // [layer]: into how many equal pieces an expert's hidden width may be cut; 1, or empty: not at all
    std::vector<int32_t> n_cut{};
    // [layer]: layers of the same kind have experts of the same matrices and may share a pool;
    // empty: layers with equal chunk_bytes
    std::vector<int32_t> kind{};

    uint64_t expert_bytes(Layer layer) const;
    int32_t cuts(Layer layer) const { return n_cut.empty() ? 1 : n_cut[layer]; }
    bool same_kind(Layer a, Layer b) const;
};

}  // namespace outrider
