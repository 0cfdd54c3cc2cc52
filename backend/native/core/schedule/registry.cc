#include "core/schedule/registry.h"

#include "core/schedule/ordered.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// The options behind each name; numbers of the spec change them.
constexpr std::pair<const char *, OrderedOptions> schedulers[] = {
    // An expert is fetched when its turn comes (ProMoE, section 7.1: Base).
    {"reactive", {.chunks = false, .early_preemption = false, .order = ComputeOrder::id}},
    // ProMoE, section 5. With cut experts it is MoEpic's pipeline: bottoms, or whole missing experts, are copied in
    // the order of their scores while resident tops compute (MoEpic, section 3.2).
    {"ordered", {.n_stream = 8}},
    {"split_pipeline", {.n_stream = 8}},
    // Whole experts one after the other through k slots; the next is fetched while one computes, the first of a layer
    // while attention does (DuoServe-MoE, section 5.2).
    {"stream", {.chunks = false, .order = ComputeOrder::id, .first_ahead = true}},
    // All tokens of one expert at once, the experts that most tokens need first, then in the order of
    // arrival (Klotski, section 5).
    {"expert_major", {.chunks = false, .order = ComputeOrder::tokens}},
};

}  // namespace

std::vector<std::string> scheduler_names() { return names_of(schedulers); }

std::unique_ptr<Scheduler> make_scheduler(const Spec & spec, Residency & residency, Eviction & eviction,
                                          CopyDesk & desk, const HostShare & host) {
    OrderedOptions options = part_called(spec.name, schedulers, "scheduler");
    SpecReader settings(spec, "scheduler");
    options.chunks = settings.flag("chunks", options.chunks);
    options.early_preemption = settings.flag("early_preemption", options.early_preemption);
    const bool reorder = settings.flag("reorder", options.order != ComputeOrder::id);
    if (reorder != (options.order != ComputeOrder::id)) {
        options.order = reorder ? ComputeOrder::arrived : ComputeOrder::id;
    }
    options.plain = settings.flag("plain", options.plain);
    options.first_ahead = settings.flag("first_ahead", options.first_ahead);
    options.prefetch_after_first = settings.flag("prefetch_after_first", options.prefetch_after_first);
    options.max_open = settings.whole("k_slots", options.max_open, 0, 1 << 20);
    options.n_stream = settings.whole("n_stream", options.n_stream, 0, 1 << 20);
    options.n_wave = settings.whole("n_wave", options.n_wave, 1, 1 << 20);
    options.fill = settings.flag("fill", options.fill);
    options.gather = settings.flag("gather", options.gather);
    settings.finish();
    return std::make_unique<OrderedScheduler>(residency, eviction, desk, options, host);
}

}  // namespace outrider
