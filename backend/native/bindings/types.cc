// The core and its vocabulary, for the engine, tests and tools.
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>

#include "bindings/bindings.h"
#include "core/allocate/moepic_statistics.h"
#include "core/copy_schedule.h"
#include "core/core.h"
#include "core/event_log.h"
#include "core/evict/registry.h"
#include "core/schedule/registry.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<const Array> array_of(const Floats & values) {
    auto array = std::make_shared<Array>();
    for (size_t i = 0; i < values.ndim(); i++) {
        array->shape.push_back(int64_t(values.shape(i)));
    }
    array->values.assign(values.data(), values.data() + values.size());
    return array;
}

// A core with the routers and tables that it refers to.
struct OwnedCore {
    std::vector<std::vector<float>> routers;
    std::vector<std::vector<Expert>> tables;
    Core core;

    OwnedCore(const Shape & shape, const Layout & layout, const Composition & composition, int32_t n_embd,
              std::vector<std::vector<float>> router_copies, std::shared_ptr<const Future> future,
              std::shared_ptr<MoepicStatistics> statistics, std::vector<int32_t> n_host_slot,
              std::vector<RouterBias> biases, std::vector<std::vector<Expert>> token_experts)
        : routers(std::move(router_copies)),
          tables(std::move(token_experts)),
          core(Surroundings{shape,
                            layout,
                            n_embd,
                            {routers.begin(), routers.end()},
                            std::move(future),
                            std::move(statistics),
                            std::move(biases),
                            {tables.begin(), tables.end()}},
               composition, std::move(n_host_slot)) {}

    Commands handle(const Event & event) {
        Commands out;
        core.handle(event, out);
        return out;
    }
};

const char * name_of(SlotState s) {
    switch (s) {
        case SlotState::free: return "free";
        case SlotState::pending: return "pending";
        case SlotState::ready: return "ready";
        case SlotState::quarantined: return "quarantined";
    }
    return "";
}

void bind_commands(nb::module_ & m) {
    nb::class_<Copy>(m, "Copy")
        .def_ro("ticket", &Copy::ticket)
        .def_ro("layer", &Copy::layer)
        .def_ro("expert", &Copy::expert)
        .def_ro("part", &Copy::part)
        .def_ro("chunk", &Copy::chunk)
        .def_ro("slot", &Copy::slot)
        .def_ro("urgency", &Copy::urgency)
        .def_ro("route", &Copy::route)
        .def_ro("from_slot", &Copy::from_slot);
    nb::class_<Cancel>(m, "Cancel").def_ro("ticket", &Cancel::ticket);
    nb::class_<Withdraw>(m, "Withdraw").def_ro("layer", &Withdraw::layer).def_ro("expert", &Withdraw::expert);
    nb::class_<Order>(m, "Order").def_ro("layer", &Order::layer).def_ro("experts", &Order::experts);
    nb::class_<Compute>(m, "Compute")
        .def_ro("layer", &Compute::layer)
        .def_ro("expert", &Compute::expert)
        .def_ro("part", &Compute::part)
        .def_ro("slot", &Compute::slot);
    nb::class_<GiveUp>(m, "GiveUp").def_ro("layer", &GiveUp::layer).def_ro("expert", &GiveUp::expert);
    m.attr("WHOLE_EXPERT") = whole_expert;
}

