#include "host_speeds.h"

#include <algorithm>

namespace outrider {
namespace {

constexpr double weight_of_worse = 0.1;
constexpr double weight_of_better = 0.3;
constexpr double aging = 0.98;
// Of the first row, before anything of several rows was measured.
constexpr double further_row = 1.0 / 8;
// Less has no meaning at the clock's resolution.
constexpr uint64_t min_busy_us = 100;

}  // namespace

void SpeedMeter::Figure::add(double latest) {
    value = value == 0 ? latest : value + (latest - value) * (latest > value ? weight_of_worse : weight_of_better);
    fresh = true;
}

void SpeedMeter::Figure::age() {
    value *= fresh ? 1 : aging;
    fresh = false;
}

void SpeedMeter::link(uint64_t bytes, uint64_t busy_us) {
    if (bytes > 0 && busy_us >= min_busy_us) {
        link_us_per_byte_.add(double(busy_us) / double(bytes));
    }
}

void SpeedMeter::host(uint64_t bytes, size_t n_row, double us) {
    const double us_per_byte = us / double(bytes);
    const auto n_further = double(n_row - 1);
    if (n_further == 0) {
        host_us_per_byte_.add(us_per_byte);
        return;
    }
    if (host_us_per_byte_.value == 0) {
        host_us_per_byte_.add(us_per_byte / (1 + n_further * further_row));
    }
    host_us_per_byte_.fresh = true;
    host_row_us_per_byte_.add(std::max((us_per_byte - host_us_per_byte_.value) / n_further, 0.0));
}

void SpeedMeter::handed_over(double us) { hand_over_us_.add(us); }

void SpeedMeter::set_device(HostSpeeds & speeds, uint64_t bytes, double one_us, double rows_us, int32_t n_row) {
    speeds.device_us_per_byte = one_us / double(bytes);
    speeds.device_row_us_per_byte = std::max(rows_us - one_us, 0.0) / (n_row - 1) / double(bytes);
}

void SpeedMeter::pass_ended() {
    link_us_per_byte_.age();
    host_us_per_byte_.age();
}

void SpeedMeter::fill(HostSpeeds & speeds) const {
    speeds.link_us_per_byte = link_us_per_byte_.value;
    speeds.host_us_per_byte = host_us_per_byte_.value;
    speeds.host_row_us_per_byte =
        host_row_us_per_byte_.value > 0 ? host_row_us_per_byte_.value : host_us_per_byte_.value * further_row;
    speeds.host_us = hand_over_us_.value;
}

}  // namespace outrider
