#include <dlfcn.h>

#include <cstdlib>

#include "ggml-backend.h"
#include "live/ggml/shared_library.h"

namespace outrider {

namespace fs = std::filesystem;

std::string named_folders() {
    const char * value = std::getenv("OUTRIDER_BACKENDS");
    return value ? value : "";
}

void * open_library(const fs::path & path) { return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }
void close_library(void * library) { ::dlclose(library); }
void * symbol_of(void * library, const char * name) { return ::dlsym(library, name); }

std::string library_error() {
    const char * words = ::dlerror();
    return words ? words : "";
}

fs::path folder_of_ggml() {
    Dl_info info{};
    ::dladdr(reinterpret_cast<void *>(&ggml_backend_reg_count), &info);
    // Resolve links: in a bundle, the name that was loaded is one, and the modules lie beside the file itself.
    std::error_code error;
    return info.dli_fname ? fs::canonical(info.dli_fname, error).parent_path() : fs::path();
}

}  // namespace outrider
