"""The cached engine's logits equal stock llama.cpp's, bit by bit.

These are selected combinations: each architecture once, and every pair of a type, a prompt, a rate
and a method. The night has more. `python -m live.equality` runs all combinations of architectures,
types, rates, methods, prompts and threads.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from equality import (
    RATES,
    Cached,
    Outcome,
    Runner,
    differences,
    n_different,
    random_tokens,
    stock_logits,
)
from factory import CACHEABLE, PUZZLE, QUANTS, make_split, make_tiny
from factory import stock_logits as mapped_logits
from gguf import GGUFReader, GGUFWriter
from layouts import all_resident, one_pool
from pairs import Pairs

from backend import _native
from backend.engine import loading
from backend.gguf.model_file import read_model
from backend.llama.api import Row
from backend.methods.catalogue import CACHED, METHODS, UNIFORM

REQUIRED = [
    "llama",
    "qwen2moe",
    "qwen3moe",
    "olmoe",
    "deepseek2",
    "gpt-oss",
    "granitemoe",
    "glm4moe",
    "llama4",
    "gemma4",
]


Run = tuple[float, str]
"""A cache rate, and a method."""


def every_rate(seed: int) -> list[Run]:
    """Return every rate once, with methods that depend on the seed."""
    names = list(CACHED)
    return [(rate, names[(seed + i) % len(names)]) for i, rate in enumerate([*RATES, 0.25])]


@functools.cache
def selected() -> dict[str, tuple[str, tuple[int, ...], list[Run]]]:
    """Return, for each architecture, a type, the lengths of prompts, and rates with methods.

    One rate is low, so that experts are read, and one is high.
    """
    prompts = [(1, 33), (2, 33)]
    pairs, found = Pairs(QUANTS, prompts, RATES, CACHED), {}
    for i, arch in enumerate(CACHEABLE):
        model = QUANTS[i % len(QUANTS)], prompts[i % 2]
        rates = [RATES[i % 3], RATES[3 + i // 3 % 2], RATES[i // 5 % len(RATES)]]
        found[arch] = (*model, [pairs.next(*model, rate)[2:] for rate in rates])
    assert not pairs.left
    return found


def assert_equal(outcomes: Sequence[Outcome]) -> None:
    assert [o for o in outcomes if o.n_different] == []


def assert_cache_was_used(outcomes: Sequence[Outcome], path: Path) -> None:
    """Below 0.5 experts must be read. At 1.0 every expert of every layer has a slot."""
    file = read_model(path)
    assert any(o.misses for o in outcomes if o.rate < 0.5)
    assert all(o.hits + o.late + o.misses > 0 for o in outcomes)
    for o in outcomes:
        if o.rate == 1.0 and METHODS[o.method].allocation == UNIFORM:
            assert o.n_slot == file.n_moe_layer * file.n_expert


@pytest.mark.parametrize("arch", CACHEABLE)
def test_every_architecture(arch: str, tmp_path: Path) -> None:
    quant, prompts, runs = selected()[arch]
    path = make_tiny(arch, quant, tmp_path / "m.gguf")
    outcomes = differences(path, runs, prompts, n_thread=1, n_decode=3)
    assert_equal(outcomes)
    assert_cache_was_used(outcomes, path)


@pytest.mark.night
@pytest.mark.parametrize(
    ("arch", "quant"),
    [*itertools.product(REQUIRED, QUANTS)]
    + [(a, QUANTS[i % len(QUANTS)]) for i, a in enumerate(CACHEABLE) if a not in REQUIRED],
)
def test_every_architecture_at_every_rate(arch: str, quant: str, tmp_path: Path) -> None:
    path = make_tiny(arch, quant, tmp_path / "m.gguf")
    seed = CACHEABLE.index(arch) + 2 * QUANTS.index(quant)
    outcomes = differences(path, every_rate(seed), (1, 2, 33), n_thread=1, n_decode=3)
    assert_equal(outcomes)
    assert_cache_was_used(outcomes, path)


def test_layers_that_use_different_numbers_of_experts_of_different_sizes(tmp_path: Path) -> None:
    path = make_tiny("nemotron_h_moe", "Q8_0", tmp_path / "m.gguf", **PUZZLE)
    combinations = [(rate, m) for rate in (0.25, 0.5, 1.0) for m in ("lru", "outrider", "promoe")]
    combinations += [(0.25, method) for method in CACHED]
    outcomes = differences(path, combinations, (1, 2, 33), n_thread=1, n_decode=3)
    assert_equal(outcomes)
    assert_cache_was_used(outcomes, path)


@pytest.mark.parametrize(
    ("arch", "fused"),
    [("deepseek2", True), ("gemma4", False), ("cohere2moe", True), ("qwen3next", True)],
)
def test_gate_and_up_fused_or_not(arch: str, fused: bool, tmp_path: Path) -> None:
    """As they are not by themselves, which the tests above have."""
    path = make_tiny(arch, "Q4_0", tmp_path / "m.gguf", fused=fused)
    assert_equal(differences(path, every_rate(1), (1, 33), n_thread=1, n_decode=3))


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "llama4", "gemma4"])
def test_scales_of_experts(arch: str, tmp_path: Path) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf", expert_scales=True)
    assert_equal(differences(path, every_rate(2), (1, 33), n_thread=1, n_decode=3))


@pytest.mark.night
@pytest.mark.parametrize("method", CACHED)
def test_every_method_at_every_rate(method: str, tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf")
    combinations = [(rate, method) for rate in RATES]
    assert_equal(differences(path, combinations, (1, 2, 33), n_thread=1))


@pytest.mark.parametrize(
    ("arch", "quant"),
    [("qwen3moe", "Q4_K"), ("gpt-oss", "MXFP4"), ("llama4", "F16"), ("deepseek4", "Q8_0")],
)
def test_long_prompts(arch: str, quant: str, tmp_path: Path) -> None:
    """Three passes of up to 128 tokens; they choose every expert many times."""
    path = make_tiny(arch, quant, tmp_path / "m.gguf")
    assert_equal(differences(path, every_rate(3), (300,), n_thread=1, n_decode=3))


@pytest.mark.parametrize("n_thread", [2, 4])
@pytest.mark.parametrize(("arch", "quant"), [("deepseek2", "Q4_0"), ("gpt-oss", "Q8_0")])
def test_threads(n_thread: int, arch: str, quant: str, tmp_path: Path) -> None:
    path = make_tiny(arch, quant, tmp_path / "m.gguf")
    combinations = every_rate(n_thread)[:: 3 if n_thread == 2 else 1]
    assert_equal(differences(path, combinations, (2, 33), n_thread, n_decode=2))


@pytest.mark.parametrize("arch", ["qwen3moe", "dots1"])
def test_every_expert_is_used_by_every_token(arch: str, tmp_path: Path) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf", n_expert=4, n_expert_used=4)
    combinations = [(rate, method) for rate in RATES for method in ("lru", "promoe")]
    outcomes = differences(path, combinations, (1, 33), n_thread=1)
    assert_equal(outcomes)
    assert {o.n_slot for o in outcomes} == {4 * read_model(path).n_moe_layer}


def test_more_experts_than_a_wave_has_pairs(tmp_path: Path) -> None:
    """128 tokens choose 12 experts each: more pairs than one wave computes."""
    path = make_tiny("olmoe", "Q4_0", tmp_path / "m.gguf", n_expert=40, n_expert_used=12, n_layer=2)
    outcomes = differences(path, [(0.0, "promoe"), (0.5, "lru")], (128,), n_thread=1, n_decode=2)
    assert_equal(outcomes)


def test_the_reference_is_what_unpatched_llama_cpp_computes(tmp_path: Path) -> None:
    """F16 has only one layout, so the reference must equal a mapped model."""
    path = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf")
    reference = stock_logits(read_model(path), (33,), n_thread=1, n_decode=0)[33]
    mapped = mapped_logits(path, random_tokens(33, seed=33), n_threads=1)
    assert np.array_equal(reference.view(np.uint32), mapped.view(np.uint32))
    assert reference.std() > 0.05


def test_a_changed_expert_is_noticed(tmp_path: Path) -> None:
    """The comparison can fail: one flipped bit in one expert shows."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    file = read_model(path)
    expected = stock_logits(file, (33,), n_thread=1)
    cached = Cached(file, n_thread=1)
    tensor = file.expert_tensors[1][0]
    with path.open("r+b") as data:
        data.seek(tensor.offset + tensor.matrix_bytes // 2 + 5)
        byte = data.read(1)[0]
        data.seek(-1, 1)
        data.write(bytes([byte ^ 0x10]))
    outcomes = cached.compare(0.25, "lru", expected)
    cached.close()
    assert outcomes[0].n_different > 0


def mixed_types(arch: str, path: Path, **sizes: int) -> Path:
    """Write a model with another type for each expert tensor, as in common files."""
    readers = [
        GGUFReader(make_tiny(arch, quant, path.with_name(f"{quant}.gguf"), **sizes))
        for quant in ("Q4_0", "F16", "MXFP4", "Q8_0")
    ]
    writer = GGUFWriter(path, readers[0].fields["general.architecture"].contents())
    for key, value in readers[0].fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            kind = value.types[-1] if len(value.types) > 1 else None
            writer.add_key_value(key, value.contents(), value.types[0], kind)
    turn = itertools.cycle(readers)
    for i, tensor in enumerate(readers[0].tensors):
        chosen = next(turn).tensors[i] if "_exps.weight" in tensor.name else tensor
        assert chosen.name == tensor.name
        writer.add_tensor(tensor.name, chosen.data, raw_dtype=chosen.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "gemma4"])
