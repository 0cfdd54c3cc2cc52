"""Make the tables of docs/devices-shown.md: three models' geometry on the machine presets.

    PYTHONPATH=. python tests/benchmarks/device_tables.py ROUTES.csv [--out docs/devices-shown.md]

ROUTES.csv is the recorded routing of Qwen3-30B-A3B that docs/simulator.md names. The routing of the
other models is random. No figure here was measured on a graphics card.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.machines import Hardware, load
from backend.memory.placement import STAGE_LEAST, STAGE_SHARE
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout, with_accuracy
from backend.methods.slots import slots_of
from backend.simulation import offload
from backend.simulation.run import machine_for
from backend.traces.csv_reader import read_csv
from backend.traces.trace import DECODE, PREFILL, Trace

RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
HYBRID = ", hybrid"
"""Behind a method's name: the processor computes some of what the device lacks (--hybrid auto)."""
SHOWN = ("static", "lru", "promoe", "outrider", f"outrider{HYBRID}", "oracle")
MACHINES = ("rtx4090-pcie4x16", "rtx3060")
N_PROMPT = 512
N_DECODE = 48
BITS = 4.5
HAND_OVER_US = 40.0
"""To fetch a layer's rows from the card and to bring what the processor made of them."""
ACCURACY = 0.847
"""Accuracy of the predictor, as ProMoE reports on average (section 4.2)."""
STAY = 0.25
"""Synthetic routing: the chance that an expert of the token before is chosen again."""
BEGIN, END = "<!-- simulated -->\n", "<!-- end of simulated -->\n"

Ids = NDArray[np.uint8]


@dataclass(frozen=True)
class Geometry:
    """Numbers of weights. dense: the weights of one layer except its routed experts."""

    name: str
    n_layer: int
    n_expert: int
    n_used: int
    n_embd: int
    n_ff: int
    dense: float
    output: float
    bits: float = BITS

    @property
    def matrix_bytes(self) -> int:
        """Return the bytes of one of an expert's three matrices."""
        return round(self.n_embd * self.n_ff * self.bits / 8)

    def about(self) -> dict[str, float]:
        """Return the facts about a model that a trace has, for the simulator."""
        return {
            "layer_dense_bytes": self.dense * self.bits / 8,
            "output_bytes": self.output * self.bits / 8,
            "bits_per_weight": self.bits,
        }


@dataclass(frozen=True)
class Speed:
    """Tokens per second of the second of two requests, so with a warm cache."""

    decode: float
    prefill: float


MIXTRAL = Geometry("Mixtral-8x7B", 32, 8, 2, 4096, 14336, 41.9e6, 131e6)
QWEN = Geometry("Qwen3-30B-A3B, 6 used", 48, 128, 6, 2048, 768, 21e6, 311e6)
DEEPSEEK = Geometry("DeepSeek-V2-Lite", 26, 64, 6, 2048, 1408, 31.1e6, 210e6)


def random_ids(model: Geometry, n: int) -> Ids:
    """Return ids: a token keeps some experts of the token before and draws others by popularity."""
    random = np.random.default_rng(1)
    ids = np.zeros((n, model.n_layer, model.n_used), np.uint8)
    for layer in range(model.n_layer):
        popularity = random.permutation(1 / np.arange(1, model.n_expert + 1) ** 0.5)
        popularity /= popularity.sum()
        for token in range(n):
            kept = (
                ids[token - 1, layer][random.random(model.n_used) < STAY]
                if token
                else ids[0, 0, :0]
            )
            drawn = random.choice(model.n_expert, model.n_expert, replace=False, p=popularity)
            rest = drawn[~np.isin(drawn, kept)]
            ids[token, layer] = np.concatenate([kept, rest])[: model.n_used]
    return ids


def requests(model: Geometry, ids: Ids) -> list[Trace]:
    """Return two requests: a short one, and one with a prompt of N_PROMPT tokens."""
    drawn = np.random.default_rng(2).integers(0, len(ids), N_PROMPT)
    short = ids[: len(ids) - N_DECODE]
    return [
        _request(model, ids[: len(short)], N_DECODE),
        _request(model, np.concatenate([ids[drawn], ids[len(short) :]]), N_DECODE),
    ]


