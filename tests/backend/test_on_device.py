"""An engine on a device: plans, and a device that fails during an answer."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asking import of_text
from endless import make_endless
from factory import make_tiny
from loopback import Server, needs_rpc, server
from oracle import Oracle, spoil
from scripts import Script

from backend.engine.engine import Engine, EngineError
from backend.engine.loading import load_plain
from backend.gguf.model_file import ModelFile, read_model
from backend.machines import kept
from backend.memory import headroom
from backend.memory.devices import Device, resolve
from backend.memory.engine_plan import MachineState, plan_engine
from backend.memory.host_plan import HostPlan, plan_host
from backend.memory.placement import DevicePlan, Placement, Wish, plan_devices
from backend.memory.plan import slots
from backend.memory.pressure import MemoryWatch, Pressure, Reading
from backend.protocol.client import WorkerClient, WorkerDied
from backend.protocol.settings import HYBRID, EngineConfig, Sampling

MIB = 1 << 20
LOAD = {"cache_rate": 0.5, "method": "lru", "context_length": 4096, "n_thread": 1}


@pytest.fixture(scope="module")
def device() -> Iterator[Server]:
    """Provide a device with a number that it has in no process that replays."""
    with server() as earlier, server() as running:
        resolve(earlier.option)
        yield running


@pytest.fixture
def file(tiny: Path) -> ModelFile:
    return read_model(tiny)


def wish(file: ModelFile, rate: float, n_context: int, **more: Any) -> Wish:
    """Return the wish for a cache rate."""
    return Wish(slots(file, rate), n_context, **more)


def a_device(free_bytes: int) -> Device:
    """Return a device of half a gibibyte; half of it is headroom, in use elsewhere or free."""
    return Device("D", "", free_bytes + 256 * MIB, 512 * MIB, False, True, False, 1)


@needs_rpc
def test_the_answer_and_the_rate_change(
    tiny: Path, device: Server, open_engine: Callable[..., Engine]
) -> None:
    def answer(engine: Engine) -> list[int]:
        pieces = engine.answer(of_text("Once", Sampling(temperature=0), 12))
        return [piece.token_id for piece in pieces]

    on_cpu = answer(open_engine(tiny, device="cpu"))
    engine = open_engine(tiny, device=device.option, cache_rate=0.5)
    assert engine.cache.device.startswith(device.name) and engine.cache.n_slot == 8
    assert f"All 3 layers are computed by {device.name}" in engine.cache.reason
    assert answer(engine) == on_cpu
    assert engine.set_cache_rate(0.25).n_slot == 4
    assert answer(engine) == on_cpu


@needs_rpc
def test_every_pass_is_that_of_llama_cpp_on_the_device(
    tiny: Path, device: Server, open_engine: Callable[..., Engine], oracle: Oracle
) -> None:
    """With all layers there; with the first on the processor; where experts round differently."""
    engine = open_engine(tiny, device=device.option, cache_rate=1.0, n_ubatch=64)
    n_bytes = planned = plan_of(engine).devices[0].planned_bytes
    for n_most in (4, 4, 3):
        while plan_of(engine).placement.n_gpu_layers > n_most:
            n_bytes -= planned // 40
            engine.change(engine.loaded.config.changed(device_bytes=n_bytes))
        list(engine.answer(of_text("Once upon a time " * 8, Sampling(temperature=0), 8)))
        engine.set_cache_rate(0.25)
    engine.close()
    with other_server(device, oracle):
        assert oracle.approve()["n_answer"] == 3
    open_engine(tiny, device=device.option, hybrid="cpu-only", cache_rate=0.25).close()
    with other_server(device, oracle):
        assert oracle.difference().startswith("The processor computed experts of a device")


@needs_rpc
def test_a_random_script_on_a_device(
    device: Server, open_engine: Callable[..., Engine], oracle: Oracle, tmp_path: Path
) -> None:
    settings = {"device": device.option, "cache_rate": 0.25}
    script = Script("qwen3moe", 4, tmp_path / "script", open_engine, **settings)
    script.run()
    script.engine.close()
    with other_server(device, oracle):
        assert oracle.approve()["n_taken"] == 0


@contextlib.contextmanager
def other_server(device: Server, oracle: Oracle) -> Iterator[None]:
    """Have the logs name another server of devices: one serves one process."""
    if not hasattr(device, "port"):  # a device of this machine
        yield
        return
    with server() as other:
        for log in oracle.logs:
            _rename(log, device.option, other.option)
        yield
        for log in oracle.logs:
            _rename(log, other.option, device.option)


def _rename(log: Path, before: str, after: str) -> None:
    spoil(log, lambda entry: json.loads(json.dumps(entry).replace(before, after)))


@needs_rpc
def test_less_memory_means_fewer_slots(
    tiny: Path, device: Server, open_engine: Callable[..., Engine]
) -> None:
    engine = open_engine(tiny, device=device.option, cache_rate=0.75)
    (share,) = plan_of(engine).devices
    least = share.planned_bytes - share.slot_bytes // 2
    engine.close()
    engine = open_engine(tiny, device=device.option, cache_rate=0.75, device_bytes=least)
    assert engine.cache.n_slot == 6
    assert "Kept there are 6 of 16 experts of each layer instead of 12" in engine.cache.reason


@needs_rpc
def test_ram_keeps_experts_for_the_device(
    tiny: Path, file: ModelFile, device: Server, open_engine: Callable[..., Engine]
) -> None:
    """If RAM holds all experts, the file is read once, and the figures show that."""
    engine = open_engine(tiny, device=device.option, cache_rate=0.25, method="lru-overlapped")
    assert "RAM keeps all of them" in engine.cache.reason
    assert engine.cache.host_bytes >= file.expert_bytes_total

    def answer() -> tuple[list[int], int, int, int]:
        pieces = [p.token_id for p in engine.answer(of_text("Once", Sampling(temperature=0), 12))]
        s = engine.statistics()
        return pieces, s.bytes_read, s.bytes_from_file, s.bytes_from_host

    tokens, _, from_file, _ = answer()
    assert 0 < from_file <= file.expert_bytes_total
    for n_bytes, sentence in (
        (file.expert_bytes_total // 2, "RAM keeps 8 of 16 experts of each layer"),
        (1, "hold not one of each layer"),
        (0, "RAM keeps no experts for devices, as asked"),
    ):
        engine.change(replace(engine.loaded.config, host_bytes=n_bytes))
        assert sentence in engine.cache.reason
        found, read, from_file, from_host = answer()
        assert found == tokens
        assert (from_host > 0) == (n_bytes > 1) and from_file + from_host >= read


def test_the_ram_for_experts_is_planned(file: ModelFile) -> None:
    planned = plan_devices(file, [a_device(256 * MIB)], wish(file, 0.25, 512))
    total = file.expert_bytes_total

    def at(available_bytes: int, asked_bytes: int | None = None) -> tuple[int, int, str]:
        plan = plan_host(file, planned, available_bytes, asked_bytes)
        return plan.bytes, plan.n_slot, plan.sentence

    assert at(1 << 40)[:2] == (total, 16)
    assert at(1 << 40, total // 4)[:2] == (total // 4, 4)
    assert at(1 << 40, 1 << 60)[:2] == (total, 16)
    n_bytes, n_slot, sentence = at(1 << 28)  # hardly more than the headroom
    assert (n_bytes, n_slot) == (0, 0) and "hold not one of each layer" in sentence
    fixed = next(n for n in range(256 * MIB, 512 * MIB, MIB // 64) if at(n)[0] > total // 3)
    n_bytes, n_slot, sentence = at(fixed, 1 << 40)
    assert 0 < n_slot < 16 and "instead of 1,024 GiB" in sentence


@pytest.mark.parametrize("value", ["-1", "many", "1.5G", "99999999999999T"])
def test_ram_that_makes_no_sense_is_one_sentence(value: str, tiny: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backend.cli", "chat", str(tiny), "--host-memory", value, "-p", "x"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "must be a size such as 500M or 4G" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_device_is_one_sentence(tiny: Path) -> None:
    with pytest.raises(EngineError, match="There is no device 'nothing' here"):
        Engine.open(tiny, EngineConfig(device="nothing"))


def test_layers_that_do_not_fit_stay_with_the_cpu(file: ModelFile) -> None:
    whole = plan_devices(file, [a_device(256 * MIB)], wish(file, 1.0, 512))
    assert whole.n_gpu_layers == file.n_layer + 1 and whole.n_slot == file.n_expert
    least = plan_devices(file, [a_device(256 * MIB)], wish(file, 0.0, 512)).devices[0]
    tight = least.planned_bytes - 1
    partial = plan_devices(file, [a_device(tight)], wish(file, 0.9, 512))
    assert 1 < partial.n_gpu_layers <= file.n_layer
    assert f"The last {partial.n_gpu_layers - 1} of 3 layers" in partial.sentences[0]
    assert plan_devices(file, [a_device(1000)], wish(file, 1.0, 512)).n_gpu_layers == 0


def a_part(file: ModelFile, n_layer: int, rate: float) -> DevicePlan:
    """Return a plan with n layers on the device and hardly more than the minimum of slots."""
    for n_64th_mib in range(1, 4096):
        device = a_device(n_64th_mib * MIB // 64)
        plan = plan_devices(file, [device], wish(file, rate, 512, stages=False))
        if plan.n_gpu_layers == n_layer + 1:
            return plan
    raise AssertionError("no memory is right for that")


@pytest.mark.parametrize("n_own", [1, 2])
def test_the_layers_of_the_cpu_keep_what_ram_holds(n_own: int, file: ModelFile) -> None:
    planned, one = a_part(file, n_own, 0.9), file.expert_bytes_total // 48
    n_cpu_layer = 3 - n_own
    assert planned.n_slot < 14  # the device is what is short

    def host(available_bytes: int, asked_bytes: int | None = None) -> HostPlan:
        return plan_host(file, planned, available_bytes, asked_bytes)

    least = 4  # of 16, as many as a token uses; those there are even where there is no room
    assert (host(0).n_cpu_slot, host(0).n_slot) == (least, 0)
    fixed = next(n for n in range(300 * MIB, 400 * MIB, 1024) if host(n).n_cpu_slot > least)
    fixed -= (least + 1) * n_cpu_layer * one

    def at(room_bytes: int, asked_bytes: int | None = None) -> tuple[int, int]:
        """Return the slots of the CPU's layers and of the host store for this RAM."""
        plan = host(fixed + room_bytes, asked_bytes)
        assert plan.cpu_bytes == plan.n_cpu_slot * one * n_cpu_layer
        return plan.n_cpu_slot, plan.n_slot

    assert at(1 << 30) == (16, 16)
    n_cpu, n_store = at(planned.n_slot * 3 * one)
    assert n_cpu > planned.n_slot and n_store <= planned.n_slot  # what the device keeps anyway
    n_cpu, n_store = at(3 * 15 * one)
    assert n_cpu == n_store == 15 > planned.n_slot
    assert at(1 << 30, 0) == (planned.n_slot, 0)
    assert "Of the CPU's layers it keeps 16 of 16 experts" in host(1 << 40).sentence


