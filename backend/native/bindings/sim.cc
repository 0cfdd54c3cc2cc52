// The simulator. The rows of a trace stay in numpy's memory, which may be a mapped file.
#include "sim/simulator.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cmath>

#include "bindings/bindings.h"
#include "core/event_log.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

using AnyRows = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

float float_of_half(uint16_t bits) {
    const int32_t exponent = (bits >> 10) & 31;
    const int32_t mantissa = bits & 1023;
    float value;
    if (exponent == 31) {
        value = mantissa == 0 ? HUGE_VALF : NAN;
    } else if (exponent == 0) {
        value = std::ldexp(float(mantissa), -24);
    } else {
        value = std::bit_cast<float>(uint32_t(exponent + 112) << 23 | uint32_t(mantissa) << 13);
    }
    return bits & 0x8000 ? -value : value;
}

// Rows [token][layer][width], f16 or f32, of all tokens of a trace, in order.
class Rows {
  public:
    // `has`: [layer]: whether it has rows; empty: all have.
    Rows(const AnyRows & values, const Future & trace, const Core & core, const char * name,
         const std::vector<bool> & has, bool of_choice = false)
        : values_(values),
          has_(has),
          n_layer_(values.shape(1)),
          width_(values.shape(2)),
          is_half_(values.dtype().bits == 16) {
        const nb::dlpack::dtype type = values.dtype();
        if (type.code != uint8_t(nb::dlpack::dtype_code::Float) || (type.bits != 16 && type.bits != 32)) {
            throw std::invalid_argument(std::string("The trace's ") + name + " are neither float16 nor float32");
        }
        size_t n_token = 0;
        for (const Future::Pass & pass : trace.passes) {
            n_token += size_t(std::max(pass.n_token, 0));
            ends_.push_back(n_token);
            n_routed_.emplace_back();
            for (size_t l = 0; l < pass.ids.size() && l < size_t(core.shape().n_layer); l++) {
                n_routed_.back().push_back(pass.ids[l].size() / size_t(std::max(core.shape().used(Layer(l)), 1)));
            }
        }
        if (values.shape(0) != n_token || n_layer_ != size_t(core.shape().n_layer) ||
            (!has_.empty() && has_.size() != n_layer_)) {
            throw std::invalid_argument(std::string("The trace's ") + name + " are not of its tokens and layers");
        }
        for (size_t l = 0; l < n_layer_; l++) {
            widths_.push_back(of_choice ? std::min(width_, size_t(core.shape().used(Layer(l)))) : width_);
        }
    }

    // The rows of the layer's tokens, which are the last ones of the pass.
    std::span<const float> operator()(size_t pass, Layer layer) {
        if (!has_.empty() && !has_[layer]) {
            return {};
        }
        const size_t n = pass < n_routed_.size() && size_t(layer) < n_routed_[pass].size() ? n_routed_[pass][layer] : 0;
        const size_t width = widths_[size_t(layer)];
        buffer_.resize(n * width);
        for (size_t i = 0; i < n; i++) {
            const size_t at = ((ends_[pass] - n + i) * n_layer_ + size_t(layer)) * width_;
            float * to = buffer_.data() + i * width;
            if (is_half_) {
                const auto * from = static_cast<const uint16_t *>(values_.data()) + at;
                std::transform(from, from + width, to, float_of_half);
            } else {
                const auto * from = static_cast<const float *>(values_.data()) + at;
                std::copy(from, from + width, to);
            }
        }
        return buffer_;
    }

  private:
    const AnyRows & values_;
    std::vector<bool> has_;
    size_t n_layer_, width_;
    std::vector<size_t> widths_;  // [layer]: values of a row that count
    bool is_half_;
    std::vector<size_t> ends_;                   // [pass]: tokens up to its end
    std::vector<std::vector<size_t>> n_routed_;  // [pass][layer]
    std::vector<float> buffer_;
};

