"""The host store between the file and a device: three levels, one core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import event_logs
import numpy as np
import pytest
from equality import Runner, n_different
from factory import make_tiny
from loopback import needs_rpc, server

from backend import _native
from backend.engine.loading import CachedModel, load_native
from backend.evaluation.verify import compare
from backend.gguf.model_file import ModelFile, read_model
from backend.memory import devices
from backend.memory.placement import Placement
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of

RATES = (0.1, 0.5, 1.0)
ALL, HALF, HARDLY = 1.0, 0.5, 0.025
"""Of all experts, what the store holds; the last is one expert, of the first layer."""


@pytest.fixture(scope="module")
def device() -> Iterator[Placement]:
    """Place all layers on a device in a process of its own, for these tests only."""
    with server() as running:
        yield Placement(tuple(d.pointer for d in devices.resolve(running.option)), 999)


def share(file: ModelFile, of_all: float) -> int:
    return int(file.expert_bytes_total * of_all)


class OnDevice:
    """A tiny model with a cache on the device and a store in this process."""

    def __init__(self, path: Path, at: Placement) -> None:
        self.file = read_model(path)
        self.cached = CachedModel(self.file, n_thread=1, placement=at)
        self.patch, self.shape = self.cached.patch, self.cached.patch.shape
        self._runner: Runner | None = None

    def configure(self, rate: float, method: str, host_bytes: int, **options: Any) -> None:
        known = {"max_token": 128, "host_bytes": host_bytes}
        chosen = METHODS[method]
        self.patch.configure(
            layout(chosen, self.shape, slots_of(rate, self.shape.n_expert)),
            composition(chosen, self.shape),
            _native.PatchOptions(**(known | options)),
        )
        if self._runner is None:
            self._runner = Runner(self.cached.model, 1, self.patch)

    def logits(self, n_prompt: int = 33, n_decode: int = 12) -> np.ndarray:
        assert self._runner is not None
        return self._runner.logits(n_prompt, n_decode)

    def bytes(self) -> dict[str, int]:
        """Return the bytes from each source since the cache was rebuilt."""
        slots = sum(c.bytes_read for c in self.patch.counts())
        host = self.patch.host_counts()
        found, awaited = sum(h.bytes_found for h in host), sum(h.bytes_awaited for h in host)
        read = sum(h.bytes_read for h in host)
        direct = slots - found - awaited  # from the file into slots, past the store
        return {"slots": slots, "found": found, "direct": direct, "file": direct + read}

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self.patch = None
        self.cached.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with three layers of 16 experts, 4 used, that can be cut in four."""
    folder = tmp_path_factory.mktemp("model")
    return make_tiny("qwen3moe", "Q8_0", folder / "m.gguf", n_ff_exp=128)


@pytest.fixture(scope="module")
def model(tiny: Path, device: Placement) -> Iterator[OnDevice]:
    opened = OnDevice(tiny, device)
    yield opened
    opened.close()


@needs_rpc
@pytest.mark.parametrize("of_all", [ALL, HALF, HARDLY])
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "deepseek2"])
def test_bit_by_bit(arch: str, of_all: float, device: Placement, tmp_path: Path) -> None:
    file = read_model(make_tiny(arch, "Q4_0", tmp_path / "m.gguf"))
    found = compare(
        file,
        RATES,
        ("promoe",),
        n_token=48,
        n_thread=1,
        placement=device,
        host_bytes=share(file, of_all),
    )
    assert [f.n_different for f in found] == [0, 0, 0]


@needs_rpc
@pytest.mark.parametrize("method", ["lru-overlapped", "moepic", "moe-infinity", "duoserve"])
def test_methods_that_cut_or_share(method: str, model: OnDevice) -> None:
    """The logits are the same without a store and with one of any size."""
    model.configure(0.25, method, 0)
    expected = model.logits()
    for of_all in (ALL, HALF, HARDLY):
        model.configure(0.25, method, share(model.file, of_all))
        assert n_different(model.logits(), expected) == 0
        assert model.bytes()["found"] > 0 or of_all == HARDLY


@needs_rpc
def test_a_part_of_the_layers(tiny: Path, device: Placement) -> None:
    """The CPU's layers do not use the store."""
    at = replace(device, n_gpu_layers=2)
    stock = load_native(read_model(tiny), at)
    runner = Runner(stock, 1)
    expected = runner.logits(33, 12)
    runner.close()
    stock.close()
    opened = OnDevice(tiny, at)
    try:
        opened.configure(0.25, "promoe", share(opened.file, HALF))
        assert n_different(opened.logits(), expected) == 0
        n_slot = opened.patch.host_slots
        assert n_slot[:2] == [0, 0] and n_slot[2] == 16
    finally:
        opened.close()


