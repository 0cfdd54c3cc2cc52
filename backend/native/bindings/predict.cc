// Predictors without a core, for tests, and the check of a weights file.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "core/predict/registry.h"
#include "core/predict/worth.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Told = std::tuple<Layer, std::vector<Expert>, std::vector<float>>;

// A predictor with the objects that it refers to.
class PredictorProbe {
  public:
    PredictorProbe(const Spec & spec, const Shape & shape, const Layout & layout, int32_t n_embd,
                   const std::vector<Matrix> & routers, std::shared_ptr<Future> future, int32_t n_predict,
                   std::vector<RouterBias> biases)
        : shape_(shape), layout_(layout) {
        for (const Matrix & r : routers) {
            routers_.emplace_back(r.data(), r.data() + r.size());
        }
        if (n_embd == 0 && !routers.empty()) {
            n_embd = int32_t(routers[0].shape(1));
        }
        predictor_ = make_predictor(
            spec,
            {shape_, layout_, n_embd, {routers_.begin(), routers_.end()}, std::move(future), {}, std::move(biases)},
            n_predict);
        if (!predictor_) {
            throw nb::value_error("a predictor needs a name");
        }
    }

    Predictor & operator*() { return *predictor_; }
    const Shape & shape() const { return shape_; }

    void require_layer(Layer layer) const {
        if (layer < 0 || layer >= shape_.n_layer) {
            throw nb::index_error("there is no such layer");
        }
    }

  private:
    Shape shape_;
    Layout layout_;
    std::vector<std::vector<float>> routers_;
    std::unique_ptr<Predictor> predictor_;
};

template <typename Tell>
std::vector<Told> answer(Tell && tell) {
    Forecasts out;
    tell(out);
    std::vector<Told> told;
    for (Forecast & f : out) {
        told.emplace_back(f.layer, std::move(f.experts), std::move(f.scores));
    }
    return told;
}

std::vector<Told> routed(PredictorProbe & probe, Layer layer, const std::vector<Expert> & ids,
                         const std::vector<float> & weights, int32_t n_token, const std::vector<int32_t> & sequences) {
    probe.require_layer(layer);
    const auto exists = [&](Expert e) { return e >= 0 && e < probe.shape().n_expert; };
    if (!std::all_of(ids.begin(), ids.end(), exists)) {
        throw nb::index_error("there is no such expert");
    }
    if (n_token < 0) {
        n_token = int32_t(ids.size()) / std::max(1, probe.shape().used(layer));
    }
    if (!sequences.empty() && sequences.size() != size_t(n_token)) {
        throw nb::value_error("every token has a sequence, or none");
    }
    return answer([&](Forecasts & out) { (*probe).routed({layer, n_token, ids, weights, sequences}, out); });
}

// Check that a predictor can be made from a weights file. Does not depend on the model's routers.
void check_predictor(const Spec & spec, const Shape & shape, int32_t n_embd) {
    const std::vector<float> router(size_t(std::max(n_embd, 0)) * size_t(shape.n_expert));
    const Layout layout = Layout::per_layer(std::vector<int32_t>(size_t(shape.n_layer), shape.n_expert));
    make_predictor(spec, {shape, layout, n_embd, {size_t(shape.n_layer), router}, nullptr}, 0);
}

}  // namespace

void bind_predict(nb::module_ & m) {
    m.def("predictor_names", &predictor_names);
    m.def("check_predictor", &check_predictor, "spec"_a, "shape"_a, "n_embd"_a,
          "Raises ValueError, a sentence, if no such predictor can be made for a model of these sizes.");

    nb::class_<PredictorProbe>(m, "PredictorProbe",
                               "A predictor without a core. Events return (layer, experts, scores) of its forecasts.")
        .def(nb::init<const Spec &, const Shape &, const Layout &, int32_t, const std::vector<Matrix> &,
                      std::shared_ptr<Future>, int32_t, std::vector<RouterBias>>(),
             "spec"_a, "shape"_a, "layout"_a, "n_embd"_a = 0, "routers"_a = std::vector<Matrix>{},
             "future"_a = nb::none(), "n_predict"_a = 0, "biases"_a = std::vector<RouterBias>{})
        .def_prop_ro("wants_input", [](PredictorProbe & p) { return (*p).wants_input(); })
        .def("request_began", [](PredictorProbe & p) { (*p).request_began(); })
        .def(
            "sequence_began", [](PredictorProbe & p, int32_t sequence) { (*p).sequence_began(sequence); }, "sequence"_a)
        .def(
            "pass_began",
            [](PredictorProbe & p, Phase phase, const std::vector<int32_t> & tokens) {
                return answer([&](Forecasts & out) { (*p).pass_began(phase, tokens, out); });
            },
            "phase"_a, "tokens"_a = std::vector<int32_t>{})
        .def("routed", &routed, "layer"_a, "ids"_a, "weights"_a = std::vector<float>{}, "n_token"_a = -1,
             "sequences"_a = std::vector<int32_t>{})
        .def(
            "gate_seen",
            [](PredictorProbe & p, Layer layer, Matrix input) {
                p.require_layer(layer);
                return answer([&](Forecasts & out) {
                    (*p).gate_seen(layer, {input.data(), input.size()}, int32_t(input.shape(0)), out);
                });
            },
            "layer"_a, "input"_a);

    nb::class_<Worth>(m, "Worth")
        .def(nb::init<int32_t>(), "n_layer"_a)
        .def(
            "expect",
            [](Worth & w, Layer layer, Expert expert, int32_t rank, size_t n_before, int32_t n_ahead) {
                return w.expect(layer, expert, {rank, n_before, n_ahead});
            },
            "layer"_a, "expert"_a, "rank"_a, "n_before"_a = 0, "n_ahead"_a = 1)
        .def(
            "judge", [](Worth & w, Layer layer, const std::vector<uint8_t> & needed) { w.judge(layer, needed); },
            "layer"_a, "needed"_a)
        .def("forget", &Worth::forget, "layer"_a)
        .def("set_victim", &Worth::set_victim, "share"_a)
        .def("gate_passed", &Worth::gate_passed, "waited"_a)
        .def("set_copy_cost", &Worth::set_copy_cost, "cost"_a)
        .def("gain", &Worth::gain, "p"_a)
        .def("urgency", &Worth::urgency, "n_ahead"_a);
}

}  // namespace outrider
