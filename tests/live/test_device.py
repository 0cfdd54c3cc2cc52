"""On a device with its own memory, results equal stock llama.cpp's on it, bit by bit."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import CACHEABLE, QUANTS, make_tiny
from loopback import Server, needs_rpc, server

from backend import _native
from backend.engine.loading import CachedModel
from backend.evaluation.verify import compare
from backend.gguf.model_file import read_model
from backend.llama.api import Context
from backend.memory import devices
from backend.memory.placement import Placement
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition
from backend.protocol.settings import check_device
from backend.system.paths import embedded_model

pytestmark = needs_rpc
RATES = (0.1, 0.5, 1.0)
ALL_LAYERS = 999
N_UBATCH = 48


@pytest.fixture(scope="module")
def device() -> Iterator[Server]:
    with server() as running:
        yield running


def n_different(
    path: Path,
    device: Server,
    methods: tuple[str, ...],
    n_gpu_layers: int = ALL_LAYERS,
    n_stage: int = 0,
    rates: tuple[float, ...] = RATES,
) -> list[int]:
    """Return the number of logits that differ from stock's, for every method and rate."""
    pointers = tuple(d.pointer for d in devices.resolve(device.option))
    placement = Placement(pointers, n_gpu_layers)
    found = list(
        compare(
            read_model(path),
            rates,
            methods,
            n_token=48,
            n_thread=1,
            placement=placement,
            n_stage=n_stage,
        )
    )
    assert all(f.hits + f.late + f.misses > 0 for f in found)
    assert found[0].misses > 0
    return [f.n_different for f in found]


@pytest.mark.parametrize(
    ("arch", "rates"),
    [(arch, (RATES[0], RATES[1 + i % 2])) for i, arch in enumerate(CACHEABLE)]
    + [pytest.param(arch, RATES, marks=pytest.mark.night) for arch in CACHEABLE],
)
def test_every_architecture(
    arch: str, rates: tuple[float, ...], device: Server, tmp_path: Path
) -> None:
    """Waves where experts are late, remap where all are resident, at the rates.

    A prompt that needs more than the slots uses a stage. If every expert has a slot, the router's
    choice is not read.
    """
    quant = QUANTS[CACHEABLE.index(arch) % len(QUANTS)]
    path = make_tiny(arch, quant, tmp_path / "m.gguf")
    assert not any(n_different(path, device, ("promoe",), n_stage=6, rates=rates))


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "qwen3next"])
def test_a_part_of_the_layers(arch: str, device: Server, tmp_path: Path) -> None:
    """The CPU computes the first layers, on slots in its own memory."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    assert n_different(path, device, ("lru",), n_gpu_layers=2) == [0, 0, 0]


class Run:
    """A model on the device, computed pass by pass, with a layout made by hand."""

    def __init__(self, path: Path, device: Server, layout: Callable[[Any], Any]) -> None:
        pointers = tuple(d.pointer for d in devices.resolve(device.option))
        self.cached = CachedModel(
            read_model(path), n_thread=1, placement=Placement(pointers, ALL_LAYERS)
        )
        self.patch = patch = self.cached.patch
        method = METHODS["lru-overlapped"]
        options = _native.PatchOptions(n_thread=1, max_token=N_UBATCH)
        patch.configure(layout(patch.shape), composition(method, patch.shape), options)
        self.context = Context(
            self.cached.model,
            n_context=256,
            n_ubatch=N_UBATCH,
            n_thread=1,
            callback=patch.callback,
            user_data=patch.user_data,
        )
        self.n_token = 0

    def compute(self, tokens: list[int]) -> dict[str, int]:
        """Run a pass. Return what it added to the patch's counters."""
        before = self._counters()
        phase = _native.Phase.prefill if len(tokens) > 1 else _native.Phase.decode
        self.patch.begin_pass(phase, tokens)
        assert self.context.decode(tokens, self.n_token) == 0
        assert self.patch.end_pass()
        self.n_token += len(tokens)
        after = self._counters()
        return {name: after[name] - before[name] for name in after}

    def _counters(self) -> dict[str, int]:
        times, counts = self.patch.times(), self.patch.counts()
        said = {name: getattr(times, name) for name in ("n_stop", "n_unasked", "n_graph")}
        return said | {n: sum(getattr(c, n) for c in counts) for n in ("hits", "late", "misses")}

    def close(self) -> None:
        self.context.close()
        self.cached.close()


