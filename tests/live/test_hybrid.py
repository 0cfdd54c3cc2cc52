"""The host computes some of the missing experts; the answer still equals llama.cpp's.

Here the device is another process on the same processor with the same kernels, so every bit is the
same. On a graphics card only rounding would differ, and `verify` prints the bound that it
applies.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import of_text
from factory import make_tiny
from loopback import NAMED, Server, needs_rpc, server

from backend import _native
from backend.engine import loading
from backend.engine.engine import Engine
from backend.evaluation.verify import Comparison, compare
from backend.gguf.model_file import read_model
from backend.llama import api as llama
from backend.memory import devices
from backend.memory.placement import Placement
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout
from backend.methods.slots import slots_of
from backend.protocol.settings import EngineConfig, Sampling
from backend.system.paths import embedded_model

pytestmark = needs_rpc

ARCHS = {
    "qwen3moe": "Q8_0",
    "gpt-oss": "MXFP4",  # biases for every expert
    "llama4": "Q4_0",  # weights before the experts
    "deepseek2": "Q8_0",
    "gemma4": "F16",  # gate and up in one tensor
    "qwen3next": "Q8_0",
}


@pytest.fixture(scope="module")
def device() -> Iterator[Server]:
    with server() as running:
        yield running


def placement_on(device: Server, n_gpu_layers: int = 999) -> Placement:
    return Placement(tuple(d.pointer for d in devices.resolve(device.option)), n_gpu_layers)


def found(path: Path, device: Server, hybrid: str, *rates: float, **more: Any) -> list[Comparison]:
    options: dict[str, Any] = {
        "n_token": 48,
        "n_thread": 1,
        "placement": placement_on(device),
    } | more
    return list(compare(read_model(path), rates, ("lru-overlapped",), hybrid=hybrid, **options))


@pytest.mark.parametrize(
    ("arch", "hybrid"),
    [
        pytest.param(arch, hybrid, marks=() if (i + j) % 2 else pytest.mark.night)
        for i, arch in enumerate(ARCHS)
        for j, hybrid in enumerate(("auto", "cpu-only"))
    ],
)
def test_architectures(arch: str, hybrid: str, device: Server, tmp_path: Path) -> None:
    path = make_tiny(arch, ARCHS[arch], tmp_path / "m.gguf", expert_scales=arch == "qwen3moe")
    for result in found(path, device, hybrid, 0.1, 0.5):
        assert result.bound == "hybrid" and 0 < result.on_host <= result.late + result.misses
        assert result.nmse <= result.hybrid_nmse
        assert abs(result.perplexity_difference) <= result.hybrid_perplexity
        assert result.lossless
        if hybrid == "cpu-only":
            assert result.on_host == result.late + result.misses


def test_the_embedded_model(device: Server) -> None:
    (result,) = found(embedded_model(), device, "auto", 0.25, n_token=64)
    assert result.on_host > 100 and result.misses > result.on_host
    assert (
        result.nmse <= result.hybrid_nmse
        and abs(result.perplexity_difference) <= result.hybrid_perplexity
    )


def test_bits_are_promised_where_nothing_moved(device: Server, tmp_path: Path) -> None:
    path = make_tiny("olmoe", "Q8_0", tmp_path / "m.gguf")
    for hybrid, rate in (("off", 0.25), ("auto", 1.0)):
        (result,) = found(path, device, hybrid, rate, n_token=8)
        assert result.bound == "bits" or result.misses > 0
        assert result.identical or (NAMED and result.nmse <= result.hybrid_nmse)
    on_cpu = found(path, device, "cpu-only", 0.25, placement=Placement())
    assert [(r.bound, r.on_host, r.identical) for r in on_cpu] == [("bits", 0, True)]


def test_the_host_computes_what_its_store_has(device: Server, tmp_path: Path) -> None:
    """Experts not in the store would have to be read from the file for the processor, too."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    file = read_model(path)
    one_each = file.expert_bytes_total // file.n_expert
    sizes = (file.expert_bytes_total, one_each)
    (all_there,), (hardly_any,) = (
        found(path, device, "auto", 0.25, host_bytes=size) for size in sizes
    )
    assert all_there.on_host > hardly_any.on_host
    assert all_there.lossless and hardly_any.lossless


