// The CPU backend's fastest layout ("repacked"): rows of quantised matrices, interleaved for vector instructions. Only
// some processors have it.
#pragma once

#include <cstdint>

#include "ggml-backend.h"

namespace outrider {

// Return the buffer type of repacked tensors, or null if the backend has none. It is host memory, though ggml says that
// it is not.
ggml_backend_buffer_type_t repack_buffer_type();

// Return whether the backend can repack a matrix of `n_row` rows of `n_column` values.
bool can_repack(ggml_type type, int64_t n_column, int64_t n_row);

// Return the bytes of such a matrix, in either layout.
uint64_t matrix_bytes(ggml_type type, int64_t n_column, int64_t n_row);

// Return the number of rows that a repacked matrix interleaves, or 0 if its layout is another one. Such a matrix is a
// sequence of groups of that many rows. A group is a sequence of columns of blocks, each with the blocks of all its
// rows. So whole groups and whole blocks can be cut out of it. Found by trial. REQUIRES: a type that can be repacked.
int64_t rows_together(ggml_type type);

// Repack a matrix. `to` has as many bytes as `from`. REQUIRES: can_repack().
void repack(ggml_type type, int64_t n_column, int64_t n_row, const void * from, void * to);

}  // namespace outrider
