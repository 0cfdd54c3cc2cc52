"""Compare what devices should reach with what is simulated; a table for docs/devices-shown.md.

    PYTHONPATH=.:tests/benchmarks python tests/benchmarks/device_goals.py ROUTES.csv

ROUTES.csv is the recorded routing of Qwen3-30B-A3B that docs/simulator.md names. Nothing here was
measured on a graphics card.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from device_tables import (
    ACCURACY,
    N_DECODE,
    QWEN,
    Geometry,
    Ids,
    future_of,
    requests,
    slots,
    with_host,
)

from backend import _native
from backend.machines import load
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, with_accuracy
from backend.simulation import offload
from backend.simulation.run import machine_for
from backend.traces.csv_reader import read_csv
from backend.traces.trace import DECODE, PREFILL, Trace

MACHINE = "rtx4090-pcie4x16"
METHOD = "outrider"
STOPS_US = (0, 20, 45)
LENGTHS = (28, 512, 2048)
N_UBATCH = 512
"""Tokens in a piece of a prompt, for both: llama.cpp's default."""
RATE = 0.5
N_WARM = 3
"""Repetitions of a request; the last one counts."""


def trace_of(model: Geometry, ids: Ids, n_prompt: int) -> Trace:
    """Return a request: a prompt in pieces, and the rest of ids decoded."""
    pieces = [min(N_UBATCH, n_prompt - at) for at in range(0, n_prompt, N_UBATCH)]
    n_token = np.array(pieces + [1] * (len(ids) - n_prompt), np.int32)
    n_decode = len(ids) - n_prompt
    n_routed = np.repeat(n_token[:, None], model.n_layer, axis=1)
    n_routed[: len(pieces), -1] = [0] * (len(pieces) - 1) + [1]  # the last layer: one token
    ids = ids.copy()
    ids[: n_prompt - 1, -1] = 0
    return Trace(
        architecture="",
        layers=tuple(range(model.n_layer)),
        n_expert=model.n_expert,
        n_expert_used=model.n_used,
        chunk_bytes=((model.matrix_bytes,) * 3,) * model.n_layer,
        phases=np.array([PREFILL] * len(pieces) + [DECODE] * n_decode, np.uint8),
        requests=np.zeros(len(n_token), np.int32),
        n_token=n_token,
        n_routed=n_routed,
        tokens=np.full(len(ids), -1, np.int32),
        ids=ids,
        about=model.about(),
    )


def ours(
    model: Geometry,
    traces: Sequence[Trace],
    layout: Any,
    stop_us: float,
    hybrid: str,
) -> Any:
    """Return the simulation of the last request."""
    shape = traces[0].shape()
    core = _native.Core(
        shape,
        layout,
        composition(
            with_accuracy(METHODS[METHOD], ACCURACY), shape, hybrid=hybrid, on_device=stop_us > 0
        ),
        future=future_of(traces),
    )
    machine = machine_for(traces[0], load(MACHINE), stop_us=stop_us)
    machine = machine if hybrid == "off" else with_host(machine, model)
    for trace in traces:
        found = _native.simulate(core, trace.future(), machine)
    return found


def stock(model: Geometry, trace: Trace, rate: float, stop_us: float) -> Any:
    """Return stock llama.cpp's result. A layer in RAM costs it a stop."""
    machine = machine_for(trace, load(MACHINE), stop_us=stop_us)
    machine = offload.with_host(machine, 3 * model.matrix_bytes, model.bits)
    return offload.n_cpu_moe(trace, machine, rate)


def all_there(shape: Any) -> Any:
    """Return a layout with slots for all experts in which no layer settles: pairs share slots."""
    pools = [_native.PoolLayout(2 * shape.n_expert)] * (shape.n_layer // 2)
    layers = [_native.LayerLayout(1.0, [layer // 2, -1]) for layer in range(shape.n_layer)]
    return _native.Layout(pools, layers)


def decode_lines(recorded: Ids) -> list[str]:
    """Return rows: decoded tokens per second of a warm cache, beside stock's."""
    traces = requests(QWEN, recorded)
    traces = [traces[0], *[traces[1]] * N_WARM]
    shape = traces[0].shape()
    lines = [
        "| stop | fully resident | all there, unsettled | ratio (0.93) | n-cpu-moe, 50 % "
        "| outrider, 50 % | ratio (1.5) | with hybrid misses |",
        "|---" * 8 + "|",
    ]
    for stop_us in STOPS_US:
        whole = stock(QWEN, traces[-1], 1.0, stop_us).decode.tokens_per_s
        half = stock(QWEN, traces[-1], RATE, stop_us).decode.tokens_per_s
        full = speed(ours(QWEN, traces, all_there(shape), stop_us, "off").decode)
        layout = slots(QWEN, shape, METHOD, RATE)
        some, both = (
            speed(ours(QWEN, traces[:2], layout, stop_us, hybrid).decode)
            for hybrid in ("off", "auto")
        )
        lines.append(
            f"| {stop_us} us | {whole:.1f} | {full:.1f} | {full / whole:.2f} | {half:.1f} "
            f"| {some:.1f} | {some / half:.2f} | {both:.1f} ({both / half:.2f}) |"
        )
    return lines


def prompt_lines(recorded: Ids, stop_us: float) -> list[str]:
    """Return rows: milliseconds of a prompt at RATE, beside stock's."""
    lines = [
        "| routing | tokens | used a layer | n-cpu-moe, ms | outrider, ms | times as fast "
        "| with hybrid misses, ms |",
        "|---" * 7 + "|",
    ]
    for name in ("recorded", "random"):
        model = QWEN if name == "recorded" else replace(QWEN, n_used=8)
        for length in LENGTHS:
            drawn = [prompt(model, recorded, name, length, seed) for seed in range(N_WARM)]
            traces = [trace_of(model, ids, length) for ids in drawn]
            n_used = np.mean([len(np.unique(drawn[-1][:length, n])) for n in range(model.n_layer)])
            theirs = 1e3 * stock(model, traces[-1], RATE, stop_us).prefill.time_s
            layout = slots(model, traces[0].shape(), METHOD, RATE)
            some, both = (
                ours(model, traces, layout, stop_us, hybrid).prefill.time_us / 1e3
                for hybrid in ("off", "auto")
            )
            lines.append(
                f"| {name} | {length} | {n_used:.0f} | {theirs:.0f} | {some:.0f} "
                f"| {theirs / some:.2f} | {both:.0f} |"
            )
    return lines


def prompt(model: Geometry, recorded: Ids, name: str, length: int, seed: int) -> Ids:
    """Return a prompt's ids and N_DECODE more: drawn from the recorded tokens, or at random."""
    random = np.random.default_rng(seed)
    if name == "recorded":
        return recorded[random.integers(0, len(recorded), length + N_DECODE)]
    shape = (length + N_DECODE, model.n_layer, model.n_expert)
    order = random.random(shape, np.float32).argpartition(model.n_used, axis=2)
    return order[:, :, : model.n_used].astype(np.uint8)


def speed(phase: Any) -> float:
    """Return tokens per second."""
    return float(1e6 * phase.n_token / phase.time_us)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("routes", type=Path)
    trace = read_csv(parser.parse_args().routes)
    recorded = trace.ids[int(trace.n_token[0]) :].astype(np.uint8)
    print("\n".join(decode_lines(recorded)), flush=True)
    for stop_us in STOPS_US:
        print(f"\nPrompts, stop of {stop_us} us:\n")
        print("\n".join(prompt_lines(recorded, stop_us)), flush=True)


if __name__ == "__main__":
    main()