@pytest.fixture
def run(device: Server, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Open runs of a model with three layers of 16 experts, 4 used."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=3, n_expert=16)
    opened: list[Run] = []

    def open_one(layout: Callable[[Any], Any]) -> Run:
        opened.append(Run(path, device, layout))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def random_tokens(n: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(3).integers(5, 300, n)]


def test_a_layer_stops_once_where_all_that_it_needs_is_resident(run: Callable[..., Run]) -> None:
    one = run(lambda shape: _native.Layout.per_layer([15, 15, 15]))
    one.compute(random_tokens(N_UBATCH))
    found = [one.compute([token]) for token in random_tokens(40)]
    settled = [f for f in found if f["late"] + f["misses"] == 0]
    assert len(settled) > 5
    assert {f["n_stop"] for f in settled} == {3} and {f["n_graph"] for f in settled} == {0}


def test_a_layer_whose_experts_are_all_here_to_stay_is_not_asked(run: Callable[..., Run]) -> None:
    """The number of hits is the number of experts that a token uses."""
    one = run(lambda shape: _native.Layout.per_layer([16, 16, 16]))
    for token in random_tokens(8):
        one.compute([token])  # in between, unrequested experts are read, too
    found = [one.compute([token]) for token in random_tokens(30)][-1]
    n_used = one.patch.shape.n_expert_used
    assert found["n_stop"] == 0 and found["n_unasked"] == 3
    assert found["hits"] == 3 * n_used and found["misses"] == 0


def test_layers_of_both_kinds(run: Callable[..., Run]) -> None:
    one = run(lambda shape: _native.Layout.per_layer([16, 15, 16]))
    one.compute(random_tokens(N_UBATCH))
    found = [one.compute([token]) for token in random_tokens(40)]
    calm = [f for f in found[20:] if f["late"] + f["misses"] == 0]
    assert {(f["n_stop"], f["n_unasked"]) for f in calm} == {(1, 2)}


def test_a_prompt_passes_through_the_stage_in_a_few_waves(device: Server, tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=3, n_expert=24)

    def second_prompt(n_stage: int) -> dict[str, int]:
        one = Run(path, device, lambda s: _native.Layout.per_layer([4] * 3).staged(s, n_stage))
        found = [one.compute(random_tokens(N_UBATCH)) for _ in range(2)]
        one.close()
        return found[1]

    many, few = second_prompt(0), second_prompt(40)
    most = 3 * 2 * 2  # half of a layer at a time, from its slots and from the stage
    assert few["n_graph"] <= most < many["n_graph"], "without a stage two experts at a time"


def test_methods_that_share_slots(device: Server, tmp_path: Path) -> None:
    path = make_tiny("olmoe", "Q8_0", tmp_path / "m.gguf")
    assert set(n_different(path, device, ("promoe", "lru", "duoserve"))) == {0}


def test_experts_that_are_cut(device: Server) -> None:
    """A device in another process checks that the whole graph is in its memory.

    With few tokens, one near tie of a router can exceed the bound.
    """
    path = embedded_model()
    pointers = tuple(d.pointer for d in devices.resolve(device.option))
    found = list(
        compare(
            read_model(path),
            (0.25,),
            ("moepic",),
            n_token=64,
            n_thread=1,
            placement=Placement(pointers, ALL_LAYERS),
        )
    )
    assert [f.lossless for f in found] == [True]


@pytest.mark.parametrize(
    "option", ["rpc://", "rpc://host", "rpc://host:0", "rpc://a b:1", "auto,cpu", "", "x,,y"]
)
def test_a_malformed_option_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        check_device(option)


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(devices.DeviceError, match="no device 'CUDA7' here"):
        devices.resolve("CUDA7")


def test_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(devices.DeviceError, match="can be reached"):
        devices.resolve(f"rpc://127.0.0.1:{port}")


def test_somebody_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(64)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(devices.DeviceError, match="is no rpc server"):
            devices.resolve(f"rpc://127.0.0.1:{other.getsockname()[1]}")
