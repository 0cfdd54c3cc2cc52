// Tests of the files that depend on the system: system_test NAME runs one in the current folder, and fails by
// aborting. `make wine-check` runs them under wine.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "live/ggml/shared_library.h"
#include "live/io/direct_file.h"
#include "live/io/mapped_file.h"
#include "live/io/read_ring.h"
#include "live/io/reserve.h"
#include "live/io/transfer.h"

using namespace outrider;

// In place of ggml's: folder_of_ggml() looks for the library that has it.
extern "C" size_t ggml_backend_reg_count() { return 0; }

namespace {

constexpr size_t block = DirectFile::block_bytes;

void require(bool is_true, const char * what) {
    if (!is_true) {
        std::fprintf(stderr, "%s\n", what);
        std::abort();
    }
}

uint8_t byte_at(size_t i) { return uint8_t(i * 7 + i / 251); }

// A file of several blocks and a half, with a name beyond ASCII.
struct Sample {
    static constexpr size_t size = 5 * block + 1234;
    std::string path = "Ünï code 模型.bin";

    Sample() {
        std::vector<char> bytes(size);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = char(byte_at(i));
        }
        std::ofstream(wide(), std::ios::binary).write(bytes.data(), std::streamsize(size));
    }
    ~Sample() { std::filesystem::remove(wide()); }
    std::filesystem::path wide() const { return std::u8string(path.begin(), path.end()); }
};

void reads_any_range() {
    const Sample sample;
    const DirectFile file(sample.path);
    require(file.size() == Sample::size, "size");
    std::vector<uint8_t> memory(Sample::size + 2 * block);
    for (const size_t from : {size_t(0), size_t(1), block - 1, block, 3 * block + 17}) {
        for (const size_t n : {size_t(1), size_t(100), block, 2 * block + 5, Sample::size - from}) {
            if (from + n <= Sample::size) {
                file.read(from, n, memory.data());
                for (size_t i = 0; i < n; i++) {
                    require(memory[i] == byte_at(from + i), "the bytes of the range");
                }
            }
        }
    }
}

void reads_into_pieces() {
    const Sample sample;
    const DirectFile file(sample.path);
    auto * memory = static_cast<uint8_t *>(reserve_address_space(8 * block));
    const DirectFile::Piece pieces[] = {{memory + 4 * block, block}, {memory, 2 * block}};
    file.read(block, pieces);
    for (size_t i = 0; i < block; i++) {
        require(memory[4 * block + i] == byte_at(block + i), "the first piece");
        require(memory[i] == byte_at(2 * block + i) && memory[block + i] == byte_at(3 * block + i), "the second");
    }
    release_address_space(memory, 8 * block);
}

// As a drive is measured with a file of our own, and as an interrupted pack is read.
void reads_what_is_open_for_writing() {
    const Sample sample;
    std::ofstream writer(std::filesystem::path(std::u8string(sample.path.begin(), sample.path.end())),
                         std::ios::binary | std::ios::app);
    require(bool(writer), "a writer");
    uint8_t bytes[64];
    DirectFile(sample.path).read(block, sizeof bytes, bytes);
    require(bytes[0] == byte_at(block) && bytes[63] == byte_at(block + 63), "contents");
}

void refuses_what_is_not_there() {
    bool is_refused = false;
    try {
        DirectFile("not there.bin");
    } catch (const std::runtime_error & error) {
        is_refused = std::string(error.what()).find("not there.bin") != std::string::npos;
    }
    require(is_refused, "a file that is not there is named");
    const Sample sample;
    const DirectFile file(sample.path);
    uint8_t bytes[64];
    is_refused = false;
    try {
        file.read(Sample::size - 10, 64, bytes);
    } catch (const std::exception &) {
        is_refused = true;
    }
    require(is_refused, "a read beyond the end fails");
}

void maps_a_file() {
    const Sample sample;
    const DirectFile file(sample.path);
    const MappedFile mapped(file);
    for (size_t i = 0; i < Sample::size; i += 97) {
        require(mapped.data()[i] == byte_at(i), "the mapped bytes");
    }
}

