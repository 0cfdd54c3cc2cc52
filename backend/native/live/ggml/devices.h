// The devices that ggml knows besides the CPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ggml-backend.h"

namespace outrider {

struct DeviceInfo {
    std::string name;         // as ggml says it: "CUDA0", "RPC0"
    std::string description;
    size_t free_bytes;
    size_t total_bytes;
    bool is_remote;           // in another process or machine
    bool has_pinned_memory;   // host memory that it can copy from by itself
    bool shares_memory;       // it computes in the host's memory
    std::string memory;       // what ggml calls its memory
    size_t alignment;         // of tensors there, in bytes
    ggml_backend_dev_t device;
};

// Of this machine: to ask a remote one that is gone would end the process.
std::vector<DeviceInfo> list_devices();
size_t device_free_bytes(ggml_backend_dev_t device);
// Makes the devices of llama.cpp's rpc server at "host:port" known, and returns them. Throws
// std::runtime_error where the libraries were built without RPC. ggml ends the process when nobody
// answers there: make sure of that before.
std::vector<DeviceInfo> add_rpc_server(const std::string & endpoint);

}  // namespace outrider