void bind_shapes(nb::module_ & m) {
    nb::class_<Shape>(m, "Shape")
        .def(
            "__init__",
            [](Shape * self, int32_t n_expert, int32_t n_expert_used, std::vector<std::vector<uint64_t>> chunk_bytes,
               std::vector<int32_t> n_cut, std::vector<int32_t> kind, std::vector<int32_t> n_used) {
                const auto fits = [&](int32_t n) { return n >= 1 && n <= n_expert_used; };
                if (!n_used.empty() && (n_used.size() != chunk_bytes.size() || !std::ranges::all_of(n_used, fits))) {
                    throw nb::value_error("every layer uses 1 to n_expert_used experts");
                }
                new (self) Shape{int32_t(chunk_bytes.size()),
                                 n_expert,
                                 n_expert_used,
                                 std::move(chunk_bytes),
                                 std::move(n_cut),
                                 std::move(kind),
                                 std::move(n_used)};
            },
            "n_expert"_a, "n_expert_used"_a, "chunk_bytes"_a, "n_cut"_a = std::vector<int32_t>{},
            "kind"_a = std::vector<int32_t>{}, "n_used"_a = std::vector<int32_t>{})
        .def_ro("n_layer", &Shape::n_layer)
        .def_ro("n_expert", &Shape::n_expert)
        .def_ro("n_expert_used", &Shape::n_expert_used)
        .def_ro("chunk_bytes", &Shape::chunk_bytes)
        .def_ro("n_cut", &Shape::n_cut)
        .def_ro("kind", &Shape::kind)
        .def_ro("n_used", &Shape::n_used)
        .def("used", &Shape::used, "layer"_a)
        .def("expert_bytes", &Shape::expert_bytes, "layer"_a)
        .def("cuts", &Shape::cuts, "layer"_a);

    nb::class_<PoolLayout>(m, "PoolLayout")
        .def(
            "__init__", [](PoolLayout * self, int32_t n_slot, bool buffer) { new (self) PoolLayout{n_slot, buffer}; },
            "n_slot"_a, "buffer"_a = false)
        .def_ro("n_slot", &PoolLayout::n_slot)
        .def_ro("buffer", &PoolLayout::buffer);
    nb::class_<LayerLayout>(m, "LayerLayout")
        .def(
            "__init__",
            [](LayerLayout * self, double top_share, std::array<Pool, 2> pool) {
                new (self) LayerLayout{top_share, pool};
            },
            "top_share"_a, "pool"_a)
        .def_ro("top_share", &LayerLayout::top_share)
        .def_ro("pool", &LayerLayout::pool)
        .def_ro("stage", &LayerLayout::stage)
        .def_prop_ro("is_cut", &LayerLayout::is_cut);
    nb::class_<Layout>(m, "Layout")
        .def(
            "__init__",
            [](Layout * self, std::vector<PoolLayout> pools, std::vector<LayerLayout> layers) {
                new (self) Layout{std::move(pools), std::move(layers)};
            },
            "pools"_a, "layers"_a)
        .def_static("per_layer", &Layout::per_layer, "n_slot"_a)
        .def_ro("pools", &Layout::pools)
        .def_ro("layers", &Layout::layers)
        .def("staged", &Layout::staged, "shape"_a, "n_slot"_a)
        .def("bytes", &Layout::bytes, "shape"_a)
        .def("stage_bytes", &Layout::stage_bytes, "shape"_a)
        .def("any_cut", &Layout::any_cut)
        .def("validate", &Layout::validate, "shape"_a);
}

