// Speeds of the link, the host and a device: measured when a cache is made, then updated from their work. The core uses
// them to decide who computes what (core/schedule/host_share.h).
#pragma once

#include <cstdint>

#include "core/schedule/host_share.h"

namespace outrider {

// Cost of an expert for one row and for each further row, per byte of the expert.
struct KernelSpeed {
    double us_per_byte = 0;
    double row_us_per_byte = 0;

    // From the times of an expert of `bytes` for one row and for `n_row` rows.
    static KernelSpeed of(uint64_t bytes, double one_us, double rows_us, int32_t n_row);
};

class SpeedMeter {
  public:
    // The host's kernels, measured while it was idle.
    void set_host(const KernelSpeed & speed) { host_ = speed; }
    // Copies moved `bytes` in `busy_us` since the last call. More bytes have more weight.
    void link(uint64_t bytes, uint64_t busy_us);
    // The host computed `n_row` rows with an expert of `bytes`. Updates the cost of the first row or of further rows,
    // whichever dominates: one row is bound by memory, many rows by the processor.
    void host(uint64_t bytes, size_t n_row, double us);
    // A device took `us` for its share of a layer, which was planned to take `planned_us`.
    void device(double planned_us, double us);
    // A layer's rows were copied to the host and back.
    void handed_over(double us) { hand_over_us_.add(us, 0); }
    // A pass ended. Figures that it did not update become a little better, so that a choice that once was slow is tried
    // again.
    void pass_ended();

    // Set the figures of the link, the host and device_times.
    void fill(HostSpeeds & speeds) const;

  private:
    struct Figure {  // a moving average
        double value = 0;
        bool fresh = false;
        void add(double latest, double weight);
        void age(double least);
    };
    KernelSpeed host_;
    Figure first_times_{1, false};  // relative to host_, of an expert's first row
    Figure row_times_{1, false};  // relative to host_, of further rows
    Figure device_times_{1, false};  // relative to the plan
    Figure link_us_per_byte_, hand_over_us_;
    uint64_t unpaid_us_ = 0;  // the link was busy with copies that have not ended
};

}  // namespace outrider
