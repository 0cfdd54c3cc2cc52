// Devices. Pointers are passed as integers, for ctypes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "live/ggml/backends.h"
#include "live/ggml/devices.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

void bind_devices(nb::module_ & m) {
    nb::class_<DeviceInfo>(m, "DeviceInfo")
        .def_ro("name", &DeviceInfo::name)
        .def_ro("description", &DeviceInfo::description)
        .def_ro("free_bytes", &DeviceInfo::free_bytes)
        .def_ro("total_bytes", &DeviceInfo::total_bytes)
        .def_ro("is_remote", &DeviceInfo::is_remote)
        .def_ro("has_pinned_memory", &DeviceInfo::has_pinned_memory)
        .def_ro("shares_memory", &DeviceInfo::shares_memory)
        .def_ro("memory", &DeviceInfo::memory)
        .def_ro("alignment", &DeviceInfo::alignment)
        .def_prop_ro("pointer", [](const DeviceInfo & d) { return reinterpret_cast<uintptr_t>(d.device); });
    nb::class_<BackendModule>(m, "BackendModule")
        .def_ro("file", &BackendModule::file)
        .def_ro("backend", &BackendModule::backend)
        .def_ro("trouble", &BackendModule::trouble);
    m.def("load_backends", &load_backends, "The modules of llama.cpp's backends that were tried at import.");
    using released = nb::call_guard<nb::gil_scoped_release>;
    m.def("list_devices", &list_devices, released());
    m.def(
        "device_free_bytes",
        [](uintptr_t pointer) { return device_free_bytes(reinterpret_cast<ggml_backend_dev_t>(pointer)); }, "pointer"_a,
        released());
    m.def("add_rpc_server", &add_rpc_server, "endpoint"_a, released());
}

}  // namespace outrider
