#include "core/spec_reader.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace outrider {
namespace {

std::string text_of(const std::vector<int64_t> & shape) {
    std::string text;
    for (int64_t n : shape) {
        text.append(text.empty() ? "" : " x ");
        text.append(n < 0 ? "any" : std::to_string(n));
    }
    return text.empty() ? "no dimension" : text;
}

}  // namespace

void SpecReader::refuse(const std::string & why) const {
    throw std::invalid_argument(std::string("The ") + family_ + " " + spec_.name + " " + why);
}

double SpecReader::number(const std::string & key, double otherwise, double least, double most) {
    known_numbers_.insert(key);
    const double value = spec_.number(key, otherwise);
    if (!(value >= least && value <= most)) {
        std::ostringstream why;
        why << "needs a number " << key << " between " << least << " and " << most;
        refuse(why.str());
    }
    return value;
}

int32_t SpecReader::whole(const std::string & key, int32_t otherwise, int32_t least, int32_t most) {
    const double value = number(key, otherwise, least, most);
    if (value != std::floor(value)) {
        refuse("needs a whole number as " + key);
    }
    return int32_t(value);
}

std::shared_ptr<const Array> SpecReader::find(const std::string & key, const std::vector<int64_t> & shape) {
    known_arrays_.insert(key);
    const auto it = spec_.arrays.find(key);
    if (it == spec_.arrays.end() || !it->second) {
        return nullptr;
    }
    const Array & array = *it->second;
    uint64_t n_value = 1;
    bool fits = array.shape.size() == shape.size();
    for (size_t i = 0; fits && i < shape.size(); i++) {
        fits = array.shape[i] > 0 && array.shape[i] <= INT32_MAX && (shape[i] < 0 || array.shape[i] == shape[i]);
        n_value *= fits ? uint64_t(array.shape[i]) : 1;
        fits = fits && n_value <= array.values.size();
    }
    if (!fits || n_value != array.values.size()) {
        refuse("needs an array " + key + " of " + text_of(shape) + ", and has one of " + text_of(array.shape));
    }
    if (!std::all_of(array.values.begin(), array.values.end(), [](float v) { return std::isfinite(v); })) {
        refuse("has values in its array " + key + " that are not finite numbers");
    }
    return it->second;
}

std::shared_ptr<const Array> SpecReader::find_counts(const std::string & key, const std::vector<int64_t> & shape) {
    auto array = find(key, shape);
    if (array && !std::all_of(array->values.begin(), array->values.end(), [](float v) { return v >= 0; })) {
        refuse("has negative counts in its array " + key);
    }
    return array;
}

std::shared_ptr<const Array> SpecReader::need(const std::string & key, const std::vector<int64_t> & shape) {
    auto array = find(key, shape);
    if (!array) {
        refuse("needs an array called " + key);
    }
    return array;
}

void SpecReader::finish() const {
    for (const auto & [key, value] : spec_.numbers) {
        if (known_numbers_.count(key) == 0) {
            refuse("has no use for a number called " + key);
        }
    }
    for (const auto & [key, array] : spec_.arrays) {
        if (known_arrays_.count(key) == 0) {
            refuse("has no use for an array called " + key);
        }
    }
}

std::string numbered(const char * name, int32_t number) {
    std::string text(name);
    return text.append(std::to_string(number));
}

}  // namespace outrider
