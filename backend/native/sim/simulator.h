// Drives the core of the live engine with a trace and a machine model, in virtual time.
#pragma once

#include <functional>
#include <optional>

#include "core/copy_schedule.h"
#include "core/core.h"

namespace outrider {

class EventLog;

// Times in microseconds. Decisions take no time, and computing does not slow the link.
struct Machine {
    double link_bytes_per_us = 0;  // of all copies together; 0: copies are instant
    double link_latency_us = 0;    // of each copy, before its bytes flow
    int32_t n_link = 1;            // copies in flight at the same time, which share the link
    // With a host store, `link` leads from the store into the slots, and `file` from the file.
    double file_bytes_per_us = 0;
    double file_latency_us = 0;
    int32_t n_file = 1;
    double dense_us = 0;           // a layer without its experts, one token
    double dense_token_us = 0;     // for every further token of a pass
    double expert_us = 0;          // an expert of mean size, one token; scaled by bytes for others and for parts
    double expert_token_us = 0;    // for every further token of the same expert
    double wave_us = 0;            // for each wave, of any size
    double host_us = 0;            // for each layer in which the host computes, any number of experts
    double host_expert_us = 0;     // as expert_us, on the host; 0: the host computes none
    double host_expert_token_us = 0;
    // A device that stops in each layer for the router's choice, unless the layer needs no stop. It then waits until
    // all experts of a decoded token are there and computes them at once. Each graph of a wave costs a stop, too: an
    // upload, a launch and a wait. 0: it does none of this.
    double stop_us = 0;
    double pass_us = 0;  // a pass without its layers: embedding, output
    // An expert's bytes lie together in the file, as in a pack: its copies are one read, of low urgency up to this many
    // bytes. 0: each matrix lies elsewhere.
    double joined_bytes = 0;
    double copy_slows = 0;  // computing takes 1 + copy_slows times as long while a copy is in flight

    // Throws std::invalid_argument, a sentence, for a value that is negative or no number.
    void validate() const;
};

struct SimulatedLayer {
    LayerCounts counts;  // during this simulation
    double stall_us = 0;
};

// time_us = compute_us + stall_us; a wait while the host computes is no stall.
struct SimulatedPhase {
    int64_t n_pass = 0;
    int64_t n_token = 0;
    double time_us = 0;
    double compute_us = 0;
    double wave_us = 0;  // the experts' part of compute_us
    double stall_us = 0;
    double link_busy_us = 0;  // with at least one copy in flight
    double link_idle_us = 0;  // without one, although the pass still needed an expert that was missing
};

struct SimulatedPass {
    Phase phase = Phase::decode;
    SimulatedPhase times;  // of this pass
    LayerCounts counts;  // of all layers together, during this pass
};

struct Simulation {
    std::vector<SimulatedLayer> layers;
    SimulatedPhase prefill, decode;
    std::vector<double> pass_us;  // [pass]
    std::vector<double> pass_stall_us;
    std::vector<int64_t> pass_hits;  // [pass], over all layers
    std::vector<int64_t> pass_requests;
};

// Rows of a layer in a pass, one for each token that it routed; empty if the trace has none.
using TraceRows = std::function<std::span<const float>(size_t pass, Layer layer)>;

struct SimulationExtras {
    TraceRows inputs{};  // of the layers' MoE inputs, each n_embd values
    TraceRows weights{};  // of the router's weights, each Shape::used
    EventLog * log = nullptr;
    std::function<void(const SimulatedPass &)> after_pass{};  // may tune the core
    // For tests: copies end by this rule and take no time. What is in flight at the end is not logged.
    std::optional<CopyRule> copy_rule{};
};

// A layer may have fewer tokens than the pass, like llama.cpp's last one. Throws std::invalid_argument, a sentence, if
// trace, machine and core do not fit together, and std::runtime_error if the core waits for a copy that was not
// ordered, or gives an expert up although no copy fails. The core may be used again and keeps its cache; copies in
// flight at the end arrive uncounted.
Simulation simulate(Core & core, const Future & trace, const Machine & machine, const SimulationExtras & extras = {});

}  // namespace outrider