void bind_specs(nb::module_ & m) {
    nb::class_<Spec>(m, "Spec")
        .def(
            "__init__",
            [](Spec * self, std::string name, std::map<std::string, double> numbers,
               const std::map<std::string, Floats> & arrays) {
                new (self) Spec{std::move(name), std::move(numbers), {}};
                for (const auto & [key, values] : arrays) {
                    self->arrays.emplace(key, array_of(values));
                }
            },
            "name"_a = "", "numbers"_a = std::map<std::string, double>{}, "arrays"_a = std::map<std::string, Floats>{})
        .def_ro("name", &Spec::name)
        .def_ro("numbers", &Spec::numbers);

    nb::class_<Composition>(m, "Composition")
        .def(
            "__init__",
            [](Composition * self, Spec predictor, std::vector<Spec> evictions, Spec prefill, Spec decode,
               int32_t n_predict, int32_t n_fetch, int32_t depth, bool weighs, bool prefill_prefetch, Hybrid hybrid) {
                new (self) Composition{std::move(predictor),
                                       std::move(evictions),
                                       std::move(prefill),
                                       std::move(decode),
                                       n_predict,
                                       n_fetch,
                                       depth,
                                       weighs,
                                       prefill_prefetch,
                                       hybrid};
            },
            "predictor"_a = Spec{}, "evictions"_a = std::vector<Spec>{{"lru"}}, "prefill"_a = Spec{"ordered"},
            "decode"_a = Spec{"ordered"}, "n_predict"_a = 0, "n_fetch"_a = 0, "depth"_a = 1, "weighs"_a = false,
            "prefill_prefetch"_a = true, "hybrid"_a = Hybrid::off)
        .def_ro("n_predict", &Composition::n_predict)
        .def_ro("depth", &Composition::depth)
        .def_rw("hybrid", &Composition::hybrid);

    nb::class_<Tuning>(m, "Tuning")
        .def(
            "__init__",
            [](Tuning * self, bool prefetch, int32_t depth, double copy_cost, int32_t eviction) {
                new (self) Tuning{prefetch, depth, copy_cost, eviction};
            },
            "prefetch"_a = true, "depth"_a = 1, "copy_cost"_a = Tuning{}.copy_cost, "eviction"_a = 0)
        .def_rw("prefetch", &Tuning::prefetch)
        .def_rw("depth", &Tuning::depth)
        .def_rw("copy_cost", &Tuning::copy_cost)
        .def_rw("eviction", &Tuning::eviction);
    m.def("scheduler_names", &scheduler_names);
    m.def("eviction_names", &eviction_names);

    nb::class_<Future>(m, "Future", "All routings of a trace in advance.")
        .def(nb::init<>())
        .def(
            "append",
            [](Future & self, Phase phase, std::vector<int32_t> tokens, bool begins_request,
               nb::ndarray<const int32_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> ids,
               const std::vector<int32_t> & n_routed, std::vector<int32_t> sequences,
               const std::vector<int32_t> & n_used) {
                const size_t n_layer = ids.shape(0), n_token = ids.shape(1), k = ids.shape(2);
                if ((!n_routed.empty() && n_routed.size() != n_layer) ||
                    (!n_used.empty() && n_used.size() != n_layer)) {
                    throw nb::value_error("n_routed and n_used are given for every layer or not at all");
                }
                Future::Pass pass{phase, int32_t(n_token), begins_request, std::move(tokens), std::move(sequences), {}};
                for (size_t l = 0; l < n_layer; l++) {
                    const int32_t * end = ids.data() + (l + 1) * n_token * k;
                    const size_t n = n_routed.empty() ? n_token : size_t(n_routed[l]);
                    if (n > n_token) {
                        throw nb::value_error("a layer cannot route more tokens than the pass has");
                    }
                    const size_t used = n_used.empty() ? k : std::min(size_t(std::max(n_used[l], 0)), k);
                    auto & of_layer = pass.ids.emplace_back();
                    for (const int32_t * row = end - n * k; row != end; row += k) {
                        of_layer.insert(of_layer.end(), row, row + used);
                    }
                }
                self.passes.push_back(std::move(pass));
            },
            "phase"_a, "tokens"_a, "begins_request"_a, "ids"_a, "n_routed"_a = std::vector<int32_t>{},
            "sequences"_a = std::vector<int32_t>{}, "n_used"_a = std::vector<int32_t>{},
            "ids: int32 [n_layer, n_token, n_expert_used]; a layer keeps its last n_routed rows, and the first n_used "
            "of each (empty: all).")
        .def("__len__", [](const Future & self) { return self.passes.size(); });
}

