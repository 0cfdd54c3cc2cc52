// ggml's devices other than the CPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ggml-backend.h"

namespace outrider {

struct DeviceInfo {
    std::string name;         // ggml's: "CUDA0", "RPC0"
    std::string description;
    size_t free_bytes;
    size_t total_bytes;
    bool is_remote;           // in another process or machine
    bool has_pinned_memory;   // can copy from pinned host memory by itself
    bool shares_memory;       // computes in host memory
    std::string memory;       // ggml's name of its memory
    size_t alignment;         // of tensors there, in bytes
    ggml_backend_dev_t device;
};

// Return this machine's devices, each card once. Remote ones are left out: ggml ends the process if one of them is
// gone.
std::vector<DeviceInfo> list_devices();
size_t device_free_bytes(ggml_backend_dev_t device);
// Register the devices of llama.cpp's rpc server at "host:port", and return them. Throws std::runtime_error if the
// libraries were built without RPC. REQUIRES: a server answers there; otherwise ggml ends the process.
std::vector<DeviceInfo> add_rpc_server(const std::string & endpoint);

}  // namespace outrider
