// The vocabulary of the core: indices, commands and sizes. event_log.h has the events.
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

inline constexpr Chunk whole_expert = -1;  // all chunks of a part
inline constexpr int32_t none = -1;

enum class Phase : uint8_t { prefill, decode };
// low: begins while no high one waits. spare: only while the link would be idle, since a need cannot interrupt it.
enum class Urgency : uint8_t { low, spare, high };

// Source and destination of a copy. Without a host store (host_level.h) every copy is file_to_slot.
enum class Route : uint8_t { file_to_slot, file_to_host, host_to_slot };

// The unit of residency is a part of an expert. An expert that is not cut is all top. The top of a cut expert
// (MoEpic, section 3.1) is the first rows of the up and gate matrices and the first columns of the down matrix, the
// bottom is the rest, and the expert's output is the sum of both outputs. `staged` is not a part but a place for a
// whole expert: a slot of the stage, through which the layers of a prompt pass the experts that they do not keep
// (LayerLayout::stage).
enum class Part : uint8_t { top, bottom, staged };
inline constexpr std::array parts{Part::top, Part::bottom};
inline constexpr std::array places{Part::top, Part::bottom, Part::staged};
inline constexpr size_t n_place = places.size();

// free -> pending -> ready -> free; quarantined after a failed copy, until the next pass.
enum class SlotState : uint8_t { free, pending, ready, quarantined };

// One byte of Core::snapshot() describes an expert: where it is, how its layer found it in the last pass, and two
// flags. backend/methods/cells.py has the same values for Python.
struct Cell {
    enum Bits : uint8_t {
        absent = 0,
        resident = 1,
        arriving = 2,
        where = 3,    // mask of these
        hit = 4,      // resident when the layer was routed
        late = 8,     // arriving
        miss = 12,    // absent
        found = 12,   // mask of these; 0: not needed
        pinned = 16,  // needed by the layer in progress
        on_host = 32  // the host computed it
    };
};

// Copy one chunk (or all) of a part of an expert into its slot. A copy from the host store may be ordered before
// its bytes are there: it begins when the copies that bring them have ended.
struct Copy {
    Ticket ticket;
    Layer layer;
    Expert expert;
    Part part;
    Chunk chunk;
    Slot slot;  // of the host store where the route is file_to_host
    Urgency urgency;
    Route route = Route::file_to_slot;
    Slot from_slot = none;  // of the host store where the route is host_to_slot
    friend bool operator==(const Copy &, const Copy &) = default;
};

// Do not begin this copy. The driver answers Cancelled if it had not begun. Otherwise the copy ends as usual.
struct Cancel {
    Ticket ticket;
    friend bool operator==(const Cancel &, const Cancel &) = default;
};

// The experts of a routed layer in computing order.
struct Order {
    Layer layer;
    std::vector<Expert> experts;
    friend bool operator==(const Order &, const Order &) = default;
};

// Compute this part; it is ready and pinned. Then answer Computed. A bottom is computed after its top.
// Slot `none`: the host computes the expert in its own memory (schedule/host_share.h).
struct Compute {
    Layer layer;
    Expert expert;
    Part part;
    Slot slot;
    friend bool operator==(const Compute &, const Compute &) = default;
};

// Take this expert back from the host. The driver answers Withdrawn if the host had not begun. Otherwise the expert
// is computed as usual.
struct Withdraw {
    Layer layer;
    Expert expert;
    friend bool operator==(const Withdraw &, const Withdraw &) = default;
};

// The expert cannot be read: its copies failed several times.
struct GiveUp {
    Layer layer;
    Expert expert;
    friend bool operator==(const GiveUp &, const GiveUp &) = default;
};

using Command = std::variant<Copy, Cancel, Order, Compute, Withdraw, GiveUp>;
using Commands = std::vector<Command>;

// A router's choice for one layer of a pass.
struct Routing {
    Layer layer = none;
    int32_t n_token = 0;
    std::span<const Expert> ids;       // [n_token][Shape::used]
    std::span<const float> weights{};  // of the same shape; empty where unknown
    // [n_token]: the number of each token's sequence; empty: all are of one. The core fills it in (PassBegan).
    std::span<const int32_t> sequences{};

    int32_t sequence(int32_t token) const { return sequences.empty() ? 0 : sequences[size_t(token)]; }
    std::span<const Expert> of(int32_t token) const {
        const size_t n_used = n_token > 0 ? ids.size() / size_t(n_token) : 0;
        return ids.subspan(size_t(token) * n_used, n_used);
    }
    // The last token of each sequence, in ascending order.
    std::vector<int32_t> last_tokens() const;
};

// An expert that a layer needs now, and the number of tokens that use it.
struct Demand {
    Expert expert;
    int32_t n_token;
};

// Sizes that never change while a model is loaded.
struct Shape {
    int32_t n_layer = 0;
    int32_t n_expert = 0;
    int32_t n_expert_used = 0;  // by a token in a layer, at most
    // [layer][chunk]: bytes of each matrix of one expert
    std::vector<std::vector<uint64_t>> chunk_bytes;
    // [layer]: number of equal pieces into which an expert's hidden width may be cut; 1 or empty: it may not
    std::vector<int32_t> n_cut{};
    // [layer]: layers of one kind have experts of equal matrices and may share a pool. Empty: layers with equal
    // chunk_bytes are of one kind.
    std::vector<int32_t> kind{};
    // [layer]: experts that a token uses; empty: n_expert_used in every layer
    std::vector<int32_t> n_used{};

    int32_t used(Layer layer) const { return n_used.empty() ? n_expert_used : n_used[size_t(layer)]; }
    uint64_t expert_bytes(Layer layer) const;
    int32_t cuts(Layer layer) const { return n_cut.empty() ? 1 : n_cut[layer]; }
    bool same_kind(Layer a, Layer b) const;
};

}  // namespace outrider
