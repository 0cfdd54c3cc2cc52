"""Plans of engines: from a file, settings and a machine, without llama.cpp."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import make_tiny

from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import ModelFile, read_model
from backend.machines.drive import Drive
from backend.memory.devices import Device
from backend.memory.engine_plan import (
    EnginePlan,
    MachineState,
    SlowTier,
    Step,
    held_bytes,
    plan_engine,
)
from backend.memory.placement import Placement
from backend.memory.plan import KvCache, checkpoints, plan, prediction_bytes
from backend.packs.file import Pack, PackPlan
from backend.protocol.errors import EngineError
from backend.protocol.settings import EngineConfig

MIB = 1 << 20
GIB = 1 << 30
HEADROOM = 256 * MIB
REFUSED = "The experts of this architecture cannot be cached."
PACK = Pack(Path("m.pack"), PackPlan("file", 16, (b"",), (), (0,)), (FileIdentity(0, 0, 0, 0),))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    """moe: three layers of 16 experts, 4 used. long: the same, trained for a longer context.

    sparse: several sequences in one context change what llama.cpp computes.
    """
    folder = tmp_path_factory.mktemp("plans")
    return {
        "moe": read_model(make_tiny("qwen3moe", "F16", folder / "moe.gguf", n_ff_exp=2048)),
        "long": read_model(make_tiny("qwen3moe", "Q8_0", folder / "long.gguf", n_ctx=1 << 15)),
        "dense": read_model(make_tiny("dense", "Q8_0", folder / "dense.gguf")),
        "sparse": read_model(make_tiny("minimax-m3", "Q8_0", folder / "sparse.gguf")),
        "predicting": read_model(make_tiny("glm4moe", "F16", folder / "mtp.gguf", n_nextn=1)),
    }


def config(**settings: Any) -> EngineConfig:
    return EngineConfig.of(**{"method": "lru", "context_length": 512, "device": "cpu", **settings})


def room(file: ModelFile, n_slot: int, n_context: int = 512) -> int:
    """Return free bytes that have room for n_slot slots and a half."""
    slot_bytes = sum(file.expert_bytes_per_layer().values())
    needed = plan(file, 4, n_context, 0, KvCache(n_ubatch=min(512, n_context))).total_bytes
    return needed + HEADROOM + (n_slot - 4) * slot_bytes + slot_bytes // 2


def device(free_bytes: int, name: str = "D", pointer: int = 1) -> Device:
    """Return a device that keeps half a gibibyte as headroom."""
    return Device(name, "", free_bytes + HEADROOM, 512 * MIB, False, True, False, pointer)


def must_not_be_asked(_config: EngineConfig) -> SlowTier:
    raise AssertionError("no experts are read")


TABLE: list[tuple[str, dict[str, Any], int | None, dict[str, Any]]] = [
    # settings, slots that find room (None: any number), what is planned
    ("moe", {"cache_rate": 0.25}, None, {"mode": "cached", "n_slot": 4, "reason": ""}),
    ("moe", {"cache_rate": 0.5}, None, {"mode": "cached", "n_slot": 8, "reason": ""}),
    ("moe", {"cache_rate": 0.0}, None, {"mode": "cached", "n_slot": 4, "n_slot_min": 4}),
    ("moe", {"cache_rate": 0.34}, None, {"n_slot": 5}),
    ("moe", {"cache_rate": 0.99}, None, {"mode": "cached", "n_slot": 15}),
    ("moe", {"cache_rate": 1.0}, None, {"mode": "plain", "n_slot": 16, "reason": ""}),
    ("moe", {"cache_rate": 0.5}, 8, {"n_slot": 8, "reason": ""}),
    ("moe", {"cache_rate": 0.5}, 7, {"n_slot": 7, "n_slot_most": 8, "reason": "7 of 16"}),
    ("moe", {"cache_rate": 0.5}, 6, {"n_slot": 6, "reason": "kept instead of 8."}),
    ("moe", {"cache_rate": 0.5}, 4, {"n_slot": 4, "reason": "4 of 16"}),
    ("moe", {"cache_rate": 0.5}, 3, {"n_slot": 4, "reason": "4 of 16"}),
    ("moe", {"cache_rate": 0.0}, -40, {"n_slot": 4, "reason": "4 of 16"}),
    ("moe", {"cache_rate": 1.0}, 16, {"mode": "plain", "n_slot": 16}),
    ("moe", {"cache_rate": 1.0}, 15, {"mode": "cached", "n_slot": 15, "n_slot_most": 16}),
    ("moe", {"method": "unified"}, None, {"mode": "plain", "reason": "Stock llama.cpp"}),
    ("moe", {"method": "unified"}, 2, {"mode": "plain", "headroom_bytes": None, "n_slot_min": 16}),
    ("moe", {"method": "auto", "cache_rate": 1.0}, None, {"mode": "plain", "reason": "fits into"}),
    ("moe", {"method": "auto", "cache_rate": 1.0}, 15, {"mode": "plain", "reason": "fits into"}),
    ("moe", {"method": "auto", "cache_rate": 0.95}, None, {"mode": "plain", "n_slot_min": 4}),
    ("moe", {"method": "auto", "cache_rate": 0.5}, None, {"mode": "cached", "n_slot": 8}),
    ("moe", {"method": "auto", "cache_rate": 1.0}, 9, {"mode": "cached", "n_slot": 9}),
    ("moe", {"automatic": True}, 9, {"n_slot": 9, "n_slot_most": 9, "reason": "instead of 16."}),
    ("moe", {"automatic": True}, None, {"mode": "plain", "n_slot": 16}),
    ("long", {"automatic": True}, None, {"n_context": 1 << 15}),
    ("long", {"context_length": 1 << 14}, None, {"n_context": 1 << 14, "n_ubatch": 4096}),
    ("long", {"context_length": 1 << 16}, None, {"n_context": 1 << 15}),
    ("long", {"context_length": 1 << 14, "cache_rate": 1.0}, None, {"n_ubatch": 512}),
    ("moe", {"context_length": 64}, None, {"n_context": 64, "n_ubatch": 64}),
    ("moe", {"n_ubatch": 100}, None, {"n_ubatch": 100}),
    ("moe", {"n_ubatch": 4000}, None, {"n_ubatch": 512}),
    ("moe", {"n_thread": 3}, None, {"n_thread": 3}),
    ("moe", {}, None, {"headroom_bytes": 4 * GIB, "repack": True, "device_names": "cpu"}),
    ("moe", {}, -400, {"headroom_bytes": HEADROOM, "repack": False}),
    ("sparse", {"n_sequence": 4, "streams": True}, None, {"reason": "one after the other"}),
    ("dense", {"cache_rate": 0.25}, None, {"mode": "plain", "reason": "A dense model has no"}),
    ("dense", {"method": "unified"}, None, {"mode": "plain", "reason": "A dense model has no"}),
]


@pytest.mark.parametrize(("name", "settings", "n_room", "expected"), TABLE)
def test_memory_grants_what_is_asked_for_or_less(
    name: str,
    settings: dict[str, Any],
    n_room: int | None,
    expected: dict[str, Any],
    files: dict[str, ModelFile],
) -> None:
    file, asked = files[name], config(**settings)
    n_context = min(1024 if asked.automatic else asked.context_length, file.context_length)
    free_bytes = 64 * GIB if n_room is None else max(room(file, n_room, n_context), 0)
    made = plan_engine(file, asked, MachineState(free_bytes, n_thread=2))
    for field, value in expected.items():
        found = getattr(made, field)
        assert value in found if field == "reason" and value else found == value, (field, made)
    assert made.method.name == made.config.method and not made.placement.on_device
    assert made.config.setup.n_sequence == (1 if name == "sparse" else asked.setup.n_sequence)


@pytest.mark.parametrize(
    ("n_mib", "settings", "expected"),
    [  # of the device; the model takes 36 MiB with every expert
        (256, {"cache_rate": 0.5}, ("cached", 8, 4, "8 of 16 experts of each layer, as asked")),
        (256, {"cache_rate": 1.0}, ("plain", 16, 4, "All 3 layers are computed by D")),
        (256, {"method": "unified"}, ("plain", 16, 4, "Stock llama.cpp")),
        (256, {"automatic": True}, ("plain", 16, 4, "All 3 layers are computed by D")),
        (24, {"cache_rate": 1.0}, ("cached", 9, 4, "9 of 16 experts of each layer instead of 16")),
        (24, {"cache_rate": 0.5}, ("cached", 8, 4, "RAM keeps all of them")),
        (24, {"cache_rate": 0.5, "device_bytes": 16 * MIB}, ("cached", 5, 4, "5 of 16 experts")),
        (14, {"cache_rate": 0.5, "host_bytes": 0}, ("cached", 4, 4, "no experts for devices, as")),
        (10, {"cache_rate": 0.5}, ("cached", 4, 3, "The last 2 of 3 layers are computed by D")),
        (1, {"cache_rate": 0.5}, ("cached", 8, 0, "not even one layer: the CPU computes.")),
        (1, {"cache_rate": 1.0}, ("plain", 16, 0, "not even one layer: the CPU computes.")),
    ],
)
def test_devices_get_what_finds_room(
    n_mib: int,
    settings: dict[str, Any],
    expected: tuple[str, int, int, str],
    files: dict[str, ModelFile],
) -> None:
    machine = MachineState(64 * GIB, devices=(device(n_mib * MIB),))
    made = plan_engine(files["moe"], config(n_ubatch=16, **settings), machine)
    mode, n_slot, n_gpu_layers, words = expected
    found = made.mode, made.n_slot, made.placement.n_gpu_layers
    assert found == (mode, n_slot, n_gpu_layers) and words in made.reason, made.reason
    assert made.device_names == ("D" if n_gpu_layers else "cpu")
    is_behind = n_gpu_layers > 0 and mode == "cached" and settings.get("host_bytes") != 0
    assert (made.host.bytes > 0) == is_behind


def test_what_llama_cpp_says_counts(files: dict[str, ModelFile]) -> None:
    """The planned placement is measured, and the measured bytes are not given to slots."""
    asked = []

    def say(place: Placement, n_context: int, n_ubatch: int, patched: bool) -> dict[str, int]:
        asked.append((place.pointers, n_context, n_ubatch, patched))
        return {"of D": 13 * MIB, "of the host": 1 * MIB}

    here = replace(device(40 * MIB), memory="of D")
    quiet, said = (
        plan_engine(
            files["moe"],
            config(cache_rate=0.9, n_ubatch=16),
            MachineState(GIB, 1, (here,), sizes),
        )
        for sizes in (None, say)
    )
    assert said.n_slot < quiet.n_slot and said.devices is not None
    assert said.devices.devices[0].compute_bytes == 13 * MIB
    assert asked[-1] == ((1,), 512, 16, True)
    assert said.host.total_bytes == quiet.host.total_bytes + MIB


def test_an_attention_cache_that_cannot_be_is_refused(files: dict[str, ModelFile]) -> None:
    with pytest.raises(EngineError, match="too small for a cache of type q8_0"):
        plan_engine(files["moe"], config(kv_type="q8_0"), MachineState(GIB))


def test_a_model_that_was_refused_runs_plain(files: dict[str, ModelFile]) -> None:
    machine = MachineState(GIB, refused=REFUSED, slow_tier=must_not_be_asked)
    made = plan_engine(files["moe"], config(), machine)
    assert (made.mode, made.reason, made.n_slot, made.n_slot_min) == ("plain", REFUSED, 16, 16)


def test_the_slow_tier_is_asked_only_where_experts_are_cached(files: dict[str, ModelFile]) -> None:
    machine = MachineState(64 * GIB, slow_tier=must_not_be_asked)
    assert plan_engine(files["moe"], config(cache_rate=1.0), machine).tier == SlowTier()
    tier = SlowTier(Drive(2, 1 << 22), 3, PACK, "a remark")
    machine = replace(machine, slow_tier=lambda _: tier)
    first = plan_engine(files["moe"], config(), machine)
    assert first.tier == tier
    again = replace(machine, slow_tier=must_not_be_asked, before=first, is_loaded=True)
    assert plan_engine(files["moe"], config(cache_rate=0.5), again).tier == tier


def test_without_conversations_checkpoints_leave_their_memory_to_experts(tmp_path: Path) -> None:
    sizes = {"n_layer": 4, "n_expert": 64, "n_ff_exp": 32}
    file = read_model(make_tiny("qwen35moe", "Q8_0", tmp_path / "m.gguf", **sizes))
    free = room(file, 20)
    chat, batch = (
        plan_engine(
            file,
            config(cache_rate=1.0, n_sequence=4, keeps_conversations=keeps),
            MachineState(free),
        )
        for keeps in (True, False)
    )
    _, state_bytes = checkpoints(file, 512)
    n = chat.n_checkpoint * state_bytes // sum(file.expert_bytes_per_layer().values())
    assert (chat.n_checkpoint, batch.n_checkpoint) == (6, 0) and n > 1
    assert batch.n_slot - chat.n_slot in (n, n + 1)


CHANGES: list[tuple[dict[str, Any], dict[str, Any], Step]] = [
    ({}, {}, Step.NOTHING),
    ({"cache_rate": 0.25}, {"cache_rate": 0.26}, Step.NOTHING),  # as many slots
    ({"context_length": 1 << 15}, {"context_length": 1 << 16}, Step.NOTHING),  # both as trained
    ({"method": "unified"}, {"cache_rate": 1.0}, Step.NOTHING),  # both unpatched
    ({"cache_rate": 0.25}, {"cache_rate": 0.5}, Step.REBUILD),
    ({"method": "lru"}, {"method": "promoe"}, Step.REBUILD),
    ({"hybrid": "off"}, {"hybrid": "auto"}, Step.REBUILD),
    ({"context_length": 512}, {"context_length": 256}, Step.CONTEXT),
    ({"n_thread": 1}, {"n_thread": 2, "cache_rate": 0.5}, Step.CONTEXT),
    ({"n_ubatch": 64}, {"n_ubatch": 32}, Step.CONTEXT),
    ({"keeps_outputs": False}, {"keeps_outputs": True}, Step.CONTEXT),
    ({"cache_rate": 0.25}, {"cache_rate": 1.0}, Step.RELOAD),
    ({"method": "unified"}, {"method": "lru"}, Step.RELOAD),
    ({"pack": True}, {"pack": False}, Step.RELOAD),
]


@pytest.mark.parametrize(("before", "after", "step"), CHANGES)
def test_no_more_is_done_than_the_change_needs(
    before: dict[str, Any], after: dict[str, Any], step: Step, files: dict[str, ModelFile]
) -> None:
    def tier(asked: EngineConfig) -> SlowTier:
        return SlowTier(pack=PACK if asked.pack else None)

    machine = MachineState(64 * GIB, slow_tier=tier)
    first = plan_engine(files["long"], config(**before), machine)
    loaded = replace(machine, before=first, is_loaded=True)
    second = plan_engine(files["long"], config(**after), loaded)
    assert second.step_from(first) is step is first.step_from(second)
    assert second.step_from(None) is Step.RELOAD


def test_another_device_reloads(files: dict[str, ModelFile]) -> None:
    on_cpu = plan_engine(files["moe"], config(), MachineState(GIB))
    machine = MachineState(GIB, devices=(device(256 * MIB),), before=on_cpu, is_loaded=True)
    assert plan_engine(files["moe"], config(), machine).step_from(on_cpu) is Step.RELOAD


def loaded(file: ModelFile, first: EnginePlan, free_bytes: int, **settings: Any) -> EnginePlan:
    """Plan other settings for a model that is loaded."""
    machine = MachineState(free_bytes, before=first, is_loaded=True)
    return plan_engine(file, first.config.changed(**settings), machine)


def test_a_context_that_stays_keeps_its_pieces(files: dict[str, ModelFile]) -> None:
    file = files["long"]
    first = plan_engine(file, config(context_length=8192), MachineState(64 * GIB))
    assert first.n_ubatch == 4096
    again = loaded(file, first, room(file, 4, 8192), cache_rate=0.75)
    assert (again.n_ubatch, again.n_context) == (4096, 8192)
    assert loaded(file, first, room(file, 4, 4096), context_length=4096).n_ubatch == 512


def test_a_conversation_keeps_its_context_in_automatic_mode(files: dict[str, ModelFile]) -> None:
    file, asked = files["long"], config(automatic=True)
    short = plan_engine(file, asked, MachineState(100 * MIB))
    assert short.n_context < 1 << 15
    assert loaded(file, short, 64 * GIB).n_context == short.n_context
    reloaded = MachineState(64 * GIB, before=short)
    assert plan_engine(file, asked, reloaded).n_context == short.n_context
    by_hand = replace(short, config=replace(short.config, automatic=False))
    reloaded = MachineState(64 * GIB, before=by_hand)
    assert plan_engine(file, asked, reloaded).n_context == 1 << 15


def test_what_is_set_by_hand_stays_and_says_what_it_overrides(files: dict[str, ModelFile]) -> None:
    """Issue: `outrider chat` kept 25 % whatever memory allowed. Each setting is automatic alone."""
    file, state = files["long"], MachineState(1 << 40)
    asked = config(automatic=True).decided(cache_rate=0.5)
    made = plan_engine(file, asked, state)
    assert (made.n_slot, made.n_context, made.method.name) == (8, 1 << 15, "auto")
    assert made.overridden == "The cache rate is 50 % by hand; automatic it would be 100 %."
    made = plan_engine(file, asked.decided(context_length=512), state)
    assert (made.n_slot, made.n_context) == (8, 512)
    assert "The context is 512 tokens by hand; automatic it would be 32,768." in made.overridden
    for n_asked, n_held in ((16, "256"), (257, "512")):  # llama.cpp holds multiples of 256
        rounded = plan_engine(file, asked.decided(context_length=n_asked), state).overridden
        assert f"The context is {n_held} tokens by hand" in rounded
    longer = plan_engine(
        file,
        made.config.decided(context_length=1024),
        MachineState(1 << 40, before=made, is_loaded=True),
    )
    assert (longer.n_slot, longer.n_context) == (8, 1024)
    made = plan_engine(file, config(automatic=True).decided(method="lru"), state)
    assert "The method is lru by hand" in made.overridden
    assert plan_engine(file, config(automatic=True), state).overridden == ""
    manual = config(cache_rate=0.5, context_length=512)
    assert "automatic it would be 32,768" in plan_engine(file, manual, state).overridden


def test_a_store_in_ram_is_not_made_again_for_a_little_memory(files: dict[str, ModelFile]) -> None:
    file, asked = files["moe"], config(cache_rate=0.5, n_ubatch=16)
    machine = MachineState(345 * MIB, devices=(device(24 * MIB),))
    first = plan_engine(file, asked, machine)
    assert 0 < first.host.n_slot < 16
    machine = replace(machine, free_bytes=340 * MIB, before=first, is_loaded=True)
    same = plan_engine(file, asked, machine)
    assert same.host == first.host and same.step_from(first) is Step.NOTHING
    other = plan_engine(file, replace(asked, host_bytes=4 * MIB), machine)
    assert other.host != first.host and other.step_from(first) is Step.REBUILD


def test_what_a_plan_takes_is_what_it_gives_back(files: dict[str, ModelFile]) -> None:
    """A plan made while the model is loaded is therefore the same."""
    file = files["moe"]
    free_bytes = room(file, 7)
    first = plan_engine(file, config(cache_rate=0.5), MachineState(free_bytes))
    slot_bytes = sum(file.expert_bytes_per_layer().values())
    held = [held_bytes(file, first, n_slot) for n_slot in (7, 8)]
    assert held[1] - held[0] == slot_bytes and held[0] < free_bytes - HEADROOM
    assert loaded(file, first, free_bytes).step_from(first) is Step.NOTHING


def test_experts_of_further_layers_that_could_guess_stay_in_the_file(tmp_path: Path) -> None:
    """Unless all experts are in memory."""
    file = read_model(make_tiny("hy_v3", "Q8_0", tmp_path / "m.gguf", n_nextn=3))
    of_all, of_first = (
        sum(t.n_bytes for t in found) for found in (file.nextn_experts, file.guess_experts)
    )
    assert of_all == 3 * of_first
    some, whole = (prediction_bytes(file, 512, 512, "f16", n) for n in (2, file.n_expert))
    assert whole - some == of_all - 2 * of_first // file.n_expert


def test_a_layer_that_guesses_tokens_takes_its_memory(files: dict[str, ModelFile]) -> None:
    """Only for drafts, where it fits, beside no device, and where no other model guesses."""
    file, asked = files["predicting"], config(drafts="auto", cache_rate=0.5)
    n_bytes = prediction_bytes(file, 512, 512, "f16", file.n_expert // 2)
    experts = sum(t.n_bytes for t in file.nextn_experts)
    whole_bytes = prediction_bytes(file, 512, 512, "f16", file.n_expert)
    assert whole_bytes - n_bytes == experts // 2 > 0
    assert whole_bytes > file.nextn_bytes > 0
    least = plan(file, file.n_expert_used, 512, 0).total_bytes + n_bytes
    made = plan_engine(file, asked, MachineState(64 * GIB))
    plain = plan_engine(file, replace(asked, drafts="off"), MachineState(64 * GIB))
    assert made.predicts and not made.draft_remark and not plain.predicts
    for n_slot in (7, 9):
        taken_bytes = prediction_bytes(file, 512, 512, "f16", n_slot)
        assert held_bytes(file, made, n_slot) == held_bytes(file, plain, n_slot) + taken_bytes
    assert made.step_from(plain) is plain.step_from(made) is Step.RELOAD
    assert plan_engine(file, asked, MachineState(least)).predicts
    for settings, machine, why in (
        ({}, MachineState(least - 1), "predicts further words lacks"),
        ({}, MachineState(64 * GIB, devices=(device(GIB),)), "runs on the processor only"),
    ):
        made = plan_engine(file, replace(asked, **settings), machine)  # type: ignore[arg-type]
        assert not made.predicts and why in made.draft_remark


def test_a_dense_part_that_does_not_fit_is_mapped(files: dict[str, ModelFile]) -> None:
    """Otherwise the system would kill the process. The headroom alone is no reason."""
    file, asked = files["moe"], config(cache_rate=0.5)
    least = plan(file, 4, 512, 0, KvCache(n_ubatch=512)).total_bytes
    for free_bytes, mapped in ((least, False), (least - 1, True)):
        made = plan_engine(file, asked, MachineState(free_bytes))
        assert (made.mode, made.n_slot, made.mapped) == ("cached", 4, mapped)
        assert ("is read from the file again and again" in made.reason) == mapped
        assert loaded(file, made, free_bytes).step_from(made) is Step.NOTHING
    roomy = plan_engine(file, asked, MachineState(64 * GIB, before=made, is_loaded=True))
    assert not roomy.mapped and roomy.step_from(made) is Step.RELOAD
    for plain in ({"cache_rate": 0.5, "method": "unified"}, {"cache_rate": 1.0}):
        made = plan_engine(file, config(**plain), MachineState(least - 1))
        assert made.mapped == (made.mode == "cached")


def test_planning_needs_neither_llama_cpp_nor_native_code() -> None:
    """Planning imports neither."""
    program = (
        "import sys, backend.memory.engine_plan\n"
        "sys.exit(any(m in sys.modules for m in ('llama_cpp', 'backend._native', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_no_more_threads_than_processors(files: dict[str, ModelFile]) -> None:
    machine = MachineState(8 * GIB, n_thread=2, n_thread_max=2)
    for n_thread, expected in ((1024, 2), (1, 1), (0, 1)):
        assert plan_engine(files["moe"], config(n_thread=n_thread), machine).n_thread == expected
