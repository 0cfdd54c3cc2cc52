#include "live/io/expert_files.h"

namespace outrider {

ExpertFiles::ExpertFiles(const std::vector<std::string> & paths, Places places, Places packed)
    : places_(std::move(places)), packed_(std::move(packed)) {
    for (const auto & path : paths) {
        files_.push_back(std::make_unique<DirectFile>(path));
    }
}

std::optional<TensorPlace> ExpertFiles::packed(const std::string & tensor_name) const {
    const auto it = packed_.find(tensor_name);
    return it == packed_.end() ? std::nullopt : std::optional(it->second);
}

std::vector<intptr_t> ExpertFiles::handles() const {
    std::vector<intptr_t> handles;
    for (const auto & file : files_) {
        handles.push_back(file->handle());
    }
    return handles;
}

void ExpertFiles::drop_cached() const {
    for (const auto & file : files_) {
        file->drop_cached(0, file->size());
    }
}

}  // namespace outrider
