// Predictors for studies, which know the future: the upper bound, and one of a set accuracy.
#include <algorithm>

#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"
#include "core/splitmix.h"

namespace outrider {
namespace {

// Every layer of every pass is due once: when it is at most `lookahead` layers after the present one, also in the next
// pass unless that begins a request. The passes must be those of the future, in order; after its end nothing is due.
class Foresight {
  public:
    // Number: lookahead, 1 .. n_layer.
    // Throws std::invalid_argument without a future, or with that of another model.
    Foresight(SpecReader & settings, const Surroundings & around, int32_t default_lookahead)
        : future_(around.future),
          n_layer_(around.shape.n_layer),
          lookahead_(settings.whole("lookahead", default_lookahead, 1, n_layer_)),
          counts_(around.shape.n_expert, 0) {
        if (!future_) {
            settings.refuse("needs a trace of what is to come");
        }
        const auto exists = [&](Expert e) { return e >= 0 && e < around.shape.n_expert; };
        for (const Future::Pass & pass : future_->passes) {
            bool fits = int32_t(pass.ids.size()) == n_layer_;
            for (const auto & ids : pass.ids) {
                fits = fits && std::all_of(ids.begin(), ids.end(), exists);
            }
            if (!fits) {
                settings.refuse("was given a trace of another model");
            }
        }
    }

    // Layers, numbered over all passes.
    struct Due {
        int64_t begin;
        int64_t end;
    };

    Due pass_began() {
        pass_++;
        return due_after(pass_ * n_layer_ - 1);
    }

    Due routed(Layer layer) { return pass_ < 0 ? Due{0, 0} : due_after(pass_ * n_layer_ + layer); }

    Layer layer_of(int64_t at) const { return Layer(at % n_layer_); }

    // The experts that the layer will choose.
    Forecast truth(int64_t at) { return chosen_by(layer_of(at), choices(at), counts_); }

    // The choices of the layer's tokens, in order.
    std::span<const Expert> choices(int64_t at) const {
        return future_->passes[size_t(at / n_layer_)].ids[size_t(at % n_layer_)];
    }

  private:
    Due due_after(int64_t present) {
        const int64_t n_all = int64_t(future_->passes.size()) * n_layer_;
        const int64_t begin = std::max(told_, present + 1);
        int64_t end = std::min(present + 1 + lookahead_, n_all);
        const auto next = size_t(pass_ + 1);
        if (next < future_->passes.size() && future_->passes[next].begins_request) {
            end = std::min(end, int64_t(next) * n_layer_);  // the next request is unknown
        }
        told_ = std::max(begin, end);
        return {begin, told_};
    }

