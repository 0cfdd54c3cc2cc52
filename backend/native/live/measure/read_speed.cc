#include "live/measure/read_speed.h"

#include <algorithm>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>

#include "live/ggml/clock.h"
#include "live/io/direct_file.h"
#include "live/io/transfer.h"

namespace outrider {
namespace {

constexpr size_t block = DirectFile::block_bytes;

struct AlignedDelete {
    void operator()(uint8_t * p) const { ::operator delete[](p, std::align_val_t(block)); }
};

}  // namespace

ReadSpeed measure_reads(const std::string & path, uint64_t read_bytes, int n_read, double seconds, bool ring) {
    const DirectFile file(path);
    if (read_bytes == 0 || read_bytes % block != 0 || file.size() < read_bytes) {
        throw std::runtime_error("The file " + path + " is too small to measure a drive with");
    }
    const size_t n_slot = 2 * size_t(n_read);
    const size_t size = n_slot * read_bytes;
    const std::unique_ptr<uint8_t[], AlignedDelete> memory(
        static_cast<uint8_t *>(::operator new[](size, std::align_val_t(block))));

    // The expert of a copy is the block of the file where it begins. Its slot is the piece of memory.
    const auto address = [&](const Copy & c) { return memory.get() + size_t(c.slot) * read_bytes; };
    const auto offset = [](const Copy & c) { return uint64_t(c.expert) * block; };
    CopyWork work;
    work.copy = [&](std::span<const Copy> copies) {
        for (const Copy & c : copies) {
            file.read(offset(c), read_bytes, address(c));
        }
    };
    work.reads = [&](std::span<const Copy> copies, std::vector<ReadRing::Read> & reads) {
        for (const Copy & c : copies) {
            reads.push_back({file.handle(), offset(c), address(c), uint32_t(read_bytes)});
        }
    };
    auto queue = ring && file.direct() ? ReadRing::open(unsigned(n_slot)) : nullptr;
    if (queue) {
        const std::span<uint8_t> known(memory.get(), size);
        queue->keep({&known, 1});
    }
    ReadSpeed speed{0, file.direct(), queue != nullptr};
    TransferPool pool(n_read, std::move(work), std::move(queue));

    std::mt19937_64 random(1);
    const uint64_t n_place = std::min<uint64_t>((file.size() - read_bytes) / block + 1, INT32_MAX);
    const uint64_t began_us = now_us();
    const auto elapsed_s = [&] { return double(now_us() - began_us) / 1e6; };
    uint64_t n_begun = 0;
    const auto submit = [&](Slot slot) {
        const Ticket ticket = n_begun++ * n_slot + uint64_t(slot);
        pool.submit({ticket, 0, Expert(random() % n_place), Part::top, whole_expert, slot, Urgency::high});
    };
    for (Slot slot = 0; slot < Slot(n_slot); slot++) {
        submit(slot);
    }
    pool.begin();
    uint64_t n_done = 0;
    while (elapsed_s() < seconds || n_done == 0) {
        const auto arrival = pool.wait_arrival(std::chrono::milliseconds(100));
        if (!arrival) {
            continue;
        }
        if (!arrival->error.empty()) {
            throw std::runtime_error(arrival->error);
        }
        n_done++;
        submit(Slot(arrival->ticket % n_slot));
        pool.begin();
    }
    speed.bytes_per_s = double(n_done) * double(read_bytes) / elapsed_s();
    return speed;
}

}  // namespace outrider
