"""The memory plan: slots, sizes compared with llama.cpp's allocations, verdicts."""

import ctypes
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import ARCHITECTURES, can_predict, make_tiny, supported
from hypothesis import given
from hypothesis import strategies as st

from backend.engine.dry_run import DryRun
from backend.gguf.model_file import ContextSizes, ModelFile, read_model
from backend.gguf.tables import NOT_ESTIMATED, PREDICTING
from backend.memory.plan import (
    MAX_UBATCH,
    N_UBATCH,
    KvCache,
    MemoryPlan,
    checkpoints,
    compute_bytes,
    kv_bytes,
    kv_bytes_by_layer,
    largest_ubatch,
    plan,
    prediction_bytes,
    slots,
    why_no_kv_type,
    why_plain,
)
from backend.methods.slots import rate_of, slots_of

GGML_TYPES = {"q8_0": 8, "q4_0": 2}
# Sizes that make buffers larger than the two decimals of the log.
SIZES = {"deepseek4": {"head_dim": 128}, "minimax-01": {"head_dim": 64}}
MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


def tiny(folder: Path, arch: str, **sizes: Any) -> ModelFile:
    """Return a tiny model of an architecture; each is written once."""
    path = folder / f"{arch}{''.join(f'-{k}{v}' for k, v in sizes.items())}.gguf"
    if not path.exists():
        make_tiny(arch, "Q8_0" if supported(arch, "Q8_0") else "F16", path, **sizes)
    return read_model(path)


def at(model: ModelFile, rate: float, context_length: int, available_bytes: int) -> MemoryPlan:
    """Return the plan for a cache rate."""
    return plan(model, slots(model, rate), context_length, available_bytes)


def allocated(
    path: Path,
    context_length: int,
    n_ubatch: int,
    kv_type: str = "f16",
    n_sequence: int = 1,
    *,
    predicts: bool = False,
    n_back: int = 0,
    swa_full: bool = False,
) -> tuple[float, float]:
    """Return the MiB that llama.cpp reports for attention cache and states, and for computing."""
    import llama_cpp
    from llama_cpp._logger import llama_log_callback as usual

    lines: list[str] = []

    def collect(_level: int, text: bytes, _data: Any) -> None:
        lines.append(text.decode("utf-8", "replace"))

    callback = llama_cpp.llama_log_callback(collect)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        of_model = llama_cpp.llama_model_default_params()
        of_model.load_mtp = predicts
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), of_model)
        assert model
        params = llama_cpp.llama_context_default_params()
        params.n_rs_seq = n_back
        params.swa_full = swa_full or predicts
        if predicts:
            params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        params.n_ctx, params.n_batch, params.n_ubatch = context_length, n_ubatch, n_ubatch
        params.n_outputs_max, params.n_outputs_max_per_seq = n_sequence, 1
        params.n_seq_max, params.kv_unified = n_sequence, True
        if kv_type != "f16":
            params.type_k = params.type_v = GGML_TYPES[kv_type]
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        context = llama_cpp.llama_init_from_model(model, params)
        assert context
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)
    finally:
        llama_cpp.llama_log_set(usual, ctypes.c_void_p(0))
    log = "".join(lines)
    kv = sum(float(x) for x in re.findall(r"(?:KV|RS|state) buffer size = +([\d.]+) MiB", log))
    computing = sum(float(x) for x in re.findall(r"compute buffer size = +([\d.]+) MiB", log))
    assert kv > 0 and computing > 0
    return kv, computing


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_sizes_are_what_llama_cpp_allocates(folder: Path, arch: str) -> None:
    model = tiny(folder, arch, **SIZES.get(arch, {}))
    kv, computing = allocated(model.path, 4096, 512)
    # The log has two decimals, for each of up to three buffers; deepseek4 has seven.
    assert kv_bytes(model, 4096) / MIB == pytest.approx(kv, abs=0.02, rel=0.01)
    if arch not in NOT_ESTIMATED:
        assert compute_bytes(model, 4096) / MIB == pytest.approx(computing, rel=0.2)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_what_llama_cpp_says_before_loading_is_what_it_allocates(folder: Path, arch: str) -> None:
    file = tiny(folder, arch, **SIZES.get(arch, {}))
    dry_run = DryRun(file)
    model = dry_run.asked(n_output=1)
    kv, computing = allocated(file.path, 4096, 512)
    # The log has two decimals, for each of up to three buffers; deepseek4 has seven.
    assert kv_bytes(model, 4096) / MIB == pytest.approx(kv, abs=0.02, rel=0.01)
    assert compute_bytes(model, 4096) / MIB == pytest.approx(computing, abs=0.02)
    n_layer = len(kv_bytes_by_layer(file, 4096))
    assert sum(kv_bytes_by_layer(model, 4096)) == pytest.approx(kv_bytes(model, 4096), abs=n_layer)
    dry_run.close()