    std::shared_ptr<const Future> future_;
    int32_t n_layer_;
    int32_t lookahead_;
    int64_t pass_ = -1;
    int64_t told_ = 0;  // all before this were due
    std::vector<int32_t> counts_;  // [n_expert], 0 between calls
};

// The future: the experts of most tokens among those that a layer will choose, n_predict for each token.
// Number: lookahead; by default a whole pass, n_layer.
class Oracle final : public Predictor {
  public:
    Oracle(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : settings_(spec, "predictor"),
          shape_(around.shape),
          n_predict_(size_t(forecast_size(around.shape, n_predict))),
          foresight_(settings_, around, around.shape.n_layer) {
        settings_.finish();
    }

    void pass_began(Phase, std::span<const int32_t>, Forecasts & out) override { tell(foresight_.pass_began(), out); }
    void routed(const Routing & routing, Forecasts & out) override { tell(foresight_.routed(routing.layer), out); }

  private:
    void tell(Foresight::Due due, Forecasts & out) {
        for (int64_t at = due.begin; at < due.end; at++) {
            Forecast f = foresight_.truth(at);
            const size_t n_token = foresight_.choices(at).size() / size_t(shape_.used(f.layer));
            f.experts.resize(std::min(f.experts.size(), n_predict_ * n_token));
            f.scores.resize(f.experts.size());
            if (!f.experts.empty()) {
                out.push_back(std::move(f));
            }
        }
    }

    SpecReader settings_;
    Shape shape_;
    size_t n_predict_;
    Foresight foresight_;
};

// n_predict experts of a token, each right with the probability `accuracy`, by a hash of seed, pass, layer, token and
// rank. When all right ones are named the others are wrong, and vice versa. In a pass of several tokens each asked
// token names as many experts as it uses; the experts named most often come first. Numbers: accuracy, 0 .. 1 (the
// default); seed, a whole number, by default 0; lookahead, by default 1.
class SetAccuracy final : public Predictor {
  public:
    SetAccuracy(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : settings_(spec, "predictor"),
          n_expert_(around.shape.n_expert),
          shape_(around.shape),
          n_predict_(forecast_size(around.shape, n_predict)),
          accuracy_(settings_.number("accuracy", 1, 0, 1)),
          seed_(uint64_t(settings_.whole("seed", 0, 0, INT32_MAX))),
          foresight_(settings_, around, 1),
          votes_(size_t(around.shape.n_expert)) {
        settings_.finish();
    }

    void pass_began(Phase, std::span<const int32_t>, Forecasts & out) override { tell(foresight_.pass_began(), out); }
    void routed(const Routing & routing, Forecasts & out) override { tell(foresight_.routed(routing.layer), out); }

  private:
    void tell(Foresight::Due due, Forecasts & out) {
        for (int64_t at = due.begin; at < due.end; at++) {
            out.push_back(guess(at));
        }
    }

    Forecast guess(int64_t at) {
        const auto choices = foresight_.choices(at);
        const auto layer = foresight_.layer_of(at);
        const auto n_used = size_t(shape_.used(layer));
        const Asked tokens(int32_t(choices.size() / n_used));
        const uint64_t state = splitmix(splitmix(seed_) ^ uint64_t(at));
        if (tokens.size() <= 1) {
            Forecast f{layer, {}, {}};
            guess(choices, n_predict_, state);
            for (Expert e : named_) {
                f.experts.push_back(e);
                f.scores.push_back(float(n_predict_ - int32_t(f.scores.size())));
            }
            return f;
        }
        std::fill(votes_.begin(), votes_.end(), 0.0f);
        for (int32_t i = 0; i < tokens.size(); i++) {
            const auto right = choices.subspan(size_t(tokens[i]) * n_used, n_used);
            guess(right, std::min(n_predict_, int32_t(n_used)), splitmix(state) ^ uint64_t(i));
            for (Expert e : named_) {
                votes_[size_t(e)]++;
            }
        }
        return best_of(layer, votes_, n_expert_, 0.0f);
    }

    void guess(std::span<const Expert> right, int32_t n, uint64_t state) {
        wrong_.clear();
        for (Expert e = 0; e < n_expert_; e++) {
            if (std::find(right.begin(), right.end(), e) == right.end()) {
                wrong_.push_back(e);
            }
        }
        named_.clear();
        size_t n_right = 0;
        for (int32_t rank = 0; rank < n; rank++) {
            state = splitmix(state);
            const bool hit = double(state >> 11) * 0x1p-53 < accuracy_;
            if (wrong_.empty() || (hit && n_right < right.size())) {
                named_.push_back(right[n_right++]);
            } else {
                const auto which = ptrdiff_t(splitmix(~state) % wrong_.size());
                named_.push_back(wrong_[size_t(which)]);
                wrong_.erase(wrong_.begin() + which);
            }
        }
    }

    SpecReader settings_;
    int32_t n_expert_;
    Shape shape_;
    int32_t n_predict_;
    double accuracy_;
    uint64_t seed_;
    Foresight foresight_;
    std::vector<Expert> wrong_, named_;  // of one token
    std::vector<float> votes_;  // [n_expert]
};

}  // namespace

std::unique_ptr<Predictor> make_oracle(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<Oracle>(spec, around, n_predict);
}

std::unique_ptr<Predictor> make_accuracy(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<SetAccuracy>(spec, around, n_predict);
}

}  // namespace outrider
