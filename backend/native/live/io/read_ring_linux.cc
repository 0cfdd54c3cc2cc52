// Linux: io_uring(7), with its three system calls and two shared queues. That needs no library.
#include "live/io/read_ring.h"

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

#ifdef IORING_FEAT_EXT_ARG
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "live/ggml/thread_safety.h"
#include "live/io/memory_filler.h"

namespace outrider {
namespace {

constexpr size_t max_region = size_t(1) << 30;  // of one registered piece
constexpr std::chrono::hours max_sleep(1);

class Mapping {
  public:
    Mapping(int fd, size_t size, uint64_t offset)
        : size_(size),
          at_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, off_t(offset))) {}
    ~Mapping() {
        if (*this) {
            ::munmap(at_, size_);
        }
    }
    Mapping(const Mapping &) = delete;
    Mapping & operator=(const Mapping &) = delete;

    explicit operator bool() const { return at_ != MAP_FAILED; }
    template <typename T>
    T * at(uint32_t offset) const {
        return reinterpret_cast<T *>(static_cast<uint8_t *>(at_) + offset);
    }

  private:
    size_t size_;
    void * at_;
};

// Publish and read the counters of a queue that the kernel shares.
uint32_t seen(const uint32_t * counter) {
    return std::atomic_ref<uint32_t>(const_cast<uint32_t &>(*counter)).load(std::memory_order_acquire);
}
void show(uint32_t * counter, uint32_t value) {
    std::atomic_ref<uint32_t>(*counter).store(value, std::memory_order_release);
}

class Uring final : public ReadRing {
  public:
    Uring(int fd, const io_uring_params & p)
        : fd_(fd),
          asked_(fd, p.sq_off.array + p.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING),
          ended_(fd, p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING),
          entries_(fd, p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES) {
        if (works()) {
            asked_tail_ = asked_.at<uint32_t>(p.sq_off.tail);
            asked_mask_ = *asked_.at<uint32_t>(p.sq_off.ring_mask);
            asked_index_ = asked_.at<uint32_t>(p.sq_off.array);
            ended_head_ = ended_.at<uint32_t>(p.cq_off.head);
            ended_tail_ = ended_.at<uint32_t>(p.cq_off.tail);
            ended_mask_ = *ended_.at<uint32_t>(p.cq_off.ring_mask);
            ended_entry_ = ended_.at<io_uring_cqe>(p.cq_off.cqes);
        }
        groups_.resize(p.sq_entries);
        for (uint32_t i = 0; i < p.sq_entries; i++) {
            free_.push_back(i);
        }
    }
    ~Uring() override {
        filler_.reset();
        if (registered_) {
            // After close() alone the kernel would free the memory later.
            ::syscall(SYS_io_uring_register, fd_, IORING_UNREGISTER_BUFFERS, nullptr, 0);
        }
        ::close(fd_);
    }

    bool works() const { return asked_ && ended_ && entries_; }

    void keep(std::span<const std::span<uint8_t>> memory) override {
        for (auto left : memory) {
            while (!left.empty()) {
                const size_t n = std::min(left.size(), max_region);
                regions_.push_back({left.data(), n});
                left = left.subspan(n);
            }
        }
        const auto by_address = [](const iovec & a, const iovec & b) { return a.iov_base < b.iov_base; };
        std::sort(regions_.begin(), regions_.end(), by_address);
        // No read can begin while the kernel registers memory. So give it its pages first, which takes longest.
        filler_.emplace(std::vector(memory.begin(), memory.end()), [this] {
            registered_ = ::syscall(SYS_io_uring_register, fd_, IORING_REGISTER_BUFFERS, regions_.data(),
                                    unsigned(regions_.size())) == 0;
        });
    }

    bool begin(uint64_t id, std::span<const Read> reads) override {
        uint32_t group;
        {
            const Lock lock(mutex_);
            if (free_.empty() || reads.size() > groups_.size()) {
                return false;
            }
            group = free_.back();
            free_.pop_back();
            groups_[group] = {id, uint32_t(reads.size()), true};
        }
        for (const Read & r : reads) {
            io_uring_sqe & e = next();
            e.opcode = IORING_OP_READ;
            e.fd = int(r.handle);
            e.addr = reinterpret_cast<uint64_t>(r.address);
            e.len = r.size;
            e.off = r.offset;
            // The completion returns these: the group and the size.
            e.user_data = uint64_t(group) << 32 | r.size;
            if (const int region = region_of(r); region >= 0) {
                e.opcode = IORING_OP_READ_FIXED;
                e.buf_index = uint16_t(region);
            }
        }
        if (submit(uint32_t(reads.size()))) {
            return true;
        }
        const Lock lock(mutex_);
        groups_[group].n_left = 0;
        free_.push_back(group);
        return false;
    }

