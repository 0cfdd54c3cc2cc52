// Where llama.cpp believes the experts to be: address space without memory. The buffer type also
// tells which tensors are placed in it: the model's own, persistent ones. With `unread`, it has
// llama.cpp leave their bytes in the file: its loader passes over tensors that it does not know by
// name, so they bear another name until the model has been loaded.
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
    // To be called when the model has been loaded: the tensors get their names back.
    void loaded();
    // Every tensor that was placed here, in order of placing.
    const std::vector<ggml_tensor *> & tensors() const { return tensors_; }

  private:
    struct Region {
        void * address;
        size_t size;
    };

    bool unread_;
    ggml_backend_buffer_type type_{};
    std::vector<ggml_tensor *> tensors_;
    std::vector<std::string> names_;  // of tensors_
    std::vector<Region> regions_;
};

}  // namespace outrider
