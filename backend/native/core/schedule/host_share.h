// Which of a layer's missing experts are copied to the device, and which the host computes in its own memory. Both
// work at the same time: the layer ends when the later one does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/types.h"

namespace outrider {

// off: copy all. by_speed: divide so that the layer ends soonest. host_only: the host computes all.
enum class Hybrid : uint8_t { off, by_speed, host_only };

// Measured speeds of a layer's device, its link and the host, in microseconds. 0: unknown, or nothing.
struct HostSpeeds {
    bool possible = false;             // the host can compute this layer's experts
    int32_t n_copy = 1;                // copies in flight at the same time
    double link_us_per_byte = 0;       // of all copies together
    double host_us = 0;                // to pass rows over and back, for any number of experts
    double host_us_per_byte = 0;       // of an expert's weights, for its first row
    double host_row_us_per_byte = 0;   // for each further row
    double device_us_per_byte = 0;     // of an expert's weights, on the device
    double device_row_us_per_byte = 0;
    double device_times = 1;           // the device took this factor of what these figures predict

    bool operator==(const HostSpeeds &) const = default;
};

// A needed expert that is not resident.
struct Missing {
    uint64_t bytes = 0;
    uint64_t bytes_left = 0;  // not arrived
    int32_t n_row = 1;        // tokens that use it
};

// For a layer's missing experts.
struct HostPlan {
    std::vector<bool> on_host;
    std::vector<size_t> order;  // the first ones go to the host first
};

// The host, as a scheduler knows it.
struct HostShare {
    Hybrid hybrid = Hybrid::off;
    std::span<const HostSpeeds> speeds{};  // [layer]; the owner changes them
    // Whether the host's memory holds the expert; empty: it holds all.
    std::function<bool(Layer, Expert)> has{};
};

// The device's other work in this layer.
struct DeviceQueue {
    double compute_us = 0;  // resident experts
    double copy_us = 0;     // copies that have begun, of other layers
};

// Measurements are not exact: a change of plan has to save at least this share of the time.
inline constexpr double least_gain = 0.1;

// Microseconds to compute `n_row` rows with weights of `bytes`.
inline double rows_us(double us_per_byte, double row_us_per_byte, uint64_t bytes, int32_t n_row) {
    return double(bytes) * (us_per_byte + row_us_per_byte * (n_row - 1));
}

inline double host_us(const HostSpeeds & speeds, const Missing & m) {
    return rows_us(speeds.host_us_per_byte, speeds.host_row_us_per_byte, m.bytes, m.n_row);
}
inline double device_us(const HostSpeeds & speeds, const Missing & m) {
    return rows_us(speeds.device_us_per_byte, speeds.device_row_us_per_byte, m.bytes, m.n_row);
}
// Microseconds that the device needs for its queue and then for the copied experts in this order, without the factor
// device_times. An expert computes when it has arrived and those before it are computed.
double device_side_us(const HostSpeeds & speeds, std::span<const Missing> copied, const DeviceQueue & queue);

// The host gets the experts whose computing costs least for each byte of copying that it saves. In a prompt those are
// the experts of few rows, as in Fiddler. All numbers of experts are tried; the plan is the one that ends soonest, if
// that is a tenth sooner than one side alone, and among equals the smallest, since copies stay. While the link or the
// host is not measured they share evenly, so that both get measured.
HostPlan host_share(Hybrid hybrid, const HostSpeeds & speeds, std::span<const Missing> missing,
                    const DeviceQueue & queue);

}  // namespace outrider
