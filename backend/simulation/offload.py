"""Stock llama.cpp beside a device, in virtual time: some layers' experts in RAM (--n-cpu-moe).

The processor computes those layers' experts for up to 31 tokens. For longer prompts llama.cpp
copies the used experts to the device (op_offload): it waits for the router's choice, copies each
matrix's experts, and computes. Nothing overlaps (ggml_backend_sched_compute_splits).
"""

from __future__ import annotations

import numpy as np

from backend import _native
from backend.simulation.results import Counts, Phase, Result, summed
from backend.traces.trace import DECODE, Trace

NAME = "n-cpu-moe"
MIN_OFFLOADED = 32
"""Tokens from which on a device computes layers in RAM: GGML_OP_OFFLOAD_MIN_BATCH's default."""
HOST_GB_PER_S = 50.0
"""Speed at which a desktop's processor reads weights to compute with: two channels of DDR5."""
HOST_TFLOP_PER_S = 1.0
"""Its computing speed for a prompt with these weights."""


def with_host(
    machine: _native.Machine, expert_bytes: float, bits_per_weight: float, host_us: float = 0.0
) -> _native.Machine:
    """Return the machine with a processor that computes experts in RAM.

    expert_bytes: bytes of one expert. host_us: time for handing over a layer's rows, both ways.
    """
    figures = {n: getattr(machine, n) for n in dir(machine) if not n.startswith("_")}
    figures["host_us"] = host_us
    figures["host_expert_us"] = expert_bytes / (HOST_GB_PER_S * 1e3)
    operations = 2 * 8 * expert_bytes / bits_per_weight
    figures["host_expert_token_us"] = operations / (HOST_TFLOP_PER_S * 1e6)
    return _native.Machine(**figures)


def n_cpu_moe(trace: Trace, machine: _native.Machine, rate: float) -> Result:
    """Return stock llama.cpp's times with the experts of rate * n_layer layers on the device.

    machine: with a processor (with_host()) and a link. The first layers are in RAM. Where the
    device must wait for the processor, or for a router's choice, it stops once (machine.stop_us).
    The memory that llama.cpp takes for copied experts is not counted.
    """
    n_ram = trace.n_layer - int(rate * trace.n_layer)
    sizes = np.array([sum(chunks) for chunks in trace.chunk_bytes], float)
    shares = sizes / sizes.mean()
    phases: list[tuple[Phase, Phase]] = []
    counts = []
    nothing = Phase(0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0)
    for number in range(trace.n_pass):
        n_token = int(trace.n_token[number])
        compute_us = machine.pass_us + trace.n_layer * (
            machine.dense_us + machine.dense_token_us * (n_token - 1)
        )
        copy_us, n_there, n_missing, n_byte = 0.0, 0, 0, 0.0
        for layer, share in enumerate(shares):
            ids = trace.ids[trace.rows(number, layer), layer]
            if not ids.size:
                continue
            n_used = len(np.unique(ids))
            n_further = ids.size - n_used
            there_us = machine.wave_us + share * (
                n_used * machine.expert_us + n_further * machine.expert_token_us
            )
            if layer >= n_ram:
                n_there += n_used
                compute_us += there_us
                continue
            n_missing += n_used
            compute_us += machine.stop_us
            if n_token < MIN_OFFLOADED:
                compute_us += machine.host_us + share * (
                    n_used * machine.host_expert_us + n_further * machine.host_expert_token_us
                )
                continue
            compute_us += there_us
            n_byte += n_used * sizes[layer]
            copy_us += len(trace.chunk_bytes[layer]) * machine.link_latency_us
            copy_us += n_used * sizes[layer] / machine.link_bytes_per_us
        requests = n_there + n_missing
        phase = Phase(
            1, n_token, (compute_us + copy_us) / 1e6, compute_us / 1e6, copy_us / 1e6,
            copy_us / 1e6, n_there, requests,
        )  # fmt: skip
        decoded = trace.phases[number] == DECODE
        phases.append((nothing, phase) if decoded else (phase, nothing))
        read = round(n_byte)
        counts.append(Counts(n_there, 0, n_missing, read, read, 0, 0, 0, 0, 0, 0, 0, copy_us / 1e6))
    prefills, decodes = zip(*phases, strict=True)
    there = sizes[n_ram:].sum() * trace.n_expert
    return Result(
        method=NAME,
        asked_rate=rate,
        kind="stock",
        rate=float(there / (sizes.sum() * trace.n_expert)),
        cache_bytes=round(float(there)),
        total=summed(counts),
        prefill=summed(prefills),
        decode=summed(decodes),
    )
