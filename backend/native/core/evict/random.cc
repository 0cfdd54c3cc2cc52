#include "random.h"

#include "numbers.h"

namespace outrider {
namespace {

// The finaliser of splitmix64 (Steele, Lea and Flood, 2014).
uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

}  // namespace

Random::Random(const Spec & spec, const Shape & shape) : n_need_(shape, 0) {
    Numbers numbers(spec);
    seed_ = uint64_t(numbers.whole("seed", 0, 0, 1 << 30));
    numbers.finish();
}

void Random::routed(const Routing & routing, std::span<const Demand> demands) {
    for (const Demand & d : demands) {
        n_need_.at(routing.layer, d.expert)++;
    }
}

double Random::keep(Layer layer, Part, Expert expert) const {
    const uint64_t which = (uint64_t(layer) << 32) + uint64_t(expert);
    return double(mixed(mixed(mixed(seed_) + which) + n_need_.at(layer, expert)) >> 11);
}

}  // namespace outrider
