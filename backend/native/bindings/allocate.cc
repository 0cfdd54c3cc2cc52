// Allocations, and MoEpic's statistics and configurator. Names are those of C++.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "core/allocate/moepic_configurator.h"
#include "core/allocate/registry.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

using State = MoepicStatistics::State;

template <typename T>
nb::object copy_of(const std::vector<T> & values) {
    T * memory = new T[values.size()];
    std::copy(values.begin(), values.end(), memory);
    const nb::capsule owner(memory, [](void * p) noexcept { delete[] static_cast<T *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(memory, {values.size()}, owner));
}

template <typename T>
void take(nb::dict state, const char * key, std::vector<T> & values) {
    if (!state.contains(key)) {
        throw nb::value_error((std::string("The statistics have no ") + key).c_str());
    }
    const auto array = nb::cast<nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(state[key]);
    values.assign(array.data(), array.data() + array.size());
}

nb::dict state_of(const MoepicStatistics & statistics) {
    const State & state = statistics.state();
    nb::dict all;
    all["used"] = copy_of(state.used);
    all["last"] = copy_of(state.last);
    all["clock"] = copy_of(state.clock);
    all["n_judged"] = copy_of(state.n_judged);
    all["found"] = copy_of(state.found);
    all["right"] = copy_of(state.right);
    all["resident"] = copy_of(state.resident);
    return all;
}

void restore(MoepicStatistics & statistics, nb::dict all) {
    State state;
    take(all, "used", state.used);
    take(all, "last", state.last);
    take(all, "clock", state.clock);
    take(all, "n_judged", state.n_judged);
    take(all, "found", state.found);
    take(all, "right", state.right);
    take(all, "resident", state.resident);
    statistics.restore(std::move(state));
}

void bind_statistics(nb::module_ & m) {
    nb::class_<MoepicStatistics>(m, "MoepicStatistics", "MoEpic's statistics of a model's routing.")
        .def(nb::init<int32_t, int32_t>(), "n_layer"_a, "n_expert"_a)
        .def(
            "routed",
            [](MoepicStatistics & self, Layer layer, const std::vector<Expert> & ids, int32_t n_token) {
                self.routed({layer, n_token, ids});
            },
            "layer"_a, "ids"_a, "n_token"_a = 1)
        .def(
            "forecast",
            [](MoepicStatistics & self, Layer layer, std::vector<Expert> experts) {
                self.forecast({layer, std::move(experts)});
            },
            "layer"_a, "experts"_a)
        .def_prop_ro("n_layer", &MoepicStatistics::n_layer)
        .def_prop_ro("n_expert", &MoepicStatistics::n_expert)
        .def_prop_ro("n_rank", &MoepicStatistics::n_rank)
        .def_prop_ro("n_token", &MoepicStatistics::n_token)
        .def("hit_rate", &MoepicStatistics::hit_rate, "layer"_a, "n_cached"_a)
        .def("accuracy", &MoepicStatistics::accuracy, "layer"_a, "rank"_a)
        .def("predicted_hit_rate", &MoepicStatistics::predicted_hit_rate, "layer"_a, "rank"_a, "n_cached"_a)
        .def("ranked", &MoepicStatistics::ranked, "layer"_a, "The layer's experts by descending priority.")
        .def(
            "reuse", [](const MoepicStatistics & self) { return copy_of(self.reuse()); },
            "float32 [n_layer * n_expert]: requests that are hits with c + 1 slots and not with c.")
        .def("state", &state_of, "Return the statistics as flat arrays.")
        .def("restore", &restore, "state"_a, "Restore the result of state(). Raises ValueError if it does not fit.");
}

}  // namespace

void bind_allocate(nb::module_ & m) {
    m.def(
        "allocate", &allocate, "spec"_a, "shape"_a, "n_slot"_a,
        "Return slots in the memory of n_slot experts per layer. Raises ValueError for an unknown name or numbers out "
        "of range.");
    m.def("allocation_names", &allocation_names);

    bind_statistics(m);
    nb::class_<MoepicTimes>(m, "MoepicTimes", "Measured times of the machine, in microseconds for one token.")
        .def(
            "__init__",
            [](MoepicTimes * self, double expert_us, double layer_us, double head_us, double chunk_us, double byte_us,
               double cut_us) { new (self) MoepicTimes{expert_us, layer_us, head_us, chunk_us, byte_us, cut_us}; },
            "expert_us"_a, "layer_us"_a, "head_us"_a = 0.0, "chunk_us"_a = 0.0, "byte_us"_a = 0.0, "cut_us"_a = 0.0)
        .def_ro("expert_us", &MoepicTimes::expert_us)
        .def_ro("layer_us", &MoepicTimes::layer_us)
        .def_ro("head_us", &MoepicTimes::head_us)
        .def_ro("chunk_us", &MoepicTimes::chunk_us)
        .def_ro("byte_us", &MoepicTimes::byte_us)
        .def_ro("cut_us", &MoepicTimes::cut_us);
    nb::class_<MoepicConfiguration>(m, "MoepicConfiguration")
        .def_ro("budget_bytes", &MoepicConfiguration::budget_bytes)
        .def_ro("top_share", &MoepicConfiguration::top_share)
        .def_ro("n_slot", &MoepicConfiguration::n_slot)
        .def_ro("stall_us", &MoepicConfiguration::stall_us)
        .def_ro("n_step", &MoepicConfiguration::n_step)
        .def_ro("layout", &MoepicConfiguration::layout);
    m.def("moepic_configure", &moepic_configure, "statistics"_a, "shape"_a, "times"_a, "budget_bytes"_a,
          "granularity"_a = 0.01, nb::call_guard<nb::gil_scoped_release>());
    m.def("moepic_stall_us", &moepic_stall_us, "statistics"_a, "shape"_a, "times"_a, "layout"_a);
    m.def("moepic_judge", &moepic_judge, "statistics"_a, "shape"_a, "times"_a, "layer"_a, "n_cached"_a, "top_share"_a,
          "window_us"_a);
    nb::class_<MoepicCut>(m, "MoepicCut")
        .def_ro("top_share", &MoepicCut::top_share)
        .def_ro("n_cached", &MoepicCut::n_cached)
        .def_ro("ready", &MoepicCut::ready)
        .def_ro("stall_us", &MoepicCut::stall_us);
    m.def("moepic_cut", &moepic_cut, "statistics"_a, "shape"_a, "times"_a, "layer"_a, "budget_bytes"_a, "window_us"_a);
}

}  // namespace outrider