@pytest.mark.parametrize("arch", sorted(arch for arch in PREDICTING if can_predict(arch)))
def test_drafts_take_what_llama_cpp_allocates(folder: Path, arch: str) -> None:
    """The context of a layer that guesses, and the states that can be gone back to."""
    file = tiny(folder, arch, n_nextn=1)
    dry_run = DryRun(file)
    back = dry_run.asked(n_output=1, n_back=4)
    kv, _ = allocated(file.path, 4096, 512, n_back=4)
    assert kv_bytes(back, 4096) / MIB == pytest.approx(kv, abs=0.02)
    if file.predicts:
        asked = dry_run.asked(n_output=1)
        assert asked.sizes is not None
        kv, computing = allocated(file.path, 4096, 512, predicts=True)

        def planned(guess_bytes: Any) -> int:
            sizes = ContextSizes(0.0, 0, lambda *_: 0, guess_bytes)
            return prediction_bytes(replace(file, sizes=sizes), 4096, 512, "f16", 0)

        nothing = planned(lambda *_: 0)
        asked_bytes = planned(asked.sizes.guess_bytes) - nothing
        assert asked_bytes / MIB == pytest.approx(kv + computing, abs=0.03)
        # Without llama.cpp, the cache is computed from the layer's own sizes.
        assert (planned(None) - nothing) / MIB == pytest.approx(kv, abs=0.02)
    dry_run.close()


def test_every_sequence_has_states_of_its_own(folder: Path) -> None:
    model = tiny(folder, "qwen3next")
    one, two = (kv_bytes(model, 4096, KvCache("f16", n)) for n in (1, 2))
    dry_run = DryRun(model)
    asked = dry_run.asked()
    assert asked.sizes is not None
    assert two - one == pytest.approx(asked.sizes.state_bytes, abs=0.02 * MIB) != 0
    assert kv_bytes(asked, 4096, KvCache("f16", 2)) == pytest.approx(two, abs=0.04 * MIB)
    dry_run.close()
    dense = tiny(folder, "qwen3moe")
    assert kv_bytes(dense, 4096, KvCache("f16", 2)) == kv_bytes(dense, 4096)


def test_an_architecture_with_an_attention_cache_for_each_sequence(folder: Path) -> None:
    model = tiny(folder, "deepseek4", **SIZES["deepseek4"])
    kv, _ = allocated(model.path, 4096, 512, n_sequence=3)
    dry_run = DryRun(model)
    for asked in (model, dry_run.asked()):
        assert kv_bytes(asked, 4096, KvCache("f16", 3)) / MIB == pytest.approx(kv, rel=0.01)
        assert kv_bytes(asked, 4096, KvCache("f16", 3)) == pytest.approx(
            3 * kv_bytes(asked, 4096), abs=9
        )
    dry_run.close()


