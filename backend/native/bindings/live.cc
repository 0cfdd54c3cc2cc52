// The live driver. Pointers cross as integers, for ctypes.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../live/patch.h"
#include "../live/stop_flag.h"
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

void bind_live(nb::module_ & m) {
    nb::class_<TensorPlace>(m, "TensorPlace")
        .def(
            "__init__", [](TensorPlace * self, size_t part, uint64_t offset) { new (self) TensorPlace{part, offset}; },
            "part"_a, "offset"_a);
    nb::class_<ExpertFiles>(m, "ExpertFiles")
        .def(nb::init<const std::vector<std::string> &, std::map<std::string, TensorPlace>>(), "paths"_a, "places"_a)
        .def("drop_cached", &ExpertFiles::drop_cached);

    nb::class_<ExpertBuffers>(m, "ExpertBuffers")
        .def(nb::init<bool>(), "unread"_a)
        .def_prop_ro("type", [](ExpertBuffers & b) { return reinterpret_cast<uintptr_t>(b.type()); })
        .def("loaded", &ExpertBuffers::loaded);

    nb::class_<StopFlag>(m, "StopFlag")
        .def(nb::init<>())
        .def_prop_ro("callback", [](StopFlag &) { return reinterpret_cast<uintptr_t>(&StopFlag::callback); })
        .def_prop_ro("user_data", [](StopFlag & f) { return reinterpret_cast<uintptr_t>(&f); })
        .def("set", &StopFlag::set)
        .def("clear", &StopFlag::clear);

    nb::class_<PatchOptions>(m, "PatchOptions")
        .def(
            "__init__",
            [](PatchOptions * self, OrderedOptions schedule, bool next_router, double min_precision, int n_thread,
               int n_transfer_thread, int max_token) {
                new (self) PatchOptions{schedule, next_router, min_precision, n_thread, n_transfer_thread, max_token};
            },
            "schedule"_a = OrderedOptions{}, "next_router"_a = false, "min_precision"_a = 0.0, "n_thread"_a = 1,
            "n_transfer_thread"_a = 2, "max_token"_a = 512);

    nb::class_<PatchTimes>(m, "PatchTimes")
        .def_ro("stall_us", &PatchTimes::stall_us)
        .def_ro("wave_us", &PatchTimes::wave_us)
        .def_ro("callback_us", &PatchTimes::callback_us);

    using released = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Patch>(m, "Patch")
        .def(nb::init<const ExpertFiles &, ExpertBuffers &>(), "files"_a, "buffers"_a, nb::keep_alive<1, 2>(),
             nb::keep_alive<1, 3>())
        .def_prop_ro("callback", [](Patch &) { return reinterpret_cast<uintptr_t>(&Patch::callback); })
        .def_prop_ro("user_data", [](Patch & p) { return reinterpret_cast<uintptr_t>(&p); })
        .def("begin_probe", &Patch::begin_probe)
        .def("end_probe", &Patch::end_probe)
        .def("configure", &Patch::configure, "n_slot"_a, "options"_a, released())
        .def("close", &Patch::close, released())
        .def("begin_pass", &Patch::begin_pass, "phase"_a, released())
        .def("end_pass", &Patch::end_pass, released())
        .def("stop", &Patch::stop)
        .def("resume", &Patch::resume)
        .def_prop_ro("error", &Patch::error)
        .def_prop_ro("layers", &Patch::layers)
        .def_prop_ro("shape", &Patch::shape)
        .def_prop_ro("slab_bytes", &Patch::slab_bytes)
        .def("counts", &Patch::counts, released())
        .def("stall_us_by_layer", &Patch::stall_us_by_layer, released())
        .def("times", &Patch::times, released())
        .def("snapshot", [](const Patch & p) {
            std::vector<uint8_t> bytes;
            {
                const nb::gil_scoped_release release;
                bytes = p.snapshot();
            }
            return nb::bytes(bytes.data(), bytes.size());
        });
}

}  // namespace outrider
