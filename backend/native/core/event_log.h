// What happened and what was answered, to be replayed: the same events give the same commands.
#pragma once

#include <string>

#include "core.h"

namespace outrider {

struct RequestBegan {};
struct Tuned {
    Tuning tuning;
};
struct Measured {
    std::vector<HostSpeeds> speeds;  // [layer]
};
struct PassBegan {
    Phase phase;
    std::vector<int32_t> tokens;
};
struct Routed {
    Layer layer;
    int32_t n_token;
    std::vector<Expert> ids;
    std::vector<float> weights;
};
struct GateSeen {
    Layer layer;
    int32_t n_token;
    std::vector<float> input;
};
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
struct Withdrawn {
    Layer layer;
    Expert expert;
};
struct CaughtUp {
    double us;
};
struct Aborted {};
struct Unasked {
    Layer layer;
    int32_t n_token;
};

using Event = std::variant<RequestBegan, Tuned, Measured, PassBegan, Routed, GateSeen, Predicted, Copied, Cancelled,
                           Failed, Computed, Withdrawn, CaughtUp, Aborted, Unasked>;

class EventLog {
  public:
    struct Entry {
        Event event;
        Commands commands;
    };
    // Entries in the order in which the events began. An event never happens within another.
    std::vector<Entry> entries;
};

// Tells `core` the logged events one by one. Returns the index of the first entry whose commands
// are others, or -1. `core` must be as new, of the same composition.
int64_t replay(const EventLog & log, Core & core);
// A line for people: "routed layer 3: 1 4 7".
std::string describe(const Event & event);
std::string describe(const Command & command);

}  // namespace outrider
