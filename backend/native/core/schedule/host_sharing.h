// The host computes some of the experts that a device lacks: which, and who helps whom meanwhile (host_share.h has
// the arithmetic).
#pragma once

#include "core/schedule/victims.h"

namespace outrider {

class HostSharing : OrderedPart {
  public:
    HostSharing(const OrderedPart & part, Victims & victims, const HostShare & host)
        : OrderedPart(part), victims_(victims), host_(host) {}

    // At the gate: divide the missing experts between copies and the host.
    void share();
    // Send the host its experts, in computing order.
    void begin(Commands & out);
    // A copy has ended; the host has computed a need.
    void copied() { link_moved_ = true; }
    void computed(const Need & need, Commands & out);
    // `us` after the gate: let whoever is about to have nothing left take over a need of the other, if the layer ends
    // sooner so.
    void balance(double us, Commands & out);
    // The host did not begin with an expert that it was told to give back: it is copied.
    void withdrawn(Layer layer, Expert expert);
    // Whether the slot holds an expert that the host took over. Its copies go on, for the next time: another expert
    // was evicted for it.
    bool keeps(const SlotInfo & info) const;
    double planned_device_us() const;

  private:
    struct Rest {  // of a layer that host and device share
        size_t n_host = 0;  // needs that the host has not computed
        double host_us = 0;
        Need * last_on_host = nullptr;  // the one that the host will begin last
        DeviceQueue queue;
        // All that the device computes from the gate on: a lower bound, for some devices answer before they end.
        double compute_us = 0;
        std::vector<Missing> to_come;  // to the device; the first one is last_to_come
        Need * last_to_come = nullptr;  // the last to arrive of those that the host could compute
        bool any_waits = false;  // for a slot
    };

    const HostSpeeds & speeds() const { return host_.speeds[size_t(needs_.layer())]; }
    // Whether the host would compute without the file.
    bool in_memory(const Need & need) const { return !host_.has || host_.has(needs_.layer(), need.expert); }
    Missing missing_of(const Need & need) const;
    void count(const Need & need, int sign);
    Rest rest(double us);
    void take_over(Need & need, Commands & out);
    bool copies_pay(const Need & need) const;
    void keep_for_later(const Need & need, Commands & out);

    Victims & victims_;
    HostShare host_;
    bool shares_ = false;  // by speed, the host computes some of the layer's missing experts
    bool all_on_host_ = false;  // or all of them
    DeviceQueue queue_;  // at the gate
    bool host_moved_ = false, link_moved_ = false;  // since the last balance()
    double host_at_us_ = 0, link_at_us_ = 0;  // after the gate: the balance() that saw them move last
};

}  // namespace outrider
