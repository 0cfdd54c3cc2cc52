#include "core.h"

#include <algorithm>

#include "evict/lru.h"

namespace outrider {

Core::Core(Shape shape, std::vector<int32_t> n_slot, CoreOptions options, std::unique_ptr<Predictor> predictor)
    : shape_(std::move(shape)),
      options_(options),
      residency_(shape_, n_slot),
      eviction_(std::make_unique<Lru>(n_slot)),
      scheduler_(std::make_unique<OrderedScheduler>(residency_, *eviction_, options.schedule)),
      predictor_(std::move(predictor)),
      confidence_(shape_.n_layer, options.min_precision),
      found_(size_t(shape_.n_layer) * shape_.n_expert, 0) {
    if (options_.n_predict == 0) {
        options_.n_predict = shape_.n_expert_used;
    }
}

void Core::pass_began(Phase phase) { scheduler_->pass_began(phase); }

Commands Core::routed(Layer layer, std::span<const Expert> ids) {
    std::vector<Expert> needed;
    uint8_t * found = &found_[size_t(layer) * shape_.n_expert];
    std::fill(found, found + shape_.n_expert, uint8_t(0));
    for (Expert e : ids) {
        if (found[e] != 0) {
            continue;
        }
        needed.push_back(e);
        const Slot slot = residency_.find(layer, e);
        found[e] = slot == none ? 12 : residency_.at(layer, slot).state == SlotState::ready ? 4 : 8;
    }
    confidence_.judge(layer, {found, size_t(shape_.n_expert)});
    Commands out;
    scheduler_->push_precise(layer, needed, out);
    return out;
}

Commands Core::gate_seen(Layer layer, std::span<const float> input, int32_t n_token) {
    return predictor_ ? predicted(predictor_->predict(layer, input, n_token, options_.n_predict)) : Commands{};
}

Commands Core::predicted(const Forecast & forecast) {
    Commands out;
    const Forecast kept = confidence_.worthwhile(forecast);
    if (kept.layer != none) {
        scheduler_->push_predicted(kept.layer, kept.experts, out);
    }
    return out;
}

Commands Core::copied(Ticket ticket) {
    Commands out;
    scheduler_->copied(ticket, out);
    return out;
}

Commands Core::cancelled(Ticket ticket) {
    Commands out;
    scheduler_->cancelled(ticket, out);
    return out;
}

Commands Core::failed(Ticket ticket) {
    Commands out;
    scheduler_->failed(ticket, out);
    return out;
}

Commands Core::computed(Layer layer, Expert expert) {
    Commands out;
    scheduler_->computed(layer, expert, out);
    return out;
}

Commands Core::aborted() {
    Commands out;
    scheduler_->aborted(out);
    return out;
}

std::vector<uint8_t> Core::snapshot() const {
    std::vector<uint8_t> bytes(found_);
    for (Layer l = 0; l < shape_.n_layer; l++) {
        for (Expert e = 0; e < shape_.n_expert; e++) {
            const Slot slot = residency_.find(l, e);
            if (slot != none) {
                bytes[size_t(l) * shape_.n_expert + e] |= residency_.at(l, slot).state == SlotState::ready ? 1 : 2;
            }
        }
    }
    return bytes;
}

}  // namespace outrider
