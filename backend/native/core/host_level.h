// The host's memory between the file and the slots of devices: whole experts, a second residency with
// a budget of its own. The method's eviction says here too who stays, and its forecasts what comes.
//
// The scheduler does not know of it. What it orders passes through descend(): what is here is copied
// from here; what is not is read from the file into a slot of this store and copied on from there; and
// what is worth less than all that is here goes from the file straight into its slot. A layer of a
// prompt thereby uses what is here before any of it gives way.
#pragma once

#include <unordered_map>

#include "evict/eviction.h"
#include "schedule/copy_desk.h"

namespace outrider {

// Of one layer, since the start. All that came into slots: LayerCounts::bytes_read.
struct HostCounts {
    uint64_t bytes_read = 0;     // from the file into the store
    uint64_t bytes_found = 0;    // from the store into slots, and there when the copy was ordered
    uint64_t bytes_awaited = 0;  // likewise, but the file was waited for
};

// INVARIANT: a slot of the store that is the source of a copy, or held, has users and does not leave.
class HostLevel {
  public:
    // `slots`, `eviction`: the level above, and who decides there; both outlive this. `n_slot`: [layer],
    // 0 where a layer has nothing to do with the store. Throws std::invalid_argument.
    HostLevel(const Shape & shape, const Residency & slots, const Eviction & eviction, std::vector<int32_t> n_slot);

    // How many experts of each layer `n_byte` bytes hold, of each layer nearly the same number; 0 for
    // layers that are not `served`.
    static std::vector<int32_t> divide(const Shape & shape, const std::vector<bool> & served, uint64_t n_byte);

    // Whether a copy was ordered here, not by the scheduler.
    static bool owns(Ticket ticket) { return ticket >= first_ticket; }

    // What happened, in the order of the core's events.
    void pass_began() { residency_.reclaim(); }
    void routed(Layer layer, std::span<const Demand> demands);
    void expect(const Forecast & forecast);
    void computed(Layer layer, Expert expert, Part part);
    void aborted();
    // Of the store's own copies.
    void copied(Ticket ticket);
    void cancelled(Ticket ticket, Commands & out);
    void failed(Ticket ticket);
    // One of the scheduler's copies is over.
    void ended(Ticket ticket, bool is_there);

    // At the end of an event: takes the commands from `first` on, and puts in their place what brings
    // the same by way of the store.
    void descend(Commands & out, size_t first);

    // Where all bytes of an expert are, or `none`.
    Slot find(Layer layer, Expert expert) const;
    // It does not leave until it was let go as often as it was held. REQUIRES: find() is not `none`.
    void hold(Layer layer, Expert expert);
    void let_go(Layer layer, Expert expert);

    int32_t n_slot(Layer layer) const { return n_slot_[size_t(layer)]; }
    const Residency & residency() const { return residency_; }
    HostCounts counts(Layer layer) const;

  private:
    struct Source {  // of a copy into a slot
        Layer layer;
        Expert expert;
        uint64_t n_byte;
        bool found;
    };
    struct End {
        Ticket ticket;
        bool is_there;
    };

    static constexpr Ticket first_ticket = Ticket(1) << 62;

    static Place place(Layer layer) { return {layer, Part::top}; }
    static Layout layout_of(const std::vector<int32_t> & n_slot);
    int32_t & users(Layer layer, Slot slot) { return users_[size_t(layer)][size_t(slot)]; }
    uint8_t & wanted(Layer layer, Expert expert) { return wanted_[size_t(layer)][size_t(expert)]; }
    Part part_in_slots(Layer layer) const;
    double worth(Layer layer, Expert expert) const;
    Slot acquire(Layer layer, Expert expert);
    Slot least_worthy(Layer layer, double below);
    void redirect(Copy copy, Commands & out);
    void order(Layer layer, Slot slot, Urgency urgency, bool by_chunk, Commands & out);
    void fetch(const Forecast & forecast, Commands & out);
    void end_use(const End & end, Commands & out);
    void drop_unwanted(Layer layer, Commands & out);
    void settle(Layer layer, Slot slot);

    const Residency & slots_;
    const Eviction & eviction_;
    std::vector<int32_t> n_slot_;
    Residency residency_;  // [layer] is its own pool
    CopyDesk desk_;
    std::vector<bool> keeps_apart_;             // [layer]: what the slots hold, the store need not
    std::vector<std::vector<int32_t>> users_;   // [layer][slot]
    std::vector<std::vector<uint8_t>> wanted_;  // [layer][expert]: needed by the layer in progress, not computed
    std::unordered_map<Ticket, Source> sources_;
    std::vector<HostCounts> counts_;
    // Of the event in progress.
    std::vector<Forecast> expected_;
    std::vector<End> ends_;
    Layer gate_ = none;
    Commands taken_;
};

}  // namespace outrider
