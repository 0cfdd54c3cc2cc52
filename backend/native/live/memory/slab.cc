#include "live/memory/slab.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "live/ggml/repack.h"
#include "live/io/reserve.h"
#include "live/memory/host_store.h"

namespace outrider {
namespace {

constexpr size_t block = DirectFile::block_bytes;

// Slots of this size or more may get a block of padding, at most 1.6 % of them.
constexpr uint64_t min_bytes_to_pad = 64 * block;

size_t to_next_block(uint64_t x) { return (block - x % block) % block; }
uint64_t whole_blocks(uint64_t x) { return x + to_next_block(x); }

// Return the calling thread's scratch memory for a direct read of `size` bytes at `offset` of a file.
uint8_t * scratch_for(uint64_t offset, size_t size) {
    thread_local std::vector<uint8_t> bytes;
    if (bytes.size() < size + 2 * block) {
        bytes.resize(size + 2 * block);
    }
    uint8_t * start = bytes.data() + to_next_block(reinterpret_cast<uintptr_t>(bytes.data()));
    return start + offset % block;
}

// Return whether the memory's device computes with these slots in one tensor. Otherwise llama.cpp would end the
// process.
bool is_supported(const ggml_tensor & slots, ggml_backend_buffer_type_t buft) {
    // CUDA's kernels count blocks with 32 bits.
    if (slots.nb[3] / ggml_type_size(slots.type) > size_t(std::numeric_limits<int32_t>::max())) {
        return false;
    }
    const ggml_context_ptr context(ggml_init({4 * ggml_tensor_overhead(), nullptr, true}));
    ggml_tensor own = slots;
    own.buffer = nullptr;
    ggml_tensor * rows = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, slots.ne[0], 1, 1);
    ggml_tensor * ids = ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 1, 1);
    return ggml_backend_dev_supports_op(ggml_backend_buft_get_device(buft),
                                        ggml_mul_mat_id(context.get(), &own, rows, ids));
}

// Return some bytes of a tensor's memory as a tensor.
ggml_tensor as_bytes(const ggml_tensor & whole, uint8_t * data, uint64_t n_byte) {
    ggml_tensor bytes{};
    bytes.type = GGML_TYPE_I8;
    bytes.buffer = whole.buffer;
    bytes.data = data;
    const auto n = int64_t(n_byte);
    std::ranges::copy(std::array{n, int64_t(1), int64_t(1), int64_t(1)}, bytes.ne);
    std::ranges::copy(std::array{size_t(1), size_t(n), size_t(n), size_t(n)}, bytes.nb);
    return bytes;
}

}  // namespace

SlotsTooLarge::SlotsTooLarge(const ggml_tensor & slots, uint64_t size_bytes, ggml_backend_buffer_type_t memory)
    : SlotsTooLarge(slots.name, size_bytes, ggml_backend_dev_name(ggml_backend_buft_get_device(memory))) {}

SlotsTooLarge::SlotsTooLarge(const std::string & name, uint64_t size_bytes, const std::string & device_name)
    : std::runtime_error("The slots of " + name + " need " + std::to_string(size_bytes / 1'000'000) +
                         " MB in one piece, more than " + device_name + " allows; a lower cache rate needs less"),
      tensor(name),
      bytes(size_bytes),
      device(device_name) {}

void place_tensor(ggml_tensor & tensor, ggml_backend_buffer_t buffer, void * address) {
    tensor.buffer = nullptr;
    tensor.data = nullptr;
    tensor.extra = nullptr;
    if (ggml_backend_tensor_alloc(buffer, &tensor, address) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("The device refuses the expert cache");
    }
}

