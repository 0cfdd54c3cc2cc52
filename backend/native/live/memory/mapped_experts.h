// The model's experts in memory without a store of their own: its files, mapped. The system keeps of them what
// it has room for.
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
    // Throws std::runtime_error with a sentence.
    MappedExperts(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files);

    // One matrix of an expert, laid out as in the model's file.
    const uint8_t * matrix(Layer layer, Chunk chunk, Expert expert) const;
    // From one expert to the next.
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
