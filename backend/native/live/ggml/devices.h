// ggml's devices other than the CPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpp.h"

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
// Allocate host memory that the device copies from and to by itself, or ordinary memory if it has no such memory.
// Return null if memory is short.
ggml_backend_buffer_ptr pinned_memory(ggml_backend_dev_t device, size_t n_byte);
// Return whether a stream may wait for an event of the device that is used again meanwhile. Not on Vulkan: there a
// recorded event is only given back by a wait of the host, which resets it, and a stream that has yet to wait hangs.
bool has_lasting_events(ggml_backend_dev_t device);
// Return whether a graph waits for copies that were asked of the same stream before. Not on Vulkan: ggml-vulkan puts a
// barrier before an asynchronous copy and none behind it.
bool orders_copies(ggml_backend_dev_t device);
// Send bytes to a tensor that the next graph on `stream` reads. `from`, in pinned memory, is not used otherwise until
// the next wait for the stream.
void send_async(ggml_backend_t stream, ggml_tensor * to, void * from, size_t offset, size_t n_byte);
// Register the devices of llama.cpp's rpc server at "host:port", and return them. Throws std::runtime_error if the
// libraries were built without RPC. REQUIRES: a server answers there; otherwise ggml ends the process.
std::vector<DeviceInfo> add_rpc_server(const std::string & endpoint);

}  // namespace outrider
