#include "host_share.h"

#include <algorithm>
#include <numeric>

namespace outrider {
namespace {

// When device and host are done, if the host computes the first `n_host` of `order`.
double end_us(const HostSpeeds & speeds, std::span<const Missing> missing, std::span<const size_t> order, size_t n_host,
              const DeviceQueue & queue) {
    double host_us = n_host > 0 ? speeds.host_us : 0;
    for (size_t i : order.first(n_host)) {
        host_us += rows_us(speeds.host_us_per_byte, speeds.host_row_us_per_byte, missing[i].bytes, missing[i].n_row);
    }
    double arrived_us = queue.copy_us;
    double device_us = queue.compute_us;
    for (size_t i : order.subspan(n_host)) {
        arrived_us += double(missing[i].bytes_left) * speeds.link_us_per_byte;
        device_us = std::max(device_us, arrived_us) + rows_us(speeds.device_us_per_byte, speeds.device_row_us_per_byte,
                                                              missing[i].bytes, missing[i].n_row);
    }
    return std::max(host_us, device_us);
}

}  // namespace

std::vector<bool> host_share(Hybrid hybrid, const HostSpeeds & speeds, std::span<const Missing> missing,
                             const DeviceQueue & queue) {
    std::vector<bool> on_host(missing.size(), hybrid == Hybrid::host_only && speeds.possible);
    if (hybrid != Hybrid::by_speed || !speeds.possible || missing.empty()) {
        return on_host;
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
        double soonest_us = end_us(speeds, missing, order, n_host = 0, queue);
        for (size_t n = 1; n <= missing.size(); n++) {
            if (const double us = end_us(speeds, missing, order, n, queue); us < soonest_us) {
                soonest_us = us;
                n_host = n;
            }
        }
    }
    for (size_t i = 0; i < n_host; i++) {
        on_host[order[i]] = true;
    }
    return on_host;
}

}  // namespace outrider
