// INVARIANT: between two answers of true nothing that the callback was shown has run; so a node's
// `op` and `src` may be changed from the moment it is asked for until then. Whatever is changed is
// undone as soon as the node has run, for llama.cpp uses the same graph again.
#include "patch.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <stdexcept>

namespace outrider {
namespace {

// A drive that hangs must not keep a stop from being seen.
constexpr std::chrono::milliseconds max_wait(50);

uint64_t now_us() {
    return uint64_t(
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}

// Lets readers in while nothing of the core is touched. REQUIRES: the mutex is held.
class Unlocked {
  public:
    explicit Unlocked(std::mutex & mutex) : mutex_(mutex) { mutex_.unlock(); }
    ~Unlocked() { mutex_.lock(); }

  private:
    std::mutex & mutex_;
};

}  // namespace

Patch::Patch(const ExpertFiles & files, ExpertBuffers & buffers) : files_(files), buffers_(buffers) {}

Patch::~Patch() {
    close();
    if (ids_context_) {
        ggml_free(ids_context_);
        ggml_backend_buffer_free(ids_buffer_);
    }
}

bool Patch::callback(ggml_tensor * node, bool ask, void * self) {
    auto & patch = *static_cast<Patch *>(self);
    return ask ? patch.ask(node) : patch.computed(node);
}

void Patch::begin_probe() {
    probe_ = std::make_unique<Probe>(files_, buffers_);
    mode_ = Mode::probing;
}

std::string Patch::end_probe() {
    std::string objection;
    graph_ = probe_->result(objection);
    probe_.reset();
    mode_ = Mode::off;
    return objection;
}

void Patch::close() {
    std::lock_guard lock(mutex_);
    drop_cache();
}

void Patch::drop_cache() {
    pool_.reset();  // before the memory that it writes to
    core_.reset();
    slab_.reset();
}

void Patch::configure(const std::vector<int32_t> & n_slot, const PatchOptions & options) {
    assert(mode_ == Mode::off);
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const auto buft = ggml_backend_dev_buffer_type(device);
    std::lock_guard lock(mutex_);
    options_ = options;
    drop_cache();
    slab_ = std::make_unique<Slab>(graph_.tensors, files_, n_slot, buft);
    pool_ = std::make_unique<TransferPool>(options.n_transfer_thread,
                                           [slab = slab_.get()](const Copy & copy) { slab->fill(copy); });
    std::unique_ptr<Predictor> predictor;
    if (options.next_router && graph_.n_embd > 0) {
        std::vector<std::span<const float>> routers(graph_.routers.begin(), graph_.routers.end());
        predictor = std::make_unique<NextRouter>(graph_.n_embd, graph_.shape.n_expert, std::move(routers));
    }
    waves_ = std::make_unique<WaveRunner>(
        device, options.n_thread, [this](const ggml_tensor * t) { return graph_.layer_of_tensor.count(t) > 0; });
    stall_us_.assign(graph_.shape.n_layer, 0);
    times_ = {};
    pairs_of_.assign(graph_.shape.n_expert, {});
    logits_.assign(graph_.shape.n_layer, nullptr);

    if (ids_context_) {
        ggml_free(ids_context_);
        ggml_backend_buffer_free(ids_buffer_);
    }
    ids_context_ = ggml_init({ggml_tensor_overhead() * 2, nullptr, true});
    slot_ids_ = ggml_new_tensor_2d(ids_context_, GGML_TYPE_I32, graph_.shape.n_expert_used, options.max_token);
    ids_buffer_ = ggml_backend_alloc_ctx_tensors_from_buft(ids_context_, buft);
    if (!ids_buffer_) {
        throw std::runtime_error("There is not enough memory for the expert cache");
    }
    // Last: a patch with a core is a whole one.
    core_ = std::make_unique<Core>(graph_.shape, n_slot, CoreOptions{options.schedule, 0, options.min_precision},
                                   std::move(predictor));
}

// ---- a pass -------------------------------------------------------------------------------

void Patch::begin_pass(Phase phase) {
    if (mode_ == Mode::probing) {
        probe_->pass_began();
        return;
    }
    std::lock_guard lock(mutex_);
    if (!core_) {
        throw std::runtime_error("The expert cache has no memory");
    }
    mode_ = Mode::off;
    error_.clear();
    std::fill(logits_.begin(), logits_.end(), nullptr);
    collect_arrivals();
    core_->pass_began(phase);
}

bool Patch::end_pass() {
    if (mode_ == Mode::probing) {
        error_ = probe_->pass_ended();
        return error_.empty();
    }
    std::lock_guard lock(mutex_);
    finish_layer();
    const bool whole = mode_ != Mode::aborted;
    mode_ = Mode::off;
    return whole;
}

// Before a node runs: true to be called again once it, and all before it, has run.
bool Patch::ask(ggml_tensor * node) {
    if (mode_ == Mode::probing) {
        probe_->see(node);
        return false;
    }
    if (node->op == GGML_OP_MUL_MAT) {
        if (const auto il = layer_in_name(node, "ffn_moe_logits")) {
            if (const auto it = graph_.layer_of_number.find(*il); it != graph_.layer_of_number.end()) {
                logits_[it->second] = node;
            }
        }
        return false;
    }
    if (node->op == GGML_OP_MUL_MAT_ID) {
        if (const auto it = graph_.layer_of_tensor.find(node->src[0]); it != graph_.layer_of_tensor.end()) {
            if (mode_ == Mode::remap && n_token_ > 0) {
                undo_.push_back({node, node->op, node->src[2]});
                node->src[2] = slot_ids_;
                return false;
            }
            if (segment_.nodes.empty()) {
                segment_.ids = node->src[2];
            }
        }
    }
    if (mode_ == Mode::waves && segment_.ids && n_seen_ < graph_.patterns[layer_].size()) {
        return skip(node);
    }
    if (mode_ == Mode::aborted && node->op == GGML_OP_MUL_MAT_ID) {
        undo_.push_back({node, node->op, nullptr});
        node->op = GGML_OP_NONE;
        return false;
    }
    if (const auto il = layer_in_name(node, "ffn_moe_topk"); il && mode_ != Mode::aborted) {
        return graph_.layer_of_number.count(*il) > 0;
    }
    return false;
}

// A layer that is computed in waves: llama.cpp computes nothing of the segment, but what lies
// between. True where the inputs must be kept before that, and at the segment's end.
bool Patch::skip(ggml_tensor * node) {
    const auto & pattern = graph_.patterns[layer_];
    const bool of_segment = pattern[n_seen_++];
    if (!of_segment) {
        return false;
    }
    segment_.nodes.push_back(node);
    undo_.push_back({node, node->op, nullptr});
    node->op = GGML_OP_NONE;
    return n_seen_ == pattern.size() || pattern.size() != size_t(std::count(pattern.begin(), pattern.end(), true));
}

// After a node has run. False ends the pass.
bool Patch::computed(ggml_tensor * node) {
    const uint64_t began_us = now_us();
    std::lock_guard lock(mutex_);
    bool go_on;
    try {
        if (mode_ == Mode::waves && segment_.ids) {
            waves_->keep_inputs(segment_, node);
            go_on = n_seen_ < graph_.patterns[layer_].size() || run_waves();
        } else {
            finish_layer();
            go_on = routed(node, graph_.layer_of_number.at(*layer_in_name(node, "ffn_moe_topk")));
        }
    } catch (const std::exception & e) {
        go_on = abort_pass(e.what());
    }
    times_.callback_us += now_us() - began_us;
    return go_on;
}

bool Patch::routed(ggml_tensor * topk, Layer layer) {
    if (stopping_) {
        return abort_pass("");
    }
    layer_ = layer;
    n_token_ = int32_t(topk->ne[1]);
    segment_ = {};
    if (n_token_ == 0) {
        mode_ = Mode::remap;
        return true;
    }
    if (n_token_ > options_.max_token || topk->ne[0] != graph_.shape.n_expert_used) {
        return abort_pass("llama.cpp computed more tokens at once than it was told to");
    }
    read_ids(topk);
    collect_arrivals();
    ready_.clear();
    n_needed_ = 0;
    obey(core_->routed(layer, ids_));
    see_gate(layer);
    if (ready_.size() == n_needed_) {
        remap();
        return true;
    }
    mode_ = Mode::waves;
    n_seen_ = 0;
    waves_->begin();
    for (auto & pairs : pairs_of_) {
        pairs.clear();
    }
    for (int32_t t = 0; t < n_token_; t++) {
        for (int32_t k = 0; k < graph_.shape.n_expert_used; k++) {
            const Expert e = ids_[size_t(t) * graph_.shape.n_expert_used + k];
            pairs_of_[e].push_back({t, k, e, none});
        }
    }
    return true;
}

// The choice may be a view into a sorted list of all experts: rows are n_expert apart.
void Patch::read_ids(const ggml_tensor * topk) {
    const size_t row = size_t(topk->ne[0]) * sizeof(int32_t);
    ids_.resize(size_t(topk->ne[0]) * topk->ne[1]);
    ggml_backend_tensor_get_2d(topk, ids_.data(), 0, row, size_t(topk->ne[1]), topk->nb[1], row);
    for (Expert e : ids_) {
        if (e < 0 || e >= graph_.shape.n_expert) {
            throw std::runtime_error("The router chose an expert that does not exist");
        }
    }
}

void Patch::see_gate(Layer layer) {
    const ggml_tensor * logits = logits_[layer];
    if (!core_->wants_gate_input() || !logits) {
        return;
    }
    const ggml_tensor * input = logits->src[1];
    if (input->type != GGML_TYPE_F32 || input->ne[0] != graph_.n_embd || !ggml_is_contiguous(input)) {
        return;
    }
    gate_input_.resize(size_t(ggml_nelements(input)));
    ggml_backend_tensor_get(input, gate_input_.data(), 0, ggml_nbytes(input));
    obey(core_->gate_seen(layer, gate_input_, int32_t(ggml_nelements(input) / graph_.n_embd)));
}

// Everything is resident: llama.cpp's own mat-muls read slots instead of experts.
void Patch::remap() {
    std::vector<Slot> slot_of(graph_.shape.n_expert, none);
    for (const Compute & c : ready_) {
        slot_of[c.expert] = c.slot;
    }
    std::vector<int32_t> slots(ids_.size());
    std::transform(ids_.begin(), ids_.end(), slots.begin(), [&](Expert e) { return slot_of[e]; });
    slot_ids_->ne[1] = n_token_;
    slot_ids_->nb[2] = slot_ids_->nb[3] = slot_ids_->nb[1] * size_t(n_token_);
    ggml_backend_tensor_set(slot_ids_, slots.data(), 0, slots.size() * sizeof(int32_t));
    computing_.swap(ready_);
    ready_.clear();
    mode_ = Mode::remap;
}

// Some experts are late: compute what is here, then the others as they arrive.
bool Patch::run_waves() {
    undo_changes();  // the segment has not run and will not: it is computed here
    for (const ggml_tensor * node : segment_.nodes) {
        waves_->keep_inputs(segment_, node);
    }
    std::vector<Pair> pairs;
    while (true) {
        collect_arrivals();
        if (ready_.empty() && core_->idle()) {
            break;
        }
        if (stopping_) {
            return abort_pass("");
        }
        if (ready_.empty()) {
            wait_for_arrival(layer_);
            continue;
        }
        std::vector<Compute> now;
        now.swap(ready_);
        pairs.clear();
        for (const Compute & c : now) {
            for (Pair p : pairs_of_[c.expert]) {
                p.slot = c.slot;
                pairs.push_back(p);
            }
        }
        const uint64_t began_us = now_us();
        {
            const Unlocked unlocked(mutex_);
            waves_->run(segment_, pairs);
        }
        times_.wave_us += now_us() - began_us;
        for (const Compute & c : now) {
            obey(core_->computed(c.layer, c.expert));
        }
    }
    segment_ = {};
    mode_ = Mode::remap;  // nothing of this layer is left to change
    n_token_ = 0;
    return true;
}

void Patch::obey(Commands commands) {
    for (size_t i = 0; i < commands.size(); i++) {
        const Command command = commands[i];  // the list may grow
        if (const auto * copy = std::get_if<Copy>(&command)) {
            pool_->submit(*copy);
        } else if (const auto * cancel = std::get_if<Cancel>(&command)) {
            if (pool_->cancel(cancel->ticket)) {
                const Commands more = core_->cancelled(cancel->ticket);
                commands.insert(commands.end(), more.begin(), more.end());
            }
        } else if (const auto * order = std::get_if<Order>(&command)) {
            n_needed_ = order->experts.size();
        } else if (const auto * compute = std::get_if<Compute>(&command)) {
            ready_.push_back(*compute);
        } else if (std::get_if<GiveUp>(&command)) {
            throw std::runtime_error(copy_error_);
        }
    }
}

void Patch::collect_arrivals() {
    while (auto arrival = pool_->try_arrival()) {
        take(*arrival);
    }
}

void Patch::take(const Arrival & arrival) {
    if (arrival.error.empty()) {
        obey(core_->copied(arrival.ticket));
    } else {
        copy_error_ = arrival.error;
        obey(core_->failed(arrival.ticket));
    }
}

void Patch::wait_for_arrival(Layer layer) {
    if (pool_->n_open() == 0) {
        throw std::runtime_error("The expert cache waits for a copy that nobody ordered");
    }
    const uint64_t began_us = now_us();
    std::optional<Arrival> arrival;
    {
        const Unlocked unlocked(mutex_);
        arrival = pool_->wait_arrival(max_wait);
    }
    const uint64_t waited_us = now_us() - began_us;
    stall_us_[layer] += waited_us;
    times_.stall_us += waited_us;
    if (arrival) {
        take(*arrival);
    }
}

// The layer that llama.cpp computed on slots has run: its experts may leave.
void Patch::finish_layer() {
    undo_changes();
    for (const Compute & c : computing_) {
        obey(core_->computed(c.layer, c.expert));
    }
    computing_.clear();
}

void Patch::undo_changes() {
    for (const Undo & u : undo_) {
        u.node->op = u.op;
        if (u.ids) {
            u.node->src[2] = u.ids;
        }
    }
    undo_.clear();
}

bool Patch::abort_pass(const std::string & error) {
    undo_changes();
    computing_.clear();
    ready_.clear();
    error_ = error;
    mode_ = Mode::aborted;
    obey(core_->aborted());
    return false;
}

// ---- looking in from outside ----------------------------------------------------------------

std::vector<LayerCounts> Patch::counts() const {
    std::lock_guard lock(mutex_);
    std::vector<LayerCounts> all;
    for (Layer l = 0; l < graph_.shape.n_layer; l++) {
        all.push_back(core_ ? core_->residency().counts(l) : LayerCounts{});
    }
    return all;
}

std::vector<uint64_t> Patch::stall_us_by_layer() const {
    std::lock_guard lock(mutex_);
    return stall_us_;
}

std::vector<uint8_t> Patch::snapshot() const {
    std::lock_guard lock(mutex_);
    return core_ ? core_->snapshot() : std::vector<uint8_t>{};
}

PatchTimes Patch::times() const {
    std::lock_guard lock(mutex_);
    return times_;
}

}  // namespace outrider
