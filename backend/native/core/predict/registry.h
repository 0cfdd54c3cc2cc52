// Predictors by name.
#pragma once

#include <string>

#include "core/predict/predictor.h"
#include "core/spec.h"

namespace outrider {

// A forecast holds at most `n_predict` experts. Null for an empty name. Throws std::invalid_argument, a sentence, for
// an unknown name, numbers out of range, arrays of a wrong shape, or surroundings that lack what the predictor needs.
std::unique_ptr<Predictor> make_predictor(const Spec & spec, const Surroundings & around, int32_t n_predict);
std::vector<std::string> predictor_names();

}  // namespace outrider
