#include "core/predict/eam_collection.h"

#include <cmath>

namespace outrider {

EamCollection::EamCollection(int32_t n_layer, int32_t n_expert, int32_t capacity)
    : n_layer_(n_layer),
      n_expert_(n_expert),
      capacity_(capacity),
      eams_(size_t(n_layer) * n_expert * capacity, 0.0f),
      cells_(size_t(n_layer) * n_expert * capacity, 0.0f),
      squares_(size_t(n_layer) * capacity, 0.0) {}

void EamCollection::add(std::span<const float> eam) {
    int32_t at = n_;
    if (n_ < capacity_) {
        n_++;
    } else {
        std::vector<double> dots(capacity_, 0.0);
        for (size_t i = 0; i < eam.size(); i++) {
            for (int32_t m = 0; m < capacity_ && eam[i] > 0; m++) {
                dots[m] += double(eam[i]) * double(cells_[i * capacity_ + m]);
            }
        }
        double best = -1;
        for (int32_t m = 0; m < capacity_; m++) {
            const double square = squares(n_layer_ - 1)[m];
            const double cosine = square > 0 ? dots[m] / std::sqrt(square) : 0;
            if (cosine > best) {
                best = cosine;
                at = m;
            }
        }
    }
    double sum = 0;
    for (size_t i = 0; i < eam.size(); i++) {
        eams_[size_t(at) * eam.size() + i] = eam[i];
        cells_[i * capacity_ + at] = eam[i];
        sum += double(eam[i]) * double(eam[i]);
        squares_[i / n_expert_ * capacity_ + at] = sum;
    }
}

}  // namespace outrider
