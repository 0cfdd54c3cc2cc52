#include "sim/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/walk.h"
#include "sim/links.h"

namespace outrider {
namespace {

void check_trace(const Future & trace, const Shape & shape) {
    for (size_t p = 0; p < trace.passes.size(); p++) {
        const Future::Pass & pass = trace.passes[p];
        const std::string where = "Pass " + std::to_string(p) + " of the trace ";
        if (pass.ids.size() != size_t(shape.n_layer)) {
            throw std::invalid_argument(where + "has " + std::to_string(pass.ids.size()) +
                                        " layers, and the model has " + std::to_string(shape.n_layer));
        }
        for (Layer l = 0; l < shape.n_layer; l++) {
            const std::vector<Expert> & ids = pass.ids[size_t(l)];
            const auto n_used = size_t(shape.used(l));
            if (ids.size() % n_used != 0 || ids.size() > size_t(std::max(pass.n_token, 0)) * n_used) {
                throw std::invalid_argument(where + "has a layer with " + std::to_string(ids.size()) +
                                            " choices of experts, which does not go with its tokens");
            }
            for (Expert e : ids) {
                if (e < 0 || e >= shape.n_expert) {
                    throw std::invalid_argument(where + "uses expert " + std::to_string(e) +
                                                ", which the model does not have");
                }
            }
        }
    }
}

// Every counter of `a` combined with that of `b`.
template <typename Combine>
LayerCounts combined(const LayerCounts & a, const LayerCounts & b, Combine && combine) {
    LayerCounts c;
    for (const auto & [name, field] : counters) {
        c.*field = combine(a.*field, b.*field);
    }
    return c;
}

LayerCounts difference(const LayerCounts & a, const LayerCounts & b) { return combined(a, b, std::minus<>()); }
LayerCounts sum(const LayerCounts & a, const LayerCounts & b) { return combined(a, b, std::plus<>()); }

void add(SimulatedPhase & to, const SimulatedPhase & pass) {
    to.n_pass += pass.n_pass;
    to.n_token += pass.n_token;
    to.time_us += pass.time_us;
    to.compute_us += pass.compute_us;
    to.wave_us += pass.wave_us;
    to.stall_us += pass.stall_us;
    to.link_busy_us += pass.link_busy_us;
    to.link_idle_us += pass.link_idle_us;
}

// The pass in progress ends before it is computed.
struct Stop {};

// Executes the walk in virtual time.
class Simulator : private Driver {
  public:
    Simulator(Core & core, const Machine & machine, const SimulationExtras & extras)
        : core_(core), shape_(core.shape()), machine_(machine), extras_(extras), n_token_of_(shape_.n_expert, 0) {
        if (extras.copy_rule) {
            schedule_.emplace(*extras.copy_rule, core);
        } else if (machine.link_bytes_per_us > 0 || (core.host() && machine.file_bytes_per_us > 0)) {
            link_.emplace(core, machine);
        }
        measure_parts();
        if (machine.host_expert_us > 0) {
            tell_speeds();
        }
        result_.layers.resize(shape_.n_layer);
        for (Layer l = 0; l < shape_.n_layer; l++) {
            before_.push_back(core.residency().counts(l));
        }
    }
    Simulator(const Simulator &) = delete;
    Simulator & operator=(const Simulator &) = delete;

    Simulation run(const Future & trace);

  private:
    struct PartSize {
        std::vector<double> chunk_bytes;  // [chunk]
        double bytes = 0;                 // of all of them
        double share = 0;                 // of an expert of mean size
    };

    void measure_parts();
    void tell_speeds();
    void run_pass(size_t index, const Future::Pass & pass);
    void run_layers(size_t index, const Future::Pass & pass);
    void stop_if_due();
    void run_layer(size_t index, Layer layer, const Future::Pass & pass);
    void see_gate(size_t index, Layer layer, int32_t n_token);
    int n_graph(std::span<const Compute> wave) const;
    void compute_wave(std::span<const Compute> wave);
    LayerCounts all_counts() const;
    double expert_us(const Compute & c, double first_us, double further_us) const;
    void time_host(size_t from);
    void end_copies();
    std::optional<CopyEnd> scheduled(bool waits);
    std::optional<CopyEnd> wait(Layer layer);
    void compute(double us);

