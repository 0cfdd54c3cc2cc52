#include "live/ggml/repack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/splitmix.h"
#include "ggml.h"

namespace outrider {
namespace {

// A buffer of the repack type that is never freed. Tensors need not lie in it: its functions look at the tensor only.
ggml_backend_buffer_t any_buffer() {
    static const ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(repack_buffer_type(), 64);
    return buffer;
}

ggml_tensor header(ggml_type type, int64_t n_column, int64_t n_row, void * data) {
    ggml_tensor t{};
    t.type = type;
    t.ne[0] = n_column;
    t.ne[1] = n_row;
    t.ne[2] = t.ne[3] = 1;
    t.nb[0] = ggml_type_size(type);
    t.nb[1] = ggml_row_size(type, n_column);
    t.nb[2] = t.nb[3] = t.nb[1] * size_t(n_row);
    t.data = data;
    t.buffer = any_buffer();
    ggml_backend_buffer_init_tensor(t.buffer, &t);
    return t;
}

}  // namespace

ggml_backend_buffer_type_t repack_buffer_type() {
    static const ggml_backend_buffer_type_t found = [] {
        ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        const auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
        for (auto * buft = extra ? extra(device) : nullptr; buft && *buft; buft++) {
            if (std::strcmp(ggml_backend_buft_name(*buft), "CPU_REPACK") == 0) {
                return *buft;
            }
        }
        return ggml_backend_buffer_type_t(nullptr);
    }();
    return found;
}

bool can_repack(ggml_type type, int64_t n_column, int64_t n_row) {
    return repack_buffer_type() && header(type, n_column, n_row, nullptr).extra != nullptr;
}

uint64_t matrix_bytes(ggml_type type, int64_t n_column, int64_t n_row) {
    return ggml_row_size(type, n_column) * uint64_t(n_row);
}

void repack(ggml_type type, int64_t n_column, int64_t n_row, const void * from, void * to) {
    ggml_tensor t = header(type, n_column, n_row, to);
    ggml_backend_tensor_set(&t, from, 0, ggml_nbytes(&t));
}

int64_t rows_together(ggml_type type) {
    constexpr int64_t n_row = 64, n_block = 4, first = 1, n_cut = 2;  // blocks of columns
    const int64_t block = ggml_blck_size(type);
    const size_t row_bytes = ggml_row_size(type, n_block * block), block_bytes = ggml_type_size(type);
    if (!can_repack(type, n_block * block, n_row) || !can_repack(type, n_cut * block, n_row)) {
        return 0;
    }
    std::vector<uint8_t> matrix(row_bytes * n_row), whole(matrix.size());
    uint64_t state = 1;
    for (uint8_t & byte : matrix) {
        byte = uint8_t((state = splitmix(state)) >> 32);
    }
    repack(type, n_block * block, n_row, matrix.data(), whole.data());
    const auto columns = [&](const std::vector<uint8_t> & from, size_t n_together) {
        std::vector<uint8_t> part;
        for (size_t at = 0; at < from.size(); at += row_bytes * n_together) {
            const auto begin = from.begin() + ptrdiff_t(at + first * block_bytes * n_together);
            part.insert(part.end(), begin, begin + ptrdiff_t(n_cut * block_bytes * n_together));
        }
        return part;
    };
    std::vector<uint8_t> cut = columns(matrix, 1), laid_out(cut.size()), rows(whole.size());
    repack(type, n_cut * block, n_row, cut.data(), laid_out.data());
    for (int64_t n = 1; n <= n_row / 2; n *= 2) {
        if (columns(whole, size_t(n)) == laid_out && can_repack(type, n_block * block, n_row - n)) {
            const size_t skipped = row_bytes * size_t(n);
            repack(type, n_block * block, n_row - n, matrix.data() + skipped, rows.data() + skipped);
            return std::equal(rows.begin() + ptrdiff_t(skipped), rows.end(), whole.begin() + ptrdiff_t(skipped)) ? n
                                                                                                                 : 0;
        }
    }
    return 0;
}

}  // namespace outrider
