// Measuring this machine.
#include "../live/speed.h"

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

void bind_speed(nb::module_ & m) {
    nb::class_<ComputeSpeed>(m, "ComputeSpeed")
        .def_ro("memory_bytes_per_us", &ComputeSpeed::memory_bytes_per_us)
        .def_ro("flop_per_us", &ComputeSpeed::flop_per_us)
        .def_ro("step_us", &ComputeSpeed::step_us);
    m.def("measure_compute", &measure_compute, "n_thread"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
          "How fast ggml computes here with quantised weights; takes about so many seconds.");
}

}  // namespace outrider
