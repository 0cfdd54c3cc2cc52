// Measurements of this machine.
#include "live/measure/speed.h"

#include <nanobind/stl/string.h>

#include "live/measure/read_speed.h"

#include "bindings/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

void bind_speed(nb::module_ & m) {
    nb::class_<ComputeSpeed>(m, "ComputeSpeed")
        .def_ro("memory_bytes_per_us", &ComputeSpeed::memory_bytes_per_us)
        .def_ro("flop_per_us", &ComputeSpeed::flop_per_us)
        .def_ro("step_us", &ComputeSpeed::step_us);
    nb::class_<ReadSpeed>(m, "ReadSpeed")
        .def_ro("bytes_per_s", &ReadSpeed::bytes_per_s)
        .def_ro("direct", &ReadSpeed::direct, "Past the page cache.")
        .def_ro("ring", &ReadSpeed::ring, "In the kernel's own queue, io_uring.");
    m.def("measure_reads", &measure_reads, "path"_a, "read_bytes"_a, "n_read"_a, "seconds"_a, "ring"_a = true,
          nb::call_guard<nb::gil_scoped_release>(),
          "Measure reads of random pieces of a file, n_read in flight, as the engine reads.");
    m.def("measure_product", &measure_product, "type_id"_a, "n_column"_a, "n_row"_a, "n_token"_a, "n_thread"_a,
          "repacked"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Return the microseconds of a product of such a matrix with vectors, in either layout.");
    m.def("measure_compute", &measure_compute, "n_thread"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Measure ggml's computation with quantised weights for about `seconds`.");
}

}  // namespace outrider
