"""The simulator counts what a live run counted: both drive the same core.

Copies are instant in both. The simulator gets the trace of the live run.
tests/live/test_same_as_simulated.py compares single parts.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from factory import make_tiny

from backend import _native
from backend.engine.loading import CachedModel
from backend.gguf.model_file import read_model
from backend.llama.api import Context
from backend.methods.catalogue import CACHED, METHODS, Method
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of
from backend.traces.trace import Trace

N_PROMPT, N_DECODE, N_UBATCH = 70, 12, 32
Counts = list[tuple[int, int, int, int]]


def counts_of(counts: list[_native.LayerCounts]) -> Counts:
    return [(c.hits, c.late, c.misses, c.bytes_read) for c in counts]


class Live:
    """A tiny model that runs with an instant cache and records its routing."""

    def __init__(self, path: Path) -> None:
        self.file = read_model(path)
        self.cached = CachedModel(self.file, n_thread=1)
        self.patch = self.cached.patch
        self.shape = self.patch.shape

    def run(self, method: Method, rate: float) -> tuple[Counts, dict[str, np.ndarray]]:
        patch = self.patch
        options = _native.PatchOptions(n_transfer_thread=0, max_token=N_UBATCH)
        slots = layout(method, self.shape, slots_of(rate, self.shape.n_expert))
        patch.configure(slots, composition(method, self.shape), options)
        recorder = _native.Recorder(
            self.shape.n_layer,
            self.shape.n_expert,
            self.shape.n_expert_used,
            n_embd=patch.n_embd,
            inputs=True,
        )
        patch.record(recorder)
        context = Context(
            self.cached.model,
            n_context=256,
            n_ubatch=N_UBATCH,
            n_thread=1,
            callback=patch.callback,
            user_data=patch.user_data,
        )
        tokens = np.random.default_rng(3).integers(5, 200, N_PROMPT + N_DECODE).tolist()
        steps = [*range(0, N_PROMPT, N_UBATCH), *range(N_PROMPT, len(tokens)), len(tokens)]
        patch.request_began()
        for begin, end in itertools.pairwise(steps):
            phase = _native.Phase.prefill if begin < N_PROMPT else _native.Phase.decode
            patch.begin_pass(phase, tokens[begin:end])
            assert context.decode(tokens[begin:end], begin) == 0 and patch.end_pass()
        context.close()
        patch.record(None)
        return counts_of(patch.counts()), recorder.take()

    def simulate(self, method: Method, rate: float, arrays: dict[str, np.ndarray]) -> Counts:
        core = _native.Core(
            self.shape,
            layout(method, self.shape, slots_of(rate, self.shape.n_expert)),
            composition(method, self.shape),
            n_embd=self.patch.n_embd,
            routers=self.patch.routers,
        )
        trace = Trace(
            architecture=self.file.architecture,
            layers=tuple(self.file.expert_tensors),
            n_expert=self.shape.n_expert,
            n_expert_used=self.shape.n_expert_used,
            n_embd=self.patch.n_embd,
            chunk_bytes=tuple(map(tuple, self.shape.chunk_bytes)),
            n_cut=tuple(self.shape.n_cut),
            layer_kind=tuple(self.shape.kind),
            model=self.file.fingerprint,
            about={},
            **arrays,
        )
        has_inputs = [] if trace.has_inputs is None else [bool(x) for x in trace.has_inputs]
        _native.simulate(
            core,
            trace.future(),
            _native.Machine(),
            inputs=trace.inputs,
            weights=trace.weights,
            has_inputs=has_inputs,
        )
        return counts_of([core.counts(n) for n in range(self.shape.n_layer)])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    path = tmp_path_factory.mktemp("same") / "m.gguf"
    return Live(make_tiny("qwen3moe", "Q8_0", path))


@pytest.mark.parametrize("rate", [0.25, 0.7])
@pytest.mark.parametrize("name", CACHED)
def test_every_method(name: str, rate: float, live: Live) -> None:
    counts, arrays = live.run(METHODS[name], rate)
    assert live.simulate(METHODS[name], rate, arrays) == counts