def _request(model: Geometry, ids: Ids, n_decode: int) -> Trace:
    n_token = np.array([len(ids) - n_decode] + [1] * n_decode, np.int32)
    return Trace(
        architecture="",
        layers=tuple(range(model.n_layer)),
        n_expert=model.n_expert,
        n_expert_used=model.n_used,
        chunk_bytes=((model.matrix_bytes,) * 3,) * model.n_layer,
        phases=np.array([PREFILL] + [DECODE] * n_decode, np.uint8),
        requests=np.zeros(n_decode + 1, np.int32),
        n_token=n_token,
        n_routed=np.repeat(n_token[:, None], model.n_layer, axis=1),
        tokens=np.full(len(ids), -1, np.int32),
        ids=ids,
        about=model.about(),
    )


def future_of(traces: Sequence[Trace]) -> Any:
    """Return all requests as a future, for methods that know the future."""
    future = _native.Future()
    for trace in traces:
        at = 0
        for i, n in enumerate(trace.n_token):
            rows = np.ascontiguousarray(trace.ids[at : at + n].transpose(1, 0, 2).astype(np.int32))
            phase = _native.Phase.prefill if trace.phases[i] == PREFILL else _native.Phase.decode
            future.append(phase, [], i == 0, rows)
            at += n
    return future


def slots(model: Geometry, shape: Any, name: str, rate: float) -> Any:
    """Return a layout whose stage is a part of the rate, as backend.memory.placement plans it."""
    method = METHODS[name]
    plain = layout(method, shape, slots_of(rate, shape.n_expert))
    n_slot = plain.pools[0].n_slot
    n_stage = min(2 * (model.n_expert - n_slot), int(STAGE_SHARE * n_slot * model.n_layer))
    if n_stage < STAGE_LEAST or n_slot <= model.n_used:
        return plain
    rest = rate - n_stage / (model.n_expert * model.n_layer)
    return layout(method, shape, slots_of(rest, shape.n_expert), n_stage)


def simulate(
    model: Geometry, traces: Sequence[Trace], hardware: Hardware, name: str, rate: float
) -> Speed:
    """Return the speeds of the second request."""
    shape = traces[0].shape()
    hybrid = "auto" if name.endswith(HYBRID) else "off"
    name = name.removesuffix(HYBRID)
    method = METHODS[name]
    if method.kind != "bound":
        method = with_accuracy(method, ACCURACY)
    core = _native.Core(
        shape,
        slots(model, shape, name, rate),
        composition(method, shape, hybrid=hybrid),
        future=future_of(traces),
    )
    machine = with_host(machine_for(traces[0], hardware), model)
    for trace in traces:
        found = _native.simulate(core, trace.future(), machine)
    return Speed(
        1e6 * found.decode.n_token / found.decode.time_us,
        1e6 * found.prefill.n_token / found.prefill.time_us,
    )


def with_host(machine: Any, model: Geometry) -> Any:
    """Return the machine with a host that computes experts in RAM beside the device."""
    return offload.with_host(machine, 3 * model.matrix_bytes, model.bits, HAND_OVER_US)


def resident(traces: Sequence[Trace], hardware: Hardware) -> Speed:
    """Return the speeds with all weights on the device."""
    shape = traces[0].shape()
    method = METHODS["lru-overlapped"]
    core = _native.Core(shape, layout(method, shape, shape.n_expert), composition(method, shape))
    machine = machine_for(traces[0], hardware)
    for trace in (*traces, traces[-1]):
        found = _native.simulate(core, trace.future(), machine)
    return Speed(
        1e6 * found.decode.n_token / found.decode.compute_us,
        1e6 * found.prefill.n_token / found.prefill.compute_us,
    )


def layer_offload(
    model: Geometry, traces: Sequence[Trace], hardware: Hardware, rate: float
) -> Speed:
    """Return the speeds with the experts of whole layers on the device, the others in RAM."""
    machine = machine_for(traces[-1], hardware)
    machine = offload.with_host(machine, 3 * model.matrix_bytes, model.bits)
    found = offload.n_cpu_moe(traces[-1], machine, rate)
    assert found.decode is not None and found.prefill is not None
    return Speed(found.decode.tokens_per_s or 0.0, found.prefill.tokens_per_s or 0.0)