void bind_host_share(nb::module_ & m) {
    nb::enum_<Hybrid>(m, "Hybrid")
        .value("off", Hybrid::off)
        .value("by_speed", Hybrid::by_speed)
        .value("host_only", Hybrid::host_only);
    nb::class_<HostSpeeds>(m, "HostSpeeds")
        .def(
            "__init__",
            [](HostSpeeds * self, bool possible, int32_t n_copy, double link_us_per_byte, double host_us,
               double host_us_per_byte, double host_row_us_per_byte, double device_us_per_byte,
               double device_row_us_per_byte, double device_times) {
                new (self) HostSpeeds{possible,           n_copy,
                                      link_us_per_byte,   host_us,
                                      host_us_per_byte,   host_row_us_per_byte,
                                      device_us_per_byte, device_row_us_per_byte,
                                      device_times};
            },
            "possible"_a = true, "n_copy"_a = 1, "link_us_per_byte"_a = 0.0, "host_us"_a = 0.0,
            "host_us_per_byte"_a = 0.0, "host_row_us_per_byte"_a = 0.0, "device_us_per_byte"_a = 0.0,
            "device_row_us_per_byte"_a = 0.0, "device_times"_a = 1.0)
        .def_ro("possible", &HostSpeeds::possible)
        .def_ro("n_copy", &HostSpeeds::n_copy)
        .def_ro("link_us_per_byte", &HostSpeeds::link_us_per_byte)
        .def_ro("host_us", &HostSpeeds::host_us)
        .def_ro("host_us_per_byte", &HostSpeeds::host_us_per_byte)
        .def_ro("host_row_us_per_byte", &HostSpeeds::host_row_us_per_byte)
        .def_ro("device_us_per_byte", &HostSpeeds::device_us_per_byte)
        .def_ro("device_row_us_per_byte", &HostSpeeds::device_row_us_per_byte)
        .def_ro("device_times", &HostSpeeds::device_times);
    m.def(
        "host_share",
        [](Hybrid hybrid, const HostSpeeds & speeds, const std::vector<std::array<int64_t, 3>> & missing,
           double compute_us, double copy_us) {
            std::vector<Missing> all;
            for (const auto & [bytes, bytes_left, n_row] : missing) {
                all.push_back({uint64_t(bytes), uint64_t(bytes_left), int32_t(n_row)});
            }
            return host_share(hybrid, speeds, all, {compute_us, copy_us}).on_host;
        },
        "hybrid"_a, "speeds"_a, "missing"_a, "compute_us"_a = 0.0, "copy_us"_a = 0.0,
        "Of missing experts, each (bytes, bytes that have not arrived, rows), which the host computes.");
}

