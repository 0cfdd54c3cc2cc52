#include "numbers.h"

#include <cmath>
#include <sstream>
#include <stdexcept>

namespace outrider {

void Numbers::refuse(const std::string & why) const {
    throw std::invalid_argument("The eviction " + spec_.name + " " + why);
}

double Numbers::between(const std::string & key, double otherwise, double least, double most) {
    known_.insert(key);
    const double value = spec_.number(key, otherwise);
    if (!(value >= least && value <= most)) {
        std::ostringstream why;
        why << "needs as " << key << " a number between " << least << " and " << most;
        refuse(why.str());
    }
    return value;
}

int32_t Numbers::whole(const std::string & key, int32_t otherwise, int32_t least, int32_t most) {
    const double value = between(key, otherwise, least, most);
    if (value != std::floor(value)) {
        refuse("needs a whole number as " + key);
    }
    return int32_t(value);
}

void Numbers::finish(const std::string & array) const {
    for (const auto & [key, value] : spec_.numbers) {
        if (known_.count(key) == 0) {
            refuse("has no use for a number called " + key);
        }
    }
    for (const auto & [key, value] : spec_.arrays) {
        if (key != array) {
            refuse("has no use for an array called " + key);
        }
    }
}

}  // namespace outrider
