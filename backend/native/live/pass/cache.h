// The objects of one patch configuration: memory for experts, the copies into it, the devices' work, and the core.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/copy_schedule.h"
#include "core/core.h"
#include "live/compute/device_work.h"
#include "live/graph/moe_graph.h"
#include "live/io/link_limit.h"
#include "live/io/memory_filler.h"
#include "live/io/transfers.h"
#include "live/memory/host_store.h"

namespace outrider {

struct PatchOptions {
    int n_thread = 1;           // for computing
    int n_transfer_thread = 2;  // 0: the decoding thread copies
    int max_token = 512;        // of one pass
    // For experiments: bandwidth limit of the copies into slots; 0: none.
    double link_bytes_per_s = 0;
    // Adjacent copies are read together up to this size.
    uint64_t joined_bytes = uint64_t(1) << 20;
    // Read with the system's own queue if it has one and experts are whole blocks.
    bool ring = true;
    // Slots hold experts in the CPU backend's fastest layout, if it has one for them (repack.h).
    bool repack = false;
    // RAM for the host store of the devices; 0: none. Ignored without a device.
    uint64_t host_bytes = 0;
    // For experiments: bandwidth limit of the copies from the file into the host store; 0: none.
    double file_bytes_per_s = 0;
    // For tests: copies end by this rule, and the decoding thread copies.
    std::optional<CopyRule> copy_rule{};

    bool copies_at_once() const { return n_transfer_thread == 0 && !copy_rule; }
};

// Return how many experts of each layer the host store keeps: those of layers that a device computes in memory of its
// own. Empty if it keeps none.
std::vector<int32_t> divide_host(const MoeGraph & graph, uint64_t n_byte);

// The parts of a cache that the next one of the same model takes over.
struct Residents {
    struct Resident {
        Layer layer;
        Expert expert;
        Slot slot;  // in `slab`
    };

    std::unique_ptr<Slab> slab;  // as after Slab::leave_tensors(); null: nothing is left
    std::vector<Resident> experts;  // or their tops; the most worth keeping first
    std::vector<Resident> in_store;  // the slots are the host store's; only if that is kept
};

struct Cache {
    // `kept`: the store of an earlier cache with the same n_host_slot, or null; it has its experts. Those of `left`
    // that have room are in the slots at once. Throws std::runtime_error if memory is short.
    Cache(const MoeGraph & graph, const ExpertFiles & files, const Layout & layout, std::vector<int32_t> n_host_slot,
          const PatchOptions & options, std::unique_ptr<Core> core, std::unique_ptr<HostStore> kept, Residents left);

    // Return the store for the next cache if that has `n_slot`; otherwise null. REQUIRES: this cache is destroyed next.
    std::unique_ptr<HostStore> take_store(const std::vector<int32_t> & n_slot);
    // Return the resident experts for the next cache. REQUIRES: this cache is destroyed next.
    Residents take_residents();
    uint64_t host_held_bytes() const;

    void make_slab(const MoeGraph & graph, const ExpertFiles & files, Residents left);
    std::vector<Residents::Resident> keep(const Slab & made, Pool pool, const Residents & left);
    DeviceWork & work(Layer layer) { return *work_of[size_t(layer)]; }
    // Whether a device with memory of its own computes the layer.
    bool is_own_device(Layer layer) const;

    const PatchOptions options;
    const Layout layout;
    const std::vector<int32_t> n_host_slot;  // [layer], or empty
    // Members are destroyed from the last to the first: the pool stops before the memory that it writes to is freed.
    std::unique_ptr<HostStore> store;  // or null
    const std::unique_ptr<Core> core;
    std::unique_ptr<Slab> slab;
    uint64_t kept_bytes = 0;  // in the host's slots, of experts that an earlier cache left
    LinkLimit link_limit, file_limit;
    std::vector<std::unique_ptr<DeviceWork>> works;  // one for every device
    std::vector<DeviceWork *> work_of;  // [layer]
    std::unique_ptr<Transfers> pool;
    std::unique_ptr<MemoryFiller> filler;
};

}  // namespace outrider
