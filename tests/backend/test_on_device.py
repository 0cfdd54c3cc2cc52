"""An engine on a device: what is planned, and a device that is gone in the middle of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from endless import make_endless
from loopback import Server, needs_rpc, server

from backend.client import WorkerClient, WorkerDied
from backend.config import EngineConfig, Sampling
from backend.devices import Device
from backend.engine import Engine, EngineError
from backend.gguf_file import ModelFile, read_model
from backend.placement import plan_devices

MIB = 1 << 20
LOAD = {"cache_rate": 0.5, "method": "lru", "context_length": 4096, "n_thread": 1}


@pytest.fixture(scope="module")
def device() -> Iterator[Server]:
    with server() as running:
        yield running


@pytest.fixture
def file(tiny: Path) -> ModelFile:
    return read_model(tiny)


def a_device(free_bytes: int) -> Device:
    """With half a gibibyte, of which a half is headroom, used by others or free."""
    return Device("D", "", free_bytes + 256 * MIB, 512 * MIB, False, True, False, 1)


@needs_rpc
def test_the_answer_and_the_rate_change(
    tiny: Path, device: Server, open_engine: Callable[..., Engine]
) -> None:
    def answer(engine: Engine) -> list[int]:
        pieces = engine.generate_text("Once", Sampling(temperature=0), 12)
        return [piece.token_id for piece in pieces]

    on_cpu = answer(open_engine(tiny, device="cpu"))
    engine = open_engine(tiny, device=device.option, cache_rate=0.5)
    assert engine.cache.device.startswith("RPC") and engine.cache.n_slot == 8
    assert "All 3 layers are computed by RPC" in engine.cache.reason
    assert answer(engine) == on_cpu
    assert engine.set_cache_rate(0.25).n_slot == 4
    assert answer(engine) == on_cpu


@needs_rpc
def test_less_memory_means_fewer_slots(
    file: ModelFile, tiny: Path, device: Server, open_engine: Callable[..., Engine]
) -> None:
    everything = plan_devices(file, [a_device(256 * MIB)], 0.75, 512)
    slots = everything.devices[0].slot_bytes
    least = everything.devices[0].planned_bytes - slots // 2
    engine = open_engine(tiny, device=device.option, cache_rate=0.75, device_bytes=least)
    assert engine.cache.n_slot == 6
    assert "6 of 16 experts of each layer are kept there instead of 12" in engine.cache.reason


def test_an_unknown_device_is_one_sentence(tiny: Path) -> None:
    with pytest.raises(EngineError, match="There is no device 'nothing' here"):
        Engine.open(tiny, EngineConfig(device="nothing"))


def test_layers_that_do_not_fit_stay_with_the_cpu(file: ModelFile) -> None:
    whole = plan_devices(file, [a_device(256 * MIB)], 1.0, 512)
    assert whole.n_gpu_layers == file.n_layer + 1 and whole.n_slot == file.n_expert
    share = whole.devices[0]
    tight = share.planned_bytes - share.slot_bytes  # without any slot
    partial = plan_devices(file, [a_device(tight)], 1.0, 512)
    assert 1 < partial.n_gpu_layers <= file.n_layer
    assert f"The last {partial.n_gpu_layers - 1} of 3 layers" in partial.sentences[0]
    assert plan_devices(file, [a_device(1000)], 1.0, 512).n_gpu_layers == 0


def test_devices_share_the_layers_by_their_memory(file: ModelFile) -> None:
    one, other = a_device(192 * MIB), replace(a_device(64 * MIB), name="E", pointer=2)
    plan = plan_devices(file, [one, other], 1.0, 512)
    assert [list(s.layers) for s in plan.devices] == [[0, 1, 2], [3]]
    assert plan.shares[0] == 3 * plan.shares[1]


@needs_rpc
def test_a_device_that_vanishes_leaves_the_partial_answer(tmp_path: Path) -> None:
    path = make_endless(tmp_path / "endless.gguf")
    with server() as running, WorkerClient() as client:
        client.request("load", path=str(path), device=running.option, **LOAD).final()
        text = ""
        with pytest.raises(WorkerDied) as caught:
            for message in client.request("generate", prompt="a", sampling={}, max_tokens=-1):
                text += message.get("text", "")
                if len(text) > 20:
                    running.kill()
        assert len(text) > 20
        assert "device" in str(caught.value) and "no longer answers" in str(caught.value)
        with pytest.raises(WorkerDied):
            client.request("ping").final()
