// Ends copies by a rule instead of by time. A live engine and a simulator with the same rule send their cores the same
// events, so their logs can be compared whole. For tests.
#pragma once

#include <optional>
#include <vector>

#include "core/types.h"

namespace outrider {

class Core;

// All is counted in events of the core.
struct CopyRule {
    uint64_t seed = 0;
    // A copy begins at most this many events after its order, and may end at most this many later. The driver is told
    // when it asks next, or at once if it waits.
    int32_t n_event = 0;
    double failing = 0;  // share of the copies from the file into slots that fail
    // Numbers of events, ascending: after each, a pass is stopped.
    std::vector<uint64_t> stops{};
};

class CopySchedule {
  public:
    // `core` orders the copies; it outlives this.
    CopySchedule(CopyRule rule, const Core & core) : rule_(std::move(rule)), core_(core) {}

    void submit(const Copy & copy);
    // Return whether the copy had not begun. It never will then.
    bool cancel(Ticket ticket);

    struct End {
        Copy copy;
        bool fails;
    };
    // Return the next copy that ends, or nothing. `waits`: time passes until a copy ends. A copy from the host store
    // ends after those that bring its bytes.
    std::optional<End> take(bool waits);
    size_t n_open() const { return open_.size(); }
    void clear() { open_.clear(); }

    // Return whether the pass in progress is to stop now. Each stop of the rule is returned once.
    bool stops();

  private:
    struct Open {
        Copy copy;
        uint64_t begins, ends;  // numbers of events
    };

    uint64_t chance(Ticket ticket, uint64_t use) const;
    bool is_here(const Copy & copy) const;

    const CopyRule rule_;
    const Core & core_;
    std::vector<Open> open_;  // in the order of submit()
    size_t n_stop_ = 0;  // that were returned
};

}  // namespace outrider