Table = dict[str, list[Speed]]
"""By method, of every rate."""


def table(model: Geometry, traces: Sequence[Trace], hardware: Hardware) -> Table:
    """Return the speeds of all methods at all rates, and one speed if all is resident."""
    found = {"layer offload": [layer_offload(model, traces, hardware, r) for r in RATES]}
    for name in SHOWN:
        found[name] = [simulate(model, traces, hardware, name, rate) for rate in RATES]
    found["fully resident"] = [resident(traces, hardware)]
    return found


def lines_of(model: Geometry, found: Table) -> Iterator[str]:
    """Return lines of Markdown: decode / prefill, in tokens per second."""
    yield f"| {model.name} | " + " | ".join(f"{100 * r:.0f} %" for r in RATES) + " |"
    yield "|---" * (len(RATES) + 1) + "|"
    for name, speeds in found.items():
        cells = [f"{s.decode:.1f} / {s.prefill:.0f}" for s in speeds]
        cells += [""] * (len(RATES) - len(cells))
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""


def ratio_lines(found: dict[tuple[str, str], Table]) -> Iterator[str]:
    """Return lines with the speed-up over static and LRU: the mean over the rates, and the most."""
    phases = " | ".join(f"{p}: static | lru | layer offload" for p in ("decode", "prefill"))
    yield f"| card, model | of | {phases} |"
    yield "|---" * 8 + "|"
    for (machine, model), of in found.items():
        for name in ("promoe", "outrider", f"outrider{HYBRID}"):
            cells = []
            for phase in ("decode", "prefill"):
                for other in ("static", "lru", "layer offload"):
                    ratios = ratios_of(of, name, other, phase)
                    cells.append(f"{mean(ratios):.2f} ({max(ratios):.2f})")
            yield f"| {machine}, {model} | {name} | " + " | ".join(cells) + " |"
    yield ""


def ratios_of(of: Table, name: str, other: str, phase: str) -> list[float]:
    """Return the speed-up over the other method at every rate."""
    return [getattr(a, phase) / getattr(b, phase) for a, b in zip(of[name], of[other], strict=True)]


