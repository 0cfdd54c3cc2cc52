#include "live/ggml/backends.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "ggml-backend.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace outrider {
namespace {

namespace fs = std::filesystem;

#ifdef _WIN32
constexpr const char * prefix = "ggml-";
constexpr const char * suffix = ".dll";
constexpr wchar_t separator = L';';

const wchar_t * named_folders() { return ::_wgetenv(L"OUTRIDER_BACKENDS"); }

// The flags let a module find the libraries that lie beside it.
void * open_library(const fs::path & path) {
    return ::LoadLibraryExW(path.c_str(), nullptr, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
}
void close_library(void * library) { ::FreeLibrary(static_cast<HMODULE>(library)); }
void * symbol_of(void * library, const char * name) {
    return reinterpret_cast<void *>(::GetProcAddress(static_cast<HMODULE>(library), name));
}
std::string last_error() { return "error " + std::to_string(::GetLastError()); }

fs::path ggml_folder() {
    HMODULE module = nullptr;
    const auto flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    ::GetModuleHandleExW(flags, reinterpret_cast<LPCWSTR>(&ggml_backend_reg_count), &module);
    std::wstring name(32768, L'\0');  // the longest path
    name.resize(::GetModuleFileNameW(module, name.data(), DWORD(name.size())));
    return fs::path(name).parent_path();
}
#else
constexpr const char * prefix = "libggml-";
constexpr const char * suffix = ".so";
constexpr char separator = ':';

const char * named_folders() { return std::getenv("OUTRIDER_BACKENDS"); }

void * open_library(const fs::path & path) { return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }
void close_library(void * library) { ::dlclose(library); }
void * symbol_of(void * library, const char * name) { return ::dlsym(library, name); }
std::string last_error() {
    const char * words = ::dlerror();
    return words ? words : "";
}

fs::path ggml_folder() {
    Dl_info info{};
    ::dladdr(reinterpret_cast<void *>(&ggml_backend_reg_count), &info);
    return info.dli_fname ? fs::absolute(info.dli_fname).parent_path() : fs::path();
}
#endif

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
        if (name.starts_with(prefix) && name.ends_with(suffix) && !name.starts_with(std::string(prefix) + "base")) {
            found.push_back(at->path());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

bool is_cpu(const fs::path & path) { return utf8(path.filename()).starts_with(std::string(prefix) + "cpu"); }

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
        module.trouble = last_error();
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
    const fs::path::value_type * named = named_folders();
    fs::path::string_type folders = named ? named : fs::path::string_type();
    while (!folders.empty()) {
        const size_t end = folders.find(separator);
        load_folder(fs::path(folders.substr(0, end)), tried);
        folders.erase(0, end == folders.npos ? end : end + 1);
    }
    if (is_modular) {
        load_folder(ggml_folder(), tried);
        load_best_cpu(ggml_folder(), tried);
    }
    return tried;
}

}  // namespace

const std::vector<BackendModule> & load_backends() {
    static const std::vector<BackendModule> tried = load_all();
    return tried;
}

}  // namespace outrider
