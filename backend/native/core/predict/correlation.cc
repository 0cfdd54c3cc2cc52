// Which experts follow which: the frequency of an expert, given those that the token chose in the layers before
// (Klotski, section 6.2, "Correlation-aware Expert Prefetcher").
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/predict/mat_vec.h"
#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// An expert that a token chose in a layer begins a path of length 1 to the next layer; a pair that it chose in two
// successive layers, one of length 2. A token's tendency is the sum, over its paths, of the experts' shares in what
// followed the path. The forecast is the experts with the largest sum over all tokens. The paper predicts the layers
// after the first; here the first ones are predicted too, from the last layers of the token before. In a pass of
// several sequences, every token is paired with tokens of its own sequence. Numbers: path_length, 1 (the default, as
// in the paper) or 2. With 2, unknown paths count as the path of length 1 that ends them, as many paths are kept as
// fit in 64 MiB, and a pass of more than 64 tokens uses only the last ones. online, 1 (the default): learns from
// routings while it runs, 0: does not. Arrays: counts [n_layer][n_expert][n_expert], from a warm-up run; optional,
// not negative: counts[l][i][j] is how often tokens that chose i in layer l - 1 chose j in layer l.
class Correlation final : public Predictor {
  public:
    Correlation(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_layer_(around.shape.n_layer),
          n_expert_(around.shape.n_expert),
          n_predict_(forecast_size(around.shape, n_predict)),
          totals_(size_t(n_layer_) * n_expert_, 0.0f),
          n_token_(n_expert_, 0),
          votes_(n_expert_) {
        SpecReader settings(spec, "predictor");
        length_ = settings.whole("path_length", 1, 1, 2);
        online_ = settings.whole("online", 1, 0, 1) == 1;
        if (const auto counts = settings.find_counts("counts", {n_layer_, n_expert_, n_expert_})) {
            counts_ = counts->values;
            for (size_t i = 0; i < counts_.size(); i++) {
                totals_[i / size_t(n_expert_)] += counts_[i];
            }
        } else {
            counts_.assign(size_t(n_layer_) * n_expert_ * n_expert_, 0.0f);
        }
        settings.finish();
    }

    void request_began() override {
        for (Step & step : steps_) {
            step.layer = none;
        }
    }

    void routed(const Routing & routing, Forecasts & out) override {
        if (routing.n_token <= 0) {
            request_began();
            return;
        }
        std::rotate(steps_.begin(), steps_.end() - 1, steps_.end());
        Step & now = steps_[0];
        now.layer = routing.layer;
        now.n_token = routing.n_token;
        now.n_used = routing.ids.size() / size_t(routing.n_token);
        now.ids.assign(routing.ids.begin(), routing.ids.end());
        now.last = routing.last_tokens();
        link(routing);
        if (online_) {
            learn();
        }
        forecast(layer_after(routing.layer, 1, n_layer_), out);
        before_.assign(routing.sequences.begin(), routing.sequences.end());
    }

  private:
    static constexpr int32_t most_tokens = 64;
    static constexpr int64_t most_bytes = int64_t(64) << 20;

    // The routing of a layer.
    struct Step {
        Layer layer = none;
        int32_t n_token = 0;
        size_t n_used = 0;
        std::vector<Expert> ids;
        std::vector<int32_t> before;  // [token]: the same token, or the one before it, in the step before; or -1
        std::vector<int32_t> last;  // the last token of each sequence

        std::span<const Expert> of(int32_t token) const { return {ids.data() + size_t(token) * n_used, n_used}; }
    };

    // Find, for every token of the present step, its choice in the step before.
    void link(const Routing & routing) {
        Step & now = steps_[0];
        const Step & earlier = steps_[1];
        now.before.assign(size_t(now.n_token), -1);
        if (earlier.layer == none || layer_after(earlier.layer, 1, n_layer_) != now.layer) {
            return;
        }
        if (now.layer > 0) {
            for (int32_t t = 0; t < now.n_token; t++) {  // the last layer may have only the last tokens
                now.before[size_t(t)] = std::max(t + earlier.n_token - now.n_token, -1);
            }
            return;
        }
        for (int32_t one : earlier.last) {  // of the pass before
            const int32_t sequence = before_.empty() ? 0 : before_[size_t(one)];
            for (int32_t t = 0; t < now.n_token; t++) {
                if (routing.sequence(t) == sequence) {
                    now.before[size_t(t)] = one;
                    break;
                }
            }
        }
    }

    void learn() {
        const Step & now = steps_[0];
        for (int32_t t = 0; t < now.n_token; t++) {
            const int32_t one = now.before[size_t(t)];
            if (one < 0) {
                continue;
            }
            for (Expert from : steps_[1].of(one)) {
                float * counts = row(now.layer, from);
                for (Expert e : now.of(t)) {
                    counts[e] += 1;
                }
                totals_[size_t(index(now.layer, from))] += float(now.n_used);
            }
            const int32_t two = length_ == 2 && t >= now.n_token - most_tokens ? steps_[1].before[size_t(one)] : -1;
            if (two < 0) {
                continue;
            }
            for (Expert first : steps_[2].of(two)) {
                for (Expert second : steps_[1].of(one)) {
                    const bool has_room = int64_t(long_counts_.size() + size_t(n_expert_)) * 4 <= most_bytes;
                    auto it = long_rows_.find(path(now.layer, first, second));
                    if (it == long_rows_.end()) {
                        if (!has_room) {
                            continue;
                        }
                        it = long_rows_.emplace(path(now.layer, first, second), int32_t(long_totals_.size())).first;
                        long_totals_.push_back(0);
                        long_counts_.resize(long_counts_.size() + size_t(n_expert_), 0.0f);
                    }
                    for (Expert e : now.of(t)) {
                        long_counts_[size_t(it->second) * n_expert_ + e] += 1;
                    }
                    long_totals_[size_t(it->second)] += float(now.n_used);
                }
            }
        }
    }

    void forecast(Layer target, Forecasts & out) {
        const Step & now = steps_[0];
        std::fill(votes_.begin(), votes_.end(), 0.0f);
        const bool of_next = target <= now.layer;
        asked_ = now.last;  // their next tokens are predicted
        if (!of_next) {
            asked_.resize(size_t(now.n_token));
            std::iota(asked_.begin(), asked_.end(), 0);
        }
        if (length_ == 1) {
            for (int32_t t : asked_) {
                for (Expert from : now.of(t)) {
                    n_token_[from]++;
                }
            }
            for (Expert from = 0; from < n_expert_; from++) {
                if (n_token_[from] > 0) {
                    add_short(target, from, float(n_token_[from]));
                    n_token_[from] = 0;
                }
            }
        }
        for (int32_t t : asked_) {
            if (length_ == 1 || t < now.n_token - most_tokens) {
                continue;
            }
            const int32_t one = now.before[size_t(t)];
            for (Expert second : now.of(t)) {
                if (one < 0) {
                    add_short(target, second, float(now.n_used));
                    continue;
                }
                for (Expert first : steps_[1].of(one)) {
                    const auto it = long_rows_.find(path(target, first, second));
                    if (it == long_rows_.end()) {
                        add_short(target, second, 1);
                    } else {
                        add_scaled(&long_counts_[size_t(it->second) * n_expert_], 1 / long_totals_[size_t(it->second)],
                                   n_expert_, votes_.data());
                    }
                }
            }
        }
        Forecast forecast = best_of(target, votes_, n_predict_, 0.0f);
        if (!forecast.experts.empty()) {
            out.push_back(std::move(forecast));
        }
    }

    void add_short(Layer target, Expert from, float weight) {
        const float total = totals_[size_t(index(target, from))];
        if (total > 0) {
            add_scaled(row(target, from), weight / total, n_expert_, votes_.data());
        }
    }

    float * row(Layer target, Expert from) { return &counts_[size_t(index(target, from)) * n_expert_]; }
    int64_t index(Layer target, Expert from) const { return int64_t(target) * n_expert_ + from; }
    uint64_t path(Layer target, Expert first, Expert second) const {
        return uint64_t(index(target, first)) * uint64_t(n_expert_) + uint64_t(second);
    }

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    int32_t length_;
    bool online_;
    std::vector<float> counts_;  // [target][from][expert]
    std::vector<float> totals_;  // [target][from]
    std::unordered_map<uint64_t, int32_t> long_rows_;
    std::vector<float> long_counts_;  // [row][expert]
    std::vector<float> long_totals_;  // [row]
    std::array<Step, 3> steps_;  // [0]: the present layer, [1]: the one before, ...
    std::vector<int32_t> n_token_;  // [n_expert]: tokens of the present layer
    std::vector<float> votes_;  // [n_expert]
    std::vector<int32_t> before_;  // sequences of the last step's tokens
    std::vector<int32_t> asked_;  // tokens of the present step
};

}  // namespace

std::unique_ptr<Predictor> make_correlation(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<Correlation>(spec, around, n_predict);
}

}  // namespace outrider
