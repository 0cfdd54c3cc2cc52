// A buffer type for the model's expert tensors that reserves address space and no memory. It also lists the tensors
// that llama.cpp placed in it. With `unread`, llama.cpp leaves their bytes in the file: its loader skips tensors of
// unknown names, so they are renamed until the model has been loaded.
#pragma once

#include <string>
#include <vector>

#include "ggml-backend.h"
#include "live/ggml/ggml_abi.h"

namespace outrider {

class ExpertBuffers {
  public:
    explicit ExpertBuffers(bool unread);
    // REQUIRES: the model that used it has been freed.
    ~ExpertBuffers();
    ExpertBuffers(const ExpertBuffers &) = delete;
    ExpertBuffers & operator=(const ExpertBuffers &) = delete;

    // For llama_model_params.tensor_buft_overrides.
    ggml_backend_buffer_type_t type() { return &type_; }
    // Restore the tensors' names. Call when the model has been loaded.
    void loaded();
    // Return every tensor that was placed here, in that order.
    const std::vector<ggml_tensor *> & tensors() const { return tensors_; }

  private:
    struct Region {
        void * address;
        size_t size;
    };

    std::string name_;
    bool unread_;
    ggml_backend_buffer_type type_{};
    std::vector<ggml_tensor *> tensors_;
    std::vector<std::string> names_;  // of tensors_
    std::vector<Region> regions_;
};

}  // namespace outrider
