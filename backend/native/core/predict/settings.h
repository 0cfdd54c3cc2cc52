// Reads what a Spec gives to a predictor, and refuses what makes no sense.
#pragma once

#include <set>

#include "../spec.h"

namespace outrider {

// All functions throw std::invalid_argument, a sentence.
class Settings {
  public:
    explicit Settings(const Spec & spec) : spec_(spec) {}

    double number(const std::string & key, double otherwise, double least, double most);
    int32_t whole(const std::string & key, int32_t otherwise, int32_t least, int32_t most);
    // The array called `key`, or null where there is none. `shape`: -1 for a dimension of any size.
    // Every value is finite.
    std::shared_ptr<const Array> find(const std::string & key, const std::vector<int64_t> & shape);
    // Likewise; and none is negative.
    std::shared_ptr<const Array> find_counts(const std::string & key, const std::vector<int64_t> & shape);
    std::shared_ptr<const Array> need(const std::string & key, const std::vector<int64_t> & shape);
    // Say it last: a number or an array that nobody asked for is a mistake.
    void finish() const;
    [[noreturn]] void refuse(const std::string & why) const;

  private:
    const Spec & spec_;
    std::set<std::string> known_numbers_;
    std::set<std::string> known_arrays_;
};

// "w" and 3 make "w3".
std::string numbered(const char * name, int32_t number);
// As many experts as a forecast shall hold: 0 means as many as a token uses.
int32_t forecast_size(const Shape & shape, int32_t n_predict);

}  // namespace outrider
