// One scheduler for prompts, another for decoding.
#pragma once

#include <memory>

#include "core/schedule/scheduler.h"

namespace outrider {

class ByPhase final : public Scheduler {
  public:
    // REQUIRES: both use the same CopyDesk.
    ByPhase(std::unique_ptr<Scheduler> prefill, std::unique_ptr<Scheduler> decode)
        : prefill_(std::move(prefill)), decode_(std::move(decode)) {}

    void pass_began(Phase phase, bool many) override {
        now_ = phase == Phase::prefill ? prefill_.get() : decode_.get();
        now_->pass_began(phase, many);
    }
    void push_predicted(const Forecast & forecast, Commands & out) override { now_->push_predicted(forecast, out); }
    void gate_reached(Layer layer, Commands & out) override { now_->gate_reached(layer, out); }
    void push_precise(Layer layer, std::span<const Demand> demands, Commands & out) override {
        now_->push_precise(layer, demands, out);
    }
    void copied(Ticket ticket, Commands & out) override { now_->copied(ticket, out); }
    void cancelled(Ticket ticket, Commands & out) override { now_->cancelled(ticket, out); }
    void failed(Ticket ticket, Commands & out) override { now_->failed(ticket, out); }
    void computed(Layer layer, Expert expert, Part part, Commands & out) override {
        now_->computed(layer, expert, part, out);
    }
    void withdrawn(Layer layer, Expert expert, Commands & out) override { now_->withdrawn(layer, expert, out); }
    void balance(double us, Commands & out) override { now_->balance(us, out); }
    void aborted(Commands & out) override { now_->aborted(out); }
    bool idle() const override { return now_->idle(); }
    double planned_device_us() const override { return now_->planned_device_us(); }
    double regret() const override { return decode_->regret(); }
    void check() const override { now_->check(); }

  private:
    std::unique_ptr<Scheduler> prefill_;
    std::unique_ptr<Scheduler> decode_;
    Scheduler * now_ = prefill_.get();
};

}  // namespace outrider
