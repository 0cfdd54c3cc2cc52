#include "core/evict/registry.h"

#include <functional>
#include <stdexcept>

#include "core/evict/belady.h"
#include "core/evict/decayed.h"
#include "core/evict/eam.h"
#include "core/evict/lcp.h"
#include "core/evict/lfu.h"
#include "core/evict/lru.h"
#include "core/evict/random.h"
#include "core/evict/recall.h"
#include "core/evict/static.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

using Make = std::function<std::unique_ptr<Eviction>(const Spec &, const Surroundings &)>;

template <typename E>
std::unique_ptr<Eviction> make(const Spec & spec, const Surroundings & around) {
    return std::make_unique<E>(spec, around.shape);
}

std::unique_ptr<Eviction> make_lru(const Spec & spec, const Surroundings & around) {
    SpecReader(spec, "eviction").finish();
    return std::make_unique<Lru>(around.shape);
}

std::unique_ptr<Eviction> make_belady(const Spec & spec, const Surroundings & around) {
    SpecReader(spec, "eviction").finish();
    return std::make_unique<Belady>(around);
}

const std::vector<std::pair<std::string, Make>> & evictions() {
    static const std::vector<std::pair<std::string, Make>> all = {
        {"lru", make_lru},          {"lfu", make<Lfu>},         {"lcp", make<Lcp>},
        {"eam", make<EamEviction>}, {"static", make<Static>},   {"random", make<Random>},
        {"belady", make_belady},    {"decayed", make<Decayed>}, {"recall", make<Recall>},
    };
    return all;
}

}  // namespace

std::vector<std::string> eviction_names() {
    std::vector<std::string> names;
    for (const auto & [name, make_it] : evictions()) {
        names.push_back(name);
    }
    return names;
}

std::unique_ptr<Eviction> make_eviction(const Spec & spec, const Surroundings & around) {
    for (const auto & [name, make_it] : evictions()) {
        if (name == spec.name) {
            return make_it(spec, around);
        }
    }
    throw std::invalid_argument("There is no eviction called " + spec.name);
}

}  // namespace outrider
