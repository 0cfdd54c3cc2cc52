// Reads the numbers that a Spec gives to an eviction, and refuses what makes no sense.
#pragma once

#include <set>

#include "../spec.h"

namespace outrider {

// All functions throw std::invalid_argument, a sentence.
class Numbers {
  public:
    explicit Numbers(const Spec & spec) : spec_(spec) {}

    double between(const std::string & key, double otherwise, double least, double most);
    int32_t whole(const std::string & key, int32_t otherwise, int32_t least, int32_t most);
    // Say it last: a number or an array that nobody asked for is a mistake. `array`: the only one that
    // the eviction knows, or "".
    void finish(const std::string & array = "") const;
    [[noreturn]] void refuse(const std::string & why) const;

  private:
    const Spec & spec_;
    std::set<std::string> known_;
};

}  // namespace outrider