void bind_log(nb::module_ & m) {
    nb::class_<CopyRule>(m, "CopyRule", "When copies end, counted in events (core/copy_schedule.h). For tests.")
        .def(
            "__init__",
            [](CopyRule * self, uint64_t seed, int32_t n_event, double failing, std::vector<uint64_t> stops) {
                if (n_event < 0) {
                    throw nb::value_error("n_event is 0 or more");
                }
                new (self) CopyRule{seed, n_event, failing, std::move(stops)};
            },
            "seed"_a = uint64_t(0), "n_event"_a = 0, "failing"_a = 0.0, "stops"_a = std::vector<uint64_t>{});
    nb::class_<EventLog>(m, "EventLog")
        .def(nb::init<>())
        .def("__len__", [](const EventLog & log) { return log.entries().size(); })
        .def(
            "describe",
            [](const EventLog & log, size_t i) {
                if (i >= log.entries().size()) {
                    throw nb::index_error();
                }
                std::vector<std::string> lines{describe(log.entries()[i].event)};
                for (const Command & c : log.entries()[i].commands) {
                    lines.push_back("  " + describe(c));
                }
                return lines;
            },
            "index"_a, "The event, and indented the commands that followed.");
    m.def(
        "replay", [](const EventLog & log, OwnedCore & core) { return replay(log, core.core); }, "log"_a, "core"_a,
        "Index of the first entry whose commands are others, or -1.", nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

Core & core_of(nb::handle core) { return nb::cast<OwnedCore &>(core).core; }

void bind_types(nb::module_ & m) {
    nb::enum_<Phase>(m, "Phase").value("prefill", Phase::prefill).value("decode", Phase::decode);
    nb::enum_<Urgency>(m, "Urgency")
        .value("low", Urgency::low)
        .value("spare", Urgency::spare)
        .value("high", Urgency::high);
    nb::enum_<Part>(m, "Part").value("top", Part::top).value("bottom", Part::bottom).value("staged", Part::staged);
    nb::enum_<Route>(m, "Route")
        .value("file_to_slot", Route::file_to_slot)
        .value("file_to_host", Route::file_to_host)
        .value("host_to_slot", Route::host_to_slot);
    nb::enum_<Cell::Bits>(m, "Cell", nb::is_arithmetic(), "Bits of a cell of a snapshot.")
        .value("ABSENT", Cell::absent)
        .value("RESIDENT", Cell::resident)
        .value("ARRIVING", Cell::arriving)
        .value("HIT", Cell::hit)
        .value("LATE", Cell::late)
        .value("MISS", Cell::miss)
        .value("PINNED", Cell::pinned)
        .value("ON_HOST", Cell::on_host);
    bind_commands(m);
    bind_shapes(m);
    bind_host_share(m);
    bind_specs(m);

    nb::class_<LayerCounts> layer_counts(m, "LayerCounts");
    for (const auto & [name, field] : counters) {
        layer_counts.def_ro(name, field);
    }

    nb::class_<HostCounts>(m, "HostCounts", "Bytes of a layer that the host's store moved.")
        .def_ro("bytes_read", &HostCounts::bytes_read, "From the file into the store.")
        .def_ro("bytes_found", &HostCounts::bytes_found, "From the store into slots; they were there.")
        .def_ro("bytes_awaited", &HostCounts::bytes_awaited, "The same; the file was waited for.");

    nb::class_<RouterBias>(m, "RouterBias", "How a router's products become a choice (core/spec.h).")
        .def(
            "__init__",
            [](RouterBias * self, std::vector<float> added, std::vector<float> selected, bool sigmoid) {
                new (self) RouterBias{std::move(added), std::move(selected), sigmoid};
            },
            "added"_a = std::vector<float>{}, "selected"_a = std::vector<float>{}, "sigmoid"_a = false)
        .def_ro("added", &RouterBias::added)
        .def_ro("selected", &RouterBias::selected)
        .def_ro("sigmoid", &RouterBias::sigmoid);

    nb::class_<OwnedCore>(m, "Core")
        .def(
            "__init__",
            [](OwnedCore * self, const Shape & shape, const Layout & layout, const Composition & composition,
               int32_t n_embd, const std::vector<Matrix> & routers, std::shared_ptr<Future> future,
               std::shared_ptr<MoepicStatistics> statistics, std::vector<int32_t> host_slots,
               std::vector<RouterBias> biases, const std::vector<Table> & token_experts) {
                std::vector<std::vector<float>> copies;
                std::vector<std::vector<Expert>> tables;
                for (const Table & t : token_experts) {
                    tables.emplace_back(t.data(), t.data() + t.size());
                }
                for (const Matrix & r : routers) {
                    copies.emplace_back(r.data(), r.data() + r.size());
                }
                if (n_embd == 0 && !routers.empty()) {
                    n_embd = int32_t(routers[0].shape(1));
                }
                new (self)
                    OwnedCore(shape, layout, composition, n_embd, std::move(copies), std::move(future),
                              std::move(statistics), std::move(host_slots), std::move(biases), std::move(tables));
            },
            "shape"_a, "layout"_a, "composition"_a = Composition{{}, {{"lru"}}, {"ordered"}, {"ordered"}},
            "n_embd"_a = 0, "routers"_a = std::vector<Matrix>{}, "future"_a = nb::none(), "statistics"_a = nb::none(),
            "host_slots"_a = std::vector<int32_t>{}, "biases"_a = std::vector<RouterBias>{},
            "token_experts"_a = std::vector<Table>{})
        .def(
            "request_began", [](OwnedCore & c, int32_t sequence) { c.core.handle(RequestBegan{sequence}); },
            "sequence"_a = 0)
        .def(
            "tune", [](OwnedCore & c, const Tuning & tuning) { c.core.handle(Tuned{tuning}); }, "tuning"_a)
        .def(
            "measured", [](OwnedCore & c, const std::vector<HostSpeeds> & speeds) { c.core.handle(Measured{speeds}); },
            "speeds"_a, "[layer]: present speeds.")
        .def(
            "pass_began",
            [](OwnedCore & c, Phase phase, const std::vector<int32_t> & tokens,
               const std::vector<int32_t> & sequences) { return c.handle(PassBegan{phase, tokens, sequences}); },
            "phase"_a, "tokens"_a = std::vector<int32_t>{}, "sequences"_a = std::vector<int32_t>{})
        .def(
            "reached", [](OwnedCore & c, Layer layer) { return c.handle(Reached{layer}); }, "layer"_a)
        .def(
            "routed",
            [](OwnedCore & c, Layer layer, const std::vector<Expert> & ids, const std::vector<float> & weights) {
                const auto n_token = int32_t(ids.size()) / std::max(1, c.core.shape().used(layer));
                return c.handle(Routed{{layer, n_token, ids, weights}});
            },
            "layer"_a, "ids"_a, "weights"_a = std::vector<float>{})
        .def(
            "gate_seen",
            [](OwnedCore & c, Layer layer, Matrix input) {
                return c.handle(GateSeen{layer, {input.data(), input.size()}, int32_t(input.shape(0))});
            },
            "layer"_a, "input"_a)
        .def(
            "stocked",
            [](OwnedCore & c, Layer layer, const std::vector<Expert> & experts, const std::vector<Expert> & wanted) {
                return c.handle(Stocked{layer, experts, wanted});
            },
            "layer"_a, "experts"_a, "wanted"_a = std::vector<Expert>{},
            "Between answers: fetch these experts into the layer's free slots, or for those that are not wanted.")
        .def(
            "kept",
            [](OwnedCore & c, Layer layer, Expert expert, Slot slot, bool in_store) {
                return c.handle(Kept{layer, expert, slot, in_store});
            },
            "layer"_a, "expert"_a, "slot"_a = none, "in_store"_a = false,
            "Before the first pass: the driver has this expert from an earlier cache.")
        .def(
            "predicted",
            [](OwnedCore & c, Layer layer, std::vector<Expert> experts, std::vector<float> scores) {
                return c.handle(Predicted{{layer, std::move(experts), std::move(scores)}});
            },
            "layer"_a, "experts"_a, "scores"_a = std::vector<float>{})
        .def(
            "copied", [](OwnedCore & c, Ticket ticket) { return c.handle(Copied{ticket}); }, "ticket"_a)
        .def(
            "cancelled", [](OwnedCore & c, Ticket ticket) { return c.handle(Cancelled{ticket}); }, "ticket"_a)
        .def(
            "failed", [](OwnedCore & c, Ticket ticket) { return c.handle(Failed{ticket}); }, "ticket"_a)
        .def(
            "computed",
            [](OwnedCore & c, Layer layer, Expert expert, Part part) {
                return c.handle(Computed{layer, expert, part});
            },
            "layer"_a, "expert"_a, "part"_a = Part::top)
        .def(
            "withdrawn", [](OwnedCore & c, Layer layer, Expert expert) { return c.handle(Withdrawn{layer, expert}); },
            "layer"_a, "expert"_a)
        .def(
            "caught_up", [](OwnedCore & c, double us) { return c.handle(CaughtUp{us}); }, "us"_a,
            "The core knows all that happened up to this many microseconds after the layer was routed.")
        .def("aborted", [](OwnedCore & c) { return c.handle(Aborted{}); })
        .def(
            "unasked", [](OwnedCore & c, Layer layer, int32_t n_token) { return c.handle(Unasked{layer, n_token}); },
            "layer"_a, "n_token"_a)
        .def(
            "may_skip", [](const OwnedCore & c, Layer layer) { return c.core.may_skip(layer); }, "layer"_a)
        .def("idle", [](const OwnedCore & c) { return c.core.idle(); })
        .def("wants_gate_input", [](const OwnedCore & c) { return c.core.wants_gate_input(); })
        .def(
            "counts", [](const OwnedCore & c, Layer layer) { return c.core.residency().counts(layer); }, "layer"_a)
        .def(
            "slots",
            [](const OwnedCore & c, Pool pool) {
                nb::list all;
                for (Slot s = 0; s < c.core.residency().n_slot(pool); s++) {
                    const SlotInfo & i = c.core.residency().at(pool, s);
                    all.append(nb::make_tuple(name_of(i.state), i.layer, i.part, i.expert, i.pinned));
                }
                return all;
            },
            "pool"_a, "(state, layer or -1, part, expert or -1, pinned) of every slot of a pool.")
        .def(
            "host_counts",
            [](const OwnedCore & c, Layer layer) {
                return c.core.host() ? c.core.host()->counts(layer) : HostCounts{};
            },
            "layer"_a)
        .def(
            "in_host",
            [](const OwnedCore & c, Layer layer, Expert expert) {
                return c.core.host() && c.core.host()->find(layer, expert) != none;
            },
            "layer"_a, "expert"_a)
        .def(
            "check", [](const OwnedCore & c) { c.core.check(); }, "Aborts the process if an invariant is broken.")
        .def(
            "record", [](OwnedCore & c, EventLog * log) { c.core.record(log); }, "log"_a.none(), nb::keep_alive<1, 2>())
        .def("snapshot", [](const OwnedCore & c) {
            const auto bytes = c.core.snapshot();
            return nb::bytes(bytes.data(), bytes.size());
        });
    bind_log(m);
}

}  // namespace outrider
