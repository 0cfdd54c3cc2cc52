#include "core/predict/token_routers.h"

#include <algorithm>
#include <stdexcept>

#include "core/predict/ranking.h"

namespace outrider {

TokenRouters::TokenRouters(const Surroundings & around)
    : tables_(around.token_experts), counts_(size_t(around.shape.n_expert), 0) {
    for (Layer l = 0; l < Layer(tables_.size()); l++) {
        used_.push_back(size_t(around.shape.used(l)));
        if (tables_[size_t(l)].size() % used_.back() != 0) {
            throw std::invalid_argument("A table of experts has a row for every token");
        }
    }
    if (!tables_.empty() && tables_.size() != size_t(around.shape.n_layer)) {
        throw std::invalid_argument("There is a table of experts for every layer or for none");
    }
}

void TokenRouters::tell(std::span<const int32_t> tokens, Forecasts & out) {
    const auto exists = [&](Expert e) { return e >= 0 && e < Expert(counts_.size()); };
    for (Layer l = 0; l < Layer(tables_.size()); l++) {
        const auto table = tables_[size_t(l)];
        const size_t n_used = used_[size_t(l)];
        choices_.clear();
        for (const int32_t token : tokens) {
            if (token < 0 || size_t(token) >= table.size() / n_used) {
                choices_.clear();
                break;
            }
            const auto row = table.subspan(size_t(token) * n_used, n_used);
            choices_.insert(choices_.end(), row.begin(), row.end());
        }
        if (!choices_.empty() && std::ranges::all_of(choices_, exists)) {
            out.push_back(chosen_by(l, choices_, counts_));
            out.back().certain = true;
        }
    }
}

}  // namespace outrider
