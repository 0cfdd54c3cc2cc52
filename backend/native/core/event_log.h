// The events of a core, and a log of them with the commands that answered. A replay of the log gives the same
// commands.
#pragma once

#include <memory>
#include <string>

#include "core/predict/predictor.h"
#include "core/schedule/host_share.h"

namespace outrider {

class Core;

// Settings that may change between passes without loss of the cache.
struct Tuning {
    bool prefetch = true;  // for decoded tokens; prompts go by Composition::prefill_prefetch
    int32_t depth = 1;
    double copy_cost = 0.4;  // predict/worth.h; this, until it is measured
    int32_t eviction = 0;  // index into Composition::evictions
};

// Spans in events point to memory of the sender, which must outlive Core::handle().
// A sequence begins beside others (PassBegan). 0: a request begins, or several that are computed jointly; all before
// have ended.
struct RequestBegan {
    int32_t sequence = 0;
};
struct Tuned {
    Tuning tuning;
};
// Present speeds; the host computes nothing before this event.
struct Measured {
    std::span<const HostSpeeds> speeds;  // [layer]
};
struct PassBegan {
    Phase phase;
    std::span<const int32_t> tokens;  // ids, or empty where unknown
    // [token]: numbers of the sequences; empty: all tokens are of one. Tokens whose logits are wanted come last, so
    // that a layer that computes only these routes the last tokens of the pass. A number is never used again for
    // another sequence.
    std::span<const int32_t> sequences{};
};
// The layer's router is about to choose. The driver obeys all cancels before it sends Routed, so that experts whose
// slots were promised to copies that had not begun are found.
struct Reached {
    Layer layer;
};
struct Routed {
    Routing routing;
};
// Comes after Routed of the layer: the needs of this layer go before those of the next.
struct GateSeen {
    Layer layer;
    std::span<const float> input;  // the layer's MoE input, n_token rows of n_embd values
    int32_t n_token;
};
// Between answers: fetch these experts into the layer's free slots, in this order, as long as there are any. Where
// there are none, experts of the layer that are not in `wanted` leave; with an empty `wanted` nothing leaves.
struct Stocked {
    Layer layer;
    std::span<const Expert> experts;
    std::span<const Expert> wanted;
};
// Before the first pass: the driver has this expert, or its top if it is cut, from an earlier cache. It takes `slot` of
// its layer's pool, or, if that is none, a free one, and is ready at once. Nothing happens where no slot is free.
struct Kept {
    Layer layer;
    Expert expert;
    Slot slot = none;
    bool in_store = false;  // the slot, not none, is the host store's
};
// A forecast from outside, treated like one of the predictor.
struct Predicted {
    Forecast forecast;
};
struct Copied {
    Ticket ticket;
};
struct Cancelled {
    Ticket ticket;
};
struct Failed {
    Ticket ticket;
};
struct Computed {
    Layer layer;
    Expert expert;
    Part part;
};
// The host will not compute this expert (Withdraw).
struct Withdrawn {
    Layer layer;
    Expert expert;
};
// The core knows all that happened up to `us` microseconds after the layer's Routed. Comes now and then while a
// layer is computed.
struct CaughtUp {
    double us;
};
// The layer in progress will not be finished.
struct Aborted {};
// Takes the place of Routed where Core::may_skip(layer): nobody read the layer's choice. Counts as hits the largest
// number of experts that n_token tokens can use.
struct Unasked {
    Layer layer;
    int32_t n_token;
};

using Event = std::variant<RequestBegan, Tuned, Measured, PassBegan, Reached, Routed, GateSeen, Stocked, Kept,
                           Predicted, Copied, Cancelled, Failed, Computed, Withdrawn, CaughtUp, Aborted, Unasked>;

// For std::visit: one function per type.
template <typename... Fs>
struct Overloaded : Fs... {
    using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

class EventLog {
  public:
    struct Entry {
        Event event;
        Commands commands;
    };

    // Copies the event with the memory that its spans point to.
    void append(const Event & event, std::span<const Command> commands);
    const std::vector<Entry> & entries() const { return entries_; }

  private:
    template <typename T>
    void keep(std::span<const T> & values);

    std::vector<Entry> entries_;
    std::vector<std::shared_ptr<std::byte[]>> memory_;  // of the spans
};

// Sends the logged events to `core`. Returns the index of the first entry with other commands, or -1.
// REQUIRES: `core` is new and of the same composition.
int64_t replay(const EventLog & log, Core & core);
// A line with every field: "computed layer 3 expert 5". An input's values are written as their hash.
std::string describe(const Event & event);
std::string describe(const Command & command);

}  // namespace outrider
