// Evicts at random: by a hash of a seed, the expert and the number of its uses, so equal runs evict equally.
#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/spec_reader.h"
#include "core/splitmix.h"

namespace outrider {
namespace {

class Random final : public Eviction {
  public:
    // Number: seed (0).
    Random(const Spec & spec, const Shape & shape) : n_need_(shape, 0) {
        SpecReader settings(spec, "eviction");
        seed_ = uint64_t(settings.whole("seed", 0, 0, 1 << 30));
        settings.finish();
    }

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            n_need_.at(routing.layer, d.expert)++;
        }
    }

    double keep(Layer layer, Part, Expert expert) const override {
        const uint64_t which = (uint64_t(layer) << 32) + uint64_t(expert);
        return double(splitmix(splitmix(splitmix(seed_) + which) + n_need_.at(layer, expert)) >> 11);
    }

  private:
    uint64_t seed_;
    PerExpert<uint64_t> n_need_;
};

}  // namespace

std::unique_ptr<Eviction> make_random(const Spec & spec, const Surroundings & around) {
    return std::make_unique<Random>(spec, around.shape);
}

}  // namespace outrider
