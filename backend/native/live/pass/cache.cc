#include "live/pass/cache.h"

#include <algorithm>
#include <utility>

namespace outrider {
namespace {

constexpr unsigned n_ring_entry = 256;  // reads of single matrices, for each drive
// Bytes of a prompt's experts that are sent together: 0.2 ms over PCIe 4.0 x16. The last copy may exceed it.
constexpr uint64_t max_sent_bytes = 4 << 20;

std::vector<Residents::Resident> in_store(const Cache & cache) {
    std::vector<Residents::Resident> found;
    const HostLevel * host = cache.core->host();
    for (Layer l = 0; host && l < Layer(cache.n_host_slot.size()); l++) {
        for (Expert e = 0; e < cache.core->shape().n_expert; e++) {
            if (const Slot slot = host->find(l, e); slot != none) {
                found.push_back({l, e, slot});
            }
        }
    }
    return found;
}

// Make the copies from the file, with the system's queue or with threads, and from the host store to devices.
std::unique_ptr<Transfers> make_pool(Cache & cache, const Shape & shape) {
    const PatchOptions & options = cache.options;
    const Slab * slab = cache.slab.get();
    const HostStore * store = cache.store.get();
    // Copies that are read together have the same target.
    const auto target = [slab, store](const Copy & c) -> const Slab & {
        return c.route == Route::file_to_host ? store->slab() : *slab;
    };
    CopyWork read;
    read.bytes = [target](const Copy & c) { return target(c).bytes_of(c); };
    read.joins = [target](const Copy & a, const Copy & b) { return a.route == b.route && target(a).joins(a, b); };
    read.copy = [target, bytes = read.bytes, link = &cache.link_limit,
                 file = &cache.file_limit](std::span<const Copy> copies) {
        uint64_t n_byte = 0;
        for (const Copy & c : copies) {
            n_byte += bytes(c);
        }
        double end_us = file->reserve(n_byte);
        if (copies.front().route == Route::file_to_slot) {
            end_us = std::max(end_us, link->reserve(n_byte));
        }
        target(copies.front()).fill(copies);
        LinkLimit::wait_until(end_us);
    };
    read.max_joined_bytes = options.joined_bytes;
    read.drive = [target](const Copy & c) { return target(c).drive_of(c); };
    read.n_drive = slab->n_drive();
    read.reads = [slab](std::span<const Copy> copies, auto & reads) { slab->reads(copies, reads); };
    read.check = [slab](std::span<const Copy> copies) { slab->check(copies); };
    std::unique_ptr<ReadRing> ring;
    if (options.ring && options.n_transfer_thread > 0 && !options.copy_rule && options.link_bytes_per_s <= 0 &&
        slab->in_blocks()) {
        ring = ReadRing::open(n_ring_entry * unsigned(slab->n_drive()));
    }
    if (ring) {
        ring->keep(slab->memory());
    }
    Transfers::Store to_devices;
    if (store) {
        for (const auto & chunks : shape.chunk_bytes) {
            to_devices.n_chunk.push_back(int32_t(chunks.size()));
        }
        to_devices.n_slot = cache.n_host_slot;
        for (const auto & [layer, expert, slot] : in_store(cache)) {
            to_devices.kept.emplace_back(layer, slot);
        }
        to_devices.send.bytes = [slab](const Copy & c) { return slab->bytes_of(c); };
        const bool may_tell = options.link_bytes_per_s <= 0;  // a limit delays finished copies
        to_devices.copy = [slab, store, may_tell, link = &cache.link_limit](std::span<const Copy> copies,
                                                                            const CopyStream::Begun & begun) {
            uint64_t n_byte = 0;
            for (const Copy & c : copies) {
                n_byte += slab->bytes_of(c);
            }
            const double end_us = link->reserve(n_byte);
            slab->send(copies, *store, may_tell ? begun : CopyStream::Begun());
            LinkLimit::wait_until(end_us);
        };
        // A prompt's experts are sent together, so that the link never waits for a thread, and so are the matrices of a
        // needed expert. The other copies are sent one by one, because a needed expert waits for those that have begun.
        to_devices.send.joins = [](const Copy & a, const Copy & b) {
            const bool staged = a.part == Part::staged && b.part == Part::staged;
            const bool needed =
                a.urgency == Urgency::high && b.urgency == Urgency::high && a.expert == b.expert && a.part == b.part;
            return a.layer == b.layer && (staged || needed);
        };
        to_devices.send.max_joined_bytes = max_sent_bytes;
        to_devices.send.low_share = 1;
        to_devices.n_sending = 0;
        for (const auto & stream : store->streams()) {
            to_devices.n_sending += stream->n_sender();
        }
    }
    auto schedule = options.copy_rule ? std::make_unique<CopySchedule>(*options.copy_rule, *cache.core) : nullptr;
    return std::make_unique<Transfers>(schedule ? 0 : options.n_transfer_thread, std::move(read), std::move(ring),
                                       std::move(to_devices), std::move(schedule));
}

}  // namespace

std::vector<int32_t> divide_host(const MoeGraph & graph, uint64_t n_byte) {
    std::vector<bool> served;
    for (ggml_backend_dev_t device : graph.devices) {
        served.push_back(!ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(device)));
    }
    auto n_slot = HostLevel::divide(graph.shape, served, n_byte);
    const bool any = std::any_of(n_slot.begin(), n_slot.end(), [](int32_t n) { return n > 0; });
    return any ? n_slot : std::vector<int32_t>{};
}

