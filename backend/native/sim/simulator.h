// The very core of the live engine, driven by a trace and a machine model in virtual time.
#pragma once

#include <functional>

#include "../core/core.h"

namespace outrider {

class EventLog;

// Times in microseconds. Deciding costs nothing, nor does computing slow the link down.
struct Machine {
    double link_bytes_per_us = 0;  // of all copies under way together; 0: copies are instant
    double link_latency_us = 0;    // of each copy, before its bytes flow
    int32_t n_link = 1;            // copies that are under way at the same time and share the link
    // Where a core has a store in the host's memory, `link` leads from there into the slots, and this from
    // the file.
    double file_bytes_per_us = 0;
    double file_latency_us = 0;
    int32_t n_file = 1;
    double dense_us = 0;           // a layer without its experts, one token
    double dense_token_us = 0;     // for every further token of a pass
    double expert_us = 0;          // an expert of mean size, one token; others, and parts, by their bytes
    double expert_token_us = 0;    // for every further token that the same expert computes
    double wave_us = 0;            // to compute what is ready together, whatever it is
    double host_us = 0;            // to have the host compute some of a layer's experts, whatever they are
    double host_expert_us = 0;     // as expert_us, on the host beside the device; 0: it computes none
    double host_expert_token_us = 0;
    double pass_us = 0;            // a pass besides its layers: embedding, output

    // Throws std::invalid_argument, a sentence, for what is negative or no number.
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
    double wave_us = 0;  // of compute_us, what the experts took
    double stall_us = 0;
    double link_busy_us = 0;  // at least one copy was under way
};

struct SimulatedPass {
    Phase phase = Phase::decode;
    SimulatedPhase times;  // of this pass
    LayerCounts counts;    // of all layers together, during this pass
};

struct Simulation {
    std::vector<SimulatedLayer> layers;
    SimulatedPhase prefill, decode;
    std::vector<double> pass_us;  // [pass]
    std::vector<double> pass_stall_us;
    std::vector<int64_t> pass_hits;  // [pass], over all layers
    std::vector<int64_t> pass_requests;
};

// What a trace may have beside the ids: rows of a layer, one for each token that it routed in a pass,
// or an empty span where there are none.
using TraceRows = std::function<std::span<const float>(size_t pass, Layer layer)>;

struct SimulationExtras {
    TraceRows inputs{};   // of the layers' MoE inputs, each n_embd values
    TraceRows weights{};  // of the router's weights, each n_expert_used
    EventLog * log = nullptr;
    std::function<void(const SimulatedPass &)> after_pass{};  // may tune the core
};

// A layer may have fewer tokens than the pass, as llama.cpp's last one has. Throws
// std::invalid_argument, a sentence, where trace, machine and core do not belong together, and
// std::runtime_error where a core waits for what never comes. The core may be used again, as warm as
// it is then; copies that are under way at the end arrive uncounted.
Simulation simulate(Core & core, const Future & trace, const Machine & machine, const SimulationExtras & extras = {});

}  // namespace outrider
