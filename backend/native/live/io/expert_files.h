// The slow tier: the model's files, and the places of the experts in them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "live/io/direct_file.h"
#include "live/io/pack_sums.h"

namespace outrider {

// The place of one expert's matrix.
struct MatrixPlace {
    size_t part;  // index into files()
    uint64_t offset;
};

// The place of a tensor's experts.
struct TensorPlace {
    size_t part;            // index into files(), of the first expert
    uint64_t offset;        // of the first expert, in that part
    uint64_t stride = 0;    // from one expert to the next; 0: no gaps
    bool repacked = false;  // in the CPU backend's fastest layout (repack.h)
    uint64_t in_range = 0;  // place of the tensor in an expert's range
    std::shared_ptr<PackSums> sums{};  // of the ranges, if they have checksums
    // [expert]: of a striped pack, whose experts lie in several files, at multiples of the block. Null: all lie in
    // `part`, one every `stride`.
    std::shared_ptr<const std::vector<MatrixPlace>> stripes{};

    MatrixPlace at(Expert expert) const {
        return stripes ? (*stripes)[size_t(expert)] : MatrixPlace{part, offset + uint64_t(expert) * stride};
    }
};

class ExpertFiles {
  public:
    using Places = std::map<std::string, TensorPlace>;  // by the tensor's name

    // `paths`: all parts of the model in order, then the files of its pack if there is one. `places`: the expert
    // tensors in the model; `packed`: in the pack. `drives`: the number of the drive of each path, from 0; empty: all
    // are on one. Throws std::runtime_error, a sentence.
    ExpertFiles(const std::vector<std::string> & paths, Places places, Places packed = {},
                std::vector<size_t> drives = {});
    ExpertFiles(const ExpertFiles &) = delete;
    ExpertFiles & operator=(const ExpertFiles &) = delete;

    const std::vector<std::unique_ptr<DirectFile>> & files() const { return files_; }
    std::vector<intptr_t> handles() const;
    // Return the drive of a part, below n_drive(). Each has its own queue of reads.
    size_t drive(size_t part) const { return drives_.empty() ? 0 : drives_[part]; }
    size_t n_drive() const;
    // Return whether all files with experts of the tensor are read past the page cache.
    bool direct(const TensorPlace & place) const;
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
    std::vector<size_t> drives_;
};

}  // namespace outrider
