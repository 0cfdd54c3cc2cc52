// A fixed set (ProMoE, section 7.1: Static): the experts that were used most, of a given table, or of the
// first passes. Others are the next to leave as soon as they were computed.
#pragma once

#include <stdexcept>

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class Static final : public Eviction {
  public:
    // Number: warmup (64), passes that are counted. Array: popularity [n_layer, n_expert], in its place.
    Static(const Spec & spec, const Surroundings & around) : count_(around.shape, 0) {
        n_warmup_ = spec.number("warmup", 64);
        if (!(n_warmup_ >= 0)) {
            throw std::invalid_argument("The eviction static takes a warmup of 0 or more passes");
        }
        if (spec.has("popularity")) {
            const Array & given = spec.array("popularity");
            if (given.shape != std::vector<int64_t>{around.shape.n_layer, around.shape.n_expert}) {
                throw std::invalid_argument("The eviction static takes a popularity for each expert of each layer");
            }
            for (Layer l = 0; l < around.shape.n_layer; l++) {
                for (Expert e = 0; e < around.shape.n_expert; e++) {
                    count_.at(l, e) = double(given.values[size_t(l) * size_t(around.shape.n_expert) + size_t(e)]);
                }
            }
            n_warmup_ = 0;
        }
    }

    void pass_began(Phase) override { n_pass_++; }
    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            if (n_pass_ <= n_warmup_) {
                count_.at(routing.layer, d.expert) += d.n_token;
            }
        }
    }
    double keep(Layer layer, Part, Expert expert) const override { return count_.at(layer, expert); }

  private:
    double n_warmup_;
    double n_pass_ = 0;
    PerExpert<double> count_;
};

}  // namespace outrider