Slab::Slab(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const Shape & shape,
           const Layout & layout, bool repack, Slab * old, const Made & made)
    : files_(files), homes_(size_t(shape.n_layer)), repack_(repack) {
    std::vector<std::vector<std::vector<Home *>>> homes_of(layout.pools.size());  // [pool][chunk]
    for (Layer l = 0; l < shape.n_layer; l++) {
        for (Homes & homes : homes_[l]) {
            homes.resize(shape.chunk_bytes[l].size());
        }
    }
    for (const ExpertTensor & t : tensors) {
        const LayerLayout & layer = layout.layers[t.layer];
        saved_.emplace_back(t.tensor, *t.tensor);
        for (Part part : {Part::top, Part::bottom, Part::staged}) {
            if (const Pool pool = layer.pool_of(part); pool != none) {
                Home & home = homes_[t.layer][size_t(part)][t.chunk];
                home = home_of(t, layer, shape, part);
                auto & chunks = homes_of[pool];
                chunks.resize(std::max(chunks.size(), size_t(t.chunk) + 1));
                chunks[t.chunk].push_back(&home);
                slots_[t.tensor][size_t(part)] = home.slots;
            }
        }
        auto & [top, bottom, staged] = slots_[t.tensor];
        top = top ? top : bottom;
        bottom = bottom ? bottom : top;
    }
    for (Layer l = 0; old && l < shape.n_layer; l++) {
        if (!can_take(*old, l)) {
            old->forget(l);
        }
        old->homes_[size_t(l)][size_t(Part::bottom)].clear();
        old->homes_[size_t(l)][size_t(Part::staged)].clear();
    }
    try {
        for (size_t p = 0; p < homes_of.size(); p++) {
            for (size_t c = 0; c < homes_of[p].size(); c++) {
                auto & homes = homes_of[p][c];
                const int32_t n_most = shape.n_expert * int32_t(homes.size());
                const bool is_whole = layout.pools[p].n_slot >= n_most;  // its experts change places
                allocate(homes, {.pool = p, .chunk = Chunk(c), .n_home = homes.size()}, layout.pools[p].n_slot, n_most,
                         old, !is_whole);
            }
            for (const ExpertTensor & t : tensors) {
                const LayerLayout & layer = layout.layers[t.layer];
                if (layer.is_cut() && layer.pool_of(Part::top) == Pool(p)) {
                    show_one(t);  // a backend may write behind that one: before experts come
                }
            }
            if (made) {
                made(*this, Pool(p));
            }
            for (Layer l = 0; old && l < shape.n_layer; l++) {
                if (layout.layers[size_t(l)].pool_of(Part::top) == Pool(p)) {
                    old->forget(l);
                }
            }
        }
    } catch (...) {
        restore();
        throw;
    }
}

