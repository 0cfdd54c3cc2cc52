#include "core/schedule/host_share.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace outrider {
namespace {

// Orders by the host's cost for each byte of copying that it saves, the lowest first. Unmeasured: fewest rows first.
std::vector<size_t> host_order(const HostSpeeds & speeds, std::span<const Missing> missing, bool measured) {
    std::vector<double> gains;
    for (const Missing & m : missing) {
        const double us = measured ? host_us(speeds, m) : double(m.bytes) * m.n_row;
        gains.push_back(double(m.bytes_left) / std::max(us, 1e-9));
    }
    std::vector<size_t> order(missing.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return gains[a] > gains[b]; });
    return order;
}

// The number of experts on the host, from the first one on, with which the layer ends soonest.
size_t soonest(const HostSpeeds & speeds, std::span<const Missing> ordered, const DeviceQueue & queue) {
    const size_t n_all = ordered.size();
    std::vector<double> host_end_us{0};  // [number]
    for (const Missing & m : ordered) {
        host_end_us.push_back((host_end_us.size() == 1 ? speeds.host_us : host_end_us.back()) + host_us(speeds, m));
    }
    size_t best = 0;
    double soonest_us = std::numeric_limits<double>::infinity();
    const auto consider = [&](size_t n, double gain) {
        const double device_end_us = device_side_us(speeds, ordered.subspan(n), queue) * speeds.device_times;
        const double us = std::max(host_end_us[n], device_end_us);
        if (us < soonest_us * (1 - gain)) {
            soonest_us = us;
            best = n;
        }
    };
    consider(0, 0);
    consider(n_all, 0);
    const double alone_us = soonest_us;
    for (size_t n = 1; n < n_all; n++) {
        consider(n, soonest_us == alone_us ? least_gain : 0);
    }
    return best;
}

}  // namespace

double device_side_us(const HostSpeeds & speeds, std::span<const Missing> copied, const DeviceQueue & queue) {
    double arrived_us = queue.copy_us;
    double us = queue.compute_us;
    for (const Missing & m : copied) {
        arrived_us += double(m.bytes_left) * speeds.link_us_per_byte;
        us = std::max(us, arrived_us) + device_us(speeds, m);
    }
    return us;
}

HostPlan host_share(Hybrid hybrid, const HostSpeeds & speeds, std::span<const Missing> missing,
                    const DeviceQueue & queue) {
    HostPlan plan{std::vector<bool>(missing.size(), hybrid == Hybrid::host_only && speeds.possible), {}};
    if (hybrid != Hybrid::by_speed || !speeds.possible || missing.empty()) {
        return plan;
    }
    const bool link_known = speeds.link_us_per_byte > 0;
    const bool measured = link_known && speeds.host_us_per_byte > 0;
    plan.order = host_order(speeds, missing, measured);
    size_t n_host = (missing.size() + (link_known ? 1 : 0)) / 2;
    if (measured) {
        std::vector<Missing> ordered;
        for (size_t i : plan.order) {
            ordered.push_back(missing[i]);
        }
        n_host = soonest(speeds, ordered, queue);
    }
    for (size_t i = 0; i < n_host; i++) {
        plan.on_host[plan.order[i]] = true;
    }
    return plan;
}

}  // namespace outrider
