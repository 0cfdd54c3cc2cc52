// Tests of what the bindings hide: core_test NAME runs one, and fails by aborting. test_core_native.py builds and
// runs them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "core/core.h"
#include "core/schedule/need_list.h"
#include "core/walk.h"

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
    require(describe(log.entries()[1].event) == "routed layer 0, 1 tokens: 5 6; weights",
            "the log has the experts of then");
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

// A walk over one layer with slots for three of four experts. Copies end when the test says so.
struct Walked : Driver {
    const Shape shape{1, 4, 2, {{10, 10}}};
    const Layout layout = Layout::per_layer({3});
    Core core{{shape, layout}, {{}, {{"lru"}}, {"ordered"}, {"ordered"}}};
    EventLog log;
    Walk walk{core, *this};
    std::vector<CopyEnd> open, ended;
    bool fails = false, is_lost = false;

    Walked() {
        core.record(&log);
        walk.begin_pass();
        walk.tell(PassBegan{Phase::decode, {}});
    }
    Walk::Step route(std::vector<Expert> ids, bool gathers, Walk::Obey when = Walk::Obey::each) {
        walk.begin_layer();
        walk.route({0, int32_t(ids.size() / 2), ids}, gathers, when);
        return walk.next();
    }
    Walk::Step end_copy() {
        require(!open.empty(), "a copy is awaited");
        const CopyEnd end{open.front().ticket, fails};
        open.erase(open.begin());
        walk.waited(end);
        return walk.next();
    }
    size_t place(const std::string & begin) const {
        const auto & all = log.entries();
        return size_t(std::ranges::find_if(all, [&](const auto & e) { return describe(e.event).starts_with(begin); }) -
                      all.begin());
    }

    std::optional<CopyEnd> submit(const Copy & copy, bool lost) override {
        is_lost = is_lost || lost;
        open.push_back({copy.ticket});
        return std::nullopt;
    }
    bool cancel(Ticket ticket) override {
        return std::erase_if(open, [&](const CopyEnd & c) { return c.ticket == ticket; }) > 0;
    }
    std::optional<CopyEnd> take() override {
        return ended.empty() ? std::nullopt : std::optional(std::exchange(ended, {}).front());
    }
    bool copies() const override { return !open.empty(); }
    void gave_up() override { throw std::runtime_error("unreadable"); }
    void compute_on_host(const Compute &) override {}
    bool withdraw(Expert) override { return false; }
    std::optional<Compute> take_from_host() override { return std::nullopt; }
    std::optional<double> caught_up_us() override { return std::nullopt; }
};

void walk_gathers() {
    using enum Walk::Step;
    Walked w;
    Walk::Step step = w.route({1, 2}, true);
    for (; step == wait; step = w.end_copy()) {
        require(w.walk.computing().empty() && !w.walk.has_all(), "a token waits for all that its layer needs");
    }
    require(step == slots && w.walk.computing().size() == 2, "then it is computed at once");
    require(w.walk.next() == over, "the walk waits for the next layer");
    w.walk.computed();
    require(w.core.idle() && w.walk.computing().empty(), "the core was told");
    // A prompt does not wait, nor does a layer that lacks slots.
    require(w.route({0, 1, 2, 1}, true) == waves, "a prompt begins with what is there");
    require(w.walk.next() == wave && w.walk.computing().size() == 2, "two experts are there");
    w.walk.computed();
    step = w.walk.next();
    for (; step == wait; step = w.end_copy()) {
    }
    require(step == wave && w.walk.computing().size() == 1 && w.walk.computing()[0].expert == 0, "and one comes");
    w.walk.computed();
    require(w.walk.next() == over, "the layer is over");
    require(w.route({1, 3}, false) == waves, "without gathering there are waves");
}

void walk_obeys_when_it_is_told() {
    for (const auto when : {Walk::Obey::each, Walk::Obey::together}) {
        Walked w;
        w.walk.tell(Predicted{{0, {3}, {}}});
        require(!w.open.empty(), "a forecast is fetched");
        w.route({0, 1}, true, when);
        const bool before = w.place("cancelled") < w.place("routed");
        require(w.place("cancelled") < w.log.entries().size(), "the forecast is dropped at the gate");
        require(before == (when == Walk::Obey::each), "commands are obeyed at the point that was told");
    }
}

void walk_ends_with_its_pass() {
    Walked w;
    w.fails = true;
    bool threw = false;
    try {
        for (auto step = w.route({0, 1}, true); step == Walk::Step::wait; step = w.end_copy()) {
        }
    } catch (const std::runtime_error &) {
        threw = true;
    }
    require(threw, "an expert that cannot be read ends the pass");
    w.walk.abort();
    require(w.walk.next() == Walk::Step::over && w.walk.computing().empty(), "nothing is left to do");
    w.walk.begin_pass();
    w.walk.tell(PassBegan{Phase::decode, {}});
    w.fails = false;
    auto step = w.route({0, 1}, true);
    for (; step == Walk::Step::wait; step = w.end_copy()) {
    }
    require(step == Walk::Step::slots, "the next pass is computed");
}

const std::map<std::string, std::function<void()>> tests{
    {"need_list_counts", need_list_counts},
    {"uncounted_open", [] { uncounted([](Needs & n) { n.list[0].computed = true; }); }},
    {"uncounted_fetched", [] { uncounted([](Needs & n) { n.list[1].fetched = true; }); }},
    {"uncounted_staged", [] { uncounted([](Needs & n) { n.list[1].part = Part::staged; }); }},
    {"uncounted_host", [] { uncounted([](Needs & n) { n.list[0].on_host = true; }); }},
    {"not_pinned", [] { uncounted([](Needs & n) { n.residency.set_pinned(0, 0, false); }); }},
    {"log_keeps_memory", log_keeps_memory},
    {"walk_gathers", walk_gathers},
    {"walk_obeys_when_it_is_told", walk_obeys_when_it_is_told},
    {"walk_ends_with_its_pass", walk_ends_with_its_pass},
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
