// The slow tier: the model's files, and the places of the experts in them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/io/direct_file.h"
#include "live/io/pack_sums.h"

namespace outrider {

// The place of a tensor's experts.
struct TensorPlace {
    size_t part;            // index into files()
    uint64_t offset;        // of the first expert, in that part
    uint64_t stride = 0;    // from one expert to the next; 0: no gaps
    bool repacked = false;  // in the CPU backend's fastest layout (repack.h)
    uint64_t in_range = 0;  // place of the tensor in an expert's range
    std::shared_ptr<PackSums> sums{};  // of the ranges, if they have checksums
};

class ExpertFiles {
  public:
    using Places = std::map<std::string, TensorPlace>;  // by the tensor's name

    // `paths`: all parts of the model in order, then its pack if there is one. `places`: the expert tensors in the
    // model; `packed`: in the pack. Throws std::runtime_error, a sentence.
    ExpertFiles(const std::vector<std::string> & paths, Places places, Places packed = {});
    ExpertFiles(const ExpertFiles &) = delete;
    ExpertFiles & operator=(const ExpertFiles &) = delete;

    const std::vector<std::unique_ptr<DirectFile>> & files() const { return files_; }
    std::vector<intptr_t> handles() const;
    // Drop the files from the page cache.
    void drop_cached() const;
    // Throws std::out_of_range for an unknown tensor.
    const TensorPlace & place(const std::string & tensor_name) const { return places_.at(tensor_name); }
    // Return the tensor's place in the pack, if there is one.
    std::optional<TensorPlace> packed(const std::string & tensor_name) const;

  private:
    std::vector<std::unique_ptr<DirectFile>> files_;
    Places places_;
    Places packed_;
};

}  // namespace outrider
