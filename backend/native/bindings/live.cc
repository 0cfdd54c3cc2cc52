// The live engine. Pointers are passed as integers, for ctypes.
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <span>

#include "bindings/bindings.h"
#include "core/allocate/moepic_statistics.h"
#include "live/graph/forced_routing.h"
#include "live/graph/layer_check.h"
#include "live/memory/kv_on_drive.h"
#include "live/memory/layer_window.h"
#include "live/memory/slab.h"
#include "live/pass/patch.h"
#include "live/pass/stop_flag.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

// [layer]: a copy of (n_expert, n_embd), or (0, n_embd) if a router is unknown.
nb::list routers_of(const Patch & patch) {
    using Matrix = nb::ndarray<nb::numpy, const float, nb::ndim<2>>;
    const auto n_embd = size_t(patch.n_embd());
    nb::list all;
    for (const auto & router : patch.routers()) {
        auto * owned = new std::vector<float>(router);
        const nb::capsule owner(owned, [](void * p) noexcept { delete static_cast<std::vector<float> *>(p); });
        all.append(nb::cast(Matrix(owned->data(), {n_embd > 0 ? owned->size() / n_embd : 0, n_embd}, owner)));
    }
    return all;
}

// [layer]: [token id][Shape::used], without rows where the router is no table.
nb::list token_experts_of(const Patch & patch) {
    using Table = nb::ndarray<nb::numpy, const int32_t, nb::ndim<2>>;
    nb::list all;
    for (Layer l = 0; l < patch.shape().n_layer; l++) {
        auto * owned = new std::vector<Expert>(patch.token_experts()[size_t(l)]);
        const nb::capsule owner(owned, [](void * p) noexcept { delete static_cast<std::vector<Expert> *>(p); });
        const auto n_used = size_t(patch.shape().used(l));
        all.append(nb::cast(Table(owned->data(), {owned->size() / n_used, n_used}, owner)));
    }
    return all;
}

// The sums of the counters over the layers, and the times, by name; and of each layer (hits, late, misses, bytes_read,
// stall_us, on_host, host_rows). One call, because Python reads them after every token.
nb::tuple costs_of(Patch & patch) {
    std::vector<LayerCounts> counts;
    std::vector<HostCounts> host;
    std::vector<uint64_t> stalls_us;
    PatchTimes times;
    {
        const nb::gil_scoped_release release;
        counts = patch.counts();
        host = patch.host_counts();
        stalls_us = patch.stall_us_by_layer();
        times = patch.times();
    }
    nb::dict values;
    const auto sum_of = [&values](const char * name, const auto & layers, auto field) {
        uint64_t sum = 0;
        for (const auto & layer : layers) {
            sum += layer.*field;
        }
        values[name] = sum;
    };
    for (const auto & [name, field] : counters) {
        sum_of(name, counts, field);
    }
    sum_of("host_read", host, &HostCounts::bytes_read);
    sum_of("host_found", host, &HostCounts::bytes_found);
    sum_of("host_awaited", host, &HostCounts::bytes_awaited);
    values["stall_us"] = times.stall_us;
    values["wave_us"] = times.wave_us;
    values["callback_us"] = times.callback_us;
    values["link_busy_us"] = times.link_busy_us;
    values["link_idle_us"] = times.link_idle_us;
    nb::list rows;
    for (size_t i = 0; i < counts.size(); ++i) {
        const LayerCounts & c = counts[i];
        rows.append(nb::make_tuple(c.hits, c.late, c.misses, c.bytes_read, stalls_us[i], c.on_host, c.host_rows));
    }
    return nb::make_tuple(values, rows);
}

bool all_finite(uintptr_t address, size_t n) {
    bool finite = true;
    for (const float value : std::span(reinterpret_cast<const float *>(address), n)) {
        finite &= std::isfinite(value);  // no early exit, so that it is vectorised
    }
    return finite;
}

// SlotsTooLarge with its fields as attributes.
void bind_slots_too_large(nb::module_ & m) {
    const nb::object type = nb::steal(PyErr_NewException("backend._native.SlotsTooLarge", PyExc_RuntimeError, nullptr));
    m.attr("SlotsTooLarge") = type;
    nb::register_exception_translator(
        [](const std::exception_ptr & error, void * kind) {
            try {
                std::rethrow_exception(error);
            } catch (const SlotsTooLarge & e) {
                nb::object raised = nb::handle(static_cast<PyObject *>(kind))(e.what());
                raised.attr("tensor") = e.tensor;
                raised.attr("bytes") = e.bytes;
                raised.attr("device") = e.device;
                PyErr_SetObject(static_cast<PyObject *>(kind), raised.ptr());
            }
        },
        type.ptr());  // the module keeps it
}

}  // namespace

