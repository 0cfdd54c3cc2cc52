#include "host_share.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace outrider {
namespace {

// Both at once must promise so much less time than the better one alone: what was measured is not exact.
constexpr double least_gain = 0.1;

using Experts = std::span<const size_t>;  // indices into what is missing

double host_us(const HostSpeeds & speeds, std::span<const Missing> missing, Experts experts) {
    double us = experts.empty() ? 0 : speeds.host_us;
    for (size_t i : experts) {
        us += rows_us(speeds.host_us_per_byte, speeds.host_row_us_per_byte, missing[i].bytes, missing[i].n_row);
    }
    return us;
}

// An expert computes when it has arrived and those before it are done.
double device_us(const HostSpeeds & speeds, std::span<const Missing> missing, Experts experts,
                 const DeviceQueue & queue) {
    double arrived_us = queue.copy_us;
    double us = queue.compute_us;
    for (size_t i : experts) {
        arrived_us += double(missing[i].bytes_left) * speeds.link_us_per_byte;
        us = std::max(us, arrived_us) +
             rows_us(speeds.device_us_per_byte, speeds.device_row_us_per_byte, missing[i].bytes, missing[i].n_row);
    }
    return us;
}

}  // namespace

HostPlan host_share(Hybrid hybrid, const HostSpeeds & speeds, std::span<const Missing> missing,
                    const DeviceQueue & queue) {
    HostPlan plan{std::vector<bool>(missing.size(), hybrid == Hybrid::host_only && speeds.possible)};
    if (hybrid != Hybrid::by_speed || !speeds.possible || missing.empty()) {
        return plan;
    }
    const bool measured = speeds.link_us_per_byte > 0 && speeds.host_us_per_byte > 0;
    // What a copy costs for each microsecond of the host. Before anything was measured, few rows go to the host.
    const auto gain = [&](const Missing & m) {
        const double host_us = measured
                                   ? rows_us(speeds.host_us_per_byte, speeds.host_row_us_per_byte, m.bytes, m.n_row)
                                   : double(m.bytes) * m.n_row;
        return double(m.bytes_left) / std::max(host_us, 1e-9);
    };
    std::vector<double> gains;
    for (const Missing & m : missing) {
        gains.push_back(gain(m));
    }
    std::vector<size_t> order(missing.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return gains[a] > gains[b]; });

    const bool link_known = speeds.link_us_per_byte > 0;
    size_t n_host = (missing.size() + (link_known ? 1 : 0)) / 2;
    if (measured) {
        const Experts all = order;
        double soonest_us = std::numeric_limits<double>::infinity();
        const auto consider = [&](size_t n, double gain) {
            const double copying_us = device_us(speeds, missing, all.subspan(n), queue);
            const double us = std::max(host_us(speeds, missing, all.first(n)), copying_us * speeds.device_times);
            if (us < soonest_us * (1 - gain)) {
                soonest_us = us;
                n_host = n;
                plan.device_us = n < missing.size() ? copying_us : 0;
            }
        };
        consider(0, 0);
        consider(missing.size(), 0);
        const double alone_us = soonest_us;
        for (size_t n = 1; n < missing.size(); n++) {
            consider(n, soonest_us == alone_us ? least_gain : 0);
        }
    }
    for (size_t i = 0; i < n_host; i++) {
        plan.on_host[order[i]] = true;
    }
    return plan;
}

}  // namespace outrider
