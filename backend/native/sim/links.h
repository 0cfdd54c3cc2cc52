// All links of a machine in virtual time: what live/transfers.cc does with threads. With a host store, bytes that
// arrive from the file go on over the device's link.
#pragma once

#include <deque>
#include <limits>
#include <optional>

#include "core/core.h"
#include "sim/link.h"
#include "sim/simulator.h"

namespace outrider {

class Links {
  public:
    Links(const Core & core, const Machine & machine);

    // At clock_us(); it begins at begin().
    void submit(const Copy & copy, double n_bytes);
    void begin();
    // True if the copy had not begun. Then it never begins, and no arrival follows.
    bool cancel(Ticket ticket);

    double clock_us() const { return link_.clock_us(); }
    // Time with at least one copy into slots in flight.
    double busy_us() const { return link_.busy_us(); }
    // Advance the clock. REQUIRES: until_us >= clock_us().
    void advance(double until_us);
    // As Link::advance_to_arrival().
    bool advance_to_arrival(double limit_us = std::numeric_limits<double>::infinity());
    // The next copy that has ended, in the order of their ends.
    bool take_arrival(Ticket & ticket);

  private:
    struct Sent {  // a copy, with its size
        Copy copy;
        double n_bytes;
    };

    uint32_t mask_of(const Copy & copy) const;
    int64_t range_of(const Copy & copy) const;
    void step(double at_us);
    void pass_on(Ticket ticket);

    const Shape & shape_;
    const bool joins_;  // an expert's bytes lie together in the file
    Link link_;                                // into slots
    std::optional<Link> file_;                 // with a host store only
    std::vector<std::vector<uint32_t>> here_;  // [layer][slot of the store]: bit per chunk
    std::vector<Sent> reading_;                // into the store
    std::vector<Sent> waiting_;                // for bytes in reading_
    std::deque<Ticket> arrivals_;
};

}  // namespace outrider
