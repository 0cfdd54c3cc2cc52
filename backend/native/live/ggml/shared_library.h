// Shared libraries of the system this is built for.
#pragma once

#include <filesystem>
#include <string>

namespace outrider {

#ifdef _WIN32
constexpr const char * library_prefix = "ggml-";
constexpr const char * library_suffix = ".dll";
constexpr wchar_t folder_separator = L';';
#else
constexpr const char * library_prefix = "libggml-";
constexpr const char * library_suffix = ".so";
constexpr char folder_separator = ':';
#endif

// Return the value of OUTRIDER_BACKENDS: folders of modules, with separators between them; it may be empty.
std::filesystem::path::string_type named_folders();

// Return the handle of a library, or null; library_error() then says why. The library finds those beside it.
void * open_library(const std::filesystem::path & path);
void close_library(void * library);
void * symbol_of(void * library, const char * name);
std::string library_error();

// Return the folder of the library that holds ggml's registry; empty if it cannot be found.
std::filesystem::path folder_of_ggml();

}  // namespace outrider