void reserves_memory() {
    constexpr size_t size = size_t(256) << 30;  // more than there is: only what is used may count
    auto * memory = static_cast<uint8_t *>(reserve_address_space(size));
    require(memory != nullptr && reinterpret_cast<uintptr_t>(memory) % block == 0, "pages");
    prefer_large_pages(memory, size);
    memory[0] = 1;
    memory[size - 1] = 2;
    give_pages(memory, block);
    require(memory[0] == 1 && memory[size / 2] == 0 && memory[size - 1] == 2, "contents");
    std::vector<std::thread> threads;
    for (size_t i = 1; i <= 4; i++) {  // several threads touch the same new pages
        threads.emplace_back([=] {
            for (size_t at = size / 4; at < size / 4 + (size_t(8) << 20); at += block) {
                memory[at + i] = uint8_t(i);
            }
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    for (size_t at = size / 4; at < size / 4 + (size_t(8) << 20); at += block) {
        require(memory[at + 1] == 1 && memory[at + 4] == 4, "what each thread wrote");
    }
    release_address_space(memory, size);
}

// Memory is committed in steps of 1 MiB on Windows: a step can begin in one range and end in the next.
void neighbouring_ranges() {
    constexpr size_t size = size_t(192) << 10;
    std::vector<uint8_t *> ranges;
    for (int i = 0; i < 64; i++) {
        ranges.push_back(static_cast<uint8_t *>(reserve_address_space(size)));
        require(ranges.back() != nullptr, "a range");
    }
    for (size_t i = ranges.size(); i-- > 0;) {  // the ranges before it were not touched yet
        ranges[i][0] = uint8_t(i);
        ranges[i][size - 1] = uint8_t(i + 1);
    }
    for (size_t i = 0; i < ranges.size(); i++) {
        require(ranges[i][0] == uint8_t(i) && ranges[i][size - 1] == uint8_t(i + 1), "what was written");
        release_address_space(ranges[i], size);
    }
}

// A read of a file goes straight to the memory that the system was let write to.
void the_system_writes_to_reserved_memory() {
    constexpr size_t size = size_t(3) << 20;
    auto * memory = static_cast<uint8_t *>(reserve_address_space(size));
    require(let_system_write(memory, size) && let_system_write(memory, 0), "permission");
    constexpr char words[] = "8 bytes.";
    std::FILE * file = std::fopen("plain.bin", "wb");
    require(file && std::fwrite(words, 1, 8, file) == 8 && std::fclose(file) == 0, "a file");
    file = std::fopen("plain.bin", "rb");
    std::setvbuf(file, nullptr, _IONBF, 0);  // as llama.cpp's large reads
    require(std::fread(memory + size - 8, 1, 8, file) == 8, "a read into the last page");
    std::fclose(file);
    require(std::memcmp(memory + size - 8, words, 8) == 0, "contents");
    release_address_space(memory, size);
}

// TEST_LIBRARY names a library with the function `answer`.
void opens_a_library() {
    namespace fs = std::filesystem;
    require(open_library(fs::absolute("not there")) == nullptr && !library_error().empty(), "why there is none");
    const char * name = std::getenv("TEST_LIBRARY");
    require(name != nullptr, "TEST_LIBRARY names a library");
    const fs::path wide = fs::absolute(u8"Ünï 模型.library");
    fs::copy_file(name, wide, fs::copy_options::overwrite_existing);
    void * library = open_library(wide);
    require(library != nullptr, "the library");
    const auto answer = reinterpret_cast<int (*)()>(symbol_of(library, "answer"));
    require(answer != nullptr && answer() == 42, "its function");
    require(symbol_of(library, "question") == nullptr, "a function that it lacks");
    close_library(library);
    fs::remove(wide);
    require(fs::exists(folder_of_ggml()), "the folder of ggml");
}

// One copy at a time is in flight on each drive: that of the first drive ends only after those of the second.
void a_drive_waits_for_no_other() {
    std::promise<void> second_done;
    auto is_second_done = second_done.get_future();
    std::vector<Expert> order;
    CopyWork work;
    work.n_drive = 2;
    work.drive = [](const Copy & c) { return size_t(c.expert % 2); };
    work.copy = [&](std::span<const Copy> copies) {
        if (copies.front().expert == 0) {
            is_second_done.wait();
        }
    };
    TransferPool pool(1, std::move(work));
    for (Expert expert = 0; expert < 4; expert++) {
        pool.submit({Ticket(expert), 0, expert, Part::top, whole_expert, 0, Urgency::high});
    }
    pool.submit({4, 0, 4, Part::top, whole_expert, 0, Urgency::low});
    pool.begin();
    require(pool.cancel(4) && !pool.cancel(4), "a queued copy is cancelled once");
    while (pool.n_open() > 0) {
        if (const auto arrival = pool.wait_arrival(std::chrono::milliseconds(10))) {
            order.push_back(Expert(arrival->ticket));
            if (order.back() == 3) {
                second_done.set_value();
            }
        }
    }
    require(order == std::vector<Expert>{1, 3, 0, 2}, "the second drive's copies end first");
}

Copy copy_of(Ticket ticket, Expert expert, Chunk chunk, Slot slot, Urgency urgency) {
    return {ticket, 0, expert, Part::top, chunk, slot, urgency};
}

// While the only thread is busy, three experts are queued in two chunks each: two needed, one forecast.
void a_needed_expert_is_one_read() {
    std::promise<void> begun, queued;
    auto are_queued = queued.get_future();
    std::vector<size_t> batches;
    CopyWork work;
    work.joins = [](const Copy & a, const Copy & b) { return a.expert == b.expert; };
    work.copy = [&](std::span<const Copy> copies) {
        if (copies.front().expert == 0) {
            begun.set_value();
            are_queued.wait();
        }
        batches.push_back(copies.size());
    };
    TransferPool pool(1, std::move(work));
    pool.submit(copy_of(0, 0, whole_expert, 0, Urgency::high));
    pool.begin();
    begun.get_future().wait();
    for (Ticket ticket = 2; ticket < 8; ticket++) {
        const auto expert = Expert(ticket / 2);
        pool.submit(copy_of(ticket, expert, Chunk(ticket % 2), 0, expert == 3 ? Urgency::low : Urgency::high));
    }
    pool.begin();
    queued.set_value();
    while (pool.n_open() > 0) {
        pool.wait_arrival(std::chrono::milliseconds(10));
    }
    require(batches == std::vector<size_t>{1, 2, 2, 1, 1}, "only needed experts are read at once");
}

// Two needed chunks of an expert are one read. A chunk of low urgency may be in flight beside another copy, a spare one
// may not. Each copy waits until its turn to end.
void a_spare_copy_begins_alone() {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Ticket> begun;
    Ticket n_may_end = 0;
    CopyWork work;
    work.bytes = [](const Copy &) { return uint64_t(1) << 20; };
    work.max_joined_bytes = 64 << 20;
    work.joins = [](const Copy & a, const Copy & b) { return a.expert == b.expert; };
    work.copy = [&](std::span<const Copy> copies) {
        std::unique_lock lock(mutex);
        for (const Copy & c : copies) {
            begun.push_back(c.ticket);
        }
        changed.notify_all();
        changed.wait(lock, [&] { return copies.front().ticket < n_may_end; });
    };
    TransferPool pool(4, std::move(work));
    const auto has_begun = [&](std::vector<Ticket> tickets) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return begun.size() >= tickets.size(); });
        return begun == tickets;
    };
    const auto end = [&](Ticket ticket) {
        {
            const std::scoped_lock lock(mutex);
            n_may_end = ticket + 1;
        }
        changed.notify_all();
        while (!pool.wait_arrival(std::chrono::milliseconds(10))) {
        }
    };
    pool.submit(copy_of(0, 0, whole_expert, 0, Urgency::low));
    pool.begin();
    require(has_begun({0}), "the first copy begins");
    pool.submit(copy_of(2, 1, 0, 0, Urgency::spare));
    pool.submit(copy_of(3, 1, 1, 0, Urgency::spare));
    pool.submit(copy_of(1, 2, 0, 0, Urgency::low));
    pool.begin();
    require(has_begun({0, 1}), "a low copy begins beside another, a spare one does not");
    end(0);
    require(has_begun({0, 1}), "nor while one is in flight");
    end(1);
    require(has_begun({0, 1, 2}), "but alone, and without the next one");
    end(2);
    end(3);
    require(has_begun({0, 1, 2, 3}), "until none is left");
}

