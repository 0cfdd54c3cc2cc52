// Compiled with mingw-w64 and run under wine only.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "ggml-backend.h"
#include "live/ggml/shared_library.h"

namespace outrider {

namespace fs = std::filesystem;

std::wstring named_folders() {
    const wchar_t * value = ::_wgetenv(L"OUTRIDER_BACKENDS");
    return value ? value : L"";
}

void * open_library(const fs::path & path) {
    return ::LoadLibraryExW(path.c_str(), nullptr, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
}
void close_library(void * library) { ::FreeLibrary(static_cast<HMODULE>(library)); }
void * symbol_of(void * library, const char * name) {
    return reinterpret_cast<void *>(::GetProcAddress(static_cast<HMODULE>(library), name));
}
std::string library_error() { return "error " + std::to_string(::GetLastError()); }

fs::path folder_of_ggml() {
    HMODULE module = nullptr;
    const auto flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    ::GetModuleHandleExW(flags, reinterpret_cast<LPCWSTR>(&ggml_backend_reg_count), &module);
    std::wstring name(32768, L'\0');  // the longest path
    name.resize(::GetModuleFileNameW(module, name.data(), DWORD(name.size())));
    return fs::path(name).parent_path();
}

}  // namespace outrider