def test_mixed_types(arch: str, tmp_path: Path) -> None:
    """The layers' experts and their chunks differ in size."""
    path = mixed_types(arch, tmp_path / "mixed.gguf")
    assert len(set(read_model(path).expert_bytes_per_layer().values())) > 1
    assert_equal(differences(path, every_rate(1), (1, 33), n_thread=1))


def test_one_pool_for_layers_of_mixed_types(tmp_path: Path) -> None:
    """Eight layers of four kinds. Two layers share the slots of each pool."""
    path = mixed_types("qwen3moe", tmp_path / "mixed.gguf", n_layer=8)
    file = read_model(path)
    expected = stock_logits(file, (33, 2), n_thread=1)
    cached = Cached(file, n_thread=1)
    assert len(set(cached.shape.kind)) == 4
    for n_slot in (4, 9, 32):
        for name in ("reactive", "ordered", "expert_major"):
            spec = _native.Spec(name)
            lies = one_pool(cached.shape, n_slot, buffer=name == "expert_major")
            cached.setup(lies, _native.Composition(prefill=spec, decode=spec))
            for n_prompt, stock in expected.items():
                assert n_different(cached.logits(n_prompt), stock) == 0
            assert cached.patch.slab_bytes == lies.bytes(cached.shape)
    with pytest.raises(ValueError, match="Layers of different kinds share their slots"):
        layers = [_native.LayerLayout(1.0, [0, -1])] * 8
        cached.setup(_native.Layout([_native.PoolLayout(16)], layers))
    assert n_different(cached.logits(2), expected[2]) == 0  # the cache is kept
    cached.close()


