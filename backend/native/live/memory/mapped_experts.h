// The model's experts in its mapped files. The system caches as many pages as fit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "live/io/mapped_file.h"
#include "live/memory/slab.h"

namespace outrider {

class MappedExperts {
  public:
    // Throws std::runtime_error, a sentence.
    MappedExperts(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files);

    // Return a matrix of an expert, laid out as in the model's file.
    const uint8_t * matrix(Layer layer, Chunk chunk, Expert expert) const;
    // Return the bytes from one expert to the next.
    uint64_t stride(Layer layer, Chunk chunk) const { return places_[size_t(layer)][size_t(chunk)].stride; }

  private:
    struct Place {
        const MappedFile * file;
        uint64_t offset;
        uint64_t stride;
    };
    std::map<size_t, std::unique_ptr<MappedFile>> files_;  // by part
    std::vector<std::vector<Place>> places_;               // [layer][chunk]
};

}  // namespace outrider
