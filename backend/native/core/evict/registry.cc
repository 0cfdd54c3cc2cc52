#include "registry.h"

#include <functional>
#include <stdexcept>

#include "belady.h"
#include "eam.h"
#include "lcp.h"
#include "lfu.h"
#include "lru.h"
#include "random.h"
#include "static.h"

namespace outrider {
namespace {

using Make = std::function<std::unique_ptr<Eviction>(const Spec &, const Surroundings &)>;

const std::vector<std::pair<std::string, Make>> & evictions() {
    static const std::vector<std::pair<std::string, Make>> all = {
        {"lru", [](const Spec &, const Surroundings & a) { return std::make_unique<Lru>(a); }},
        {"lfu", [](const Spec &, const Surroundings & a) { return std::make_unique<Lfu>(a); }},
        {"lcp", [](const Spec & s, const Surroundings & a) { return std::make_unique<Lcp>(s, a); }},
        {"eam", [](const Spec &, const Surroundings & a) { return std::make_unique<EamEviction>(a); }},
        {"static", [](const Spec & s, const Surroundings & a) { return std::make_unique<Static>(s, a); }},
        {"random", [](const Spec & s, const Surroundings & a) { return std::make_unique<Random>(s, a); }},
        {"belady", [](const Spec &, const Surroundings & a) { return std::make_unique<Belady>(a); }},
    };
    return all;
}

}  // namespace

std::vector<std::string> eviction_names() {
    std::vector<std::string> names;
    for (const auto & [name, make] : evictions()) {
        names.push_back(name);
    }
    return names;
}

std::unique_ptr<Eviction> make_eviction(const Spec & spec, const Surroundings & around) {
    for (const auto & [name, make] : evictions()) {
        if (name == spec.name) {
            return make(spec, around);
        }
    }
    throw std::invalid_argument("There is no eviction called " + spec.name);
}

}  // namespace outrider