@pytest.mark.parametrize(("arch", "n_sequence"), [("gpt-oss", 3), ("gemma4", 1), ("laguna", 9)])
def test_windows_have_a_ring_for_their_sequences_and_a_pass(
    folder: Path, arch: str, n_sequence: int
) -> None:
    model = tiny(folder, arch)
    dry_run = DryRun(model)
    for asked in (model, dry_run.asked()):
        for n_ubatch in (64, 1024):
            kv, _ = allocated(model.path, 4096, n_ubatch, n_sequence=n_sequence)
            planned = kv_bytes(asked, 4096, KvCache("f16", n_sequence, n_ubatch))
            assert planned / MIB == pytest.approx(kv, abs=0.02)
        whole, _ = allocated(model.path, 4096, 512, n_sequence=n_sequence, swa_full=True)
        assert kv_bytes(asked, 4096, KvCache(windows=False)) / MIB == pytest.approx(whole, abs=0.02)
        assert kv < whole
        # One checkpoint has a window of 16 cells.
        n, n_bytes = checkpoints(asked, 4096, KvCache("f16", n_sequence, 64))
        assert n == 3 and n_bytes / 16 == pytest.approx((whole - kv) * MIB / (4096 - 1280), rel=0.2)
    dry_run.close()


@pytest.mark.parametrize("kv_type", GGML_TYPES)
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "deepseek2", "llama4"])
def test_a_quantised_attention_cache_is_as_large_as_planned(
    folder: Path, arch: str, kv_type: str
) -> None:
    model = tiny(folder, arch, head_dim=32) if arch == "qwen3moe" else tiny(folder, arch)
    if why := why_no_kv_type(model, kv_type):
        assert "too small" in why
        return
    kv, _ = allocated(model.path, 4096, 512, kv_type)
    assert kv_bytes(model, 4096, KvCache(kv_type)) / MIB == pytest.approx(kv, abs=0.02)
    assert kv_bytes(model, 4096, KvCache(kv_type)) < kv_bytes(model, 4096)


def test_pieces_of_a_prompt_are_as_large_as_memory_permits(folder: Path) -> None:
    model = tiny(folder, "qwen3moe")
    ample = at(model, 0.5, 8192, 8 * GIB)
    assert largest_ubatch(model, ample, 8192)[0] == MAX_UBATCH
    assert largest_ubatch(model, ample, 600)[0] == 600
    assert largest_ubatch(model, ample, 64)[0] == 64
    grown = compute_bytes(model, 8192, 2 * N_UBATCH) - compute_bytes(model, 8192, N_UBATCH)
    for spare, expected in ((grown - 1, N_UBATCH), (grown, 2 * N_UBATCH), (-GIB, N_UBATCH)):
        needed = ample.total_bytes + spare
        tight = at(model, 0.5, 8192, needed + (256 << 20))
        assert tight.headroom_bytes == 256 << 20
        n_ubatch, why = largest_ubatch(model, tight, 8192)
        assert n_ubatch == expected
        assert f"{2 * n_ubatch} would need" in why
    whole = at(model, 1.0, 8192, 8 * GIB)
    assert largest_ubatch(model, whole, 8192)[0] == N_UBATCH


@pytest.mark.parametrize("context_length", [100, 256, 257, 5000])
def test_context_is_rounded_as_llama_cpp_does(folder: Path, context_length: int) -> None:
    model = tiny(folder, "qwen3moe")
    kv, _ = allocated(model.path, context_length, 64)
    assert kv_bytes(model, context_length) / MIB == pytest.approx(kv, abs=0.02)


@given(n_expert=st.integers(1, 4096), data=st.data())
def test_slots_and_rates_are_inverse(n_expert: int, data: st.DataObject) -> None:
    n_slot = data.draw(st.integers(0, n_expert))
    rate = rate_of(n_slot, n_expert)
    assert slots_of(rate, n_expert) == n_slot
    assert n_slot == 0 or slots_of(math.nextafter(rate, 0), n_expert) == n_slot - 1


@given(n_expert=st.integers(1, 4096), rate=st.floats(0, 1))
def test_a_rate_never_gives_more_slots_than_it_asks_for(n_expert: int, rate: float) -> None:
    n_slot = slots_of(rate, n_expert)
    assert rate_of(n_slot, n_expert) <= rate
    assert n_slot == n_expert or rate_of(n_slot + 1, n_expert) > rate


