// The sequences that are being answered, as far as passes show it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace outrider {

// Keeps a T for each of them. Nobody tells when a sequence ends. When another one begins, those that have no part in
// the last pass have ended, if more are known than any pass had; the one that took part least recently first.
template <typename T>
class OpenSequences {
  public:
    void pass_began() {
        n_pass_++;
        n_present_ = 0;
    }

    // The sequence takes part in the pass. Return its T, a new one at the first time. Others may move.
    T & of(int32_t sequence) {
        auto it = std::ranges::find(all_, sequence, &Open::sequence);
        if (it == all_.end()) {
            it = all_.insert(all_.end(), {sequence, 0, T()});
        }
        if (it->last != n_pass_) {
            it->last = n_pass_;
            most_ = std::max(most_, ++n_present_);
        }
        return it->value;
    }

    // Another sequence begins: `ended` receives the T of each that has ended.
    template <typename Ended>
    void begin(Ended && ended) {
        while (all_.size() >= most_ && !all_.empty()) {
            const auto it = std::ranges::min_element(all_, {}, &Open::last);
            if (it->last == n_pass_) {
                break;
            }
            ended(it->value);
            all_.erase(it);
        }
    }

    // All have ended.
    template <typename Ended>
    void end_all(Ended && ended) {
        for (Open & open : all_) {
            ended(open.value);
        }
        all_.clear();
    }

    template <typename Each>
    void each(Each && each) {
        for (Open & open : all_) {
            each(open.value);
        }
    }

  private:
    struct Open {
        int32_t sequence;
        int64_t last;  // the last pass in which it took part
        T value;
    };
    std::vector<Open> all_;
    int64_t n_pass_ = 1;
    size_t n_present_ = 0;  // in this pass, so far
    size_t most_ = 1;       // of any pass
};

}  // namespace outrider
