// Set duelling (Qureshi et al., "Adaptive Insertion Policies for High Performance Caching", 2007, section 4.2), with
// directories of their own in some layers instead of dedicated sets.
#include "core/evict/duel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/evict/per_expert.h"
#include "core/evict/registry.h"

namespace outrider {
namespace {

// The weight of the misses of earlier passes, for each further pass: about the last 250 passes count.
constexpr double persistence = 0.996;
// LRU takes over when it leads by this many misses for each directory, and gives back when it no longer leads.
constexpr double patience = 1.0;
constexpr int32_t most_directories = 12;

// The experts that a cache of one layer would hold.
class Directory {
  public:
    Directory(Layer layer, int32_t n_slot, int32_t n_expert)
        : layer_(layer), n_slot_(n_slot), holds_(size_t(n_expert), 0), needed_(size_t(n_expert), 0) {}

    // Returns the number of misses.
    int32_t use(const Eviction & eviction, std::span<const Expert> experts) {
        int32_t n_miss = 0;
        for (Expert e : experts) {
            needed_[size_t(e)] = 1;
        }
        for (Expert e : experts) {
            if (holds_[size_t(e)]) {
                continue;
            }
            n_miss++;
            if (n_held_ == n_slot_) {
                holds_[size_t(victim(eviction))] = 0;
                n_held_--;
            }
            holds_[size_t(e)] = 1;
            n_held_++;
        }
        for (Expert e : experts) {
            needed_[size_t(e)] = 0;
        }
        return n_miss;
    }

  private:
    // Never an expert that the pass needs, unless it needs more than there are slots.
    Expert victim(const Eviction & eviction) const {
        Expert found = none;
        double lowest = std::numeric_limits<double>::infinity();
        for (size_t e = 0; e < holds_.size(); e++) {
            if (!holds_[e]) {
                continue;
            }
            const double keep =
                needed_[e] ? std::numeric_limits<double>::max() : eviction.keep(layer_, Part::top, Expert(e));
            if (found == none || keep < lowest) {
                found = Expert(e);
                lowest = keep;
            }
        }
        return found;
    }

    Layer layer_;
    int32_t n_slot_;
    int32_t n_held_ = 0;
    std::vector<uint8_t> holds_, needed_;  // [expert]
};

class Duel final : public Eviction {
  public:
    Duel(std::unique_ptr<Eviction> own, const Surroundings & around)
        : own_(std::move(own)),
          lru_(make_lru({"lru"}, around)),
          of_layer_(size_t(around.shape.n_layer), none),
          is_judged_(size_t(around.shape.n_layer), 0) {
        const Shape & shape = around.shape;
        const int32_t step = std::max(1, (shape.n_layer + most_directories - 1) / most_directories);
        for (Layer l = 0; l < shape.n_layer; l += step) {
            const int32_t n_slot = slots_of(around.layout, l);
            if (n_slot > 0 && n_slot < shape.n_expert) {
                of_layer_[size_t(l)] = int32_t(ours_.size());
                ours_.emplace_back(l, n_slot, shape.n_expert);
                lrus_.emplace_back(l, n_slot, shape.n_expert);
            }
        }
    }

    bool wants_weights() const override { return own_->wants_weights(); }
    void request_began() override {
        own_->request_began();
        lru_->request_began();
    }
    void sequence_began(int32_t sequence) override {
        own_->sequence_began(sequence);
        lru_->sequence_began(sequence);
    }
    void pass_began(Phase phase) override {
        own_->pass_began(phase);
        lru_->pass_began(phase);
        lead_ *= persistence;
    }
    void routed(const Routing & routing, std::span<const Demand> demands) override {
        own_->routed(routing, demands);
        lru_->routed(routing, demands);
        if (!std::exchange(is_judged_[size_t(routing.layer)], 0)) {
            experts_.clear();
            for (const Demand & d : demands) {
                experts_.push_back(d.expert);
            }
            judge(routing.layer, experts_);
        }
    }
    void accessed(Layer layer, Expert expert) override {
        own_->accessed(layer, expert);
        lru_->accessed(layer, expert);
    }
    void forecast(const Forecast & forecast) override {
        own_->forecast(forecast);
        lru_->forecast(forecast);
        if (forecast.certain && !std::exchange(is_judged_[size_t(forecast.layer)], 1)) {
            judge(forecast.layer, forecast.experts);
        }
    }
    void disappointed(Layer layer, Expert expert) override {
        own_->disappointed(layer, expert);
        lru_->disappointed(layer, expert);
    }
    double keep(Layer layer, Part part, Expert expert) const override {
        return (follows_lru_ ? *lru_ : *own_).keep(layer, part, expert);
    }

  private:
    // Compare the misses that each of both would have had for the layer's needs in this pass.
    void judge(Layer layer, std::span<const Expert> needed) {
        const int32_t at = of_layer_[size_t(layer)];
        if (at == none) {
            return;
        }
        lead_ += lrus_[size_t(at)].use(*lru_, needed) - ours_[size_t(at)].use(*own_, needed);
        if (lead_ < -patience * double(ours_.size())) {
            follows_lru_ = true;
        } else if (lead_ > 0) {
            follows_lru_ = false;
        }
    }

    // A layer has an even share of a pool that several layers share.
    static int32_t slots_of(const Layout & layout, Layer layer) {
        const Pool pool = layout.layers[size_t(layer)].pool_of(Part::top);
        if (pool == none) {
            return 0;
        }
        const auto n = std::count_if(layout.layers.begin(), layout.layers.end(),
                                     [&](const LayerLayout & l) { return l.pool_of(Part::top) == pool; });
        return layout.pools[size_t(pool)].n_slot / int32_t(n);
    }

    std::unique_ptr<Eviction> own_, lru_;
    std::vector<int32_t> of_layer_;   // [layer]: its directories, or `none`
    std::vector<uint8_t> is_judged_;  // [layer]: before it was reached
    std::vector<Expert> experts_;     // that a layer needs
    std::vector<Directory> ours_, lrus_;
    double lead_ = 0;  // misses that LRU had more than our own lately
    bool follows_lru_ = false;
};

}  // namespace

std::unique_ptr<Eviction> duelling(const Spec & spec, std::unique_ptr<Eviction> own, const Surroundings & around) {
    if (spec.number("duel", 1) == 0) {
        return own;
    }
    return std::make_unique<Duel>(std::move(own), around);
}

}  // namespace outrider
