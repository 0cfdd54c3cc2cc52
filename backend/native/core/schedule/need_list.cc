#include "core/schedule/need_list.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace outrider {
namespace {

// The part whose slots an expert would have if it were not in the stage.
Part own(Part part) { return part == Part::staged ? Part::top : part; }

}  // namespace

void NeedList::begin(Layer layer, std::span<const Demand> demands) {
    clear();
    streams_ = false;
    layer_ = layer;
    for (const Demand & d : demands) {
        for (Part part : parts) {
            if (residency_.pool({layer, part}) == none) {
                continue;
            }
            const bool staged = part == Part::top && residency_.find({layer, part}, d.expert) == none &&
                                residency_.find({layer, Part::staged}, d.expert) != none;
            needs_.push_back({d.expert, staged ? Part::staged : part, d.n_token});
            n_staged_ += staged;
        }
    }
    n_open_ = needs_.size();
}

void NeedList::clear() {
    layer_ = none;
    needs_.clear();
    n_open_ = n_fetched_ = n_staged_ = 0;
    n_issued_ = n_issued_token_ = 0;
    any_issued_ = false;
}

const Need * NeedList::find(Layer layer, Expert expert, Part part) const {
    if (layer != layer_) {
        return nullptr;
    }
    const auto it = std::find_if(needs_.begin(), needs_.end(),
                                 [&](const Need & n) { return n.expert == expert && n.part == part; });
    return it == needs_.end() ? nullptr : &*it;
}

bool NeedList::can_compute(const Need & need, bool gathers) const {
    if (!is_ready(need)) {
        return false;
    }
    const Need * top = need.part == Part::bottom ? find(layer_, need.expert, Part::top) : nullptr;
    return top == nullptr || top->computed || (gathers && top->issued);
}

bool NeedList::any_without_slot() const {
    return n_open_ > 0 &&
           std::any_of(needs_.begin(), needs_.end(), [&](const Need & n) { return n.is_open() && slot_of(n) == none; });
}

bool NeedList::exceeds_slots() const {
    return std::any_of(parts.begin(), parts.end(), [&](Part part) {
        const Pool pool = residency_.pool({layer_, part});
        int32_t n_room = 0;
        for (Slot s = 0; pool != none && s < residency_.n_slot(pool); s++) {
            const SlotInfo & info = residency_.at(pool, s);
            n_room += info.state == SlotState::free || info.may_leave();
        }
        for (const Need & need : needs_) {
            n_room -= pool != none && pool_of(need) == pool && slot_of(need) == none && !need.on_host;
        }
        return n_room < 0;
    });
}

// ---- order ----------------------------------------------------------------------------------

void NeedList::sort_by_id() {
    std::stable_sort(needs_.begin(), needs_.end(), [](const Need & a, const Need & b) { return a.expert < b.expert; });
}

void NeedList::sort(bool by_token, const Eviction * eviction) {
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        const Slot slot = slot_of(need);
        need.n_arrived = slot == none ? 0 : std::popcount(residency_.at(pool_of(need), slot).arrived);
        if (need.part == Part::bottom && i > 0 && needs_[i - 1].expert == need.expert) {
            need.n_arrived = std::min(need.n_arrived, needs_[i - 1].n_arrived);
        }
    }
    if (eviction) {
        rank(*eviction);
    }
    const auto before = [&](const Need & a, const Need & b) {
        if (by_token && a.n_token != b.n_token) {
            return a.n_token > b.n_token;
        }
        return a.n_arrived != b.n_arrived ? a.n_arrived > b.n_arrived : a.rank < b.rank;
    };
    if (needs_.size() > 32) {
        std::stable_sort(needs_.begin(), needs_.end(), before);
        return;
    }
    for (size_t i = 1; i < needs_.size(); i++) {  // for one token's needs: allocates nothing
        for (size_t j = i; j > 0 && before(needs_[j], needs_[j - 1]); j--) {
            std::swap(needs_[j], needs_[j - 1]);
        }
    }
}

