#include "live/compute/host_speeds.h"

#include <algorithm>
#include <utility>

namespace outrider {
namespace {

constexpr double least_weight = 0.15;
constexpr double most_weight = 0.5;
constexpr double much_bytes = 256e6;
constexpr double aging = 0.98;
// Limits the effect of an outlier, such as a page that had to be read or a busy machine.
constexpr double max_jump = 4;
// Shorter times mean nothing at the clock's resolution.
constexpr uint64_t min_busy_us = 100;
constexpr double min_planned_us = 100;
constexpr double much_us = 200e3;

}  // namespace

KernelSpeed KernelSpeed::of(uint64_t bytes, double one_us, double rows_us, int32_t n_row) {
    return {one_us / double(bytes), std::max(rows_us - one_us, 0.0) / (n_row - 1) / double(bytes)};
}

void SpeedMeter::Figure::add(double latest, double weight) {
    weight = std::clamp(weight, least_weight, most_weight);
    value = value == 0 ? latest : value + weight * (std::clamp(latest, value / max_jump, value * max_jump) - value);
    fresh = true;
}

void SpeedMeter::Figure::age(double least) {
    if (!std::exchange(fresh, false)) {
        value = std::max(value * aging, std::min(value, least));
    }
}

void SpeedMeter::link(uint64_t bytes, uint64_t busy_us) {
    unpaid_us_ += busy_us;
    if (bytes > 0 && unpaid_us_ >= min_busy_us) {
        link_us_per_byte_.add(double(std::exchange(unpaid_us_, 0)) / double(bytes), double(bytes) / much_bytes);
    }
}

void SpeedMeter::host(uint64_t bytes, size_t n_row, double us) {
    const double first_us = double(bytes) * host_.us_per_byte;
    const double further_us = double(bytes) * host_.row_us_per_byte * double(n_row - 1);
    const double first_took_us = first_us * first_times_.value;
    const double further_took_us = further_us * row_times_.value;
    if (first_took_us >= further_took_us) {
        first_times_.add((us - further_took_us) / first_us, 0);
    } else {
        row_times_.add((us - first_took_us) / further_us, 0);
    }
}

void SpeedMeter::device(double planned_us, double us) {
    if (planned_us >= min_planned_us) {
        device_times_.add(us / planned_us, us / much_us);
    }
}

void SpeedMeter::pass_ended() {
    link_us_per_byte_.age(0);
    first_times_.age(1);
    row_times_.age(1);
    device_times_.age(1);
}

void SpeedMeter::fill(HostSpeeds & speeds) const {
    speeds.link_us_per_byte = link_us_per_byte_.value;
    speeds.host_us_per_byte = host_.us_per_byte * first_times_.value;
    speeds.host_row_us_per_byte = host_.row_us_per_byte * row_times_.value;
    speeds.host_us = hand_over_us_.value;
    speeds.device_times = device_times_.value;
}

}  // namespace outrider