// With the system's queue where there is one, else with threads: every copy ends once, with its bytes.
void copies_end_whoever_waits() {
    const Sample sample;
    const DirectFile file(sample.path);
    auto * memory = static_cast<uint8_t *>(reserve_address_space(5 * block));
    std::atomic<int> n_delivered = 0;
    const auto fill = [&](std::span<const Copy> copies, std::vector<ReadRing::Read> & reads) {
        for (const Copy & c : copies) {
            const size_t at = size_t(c.expert) * block;
            reads.push_back({file.handle(), at, memory + at, uint32_t(block)});
        }
    };
    const auto make = [&](bool delivers) {
        CopyWork work;
        work.reads = fill;
        work.copy = [&](std::span<const Copy> copies) {
            for (const Copy & c : copies) {
                file.read(size_t(c.expert) * block, block, memory + size_t(c.expert) * block);
            }
        };
        if (delivers) {
            work.deliver = [&](std::span<const Copy>, std::vector<Arrival> arrivals) {
                n_delivered += int(arrivals.size());
            };
        }
        return std::make_unique<TransferPool>(1, std::move(work), ReadRing::open(4));
    };
    const auto submit = [](TransferPool & pool) {
        for (Expert expert = 0; expert < 5; expert++) {
            pool.submit(copy_of(Ticket(expert), expert, whole_expert, 0, Urgency::high));
        }
        pool.begin();
    };
    auto pool = make(false);
    for (int round = 0; round < 100; round++) {
        std::memset(memory, 0, 5 * block);
        submit(*pool);
        std::vector<Expert> order;
        while (pool->n_open() > 0) {
            const auto arrival = round % 2 ? pool->try_arrival() : pool->wait_arrival(std::chrono::seconds(10));
            if (arrival) {
                require(arrival->error.empty(), "a copy ends well");
                order.push_back(Expert(arrival->ticket));
            }
        }
        require(order == std::vector<Expert>{0, 1, 2, 3, 4}, "each ends once, in order");
        for (size_t i = 0; i < 5 * block; i++) {
            require(memory[i] == byte_at(i), "the bytes");
        }
    }
    submit(*pool);
    pool->drain();
    require(pool->n_open() == 0 && !pool->try_arrival(), "nothing is left");
    submit(*pool);
    pool.reset();  // with a copy in flight
    // Nobody asks: what is queued begins all the same.
    pool = make(true);
    submit(*pool);
    while (n_delivered < 4) {
        std::this_thread::yield();
    }
    while (pool->n_open() > 0) {
        pool->collect(std::chrono::steady_clock::now() + std::chrono::milliseconds(10));
    }
    require(n_delivered == 5, "each was delivered");
    require(!pool->collect(std::chrono::steady_clock::time_point::max()), "nothing is awaited");
    pool.reset();
    release_address_space(memory, 5 * block);
}

const std::map<std::string, std::function<void()>> tests{
    {"reads_any_range", reads_any_range},
    {"reads_into_pieces", reads_into_pieces},
    {"reads_what_is_open_for_writing", reads_what_is_open_for_writing},
    {"refuses_what_is_not_there", refuses_what_is_not_there},
    {"maps_a_file", maps_a_file},
    {"reserves_memory", reserves_memory},
    {"neighbouring_ranges", neighbouring_ranges},
    {"the_system_writes_to_reserved_memory", the_system_writes_to_reserved_memory},
    {"opens_a_library", opens_a_library},
    {"a_drive_waits_for_no_other", a_drive_waits_for_no_other},
    {"a_needed_expert_is_one_read", a_needed_expert_is_one_read},
    {"a_spare_copy_begins_alone", a_spare_copy_begins_alone},
    {"copies_end_whoever_waits", copies_end_whoever_waits},
};

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 2 || !tests.contains(argv[1])) {
        std::fprintf(stderr, "system_test NAME\n");
        return 2;
    }
    tests.at(argv[1])();
    return 0;
}