def paper_lines(found: dict[tuple[str, str], Table]) -> Iterator[str]:
    """Return lines with the papers' figures, and simulated figures of the nearest setting."""
    hardware = load(MACHINES[0])
    tables = [of for (machine, _), of in found.items() if machine == MACHINES[0]]

    def ours(other: str, phase: str) -> str:
        means = [mean(ratios_of(of, "promoe", other, phase)) for of in tables]
        return f"{min(means):.2f} to {max(means):.2f}"

    def tpot(model: Geometry, name: str, rate: float) -> float:
        traces = requests(model, random_ids(model, 192))
        return 1e3 / simulate(model, traces, hardware, name, rate).decode

    mixtral = {n: tpot(MIXTRAL, n, 0.63) for n in ("lru", "moepic", "moe-infinity", "outrider")}
    wide = replace(DEEPSEEK, bits=16.0)
    deepseek = {n: tpot(wide, n, 0.6) for n in ("lru", "moe-infinity", "outrider")}
    traces = requests(MIXTRAL, random_ids(MIXTRAL, 192))
    stream, base = (simulate(MIXTRAL, traces, hardware, name, 0.25) for name in ("duoserve", "lru"))
    yield "| printed | where | here, RTX 4090 |"
    yield "|---|---|---|"
    yield (
        "| ProMoE to static, llama.cpp: prefill 1.36 (up to 1.75), decode 1.49 (1.79) "
        "| 7.2, Figure 11 "
        f"| promoe: {ours('static', 'prefill')}, {ours('static', 'decode')} |"
    )
    yield (
        "| ProMoE to LRU, llama.cpp: prefill 2.12 (up to 2.22), decode 1.09 (1.17) "
        "| 7.2, Figure 11 "
        f"| promoe: {ours('lru', 'prefill')}, {ours('lru', 'decode')} |"
    )
    yield (
        "| ProMoE over cache rates, llama.cpp, QW-2: to LRU 1.53 and 1.14, to static 1.10 and 1.27 "
        "| 7.4, Figure 16 | as above: those are over cache rates |"
    )
    yield (
        "| ProMoE over cache rates, transformers: decode to static 1.60, to LRU 1.29; prefill to "
        "LRU 1.72 and 1.82, to static 1.22 and 1.39 (DS-1, QW-2) | 7.4, Figures 14, 15 | the same |"
    )
    yield (
        "| ProMoE to llama.cpp's layer offload and unified memory: prefill 2.25 (3.21), decode "
        "1.66 (2.07); Mixtral decodes faster with layer offload | 7.2 | promoe to layer offload: "
        f"{ours('layer offload', 'prefill')}, {ours('layer offload', 'decode')} |"
    )
    yield (
        "| MoEpic, Mixtral-8x7B, room for 160 of 256 experts, A6000, TPOT: MoEpic 85 ms, LRU "
        "(Mixtral-offloading) 162, MoE-Infinity 136, AdapMoE 144, Pre-gated 248 | 4.2, Figure 7 "
        f"| moepic {mixtral['moepic']:.0f}, lru {mixtral['lru']:.0f}, moe-infinity "
        f"{mixtral['moe-infinity']:.0f}, outrider {mixtral['outrider']:.0f} ms |"
    )
    yield (
        "| MoE-Infinity, DeepSeek-V2-Lite, A5000 with 24 GB, TPOT: 155 ms, vLLM 485, "
        "Mixtral-offloading 1250 | Table 1 | 16 bits, rate 0.6: moe-infinity "
        f"{deepseek['moe-infinity']:.0f}, lru {deepseek['lru']:.0f}, outrider "
        f"{deepseek['outrider']:.0f} ms |"
    )
    yield (
        "| DuoServe-MoE, Mixtral, to loading on demand and whole layers: TTFT 1.78 to 3.8, "
        "throughput 1.78 to 7.04 | 6.2, Figures 5, 6 | duoserve to lru with as few slots: prefill "
        f"{stream.prefill / base.prefill:.2f}, decode {stream.decode / base.decode:.2f} |"
    )
    yield (
        "| Klotski, many prompts at once: throughput up to 85.12, 15.45, 2.23, 19.06 and 9.53 "
        "times (Accelerate, FastGen, FlexGen, MoE-Infinity, Fiddler) | 9.2, Figure 10 "
        "| one prompt at a time here |"
    )
    yield ""


def main() -> None:
    """Make the tables and print them, or put them into a document."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("routes", type=Path)
    parser.add_argument("--out", type=Path, help="a document with the two marks")
    arguments = parser.parse_args()
    # llama.cpp computes the last layer of a prompt for its last token only.
    trace = read_csv(arguments.routes)
    recorded = trace.ids[int(trace.n_token[0]) :].astype(np.uint8)
    models = [
        (MIXTRAL, requests(MIXTRAL, random_ids(MIXTRAL, 192))),
        (QWEN, requests(QWEN, recorded)),
        (DEEPSEEK, requests(DEEPSEEK, random_ids(DEEPSEEK, 192))),
    ]
    lines = []
    ratios: dict[tuple[str, str], Table] = {}
    for name in MACHINES:
        hardware = load(name)
        lines += [f"### {name}", "", hardware.sentence, ""]
        for model, traces in models:
            found = ratios[name, model.name] = table(model, traces, hardware)
            lines += lines_of(model, found)
    lines += ["### How many times as fast", "", "Mean over the nine rates, and the most.", ""]
    lines += ratio_lines(ratios)
    lines += ["### Beside the papers' figures", ""]
    lines += paper_lines(ratios)
    text = "\n".join(lines)
    if arguments.out is None:
        print(text)
        return
    document = arguments.out.read_text(encoding="utf-8")
    before, rest = document.split(BEGIN)
    after = rest.split(END)[1]
    arguments.out.write_text(before + BEGIN + "\n" + text + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