// Missing experts are read in the order of the file. Where the layer streams, those most worth keeping are read last,
// since the last ones read stay; and the least worthy of the resident ones are computed first, since others take
// their slots.
void NeedList::rank(const Eviction & eviction) {
    std::vector<double> worths;
    for (const Need & need : needs_) {
        worths.push_back(streams_ ? eviction.keep(layer_, need.part, need.expert) : 0);
    }
    std::array<double, 2> least_worth{};  // [part]: those of more worth have room in the slots
    for (Part part : parts) {
        std::vector<double> of_part;
        for (size_t i = 0; i < needs_.size(); i++) {
            if (own(needs_[i].part) == part) {
                of_part.push_back(worths[i]);
            }
        }
        const size_t n_slot = of_part.empty() ? 0 : size_t(residency_.n_slot(residency_.pool({layer_, part})));
        if (n_slot < of_part.size()) {
            std::nth_element(of_part.begin(), of_part.begin() + int64_t(n_slot), of_part.end(), std::greater<>());
            least_worth[size_t(part)] = of_part[n_slot];
        }
    }
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        need.stays = streams_ && worths[i] > least_worth[size_t(own(need.part))];
        need.rank = need.n_arrived > 0 ? worths[i] : need.expert + (need.stays ? residency_.n_expert() : 0);
        if (need.part == Part::bottom && i > 0 && needs_[i - 1].expert == need.expert &&
            (needs_[i - 1].n_arrived > 0) == (need.n_arrived > 0)) {
            need.rank = std::max(need.rank, needs_[i - 1].rank);
        }
    }
}

// ---- what becomes of a need -------------------------------------------------------------------

// In a strict order a prefetch may evict the part before it is computed; then it is fetched again, and counts once.
void NeedList::fetch(Need & need) {
    n_fetched_ += need.fetched ? 0 : 1;
    need.fetched = true;
}

void NeedList::unfetch(Need & need) {
    n_fetched_ -= need.fetched ? 1 : 0;
    need.fetched = false;
}

void NeedList::stage(Need & need) {
    need.part = Part::staged;
    n_staged_++;
}

void NeedList::unstage(Need & need) {
    need.part = Part::top;
    n_staged_--;
}

void NeedList::issue(Need & need) {
    need.issued = any_issued_ = true;
    n_issued_++;
    n_issued_token_ += need.n_token;
}

void NeedList::issue_to_host(Need & need) {
    unfetch(need);
    need.on_host = need.issued = true;
}

void NeedList::finish(Need & need) {
    unfetch(need);
    need.computed = true;
    n_open_--;
    n_staged_ -= need.part == Part::staged;
    n_issued_ -= need.on_host ? 0 : 1;
    n_issued_token_ -= need.on_host ? 0 : need.n_token;
}

void NeedList::check() const {
    NeedList counted(residency_);
    for (const Need & need : needs_) {
        require(need.issued || !need.computed, "what is computed was issued");
        require(!need.fetched || (need.is_open() && need.part != Part::staged),
                "the device waits for what was fetched");
        const bool with_device = need.issued && need.is_open();
        counted.n_open_ += !need.computed;
        counted.n_fetched_ += need.fetched;
        counted.n_staged_ += need.part == Part::staged && !need.computed;
        counted.n_issued_ += with_device;
        counted.n_issued_token_ += with_device ? need.n_token : 0;
        counted.any_issued_ = counted.any_issued_ || (need.issued && !need.on_host);
        require(!with_device || (is_ready(need) && info_of(need).pinned), "what is computed is ready and pinned");
    }
    require(counted.n_open_ == n_open_, "open needs are counted");
    require(counted.n_fetched_ == n_fetched_, "fetched needs are counted");
    require(counted.n_staged_ == n_staged_, "staged needs are counted");
    require(counted.n_issued_ == n_issued_ && counted.n_issued_token_ == n_issued_token_ &&
                counted.any_issued_ == any_issued_,
            "issued needs are counted");
}

}  // namespace outrider
