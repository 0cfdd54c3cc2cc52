#include "live/io/expert_files.h"

#include <algorithm>

namespace outrider {

ExpertFiles::ExpertFiles(const std::vector<std::string> & paths, Places places, Places packed,
                         std::vector<size_t> drives)
    : places_(std::move(places)), packed_(std::move(packed)), drives_(std::move(drives)) {
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

size_t ExpertFiles::n_drive() const {
    return drives_.empty() ? 1 : *std::max_element(drives_.begin(), drives_.end()) + 1;
}

bool ExpertFiles::direct(const TensorPlace & place) const {
    if (!place.stripes) {
        return files_[place.part]->direct();
    }
    return std::all_of(place.stripes->begin(), place.stripes->end(),
                       [this](const MatrixPlace & m) { return files_[m.part]->direct(); });
}

void ExpertFiles::drop_cached() const {
    for (const auto & file : files_) {
        file->drop_cached(0, file->size());
    }
}

}  // namespace outrider