def test_ram_is_given_back_for_devices_first(
    file: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(0, 10)
    arguments = (lambda: Reading(0), lambda: float(next(moments)))
    monkeypatch.setattr(MemoryWatch.__init__, "__defaults__", arguments)
    devices = a_part(file, 1, 0.9)
    machine = MachineState(1 << 40, devices=(a_device(devices.devices[0].free_bytes),))
    plan = plan_engine(file, EngineConfig(cache_rate=0.9, context_length=512), machine)
    plan = replace(plan, devices=devices, host=plan_host(file, devices, 1 << 40, None))
    pressure, said = Pressure(file, replace(plan, headroom_bytes=256 * MIB)), []
    free = [devices.devices[0].free_bytes]
    while found := pressure.look(plan, devices.n_slot, lambda: 0, lambda _: free):
        plan = found
        said.append(plan.reason)
    assert (plan.host.n_slot, plan.host.n_cpu_slot) == (0, devices.n_slot)
    assert len(said) == 2
    assert "RAM keeps 0 experts of each layer for the device instead of 16" in said[0]
    assert f"RAM keeps {devices.n_slot} experts of each layer of the CPU's" in said[1]


@needs_rpc
@pytest.mark.parametrize("n_own", [1, 3])
def test_a_part_of_the_layers_with_all_the_ram(
    n_own: int, tmp_path: Path, device: Server, open_engine: Callable[..., Engine]
) -> None:
    """The tokens are the same. All experts of the CPU's layers are resident and cause no stall."""
    n_layer = 5
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=n_layer, n_ff_exp=256)
    total = read_model(path).expert_bytes_total

    def answer(engine: Engine) -> list[int]:
        pieces = engine.answer(of_text("Once", Sampling(temperature=0), 24))
        return [piece.token_id for piece in pieces]

    expected = answer(open_engine(path, device="cpu"))
    settings = {"device": device.option, "cache_rate": 0.5, "method": "lru-overlapped"}
    engine = open_engine(path, **settings)
    device_bytes = plan_of(engine).devices[0].planned_bytes
    while plan_of(engine).n_gpu_layers > n_own + 1:
        device_bytes -= total // 40
        engine.change(engine.loaded.config.changed(device_bytes=device_bytes))
    plan, n_cpu_layer = plan_of(engine), n_layer - n_own
    assert plan.n_gpu_layers == n_own + 1 and engine.cache.n_slot == plan.n_slot < 16
    assert engine.cache.cpu_bytes == total // n_layer * n_cpu_layer
    for _ in range(2):  # the second time the CPU's layers have all
        assert answer(engine) == expected
    layers = engine.statistics().layers
    assert all(x.misses + x.late == 0 for x in layers[:n_cpu_layer])
    assert sum(x.misses + x.late for x in layers[n_cpu_layer:]) > 0
    for method in ("moe-infinity", "moepic", "duoserve"):
        engine.change(replace(engine.loaded.config, method=method))
        assert answer(engine) == expected


