// The host store: RAM between the file and the slots of devices. It holds whole experts, and is a second residency
// with its own budget. The method's eviction decides here too which experts stay, and its forecasts which are
// fetched.
//
// The scheduler does not know of it. The store is a filter of the scheduler's commands: it turns a copy of an expert
// that it holds into a copy from here; it reads other experts from the file into a slot of its own and copies them on
// from there; and where an expert is worth less than all that it holds, the copy goes from the file straight into the
// slot. So a layer of a prompt uses all that is here before any of it is evicted.
#pragma once

#include <unordered_map>

#include "core/event_log.h"
#include "core/evict/eviction.h"
#include "core/schedule/copy_desk.h"

namespace outrider {

// Counts of one layer since the start. LayerCounts::bytes_read counts all bytes that came into slots.
struct HostCounts {
    uint64_t bytes_read = 0;     // from the file into the store
    uint64_t bytes_found = 0;    // from the store into slots; in the store when the copy was ordered
    uint64_t bytes_awaited = 0;  // from the store into slots; still to be read when the copy was ordered
};

// INVARIANT: a slot of the store that is held, or the source of a copy, has users and is not evicted.
class HostLevel {
  public:
    // `slots`, `eviction`: of the level above; both outlive this. `n_slot`: [layer], 0 where the store holds nothing
    // of a layer. Throws std::invalid_argument.
    HostLevel(const Shape & shape, const Residency & slots, const Eviction & eviction, std::vector<int32_t> n_slot);

    // [layer]: experts that `n_byte` bytes hold, nearly equal over the layers; 0 for layers that are not `served`.
    static std::vector<int32_t> divide(const Shape & shape, const std::vector<bool> & served, uint64_t n_byte);

    // Whether the store ordered this copy, not the scheduler.
    static bool owns(Ticket ticket) { return ticket >= first_ticket; }

    // Comes after the scheduler has answered `event` with the commands from `first` on: replaces its copies by those
    // that go by way of the store, and appends the store's own commands.
    void filter(const Event & event, Commands & out, size_t first);
    // A forecast that is fetched here, at the end of the event, if the slots do not fetch it.
    void expect(const Forecast & forecast);

    // The free slot has the expert from an earlier store.
    void keep(Layer layer, Slot slot, Expert expert) { residency_.keep(place(layer), slot, expert); }
    // The slot that holds all bytes of an expert, or `none`.
    Slot find(Layer layer, Expert expert) const;
    // Keep the expert here until let_go() was called as often. REQUIRES: find() is not `none`.
    void hold(Layer layer, Expert expert);
    void let_go(Layer layer, Expert expert);

    int32_t n_slot(Layer layer) const { return n_slot_[size_t(layer)]; }
    const Residency & residency() const { return residency_; }
    HostCounts counts(Layer layer) const { return counts_[size_t(layer)]; }

  private:
    struct Source {  // of a copy into a slot
        Layer layer;
        Expert expert;
        uint64_t n_byte;
        bool found;
    };

    static constexpr Ticket first_ticket = Ticket(1) << 62;

    static Place place(Layer layer) { return {layer, Part::top}; }
    static Layout layout_of(const std::vector<int32_t> & n_slot);
    int32_t & users(Layer layer, Slot slot) { return users_[size_t(layer)][size_t(slot)]; }
    uint8_t & wanted(Layer layer, Expert expert) { return wanted_[size_t(layer)][size_t(expert)]; }
    Part part_in_slots(Layer layer) const;
    bool in_slots(Layer layer, Expert expert) const {
        return slots_.find({layer, part_in_slots(layer)}, expert) != none;
    }
    double worth(Layer layer, Expert expert) const;
    Slot acquire(Layer layer, Expert expert);
    Slot least_worthy(Layer layer, double below);
    void note_needs(const Event & event);
    void redirect(Copy copy, Commands & out);
    void order(Layer layer, Slot slot, Urgency urgency, bool by_chunk, Commands & out);
    void fetch(const Forecast & forecast, Commands & out);
    void copied(Ticket ticket);
    void cancelled(Ticket ticket, Commands & out);
    void failed(Ticket ticket);
    void end_use(Ticket ticket, bool is_there, Commands & out);
    void drop_unwanted(Layer layer, Commands & out);
    void settle(Layer layer, Slot slot);

    const Residency & slots_;
    const Eviction & eviction_;
    std::vector<int32_t> n_slot_;
    Residency residency_;  // [layer] is its own pool
    CopyDesk desk_;
    std::vector<bool> is_exclusive_;  // [layer]: prefer experts that the slots do not hold
    std::vector<std::vector<int32_t>> users_;  // [layer][slot]
    std::vector<std::vector<uint8_t>> wanted_;  // [layer][expert]: needed by the layer in progress, not computed
    std::unordered_map<Ticket, Source> sources_;
    std::vector<HostCounts> counts_;
    std::vector<Forecast> expected_;  // of the event in progress
    Commands unfiltered_;
};

}  // namespace outrider
