// INVARIANT: fields that the thread reads without the lock (segment_, own_, constants_, the runner's inputs) change
// only while no job waits or is computed.
#include "live/compute/host_work.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "live/ggml/clock.h"

namespace outrider {

ggml_tensor plain_header(const ggml_tensor & of) {
    ggml_tensor t{};
    t.type = of.type;
    std::copy_n(of.ne, GGML_MAX_DIMS, t.ne);
    std::copy_n(of.nb, GGML_MAX_DIMS, t.nb);
    return t;
}

HostWork::HostWork(int n_thread, const std::vector<ExpertTensor> & tensors, std::function<void()> done)
    : tell_(std::move(done)),
      runner_(
          ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), n_thread, 0,
          [this](const ggml_tensor * t, Part) {
              const auto it = own_.find(t);
              return it == own_.end() ? nullptr : &it->second.one;
          },
          [this](ggml_tensor * t) { return constant(t); }) {
    for (const ExpertTensor & t : tensors) {
        Own & own = own_[t.tensor] = {t.layer, t.chunk, plain_header(*t.tensor)};
        own.one.ne[2] = 1;
        own.one.nb[2] = own.one.nb[3] = own.one.nb[1] * size_t(own.one.ne[1]);
        own_of_.resize(std::max(own_of_.size(), size_t(t.layer) + 1));
        own_of_[size_t(t.layer)].push_back(&own);
    }
    thread_ = std::thread([this] { run(); });
}

HostWork::~HostWork() {
    {
        const Lock lock(mutex_);
        stopping_ = true;
        waiting_.clear();
    }
    changed_.notify_all();
    thread_.join();
}

void HostWork::begin() {
    assert(!busy());
    runner_.begin();
}

// Copy the tables that all experts share from the device, once.
void HostWork::adopt_constants(const Segment & segment) {
    for (const ggml_tensor * node : segment.nodes) {
        for (ggml_tensor * s : node->src) {
            if (!s || own_.count(s) || constants_.count(s) || source_kind(segment, s) != SourceKind::constant) {
                continue;
            }
            Constant & c = constants_[s];
            c.tensor = plain_header(*s);
            c.bytes.resize(ggml_nbytes(s));
            ggml_backend_tensor_get(s, c.bytes.data(), 0, c.bytes.size());
            c.tensor.data = c.bytes.data();
        }
    }
}

ggml_tensor * HostWork::constant(ggml_tensor * t) const { return const_cast<ggml_tensor *>(&constants_.at(t).tensor); }

void HostWork::start(const Segment & segment, std::vector<HostJob> jobs) {
    adopt_constants(segment);
    {
        const Lock lock(mutex_);
        segment_ = &segment;
        std::move(jobs.begin(), jobs.end(), std::back_inserter(waiting_));
    }
    changed_.notify_all();
}

bool HostWork::withdraw(Expert expert) {
    const Lock lock(mutex_);
    return std::erase_if(waiting_, [&](const HostJob & job) { return job.compute.expert == expert; }) > 0;
}

bool HostWork::busy() const {
    const Lock lock(mutex_);
    return computing_ || !waiting_.empty() || !done_.empty() || error_;
}

std::optional<HostJob> HostWork::take() {
    const Lock lock(mutex_);
    if (error_) {
        std::rethrow_exception(std::exchange(error_, nullptr));
    }
    if (done_.empty()) {
        return std::nullopt;
    }
    HostJob job = std::move(done_.front());
    done_.pop_front();
    return job;
}

void HostWork::wait(std::chrono::milliseconds timeout) {
    Lock lock(mutex_);
    changed_.wait_for(lock.native(), timeout, [this]() REQUIRES(mutex_) { return !done_.empty() || error_; });
}

void HostWork::cancel() {
    Lock lock(mutex_);
    waiting_.clear();
    changed_.wait(lock.native(), [this]() REQUIRES(mutex_) { return !computing_; });
    done_.clear();
    error_ = nullptr;
}

void HostWork::run() {
    Lock lock(mutex_);
    while (true) {
        changed_.wait(lock.native(), [this]() REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
        if (stopping_) {
            return;
        }
        HostJob job = std::move(waiting_.front());
        waiting_.pop_front();
        computing_ = true;
        std::exception_ptr error;
        try {
            const Segment & segment = *segment_;
            const Unlocked unlocked(mutex_);
            compute(segment, job);
        } catch (...) {
            error = std::current_exception();
        }
        computing_ = false;
        if (error) {
            error_ = error;
            waiting_.clear();
        } else {
            done_.push_back(std::move(job));
        }
        changed_.notify_all();
        const Unlocked unlocked(mutex_);
        tell_();
    }
}

void HostWork::compute(const Segment & segment, HostJob & job) {
    const uint64_t began_us = now_us();
    for (Own * own : own_of_[size_t(job.compute.layer)]) {
        own->one.data = const_cast<uint8_t *>(job.matrices[size_t(own->chunk)]);
    }
    job.rows.resize(job.pairs.size() * size_t(segment.nodes.back()->ne[0]));
    runner_.compute_rows(segment, job.pairs, job.rows);
    job.us = double(now_us() - began_us);
}

}  // namespace outrider
