// The layout in which the CPU backend computes fastest: it interleaves rows of quantised matrices for
// its vector instructions, and only on processors that have these.
#pragma once

#include <cstdint>

#include "ggml-backend.h"

namespace outrider {

// The buffer type whose tensors are laid out so; null where the backend has none. It is memory like
// any other of the host, though ggml says that it is not.
ggml_backend_buffer_type_t repack_buffer_type();

// Whether the backend has such a layout for a matrix of `n_row` rows of `n_column` values.
bool can_repack(ggml_type type, int64_t n_column, int64_t n_row);

// Bytes of such a matrix, in either layout.
uint64_t matrix_bytes(ggml_type type, int64_t n_column, int64_t n_row);

// How many rows lie together: the matrix is then groups of so many rows, one after the other, and a group its
// columns' blocks, each with those of all its rows; so a part of whole groups and whole blocks is laid out as the same
// part of the matrix. Found by trying; 0 where it is not so. REQUIRES: a type that can be laid out.
int64_t rows_together(ggml_type type);

// Lays a matrix out so: `to` has room for as many bytes as `from`. REQUIRES: can_repack().
void repack(ggml_type type, int64_t n_column, int64_t n_row, const void * from, void * to);

}  // namespace outrider
