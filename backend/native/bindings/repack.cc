// The CPU backend's fastest layout of weights.
#include "live/ggml/repack.h"

#include <stdexcept>

#include "bindings/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

void bind_repack(nb::module_ & m) {
    m.def(
        "can_repack",
        [](int type_id, int64_t n_column, int64_t n_row) { return can_repack(ggml_type(type_id), n_column, n_row); },
        "type_id"_a, "n_column"_a, "n_row"_a,
        "Return whether the CPU backend can repack such a matrix on this processor.");
    m.def(
        "matrix_bytes",
        [](int type_id, int64_t n_column, int64_t n_row) { return matrix_bytes(ggml_type(type_id), n_column, n_row); },
        "type_id"_a, "n_column"_a, "n_row"_a);
    m.def(
        "repack",
        [](nb::bytes matrix, int type_id, int64_t n_column, int64_t n_row) {
            const auto type = ggml_type(type_id);
            if (!can_repack(type, n_column, n_row) || matrix.size() != matrix_bytes(type, n_column, n_row)) {
                throw std::invalid_argument("Such a matrix cannot be repacked");
            }
            nb::bytes result(nullptr, matrix.size());
            auto * to = const_cast<void *>(result.data());
            const void * from = matrix.data();
            {
                const nb::gil_scoped_release release;
                repack(type, n_column, n_row, from, to);
            }
            return result;
        },
        "matrix"_a, "type_id"_a, "n_column"_a, "n_row"_a, "Return the matrix repacked, in as many bytes.");
}

}  // namespace outrider