Simulation run(nb::handle core_object, const Future & trace, const Machine & machine,
               const std::optional<AnyRows> & inputs, const std::optional<AnyRows> & weights, EventLog * log,
               const std::vector<bool> & has_inputs, nb::object after_pass, std::optional<CopyRule> copy_rule) {
    Core & core = core_of(core_object);
    const nb::gil_scoped_release released;
    std::optional<Rows> input_rows, weight_rows;
    SimulationExtras extras;
    extras.log = log;
    extras.copy_rule = std::move(copy_rule);
    if (inputs) {
        input_rows.emplace(*inputs, trace, core, "inputs", has_inputs);
        extras.inputs = [&](size_t pass, Layer layer) { return (*input_rows)(pass, layer); };
    }
    if (weights) {
        weight_rows.emplace(*weights, trace, core, "weights", std::vector<bool>{}, true);
        extras.weights = [&](size_t pass, Layer layer) { return (*weight_rows)(pass, layer); };
    }
    if (!after_pass.is_none()) {
        extras.after_pass = [&](const SimulatedPass & pass) {
            const nb::gil_scoped_acquire acquired;
            after_pass(pass);
        };
    }
    return simulate(core, trace, machine, extras);
}

template <typename T>
using NumpyArray = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T>
NumpyArray<T> array_of(std::vector<T> values) {
    auto * owned = new std::vector<T>(std::move(values));
    const nb::capsule owner(owned, [](void * p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return NumpyArray<T>(owned->data(), {owned->size()}, owner);
}

// [layer]
template <typename T, typename Value>
NumpyArray<T> by_layer(const Simulation & s, Value && value) {
    std::vector<T> values;
    for (const SimulatedLayer & layer : s.layers) {
        values.push_back(T(value(layer)));
    }
    return array_of(std::move(values));
}

}  // namespace

void bind_sim(nb::module_ & m) {
    constexpr auto moved = nb::rv_policy::move;
    nb::class_<Machine>(m, "Machine", "How fast a machine makes a model; times in microseconds.")
        .def(
            "__init__",
            [](Machine * self, double link_bytes_per_us, double link_latency_us, int32_t n_link, double dense_us,
               double dense_token_us, double expert_us, double expert_token_us, double wave_us, double pass_us,
               double host_us, double host_expert_us, double host_expert_token_us, double file_bytes_per_us,
               double file_latency_us, int32_t n_file, double stop_us, double joined_bytes, double copy_slows) {
                const Machine machine{
                    link_bytes_per_us, link_latency_us,      n_link,    file_bytes_per_us, file_latency_us, n_file,
                    dense_us,          dense_token_us,       expert_us, expert_token_us,   wave_us,         host_us,
                    host_expert_us,    host_expert_token_us, stop_us,   pass_us,           joined_bytes,    copy_slows};
                machine.validate();
                new (self) Machine(machine);
            },
            "link_bytes_per_us"_a = 0.0, "link_latency_us"_a = 0.0, "n_link"_a = 1, "dense_us"_a = 0.0,
            "dense_token_us"_a = 0.0, "expert_us"_a = 0.0, "expert_token_us"_a = 0.0, "wave_us"_a = 0.0,
            "pass_us"_a = 0.0, "host_us"_a = 0.0, "host_expert_us"_a = 0.0, "host_expert_token_us"_a = 0.0,
            "file_bytes_per_us"_a = 0.0, "file_latency_us"_a = 0.0, "n_file"_a = 1, "stop_us"_a = 0.0,
            "joined_bytes"_a = 0.0, "copy_slows"_a = 0.0)
        .def_ro("link_bytes_per_us", &Machine::link_bytes_per_us)
        .def_ro("link_latency_us", &Machine::link_latency_us)
        .def_ro("n_link", &Machine::n_link)
        .def_ro("file_bytes_per_us", &Machine::file_bytes_per_us)
        .def_ro("file_latency_us", &Machine::file_latency_us)
        .def_ro("n_file", &Machine::n_file)
        .def_ro("dense_us", &Machine::dense_us)
        .def_ro("dense_token_us", &Machine::dense_token_us)
        .def_ro("expert_us", &Machine::expert_us)
        .def_ro("expert_token_us", &Machine::expert_token_us)
        .def_ro("wave_us", &Machine::wave_us)
        .def_ro("stop_us", &Machine::stop_us)
        .def_ro("pass_us", &Machine::pass_us)
        .def_ro("joined_bytes", &Machine::joined_bytes)
        .def_ro("copy_slows", &Machine::copy_slows)
        .def_ro("host_us", &Machine::host_us)
        .def_ro("host_expert_us", &Machine::host_expert_us)
        .def_ro("host_expert_token_us", &Machine::host_expert_token_us);

    nb::class_<SimulatedPhase>(m, "SimulatedPhase")
        .def_ro("n_pass", &SimulatedPhase::n_pass)
        .def_ro("n_token", &SimulatedPhase::n_token)
        .def_ro("time_us", &SimulatedPhase::time_us)
        .def_ro("compute_us", &SimulatedPhase::compute_us)
        .def_ro("wave_us", &SimulatedPhase::wave_us)
        .def_ro("stall_us", &SimulatedPhase::stall_us)
        .def_ro("link_busy_us", &SimulatedPhase::link_busy_us)
        .def_ro("link_idle_us", &SimulatedPhase::link_idle_us);

    nb::class_<SimulatedLayer>(m, "SimulatedLayer")
        .def_ro("counts", &SimulatedLayer::counts)
        .def_ro("stall_us", &SimulatedLayer::stall_us);
    nb::class_<SimulatedPass>(m, "SimulatedPass")
        .def_ro("phase", &SimulatedPass::phase)
        .def_ro("times", &SimulatedPass::times)
        .def_ro("counts", &SimulatedPass::counts);

    nb::class_<Simulation> simulation(m, "Simulation", "Arrays are by layer or, where the name says so, by pass.");
    for (const auto & [name, field] : counters) {
        const auto values = [field = field](const Simulation & s) {
            return by_layer<int64_t>(s, [&](const SimulatedLayer & layer) { return layer.counts.*field; });
        };
        simulation.def_prop_ro(name, values, moved);
    }
    simulation.def_ro("prefill", &Simulation::prefill)
        .def_ro("decode", &Simulation::decode)
        .def_ro("layers", &Simulation::layers)
        .def_prop_ro(
            "stall_us",
            [](const Simulation & s) {
                return by_layer<double>(s, [](const SimulatedLayer & layer) { return layer.stall_us; });
            },
            moved)
        .def_prop_ro(
            "pass_us", [](const Simulation & s) { return array_of(s.pass_us); }, moved)
        .def_prop_ro(
            "pass_stall_us", [](const Simulation & s) { return array_of(s.pass_stall_us); }, moved)
        .def_prop_ro(
            "pass_hits", [](const Simulation & s) { return array_of(s.pass_hits); }, moved)
        .def_prop_ro("pass_requests", [](const Simulation & s) { return array_of(s.pass_requests); }, moved);

    m.def("simulate", &run, "core"_a, "future"_a, "machine"_a, "inputs"_a = nb::none(), "weights"_a = nb::none(),
          "log"_a = nb::none(), "has_inputs"_a = std::vector<bool>{}, "after_pass"_a = nb::none(),
          "copy_rule"_a = nb::none(),
          "Drive a core through a trace in virtual time. inputs: [n_token, n_layer, n_embd], weights: "
          "[n_token, n_layer, n_expert_used], of all tokens of the trace, float16 or float32; has_inputs: of each "
          "layer; after_pass: called with a SimulatedPass, may tune the core; copy_rule: when copies end.");
}

}  // namespace outrider