void bind_live(nb::module_ & m) {
    bind_slots_too_large(m);
    m.attr("NO_MEMORY") = no_memory;
    m.def("all_finite", &all_finite, "address"_a, "n"_a, "Whether the `n` floats at an address are finite.");
    nb::class_<PackSums>(m, "PackSums", "Checksums of a layer's experts in a pack, compared when they are read first.")
        .def(nb::init<std::string, int, uint64_t, std::vector<uint32_t>>(), "pack"_a, "layer"_a, "stride"_a, "sums"_a)
        .def(
            "add",
            [](PackSums & s, Expert expert, Chunk chunk, int32_t n_chunk, uint64_t place, const nb::bytes & bytes) {
                s.add(expert, chunk, n_chunk, place, {static_cast<const uint8_t *>(bytes.data()), bytes.size()});
            },
            "expert"_a, "chunk"_a, "n_chunk"_a, "place"_a, "bytes"_a)
        .def("is_right", &PackSums::is_right, "expert"_a);
    nb::class_<TensorPlace>(m, "TensorPlace")
        .def(
            "__init__",
            [](TensorPlace * self, size_t part, uint64_t offset, uint64_t stride, bool repacked, uint64_t in_range,
               std::shared_ptr<PackSums> sums, const std::vector<std::pair<size_t, uint64_t>> & stripes) {
                new (self) TensorPlace{part, offset, stride, repacked, in_range, std::move(sums), {}};
                if (!stripes.empty()) {
                    std::vector<MatrixPlace> places;
                    for (const auto & [of, at] : stripes) {
                        places.push_back({of, at});
                    }
                    self->stripes = std::make_shared<const std::vector<MatrixPlace>>(std::move(places));
                }
            },
            "part"_a, "offset"_a, "stride"_a = 0, "repacked"_a = false, "in_range"_a = 0, "sums"_a.none() = nb::none(),
            "stripes"_a = std::vector<std::pair<size_t, uint64_t>>{});
    nb::class_<ExpertFiles>(m, "ExpertFiles")
        .def(
            nb::init<const std::vector<std::string> &, ExpertFiles::Places, ExpertFiles::Places, std::vector<size_t>>(),
            "paths"_a, "places"_a, "packed"_a = ExpertFiles::Places{}, "drives"_a = std::vector<size_t>{})
        .def_prop_ro("handles", &ExpertFiles::handles)
        .def("drop_cached", &ExpertFiles::drop_cached);

    nb::class_<ExpertBuffers>(m, "ExpertBuffers")
        .def(nb::init<bool>(), "unread"_a)
        .def_prop_ro("type", [](ExpertBuffers & b) { return reinterpret_cast<uintptr_t>(b.type()); })
        .def("loaded", &ExpertBuffers::loaded);

    nb::class_<StopFlag>(m, "StopFlag")
        .def(nb::init<>())
        .def_prop_ro("callback", [](StopFlag &) { return reinterpret_cast<uintptr_t>(&StopFlag::callback); })
        .def_prop_ro("user_data", [](StopFlag & f) { return reinterpret_cast<uintptr_t>(&f); })
        .def("set", &StopFlag::set)
        .def("clear", &StopFlag::clear);

    nb::class_<PatchOptions>(m, "PatchOptions")
        .def(
            "__init__",
            [](PatchOptions * self, int n_thread, int n_transfer_thread, int max_token, double link_bytes_per_s,
               uint64_t joined_bytes, bool ring, bool repack, uint64_t host_bytes, double file_bytes_per_s,
               std::optional<CopyRule> copy_rule) {
                new (self)
                    PatchOptions{n_thread, n_transfer_thread, max_token,        link_bytes_per_s,    joined_bytes, ring,
                                 repack,   host_bytes,        file_bytes_per_s, std::move(copy_rule)};
            },
            "n_thread"_a = 1, "n_transfer_thread"_a = 2, "max_token"_a = 512, "link_bytes_per_s"_a = 0.0,
            "joined_bytes"_a = PatchOptions{}.joined_bytes, "ring"_a = true, "repack"_a = false,
            "host_bytes"_a = uint64_t(0), "file_bytes_per_s"_a = 0.0, "copy_rule"_a = nb::none());

    nb::class_<PatchTimes>(m, "PatchTimes")
        .def_ro("stall_us", &PatchTimes::stall_us)
        .def_ro("wave_us", &PatchTimes::wave_us)
        .def_ro("graph_us", &PatchTimes::graph_us)
        .def_ro("n_graph", &PatchTimes::n_graph)
        .def_ro("callback_us", &PatchTimes::callback_us)
        .def_ro("predict_us", &PatchTimes::predict_us)
        .def_ro("delay_us", &PatchTimes::delay_us)
        .def_ro("link_busy_us", &PatchTimes::link_busy_us)
        .def_ro("link_idle_us", &PatchTimes::link_idle_us)
        .def_ro("host_us", &PatchTimes::host_us)
        .def_ro("host_wait_us", &PatchTimes::host_wait_us)
        .def_ro("n_stop", &PatchTimes::n_stop)
        .def_ro("n_unasked", &PatchTimes::n_unasked);

    using Seen = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
    using Ids = nb::ndarray<const int32_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
    nb::class_<ForcedRouting>(m, "ForcedRouting")
        .def(
            "__init__",
            [](ForcedRouting * self, const std::vector<int> & layers, int32_t n_expert, const Ids & ids,
               const std::optional<Seen> & weights, const std::optional<Seen> & inputs, std::vector<int32_t> n_used) {
                const std::vector<Expert> rows(ids.data(), ids.data() + ids.size());
                const bool fits = ids.shape(1) == layers.size();
                const auto values = [](const std::optional<Seen> & of) {
                    return of ? std::vector<float>(of->data(), of->data() + of->size()) : std::vector<float>{};
                };
                new (self) ForcedRouting(fits ? layers : std::vector<int>{}, n_expert, int32_t(ids.shape(2)), rows,
                                         {values(weights), values(inputs)}, std::move(n_used));
            },
            "layers"_a, "n_expert"_a, "ids"_a, "weights"_a = nb::none(), "inputs"_a = nb::none(),
            "n_used"_a = std::vector<int32_t>{},
            "weights, inputs: what a core sees in place of the model's, [n_token][layer][...]. n_used: [layer], the "
            "experts of a row that count; empty: all.")
        .def_prop_ro("callback", [](ForcedRouting &) { return reinterpret_cast<uintptr_t>(&ForcedRouting::callback); })
        .def_prop_ro("user_data", [](ForcedRouting & f) { return reinterpret_cast<uintptr_t>(&f); })
        .def("begin_pass", &ForcedRouting::begin_pass, "first_row"_a, "n_token"_a)
        .def_prop_ro("error", &ForcedRouting::error);

    nb::class_<PageRange>(m, "PageRange", "Bytes of memory that are pages of a file.")
        .def(nb::init<uintptr_t, size_t>(), "address"_a, "n"_a)
        .def_ro("address", &PageRange::address)
        .def_ro("n", &PageRange::n);

    nb::class_<KvOnDrive>(m, "KvOnDrive", "While open, attention caches that llama.cpp makes are pages of a file.")
        .def(nb::init<std::string, size_t>(), "folder"_a, "n_byte_min"_a)
        .def("close", &KvOnDrive::close)
        .def_prop_ro("error", &KvOnDrive::error)
        .def("tensors", &KvOnDrive::tensors);

    nb::class_<LayerWindow>(m, "LayerWindow", "Reads layers' pages of files ahead, and drops those behind.")
        .def(nb::init<std::vector<std::vector<PageRange>>, size_t, int32_t>(), "layers"_a, "room_bytes"_a, "n_ahead"_a)
        .def("reached", &LayerWindow::reached, "layer"_a)
        .def("close", &LayerWindow::close, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("counts", &LayerWindow::counts);

    nb::class_<LayerCheck>(m, "LayerCheck", "Finds the first layer of a pass whose output is not finite.")
        .def(nb::init<>())
        .def_prop_ro("callback", [](LayerCheck &) { return reinterpret_cast<uintptr_t>(&LayerCheck::callback); })
        .def_prop_ro("user_data", [](LayerCheck & c) { return reinterpret_cast<uintptr_t>(&c); })
        .def_prop_ro("layer", &LayerCheck::layer);

    using released = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Patch>(m, "Patch")
        .def(nb::init<const ExpertFiles &, ExpertBuffers &>(), "files"_a, "buffers"_a, nb::keep_alive<1, 2>(),
             nb::keep_alive<1, 3>())
        .def_prop_ro("callback", [](Patch &) { return reinterpret_cast<uintptr_t>(&Patch::callback); })
        .def_prop_ro("user_data", [](Patch & p) { return reinterpret_cast<uintptr_t>(&p); })
        .def("begin_probe", &Patch::begin_probe)
        .def("find_devices", &Patch::find_devices)
        .def("end_probe", &Patch::end_probe)
        .def("configure", &Patch::configure, "layout"_a, "composition"_a, "options"_a, "keeps_residents"_a = false,
             released(), "Rebuild the slots: empty, or with the present experts that have room, the best first.")
        .def(
            "set_future", [](Patch & p, std::shared_ptr<Future> future) { p.set_future(std::move(future)); },
            "future"_a.none())
        .def(
            "set_statistics",
            [](Patch & p, std::shared_ptr<MoepicStatistics> statistics) { p.set_statistics(std::move(statistics)); },
            "statistics"_a.none())
        .def("close", &Patch::close, released())
        .def(
            "use_scheduler",
            [](Patch & p, uintptr_t scheduler) { p.use_scheduler(reinterpret_cast<ggml_backend_sched_t>(scheduler)); },
            "scheduler"_a, released())
        .def("request_began", &Patch::request_began, released())
        .def("tune", &Patch::tune, "tuning"_a, released())
        .def("stock", &Patch::stock, "experts"_a, "wanted"_a = std::vector<std::vector<Expert>>{}, released(),
             "Between passes: begin to fetch these experts of each layer into its free slots, or in the place of "
             "experts that are not wanted. Return whether copies are in flight.")
        .def("begin_pass", &Patch::begin_pass, "phase"_a, "tokens"_a = std::vector<int32_t>{},
             "sequences"_a = std::vector<int32_t>{}, released())
        .def("end_pass", &Patch::end_pass, released())
        .def("stop", &Patch::stop)
        .def("resume", &Patch::resume)
        .def("record", &Patch::record, "recorder"_a.none(), nb::keep_alive<1, 2>(), released())
        .def("check", &Patch::check, "check"_a.none(), nb::keep_alive<1, 2>())
        .def("window", &Patch::window, "window"_a.none(), nb::keep_alive<1, 2>())
        .def("force", &Patch::force, "forced"_a.none(), nb::keep_alive<1, 2>(), released())
        .def("find_wrong_slot", &Patch::find_wrong_slot, "number"_a, released(),
             "Compare a resident expert with its file. Return (layer, expert) if they differ, or None.")
        .def("measure_link", &Patch::measure_link, "seconds"_a, "by_chunk"_a, released())
        .def("record_events", &Patch::record_events, "wanted"_a, released())
        .def("take_events", &Patch::take_events, released())
        .def_prop_ro("error", &Patch::error)
        .def_prop_ro("layers", &Patch::layers)
        // A copy: a reference would keep the patch, and with it the model's file open.
        .def_prop_ro("shape", &Patch::shape, nb::rv_policy::copy)
        .def_prop_ro("n_embd", &Patch::n_embd, "Width of the layers' inputs; 0 if no router could be read.")
        .def_prop_ro("routers", &routers_of,
                     "Routers that predict a layer's experts from the input of the layer before.")
        .def_prop_ro("router_biases", &Patch::router_biases)
        .def_prop_ro("token_experts", &token_experts_of)
        .def_prop_ro("layout", &Patch::layout)
        .def_prop_ro("slab_bytes", &Patch::slab_bytes)
        .def_prop_ro("kept_bytes", &Patch::kept_bytes, "Of experts that the last configure() kept.")
        .def_prop_ro("host_bytes", &Patch::host_bytes)
        .def_prop_ro("host_held_bytes", &Patch::host_held_bytes, "The part of host_bytes that has pages.")
        .def_prop_ro("host_lacks_pinned", &Patch::host_lacks_pinned,
                     "Whether the host store is in ordinary memory because the driver had no more pinned memory.")
        .def_prop_ro("host_slots", &Patch::n_host_slot, "Experts of each layer that the host store keeps; empty: none.")
        .def_prop_ro("reads_by_ring", &Patch::reads_by_ring, "Whether io_uring reads, not threads.")
        .def("counts", &Patch::counts, released())
        .def("host_counts", &Patch::host_counts, released())
        .def("stall_us_by_layer", &Patch::stall_us_by_layer, released())
        .def("wave_us_by_layer", &Patch::wave_us_by_layer, released())
        .def("times", &Patch::times, released())
        .def("costs", &costs_of, "All counters of a pass's cost: sums and times by name, and a row for each layer.")
        .def("host_speeds", &Patch::host_speeds, released())
        .def_prop_ro("progress", &Patch::progress, "Share of the layers of the pass that are finished.")
        .def("snapshot", [](const Patch & p) {
            std::vector<uint8_t> bytes;
            {
                const nb::gil_scoped_release release;
                bytes = p.snapshot();
            }
            return nb::bytes(bytes.data(), bytes.size());
        });
}

}  // namespace outrider
