// The slow tier: the model's files, and where in them the experts lie.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/io/direct_file.h"

namespace outrider {

// Where a tensor's experts lie.
struct TensorPlace {
    size_t part;          // index into files()
    uint64_t offset;      // absolute, in that part, of the first expert
    uint64_t stride = 0;  // from one expert to the next; 0: they follow each other without gaps
    bool repacked = false;  // each is laid out as the CPU backend computes fastest (repack.h)
};

class ExpertFiles {
  public:
    using Places = std::map<std::string, TensorPlace>;  // by the tensor's name

    // `paths`: all parts of the model in order, and its pack if there is one. `places`: the
    // routed-expert tensors in the model. `packed`: in the pack. Throws std::runtime_error with a
    // sentence.
    ExpertFiles(const std::vector<std::string> & paths, Places places, Places packed = {});
    ExpertFiles(const ExpertFiles &) = delete;
    ExpertFiles & operator=(const ExpertFiles &) = delete;

    const std::vector<std::unique_ptr<DirectFile>> & files() const { return files_; }
    // Of files(), as DirectFile::handle().
    std::vector<intptr_t> handles() const;
    // Has the system forget what it keeps of the files, as after others have read them.
    void drop_cached() const;
    // Throws std::out_of_range for a tensor that was not given.
    const TensorPlace & place(const std::string & tensor_name) const { return places_.at(tensor_name); }
    // The same tensor in the pack, if there is one.
    std::optional<TensorPlace> packed(const std::string & tensor_name) const;

  private:
    std::vector<std::unique_ptr<DirectFile>> files_;
    Places places_;
    Places packed_;
};

}  // namespace outrider