    bool wait(std::vector<Done> & done, Time until, bool alone) override {
        take(done);
        bool waited = false;
        while (done.empty()) {
            const Time now = std::chrono::steady_clock::now();
            if (until <= now) {
                break;
            }
            waited = true;
            sleep(std::min(until, now + max_sleep) - now, alone ? n_to_nearest() : 1);
            take(done);
        }
        return waited;
    }

  private:
    struct Group {
        uint64_t id;
        uint32_t n_left;
        bool whole;
    };

    io_uring_sqe & next() {
        const uint32_t i = (*asked_tail_ + n_new_) & asked_mask_;
        n_new_++;
        asked_index_[i] = i;
        io_uring_sqe & e = entries_.at<io_uring_sqe>(0)[i];
        std::memset(&e, 0, sizeof e);
        return e;
    }

    // Submit the entries of next(): all of them, or none if the kernel refuses. A malformed entry completes with an
    // error.
    bool submit(uint32_t n) {
        n_new_ = 0;
        const uint32_t tail = *asked_tail_;
        show(asked_tail_, tail + n);
        for (uint32_t n_taken = 0; n_taken < n;) {
            const int taken = submit_some(n - n_taken);
            if (taken > 0) {
                n_taken += uint32_t(taken);
            } else if (n_taken == 0) {
                show(asked_tail_, tail);
                return false;
            }
        }
        return true;
    }

    int submit_some(uint32_t n) {
        int n_taken;
        do {
            n_taken = int(::syscall(SYS_io_uring_enter, fd_, n, 0, 0, nullptr, 0));
        } while (n_taken < 0 && (errno == EINTR || errno == EAGAIN));
        return n_taken;
    }

    // Return how many reads must end until a group has ended.
    uint32_t n_to_nearest() {
        const Lock lock(mutex_);
        uint32_t n = ~uint32_t(0);
        for (const Group & g : groups_) {
            n = g.n_left > 0 ? std::min(n, g.n_left) : n;
        }
        return n;
    }

    // Sleep until `n_read` reads have ended, or for the time.
    void sleep(std::chrono::nanoseconds time, uint32_t n_read) {
        struct {  // __kernel_timespec
            int64_t s, ns;
        } const limit{time.count() / 1'000'000'000, time.count() % 1'000'000'000};
        io_uring_getevents_arg argument{};
        argument.ts = reinterpret_cast<uint64_t>(&limit);
        ::syscall(SYS_io_uring_enter, fd_, 0, n_read, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument,
                  sizeof argument);
    }

    void take(std::vector<Done> & done) {
        uint32_t head = *ended_head_;
        while (head != seen(ended_tail_)) {
            count(ended_entry_[head & ended_mask_], done);
            show(ended_head_, ++head);
        }
    }

    void count(const io_uring_cqe & e, std::vector<Done> & done) {
        const auto group = uint32_t(e.user_data >> 32);
        const Lock lock(mutex_);
        Group & g = groups_[group];
        g.whole = g.whole && e.res == int32_t(uint32_t(e.user_data));
        if (--g.n_left == 0) {
            done.push_back({g.id, g.whole});
            free_.push_back(group);
        }
    }

    // Return the registered piece that the read goes to, or -1.
    int region_of(const Read & r) const {
        if (!registered_) {
            return -1;
        }
        const auto after = std::upper_bound(regions_.begin(), regions_.end(), r.address,
                                            [](void * at, const iovec & v) { return at < v.iov_base; });
        if (after == regions_.begin()) {
            return -1;
        }
        const iovec & v = *(after - 1);
        const auto * end = static_cast<uint8_t *>(v.iov_base) + v.iov_len;
        return static_cast<uint8_t *>(r.address) + r.size <= end ? int(after - regions_.begin()) - 1 : -1;
    }

    int fd_;
    Mapping asked_, ended_, entries_;
    uint32_t * asked_tail_ = nullptr;
    uint32_t asked_mask_ = 0;
    uint32_t * asked_index_ = nullptr;
    uint32_t n_new_ = 0;  // entries filled but not yet submitted
    uint32_t * ended_head_ = nullptr;
    uint32_t * ended_tail_ = nullptr;
    uint32_t ended_mask_ = 0;
    io_uring_cqe * ended_entry_ = nullptr;
    std::vector<iovec> regions_;  // registered, or about to be
    std::atomic<bool> registered_ = false;
    std::optional<MemoryFiller> filler_;

    Mutex mutex_;
    std::vector<Group> groups_ GUARDED_BY(mutex_);
    std::vector<uint32_t> free_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ReadRing> ReadRing::open(unsigned n_read) {
    io_uring_params params{};
    const int fd = int(::syscall(SYS_io_uring_setup, n_read, &params));
    if (fd < 0) {
        return nullptr;
    }
    auto ring = std::make_unique<Uring>(fd, params);
    const bool may_time_out = params.features & IORING_FEAT_EXT_ARG;  // from Linux 5.11 on
    return ring->works() && may_time_out ? std::move(ring) : nullptr;
}

}  // namespace outrider
#else
#include "live/io/read_ring_none.cc"
#endif
