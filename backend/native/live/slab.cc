#include "slab.h"

#include <algorithm>
#include <stdexcept>

namespace outrider {

Slab::Slab(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const std::vector<int32_t> & n_slot,
           ggml_backend_buffer_type_t buft)
    : tensors_(tensors), files_(files), host_(ggml_backend_buft_is_host(buft)) {
    homes_.resize(n_slot.size());
    for (const ExpertTensor & t : tensors_) {
        homes_[t.layer].push_back({&t, *t.tensor});
    }
    for (auto & layer : homes_) {
        std::sort(layer.begin(), layer.end(),
                  [](const Home & a, const Home & b) { return a.source->chunk < b.source->chunk; });
    }

    constexpr size_t block = DirectFile::block_bytes;
    for (const ExpertTensor & t : tensors_) {
        ggml_tensor shrunk = *t.tensor;
        shrunk.ne[2] = n_slot[t.layer];
        shrunk.nb[3] = shrunk.nb[2] * size_t(shrunk.ne[2]);
        // Kernels may read a little past the last row: the device says how much room it wants.
        const size_t size = std::max(ggml_backend_buft_get_alloc_size(buft, &shrunk), ggml_nbytes(&shrunk));
        ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(buft, size + 2 * block);
        if (!buffer) {
            for (auto & layer : homes_) {
                for (auto & home : layer) {
                    *home.source->tensor = home.saved;
                }
            }
            for (auto * b : buffers_) {
                ggml_backend_buffer_free(b);
            }
            throw std::runtime_error("There is not enough memory for the expert cache");
        }
        buffers_.push_back(buffer);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        bytes_ += size;

        auto * base = static_cast<uint8_t *>(ggml_backend_buffer_get_base(buffer));
        size_t shift = 0;
        if (host_) {
            // Congruent with the file modulo the block, so that direct reads need no second copy.
            const size_t wanted = t.place.offset % block;
            const size_t have = reinterpret_cast<uintptr_t>(base) % block;
            shift = (wanted + block - have) % block;
        } else {
            ggml_backend_buffer_clear(buffer, 0);
        }
        t.tensor->ne[2] = shrunk.ne[2];
        t.tensor->nb[3] = shrunk.nb[3];
        t.tensor->buffer = buffer;
        t.tensor->data = base + shift;
    }
}

Slab::~Slab() {
    for (auto & layer : homes_) {
        for (auto & home : layer) {
            *home.source->tensor = home.saved;
        }
    }
    for (auto * buffer : buffers_) {
        ggml_backend_buffer_free(buffer);
    }
}

void Slab::fill(const Copy & copy) const {
    const auto & homes = homes_[copy.layer];
    if (copy.chunk != whole_expert) {
        fill_chunk(homes[copy.chunk], copy.expert, copy.slot);
        return;
    }
    for (const Home & home : homes) {
        fill_chunk(home, copy.expert, copy.slot);
    }
}

void Slab::fill_chunk(const Home & home, Expert expert, Slot slot) const {
    const ExpertTensor & t = *home.source;
    const DirectFile & file = *files_.files()[t.place.part];
    const uint64_t offset = t.place.offset + uint64_t(expert) * t.expert_bytes;
    const size_t at = size_t(slot) * t.expert_bytes;
    if (host_) {
        file.read(offset, t.expert_bytes, static_cast<uint8_t *>(t.tensor->data) + at);
        return;
    }
    std::vector<uint8_t> bytes(t.expert_bytes);
    file.read(offset, bytes.size(), bytes.data());
    ggml_backend_tensor_set(t.tensor, bytes.data(), at, bytes.size());
}

}  // namespace outrider