def test_devices_share_the_layers_by_their_memory(file: ModelFile) -> None:
    one, other = a_device(192 * MIB), replace(a_device(64 * MIB), name="E", pointer=2)
    plan = plan_devices(file, [one, other], wish(file, 1.0, 512))
    assert [list(s.layers) for s in plan.devices] == [[0, 1, 2], [3]]
    assert plan.placement.shares[0] == 3 * plan.placement.shares[1]


MEMORY = [  # biases, latent attention, recurrent layers, experts wider than the model, no waves
    ("qwen3moe", {}, 0.3),
    ("gpt-oss", {}, 0.5),
    ("deepseek2", {}, 0.75),
    ("qwen3next", {}, 0.25),
    ("gemma4", {}, 0.5),
    ("olmoe", {"n_ff_exp": 256}, 0.5),
    ("qwen3moe", {}, 1.0),
    ("qwen3moe", {"n_expert": 64}, 0.75),  # with a stage
]


def plan_of(engine: Engine) -> DevicePlan:
    assert engine.loaded.plan.devices is not None
    return engine.loaded.plan.devices


def used_bytes(running: Server, pointer: int) -> int:
    """Return the used bytes of the device once its queued work is done."""
    from backend import _native

    free_bytes = int(_native.device_free_bytes(pointer))
    return running.total_bytes - running.taken_bytes - free_bytes


