// All links of a machine in virtual time: what live/transfers.cc does with threads. Where the core has a
// store in the host's memory, what the file brings there goes on over the device's link when it has come.
#pragma once

#include <deque>
#include <limits>
#include <optional>

#include "../core/core.h"
#include "link.h"
#include "simulator.h"

namespace outrider {

class Links {
  public:
    Links(const Core & core, const Machine & machine);

    // At clock_us().
    void submit(const Copy & copy, double n_bytes);
    // True when the copy had not begun: it never will, and no arrival follows.
    bool cancel(Ticket ticket);

    double clock_us() const { return link_.clock_us(); }
    // At least one copy into slots was under way.
    double busy_us() const { return link_.busy_us(); }
    // Lets time pass. REQUIRES: until_us >= clock_us().
    void advance(double until_us);
    // Lets time pass until something has arrived. False where nothing will until the limit: no time passes then
    // without one, and else time passes up to it.
    bool advance_to_arrival(double limit_us = std::numeric_limits<double>::infinity());
    // The next copy that has ended, in the order of their ends.
    bool take_arrival(Ticket & ticket);

  private:
    struct Sent {  // a copy, with its size
        Copy copy;
        double n_bytes;
    };

    uint32_t mask_of(const Copy & copy) const;
    void step(double at_us);
    void pass_on(Ticket ticket);

    const Shape & shape_;
    Link link_;                                // into slots
    std::optional<Link> file_;                 // where there is a store
    std::vector<std::vector<uint32_t>> here_;  // [layer][slot of the store]: bit per chunk
    std::vector<Sent> reading_;                // into the store
    std::vector<Sent> waiting_;                // for what is read
    std::deque<Ticket> arrivals_;
};

}  // namespace outrider