@needs_rpc
def test_the_file_is_read_once(model: OnDevice) -> None:
    model.configure(0.25, "lru-overlapped", share(model.file, ALL))
    model.logits()
    first = model.bytes()
    assert 0 < first["file"] <= model.file.expert_bytes_total
    model.logits()
    second = model.bytes()
    assert second["file"] == first["file"]  # nothing more
    assert second["found"] - first["found"] == second["slots"] - first["slots"] > 0


@needs_rpc
def test_the_more_the_store_holds_the_less_is_read(model: OnDevice) -> None:
    read = []
    for of_all in (0, HARDLY, HALF, ALL):
        model.configure(0.25, "lru-overlapped", share(model.file, of_all))
        for n_prompt in (33, 40, 33):
            model.logits(n_prompt)
        moved = model.bytes()
        assert moved["direct"] >= 0 and moved["file"] + moved["found"] > 0
        read.append(moved["file"])
    # Who leaves depends on the time of arrivals here, so one expert in RAM may change nothing.
    assert read[1] < 1.02 * read[0] and read[3] < read[2] < min(read[:2])


@needs_rpc
@pytest.mark.parametrize("method", ["promoe", "lru", "moepic", "outrider"])
def test_the_simulator_counts_the_same(method: str, model: OnDevice) -> None:
    """Copies are instant. The simulator gets the live trace; the live events are replayed, too."""
    shape, patch = model.shape, model.patch
    patch.record_events(True)
    model.configure(0.25, method, share(model.file, HALF), n_transfer_thread=0)
    recorder = _native.Recorder(
        shape.n_layer, shape.n_expert, shape.n_expert_used, n_embd=patch.n_embd, inputs=True
    )
    patch.record(recorder)
    model.logits(70, 12)
    patch.record(None)
    log = patch.take_events()
    patch.record_events(False)

    def new_core() -> _native.Core:
        return _native.Core(
            shape,
            patch.layout,
            composition(METHODS[method], shape),
            n_embd=patch.n_embd,
            routers=patch.routers,
            host_slots=patch.host_slots,
        )

    def counted(counts: Any, host: Any) -> list[tuple[int, ...]]:
        return [
            (c.hits, c.late, c.misses, c.bytes_read, h.bytes_read, h.bytes_found, h.bytes_awaited)
            for c, h in zip(counts, host, strict=True)
        ]

    live = counted(patch.counts(), patch.host_counts())
    assert sum(row[5] for row in live) > 0
    replayed = new_core()
    assert _native.replay(log, replayed) == -1
    layers = range(shape.n_layer)
    assert counted(map(replayed.counts, layers), map(replayed.host_counts, layers)) == live

    core, taken = new_core(), recorder.take()
    _native.simulate(
        core, future_of(model, taken), _native.Machine(), inputs=taken["inputs"],
        has_inputs=[bool(x) for x in taken["has_inputs"]] if "has_inputs" in taken else [],
        weights=taken["weights"],
    )  # fmt: skip
    assert counted(map(core.counts, layers), map(core.host_counts, layers)) == live


def future_of(model: OnDevice, arrays: dict[str, np.ndarray]) -> Any:
    from backend.traces.trace import Trace

    shape = model.shape
    return Trace(
        architecture=model.file.architecture,
        layers=tuple(model.file.expert_tensors),
        n_expert=shape.n_expert,
        n_expert_used=shape.n_expert_used,
        n_embd=model.patch.n_embd,
        chunk_bytes=tuple(map(tuple, shape.chunk_bytes)),
        n_cut=tuple(shape.n_cut),
        layer_kind=tuple(shape.kind),
        model=model.file.fingerprint,
        about={},
        **arrays,
    ).future()


@pytest.fixture(scope="module")
def model_of_logs(
    tmp_path_factory: pytest.TempPathFactory, device: Placement
) -> Iterator[event_logs.Model]:
    path = event_logs.make_model(tmp_path_factory.mktemp("model"), "qwen3moe")
    opened = event_logs.Model(path, device)
    yield opened
    opened.close()


@needs_rpc
@pytest.mark.parametrize(
    "run", [r for r in event_logs.RUNS if r.host_share > 0], ids=lambda run: run.name
)
def test_logs_are_whole(run: event_logs.Run, model_of_logs: event_logs.Model) -> None:
    """As in test_event_logs.py: live, simulated and kept logs are one; with threads, a replay."""
    model, wanted = model_of_logs, event_logs.kept(run.name)
    for logs in (model.live(run), model.simulated(run)):
        changed = event_logs.difference(run.name, wanted, event_logs.lines_of(logs))
        assert changed == "", changed
    for segment, log in zip(run.segments, model.live(run, by_rule=False), strict=True):
        assert _native.replay(log, model.core(run, model.layout(run, segment))) == -1
