#include "live/pass/token_plan.h"

#include <cstring>

namespace outrider {
namespace {

// llama.cpp rebuilds the graphs of some architectures for each token. Then plans are of no use.
constexpr int max_in_vain = 3;

// ggml does not use a tensor's last bytes. It clears them when it makes a tensor, so a mark there says that llama.cpp
// has not rebuilt its graph.
void set_mark(ggml_tensor * node, uint64_t number) {
    static_assert(sizeof node->padding == sizeof number);
    std::memcpy(node->padding, &number, sizeof number);
}

uint64_t mark_of(const ggml_tensor * node) {
    uint64_t number;
    std::memcpy(&number, node->padding, sizeof number);
    return number;
}

}  // namespace

void TokenPlan::drop() {
    runner_.reset();
    planned_ = nullptr;
}

void TokenPlan::begin_pass(size_t n_token, bool may_divide) {
    n_in_vain_ = n_token == 1 ? n_in_vain_ : 0;  // a prompt has another graph anyway
    division_ = may_divide ? Division::undecided : Division::off;
}

void TokenPlan::decide(const ggml_tensor * first) {
    const bool known = first == planned_ && mark_of(first) == number_;
    if (known) {
        n_in_vain_ = 0;
    } else {
        n_in_vain_ += planned_ != nullptr;
        drop();
    }
    const bool learns = !known && n_in_vain_ < max_in_vain;
    division_ = known && runner_ ? Division::planned : learns ? Division::learning : Division::ordinary;
    seen_.clear();
}

bool TokenPlan::sees_first(ggml_tensor * node) {
    if (division_ == Division::undecided) {
        decide(node);
    }
    if (division_ == Division::learning) {
        seen_.push_back(node);
    }
    return division_ == Division::planned && node == runner_->first();
}

bool TokenPlan::starts(ggml_tensor * node, const Core & core) {
    for (const RoutedNodes & layer : runner_->layers()) {
        if ((core.wants_weights() && !layer.weights) || (core.wants_gate_input() && !layer.input)) {
            division_ = Division::ordinary;
            return false;
        }
    }
    division_ = Division::starting;
    first_op_ = node->op;
    node->op = GGML_OP_NONE;  // it is computed with its piece
    return true;
}

bool TokenPlan::take_stop(ggml_tensor * node) {
    if (division_ != Division::starting) {
        return false;
    }
    node->op = first_op_;
    division_ = Division::off;
    return true;
}

void TokenPlan::learn(ggml_backend_sched_t scheduler, const std::function<bool(Layer, ggml_backend_dev_t)> & fits) {
    if (division_ != Division::learning || seen_.empty()) {
        return;
    }
    drop();
    planned_ = seen_.front();
    set_mark(seen_.front(), ++number_);
    // A split of the scheduler ends where another backend computes. The last one is taken: its nodes are read by no
    // other split.
    ggml_backend_t last = nullptr;
    int n_split = 0;
    size_t begin = 0;
    for (size_t i = 0; i < seen_.size(); i++) {
        const bool is_view = seen_[i]->op == GGML_OP_VIEW || seen_[i]->op == GGML_OP_RESHAPE ||
                             seen_[i]->op == GGML_OP_PERMUTE || seen_[i]->op == GGML_OP_TRANSPOSE;
        const auto backend = is_view ? last : ggml_backend_sched_get_tensor_backend(scheduler, seen_[i]);
        if (backend != last) {
            begin = last ? i : 0;
            last = backend;
            n_split++;
        }
    }
    if (!last || n_split != ggml_backend_sched_get_n_splits(scheduler)) {
        return;
    }
    auto pieces = divide(std::span(seen_).subspan(begin), graph_);
    if (!pieces) {
        return;
    }
    for (const RoutedNodes & r : pieces->layers) {
        if (!fits(r.layer, ggml_backend_get_device(last))) {
            return;
        }
    }
    runner_ = PieceRunner::make(*pieces, last, graph_);
}

void TokenPlan::finish() {
    if (runner_) {
        runner_->finish();
    }
}

}  // namespace outrider