@pytest.mark.parametrize(
    ("rate", "n_slot"),
    [(0.0, 2), (0.1, 2), (0.25, 2), (0.37, 2), (0.375, 3), (0.5, 4), (0.99, 7), (1.0, 8)],
)
def test_slots_are_the_share_rounded_down(folder: Path, rate: float, n_slot: int) -> None:
    assert slots(tiny(folder, "qwen3moe", n_expert=8, n_expert_used=2), rate) == n_slot


def test_a_rate_of_whole_slots_loses_none_to_rounding(folder: Path) -> None:
    model = tiny(folder, "qwen3moe", n_expert=100, n_expert_used=2)
    assert [slots(model, n / 100) for n in range(2, 101)] == list(range(2, 101))


def test_plan_adds_up_and_follows_the_rate(folder: Path) -> None:
    model = tiny(folder, "qwen2moe")
    low, high = (at(model, rate, 4096, 8 * GIB) for rate in (0.25, 1.0))
    for made in (low, high):
        parts = made.dense_bytes + made.expert_bytes + made.kv_bytes
        assert made.total_bytes == parts + made.compute_bytes + made.process_bytes
        assert made.fits and made.best_n_slot == made.n_expert
    assert high.expert_bytes == model.expert_bytes_total
    assert low.expert_bytes == model.expert_bytes_total * low.n_slot // model.n_expert
    assert (low.mode, low.reason) == ("cached", "")
    assert (high.mode, high.reason) == ("plain", "every expert is in memory")
    assert low.to_json()["fits"] is True


def test_plan_grows_with_the_context(folder: Path) -> None:
    model = tiny(folder, "llama")
    short, long = (at(model, 0.5, n, 8 * GIB) for n in (1024, 2048))
    assert long.kv_bytes == 2 * short.kv_bytes
    assert long.dense_bytes == short.dense_bytes


def test_best_rate_is_the_last_that_fits(folder: Path) -> None:
    model = tiny(folder, "qwen3moe", n_layer=2, n_expert=16, n_expert_used=2, n_ff_exp=8192)
    smallest = at(model, 0.0, 512, GIB)
    per_slot = model.expert_bytes_total // model.n_expert
    room = smallest.total_bytes + smallest.headroom_bytes + 4 * per_slot
    made = at(model, 1.0, 512, room)
    assert not made.fits

    assert made.best_n_slot == 6 and plan(model, 6, 512, room).fits
    assert not at(model, 7 / 16, 512, room).fits
    assert at(model, 0.0, 512, smallest.total_bytes).best_n_slot is None


def test_dense_model_is_plain(folder: Path) -> None:
    model = tiny(folder, "dense")
    made = at(model, 0.25, 512, 8 * GIB)
    assert (made.mode, made.rate, made.expert_bytes) == ("plain", 1.0, 0)
    assert "dense" in made.reason and why_plain(model) == made.reason


def test_cacheable_architectures_give_no_reason(folder: Path) -> None:
    assert why_plain(tiny(folder, "deepseek2")) == ""


def test_slots_are_those_that_the_engine_allocates(folder: Path) -> None:
    from backend import _native

    model = tiny(folder, "qwen3moe", n_expert=100, n_expert_used=3)
    shape = _native.Shape(
        n_expert=model.n_expert,
        n_expert_used=model.n_expert_used,
        chunk_bytes=[[1, 1, 1]] * model.n_moe_layer,
    )
    for step in range(1001):
        rate = step / 1000
        layout = _native.allocate(_native.Spec("uniform"), shape, slots_of(rate, model.n_expert))
        assert {slots(model, rate)} == {pool.n_slot for pool in layout.pools}


def test_what_llama_cpp_warns_of_another_model_is_not_told(folder: Path) -> None:
    odd, sound = DryRun(tiny(folder, "glm4moe", n_nextn=1)), DryRun(tiny(folder, "qwen3moe"))
    assert any("nextn" in line for line in odd.warnings())
    assert not sound.warnings()
    assert any("nextn" in line for line in odd.warnings())
    odd.close()
    sound.close()
