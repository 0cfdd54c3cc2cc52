"""Makes figures of the five papers again, from a trace of a small model in the simulator.

The routing is that of the trace. The sizes of experts and dense weights, the number of layers and
the machine are the paper's: an expert gets the bytes that make a layer as large as the paper's, and
times are scaled to the paper's number of layers. docs/papers.md compares the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backend import _native
from backend.evaluation.predictors import candidates, evaluate
from backend.machines import Hardware, load
from backend.methods.catalogue import METHODS, Method
from backend.methods.compose import Learned, spec
from backend.methods.part import part
from backend.simulation.charts import Line, Panel
from backend.simulation.results import Result
from backend.simulation.run import Setting, run
from backend.traces.trace import DECODE, PREFILL, Trace

RATES = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
RATE = 0.4
THETAS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
CAPACITIES = (1, 4, 16, 40, 120)
BATCHES = (1, 2, 3, 4)


@dataclass(frozen=True)
class Inputs:
    """A trace with inputs, of several requests; its model's routers; predictors' weights.

    of_paper: ProMoE's own network, or nothing.
    """

    trace: Trace
    routers: Sequence[Any]
    biases: Sequence[_native.RouterBias]
    learned: Learned
    of_paper: Learned = Learned()


@dataclass(frozen=True)
class Model:
    """A model of a paper. dense: weights of a layer beside its routed experts."""

    n_layer: int
    n_expert: int
    n_embd: int
    n_ff: int
    dense: float
    output: float
    bits: float


QWEN2_57B = Model(28, 64, 3584, 2560, 250e6, 545e6, 4.5)  # ProMoE's QW-2, INT4
QWEN15_MOE = Model(24, 60, 2048, 1408, 51e6, 311e6, 16.0)  # MoEpic's first one
MIXTRAL = Model(32, 8, 4096, 14336, 41.9e6, 131e6, 4.5)


@dataclass(frozen=True)
class Figure:
    """A table, and the panels of a picture."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    panels: list[Panel]