// Point the model's tensor of a cut layer at the slots. Nothing computes with it, but ggml's scheduler asks where it
// lies. A device gets to see the whole graph, and a remote one checks that each tensor lies in its memory. So the
// tensor has one expert there, in a buffer of its own if the slots are smaller than a whole expert.
void Slab::show_one(const ExpertTensor & t) {
    const ggml_tensor & slots = *slots_of(t.tensor, Part::top);
    if (ggml_backend_buft_is_host(t.memory ? t.memory : ggml_backend_dev_buffer_type(t.device))) {
        t.tensor->buffer = slots.buffer;
        t.tensor->data = slots.data;
        ggml_backend_buffer_init_tensor(slots.buffer, t.tensor);
        return;
    }
    t.tensor->ne[2] = 1;
    t.tensor->nb[3] = t.tensor->nb[2];
    const auto buft = ggml_backend_buffer_get_type(slots.buffer);
    const size_t size = ggml_backend_buft_get_alloc_size(buft, t.tensor);
    ggml_backend_buffer_t buffer = slots.buffer;
    if (ggml_backend_buffer_get_size(buffer) < size) {
        buffer = shown_.emplace_back(ggml_backend_buft_alloc_buffer(buft, size)).get();
        if (!buffer) {
            throw std::runtime_error(no_memory);
        }
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    place_tensor(*t.tensor, buffer, ggml_backend_buffer_get_base(buffer));
}

void Slab::restore() {
    for (const auto & [tensor, as_made] : saved_) {
        *tensor = as_made;
    }
}

void Slab::leave_tensors() {
    for (auto & parts : homes_) {
        for (Homes & homes : parts) {
            for (Home & home : homes) {
                if (home.slots) {
                    home.slots = own_tensors_.emplace_back(std::make_unique<ggml_tensor>(*home.slots)).get();
                }
            }
        }
    }
    restore();
    saved_.clear();
}

bool Slab::can_take(const Slab & from, Layer layer) const {
    const auto has = [](const Home & a, const Home & b) {
        const bool is_equal = a.bytes() == b.bytes() && a.n_piece == b.n_piece;
        // A top is the beginning of every piece of a larger one. Pieces are those of the file.
        const bool is_less = a.on_host && a.bytes() < b.bytes() && a.repacked == a.place.repacked;
        return a.slots && b.slots && a.repacked == b.repacked && a.on_host == b.on_host && (is_equal || is_less) &&
               (a.on_host || a.memory == b.memory);
    };
    return std::ranges::equal(homes_[size_t(layer)][size_t(Part::top)], from.homes_[size_t(layer)][size_t(Part::top)],
                              has);
}

bool Slab::shares(const Slab & from, Layer layer) const {
    const auto is_same = [](const Home & a, const Home & b) { return a.slots->data == b.slots->data; };
    return can_take(from, layer) && std::ranges::equal(homes_[size_t(layer)][size_t(Part::top)],
                                                       from.homes_[size_t(layer)][size_t(Part::top)], is_same);
}

uint64_t Slab::take(const Slab & from, Layer layer, Slot from_slot, Slot slot) const {
    const Homes & homes = homes_[size_t(layer)][size_t(Part::top)];
    const Homes & others = from.homes_[size_t(layer)][size_t(Part::top)];
    uint64_t n_byte = 0;
    for (size_t chunk = 0; chunk < homes.size(); chunk++) {
        const Home & home = homes[chunk];
        const Home & other = others[chunk];
        uint8_t *to = home.in_slot(slot), *bytes = other.in_slot(from_slot);
        if (!home.on_host) {
            ggml_tensor was = as_bytes(*other.slots, bytes, home.bytes());
            ggml_tensor is = as_bytes(*home.slots, to, home.bytes());
            ggml_backend_tensor_copy(&was, &is);
            continue;
        }
        n_byte += home.bytes();
        const uint64_t piece_bytes = other.bytes() / uint64_t(home.n_piece);
        if (piece_bytes == home.piece_bytes && to != bytes) {
            std::memcpy(to, bytes, home.bytes());
        }
        for (uint64_t i = 0; piece_bytes != home.piece_bytes && i < uint64_t(home.n_piece); i++) {
            std::memmove(to + i * home.piece_bytes, bytes + i * piece_bytes, home.piece_bytes);
        }
        if (home.slots->data != other.slots->data) {
            take_pages(bytes, other.bytes());
        }
    }
    return n_byte;
}

void Slab::trim(const Slab & from) const {
    for (const Reserved & was : from.reserved_) {
        const auto is_same = [&](const Reserved & r) { return r.begin == was.begin; };
        const auto it = std::ranges::find_if(reserved_, is_same);
        if (it != reserved_.end() && it->used < was.used) {
            take_pages(was.begin.get() + it->used, was.used - it->used);
        }
    }
}

Slab::Home Slab::home_of(const ExpertTensor & t, const LayerLayout & layer, const Shape & shape, Part part) {
    Home home{};
    home.memory = t.memory ? t.memory : ggml_backend_dev_buffer_type(t.device);
    home.on_host = ggml_backend_buft_is_host(home.memory);
    home.slots = t.tensor;
    if (part == Part::staged || layer.is_cut()) {
        home.slots = own_tensors_.emplace_back(std::make_unique<ggml_tensor>(*t.tensor)).get();
    }
    int64_t & width = home.slots->ne[t.is_down ? 0 : 1];  // the hidden width
    const int64_t n_top = std::llround(layer.top_share * shape.cuts(t.layer)) * (width / shape.cuts(t.layer));
    const int64_t first = layer.is_cut() && part == Part::bottom ? n_top : 0;
    if (layer.is_cut()) {
        width = part == Part::top ? n_top : width - n_top;
    }
    const int64_t n_together = layer.is_cut() && repack_ && home.on_host ? rows_together(t.tensor->type) : 1;
    home.repacked = repack_ && home.on_host && n_together > 0 && n_top % n_together == 0 &&
                    t.tensor->ne[1] % n_together == 0 &&
                    can_repack(t.tensor->type, home.slots->ne[0], home.slots->ne[1]);
    home.files = &files_;
    home.place = t.packed && t.packed->repacked == home.repacked ? *t.packed : t.place;
    home.place.stride = home.place.stride > 0 ? home.place.stride : t.expert_bytes;
    if (layer.is_cut()) {
        home.place.sums = nullptr;
    }
    home.matrix_bytes = t.expert_bytes;
    home.chunk = t.chunk;
    home.n_chunk = int32_t(shape.chunk_bytes[t.layer].size());
    home.row_bytes = t.tensor->nb[1];
    home.n_piece = 1;
    home.piece_bytes = t.expert_bytes;
    if (layer.is_cut() && t.is_down) {
        const int64_t n_row = home.place.repacked ? n_together : 1;  // in each range
        home.skip_bytes = ggml_row_size(t.tensor->type, first) * uint64_t(n_row);
        home.piece_bytes = ggml_row_size(t.tensor->type, width) * uint64_t(n_row);
        home.row_bytes *= uint64_t(n_row);
        home.n_piece = t.tensor->ne[1] / n_row;
        home.slots->nb[1] = ggml_row_size(t.tensor->type, width);
    } else if (layer.is_cut()) {
        home.skip_bytes = uint64_t(first) * home.row_bytes;
        home.piece_bytes = uint64_t(width) * home.row_bytes;
    }
    return home;
}

// Allocate `n_slot` slots of the largest of `homes`; all of them use these slots. Throws if the device allows no buffer
// of that size or memory is short. On the host, if possible, a slot's address is congruent modulo the block with its
// expert's place in the file, so that direct reads need no second copy. Slots are then whole blocks.
// `shares`: the slots may lie in the memory of `old`.
void Slab::allocate(std::vector<Home *> & homes, Reserved wanted, int32_t n_slot, int32_t n_most, Slab * old,
                    bool shares) {
    auto buft = homes.front()->memory;
    const bool is_host = ggml_backend_buft_is_host(buft);
    const auto larger = [](const Home * a, const Home * b) { return a->bytes() < b->bytes(); };
    const Home & largest = **std::max_element(homes.begin(), homes.end(), larger);
    uint64_t room = whole_blocks(largest.bytes());
    uint64_t place = 0;  // in its block, of the first home with one range
    bool any_range = false, steady = true;
    for (const Home * h : homes) {
        if (h->n_piece == 1) {
            place = any_range ? place : h->first() % block;
            any_range = true;
            steady = steady && h->place.stride % block == 0;
            room = std::max(room, whole_blocks(h->first() % block + h->bytes()));
        }
    }
    const bool pad = is_host && steady && largest.bytes() >= min_bytes_to_pad;
    const uint64_t stride = pad ? room : largest.bytes();
    if (largest.repacked) {
        buft = repack_buffer_type();
    }

    ggml_tensor all = *largest.slots;
    all.ne[2] = n_slot;
    all.nb[2] = stride;
    all.nb[3] = stride * uint64_t(n_slot);
    // Kernels may read a little past the last row. The device says how much.
    const size_t size = std::max<size_t>(ggml_backend_buft_get_alloc_size(buft, &all), all.nb[3]);
    if (!is_host && !is_supported(all, buft)) {
        throw SlotsTooLarge(all, size, buft);
    }
    const bool is_plain = buft == ggml_backend_cpu_buffer_type();
    wanted.size = stride * uint64_t(n_most) + 4 * block;
    wanted.used = size + 2 * block;
    wanted.stride = stride;
    wanted.type = buft;
    const bool is_reserved =
        (is_plain || largest.repacked) && wanted.used <= wanted.size && reserve(wanted, shares ? old : nullptr);
    // The reserved buffer of a type of its own only says how the slots are computed with.
    const size_t n_byte = is_reserved ? block : is_host ? wanted.used : size;
    ggml_backend_buffer_t buffer = is_reserved && is_plain
                                       ? ggml_backend_cpu_buffer_from_ptr(wanted.begin.get(), wanted.used)
                                       : ggml_backend_buft_alloc_buffer(buft, n_byte);
    while (!buffer && old && old->forget_last()) {
        buffer = ggml_backend_buft_alloc_buffer(buft, n_byte);
    }
    if (!buffer) {
        // Some devices allow larger buffers than they say, so this only explains a refusal.
        if (!is_host && size > ggml_backend_buft_get_max_size(buft)) {
            throw SlotsTooLarge(all, size, buft);
        }
        throw std::runtime_error(no_memory);
    }
    const std::shared_ptr<ggml_backend_buffer> owned(buffer, ggml_backend_buffer_free);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    bytes_ += size;
    has_memory_asked_for_ = has_memory_asked_for_ && (is_reserved || ggml_backend_buffer_get_type(buffer) == buft);
    auto * base = is_reserved ? wanted.begin.get() : static_cast<uint8_t *>(ggml_backend_buffer_get_base(buffer));
    if (is_host) {
        prefer_large_pages(base, wanted.used);
        host_memory_.emplace_back(base, wanted.used);
        base += to_next_block(reinterpret_cast<uintptr_t>(base));
    } else {
        ggml_backend_buffer_clear(buffer, 0);
    }
    for (Home * home : homes) {
        home->buffer = owned;
        // ggml treats ne[2] = 1 as one matrix, not as a stack. The second matrix has no memory and is never used.
        home->slots->ne[2] = std::max(n_slot, home->repacked ? 2 : 1);
        home->slots->nb[2] = all.nb[2];
        home->slots->nb[3] = all.nb[3];
        if (!is_host) {
            place_tensor(*home->slots, buffer, base);
            continue;
        }
        home->slots->buffer = buffer;
        // Gathered columns begin with the slot: the slot has no room for another place of theirs.
        const uint64_t in_block = home->n_piece == 1 ? home->first() % block : 0;
        home->slots->data = base + (pad ? in_block : place);
        if (home->repacked) {
            ggml_backend_buffer_init_tensor(buffer, home->slots);
        }
    }
}

// Free the memory that only the last layer with slots uses. Return whether there is one.
bool Slab::forget_last() {
    for (Layer l = Layer(homes_.size()); l-- > 0;) {
        if (!homes_[size_t(l)][size_t(Part::top)].empty()) {
            forget(l);
            return true;
        }
    }
    return false;
}

// Reserve address space of the size, or take that of another slab if it fits. Return whether there is some.
bool Slab::reserve(Reserved & wanted, const Slab * old) {
    const auto fits = [&](const Reserved & r) {
        return r.pool == wanted.pool && r.chunk == wanted.chunk && r.n_home == wanted.n_home &&
               r.stride == wanted.stride && r.type == wanted.type && r.size == wanted.size;
    };
    if (old) {
        const auto it = std::ranges::find_if(old->reserved_, fits);
        wanted.begin = it == old->reserved_.end() ? nullptr : it->begin;
    }
    if (!wanted.begin && reserving_is_free) {
        const auto release = [size = wanted.size](uint8_t * begin) { release_address_space(begin, size); };
        auto * begin = static_cast<uint8_t *>(reserve_address_space(wanted.size));
        wanted.begin = begin ? std::shared_ptr<uint8_t>(begin, release) : nullptr;
    }
    if (wanted.begin) {
        reserved_.push_back(wanted);
    }
    return wanted.begin != nullptr;
}

ggml_tensor * Slab::slots_of(const ggml_tensor * own, Part part) const {
    const auto it = slots_.find(own);
    return it == slots_.end() ? nullptr : it->second[size_t(part)];
}

template <typename Use>
void Slab::for_chunks(const Copy & copy, Use && use) const {
    const Homes & homes = homes_[copy.layer][size_t(copy.part)];
    if (copy.chunk != whole_expert) {
        use(homes[copy.chunk]);
        return;
    }
    for (const Home & home : homes) {
        use(home);
    }
}

// Ranges of a file that go into slots unchanged. Ranges with only padding between them are read at once.
class Slab::Ranges {
  public:
    void add(const Home & home, Expert expert, Slot slot) {
        const uint64_t begin = home.begin(expert);
        const DirectFile * file = &home.file(expert);
        const bool continues = file == file_ && begin >= end_ && begin - end_ <= room_;
        if (!continues) {
            read();
            file_ = file;
            begin_ = begin;
        } else if (!pieces_.empty()) {
            pieces_.back().size += begin - end_;  // the padding goes into the slot's padding
        }
        pieces_.push_back({home.in_slot(slot), home.bytes()});
        end_ = home.end(expert);
        room_ = home.room();
    }
    void read() {
        if (!pieces_.empty()) {
            file_->read(begin_, pieces_);
        }
        pieces_.clear();
        file_ = nullptr;
    }

  private:
    const DirectFile * file_ = nullptr;
    uint64_t begin_ = 0;
    uint64_t end_ = 0;
    uint64_t room_ = 0;  // after the last piece in its slot
    std::vector<DirectFile::Piece> pieces_;
};

void Slab::fill(std::span<const Copy> copies) const {
    Ranges ranges;
    for (const Copy & copy : copies) {
        for_chunks(copy, [&](const Home & home) {
            if (goes_straight(home)) {
                ranges.add(home, copy.expert, copy.slot);
            } else {
                fill_chunk(home, copy.expert, copy.slot);
            }
        });
    }
    ranges.read();
    check(copies);
}

void Slab::check(std::span<const Copy> copies) const {
    for (const Copy & copy : copies) {
        for_chunks(copy, [&](const Home & home) {
            if (goes_straight(home)) {
                compare(home, copy.expert, home.in_slot(copy.slot));
            }
        });
    }
}

void Slab::compare(const Home & home, Expert expert, const uint8_t * bytes) {
    PackSums * sums = home.place.sums.get();
    if (sums && !sums->is_right(expert)) {
        sums->add(expert, home.chunk, home.n_chunk, home.place.in_range, {bytes, size_t(home.bytes())});
    }
}

bool Slab::differs(const Copy & copy) const {
    bool differs = false;
    std::vector<uint8_t> memory, in_slot;
    for_chunks(copy, [&](const Home & home) {
        memory.resize(home.bytes());
        const uint8_t * wanted = as_in_slot(home, copy.expert, memory.data());
        const uint8_t * found = home.in_slot(copy.slot);
        if (!home.on_host) {
            in_slot.resize(home.bytes());
            ggml_backend_tensor_get(home.slots, in_slot.data(), size_t(copy.slot) * home.slots->nb[2], in_slot.size());
            found = in_slot.data();
        }
        differs = differs || std::memcmp(wanted, found, home.bytes()) != 0;
    });
    return differs;
}

bool Slab::joins(const Copy & first, const Copy & second) const {
    const Home * last = nullptr;
    for_chunks(first, [&](const Home & home) { last = &home; });
    const Home * next = nullptr;
    for_chunks(second, [&](const Home & home) { next = next ? next : &home; });
    if (&last->file(first.expert) != &next->file(second.expert) || !goes_straight(*last) || !goes_straight(*next)) {
        return false;
    }
    const uint64_t end = last->end(first.expert);
    const uint64_t begin = next->begin(second.expert);
    return begin >= end && begin - end <= last->room();
}

bool Slab::in_blocks() const {
    for (const auto & layer : homes_) {
        for (const Homes & homes : layer) {
            if (!std::all_of(homes.begin(), homes.end(),
                             [&](const Home & home) { return !home.slots || is_in_blocks(home); })) {
                return false;
            }
        }
    }
    return true;
}

// Bytes read before and after a matrix, up to the ends of its blocks, go into the slot's padding.
bool Slab::is_in_blocks(const Home & home) const {
    const uint64_t place = home.first() % block;
    return goes_straight(home) && files_.direct(home.place) && home.place.stride % block == 0 &&
           home.slots->nb[2] % block == 0 && home.slots->nb[2] >= place + home.bytes() &&
           reinterpret_cast<uintptr_t>(home.slots->data) % block == place;
}

void Slab::reads(std::span<const Copy> copies, std::vector<ReadRing::Read> & reads) const {
    for (const Copy & copy : copies) {
        for_chunks(copy, [&](const Home & home) {
            const uint64_t place = home.first() % block;
            const auto size = uint32_t(whole_blocks(place + home.bytes()));
            reads.push_back({home.file(copy.expert).handle(), home.begin(copy.expert) - place,
                             home.in_slot(copy.slot) - place, size});
        });
    }
}

bool Slab::goes_straight(const Home & home) const {
    return home.on_host && home.n_piece == 1 && home.repacked == home.place.repacked;
}

uint64_t Slab::bytes_of(const Copy & copy) const {
    uint64_t sum = 0;
    for_chunks(copy, [&](const Home & home) { sum += home.bytes(); });
    return sum;
}

size_t Slab::drive_of(const Copy & copy) const {
    const Homes & homes = homes_[copy.layer][size_t(copy.part)];
    const Home & home = homes[copy.chunk == whole_expert ? 0 : copy.chunk];
    return files_.drive(home.place.at(copy.expert).part);
}

// Copy the part's pieces of a whole matrix to `to`, without gaps. `to` may be `matrix`: no piece moves forward.
void Slab::gather(const Home & home, const uint8_t * matrix, uint8_t * to) {
    for (int64_t i = 0; i < home.n_piece; i++) {
        std::memmove(to + uint64_t(i) * home.piece_bytes, matrix + uint64_t(i) * home.row_bytes + home.skip_bytes,
                     home.piece_bytes);
    }
}

void Slab::send(std::span<const Copy> copies, const HostStore & from, const CopyStream::Begun & begun) const {
    std::vector<CopyStream::Piece> pieces;
    std::vector<std::vector<uint8_t>> gathered;
    for (const Copy & copy : copies) {
        const Homes & homes = homes_[copy.layer][size_t(copy.part)];
        for_chunks(copy, [&](const Home & home) {
            const uint8_t * bytes = from.matrix(copy.layer, Chunk(&home - homes.data()), copy.from_slot);
            if (home.n_piece > 1) {
                auto & columns = gathered.emplace_back(home.bytes());
                gather(home, bytes, columns.data());
                bytes = columns.data();
            } else {
                bytes += home.skip_bytes;
            }
            pieces.push_back({home.slots, size_t(copy.slot) * home.slots->nb[2], bytes, home.bytes()});
        });
    }
    from.stream_to(copies.front().layer).send(pieces, begun);
}

// Read a matrix of an expert. Return its bytes as its slot has them: at `to`, or in the thread's scratch memory.
const uint8_t * Slab::as_in_slot(const Home & home, Expert expert, uint8_t * to) const {
    const uint64_t matrix = home.begin(expert) - home.skip_bytes;
    // Columns are a few bytes of each row. Reading the whole matrix costs less than many small reads.
    const bool in_pieces = home.n_piece > 1;
    const uint64_t offset = in_pieces ? matrix : matrix + home.skip_bytes;
    const size_t size = in_pieces ? home.matrix_bytes : home.piece_bytes;
    uint8_t * bytes = scratch_for(offset, size);
    home.file(expert).read(offset, size, bytes);
    const bool converts = home.repacked != home.place.repacked;
    if (in_pieces) {
        gather(home, bytes, converts ? bytes : to);
    }
    if (converts) {
        repack(home.slots->type, home.slots->ne[0], home.slots->ne[1], bytes, to);
    }
    return in_pieces || converts ? to : bytes;
}

void Slab::fill_chunk(const Home & home, Expert expert, Slot slot) const {
    thread_local std::vector<uint8_t> for_device;
    for_device.resize(home.on_host ? 0 : home.bytes());
    uint8_t * to = home.on_host ? home.in_slot(slot) : for_device.data();
    const uint8_t * bytes = as_in_slot(home, expert, to);
    compare(home, expert, bytes);
    if (home.on_host && bytes != to) {
        std::memcpy(to, bytes, home.bytes());
    } else if (!home.on_host) {
        CopyStream::send_blocking({home.slots, size_t(slot) * home.slots->nb[2], bytes, home.bytes()});
    }
}

}  // namespace outrider
