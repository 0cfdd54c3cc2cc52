// The slow tier: the model's files, and where in them the experts lie.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "direct_file.h"

namespace outrider {

// Where a tensor's bytes begin.
struct TensorPlace {
    size_t part;      // index into files()
    uint64_t offset;  // absolute, in that part
};

class ExpertFiles {
  public:
    // `paths`: all parts of the model in order. `places`: the routed-expert tensors, by name.
    // Throws std::runtime_error with a sentence.
    ExpertFiles(const std::vector<std::string> & paths, std::map<std::string, TensorPlace> places);
    ExpertFiles(const ExpertFiles &) = delete;
    ExpertFiles & operator=(const ExpertFiles &) = delete;

    const std::vector<std::unique_ptr<DirectFile>> & files() const { return files_; }
    // Has the system forget what it keeps of the files, as after others have read them.
    void drop_cached() const;
    // Throws std::out_of_range for a tensor that was not given.
    const TensorPlace & place(const std::string & tensor_name) const { return places_.at(tensor_name); }

  private:
    std::vector<std::unique_ptr<DirectFile>> files_;
    std::map<std::string, TensorPlace> places_;
};

}  // namespace outrider
