#include "core/spec.h"

#include <stdexcept>

namespace outrider {

double Spec::number(const std::string & key, double otherwise) const {
    const auto it = numbers.find(key);
    return it == numbers.end() ? otherwise : it->second;
}

const Array & Spec::array(const std::string & key) const {
    const auto it = arrays.find(key);
    if (it == arrays.end() || !it->second) {
        throw std::invalid_argument("The part " + name + " needs an array called " + key);
    }
    return *it->second;
}

}  // namespace outrider