Cache::Cache(const MoeGraph & graph, const ExpertFiles & files, const Layout & layout_,
             std::vector<int32_t> n_host_slot_, const PatchOptions & options_, std::unique_ptr<Core> core_,
             std::unique_ptr<HostStore> kept, Residents left)
    : options(options_),
      layout(layout_),
      n_host_slot(std::move(n_host_slot_)),
      store(kept || n_host_slot.empty() ? std::move(kept)
                                        : std::make_unique<HostStore>(graph.tensors, files, graph.shape, n_host_slot)),
      core(std::move(core_)),
      link_limit(options.link_bytes_per_s),
      file_limit(store ? options.file_bytes_per_s : 0) {
    for (const auto & [layer, expert, slot] : left.in_store) {
        core->handle(Kept{layer, expert, slot, true});
    }
    make_slab(graph, files, std::move(left));  // before the pool, which gives pages to all slots
    pool = make_pool(*this, graph.shape);
    if (!pool->has_ring() && options.n_transfer_thread > 0 && !options.copy_rule) {
        filler = std::make_unique<MemoryFiller>(slab->memory());
    }
    for (ggml_backend_dev_t device : graph.devices) {
        auto it = std::find_if(works.begin(), works.end(), [&](const auto & w) { return w->device() == device; });
        if (it == works.end()) {
            works.push_back(std::make_unique<DeviceWork>(
                device, options.n_thread, graph.shape.n_expert_used, options.max_token,
                [this](const ggml_tensor * t, Part part) { return slab->slots_of(t, part); }));
            it = works.end() - 1;
        }
        work_of.push_back(it->get());
    }
}

// On the host both slabs count as allocated until the residents have moved. Do without them where the system refuses
// that.
void Cache::make_slab(const MoeGraph & graph, const ExpertFiles & files, Residents left) {
    std::vector<Residents::Resident> kept;
    const auto make = [&] {
        const auto take = [&](const Slab & made, Pool pool) {
            const auto of_pool = keep(made, pool, left);
            kept.insert(kept.end(), of_pool.begin(), of_pool.end());
        };
        slab = std::make_unique<Slab>(graph.tensors, files, graph.shape, layout, options.repack, left.slab.get(), take);
    };
    try {
        make();
    } catch (const std::runtime_error &) {
        if (!left.slab) {
            throw;
        }
        left = {};
        kept = {};
        kept_bytes = 0;
        make();
    }
    for (const auto & [layer, expert, slot] : kept) {
        core->handle(Kept{layer, expert, slot});
    }
    if (left.slab) {
        slab->trim(*left.slab);
    }
}

// Take those of the pool's experts that have room. Return them with their new slots.
std::vector<Residents::Resident> Cache::keep(const Slab & made, Pool pool, const Residents & left) {
    const Residency & residency = core->residency();
    std::vector<bool> is_taken(size_t(residency.n_slot(pool)));
    size_t n_free = is_taken.size();
    // They stay in their slots where they can. The others then go where none of those is.
    std::vector<std::pair<Residents::Resident, Slot>> found;
    for (const Residents::Resident & r : left.experts) {
        if (residency.pool({r.layer, Part::top}) != pool || n_free == 0 || !made.can_take(*left.slab, r.layer)) {
            continue;
        }
        n_free--;
        Slot slot = residency.is_whole(r.layer) ? Slot(r.expert) : r.slot;
        slot = slot < residency.n_slot(pool) && !is_taken[size_t(slot)] ? slot : none;
        if (slot != none) {
            is_taken[size_t(slot)] = true;
        }
        found.emplace_back(r, slot);
    }
    std::stable_partition(found.begin(), found.end(), [](const auto & f) { return f.second != none; });
    std::vector<Residents::Resident> kept;
    for (auto & [r, slot] : found) {
        if (slot == none) {
            slot = Slot(std::ranges::find(is_taken, false) - is_taken.begin());
            is_taken[size_t(slot)] = true;
        }
        kept_bytes += made.take(*left.slab, r.layer, r.slot, slot);
        kept.push_back({r.layer, r.expert, slot});
    }
    return kept;
}

Residents Cache::take_residents() {
    Residents left;
    const Residency & residency = core->residency();
    for (Layer l = 0; l < Layer(work_of.size()); l++) {
        const Pool pool = residency.pool({l, Part::top});
        if (pool == none || layout.pools[size_t(pool)].buffer) {
            continue;
        }
        for (Expert e = 0; e < residency.n_expert(); e++) {
            const Slot slot = residency.find({l, Part::top}, e);
            if (slot != none && residency.at(pool, slot).state == SlotState::ready) {
                left.experts.push_back({l, e, slot});
            }
        }
    }
    left.in_store = in_store(*this);
    std::ranges::stable_sort(left.experts, [this](const auto & a, const auto & b) {
        return core->worth(a.layer, a.expert) > core->worth(b.layer, b.expert);
    });
    pool->drain();  // its threads write to the slots
    slab->leave_tensors();
    left.slab = std::move(slab);
    return left;
}

bool Cache::is_own_device(Layer layer) const {
    return !ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(work_of[size_t(layer)]->device()));
}

uint64_t Cache::host_held_bytes() const {
    uint64_t n_read = 0;  // memory that was never written has no pages
    for (Layer l = 0; core->host() && l < Layer(n_host_slot.size()); l++) {
        n_read += core->host()->counts(l).bytes_read;
    }
    return store ? store->held_bytes(n_read) : 0;
}

std::unique_ptr<HostStore> Cache::take_store(const std::vector<int32_t> & n_slot) {
    if (!store || n_slot != n_host_slot) {
        return nullptr;
    }
    uint64_t n_read = host_held_bytes();
    pool->drain();  // its threads write to the store
    store->kept(n_read);
    return std::move(store);
}

}  // namespace outrider
