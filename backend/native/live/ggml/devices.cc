#include "live/ggml/devices.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace outrider {
namespace {

using AddServer = ggml_backend_reg_t (*)(const char * endpoint);

bool is_remote(ggml_backend_dev_t device) {
    return std::strncmp(ggml_backend_reg_name(ggml_backend_dev_backend_reg(device)), "RPC", 3) == 0;
}

bool is_vulkan(ggml_backend_dev_t device) {
    return std::strcmp(ggml_backend_reg_name(ggml_backend_dev_backend_reg(device)), "Vulkan") == 0;
}

// Return whether two backends, for example CUDA and Vulkan, name the same card. llama.cpp compares so, too.
bool is_same_card(ggml_backend_dev_t a, ggml_backend_dev_t b) {
    ggml_backend_dev_props props_a{}, props_b{};
    ggml_backend_dev_get_props(a, &props_a);
    ggml_backend_dev_get_props(b, &props_b);
    return props_a.device_id && props_b.device_id && std::strcmp(props_a.device_id, props_b.device_id) == 0;
}

DeviceInfo info_of(ggml_backend_dev_t device) {
    ggml_backend_dev_props props{};
    ggml_backend_dev_get_props(device, &props);
    const auto memory = ggml_backend_dev_buffer_type(device);
    return {props.name,
            props.description,
            props.memory_free,
            props.memory_total,
            is_remote(device),
            props.caps.host_buffer,
            props.type == GGML_BACKEND_DEVICE_TYPE_IGPU,
            ggml_backend_buft_name(memory),
            ggml_backend_buft_get_alignment(memory),
            device};
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
    std::vector<DeviceInfo> all;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (is_remote(device)) {
            continue;
        }
        const auto type = ggml_backend_dev_type(device);
        const bool is_known = std::any_of(all.begin(), all.end(),
                                          [&](const DeviceInfo & other) { return is_same_card(other.device, device); });
        if (!is_known && (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU)) {
            all.push_back(info_of(device));
        }
    }
    return all;
}

size_t device_free_bytes(ggml_backend_dev_t device) {
    size_t free = 0;
    size_t total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    return free;
}

bool has_lasting_events(ggml_backend_dev_t device) { return !is_vulkan(device); }

bool orders_copies(ggml_backend_dev_t device) { return !is_vulkan(device); }

void send_async(ggml_backend_t stream, ggml_tensor * to, void * from, size_t offset, size_t n_byte) {
    ggml_backend_tensor_set_async(stream, to, from, offset, n_byte);
    if (!orders_copies(ggml_backend_get_device(stream))) {
        // The barrier before another copy is behind this one. Bring some bytes back to where they came from.
        ggml_backend_tensor_get_async(stream, to, from, offset, std::min(n_byte, sizeof(int32_t)));
    }
}

ggml_backend_buffer_ptr pinned_memory(ggml_backend_dev_t device, size_t n_byte) {
    const auto type = ggml_backend_dev_host_buffer_type(device);
    return ggml_backend_buffer_ptr(
        ggml_backend_buft_alloc_buffer(type ? type : ggml_backend_cpu_buffer_type(), n_byte));
}

std::vector<DeviceInfo> add_rpc_server(const std::string & endpoint) {
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    const auto add =
        rpc ? reinterpret_cast<AddServer>(ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"))
            : nullptr;
    if (!add) {
        throw std::runtime_error("The llama.cpp that is installed was built without remote devices");
    }
    ggml_backend_reg_t server = add(endpoint.c_str());
    if (!server) {
        throw std::runtime_error("The server at " + endpoint + " has no device");
    }
    std::vector<DeviceInfo> all;
    for (size_t i = 0; i < ggml_backend_reg_dev_count(server); i++) {
        ggml_backend_dev_t device = ggml_backend_reg_dev_get(server, i);
        bool known = false;
        for (size_t k = 0; k < ggml_backend_dev_count(); k++) {
            known = known || ggml_backend_dev_get(k) == device;
        }
        if (!known) {
            ggml_backend_device_register(device);
        }
        all.push_back(info_of(device));
    }
    return all;
}

}  // namespace outrider
