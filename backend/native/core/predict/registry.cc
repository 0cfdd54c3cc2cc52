#include "core/predict/registry.h"

#include <stdexcept>

#include "core/predict/correlation.h"
#include "core/predict/eam.h"
#include "core/predict/expert_mlp.h"
#include "core/predict/learned.h"
#include "core/predict/next_router.h"
#include "core/predict/oracle.h"
#include "core/predict/popularity.h"
#include "core/predict/previous_token.h"
#include "core/predict/token_table.h"

namespace outrider {
namespace {

using Maker = std::unique_ptr<Predictor> (*)(const Spec &, const Surroundings &, int32_t);

template <class Part>
std::unique_ptr<Predictor> make(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<Part>(spec, around, n_predict);
}

constexpr std::pair<const char *, Maker> makers[] = {
    {"accuracy", make<SetAccuracy>},   {"correlation", make<Correlation>}, {"eam", make<Eam>},
    {"expert_mlp", make<ExpertMlp>},   {"learned", make<Learned>},         {"next_router", make<NextRouter>},
    {"oracle", make<Oracle>},          {"popularity", make<Popularity>},   {"previous_token", make<PreviousToken>},
    {"token_table", make<TokenTable>},
};

}  // namespace

std::unique_ptr<Predictor> make_predictor(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    if (spec.name.empty()) {
        return nullptr;
    }
    for (const auto & [name, maker] : makers) {
        if (spec.name == name) {
            return maker(spec, around, n_predict);
        }
    }
    throw std::invalid_argument("There is no predictor called " + spec.name);
}

std::vector<std::string> predictor_names() {
    std::vector<std::string> names;
    for (const auto & [name, maker] : makers) {
        names.emplace_back(name);
    }
    return names;
}

}  // namespace outrider
