// How fast the link, the host and a device are: measured once when a cache is made, then from what they do;
// for the core to decide who computes what (core/schedule/host_share.h).
#pragma once

#include <cstdint>

#include "core/schedule/host_share.h"

namespace outrider {

// What an expert takes for one row and for each further one, for each byte of it.
struct KernelSpeed {
    double us_per_byte = 0;
    double row_us_per_byte = 0;

    // From what an expert of so many bytes took for one row and for `n_row` rows.
    static KernelSpeed of(uint64_t bytes, double one_us, double rows_us, int32_t n_row);
};

class SpeedMeter {
  public:
    // The host's kernels, as measured while nothing else was done.
    void set_host(const KernelSpeed & speed) { host_ = speed; }
    // Copies were under way for so long and brought so much, since this was said last. What moved much counts
    // for more.
    void link(uint64_t bytes, uint64_t busy_us);
    // The host computed an expert of so many bytes for so many rows. What that says is of its first row or of the
    // further ones, whichever take longer: a single row waits for memory, many rows for the processor.
    void host(uint64_t bytes, size_t n_row, double us);
    // A layer's device was to take so long for what it had and what was copied to it, and took so long.
    void device(double planned_us, double us);
    // A layer's rows were given to it and taken from it.
    void handed_over(double us) { hand_over_us_.add(us, 0); }
    // A pass is over. What was not measured in it is believed to be a little faster each time: so that what once
    // was slow is tried again, with what costs least.
    void pass_ended();

    // Into the figures of the link and the host.
    void fill(HostSpeeds & speeds) const;

  private:
    struct Figure {  // of the latest values
        double value = 0;
        bool fresh = false;
        // `weight` from 0 to 1; at least so much that the past is forgotten.
        void add(double latest, double weight);
        void age(double least);
    };
    KernelSpeed host_;
    Figure first_times_{1, false};   // as long as `host_` says, for an expert's first row
    Figure row_times_{1, false};     // likewise, for the further ones
    Figure device_times_{1, false};  // as long as was planned
    Figure link_us_per_byte_, hand_over_us_;
    uint64_t unpaid_us_ = 0;  // of the link: busy with copies that have not ended
};

}  // namespace outrider
