// llama.cpp's backends as modules (GGML_BACKEND_DL): libraries that are loaded if this machine can use them.
#pragma once

#include <string>
#include <vector>

namespace outrider {

struct BackendModule {
    std::string file;     // full path
    std::string backend;  // ggml's name: "CPU", "Vulkan", "CUDA"; empty if it was not loaded
    std::string trouble;  // the system's words if it could not be loaded
};

// Load, once, the modules of the folders that OUTRIDER_BACKENDS names; then, if ggml has no backend linked in, those
// beside ggml's own library, and of its builds of the CPU backend the fastest that this processor can run. A module
// that cannot be loaded is left out. Return all that were tried.
const std::vector<BackendModule> & load_backends();

}  // namespace outrider
