#include "live/graph/cut.h"

#include <cstring>
#include <numeric>

namespace outrider {
namespace {

// Width of a piece if the type has no blocks: a multiple of vector registers.
constexpr int64_t unblocked_piece = 32;

// GGML_OP_SCALE computes a * x + b.
float added_by_scale(const ggml_tensor * node) {
    float b;
    std::memcpy(&b, &node->op_params[1], sizeof b);
    return b;
}

bool acts_on_every_value(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_ADD:
        case GGML_OP_SUB:
        case GGML_OP_MUL:
        case GGML_OP_DIV:
        case GGML_OP_SQR:
        case GGML_OP_SCALE:
        case GGML_OP_CLAMP:
        case GGML_OP_UNARY: return true;
        case GGML_OP_GLU: return node->src[1] != nullptr;  // otherwise it combines a row's two halves
        default: return false;
    }
}

}  // namespace

void CutFinder::see(const ggml_tensor * node, bool uses_experts) {
    possible_ = possible_ && (uses_experts ? see_mat_mul(node) : see_other(node));
}

bool CutFinder::see_mat_mul(const ggml_tensor * node) {
    const ggml_tensor * experts = node->src[0];
    const auto input = side_of_.find(node->src[1]);
    if (input == side_of_.end()) {
        if (n_hidden_ != 0 && n_hidden_ != experts->ne[1]) {
            return false;
        }
        n_hidden_ = experts->ne[1];
        side_of_[node] = Side::hidden;
        return down_ == nullptr;
    }
    if (input->second != Side::hidden || down_ || experts->ne[0] != n_hidden_) {
        return false;
    }
    down_ = experts;
    side_of_[node] = Side::output;
    return true;
}

bool CutFinder::see_other(const ggml_tensor * node) {
    int n_hidden = 0;
    int n_output = 0;
    bool others_fit = true;  // other sources have one value per row
    for (const ggml_tensor * s : node->src) {
        if (const auto it = s ? side_of_.find(s) : side_of_.end(); it != side_of_.end()) {
            (it->second == Side::hidden ? n_hidden : n_output)++;
        } else if (s) {
            others_fit = others_fit && s->ne[0] == 1;
        }
    }
    if (n_hidden > 0 && n_output == 0) {
        side_of_[node] = Side::hidden;
        return acts_on_every_value(node) && others_fit && node->ne[0] == n_hidden_;
    }
    if (n_hidden > 0 || n_output != 1) {
        return false;  // a product of two outputs is not linear
    }
    side_of_[node] = Side::output;
    switch (node->op) {
        case GGML_OP_MUL: return true;
        case GGML_OP_DIV: return side_of_.count(node->src[0]) > 0;
        case GGML_OP_SCALE: return added_by_scale(node) == 0;
        default: return false;
    }
}

int32_t CutFinder::n_cut() const {
    if (!possible_ || !down_) {
        return 1;
    }
    const int64_t block = ggml_blck_size(down_->type);
    const int64_t piece = block > 1 ? block : std::gcd(unblocked_piece, n_hidden_);
    return int32_t(n_hidden_ / piece);
}

}  // namespace outrider