def answer_of(engine: Engine) -> list[int]:
    """Return the answer to a prompt that takes several passes."""
    sampling = Sampling(temperature=0)
    return [p.token_id for p in engine.answer(of_text("Once upon a time " * 20, sampling, 12))]


@needs_rpc
@pytest.mark.parametrize(("arch", "sizes", "rate"), MEMORY)
def test_memory_is_within_two_percent_of_the_plan(
    arch: str,
    sizes: dict[str, int],
    rate: float,
    device: Server,
    tmp_path: Path,
    open_engine: Callable[..., Engine],
) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf", n_layer=6, **sizes)
    engine = open_engine(path, device=device.option, cache_rate=rate, context_length=1024)
    answer_of(engine)
    (share,) = plan_of(engine).devices
    assert used_bytes(device, share.pointer) == pytest.approx(share.planned_bytes, rel=0.02)


@needs_rpc
@pytest.mark.parametrize("hybrid", HYBRID)
def test_memory_where_the_processor_computes_a_part(
    hybrid: str, tmp_path: Path, device: Server, open_engine: Callable[..., Engine]
) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=6, n_expert=64)
    engine = open_engine(path, device=device.option, cache_rate=0.5, hybrid=hybrid, n_ubatch=64)
    answer_of(engine)
    made = plan_of(engine)
    assert made.n_stage > 0
    (share,) = made.devices
    assert used_bytes(device, share.pointer) == pytest.approx(share.planned_bytes, rel=0.02)


