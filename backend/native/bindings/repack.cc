// Weights in ggml's types: their values, and the CPU backend's fastest layout.
#include "live/ggml/repack.h"

#include <nanobind/ndarray.h>

#include <stdexcept>

#include "bindings/bindings.h"
#include "live/ggml/values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

void bind_repack(nb::module_ & m) {
    m.def(
        "values_of",
        [](int type_id, const nb::bytes & blocks) {
            const bool is_type = type_id >= 0 && type_id < GGML_TYPE_COUNT;
            const size_t block_bytes = is_type ? ggml_type_size(ggml_type(type_id)) : 0;
            if (block_bytes == 0 || blocks.size() % block_bytes != 0) {
                throw std::invalid_argument("These are not whole blocks of such a type");
            }
            auto * owned = new std::vector<float>;
            const nb::capsule owner(owned, [](void * p) noexcept { delete static_cast<std::vector<float> *>(p); });
            const std::span from(static_cast<const uint8_t *>(blocks.data()), blocks.size());
            {
                const nb::gil_scoped_release release;
                *owned = values_of(ggml_type(type_id), from);
            }
            return nb::ndarray<nb::numpy, float, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
        },
        "type_id"_a, "blocks"_a, "Return the values of weights, or none if ggml cannot convert the type.");
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
