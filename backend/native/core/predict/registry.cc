#include "core/predict/registry.h"

namespace outrider {
namespace {

constexpr std::pair<const char *, MakePredictor *> makers[] = {
    {"accuracy", make_accuracy},       {"correlation", make_correlation}, {"eam", make_eam_predictor},
    {"expert_mlp", make_expert_mlp},   {"learned", make_learned},         {"next_router", make_next_router},
    {"oracle", make_oracle},           {"popularity", make_popularity},   {"previous_token", make_previous_token},
    {"token_table", make_token_table},
};

}  // namespace

std::vector<std::string> predictor_names() { return names_of(makers); }

std::unique_ptr<Predictor> make_predictor(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return spec.name.empty() ? nullptr : part_called(spec.name, makers, "predictor")(spec, around, n_predict);
}

}  // namespace outrider
