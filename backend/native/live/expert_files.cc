#include "expert_files.h"

namespace outrider {

ExpertFiles::ExpertFiles(const std::vector<std::string> & paths, std::map<std::string, TensorPlace> places)
    : places_(std::move(places)) {
    for (const auto & path : paths) {
        files_.push_back(std::make_unique<DirectFile>(path));
    }
}

void ExpertFiles::drop_cached() const {
    for (const auto & file : files_) {
        file->drop_cached(0, file->size());
    }
}

}  // namespace outrider
