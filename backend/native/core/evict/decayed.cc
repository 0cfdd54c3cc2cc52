#include "decayed.h"

#include "numbers.h"

namespace outrider {
namespace {

UseRate rate_of(const Spec & spec, const Shape & shape) {
    Numbers numbers(spec);
    const double fast = numbers.between("fast", 0.8, 0.01, 0.9999);
    const double slow = numbers.between("slow", 0.97, 0.01, 0.9999);
    const double slow_share = numbers.between("slow_share", 0.9, 0.001, 0.999);
    numbers.finish();
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
