// Request-level expert activation matching (MoE-Infinity, sections 4.3 and 4.5, appendix B.1): predicts what past
// requests that began like this one used later.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/predict/open_sequences.h"
#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"
#include "core/types.h"

namespace outrider {
namespace {

// Expert activation matrices (EAMs): how many tokens each expert of each layer got in a past request.
class EamCollection {
  public:
    EamCollection(int32_t n_layer, int32_t n_expert, int32_t capacity)
        : n_layer_(n_layer),
          n_expert_(n_expert),
          capacity_(capacity),
          eams_(size_t(n_layer) * n_expert * capacity, 0.0f),
          cells_(size_t(n_layer) * n_expert * capacity, 0.0f),
          squares_(size_t(n_layer) * capacity, 0.0) {}

    int32_t size() const { return n_; }
    // When full, evicts the EAM most similar to the new one (appendix B.1).
    void add(std::span<const float> eam) {
        int32_t at = n_;
        if (n_ < capacity_) {
            n_++;
        } else {
            std::vector<double> dots(capacity_, 0.0);
            for (size_t i = 0; i < eam.size(); i++) {
                for (int32_t m = 0; m < capacity_ && eam[i] > 0; m++) {
                    dots[m] += double(eam[i]) * double(cells_[i * capacity_ + m]);
                }
            }
            double best = -1;
            for (int32_t m = 0; m < capacity_; m++) {
                const double square = squares(n_layer_ - 1)[m];
                const double cosine = square > 0 ? dots[m] / std::sqrt(square) : 0;
                if (cosine > best) {
                    best = cosine;
                    at = m;
                }
            }
        }
        double sum = 0;
        for (size_t i = 0; i < eam.size(); i++) {
            eams_[size_t(at) * eam.size() + i] = eam[i];
            cells_[i * capacity_ + at] = eam[i];
            sum += double(eam[i]) * double(eam[i]);
            squares_[i / n_expert_ * capacity_ + at] = sum;
        }
    }
  // [n_layer * n_expert]

    // A layer's row of one EAM.
    const float * row(int32_t which, Layer layer) const {
        return &eams_[(size_t(which) * n_layer_ + layer) * n_expert_];
    }
    // One cell of all EAMs: [capacity].
    const float * cells(Layer layer, Expert expert) const {
        return &cells_[(size_t(layer) * n_expert_ + expert) * capacity_];
    }
    // Squares of all cells of the layers 0 .. layer: [capacity].
    const double * squares(Layer layer) const { return &squares_[size_t(layer) * capacity_]; }