    std::optional<CopyEnd> submit(const Copy & copy, bool is_lost) override;
    void submitted() override;
    bool cancel(Ticket ticket) override;
    std::optional<CopyEnd> take() override;
    bool copies() const override { return schedule_ ? schedule_->n_open() > 0 : core_.copies(); }
    void gave_up() override;
    void compute_on_host(const Compute & compute) override;
    bool withdraw(Expert expert) override;
    std::optional<Compute> take_from_host() override;
    std::optional<double> caught_up_us() override;

    Core & core_;
    const Shape & shape_;
    const Machine & machine_;
    const SimulationExtras & extras_;
    std::optional<Links> link_;    // none: copies are instant, or end by the schedule
    std::optional<CopySchedule> schedule_;
    std::vector<PartSize> sizes_;  // [layer * n_place + part]

    double now_us_ = 0;
    double routed_us_ = 0;  // of the layer in progress
    SimulatedPhase pass_;   // in progress
    double began_us_ = 0, busy_us_ = 0;  // it began; the link's busy_us() then
    Walk walk_{core_, *this};
    struct HostWork {
        Compute compute;
        double us;      // duration
        double told_us;  // when it was given to the host
        double begin_us = 0;
        double end_us = 0;
    };
    std::deque<HostWork> on_host_;    // one after the other
    bool host_began_ = false;         // in the layer in progress
    std::vector<int32_t> n_token_of_;  // [expert], in the layer in progress; 0 where it has one token
    std::vector<LayerCounts> before_;  // [layer]
    Simulation result_;
};

void Simulator::measure_parts() {
    double total_bytes = 0;
    for (Layer l = 0; l < shape_.n_layer; l++) {
        total_bytes += double(shape_.expert_bytes(l));
    }
    const double mean_bytes = total_bytes / shape_.n_layer;
    for (Layer l = 0; l < shape_.n_layer; l++) {
        for (Part part : {Part::top, Part::bottom, Part::staged}) {
            PartSize size;
            if (core_.layout().layers[l].pool_of(part) != none) {
                for (size_t c = 0; c < shape_.chunk_bytes[l].size(); c++) {
                    size.chunk_bytes.push_back(double(core_.layout().chunk_bytes(shape_, l, part, Chunk(c))));
                    size.bytes += size.chunk_bytes.back();
                }
            }
            size.share = mean_bytes > 0 ? size.bytes / mean_bytes : 0;
            sizes_.push_back(std::move(size));
        }
    }
}

// Sends the speeds that a live engine measures.
void Simulator::tell_speeds() {
    double mean_bytes = 0;
    for (Layer l = 0; l < shape_.n_layer; l++) {
        mean_bytes += double(shape_.expert_bytes(l)) / shape_.n_layer;
    }
    HostSpeeds speeds{.possible = true, .n_copy = machine_.n_link};
    speeds.link_us_per_byte = machine_.link_bytes_per_us > 0 ? 1 / machine_.link_bytes_per_us : 0;
    speeds.host_us = machine_.host_us;
    speeds.host_us_per_byte = machine_.host_expert_us / mean_bytes;
    speeds.host_row_us_per_byte = machine_.host_expert_token_us / mean_bytes;
    speeds.device_us_per_byte = machine_.expert_us / mean_bytes;
    speeds.device_row_us_per_byte = machine_.expert_token_us / mean_bytes;
    const std::vector<HostSpeeds> of_layers(size_t(shape_.n_layer), speeds);
    core_.handle(Measured{of_layers});
}

Simulation Simulator::run(const Future & trace) {
    for (size_t p = 0; p < trace.passes.size(); p++) {
        run_pass(p, trace.passes[p]);
    }
    for (Layer l = 0; l < shape_.n_layer; l++) {
        result_.layers[l].counts = difference(core_.residency().counts(l), before_[l]);
    }
    if (schedule_) {
        core_.record(nullptr);
    }
    end_copies();
    return std::move(result_);
}

void Simulator::run_pass(size_t index, const Future::Pass & pass) {
    pass_ = {.n_pass = 1, .n_token = pass.n_token};
    began_us_ = now_us_;
    busy_us_ = link_ ? link_->busy_us() : 0;
    const LayerCounts before = all_counts();

    if (pass.begins_request) {
        core_.handle(RequestBegan{});
    }
    try {
        run_layers(index, pass);
    } catch (const Stop &) {
        on_host_.clear();
        walk_.abort();
    }

    pass_.time_us = now_us_ - began_us_;
    pass_.link_busy_us = (link_ ? link_->busy_us() : 0) - busy_us_;
    add(pass.phase == Phase::prefill ? result_.prefill : result_.decode, pass_);
    result_.pass_us.push_back(pass_.time_us);
    result_.pass_stall_us.push_back(pass_.stall_us);
    const LayerCounts counts = difference(all_counts(), before);
    result_.pass_hits.push_back(int64_t(counts.hits));
    result_.pass_requests.push_back(int64_t(counts.hits + counts.late + counts.misses));
    if (extras_.after_pass) {
        extras_.after_pass({pass.phase, pass_, counts});
    }
}

void Simulator::run_layers(size_t index, const Future::Pass & pass) {
    walk_.begin_pass();
    walk_.tell_of(PassBegan{pass.phase, pass.tokens, pass.sequences});
    for (Layer l = 0; l < shape_.n_layer; l++) {
        run_layer(index, l, pass);
    }
    if (machine_.pass_us > 0) {
        compute(machine_.pass_us);
    }
    walk_.computed();
}

void Simulator::stop_if_due() {
    if (schedule_ && schedule_->stops()) {
        throw Stop{};
    }
}

LayerCounts Simulator::all_counts() const {
    LayerCounts all;
    for (Layer l = 0; l < shape_.n_layer; l++) {
        all = sum(all, core_.residency().counts(l));
    }
    return all;
}

void Simulator::run_layer(size_t index, Layer layer, const Future::Pass & pass) {
    const std::vector<Expert> & ids = pass.ids[layer];
    const auto n_token = int32_t(ids.size() / size_t(shape_.used(layer)));
    compute(machine_.dense_us + machine_.dense_token_us * std::max(pass.n_token - 1, 0));
    walk_.computed();
    stop_if_due();
    if (n_token == 0) {
        return;
    }
    if (n_token > 1) {
        std::fill(n_token_of_.begin(), n_token_of_.end(), 0);
        for (Expert e : ids) {
            n_token_of_[e]++;
        }
    }
    if (machine_.stop_us > 0 && !core_.may_skip(layer)) {
        compute(machine_.stop_us);
    }
    walk_.begin_layer();
    host_began_ = false;
    Routing routing{layer, n_token, ids, {}};
    if (extras_.weights && core_.wants_weights()) {
        routing.weights = extras_.weights(index, layer);
    }
    routed_us_ = now_us_;
    walk_.route(routing, machine_.stop_us > 0 && machine_.host_expert_us == 0);
    if (link_ && !walk_.has_all()) {
        pass_.link_idle_us = now_us_ - began_us_ - (link_->busy_us() - busy_us_);
    }
    see_gate(index, layer, n_token);
    for (auto step = walk_.next(); step != Walk::Step::over; step = walk_.next()) {
        switch (step) {
            case Walk::Step::wait:
                stop_if_due();
                walk_.waited(wait(layer));
                break;
            case Walk::Step::slots:  // the core is told at the next layer
                compute_wave(walk_.computing());
                break;
            case Walk::Step::wave:
                stop_if_due();
                if (machine_.stop_us > 0) {
                    compute(machine_.stop_us * n_graph(walk_.computing()));
                }
                compute_wave(walk_.computing());
                walk_.computed();
                break;
            case Walk::Step::waves:
            case Walk::Step::over: break;
        }
    }
    if (n_token > 1) {
        std::fill(n_token_of_.begin(), n_token_of_.end(), 0);
    }
}

void Simulator::see_gate(size_t index, Layer layer, int32_t n_token) {
    if (!extras_.inputs || !core_.wants_gate_input()) {
        return;
    }
    const std::span<const float> input = extras_.inputs(index, layer);
    if (!input.empty()) {
        walk_.tell(GateSeen{layer, input, n_token});
    }
}

// Return how many graphs compute a wave: one for the experts of each kind of slot.
int Simulator::n_graph(std::span<const Compute> wave) const {
    return int(std::count_if(places.begin(), places.end(), [&](Part part) {
        return std::any_of(wave.begin(), wave.end(), [&](const Compute & c) { return c.part == part; });
    }));
}

void Simulator::compute_wave(std::span<const Compute> wave) {
    double us = machine_.wave_us;
    for (const Compute & c : wave) {
        us += expert_us(c, machine_.expert_us, machine_.expert_token_us);
    }
    pass_.wave_us += us;
    compute(us);
}

double Simulator::expert_us(const Compute & c, double first_us, double further_us) const {
    const int32_t n_further = std::max(n_token_of_[c.expert] - 1, 0);
    return sizes_[size_t(c.layer) * n_place + size_t(c.part)].share * (first_us + further_us * n_further);
}

void Simulator::compute_on_host(const Compute & c) {
    const double ready_us = now_us_ + (std::exchange(host_began_, true) ? 0 : machine_.host_us);
    on_host_.push_back({c, expert_us(c, machine_.host_expert_us, machine_.host_expert_token_us), ready_us});
    time_host(on_host_.size() - 1);
}

// Times the host's work from this one on.
void Simulator::time_host(size_t from) {
    for (size_t i = from; i < on_host_.size(); i++) {
        HostWork & work = on_host_[i];
        work.begin_us = i == 0 ? work.told_us : std::max(work.told_us, on_host_[i - 1].end_us);
        work.end_us = work.begin_us + work.us;
    }
}

bool Simulator::withdraw(Expert expert) {
    const auto it = std::find_if(on_host_.begin(), on_host_.end(),
                                 [&](const HostWork & work) { return work.compute.expert == expert; });
    if (it == on_host_.end() || it == on_host_.begin() || it->begin_us <= now_us_) {
        return false;
    }
    time_host(size_t(on_host_.erase(it) - on_host_.begin()));
    return true;
}

std::optional<Compute> Simulator::take_from_host() {
    if (on_host_.empty() || on_host_.front().end_us > now_us_) {
        return std::nullopt;
    }
    const Compute c = on_host_.front().compute;
    on_host_.pop_front();
    return c;
}

std::optional<double> Simulator::caught_up_us() {
    return machine_.host_expert_us > 0 ? std::optional(now_us_ - routed_us_) : std::nullopt;
}

void Simulator::submitted() {
    if (link_) {
        link_->begin();
    }
}

bool Simulator::cancel(Ticket ticket) { return schedule_ ? schedule_->cancel(ticket) : link_ && link_->cancel(ticket); }

void Simulator::gave_up() {
    if (!schedule_) {
        throw std::runtime_error("The core gave an expert up although no copy had failed");
    }
    throw Stop{};
}

std::optional<CopyEnd> Simulator::submit(const Copy & copy, bool) {
    if (schedule_) {
        schedule_->submit(copy);
        return std::nullopt;
    }
    if (!link_) {
        return CopyEnd{copy.ticket};
    }
    if (copy.route == Route::file_to_host) {
        const auto & chunks = shape_.chunk_bytes[copy.layer];
        link_->submit(copy, double(copy.chunk == whole_expert ? shape_.expert_bytes(copy.layer) : chunks[copy.chunk]));
        return std::nullopt;
    }
    const PartSize & size = sizes_[size_t(copy.layer) * n_place + size_t(copy.part)];
    link_->submit(copy, copy.chunk == whole_expert ? size.bytes : size.chunk_bytes[copy.chunk]);
    return std::nullopt;
}

// Copies in flight arrive uncounted, so that the core can be used again.
void Simulator::end_copies() {
    while (const auto end = scheduled(true)) {
        walk_.waited(end);
    }
    while (link_ && link_->advance_to_arrival()) {
        walk_.collect();
    }
}

// Return the copy that ends now by the schedule.
std::optional<CopyEnd> Simulator::scheduled(bool waits) {
    const auto end = schedule_ ? schedule_->take(waits) : std::nullopt;
    return end ? std::optional(CopyEnd{end->copy.ticket, end->fails}) : std::nullopt;
}

std::optional<CopyEnd> Simulator::take() {
    Ticket ticket;
    return link_ && link_->take_arrival(ticket) ? CopyEnd{ticket} : scheduled(false);
}

// Waits until a copy arrives or the host has computed an expert.
std::optional<CopyEnd> Simulator::wait(Layer layer) {
    if (!on_host_.empty()) {
        const double end_us = on_host_.front().end_us;
        if (link_) {
            link_->advance_to_arrival(end_us);
        }
        const double us = (link_ ? link_->clock_us() : end_us) - now_us_;
        now_us_ += us;
        pass_.compute_us += us;
        pass_.wave_us += us;
        return std::nullopt;
    }
    if (const auto end = scheduled(true)) {
        return end;
    }
    if (!link_ || !link_->advance_to_arrival()) {
        throw std::runtime_error("The expert cache waits for a copy that nobody ordered");
    }
    const double stall_us = link_->clock_us() - now_us_;
    now_us_ = link_->clock_us();
    result_.layers[layer].stall_us += stall_us;
    pass_.stall_us += stall_us;
    return take();
}

void Simulator::compute(double us) {
    constexpr double almost_nothing = 1e-3;
    for (double left = us; left > 0;) {
        const double busy_us = link_ ? link_->busy_us() : 0;
        now_us_ += left;
        pass_.compute_us += left;
        if (!link_) {
            return;
        }
        link_->advance(now_us_);
        // The time that copies in flight took from it is still to be computed.
        left *= machine_.copy_slows / (1 + machine_.copy_slows) * std::min((link_->busy_us() - busy_us) / left, 1.0);
        left = left > almost_nothing ? left : 0;
    }
}

}  // namespace

void Machine::validate() const {
    const struct {
        const char * name;
        double value;
    } figures[] = {
        {"link_bytes_per_us", link_bytes_per_us},
        {"link_latency_us", link_latency_us},
        {"file_bytes_per_us", file_bytes_per_us},
        {"file_latency_us", file_latency_us},
        {"dense_us", dense_us},
        {"dense_token_us", dense_token_us},
        {"expert_us", expert_us},
        {"expert_token_us", expert_token_us},
        {"wave_us", wave_us},
        {"host_us", host_us},
        {"host_expert_us", host_expert_us},
        {"host_expert_token_us", host_expert_token_us},
        {"stop_us", stop_us},
        {"pass_us", pass_us},
        {"joined_bytes", joined_bytes},
        {"copy_slows", copy_slows},
    };
    for (const auto & figure : figures) {
        if (!std::isfinite(figure.value) || figure.value < 0) {
            throw std::invalid_argument(std::string("The machine's ") + figure.name +
                                        " must be a number of at least 0");
        }
    }
    if (n_link < 1 || n_link > 1024 || n_file < 1 || n_file > 1024) {
        throw std::invalid_argument("The machine's n_link and n_file must be from 1 to 1024");
    }
}

Simulation simulate(Core & core, const Future & trace, const Machine & machine, const SimulationExtras & extras) {
    machine.validate();
    check_trace(trace, core.shape());
    if (!core.idle()) {
        throw std::invalid_argument("The core is in the middle of a layer");
    }
    struct Recording {  // stops on an exception too
        Core & core;
        bool on;
        ~Recording() {
            if (on) {
                core.record(nullptr);
            }
        }
    } recording{core, extras.log != nullptr};
    if (recording.on) {
        core.record(extras.log);
    }
    return Simulator(core, machine, extras).run(trace);
}

}  // namespace outrider
