// A value for every expert of every layer.
#pragma once

#include "core/types.h"

namespace outrider {

template <typename T>
class PerExpert {
  public:
    PerExpert(const Shape & shape, T value)
        : n_expert_(size_t(shape.n_expert)), values_(size_t(shape.n_layer) * n_expert_, value) {}

    T & at(Layer layer, Expert expert) { return values_[size_t(layer) * n_expert_ + size_t(expert)]; }
    const T & at(Layer layer, Expert expert) const { return values_[size_t(layer) * n_expert_ + size_t(expert)]; }
    std::span<T> all() { return values_; }
    std::span<T> row(Layer layer) { return {&values_[size_t(layer) * n_expert_], n_expert_}; }

  private:
    size_t n_expert_;
    std::vector<T> values_;
};

}  // namespace outrider
