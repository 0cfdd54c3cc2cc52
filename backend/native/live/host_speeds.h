// How fast the link, the host and a device are, from what they do: for the core to decide who computes
// what (core/schedule/host_share.h).
#pragma once

#include <cstdint>

#include "../core/schedule/host_share.h"

namespace outrider {

class SpeedMeter {
  public:
    // Copies were under way for so long and brought so much, since it was told last; and the layers used it.
    void link(uint64_t bytes, uint64_t busy_us);
    // The host computed an expert of so many bytes for so many rows.
    void host(uint64_t bytes, size_t n_row, double us);
    // It was given a layer's rows, or they were taken from it.
    void handed_over(double us);
    // What a device takes for an expert of so many bytes, for one row and for `n_row`.
    static void set_device(HostSpeeds & speeds, uint64_t bytes, double one_us, double rows_us, int32_t n_row);
    // A pass is over. What was not measured in it is believed to be a little faster each time: so that what once
    // was slow is tried again, with what costs least.
    void pass_ended();

    // Into the figures of the link and the host.
    void fill(HostSpeeds & speeds) const;

  private:
    // Of the latest values; one that is better than what is known counts for more, since what disturbs a
    // measurement makes it longer.
    struct Figure {
        double value = 0;
        bool fresh = false;
        void add(double latest);
        void age();
    };
    Figure link_us_per_byte_, host_us_per_byte_, host_row_us_per_byte_, hand_over_us_;
};

}  // namespace outrider
