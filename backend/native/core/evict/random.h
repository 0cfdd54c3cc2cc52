// Any one may leave: a hash of a seed and of how often an expert was needed, so that the same run
// gives the same victims.
#pragma once

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class Random final : public Eviction {
  public:
    // Number: seed (0).
    Random(const Spec & spec, const Surroundings & around)
        : seed_(uint64_t(spec.number("seed", 0))), count_(around.shape, 0) {}

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            count_.at(routing.layer, d.expert)++;
        }
    }
    double keep(Layer layer, Part, Expert expert) const override {
        uint64_t x = seed_ + (uint64_t(layer) << 40) + (uint64_t(expert) << 20) + count_.at(layer, expert);
        x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;  // splitmix64
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return double((x ^ (x >> 31)) >> 11);
    }

  private:
    uint64_t seed_;
    PerExpert<uint64_t> count_;
};

}  // namespace outrider