@pytest.mark.parametrize("n_part", [1, 2, 5])
def test_split_models(n_part: int, tmp_path: Path) -> None:
    path = make_tiny("deepseek2", "Q4_0", tmp_path / "m.gguf")
    expected = stock_logits(read_model(path), (1, 33), n_thread=1)
    for part in make_split(path, n_part):
        cached = Cached(read_model(part), n_thread=1)
        assert_equal(cached.compare(0.25, "promoe", expected))
        cached.close()


def test_names_of_any_script(tmp_path: Path) -> None:
    folder = tmp_path / "модели 模型 ✓" / ("x" * 200)
    folder.mkdir(parents=True)
    path = make_tiny("qwen3moe", "Q4_0", folder / "größe.gguf")
    assert_equal(differences(path, [(0.25, "promoe")], (33,), n_thread=1))


def test_contexts_come_and_go_while_the_patch_stays(tmp_path: Path) -> None:
    path = make_tiny("glm4moe", "Q4_0", tmp_path / "m.gguf")
    file = read_model(path)
    expected = stock_logits(file, (33,), n_thread=1)[33]
    cached = Cached(file, n_thread=1)
    cached.configure(0.25, "promoe")
    for _ in range(3):
        runner = Runner(cached.cached.model, 1, cached.patch)
        logits = runner.logits(33)
        runner.close()
        assert np.array_equal(logits.view(np.uint32), expected.view(np.uint32))
    cached.close()


@pytest.mark.parametrize("arch", ["qwen3next", "lfm2moe", "kimi-k3", "deepseek4"])
def test_prompts_of_other_lengths_at_once(arch: str, tmp_path: Path) -> None:
    """llama.cpp computes the longer one's last token in a graph of its own.

    The experts of the first graph are read at each layer; the second one then needs no stop.
    """
    file = read_model(make_tiny(arch, "Q8_0", tmp_path / "m.gguf"))
    tokens = random_tokens(99)
    rows = [Row(token, i // 2, i % 2, has_logits=i >= 97) for i, token in enumerate(tokens)]
    stock = loading.load_native(file)
    runner = Runner(stock, 1, n_sequence=2)
    expected = runner.of_rows(rows)
    runner.close()
    stock.close()
    cached = Cached(file, n_thread=1)
    cached.setup(all_resident(cached.shape, {}), n_transfer_thread=0)
    runner = Runner(cached.cached.model, 1, cached.patch, n_sequence=2)
    for _ in range(2):
        assert n_different(runner.of_rows(rows), expected) == 0
    assert cached.patch.times().n_unasked >= 2 * cached.shape.n_layer
    runner.close()
    cached.close()


def test_the_embedded_model() -> None:
    path = Path(__file__).parents[2] / "assets" / "embedded" / "outrider-tiny.gguf"
    outcomes = differences(path, every_rate(0), (1, 33), n_thread=1, n_decode=2)
    assert_equal(outcomes)
    assert_cache_was_used(outcomes, path)


def test_an_architecture_that_cannot_be_cached_is_refused_by_name(tmp_path: Path) -> None:
    file = read_model(make_tiny("grovemoe", "Q4_0", tmp_path / "m.gguf"))
    with pytest.raises(loading.NotCacheable, match=r"architecture grovemoe cannot be cached: .+\."):
        loading.CachedModel(file, n_thread=1)