def sized(trace: Trace, model: Model) -> Trace:
    """Return the trace with the model's sizes. All experts of a layer have the paper's bytes."""
    all_weights = 3.0 * model.n_embd * model.n_ff * model.n_expert
    matrix_bytes = round(all_weights / 3 / trace.n_expert * model.bits / 8)
    about = {
        "layer_dense_bytes": model.dense * model.bits / 8,
        "output_bytes": model.output * model.bits / 8 * trace.n_layer / model.n_layer,
        "bits_per_weight": model.bits,
    }
    n_cut = trace.n_cut or (8,) * trace.n_layer
    chunk_bytes = ((matrix_bytes // 8 * 8,) * 3,) * trace.n_layer
    return replace(trace, chunk_bytes=chunk_bytes, about=about, n_cut=n_cut)


@dataclass(frozen=True)
class Bench:
    """Simulates methods on a paper's model and machine."""

    inputs: Inputs
    model: Model
    hardware: Hardware

    @classmethod
    def of(cls, inputs: Inputs, model: Model, machine: str = "rtx4090-pcie4x16") -> Bench:
        """Return a bench on a preset machine."""
        return cls(inputs, model, load(machine))

    def results(
        self, methods: Sequence[Method], rates: Sequence[float], trace: Trace | None = None
    ) -> Iterator[Result]:
        """Yield a result for each method and rate. Raise ValueError if one cannot be simulated."""
        setting = Setting(
            sized(trace or self.inputs.trace, self.model),
            hardware=self.hardware,
            routers=self.inputs.routers,
            biases=self.inputs.biases,
            learned=self.inputs.learned,
            configure_tokens=500,
        )
        for result in run(setting, methods, rates):
            if result.reason:
                raise ValueError(result.reason)
            yield result

    @property
    def times(self) -> float:
        """Return the paper's layers for each layer of the trace."""
        return self.model.n_layer / self.inputs.trace.n_layer

    def tpot_ms(self, result: Result) -> float:
        """Return the time of a decoded token, in milliseconds."""
        assert result.decode is not None
        return 1e3 * result.decode.time_s / max(result.decode.n_token, 1) * self.times

    def ttft_ms(self, result: Result) -> float:
        """Return the mean time of a prompt, in milliseconds."""
        assert result.prefill is not None
        return 1e3 * result.prefill.time_s / max(result.prefill.n_pass, 1) * self.times


def _sweep(bench: Bench, methods: dict[str, Method], rates: Sequence[float] = RATES) -> Figure:
    """Return times of a prompt and of a token over the cache rate."""
    rows, prompt, token = [], [], []
    for label, method in methods.items():
        found = list(bench.results([method], rates))
        ttft = [(r.asked_rate, bench.ttft_ms(r)) for r in found]
        tpot = [(r.asked_rate, bench.tpot_ms(r)) for r in found]
        prompt.append(Line(label, ttft))
        token.append(Line(label, tpot))
        cells = (f"{a:.0f} / {b:.1f}" for (_, a), (_, b) in zip(ttft, tpot, strict=True))
        rows.append((label, *cells))
    panels = [
        Panel("Prompt", "cache rate", "time to first token, ms", prompt, x_percent=True),
        Panel("Token", "cache rate", "time per token, ms", token, x_percent=True),
    ]
    return Figure(("TTFT / TPOT, ms", *(f"{r:.0%}" for r in rates)), rows, panels)


def _named(*names: str) -> dict[str, Method]:
    return {name: METHODS[name] for name in names}


def promoe_8(inputs: Inputs) -> Figure:
    """Accuracy of predictors by layer (ProMoE, Figure 8)."""
    rows, panels = [], []
    for stride in (1, 2):
        lines = []
        for label, learned in (("", inputs.learned), ("paper's network", inputs.of_paper)):
            chosen = [c for c in candidates(learned, has_routers=not label) if c.stride == stride]
            wanted = {"learned"} if label else {"learned", "next_router", "token_table"}
            chosen = [c for c in chosen if c.label in wanted]
            for found in evaluate(inputs.trace, chosen, inputs.routers, learned, inputs.biases):
                share = np.nan_to_num(found.accuracy)
                name = label or found.label
                lines.append(Line(name, [(float(i), float(x)) for i, x in enumerate(share)]))
                rows.append(
                    (
                        f"{name}, stride {stride}",
                        f"{share.mean():.1%}",
                        *map("{:.0%}".format, share),
                    )
                )
        panels.append(Panel(f"Stride {stride}", "layer", "accuracy", lines, y_percent=True))
    columns = ("predictor", "mean", *(f"layer {i}" for i in range(inputs.trace.n_layer)))
    return Figure(columns, rows, panels)


def promoe_11(inputs: Inputs) -> Figure:
    """Speed-up over static and LRU at one rate (ProMoE, Figure 11)."""
    bench = Bench.of(inputs, QWEN2_57B)
    found = {
        n: next(bench.results([m], [RATE])) for n, m in _named("promoe", "static", "lru").items()
    }
    own = found["promoe"]
    rows = [
        (name, f"{bench.ttft_ms(r):.0f} ms", f"{bench.ttft_ms(r) / bench.ttft_ms(own):.2f}",
         f"{bench.tpot_ms(r):.1f} ms", f"{bench.tpot_ms(r) / bench.tpot_ms(own):.2f}")
        for name, r in found.items()
    ]  # fmt: skip
    return Figure(("method", "TTFT", "times promoe's", "TPOT", "times promoe's"), rows, [])


def promoe_13(inputs: Inputs) -> Figure:
    """The steps of the ablation, over the cache rate (ProMoE, Figure 13)."""
    names = (
        "lru",
        "promoe-prefetch",
        "promoe-chunks",
        "promoe-preempt",
        "promoe-reorder",
        "promoe",
    )
    return _sweep(Bench.of(inputs, QWEN2_57B), _named(*names))


def promoe_16(inputs: Inputs) -> Figure:
    """Prompt and token times over the cache rate (ProMoE, Figure 16)."""
    return _sweep(Bench.of(inputs, QWEN2_57B), _named("promoe", "lru", "static", "outrider-recall"))


def joined(trace: Trace, n: int, *, keeps_sequences: bool = False) -> Trace:
    """Return a trace that decodes n requests in the same passes, until the shortest one ends.

    keeps_sequences: it knows whose each row is; otherwise they look like one sequence.
    """
    rows: list[int] = []
    n_token: list[int] = []
    phases: list[int] = []
    routed: list[Any] = []  # of each pass, [layer]
    sequences: list[int] = []  # of each row
    requests = np.unique(trace.requests)
    for group in range(len(requests) // n):
        decoded = []
        for request in requests[group * n : group * n + n]:
            passes = np.flatnonzero(trace.requests == request)
            for at in passes[trace.phases[passes] != DECODE]:
                begin = int(trace.begins[at])
                rows += range(begin, begin + int(trace.n_token[at]))
                sequences += [int(request)] * int(trace.n_token[at])
                n_token.append(int(trace.n_token[at]))
                phases.append(PREFILL)
                routed.append(trace.n_routed[at])
            decoded.append([int(trace.begins[at]) for at in passes[trace.phases[passes] == DECODE]])
        for together in zip(*decoded, strict=False):
            rows += together
            sequences += requests[group * n : group * n + n].tolist()
            n_token.append(n)
            phases.append(DECODE)
            routed.append(np.full(trace.n_layer, n))
    at = np.array(rows)
    counts = np.array(n_token, np.int32)
    return replace(
        trace,
        phases=np.array(phases, np.uint8),
        requests=np.zeros(len(counts), np.int32),
        n_token=counts,
        n_routed=np.array(routed, np.int32),
        tokens=trace.tokens[at],
        ids=trace.ids[at],
        weights=None,
        scores=None,
        inputs=None if trace.inputs is None else trace.inputs[at],
        sequences=np.array(sequences, np.int32) if keeps_sequences else None,
    )


def promoe_18(inputs: Inputs) -> Figure:
    """Throughput of batches of 1 to 4 requests (ProMoE, Figures 17 and 18)."""
    bench = Bench.of(inputs, QWEN2_57B)
    rows, lines = [], []
    for name, method in _named("promoe", "lru", "static").items():
        points = []
        for n in BATCHES:
            (result,) = bench.results([method], [RATE], joined(inputs.trace, n))
            points.append((float(n), 1e3 / bench.tpot_ms(result)))
        lines.append(Line(name, points))
        rows.append((name, *(f"{y:.1f}" for _, y in points)))
    panel = Panel("Decoding", "requests at once", "tokens per second", lines)
    return Figure(("tokens per second", *(f"{n} requests" for n in BATCHES)), rows, [panel])


def moepic_4b(inputs: Inputs) -> Figure:
    """Time of a token over the share of an expert that is kept (MoEpic, Figure 4b)."""
    bench = Bench.of(inputs, QWEN15_MOE)
    base = METHODS["moepic-uniform"]
    lines, rows = [], []
    for rate in (0.2, 0.4):
        points = []
        for theta in THETAS:
            method = replace(base, allocation=part("uniform", top_share=theta))
            (result,) = bench.results([method], [rate])
            points.append((theta, bench.tpot_ms(result)))
        lines.append(Line(f"cache rate {rate:.0%}", points))
        rows.append((f"{rate:.0%}", *(f"{y:.1f}" for _, y in points)))
    panel = Panel("Token", "top's share of an expert", "time per token, ms", lines)
    return Figure(("TPOT, ms, at rate", *(f"{t:g}" for t in THETAS)), rows, [panel])


def moepic_table3(inputs: Inputs) -> Figure:
    """MoEpic without each of its parts (MoEpic, Table 3)."""
    bench = Bench.of(inputs, QWEN15_MOE)
    whole = METHODS["moepic"]
    methods = {
        "MoEpic": whole,
        "without prediction": replace(
            whole, predictor=part("accuracy", accuracy=0.125), fallback=None
        ),
        "without LCP": replace(whole, evictions=(part("random"),)),
        "without the configurator": METHODS["moepic-uniform"],
        "LRU": METHODS["lru"],
    }
    rows = []
    for label, method in methods.items():
        (result,) = bench.results([method], [RATE])
        rows.append((label, f"{bench.ttft_ms(result):.0f}", f"{bench.tpot_ms(result):.1f}"))
    return Figure(("", "TTFT, ms", "TPOT, ms"), rows, [])


def moepic_8(inputs: Inputs) -> Figure:
    """Least cache rate at which a token takes no longer than a target (MoEpic, Figure 8)."""
    bench = Bench.of(inputs, QWEN15_MOE)
    rates = tuple(x / 20 for x in range(3, 20))
    names = ("moepic", "lru", "moe-infinity", "outrider-recall")
    times = {
        n: [(r.asked_rate, bench.tpot_ms(r)) for r in bench.results([METHODS[n]], rates)]
        for n in names
    }
    least = min(y for points in times.values() for _, y in points)
    targets = tuple(least * x for x in (1.25, 1.5, 2.0, 2.5, 3.0))
    lines, rows = [], []
    for name, points in times.items():
        found = [
            (target, min((x for x, y in points if y <= target), default=float("nan")))
            for target in targets
        ]
        lines.append(Line(name, found))
        rows.append((name, *(f"{x:.0%}" for _, x in found)))
    panel = Panel("Memory", "target time per token, ms", "cache rate", lines, y_percent=True)
    return Figure(("cache rate for", *(f"{t:.0f} ms" for t in targets)), rows, [panel])


def infinity_9(inputs: Inputs) -> Figure:
    """Time of a token over the number of kept activation matrices (MoE-Infinity, Figure 9)."""
    bench = Bench.of(inputs, MIXTRAL)
    base = METHODS["moe-infinity"]
    points = []
    for capacity in CAPACITIES:
        method = replace(base, predictor=part("eam", capacity=capacity))
        (result,) = bench.results([method], [RATE])
        points.append((float(capacity), bench.tpot_ms(result)))
    (lru,) = bench.results([METHODS["lru"]], [RATE])
    rows = [
        ("moe-infinity", *(f"{y:.1f}" for _, y in points)),
        ("lru", f"{bench.tpot_ms(lru):.1f}"),
    ]
    rows[1] = (*rows[1], *("",) * (len(CAPACITIES) - 1))
    panel = Panel("Token", "matrices kept", "time per token, ms", [Line("moe-infinity", points)])
    return Figure(("TPOT, ms, with matrices", *map(str, CAPACITIES)), rows, [panel])


def duoserve_table3(inputs: Inputs) -> Figure:
    """How often all, or one, of the predicted experts are used (DuoServe-MoE, Table 3)."""
    wanted = ("expert_mlp", "correlation", "next_router", "learned")
    chosen = [
        c
        for c in candidates(inputs.learned, has_routers=True)
        if c.stride == 1 and c.label in wanted
    ]
    rows = [
        (s.label, f"{np.nan_to_num(s.exact).mean():.1%}", f"{np.nan_to_num(s.any_one).mean():.1%}",
         f"{np.nan_to_num(s.accuracy).mean():.1%}")
        for s in evaluate(inputs.trace, chosen, inputs.routers, inputs.learned, inputs.biases)
    ]  # fmt: skip
    return Figure(("predictor", "all right", "at least one", "share right"), rows, [])


def duoserve_5(inputs: Inputs) -> Figure:
    """Prompt and whole answer with as many slots as two tokens use (DuoServe-MoE, Figure 5)."""
    bench = Bench.of(inputs, MIXTRAL)
    trace = inputs.trace
    few = 2 * trace.n_expert_used / (trace.n_expert * trace.n_layer)
    n_answer = float((trace.phases == DECODE).sum()) / len(np.unique(trace.requests))
    on_demand = replace(METHODS["lru"], allocation=part("stream"))
    rows = []
    for label, method in (("duoserve", METHODS["duoserve"]), ("on demand", on_demand)):
        (result,) = bench.results([method], [max(few, 0.05)])
        ttft, tpot = bench.ttft_ms(result), bench.tpot_ms(result)
        rows.append((label, f"{ttft:.0f}", f"{tpot:.1f}", f"{(ttft + n_answer * tpot) / 1e3:.2f}"))
    return Figure(("", "TTFT, ms", "TPOT, ms", "whole answer, s"), rows, [])


def klotski_13(inputs: Inputs) -> Figure:
    """Forecasts of hot experts that are used, and that are the hottest (Klotski, Figure 13)."""
    lines, rows = [], []
    n_request = len(np.unique(inputs.trace.requests))
    for n in (1, min(10, n_request)):
        used, hot = hot_accuracy(joined(inputs.trace, n, keeps_sequences=True))
        for words, share in (("used", used), ("among the hottest", hot)):
            name = f"{n} at once, {words}"
            points = [(float(i), float(x)) for i, x in enumerate(share) if not np.isnan(x)]
            lines.append(Line(name, points))
            cells = ("" if np.isnan(x) else f"{x:.0%}" for x in share)
            rows.append((name, f"{np.nanmean(share):.1%}", *cells))
    panel = Panel("Hot experts", "layer", "share of the forecasts", lines, y_percent=True)
    layers = (f"layer {i}" for i in range(inputs.trace.n_layer))
    return Figure(("forecasts", "mean", *layers), rows, [panel])


def hot_accuracy(trace: Trace) -> tuple[Any, Any]:
    """Return shares by layer of the correlation table's k forecasts for each decoding pass.

    The share that some token used, and the share that were among the k experts of most tokens. NaN
    for a layer without forecasts.
    """
    k, n_layer = trace.n_expert_used, trace.n_layer
    probe = _native.PredictorProbe(
        spec(part("correlation"), Learned()),
        trace.shape(),
        _native.Layout.per_layer([trace.n_expert] * n_layer),
        n_predict=k,
    )
    counted = np.zeros((3, n_layer))  # used, hottest, all forecasts
    forecasts: dict[int, list[int]] = {}
    sequences = trace.sequences if trace.sequences is not None else np.zeros(len(trace.tokens))
    probe.request_began()
    for at in range(len(trace.n_token)):
        rows = slice(int(trace.begins[at]), int(trace.begins[at]) + int(trace.n_token[at]))
        is_decoding = trace.phases[at] == DECODE
        phase = _native.Phase.decode if is_decoding else _native.Phase.prefill
        said = probe.pass_began(phase, trace.tokens[rows].tolist())
        for layer in range(n_layer):
            forecasts.update({to: experts for to, experts, _ in said})
            ids = trace.ids[rows, layer]
            if is_decoding and layer in forecasts:
                n_row = np.bincount(ids.ravel(), minlength=trace.n_expert)
                of = n_row[forecasts[layer][:k]]
                least = max(np.sort(n_row)[-k], 1)
                counted[:, layer] += (of > 0).sum(), (of >= least).sum(), len(of)
            forecasts.pop(layer, None)
            named = sequences[rows].astype(int).tolist()
            said = probe.routed(layer, ids.ravel().tolist(), [], len(ids), named)
        forecasts.update({to: experts for to, experts, _ in said})
    with np.errstate(invalid="ignore"):
        return counted[0] / counted[2], counted[1] / counted[2]


def all_methods(inputs: Inputs) -> Figure:
    """All methods with their own predictors, over the cache rate (not a paper's figure)."""
    names = (
        "lru", "static", "promoe", "moepic", "moe-infinity", "duoserve", "klotski", "outrider",
        "outrider-recall", "auto", "oracle",
    )  # fmt: skip
    return _sweep(Bench.of(inputs, QWEN2_57B), _named(*names))


FIGURES: dict[str, Callable[[Inputs], Figure]] = {
    "promoe-8": promoe_8,
    "promoe-11": promoe_11,
    "promoe-13": promoe_13,
    "promoe-16": promoe_16,
    "promoe-18": promoe_18,
    "moepic-4b": moepic_4b,
    "moepic-table3": moepic_table3,
    "moepic-8": moepic_8,
    "infinity-9": infinity_9,
    "duoserve-table3": duoserve_table3,
    "duoserve-5": duoserve_5,
    "klotski-13": klotski_13,
    "methods": all_methods,
}
