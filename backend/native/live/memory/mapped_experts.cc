#include "live/memory/mapped_experts.h"

#include <algorithm>

namespace outrider {

MappedExperts::MappedExperts(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files) {
    for (const ExpertTensor & t : tensors) {
        auto & file = files_[t.place.part];
        if (!file) {
            file = std::make_unique<MappedFile>(*files.files()[t.place.part]);
        }
        places_.resize(std::max(places_.size(), size_t(t.layer) + 1));
        auto & layer = places_[size_t(t.layer)];
        layer.resize(std::max(layer.size(), size_t(t.chunk) + 1));
        layer[size_t(t.chunk)] = {file.get(), t.place.offset, t.place.stride > 0 ? t.place.stride : t.expert_bytes};
    }
}

const uint8_t * MappedExperts::matrix(Layer layer, Chunk chunk, Expert expert) const {
    const Place & place = places_[size_t(layer)][size_t(chunk)];
    return place.file->data() + place.offset + uint64_t(expert) * place.stride;
}

}  // namespace outrider
