#include "live/ggml/backends.h"

#include <algorithm>
#include <filesystem>

#include "ggml-backend.h"
#include "live/ggml/shared_library.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

std::string utf8(const fs::path & path) {
    const auto text = path.u8string();
    return {text.begin(), text.end()};
}

// Return the modules in a folder by name; none if it is not there. ggml and ggml-base are no modules.
std::vector<fs::path> modules_in(const fs::path & folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string name = utf8(at->path().filename());
        if (name.starts_with(library_prefix) && name.ends_with(library_suffix) &&
            !name.starts_with(std::string(library_prefix) + "base")) {
            found.push_back(at->path());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

bool is_cpu(const fs::path & path) { return utf8(path.filename()).starts_with(std::string(library_prefix) + "cpu"); }

// Return how well a build of a backend suits this processor, by its own measure; 0: not at all.
int score(const fs::path & path) {
    void * library = open_library(path);
    if (!library) {
        return 0;
    }
    const auto function = reinterpret_cast<int (*)()>(symbol_of(library, "ggml_backend_score"));
    const int points = function ? function() : 1;
    close_library(library);
    return points;
}

BackendModule load(const fs::path & path) {
    BackendModule module{utf8(path), "", ""};
    if (ggml_backend_reg_t backend = ggml_backend_load(module.file.c_str())) {
        module.backend = ggml_backend_reg_name(backend);
    } else if (void * library = open_library(path)) {
        close_library(library);
        module.trouble = "the module found nothing that it can use";
    } else {
        module.trouble = library_error();
    }
    return module;
}

// Load the modules of a folder but builds of the CPU backend.
void load_folder(const fs::path & folder, std::vector<BackendModule> & tried) {
    for (const fs::path & path : modules_in(folder)) {
        if (!is_cpu(path)) {
            tried.push_back(load(path));
        }
    }
}

void load_best_cpu(const fs::path & folder, std::vector<BackendModule> & tried) {
    fs::path best;
    int best_score = 0;
    for (const fs::path & path : modules_in(folder)) {
        if (const int points = is_cpu(path) ? score(path) : 0; points > best_score) {
            best = path;
            best_score = points;
        }
    }
    if (best_score > 0) {
        tried.push_back(load(best));
    }
}

// The modules that the user added come first: CUDA's devices are preferred to the same cards through Vulkan.
std::vector<BackendModule> load_all() {
    std::vector<BackendModule> tried;
    const bool is_modular = ggml_backend_reg_count() == 0;
    fs::path::string_type folders = named_folders();
    while (!folders.empty()) {
        const size_t end = folders.find(folder_separator);
        load_folder(fs::path(folders.substr(0, end)), tried);
        folders.erase(0, end == folders.npos ? end : end + 1);
    }
    if (is_modular) {
        load_folder(folder_of_ggml(), tried);
        load_best_cpu(folder_of_ggml(), tried);
    }
    return tried;
}

}  // namespace

const std::vector<BackendModule> & load_backends() {
    static const std::vector<BackendModule> tried = load_all();
    return tried;
}

}  // namespace outrider
