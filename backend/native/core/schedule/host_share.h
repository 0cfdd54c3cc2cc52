// Of what a layer misses: what is copied to the device, and what the host computes where it lies.
// Both work at once, so that the layer ends when the later of them does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "../types.h"

namespace outrider {

// off: all is copied. by_speed: whichever ends the layer sooner. host_only: all is computed by the host.
enum class Hybrid : uint8_t { off, by_speed, host_only };

// What was measured of a layer's device, its link and the host; in microseconds. 0: not known, or nothing.
struct HostSpeeds {
    bool possible = false;             // the host can compute this layer's experts
    int32_t n_copy = 1;                // copies that are under way at the same time
    double link_us_per_byte = 0;       // of all copies under way together
    double host_us = 0;                // to hand rows over and back, however many experts
    double host_us_per_byte = 0;       // of an expert's weights, for its first row
    double host_row_us_per_byte = 0;   // for each further row
    double device_us_per_byte = 0;     // likewise on the device
    double device_row_us_per_byte = 0;
    double device_times = 1;           // the device's side took so many times what these figures say

    bool operator==(const HostSpeeds &) const = default;
};

// An expert that is needed and not wholly here.
struct Missing {
    uint64_t bytes = 0;       // of it
    uint64_t bytes_left = 0;  // of these, what has not arrived
    int32_t n_row = 1;        // tokens that use it
};

// Of a layer's missing experts.
struct HostPlan {
    std::vector<bool> on_host;
    std::vector<size_t> order;  // who goes to the host first, whether it does or not
};

// What a scheduler knows of the host.
struct HostShare {
    Hybrid hybrid = Hybrid::off;
    std::span<const HostSpeeds> speeds{};  // [layer], changed by their owner
    // Whether the host's memory has the expert; empty: nobody knows, and all are said to be there.
    std::function<bool(Layer, Expert)> has{};
};

// What the layer's device has to do besides.
struct DeviceQueue {
    double compute_us = 0;  // experts that are here
    double copy_us = 0;     // copies that have begun, and are not the layer's
};

// So much less time is worth a change of plan: what was measured is not exact.
inline constexpr double least_gain = 0.1;

// Microseconds that weights of so many bytes take with so many rows.
inline double rows_us(double us_per_byte, double row_us_per_byte, uint64_t bytes, int32_t n_row) {
    return double(bytes) * (us_per_byte + row_us_per_byte * (n_row - 1));
}

inline double host_us(const HostSpeeds & speeds, const Missing & m) {
    return rows_us(speeds.host_us_per_byte, speeds.host_row_us_per_byte, m.bytes, m.n_row);
}
inline double device_us(const HostSpeeds & speeds, const Missing & m) {
    return rows_us(speeds.device_us_per_byte, speeds.device_row_us_per_byte, m.bytes, m.n_row);
}
// What the device needs for its queue and for what is copied to it, in this order, by the figures but for
// device_times. An expert computes when it has arrived and those before it are done.
double device_side_us(const HostSpeeds & speeds, std::span<const Missing> copied, const DeviceQueue & queue);

// What costs the host least beside what its copy costs goes there first,
// so that of a prompt's experts the host gets those of few rows, as in Fiddler. How many,
// is tried: the number with which both are done soonest, if that is a tenth sooner than all by one of them; of
// equals the smallest, since a copy stays.
// While the link or the host has not been measured they share evenly, so that both will be.
HostPlan host_share(Hybrid hybrid, const HostSpeeds & speeds, std::span<const Missing> missing,
                    const DeviceQueue & queue);

}  // namespace outrider
