// P(expert | layer, token): the experts that a token's id makes probable, without context (the token-based predictor of
// ProMoE, section 4.2). It forecasts all layers before the pass computes.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "core/predict/mat_vec.h"
#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// The score of an expert is (count + smoothing * share) / (all counts + smoothing), summed over the asked tokens:
// count is how often the layer chose it for this token id, share is its part of the layer's choices for all tokens.
// So an unknown token gets the popular experts. Numbers: online, 1 (the default): learns from routings while it runs,
// 0: does not; smoothing, by default 1; capacity, the number of token ids, those seen last (by default as many as fit
// in 64 MiB, and at least as many as the array has). Arrays, both or none: tokens [n], distinct ids; counts
// [n][n_layer][n_expert], not negative.
class TokenTable final : public Predictor {
  public:
    TokenTable(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_layer_(around.shape.n_layer),
          n_expert_(around.shape.n_expert),
          n_predict_(forecast_size(around.shape, n_predict)),
          counts_(size_t(n_layer_) * n_expert_, 0.0f),
          totals_(n_layer_, 0.0f),
          scores_(n_expert_) {
        SpecReader settings(spec, "predictor");
        const auto tokens = settings.find("tokens", {-1});
        const auto array = settings.find_counts("counts", {tokens ? tokens->shape[0] : -1, n_layer_, n_expert_});
        if (bool(tokens) != bool(array)) {
            settings.refuse("needs both arrays tokens and counts or none");
        }
        constexpr int32_t most = 1 << 24;
        const int64_t row_bytes = int64_t(n_layer_) * n_expert_ * int64_t(sizeof(float));
        const auto fitting = std::max(int32_t(std::min(int64_t(most), (int64_t(64) << 20) / row_bytes)), 1);
        const auto given = tokens ? int32_t(std::min(tokens->shape[0], int64_t(most))) : 1;
        online_ = settings.whole("online", 1, 0, 1) == 1;
        smoothing_ = float(settings.number("smoothing", 1, 1e-6, 1e6));
        capacity_ = settings.whole("capacity", std::max(fitting, given), given, most);
        settings.finish();

        const int64_t row_size = int64_t(n_layer_) * n_expert_;
        for (int32_t i = 0; tokens && i < given; i++) {
            const float token = tokens->values[size_t(i)];
            if (!(token >= 0 && token < float(most)) || token != std::floor(token) ||
                row_by_token_.count(int32_t(token)) > 0) {
                settings.refuse("needs distinct token ids in its array tokens");
            }
            const int32_t row = row_of(int32_t(token));
            const float * from = array->values.data() + i * row_size;
            std::copy_n(from, row_size, counts(row, 0));
            add_scaled(from, 1.0f, int32_t(row_size), counts(0, 0));
            for (Layer l = 0; l < n_layer_; l++) {
                float & total = totals_[size_t(row) * n_layer_ + l];
                for (Expert e = 0; e < n_expert_; e++) {
                    total += from[l * n_expert_ + e];
                }
                totals_[l] += total;
            }
        }
    }

    void pass_began(Phase, std::span<const int32_t> tokens, Forecasts & out) override {
        for (size_t i = 0; i < tokens.size() && online_; i++) {
            if (tokens[i] >= 0) {
                row_of(tokens[i]);
            }
        }
        pass_rows_.assign(tokens.size(), none);
        for (size_t i = 0; i < tokens.size(); i++) {
            // Some of a long pass may be evicted again.
            if (const auto it = row_by_token_.find(tokens[i]); it != row_by_token_.end()) {
                pass_rows_[i] = it->second;
            }
        }
        const Asked asked{int32_t(tokens.size())};
        for (Layer l = 0; l < n_layer_ && !tokens.empty(); l++) {
            std::fill(scores_.begin(), scores_.end(), 0.0f);
            float popular = 0;  // weight of the popular experts
            for (int32_t i = 0; i < asked.size(); i++) {
                const int32_t row = pass_rows_[size_t(asked[i])];
                const float total = row == none ? 0.0f : totals_[size_t(row) * n_layer_ + l];
                if (total > 0) {
                    add_scaled(counts(row, l), 1 / (total + smoothing_), n_expert_, scores_.data());
                }
                popular += smoothing_ / (total + smoothing_);
            }
            if (totals_[l] > 0) {
                add_scaled(counts(0, l), popular / totals_[l], n_expert_, scores_.data());
            }
            Forecast forecast = best_of(l, scores_, n_predict_, 0.0f);
            if (!forecast.experts.empty()) {
                out.push_back(std::move(forecast));
            }
        }
    }

    void routed(const Routing & routing, Forecasts &) override {
        const auto n_pass = int32_t(pass_rows_.size());
        if (!online_ || routing.n_token <= 0 || routing.n_token > n_pass) {
            return;
        }
        const size_t n_used = routing.ids.size() / size_t(routing.n_token);
        for (int32_t i = 0; i < routing.n_token; i++) {
            // The last layer may have only the last tokens.
            const int32_t row = pass_rows_[size_t(n_pass - routing.n_token + i)];
            const auto ids = routing.ids.subspan(size_t(i) * n_used, n_used);
            learn(counts(0, routing.layer), totals_[routing.layer], ids);
            if (row != none) {
                learn(counts(row, routing.layer), totals_[size_t(row) * n_layer_ + routing.layer], ids);
            }
        }
    }

  private:
    // A token id, as a link of a ring in the order of their last occurrence.
    struct Row {
        int32_t token;
        int32_t older;
        int32_t newer;
    };

    int32_t row_of(int32_t token) {
        const auto [it, is_new] = row_by_token_.try_emplace(token, none);
        if (!is_new) {
            unlink(it->second);
            link_newest(it->second);
            return it->second;
        }
        int32_t row;
        if (int32_t(rows_.size()) <= capacity_) {
            row = int32_t(rows_.size());
            rows_.push_back({token, 0, 0});
            counts_.resize(counts_.size() + size_t(n_layer_) * n_expert_, 0.0f);
            totals_.resize(totals_.size() + size_t(n_layer_), 0.0f);
        } else {
            row = rows_[0].newer;
            unlink(row);
            row_by_token_.erase(rows_[row].token);
            rows_[row].token = token;
            std::fill_n(counts(row, 0), size_t(n_layer_) * n_expert_, 0.0f);
            std::fill_n(&totals_[size_t(row) * n_layer_], n_layer_, 0.0f);
        }
        it->second = row;
        link_newest(row);
        return row;
    }
    // The rows form a ring, from the newest to the oldest. When the table is full, a new token evicts the oldest row.

    void unlink(int32_t row) {
        rows_[rows_[row].older].newer = rows_[row].newer;
        rows_[rows_[row].newer].older = rows_[row].older;
    }

    void link_newest(int32_t row) {
        const int32_t before = rows_[0].older;
        rows_[row].older = before;
        rows_[row].newer = 0;
        rows_[before].newer = row;
        rows_[0].older = row;
    }

    float * counts(int32_t row, Layer layer) { return &counts_[(size_t(row) * n_layer_ + layer) * n_expert_]; }

    void learn(float * counts, float & total, std::span<const Expert> ids) {
        for (Expert e : ids) {
            counts[e] += 1;
        }
        total += float(ids.size());
    }

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    int32_t capacity_;
    bool online_;
    float smoothing_;
    std::unordered_map<int32_t, int32_t> row_by_token_;
    std::vector<Row> rows_{{none, 0, 0}};  // [0] is the ring's end: its newer is the oldest
    std::vector<float> counts_;  // [row][layer][expert]; row 0: of all tokens
    std::vector<float> totals_;  // [row][layer]
    std::vector<int32_t> pass_rows_;  // [token of the pass]; none: unknown id
    std::vector<float> scores_;  // [n_expert]
};

}  // namespace

std::unique_ptr<Predictor> make_token_table(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<TokenTable>(spec, around, n_predict);
}

}  // namespace outrider
