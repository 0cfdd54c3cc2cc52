#include "core/evict/decayed.h"

#include "core/spec_reader.h"

namespace outrider {
namespace {

UseRate rate_of(const Spec & spec, const Shape & shape) {
    SpecReader settings(spec, "eviction");
    const double fast = settings.number("fast", 0.8, 0.01, 0.9999);
    const double slow = settings.number("slow", 0.97, 0.01, 0.9999);
    const double slow_share = settings.number("slow_share", 0.9, 0.001, 0.999);
    settings.finish();
    return {shape, fast, slow, slow_share};
}

}  // namespace

Decayed::Decayed(const Spec & spec, const Shape & shape)
    : amounts_(shape), rate_(rate_of(spec, shape)), expected_(shape) {}

void Decayed::routed(const Routing & routing, std::span<const Demand> demands) {
    rate_.pass(routing.layer);
    expected_.routed(routing.layer);
    amounts_.each(routing, demands, [&](Expert e, double amount) { rate_.add(routing.layer, e, amount); });
}

}  // namespace outrider