def test_a_part_of_the_layers(device: Server, tmp_path: Path) -> None:
    """The CPU's own layers have no share."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=4)
    (result,) = found(path, device, "cpu-only", 0.25, placement=placement_on(device, 3))
    assert 0 < result.on_host < result.late + result.misses and result.lossless


def test_the_bound_of_each_case() -> None:
    sound = Comparison(
        method="lru",
        layout="file",
        asked_rate=0.5,
        rate=0.5,
        n_slot=8,
        n_position=8,
        n_value=64,
        n_different=3,
        first_position=1,
        largest_difference=1e-3,
        relative_difference=0.9e-3,
        perplexity_difference=-0.9e-3,
        predictor="",
        is_cut=False,
        hits=1,
        late=0,
        misses=1,
        on_host=1,
    )
    assert sound.bound == "hybrid" and sound.lossless and not sound.identical
    assert not replace(sound, relative_difference=1.1e-3).lossless
    assert not replace(sound, perplexity_difference=-1.1e-3).lossless
    assert not replace(sound, on_host=0).lossless
    assert replace(sound, relative_difference=1.1e-3, hybrid_nmse=2e-6).lossless
    assert replace(sound, on_host=0, n_different=0).bound == "bits"
    assert replace(sound, is_cut=True, on_host=0, relative_difference=0.01).lossless


class Run:
    """A model on the device whose passes are driven one by one."""

    def __init__(self, path: Path, device: Server, hybrid: str, rate: float = 0.25) -> None:
        self.cached = loading.CachedModel(
            read_model(path), n_thread=1, placement=placement_on(device)
        )
        self.patch = self.cached.patch
        self.method = METHODS["lru-overlapped"]
        self.hybrid = hybrid
        self.patch.record_events(True)
        self.patch.configure(
            layout(self.method, self.patch.shape, slots_of(rate, self.patch.shape.n_expert)),
            self.composition(),
            _native.PatchOptions(n_thread=1, max_token=64),
        )
        self.context = llama.Context(
            self.cached.model,
            n_context=256,
            n_ubatch=64,
            n_thread=1,
            callback=self.patch.callback,
            user_data=self.patch.user_data,
        )

    def composition(self) -> _native.Composition:
        return composition(self.method, self.patch.shape, hybrid=self.hybrid)

    def go(self, n_pass: int, n_token: int = 1) -> bool:
        """Run the passes of a new conversation. Return False if one was stopped."""
        self.context.forget_from(0)
        for i in range(n_pass):
            phase = _native.Phase.prefill if n_token > 1 else _native.Phase.decode
            self.patch.begin_pass(phase)
            tokens = [3 + (7 * i + t) % 90 for t in range(n_token)]
            status = self.context.decode(tokens, i * n_token, all_logits=True)
            if not self.patch.end_pass():
                return False
            assert status == 0
        return True

    def close(self) -> None:
        self.context.close()
        self.cached.close()


@pytest.fixture
def run(request: pytest.FixtureRequest, device: Server, tmp_path: Path) -> Iterator[Run]:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    opened = Run(path, device, request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize("run", ["auto", "cpu-only"], indirect=True)
def test_what_was_done_can_be_told_again(run: Run) -> None:
    """Measured speeds are also events. With "auto" they decide how much the processor computes."""
    assert run.go(1, n_token=32) and run.go(20)
    log, patch = run.patch.take_events(), run.patch
    core = _native.Core(patch.shape, patch.layout, run.composition(), n_embd=patch.n_embd)
    assert _native.replay(log, core) == -1
    core.check()
    told = [(c.misses, c.on_host, c.host_rows) for c in patch.counts()]
    assert told == [
        (c.misses, c.on_host, c.host_rows) for c in map(core.counts, range(patch.shape.n_layer))
    ]
    if run.hybrid == "cpu-only":
        assert all(on_host > 0 for _, on_host, _ in told)
        assert any(rows > on_host for _, on_host, rows in told), "of the prompt"


@pytest.mark.parametrize("run", ["auto"], indirect=True)
def test_speeds_are_measured(run: Run) -> None:
    """Kernels are measured when the cache is made, the link while it runs."""
    assert all(s.host_us_per_byte > 0 < s.device_us_per_byte for s in run.patch.host_speeds())
    assert [s.link_us_per_byte for s in run.patch.host_speeds()] == [0, 0, 0]
    assert run.go(1, n_token=32) and run.go(1, n_token=32) and run.go(30)
    for speeds in run.patch.host_speeds():
        assert speeds.possible and speeds.link_us_per_byte > 0 < speeds.host_us
    times = run.patch.times()
    assert times.host_us > 0 and times.host_wait_us <= times.wave_us


@pytest.mark.parametrize("run", ["auto", "cpu-only"], indirect=True)
def test_a_stop_meets_the_hosts_share(run: Run) -> None:
    """At any moment of the stop, the pass is void or complete, and the next one is unaffected."""
    assert run.go(1, n_token=32)
    expected = run.context.logits(32)
    n_stopped = 0
    for i in range(30):
        timer = threading.Timer(i / 5000, run.patch.stop)
        timer.start()
        n_stopped += not run.go(1, n_token=32)
        timer.join()
        assert run.patch.error == ""
        run.patch.resume()
        if i % 10 == 0:
            assert run.go(1, n_token=32)
            found = run.context.logits(32)
            assert np.array_equal(found, expected) or (NAMED and np.abs(found - expected).max() < 1)
    assert n_stopped > 0


def test_the_figures_of_an_answer(device: Server, tmp_path: Path) -> None:
    """Figures by layer and in total are consistent. The answer equals the device's alone."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    settings: dict[str, Any] = {
        "device": device.option,
        "cache_rate": 0.25,
        "context_length": 256,
        "n_thread": 1,
    }
    engine = Engine.open(path, EngineConfig(**settings, method="lru"))
    answers = []
    try:
        for hybrid in ("off", "cpu-only", "auto"):
            cache = engine.change(EngineConfig(**settings, method="lru", hybrid=hybrid))
            assert cache.hybrid == hybrid
            engine.forget()
            pieces = engine.answer(of_text("Once", Sampling(temperature=0), 12))
            answers.append([piece.token_id for piece in pieces])
            stats = engine.statistics()
            assert stats.on_host == sum(layer.on_host for layer in stats.layers)
            assert stats.host_rows == sum(layer.host_rows for layer in stats.layers)
            assert (stats.on_host > 0) == (hybrid != "off")
            assert stats.host_rows >= stats.on_host
            assert all(la.on_host <= la.late + la.misses for la in stats.layers)
    finally:
        engine.close()
    # A device of this machine rounds differently from the processor.
    assert NAMED or answers[0] == answers[1] == answers[2]


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of off, auto, cpu-only, not 'sometimes'"):
        EngineConfig(hybrid="sometimes")
