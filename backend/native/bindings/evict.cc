// Evictions without a core, for tests and studies.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "core/evict/registry.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

// An eviction with the objects that it refers to.
class Evictor {
  public:
    Evictor(const Spec & spec, const Shape & shape, const Layout & layout, std::shared_ptr<Future> future)
        : shape_(shape), layout_(layout) {
        eviction_ = make_eviction(spec, {shape_, layout_, 0, {}, std::move(future)});
    }

    void request_began() { eviction_->request_began(); }
    void sequence_began(int32_t sequence) { eviction_->sequence_began(sequence); }
    void pass_began(Phase phase) { eviction_->pass_began(phase); }

    void routed(Layer layer, const std::vector<Expert> & ids, const std::vector<float> & weights,
                const std::vector<int32_t> & sequences) {
        require(layer, ids);
        std::vector<Demand> demands;
        for (Expert e : ids) {
            const auto it = std::ranges::find(demands, e, &Demand::expert);
            it == demands.end() ? demands.push_back({e, 1}) : void(it->n_token++);
        }
        const auto n_token = int32_t(ids.size()) / std::max(1, shape_.used(layer));
        if (!sequences.empty() && sequences.size() != size_t(n_token)) {
            throw nb::value_error("every token has a sequence, or none");
        }
        eviction_->routed({layer, n_token, ids, weights, sequences}, demands);
    }
    void forecast(Layer layer, std::vector<Expert> experts, std::vector<float> scores) {
        require(layer, experts);
        eviction_->forecast({layer, std::move(experts), std::move(scores)});
    }
    void disappointed(Layer layer, Expert expert) {
        require(layer, {expert});
        eviction_->disappointed(layer, expert);
    }
    double keep(Layer layer, Part part, Expert expert) const {
        require(layer, {expert});
        return eviction_->keep(layer, part, expert);
    }

  private:
    void require(Layer layer, const std::vector<Expert> & experts) const {
        const auto exists = [&](Expert e) { return e >= 0 && e < shape_.n_expert; };
        if (layer < 0 || layer >= shape_.n_layer || !std::ranges::all_of(experts, exists)) {
            throw nb::index_error("there is no such layer or expert");
        }
    }

    Shape shape_;
    Layout layout_;
    std::unique_ptr<Eviction> eviction_;
};

}  // namespace

void bind_evict(nb::module_ & m) {
    nb::class_<Evictor>(m, "Evictor", "An eviction without a core: takes events, returns the scores of experts.")
        .def(nb::init<const Spec &, const Shape &, const Layout &, std::shared_ptr<Future>>(), "spec"_a, "shape"_a,
             "layout"_a, "future"_a = nb::none())
        .def("request_began", &Evictor::request_began)
        .def("sequence_began", &Evictor::sequence_began, "sequence"_a)
        .def("pass_began", &Evictor::pass_began, "phase"_a)
        .def("routed", &Evictor::routed, "layer"_a, "ids"_a, "weights"_a = std::vector<float>{},
             "sequences"_a = std::vector<int32_t>{},
             "ids: the experts of all tokens of the pass, [n_token * n_expert_used].")
        .def("forecast", &Evictor::forecast, "layer"_a, "experts"_a, "scores"_a = std::vector<float>{})
        .def("disappointed", &Evictor::disappointed, "layer"_a, "expert"_a)
        .def("keep", &Evictor::keep, "layer"_a, "part"_a, "expert"_a, "Return the score; the lowest is evicted first.");
}

}  // namespace outrider
