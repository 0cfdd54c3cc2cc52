// Tests of the simulator without Python: sim_test NAME runs one, and fails by aborting. `make wine-check` runs
// them under wine.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/link.h"
#include "sim/simulator.h"

using namespace outrider;

namespace {

void require(bool is_true, const char * what) {
    if (!is_true) {
        std::fprintf(stderr, "%s\n", what);
        std::abort();
    }
}

// Two layers of four experts, two used by each of six tokens; each layer has slots for three.
Simulation run(const Machine & machine) {
    const Shape shape{2, 4, 2, {2, {100, 100}}, {4, 4}};
    Core core({shape, Layout::per_layer({3, 3})}, {{}, {{"lru"}}, {"ordered", {{"n_stream", 2}}}, {"ordered"}});
    Future trace;
    const std::vector<std::vector<Expert>> used{{0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 1}, {0, 1}};
    for (const auto & ids : used) {
        trace.passes.push_back({Phase::decode, 1, false, {}, {}, {ids, ids}});
    }
    return simulate(core, trace, machine);
}

void instant_copies_cost_nothing() {
    Machine machine;
    machine.expert_us = 5;
    machine.dense_us = 1;
    const Simulation result = run(machine);
    require(result.decode.n_pass == 6 && result.decode.stall_us == 0, "no stall");
    require(std::abs(result.decode.time_us - 6 * 2 * (1 + 2 * 5)) < 1e-9, "time = layers and experts");
}

void a_link_costs_time() {
    Machine machine;
    machine.expert_us = 5;
    machine.link_bytes_per_us = 10;
    const Simulation result = run(machine);
    require(result.decode.stall_us > 0, "copies are waited for");
    require(std::abs(result.decode.time_us - result.decode.compute_us - result.decode.stall_us) < 1e-6, "time");
    for (const SimulatedLayer & layer : result.layers) {
        const LayerCounts & counts = layer.counts;
        require(counts.hits + counts.late + counts.misses == 12, "hits + late + misses = requests");
        require(counts.misses == 6, "0, 1, 2, 3, then 0 and 1, which LRU has evicted");
    }
}

// A place for two; each copy takes 10 us and, before, 1 us of latency.
void a_spare_copy_begins_alone() {
    Link link(1e5, 1, 2);
    const auto ends = [&] {
        std::vector<std::pair<Ticket, double>> found;
        while (link.advance_to_arrival()) {
            for (Ticket ticket; link.take_arrival(ticket);) {
                found.emplace_back(ticket, link.clock_us());
            }
        }
        return found;
    };
    link.submit(1, Urgency::spare, 1e6);
    link.submit(2, Urgency::spare, 1e6);
    link.submit(3, Urgency::low, 1e6);
    link.begin();
    link.submit(4, Urgency::high, 1e6);
    link.begin();
    using Ends = std::vector<std::pair<Ticket, double>>;
    require(ends() == Ends{{3, 21}, {4, 21}, {1, 32}, {2, 43}}, "after the others, one by one");
    link.submit(5, Urgency::spare, 1e6);
    link.begin();
    link.submit(6, Urgency::spare, 1e6);
    link.submit(7, Urgency::high, 1e6);
    link.begin();
    require(link.cancel(6) && !link.cancel(5), "one has begun");
    require(ends() == Ends{{5, 64}, {7, 64}}, "a need takes the other place");
}

void small_spare_copies_begin_as_low_ones() {
    Link link(10, 1, 4);
    for (const Ticket ticket : {1, 2, 3}) {
        link.submit(ticket, Urgency::spare, 100);
    }
    link.begin();
    require(link.cancel(3) && !link.cancel(2) && !link.cancel(1), "two of four places");
}

const std::map<std::string, std::function<void()>> tests{
    {"instant_copies_cost_nothing", instant_copies_cost_nothing},
    {"a_link_costs_time", a_link_costs_time},
    {"a_spare_copy_begins_alone", a_spare_copy_begins_alone},
    {"small_spare_copies_begin_as_low_ones", small_spare_copies_begin_as_low_ones},
};

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 2 || !tests.contains(argv[1])) {
        std::fprintf(stderr, "sim_test NAME\n");
        return 2;
    }
    tests.at(argv[1])();
    return 0;
}
