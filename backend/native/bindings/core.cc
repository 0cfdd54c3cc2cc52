// The core, for tests and tools: the same object that the live engine owns.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "../core/allocate/uniform.h"
#include "../core/core.h"
#include "../core/predict/next_router.h"
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Keeps the routers' memory beside the predictor that refers to it.
class OwningNextRouter final : public Predictor {
  public:
    OwningNextRouter(int32_t n_embd, int32_t n_expert, std::vector<std::vector<float>> routers)
        : memory_(std::move(routers)),
          predictor_(n_embd, n_expert, std::vector<std::span<const float>>(memory_.begin(), memory_.end())) {}

    Forecast predict(Layer layer, std::span<const float> input, int32_t n_token, int32_t n_predict) override {
        return predictor_.predict(layer, input, n_token, n_predict);
    }

  private:
    std::vector<std::vector<float>> memory_;
    NextRouter predictor_;
};

std::unique_ptr<Core> make_core(const Shape & shape, std::vector<int32_t> n_slot, OrderedOptions schedule,
                                int32_t n_predict, const std::vector<Matrix> & routers, double min_precision) {
    std::unique_ptr<Predictor> predictor;
    if (!routers.empty()) {
        std::vector<std::vector<float>> copies;
        for (const Matrix & r : routers) {
            copies.emplace_back(r.data(), r.data() + r.size());
        }
        predictor = std::make_unique<OwningNextRouter>(int32_t(routers[0].shape(1)), shape.n_expert, std::move(copies));
    }
    return std::make_unique<Core>(shape, std::move(n_slot), CoreOptions{schedule, n_predict, min_precision},
                                  std::move(predictor));
}

const char * name_of(SlotState s) {
    switch (s) {
        case SlotState::free: return "free";
        case SlotState::pending: return "pending";
        case SlotState::ready: return "ready";
        case SlotState::quarantined: return "quarantined";
    }
    return "";
}

}  // namespace

void bind_core(nb::module_ & m) {
    nb::enum_<Phase>(m, "Phase").value("prefill", Phase::prefill).value("decode", Phase::decode);
    nb::enum_<Urgency>(m, "Urgency").value("low", Urgency::low).value("high", Urgency::high);

    nb::class_<Copy>(m, "Copy")
        .def_ro("ticket", &Copy::ticket)
        .def_ro("layer", &Copy::layer)
        .def_ro("expert", &Copy::expert)
        .def_ro("chunk", &Copy::chunk)
        .def_ro("slot", &Copy::slot)
        .def_ro("urgency", &Copy::urgency);
    nb::class_<Cancel>(m, "Cancel").def_ro("ticket", &Cancel::ticket);
    nb::class_<Order>(m, "Order").def_ro("layer", &Order::layer).def_ro("experts", &Order::experts);
    nb::class_<Compute>(m, "Compute")
        .def_ro("layer", &Compute::layer)
        .def_ro("expert", &Compute::expert)
        .def_ro("slot", &Compute::slot);
    nb::class_<GiveUp>(m, "GiveUp").def_ro("layer", &GiveUp::layer).def_ro("expert", &GiveUp::expert);
    m.attr("WHOLE_EXPERT") = whole_expert;

    nb::class_<Shape>(m, "Shape")
        .def(
            "__init__",
            [](Shape * self, int32_t n_expert, int32_t n_expert_used, std::vector<std::vector<uint64_t>> chunk_bytes) {
                new (self) Shape{int32_t(chunk_bytes.size()), n_expert, n_expert_used, std::move(chunk_bytes)};
            },
            "n_expert"_a, "n_expert_used"_a, "chunk_bytes"_a)
        .def_ro("n_layer", &Shape::n_layer)
        .def_ro("n_expert", &Shape::n_expert)
        .def_ro("n_expert_used", &Shape::n_expert_used)
        .def_ro("chunk_bytes", &Shape::chunk_bytes);

    nb::class_<OrderedOptions>(m, "OrderedOptions")
        .def(
            "__init__",
            [](OrderedOptions * self, bool chunks, bool early_preemption, bool reorder) {
                new (self) OrderedOptions{chunks, early_preemption, reorder};
            },
            "chunks"_a = true, "early_preemption"_a = true, "reorder"_a = true)
        .def_rw("chunks", &OrderedOptions::chunks)
        .def_rw("early_preemption", &OrderedOptions::early_preemption)
        .def_rw("reorder", &OrderedOptions::reorder);

    nb::class_<LayerCounts>(m, "LayerCounts")
        .def_ro("hits", &LayerCounts::hits)
        .def_ro("late", &LayerCounts::late)
        .def_ro("misses", &LayerCounts::misses)
        .def_ro("bytes_read", &LayerCounts::bytes_read)
        .def_ro("bytes_useful", &LayerCounts::bytes_useful)
        .def_ro("bytes_wasted", &LayerCounts::bytes_wasted)
        .def_ro("prefetches", &LayerCounts::prefetches)
        .def_ro("prefetches_useful", &LayerCounts::prefetches_useful)
        .def_ro("prefetches_wasted", &LayerCounts::prefetches_wasted);

    m.def("allocate_uniform", &allocate_uniform, "shape"_a, "cache_rate"_a);

    nb::class_<Core>(m, "Core")
        .def(nb::new_(&make_core), "shape"_a, "n_slot"_a, "schedule"_a = OrderedOptions{}, "n_predict"_a = 0,
             "routers"_a = std::vector<Matrix>{}, "min_precision"_a = 0.0)
        .def("pass_began", &Core::pass_began, "phase"_a)
        .def(
            "routed", [](Core & c, Layer layer, const std::vector<Expert> & ids) { return c.routed(layer, ids); },
            "layer"_a, "ids"_a)
        .def(
            "gate_seen",
            [](Core & c, Layer layer, Matrix input) {
                return c.gate_seen(layer, {input.data(), input.size()}, int32_t(input.shape(0)));
            },
            "layer"_a, "input"_a)
        .def(
            "predicted",
            [](Core & c, Layer layer, std::vector<Expert> experts) { return c.predicted({layer, std::move(experts)}); },
            "layer"_a, "experts"_a)
        .def("copied", &Core::copied, "ticket"_a)
        .def("cancelled", &Core::cancelled, "ticket"_a)
        .def("failed", &Core::failed, "ticket"_a)
        .def("computed", &Core::computed, "layer"_a, "expert"_a)
        .def("aborted", &Core::aborted)
        .def("idle", &Core::idle)
        .def(
            "counts", [](const Core & c, Layer layer) { return c.residency().counts(layer); }, "layer"_a)
        .def(
            "slots",
            [](const Core & c, Layer layer) {
                nb::list all;
                for (Slot s = 0; s < c.residency().n_slot(layer); s++) {
                    const SlotInfo & i = c.residency().at(layer, s);
                    all.append(nb::make_tuple(name_of(i.state), i.expert, i.pinned));
                }
                return all;
            },
            "layer"_a, "(state, expert or -1, pinned) of every slot of a layer.")
        .def(
            "check", [](const Core & c) { c.residency().check(); }, "Aborts the process if an invariant is broken.")
        .def("snapshot", [](const Core & c) {
            const auto bytes = c.snapshot();
            return nb::bytes(bytes.data(), bytes.size());
        });
}

}  // namespace outrider
