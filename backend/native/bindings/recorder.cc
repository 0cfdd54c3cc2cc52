// The recorder. Python gives it to a patch and takes the recording as numpy arrays.
#include "live/pass/recorder.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {

// f16 in numpy; C++ copies only its bits.
struct Half {
    uint16_t bits;
};

}  // namespace outrider

namespace nanobind::detail {
template <>
struct dtype_traits<outrider::Half> {
    static constexpr dlpack::dtype value{uint8_t(dlpack::dtype_code::Float), 16, 1};
    static constexpr auto name = const_name("float16");
};
}  // namespace nanobind::detail

namespace outrider {
namespace {

// Return an array of `Item` that owns the vector's memory.
template <typename Item, typename Stored>
nb::object array_of(std::vector<Stored> && values, std::vector<size_t> shape) {
    auto * owned = new std::vector<Stored>(std::move(values));
    const nb::capsule owner(owned, [](void * p) noexcept { delete static_cast<std::vector<Stored> *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, Item>(owned->data(), shape.size(), shape.data(), owner));
}

nb::dict dict_of(Recording && r, const RecorderOptions & o) {
    const size_t n_pass = r.n_token.size(), n_token = r.tokens.size(), n_layer = size_t(o.n_layer);
    const size_t k = size_t(o.n_expert_used), n_expert = size_t(o.n_expert), n_embd = size_t(o.n_embd);
    nb::dict d;
    d["phases"] = array_of<uint8_t>(std::move(r.phases), {n_pass});
    d["requests"] = array_of<int32_t>(std::move(r.requests), {n_pass});
    d["n_token"] = array_of<int32_t>(std::move(r.n_token), {n_pass});
    d["n_routed"] = array_of<int32_t>(std::move(r.n_routed), {n_pass, n_layer});
    d["tokens"] = array_of<int32_t>(std::move(r.tokens), {n_token});
    if (!r.sequences.empty()) {
        d["sequences"] = array_of<int32_t>(std::move(r.sequences), {n_token});
    }
    d["ids"] = r.id_bytes == 1 ? array_of<uint8_t>(std::move(r.ids), {n_token, n_layer, k})
                               : array_of<uint16_t>(std::move(r.ids), {n_token, n_layer, k});
    if (!r.weights.empty()) {
        d["weights"] = array_of<Half>(std::move(r.weights), {n_token, n_layer, k});
    }
    if (!r.scores.empty()) {
        d["scores"] = array_of<Half>(std::move(r.scores), {n_token, n_layer, n_expert});
    }
    if (!r.inputs.empty()) {
        d["inputs"] = array_of<Half>(std::move(r.inputs), {n_token, n_layer, n_embd});
        d["has_inputs"] = array_of<uint8_t>(std::move(r.has_inputs), {n_layer});
    }
    return d;
}

using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ExpertRows = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T, typename Values>
std::span<const T> span_of(const Values & values) {
    return {values.data(), values.size()};
}

}  // namespace

void bind_recorder(nb::module_ & m) {
    nb::class_<Recorder>(m, "Recorder", "Records the routing of a patched model, for a trace.")
        .def(
            "__init__",
            [](Recorder * self, int32_t n_layer, int32_t n_expert, int32_t n_expert_used, int32_t n_embd, bool weights,
               bool scores, bool inputs, uint64_t max_bytes, std::vector<int32_t> n_used) {
                new (self) Recorder(RecorderOptions{n_layer, n_expert, n_expert_used, n_embd, weights, scores, inputs,
                                                    max_bytes, std::move(n_used)});
            },
            "n_layer"_a, "n_expert"_a, "n_expert_used"_a, "n_embd"_a = 0, "weights"_a = true, "scores"_a = false,
            "inputs"_a = false, "max_bytes"_a = 0, "n_used"_a = std::vector<int32_t>{})
        .def("request_began", &Recorder::request_began)
        .def(
            "pass_began",
            [](Recorder & r, Phase phase, const Ids & tokens, std::optional<Ids> sequences) {
                r.pass_began(phase, span_of<int32_t>(tokens),
                             sequences ? span_of<int32_t>(*sequences) : std::span<const int32_t>{});
            },
            "phase"_a, "tokens"_a, "sequences"_a = nb::none())
        .def(
            "routed",
            [](Recorder & r, Layer layer, const ExpertRows & ids, std::optional<Floats> weights) {
                r.routed(layer, span_of<Expert>(ids), int32_t(ids.shape(0)),
                         weights ? span_of<float>(*weights) : std::span<const float>{});
            },
            "layer"_a, "ids"_a, "weights"_a = nb::none())
        .def(
            "scores", [](Recorder & r, Layer layer, const Floats & values) { r.scores(layer, span_of<float>(values)); },
            "layer"_a, "values"_a)
        .def(
            "input", [](Recorder & r, Layer layer, const Floats & rows) { r.input(layer, span_of<float>(rows)); },
            "layer"_a, "rows"_a)
        .def("pass_ended", &Recorder::pass_ended, "whole"_a)
        .def_prop_ro("wants_weights", &Recorder::wants_weights)
        .def_prop_ro("wants_scores", &Recorder::wants_scores)
        .def_prop_ro("wants_inputs", &Recorder::wants_inputs)
        .def_prop_ro("full", &Recorder::full)
        .def_prop_ro("n_pass", &Recorder::n_pass)
        .def_prop_ro("n_token", &Recorder::n_token)
        .def_prop_ro("n_dropped", &Recorder::n_dropped)
        .def_prop_ro("bytes", &Recorder::bytes)
        .def(
            "take", [](Recorder & r) { return dict_of(r.take(), r.options()); },
            "Return the recording as numpy arrays, named as in a trace file, and begin an empty one.");
}

}  // namespace outrider
