// Tests of what the bindings hide: core_test NAME runs one, and fails by aborting. test_core_native.py builds and
// runs them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "core/core.h"
#include "core/schedule/need_list.h"

using namespace outrider;

namespace {

// Two tokens' needs of a layer with three slots of its own: expert 0 is resident, 1 and 2 are missing.
struct Needs {
    Shape shape{1, 4, 2, {{10, 10}}};
    Residency residency{shape, Layout::per_layer({3})};
    NeedList list{residency};

    Needs() {
        load(0, 0);
        const Demand demands[] = {{0, 2}, {1, 1}, {2, 1}};
        list.begin(0, demands);
        list.sort(false, nullptr);
    }
    void load(Slot slot, Expert expert) {
        residency.assign({0, Part::top}, slot, expert, false);
        residency.chunks_arrived(0, slot, residency.take_missing_chunks(0, slot));
    }
    void issue(Need & need) {
        residency.set_pinned(0, list.slot_of(need), true);
        list.issue(need);
    }
};

void need_list_counts() {
    Needs n;
    require(n.list.n_open() == 3 && n.list.any_without_slot() && !n.list.exceeds_slots(), "begin");
    n.list.check();
    n.issue(n.list[0]);
    require(n.list.n_issued() == 1 && n.list.n_issued_token() == 2 && n.list.any_issued(), "issue");
    n.list.check();
    n.load(1, n.list[1].expert);
    n.list.fetch(n.list[1]);
    require(n.list.n_fetched() == 1 && n.list.can_compute(n.list[1]), "fetch");
    n.list.check();
    n.list.issue_to_host(n.list[1]);  // takes it over
    require(n.list.n_fetched() == 0 && n.list.n_issued() == 1, "issue to the host");
    n.list.check();
    n.list.take_from_host(n.list[1]);
    n.list.stage(n.list[2]);
    require(n.list.n_staged() == 1, "stage");
    n.list.check();
    n.list.unstage(n.list[2]);
    n.list.finish(n.list[0]);
    require(n.list.n_open() == 2 && n.list.n_issued() == 0 && n.list.any_issued(), "finish");
    n.list.check();
    n.list.clear();
    require(n.list.n_open() == 0 && n.list.size() == 0 && n.list.layer() == none, "clear");
    n.list.check();
}

// Each changes a need behind the list's back: check() has to abort.
void uncounted(const std::function<void(Needs &)> & change) {
    Needs n;
    n.issue(n.list[0]);
    n.list.check();
    change(n);
    n.list.check();
}

// The log keeps what an event's spans point to.
void log_keeps_memory() {
    const Shape shape{1, 8, 2, {{10, 10}}};
    const Layout layout = Layout::per_layer({4});
    const Composition composition{{}, {{"lru"}}, {"ordered"}, {"ordered"}};
    const Surroundings around{shape, layout};
    EventLog log;
    {
        Core core(around, composition);
        core.record(&log);
        Commands out;
        std::vector<Expert> ids{5, 6};
        core.handle(PassBegan{Phase::decode, {}}, out);
        core.handle(Routed{{0, 1, ids, {}}}, out);
        ids = {1, 2};
    }
    require(describe(log.entries()[1].event) == "routed layer 0, 1 tokens: 5 6; weights", "the log has the experts of then");
    Core again(around, composition);
    require(replay(log, again) == -1, "the log can be replayed");
}

// Random prompts and tokens, copies that end in any order or fail, forecasts and aborts: check() after every event.
void invariants_after_every_event(bool cut) {
    constexpr int32_t n_layer = 3, n_expert = 8, k = 2;
    const Shape shape{n_layer, n_expert, k, {n_layer, {100, 60}}, {4, 4, 4}};
    Layout layout = Layout::per_layer({3, 4, 5});
    if (cut) {
        layout = {{{3}, {2}}, {n_layer, {0.5, {0, 1}}}};
    } else {
        layout = layout.staged(shape, 3);
    }
    const Composition composition{{}, {{"lru"}}, {"ordered", {{"n_stream", 2}}}, {"ordered"}};
    Core core({shape, layout}, composition);
    std::mt19937 random(7);
    const auto below = [&](size_t n) { return random() % n; };
    std::vector<Copy> flying;
    std::vector<Compute> ready;
    uint64_t n_need = 0, n_command = 0;
    bool gave_up = false;
    const auto tell = [&](const Event & event) {
        Commands todo;
        core.handle(event, todo);
        core.check();
        for (size_t i = 0; i < todo.size(); i++) {
            const Command command = todo[i];
            n_command++;
            if (const auto * copy = std::get_if<Copy>(&command)) {
                flying.push_back(*copy);
            } else if (const auto * compute = std::get_if<Compute>(&command)) {
                ready.push_back(*compute);
            } else if (const auto * cancel = std::get_if<Cancel>(&command); cancel && below(4) > 0) {
                const auto is = [&](const Copy & c) { return c.ticket == cancel->ticket; };
                if (std::erase_if(flying, is) > 0) {
                    core.handle(Cancelled{cancel->ticket}, todo);
                    core.check();
                }
            }
            gave_up = gave_up || std::holds_alternative<GiveUp>(command);
        }
    };
    for (int pass = 0; pass < 200; pass++) {
        const Phase phase = below(3) == 0 ? Phase::prefill : Phase::decode;
        tell(PassBegan{phase, {}});
        for (Layer layer = 0; layer < n_layer; layer++) {
            const int32_t n_token = phase == Phase::prefill ? 5 : 1;
            std::vector<Expert> ids;
            std::array<bool, n_expert> needed{};
            for (int32_t i = 0; i < n_token; i++) {
                const auto first = Expert(below(n_expert));
                ids.insert(ids.end(), {first, Expert((first + 1 + Expert(below(n_expert - 1))) % n_expert)});
                needed[size_t(ids[ids.size() - 2])] = needed[size_t(ids.back())] = true;
            }
            n_need += size_t(std::count(needed.begin(), needed.end(), true)) * (cut ? 2 : 1);
            tell(Routed{{layer, n_token, ids}});
            if (below(2) == 0) {
                tell(Predicted{{Layer(below(n_layer)), {Expert(below(4)), Expert(4 + below(4))}}});
            }
            while (!core.idle()) {
                if (gave_up || below(200) == 0) {
                    tell(Aborted{});
                    ready.clear();
                    gave_up = false;
                } else if (!ready.empty() && (flying.empty() || below(2) == 0)) {
                    const Compute compute = ready[below(ready.size())];
                    std::erase_if(ready, [&](const Compute & c) { return c == compute; });
                    tell(Computed{compute.layer, compute.expert, compute.part});
                } else {
                    require(!flying.empty(), "the layer waits for a copy that is not in flight");
                    const size_t i = below(flying.size());
                    const Ticket ticket = flying[i].ticket;
                    flying.erase(flying.begin() + int64_t(i));
                    below(30) == 0 ? tell(Failed{ticket}) : tell(Copied{ticket});
                }
            }
        }
    }
    uint64_t n_request = 0;
    for (Layer layer = 0; layer < n_layer; layer++) {
        const LayerCounts & counts = core.residency().counts(layer);
        n_request += counts.hits + counts.late + counts.misses;
        require(counts.hits > 0 && counts.late > 0 && counts.misses > 0, "parts were found in every way");
    }
    require(n_request == n_need, "hits + late + misses = requests");
    require(n_command > 1000, "the core had something to do");
}

const std::map<std::string, std::function<void()>> tests{
    {"need_list_counts", need_list_counts},
    {"uncounted_open", [] { uncounted([](Needs & n) { n.list[0].computed = true; }); }},
    {"uncounted_fetched", [] { uncounted([](Needs & n) { n.list[1].fetched = true; }); }},
    {"uncounted_staged", [] { uncounted([](Needs & n) { n.list[1].part = Part::staged; }); }},
    {"uncounted_host", [] { uncounted([](Needs & n) { n.list[0].on_host = true; }); }},
    {"not_pinned", [] { uncounted([](Needs & n) { n.residency.set_pinned(0, 0, false); }); }},
    {"log_keeps_memory", log_keeps_memory},
    {"invariants_of_staged_layers", [] { invariants_after_every_event(false); }},
    {"invariants_of_cut_experts", [] { invariants_after_every_event(true); }},
};

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 2 || !tests.contains(argv[1])) {
        std::fprintf(stderr, "core_test NAME\n");
        return 2;
    }
    tests.at(argv[1])();
    return 0;
}
