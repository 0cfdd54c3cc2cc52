#include "live/graph/segment.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ggml-backend.h"

namespace outrider {

std::optional<int> layer_in_name(const ggml_tensor * node, const char * stem) {
    const size_t n = std::strlen(stem);
    if (std::strncmp(node->name, stem, n) != 0 || node->name[n] != '-') {
        return std::nullopt;
    }
    char * end = nullptr;
    const long il = std::strtol(node->name + n + 1, &end, 10);
    if (end == node->name + n + 1 || *end != '\0') {
        return std::nullopt;
    }
    return int(il);
}

std::optional<int> layer_of_logits(const ggml_tensor * node) {
    if (node->op != GGML_OP_MUL_MAT) {
        return std::nullopt;
    }
    const auto il = layer_in_name(node, "ffn_moe_logits");
    return il ? il : layer_in_name(node, "ffn_moe_probs");
}

bool Segment::contains(const ggml_tensor * t) const { return std::find(nodes.begin(), nodes.end(), t) != nodes.end(); }

bool Segment::feeds(const ggml_tensor * node) const {
    return (node->view_src && contains(node->view_src)) ||
           std::any_of(std::begin(node->src), std::end(node->src),
                       [&](const ggml_tensor * s) { return s && contains(s); });
}

SourceKind source_kind(const Segment & segment, const ggml_tensor * s) {
    if (segment.contains(s)) {
        return SourceKind::inside;
    }
    if (s == segment.ids) {
        return SourceKind::ids;
    }
    if (s->op == GGML_OP_NONE && !s->view_src && s->buffer &&
        ggml_backend_buffer_get_usage(s->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        return SourceKind::constant;
    }
    const bool shaped = (s->ne[1] == 1 || s->ne[1] == segment.ids->ne[0]) && s->ne[2] == segment.ids->ne[1];
    return shaped && s->ne[3] == 1 && s->type == GGML_TYPE_F32 && ggml_is_contiguous(s) ? SourceKind::rows
                                                                                        : SourceKind::unknown;
}

std::string_view given_name(const ggml_tensor * node) {
    return std::strncmp(node->name, "node_", 5) == 0 ? "" : node->name;
}

bool PatternNode::matches(const ggml_tensor * node) const { return op == node->op && name == given_name(node); }

bool is_weights(const ggml_tensor * node, const ggml_tensor * ids) {
    return node->type == GGML_TYPE_F32 && ggml_nelements(node) == ids->ne[0] * ids->ne[1] && ggml_is_contiguous(node);
}

namespace {

// Return the tensor that owns the memory.
const ggml_tensor * owner(const ggml_tensor * t) { return t && t->view_src ? t->view_src : t; }

bool reads(const ggml_tensor * node, const ggml_tensor * memory) {
    return std::any_of(std::begin(node->src), std::end(node->src),
                       [&](const ggml_tensor * s) { return s && owner(s) == memory; });
}

// Return whether the operation treats every (token, expert) row alone, so that it can run on some rows.
bool is_row_wise(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ADD_ID:
        case GGML_OP_ADD:
        case GGML_OP_SUB:
        case GGML_OP_MUL:
        case GGML_OP_DIV:
        case GGML_OP_SQR:
        case GGML_OP_SCALE:
        case GGML_OP_CLAMP:
        case GGML_OP_UNARY:
        case GGML_OP_GLU: return true;
        case GGML_OP_VIEW:  // a range of every row, as in fused gate_up
            return node->nb[1] == node->view_src->nb[1] && node->nb[2] == node->view_src->nb[2] &&
                   node->ne[0] < node->view_src->ne[0];
        default: return false;
    }
}

}  // namespace

void SegmentFinder::pass_began() {
    found_.clear();
    topk_.clear();
    logits_.clear();
    routers_.clear();
    tables_.clear();
    objection_.clear();
    open_ = none;
    n_since_topk_ = 0;
    saw_weights_ = false;
}

void SegmentFinder::see(ggml_tensor * node) {
    n_since_topk_++;
    saw_weights_ = saw_weights_ || (!topk_.empty() && is_weights(node, last_topk_));
    if (const auto il = layer_in_name(node, "ffn_moe_topk")) {
        if (!topk_.emplace(*il, node).second) {
            objection_ = "a layer routes twice";
        }
        // A scheduler's copy of the tokens has their name within its own.
        if (node->op == GGML_OP_GET_ROWS && std::strstr(node->src[1]->name, "inp_tokens")) {
            tables_[*il] = node->src[0];
        }
        last_topk_ = node;
        n_since_topk_ = 0;
        saw_weights_ = false;
    } else if (const auto il = layer_of_logits(node)) {
        logits_[*il] = node;
    } else if (const auto il = layer_in_name(node, "ffn_moe_logits_biased")) {
        routers_[*il].added = node->op == GGML_OP_ADD ? node->src[1] : nullptr;
    } else if (const auto il = layer_in_name(node, "ffn_moe_probs_biased")) {
        routers_[*il].selected = node->op == GGML_OP_ADD ? node->src[1] : nullptr;
    } else if (const auto il = layer_in_name(node, "ffn_moe_probs")) {
        routers_[*il].sigmoid = node->op == GGML_OP_UNARY && ggml_get_unary_op(node) == GGML_UNARY_OP_SIGMOID;
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        const auto it = node->src[i] ? layer_of_.find(node->src[i]) : layer_of_.end();
        if (it == layer_of_.end()) {
            continue;
        }
        if (node->op != GGML_OP_MUL_MAT_ID || i != 0) {
            objection_ = std::string("its experts are used by ") + ggml_op_name(node->op);
            return;
        }
        open_ = it->second;
    }
    if (open_ != none) {
        grow(found_[open_], node);
    }
}

void SegmentFinder::grow(Found & found, ggml_tensor * node) {
    Segment & segment = found.segment;
    const bool uses_experts = node->op == GGML_OP_MUL_MAT_ID && layer_of_.count(node->src[0]);
    found.keeps_input = found.keeps_input || (found.logits && reads(node, owner(found.logits->src[1])));
    if (!uses_experts && !segment.feeds(node)) {
        found.n_between++;
        return;
    }
    if (found.closed) {
        if (uses_experts) {
            found.objection = "its experts are used twice in a layer";
        }
        return;
    }
    if (uses_experts) {
        ggml_tensor * ids = node->src[2];
        if (segment.nodes.empty()) {
            for (const auto & [il, topk] : topk_) {
                if (topk == ids) {
                    found.il = il;
                    segment.ids = ids;
                    const auto it = logits_.find(il);
                    found.logits = it == logits_.end() ? nullptr : it->second;
                    found.router = routers_[il];
                    found.table = tables_[il];
                    found.n_to_experts = n_since_topk_;
                    found.keeps_input = found.logits && reads(node, owner(found.logits->src[1]));
                    found.keeps_weights = saw_weights_;
                }
            }
            if (!segment.ids) {
                found.objection = "its router's choice is not named as usual";
            }
        } else if (ids != segment.ids) {
            found.objection = "the mat-muls of one layer use different choices";
        }
    }
    // The segment ends before the sum over the chosen experts: before the first view of one expert's rows, or any other
    // node that is not row-wise.
    const ggml_tensor * ids = segment.ids;
    const bool row_shaped = ids && node->ne[1] == ids->ne[0] && node->ne[2] == ids->ne[1] && node->ne[3] == 1;
    if (row_shaped && is_row_wise(node)) {
        segment.nodes.push_back(node);
        found.cut.see(node, uses_experts);
        found.pattern.insert(found.pattern.end(), found.n_between, {.of_segment = false});
        found.pattern.push_back({.of_segment = true, .op = node->op, .name = std::string(given_name(node))});
        found.n_between = 0;
    } else {
        found.closed = true;
        open_ = none;
    }
}

// Leave a multiplication by one value per row to llama.cpp if the segment ends with it.
void SegmentFinder::leave_out_weights(Found & found) const {
    Segment & segment = found.segment;
    if (segment.nodes.size() < 2 || segment.nodes.back()->op != GGML_OP_MUL) {
        return;
    }
    const ggml_tensor * last = segment.nodes.back();
    const bool inside = segment.contains(last->src[0]) && !segment.contains(last->src[1]);
    if (inside && is_weights(last->src[1], segment.ids)) {
        segment.nodes.pop_back();
        do {
            found.pattern.pop_back();
        } while (!found.pattern.back().of_segment);
    }
}

std::string SegmentFinder::pass_ended() {
    for (auto & [layer, found] : found_) {
        leave_out_weights(found);
    }
    return objection();
}

std::string SegmentFinder::objection() const {
    if (!objection_.empty()) {
        return objection_;
    }
    std::map<Layer, size_t> n_tensor;
    for (const auto & [tensor, layer] : layer_of_) {
        n_tensor[layer]++;
    }
    for (const auto & [layer, n] : n_tensor) {
        const auto it = found_.find(layer);
        if (it == found_.end()) {
            continue;  // not in this graph, like layers for multi-token prediction
        }
        if (!it->second.objection.empty()) {
            return it->second.objection;
        }
        size_t n_used = 0;
        for (const ggml_tensor * node : it->second.segment.nodes) {
            n_used += layer_of_.count(node->src[0]);
        }
        if (n_used != n) {
            return "the mat-muls of its experts are not where they are expected";
        }
        for (const ggml_tensor * node : it->second.segment.nodes) {
            for (const ggml_tensor * s : node->src) {
                if (s && !layer_of_.count(s) && source_kind(it->second.segment, s) == SourceKind::unknown) {
                    return std::string("an input of its experts (") + s->name + ") has an unknown shape";
                }
            }
        }
    }
    return found_.empty() ? "its experts are not used" : "";
}

}  // namespace outrider
