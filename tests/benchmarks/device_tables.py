"""The tables of docs/devices.md: what the machine presets would make of three models' geometry.

    PYTHONPATH=. python tests/benchmarks/device_tables.py ROUTES.csv [--out docs/devices.md]

ROUTES.csv is the recorded routing of Qwen3-30B-A3B that docs/simulator.md names. The other models'
routing is drawn at random. Nothing here was measured on a graphics card.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from backend.machines import Hardware, load
from backend.methods import METHODS
from backend.simulate import Setting, machine_for, run
from backend.trace import DECODE, PREFILL, Trace
from backend.trace_csv import read_csv

RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
SHOWN = ("static", "lru", "lru-overlapped", "promoe", "outrider", "oracle")
MACHINES = ("rtx4090-pcie4x16", "rtx3060")
BITS = 4.5
HOST_GB_PER_S = 50.0
"""At which a desktop's processor reads weights that it computes with: two channels of DDR5."""
ACCURACY = 0.847
"""Of the predictor, as ProMoE reports on average (section 4.2)."""
STAY = 0.25
"""Synthetic routing: the chance that an expert of the token before is chosen again."""
BEGIN, END = "<!-- simulated -->\n", "<!-- end of simulated -->\n"


@dataclass(frozen=True)
class Geometry:
    """Numbers of weights. dense: of one layer beside its routed experts."""

    name: str
    n_layer: int
    n_expert: int
    n_used: int
    n_embd: int
    n_ff: int
    dense: float
    output: float

    @property
    def matrix_bytes(self) -> int:
        """Of one of an expert's three matrices."""
        return round(self.n_embd * self.n_ff * BITS / 8)

    def about(self) -> dict[str, float]:
        """What a trace says of its model, for the simulator."""
        return {
            "layer_dense_bytes": self.dense * BITS / 8,
            "output_bytes": self.output * BITS / 8,
            "bits_per_weight": BITS,
        }


MIXTRAL = Geometry("Mixtral-8x7B", 32, 8, 2, 4096, 14336, 41.9e6, 131e6)
QWEN = Geometry("Qwen3-30B-A3B, 6 used", 48, 128, 6, 2048, 768, 21e6, 311e6)
DEEPSEEK = Geometry("DeepSeek-V2-Lite", 26, 64, 6, 2048, 1408, 31.1e6, 210e6)


def random_trace(model: Geometry, n_prompt: int = 64, n_decode: int = 64) -> Trace:
    """A request whose tokens keep some experts of the token before, and else draw by popularity."""
    random = np.random.default_rng(1)
    n = n_prompt + n_decode
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
    n_token = np.array([n_prompt] + [1] * n_decode, np.int32)
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
        tokens=np.full(n, -1, np.int32),
        ids=ids,
        about=model.about(),
    )


def recorded_trace(path: Path, model: Geometry) -> Trace:
    """A recorded routing with this model's sizes."""
    trace = read_csv(path)
    sizes = ((model.matrix_bytes,) * 3,) * trace.n_layer
    return replace(trace, chunk_bytes=sizes, about=model.about())


def layer_offload(model: Geometry, trace: Trace, hardware: Hardware, rate: float) -> float:
    """Decoded tokens per second, some layers' experts on the device, the others' on the CPU."""
    machine = machine_for(trace, hardware)
    expert_us = 3 * model.matrix_bytes * model.n_used / (HOST_GB_PER_S * 1e3)
    on_device = machine.dense_us + machine.wave_us + machine.expert_us * model.n_used
    on_host = machine.dense_us + expert_us
    n_device = int(rate * model.n_layer)
    total_us = n_device * on_device + (model.n_layer - n_device) * on_host + machine.pass_us
    return 1e6 / total_us


def table(model: Geometry, trace: Trace, hardware: Hardware) -> Iterator[str]:
    """Lines of Markdown: decode / prefill, in tokens per second."""
    yield f"| {model.name} | " + " | ".join(f"{100 * r:.0f} %" for r in RATES) + " |"
    yield "|---" * (len(RATES) + 1) + "|"
    setting = Setting(trace, hardware, accuracy=ACCURACY)
    offload = [f"{layer_offload(model, trace, hardware, r):.1f}" for r in RATES]
    yield "| layer offload (arithmetic, decode) | " + " | ".join(offload) + " |"
    results = list(run(setting, [METHODS[name] for name in SHOWN], RATES))
    for i, name in enumerate(SHOWN):
        row = results[i * len(RATES) : (i + 1) * len(RATES)]
        cells = [
            r.reason or f"{r.decode.tokens_per_s:.1f} / {r.prefill.tokens_per_s:.0f}" for r in row
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"
    (whole,) = run(setting, [METHODS["lru"]], [1.0])
    warm = whole.decode.n_token / whole.decode.compute_s
    warm_prefill = whole.prefill.n_token / whole.prefill.compute_s
    yield f"| fully resident | {warm:.1f} / {warm_prefill:.0f} " + "| " * len(RATES)
    yield ""


def main() -> None:
    """Make the tables and print them, or put them into a document."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("routes", type=Path)
    parser.add_argument("--out", type=Path, help="a document with the two marks")
    arguments = parser.parse_args()
    traces = [
        (MIXTRAL, random_trace(MIXTRAL)),
        (QWEN, recorded_trace(arguments.routes, QWEN)),
        (DEEPSEEK, random_trace(DEEPSEEK)),
    ]
    lines = []
    for name in MACHINES:
        hardware = load(name)
        lines += [f"### {name}", "", hardware.sentence, ""]
        for model, trace in traces:
            lines += table(model, trace, hardware)
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
