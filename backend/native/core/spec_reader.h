// Reads a part's numbers and arrays from a Spec, and refuses wrong ones.
#pragma once

#include <set>

#include "core/spec.h"

namespace outrider {

// All functions throw std::invalid_argument, a sentence.
class SpecReader {
  public:
    // `family`: what the part is, as in "The predictor eam needs ...".
    SpecReader(const Spec & spec, const char * family) : spec_(spec), family_(family) {}

    double number(const std::string & key, double otherwise, double least, double most);
    int32_t whole(const std::string & key, int32_t otherwise, int32_t least, int32_t most);
    bool flag(const std::string & key, bool otherwise) { return whole(key, otherwise, 0, 1) != 0; }
    // The array called `key`, or null. `shape`: -1 for a dimension of any size. Every value must be finite.
    std::shared_ptr<const Array> find(const std::string & key, const std::vector<int64_t> & shape);
    // As find(); no value may be negative.
    std::shared_ptr<const Array> find_counts(const std::string & key, const std::vector<int64_t> & shape);
    std::shared_ptr<const Array> need(const std::string & key, const std::vector<int64_t> & shape);
    // Call it last: refuses numbers and arrays that no call asked for.
    void finish() const;
    [[noreturn]] void refuse(const std::string & why) const;

  private:
    const Spec & spec_;
    const char * family_;
    std::set<std::string> known_numbers_;
    std::set<std::string> known_arrays_;
};

// "w" and 3 make "w3".
std::string numbered(const char * name, int32_t number);

}  // namespace outrider
