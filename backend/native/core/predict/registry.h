// Predictors by name.
#pragma once

#include <string>

#include "core/predict/predictor.h"
#include "core/spec.h"

namespace outrider {

// A forecast holds at most `n_predict` experts. Null for an empty name. Throws std::invalid_argument, a sentence, for
// an unknown name, numbers out of range, arrays of a wrong shape, or surroundings that lack what the predictor needs.
using MakePredictor = std::unique_ptr<Predictor>(const Spec & spec, const Surroundings & around, int32_t n_predict);
MakePredictor make_predictor;
std::vector<std::string> predictor_names();

// Each in the file of its name, but make_accuracy in oracle.cc and make_eam_predictor in eam.cc.
MakePredictor make_accuracy, make_correlation, make_eam_predictor, make_expert_mlp, make_learned, make_next_router,
    make_oracle, make_popularity, make_previous_token, make_token_table;

}  // namespace outrider