@needs_rpc
@pytest.mark.parametrize("method", ["lru", "moepic-uniform", "duoserve", "moe-infinity"])
def test_memory_of_methods_with_caches_of_other_kinds(
    method: str, tiny: Path, device: Server, open_engine: Callable[..., Engine]
) -> None:
    engine = open_engine(tiny, device=device.option, cache_rate=0.75, method=method, n_ubatch=64)
    answer_of(engine)
    (share,) = plan_of(engine).devices
    assert used_bytes(device, share.pointer) == pytest.approx(share.planned_bytes, rel=0.02)


@needs_rpc
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_memory_of_several_devices_and_of_a_part_of_the_layers(
    share: float, tmp_path: Path
) -> None:
    """A device with room for a part of the layers gets the last ones."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=8, n_expert=32)
    with server(total_bytes=640 * MIB) as one, server(total_bytes=1024 * MIB) as other:
        config = EngineConfig.of(
            device=f"{one.option},{other.option}", cache_rate=0.5, n_ubatch=64, n_thread=1
        )
        with contextlib.closing(Engine.open(path, config)) as engine:
            most = max(s.planned_bytes for s in plan_of(engine).devices)
        config = config.changed(device_bytes=int(share * most))
        with contextlib.closing(Engine.open(path, config)) as engine:
            made = plan_of(engine)
            assert (made.n_gpu_layers <= 8) == (share < 1)
            answer_of(engine)
            for running, part in zip((one, other), made.devices, strict=True):
                assert len(part.layers) > 0
                found = used_bytes(running, part.pointer)
                assert found == pytest.approx(part.planned_bytes, rel=0.02)


@needs_rpc
def test_what_others_take_is_given_back_between_answers(tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf", n_expert=64, n_ff_exp=2048)
    with server(total_bytes=600 * MIB) as running:
        config = EngineConfig(device=running.option, cache_rate=0.75, n_thread=1)
        with contextlib.closing(Engine.open(path, config)) as engine:
            before = answer_of(engine)
            n_slot = engine.cache.n_slot
            running.take(running.free_bytes - 256 * MIB)
            engine.mind_memory()
            assert engine.cache.n_slot == n_slot, "the headroom is still there"
            running.take(running.taken_bytes + 140 * MIB)
            engine.mind_memory()
            assert engine.cache.n_slot < n_slot
            assert "Other programs need the device's memory" in engine.cache.reason
            engine.forget()
            assert answer_of(engine) == before
            (share,) = plan_of(engine).devices
            assert used_bytes(running, share.pointer) == pytest.approx(
                share.planned_bytes, rel=0.02
            )


@needs_rpc
def test_going_to_a_device_takes_no_more_than_is_free_there(tmp_path: Path) -> None:
    """A plan for a device is made twice: before and after the weights are freed."""
    path = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf", n_expert=64, n_ff_exp=2048)
    with server(total_bytes=400 * MIB) as running:
        config = EngineConfig(device="cpu", cache_rate=0.95, n_thread=1, context_length=512)
        with contextlib.closing(Engine.open(path, config)) as engine:
            engine.change(replace(config, device=running.option))
            (share,) = plan_of(engine).devices
            assert share.free_bytes == running.total_bytes
            assert share.planned_bytes <= running.total_bytes - share.headroom_bytes


@needs_rpc
def test_the_automatic_context_follows_the_devices_memory(tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_ctx=1 << 15)
    found = []
    for free_bytes in (40 * MIB, 100 * MIB, 400 * MIB):
        with server(total_bytes=256 * MIB + free_bytes) as running:
            config = EngineConfig(device=running.option, automatic=True, n_thread=1)
            with contextlib.closing(Engine.open(path, config)) as engine:
                found.append(engine.n_context)
                assert f"A context of {engine.n_context:,} tokens takes" in engine.cache.reason
                (share,) = plan_of(engine).devices
                assert share.planned_bytes <= free_bytes
    assert found == sorted(found) and found[0] < found[-1] == 1 << 15


def test_what_others_were_seen_to_take_is_left_free_next_time(
    file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "data_folder", lambda: tmp_path / "data")
    large = replace(a_device(0), free_bytes=8 << 30, total_bytes=8 << 30)
    usual = plan_devices(file, [large], wish(file, 0.5, 512)).devices[0].headroom_bytes
    headroom.note_taken(large, 900 * MIB)
    headroom.note_taken(large, 500 * MIB)
    headroom.note_taken(replace(large, is_remote=True, name="E"), 2000 * MIB)
    assert headroom.taken_bytes(large) == 900 * MIB
    seen = [headroom.with_taken(large)]
    share = plan_devices(file, seen, wish(file, 0.5, 512)).devices[0]
    assert usual == 256 * MIB and share.headroom_bytes == 900 * MIB
    (tmp_path / "data" / "devices.json").write_text("[", encoding="utf-8")
    assert headroom.taken_bytes(large) == 0


def test_a_context_that_nobody_chose_is_shortened_where_layers_find_no_room(
    file: ModelFile,
) -> None:
    asked = wish(file, 1.0, 1 << 15, n_ubatch=64)
    long = plan_devices(file, [a_device(256 * MIB)], asked).devices[0]
    tight = [a_device(long.planned_bytes * 3 // 4)]
    by_hand = plan_devices(file, tight, asked)
    assert by_hand.n_context == 1 << 15 and by_hand.n_gpu_layers <= file.n_layer
    chosen = plan_devices(file, tight, replace(asked, may_shorten=True))
    assert chosen.n_context == 1 << 14 and chosen.n_gpu_layers == file.n_layer + 1
    assert "16,384 tokens instead of 32,768, so that more layers fit" in " ".join(chosen.sentences)


def test_pieces_of_a_prompt_are_as_long_as_pays(tmp_path: Path) -> None:
    """Longer pieces copy less, but they and the stage take memory from the slots."""
    sizes = {"n_embd": 256, "n_ff_exp": 128, "n_layer": 4, "n_expert": 256}
    model = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", **sizes))

    def measure(_place: Placement, _context: int, n_ubatch: int, _patched: bool) -> dict[str, int]:
        return {"": 500 * n_ubatch}

    device = a_device(256 * MIB)
    plans = [plan_devices(model, [device], wish(model, r, 8192), measure) for r in (0.05, 0.9)]
    assert [made.n_ubatch for made in plans] == [512, 1024]
    assert [made.n_stage for made in plans] == [0, 2 * (256 - 230)]
    share = plans[1].devices[0]
    assert share.stage_bytes == 52 * share.slot_bytes // (230 * 4)
    assert "once for every 1024 tokens, through 2.7 MiB beside the slots" in plans[1].sentences[-1]


@needs_rpc
def test_a_dead_device_is_not_asked_by_models_that_are_loaded_later(tiny: Path) -> None:
    """llama.cpp keeps a remote device for ever and ends the process if it does not answer."""
    with server() as running:
        engine = Engine.open(tiny, EngineConfig(device=running.option, n_thread=1))
        expected = answer_of(engine)
        engine.close()
        running.kill()
    load_plain(read_model(tiny)).close()
    on_cpu = EngineConfig(device="cpu", n_thread=1)
    for config in (on_cpu, replace(on_cpu, cache_rate=1.0), replace(on_cpu, device="auto")):
        engine = Engine.open(tiny, config)
        assert len(answer_of(engine)) == len(expected)
        engine.close()
    with pytest.raises(EngineError, match="can be reached"):
        Engine.open(tiny, EngineConfig(device=running.option))


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
