// How a method names its parts, each by a name with numbers and arrays, and what a driver offers to them. Each family
// has a registry (predict/registry.h, evict/registry.h, schedule/registry.h, allocate/registry.h).
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/layout.h"

namespace outrider {

struct Array {
    std::vector<int64_t> shape;
    std::vector<float> values;
};

struct Spec {
    std::string name;
    std::map<std::string, double> numbers{};
    // Shared: weights may be large, and specs are copied.
    std::map<std::string, std::shared_ptr<const Array>> arrays{};

    // The number called `key`, or `otherwise`.
    double number(const std::string & key, double otherwise) const;
    // Throws std::invalid_argument if it is missing.
    const Array & array(const std::string & key) const;
    bool has(const std::string & key) const { return arrays.count(key) > 0; }
};

// All routings of a trace: for belady, oracle and predictors of a set accuracy, which know the future.
struct Future {
    struct Pass {
        Phase phase;
        int32_t n_token;
        bool begins_request;
        std::vector<int32_t> tokens;           // ids of the tokens, or empty
        std::vector<int32_t> sequences;        // of the tokens, or empty: all of one (PassBegan)
        // [layer][tokens of the layer * Shape::used]. llama.cpp computes the last layer of a prompt only for the
        // tokens whose logits are asked for, so it may have fewer tokens than the pass, or none.
        std::vector<std::vector<Expert>> ids;
    };
    std::vector<Pass> passes;
};

class MoepicStatistics;

// How a router's products become a choice: the experts of the highest gate(products + added) + selected.
struct RouterBias {
    std::vector<float> added{};  // [n_expert], or empty
    std::vector<float> selected{};  // [n_expert], or empty: takes part in the choice, not in the weights (DeepSeek-V3)
    bool sigmoid = false;  // the gate; otherwise softmax
};

// The services of a driver for the parts. A part that needs more throws, and names the missing value.
struct Surroundings {
    const Shape & shape;
    const Layout & layout;
    int32_t n_embd = 0;
    // [layer]: n_expert rows of n_embd values, or empty where the router is unknown. The memory must outlive the
    // parts.
    std::vector<std::span<const float>> routers{};
    std::shared_ptr<const Future> future{};  // null in a live engine without a recorded trace
    // MoEpic's configurator learns from these, also after a new layout; null: none is wanted.
    std::shared_ptr<MoepicStatistics> statistics{};
    std::vector<RouterBias> router_biases{};  // [layer], or empty: no router has any
    // [layer][token id][Shape::used]: the experts of a layer whose router is a table; empty where it is another. Empty:
    // no router is. The memory must outlive the core.
    std::vector<std::span<const Expert>> token_experts{};
};

// A family's registry is an array of pairs: a name, and how to make the part.
template <typename Parts>
std::vector<std::string> names_of(const Parts & parts) {
    std::vector<std::string> names;
    for (const auto & part : parts) {
        names.emplace_back(part.first);
    }
    return names;
}

// Throws std::invalid_argument, a sentence.
template <typename Parts>
const auto & part_called(const std::string & name, const Parts & parts, const char * family) {
    for (const auto & part : parts) {
        if (part.first == name) {
            return part.second;
        }
    }
    throw std::invalid_argument(std::string("There is no ") + family + " called " + name);
}

}  // namespace outrider