  private:
    int32_t n_layer_;
    int32_t n_expert_;
    int32_t capacity_;
    int32_t n_ = 0;
    std::vector<float> eams_;   // [which][layer][expert]
    std::vector<float> cells_;  // [layer][expert][which]: to compare all at once
    std::vector<double> squares_;
};

// The EAM of the present pass (of the layers routed so far) is compared with the same layers of past requests' EAMs
// of the same phase, by cosine. The most similar ones are summed, each layer's row is divided by its sum, and row i
// weighs 1 - (i - l) / L, where l is the present layer. These are the scores of all later layers. Experts without a
// score are not forecast. In a pass of several sequences, each one is compared by itself, and their scores are
// summed. Numbers: capacity, the past requests of each phase, by default 120; matches, the number of EAMs that are
// summed, by default 1 (the paper says "several"); own, 1: a request so far counts as a past one too, 0 (the
// default): no. Arrays: prefill and decode [n][n_layer][n_expert]: initial EAMs; optional, not negative.
class Eam final : public Predictor {
  public:
    Eam(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_layer_(around.shape.n_layer),
          n_expert_(around.shape.n_expert),
          n_predict_(forecast_size(around.shape, n_predict)),
          past_{EamCollection(0, 0, 0), EamCollection(0, 0, 0)},
          counts_(n_expert_),
          sums_(n_expert_) {
        SpecReader settings(spec, "predictor");
        const int32_t capacity = settings.whole("capacity", 120, 1, 1 << 14);
        n_match_ = size_t(settings.whole("matches", 1, 1, 1 << 14));
        own_ = settings.whole("own", 0, 0, 1) == 1;
        const size_t n_cell = size_t(n_layer_) * n_expert_;
        for (size_t phase = 0; phase < 2; phase++) {
            past_[phase] = EamCollection(n_layer_, n_expert_, capacity);
            const auto array =
                settings.find_counts(phase == size_t(Phase::prefill) ? "prefill" : "decode", {-1, n_layer_, n_expert_});
            for (int64_t i = 0; array && i < array->shape[0]; i++) {
                past_[phase].add({array->values.data() + size_t(i) * n_cell, n_cell});
            }
        }
        capacity_ = size_t(capacity);
        known_.resize(2 * (capacity_ + 1) * size_t(n_layer_));
        settings.finish();
    }

    void request_began() override {
        requests_.end_all([&](const Request & request) { ended(request); });
    }
    void sequence_began(int32_t) override {
        requests_.begin([&](const Request & request) { ended(request); });
    }

    void pass_began(Phase phase, std::span<const int32_t>, Forecasts &) override {
        phase_ = size_t(phase);
        requests_.pass_began();
        requests_.each([](Request & request) {
            std::fill(request.dots.begin(), request.dots.end(), 0.0);
            request.own_dot = 0;
            request.own_norm = 0;
        });
    }

    void routed(const Routing & routing, Forecasts & out) override {
        present_.clear();
        for (int32_t t = 0; t < (routing.sequences.empty() ? 1 : routing.n_token); t++) {
            if (std::find(present_.begin(), present_.end(), routing.sequence(t)) == present_.end()) {
                present_.push_back(routing.sequence(t));
            }
        }
        const bool is_last = routing.layer + 1 == n_layer_;
        if (!is_last && present_.size() > 1) {
            together_.assign(size_t(n_layer_) * n_expert_, 0.0f);
        }
        for (const int32_t sequence : present_) {
            std::fill(counts_.begin(), counts_.end(), 0.0f);
            for (int32_t t = 0; t < routing.n_token; t++) {
                if (routing.sequence(t) == sequence) {
                    for (const Expert e : routing.of(t)) {
                        counts_[e] += 1;
                    }
                }
            }
            Request & request = requests_.of(sequence);
            if (request.dots.empty()) {
                begin(request);
            }
            see(request, routing.layer);
            if (!is_last) {
                match(request, routing.layer);
                forecast(request, routing.layer, out);
            }
        }
        for (Layer l = routing.layer + 1; l < n_layer_ && present_.size() > 1; l++) {
            const std::span<const float> scores(&together_[size_t(l) * n_expert_], size_t(n_expert_));
            Forecast forecast = best_of(l, scores, n_predict_ * int32_t(present_.size()), 0.0f);
            if (!forecast.experts.empty()) {
                out.push_back(std::move(forecast));
            }
        }
    }

  private:
    // A request that is being answered.
    struct Request {
        std::array<std::vector<float>, 2> eam;  // [phase][layer * n_expert]
        std::array<std::vector<double>, 2> squares;  // [phase][layer]: of the cells of one layer
        std::vector<double> dots;  // [past EAM]: product of its cells and the pass's, so far
        double own_dot = 0;  // the same with the request's EAM before the pass
        double own_norm = 0;
    };

    void begin(Request & request) const {
        for (size_t phase = 0; phase < 2; phase++) {
            request.eam[phase].assign(size_t(n_layer_) * n_expert_, 0.0f);
            request.squares[phase].assign(n_layer_, 0.0);
        }
        request.dots.assign(capacity_, 0.0);
    }

    void ended(const Request & request) {
        for (Known & known : known_) {
            known.matches.clear();
        }
        for (size_t phase = 0; phase < 2; phase++) {
            const auto & eam = request.eam[phase];
            if (std::any_of(eam.begin(), eam.end(), [](float v) { return v > 0; })) {
                past_[phase].add(eam);
            }
        }
    }

    // Adds the layer to the pass's EAM, and then to the request's.
    void see(Request & request, Layer layer) {
        const EamCollection & past = past_[phase_];
        float * own = &request.eam[phase_][size_t(layer) * n_expert_];
        request.own_norm += request.squares[phase_][layer];
        for (Expert e = 0; e < n_expert_; e++) {
            const double count = counts_[e];
            if (count == 0) {
                continue;
            }
            const float * cells = past.cells(layer, e);
            for (int32_t m = 0; m < past.size(); m++) {
                request.dots[m] += count * double(cells[m]);
            }
            request.own_dot += count * own[e];
            request.squares[phase_][layer] += count * (count + 2.0 * own[e]);
            own[e] += counts_[e];
        }
    }

    void match(const Request & request, Layer layer) {
        const EamCollection & past = past_[phase_];
        const double * squares = past.squares(layer);
        matches_.clear();
        for (int32_t m = 0; m < past.size(); m++) {
            consider(request.dots[m], squares[m], m);
        }
        if (own_) {
            consider(request.own_dot, request.own_norm, past.size());
        }
    }

    void consider(double dot, double square, int32_t which) {
        // The square of the cosine, without the factor that all share.
        const double likeness = dot > 0 ? dot * dot / square : 0;
        if (!(likeness > (matches_.size() < n_match_ ? 0 : matches_.back().likeness))) {
            return;
        }
        auto at = matches_.end();
        while (at != matches_.begin() && (at - 1)->likeness < likeness) {
            --at;
        }
        matches_.insert(at, {likeness, which});
        if (matches_.size() > n_match_) {
            matches_.pop_back();
        }
    }

    // Forecast the experts of a sequence. If there are several sequences, add the scores to `together_`.
    void forecast(const Request & request, Layer present, Forecasts & out) {
        matched_.clear();
        for (const Match & match : matches_) {
            matched_.push_back(match.which);
        }
        std::sort(matched_.begin(), matched_.end());
        const bool changes = !matched_.empty() && matched_.back() == past_[phase_].size();  // this request
        const size_t slot = matched_.size() == 1 ? size_t(matched_[0]) : capacity_;
        for (Layer l = present + 1; l < n_layer_ && !matched_.empty(); l++) {
            Known & known = known_[(phase_ * (capacity_ + 1) + slot) * size_t(n_layer_) + l];
            if (changes || known.matches != matched_) {
                known = {matched_, sum_up(request, l)};
            }
            if (known.forecast.experts.empty()) {
                continue;
            }
            const float weight = 1 - float(l - present) / float(n_layer_);
            if (present_.size() > 1) {
                for (size_t i = 0; i < known.forecast.experts.size(); i++) {
                    together_[size_t(l) * n_expert_ + known.forecast.experts[i]] += weight * known.forecast.scores[i];
                }
                continue;
            }
            Forecast & forecast = out.emplace_back(known.forecast);
            for (float & score : forecast.scores) {
                score *= weight;
            }
        }
    }

    // The row of the predicted EAM, normalised.
    Forecast sum_up(const Request & request, Layer layer) {
        const EamCollection & past = past_[phase_];
        const float * own = &request.eam[phase_][size_t(layer) * n_expert_];
        std::fill(sums_.begin(), sums_.end(), 0.0f);
        for (int32_t which : matched_) {
            const float * row = which < past.size() ? past.row(which, layer) : own;
            for (Expert e = 0; e < n_expert_; e++) {
                sums_[e] += row[e];
            }
        }
        const float sum = std::accumulate(sums_.begin(), sums_.end(), 0.0f);
        Forecast forecast = best_of(layer, sums_, n_predict_, 0.0f);
        for (float & score : forecast.scores) {
            score /= sum;
        }
        return forecast;
    }

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    size_t n_match_;
    bool own_;
    std::array<EamCollection, 2> past_;  // [phase]
    size_t capacity_ = 0;
    OpenSequences<Request> requests_;
    size_t phase_ = 0;
    std::vector<int32_t> present_;  // the sequences of the present layer
    std::vector<float> counts_;  // [n_expert]: a sequence's row of the pass's EAM in this layer
    std::vector<float> together_;  // [layer][expert]: scores of several sequences
    struct Match {
        double likeness;
        int32_t which;  // index into the collection; its size: the request itself
    };
    std::vector<Match> matches_;
    // The last scores of a layer for these matches, without the weight of its distance.
    struct Known {
        std::vector<int32_t> matches;
        Forecast forecast;
    };
    std::vector<Known> known_;  // [phase * n_layer + layer]
    std::vector<int32_t> matched_;  // which of matches_, in ascending order
    std::vector<float> sums_;  // [n_expert]
};

}  // namespace

std::unique_ptr<Predictor> make_eam_predictor(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<Eam>(spec, around, n_predict);
}

}  // namespace outrider
