#include "core/evict/registry.h"

namespace outrider {
namespace {

constexpr std::pair<const char *, MakeEviction *> makers[] = {
    {"lru", make_lru},       {"lfu", make_lfu},         {"lcp", make_lcp},
    {"eam", make_eam},       {"static", make_static},   {"random", make_random},
    {"belady", make_belady}, {"decayed", make_decayed}, {"recall", make_recall},
};

}  // namespace

std::vector<std::string> eviction_names() { return names_of(makers); }

std::unique_ptr<Eviction> make_eviction(const Spec & spec, const Surroundings & around) {
    return part_called(spec.name, makers, "eviction")(spec, around);
}

}  // namespace outrider
