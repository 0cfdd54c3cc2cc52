"""The factory's models have the requested properties and run in unpatched llama.cpp."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import (
    ARCHITECTURES,
    DENSE,
    MADE,
    PUBLISHED,
    QUANTS,
    REQUIRED_ARCHITECTURES,
    chain,
    llama_architectures,
    logits_of_each,
    make_large,
    make_published,
    make_split,
    make_tiny,
    random_data,
    routed_experts,
    stock_logits,
    tiny_vocabulary,
)
from gguf import GGMLQuantizationType as GgmlType
from gguf import GGUFReader
from gguf.quants import dequantize

from backend.gguf.tables import DIFFUSION

K_TYPE = "Q4_K"  # with which tiny models are wider; of one size they are with all other types
PAIRS = [
    (arch, quant)
    for i, arch in enumerate(ARCHITECTURES)
    for quant in QUANTS
    if arch in REQUIRED_ARCHITECTURES or quant in (K_TYPE, QUANTS[i % QUANTS.index(K_TYPE)])
]
MOE_ARCHITECTURES = [a for a in ARCHITECTURES if a not in DENSE]


def random_tokens(n: int, seed: int = 1) -> list[int]:
    """Return random ids of ordinary tokens, without control tokens."""
    n_normal = len(tiny_vocabulary().tokens) - 3
    return [int(t) for t in np.random.default_rng(seed).integers(0, n_normal, n)]


def each_once(pairs: list[tuple[str, str]]) -> Any:
    """Take one pair of each architecture, with types by turns. The night has the others."""
    turn = {arch: i for i, arch in enumerate(ARCHITECTURES)}
    types = {arch: [q for a, q in pairs if a == arch] for arch, _ in pairs}
    chosen = {(arch, of[turn[arch] // 2 % len(of)]) for arch, of in types.items()}
    marks = {pair: () if pair in chosen else pytest.mark.night for pair in pairs}
    params = [pytest.param(*pair, marks=marks[pair]) for pair in pairs]
    return pytest.mark.parametrize(("arch", "quant"), params)


@each_once(PAIRS)
def test_stock_llama_cpp_decodes_it(arch: str, quant: str, tmp_path: Path) -> None:
    path = make_tiny(arch, quant, tmp_path / "m.gguf")
    tokens = random_tokens(33)
    another_last = [*tokens[:-1], (tokens[-1] + 1) % 256]
    another_first = [(tokens[0] + 1) % 256, *tokens[1:]]
    logits, last_changed, first_changed = logits_of_each(
        path, [tokens, another_last, another_first]
    )
    assert logits.shape == (33, len(tiny_vocabulary().tokens))
    assert np.isfinite(logits).all()
    assert logits.std() > 0.05
    # Another last token changes only the last row. Another first token changes the last row.
    assert np.array_equal(logits[:-1], last_changed[:-1])
    assert not np.allclose(logits[-1], last_changed[-1], atol=1e-3)
    assert not np.array_equal(logits[-1], first_changed[-1])


@each_once([(a, q) for a, q in PAIRS if a in MOE_ARCHITECTURES and q in ("Q4_0", K_TYPE)])
def test_tokens_reach_most_experts(arch: str, quant: str, tmp_path: Path) -> None:
    path = make_tiny(arch, quant, tmp_path / "m.gguf", n_expert=16, n_expert_used=2, n_nextn=0)
    chosen = routed_experts(path, random_tokens(200))
    expert_layers = {
        int(t.name.split(".")[1]) for t in GGUFReader(path).tensors if "down_exps.weight" in t.name
    }
    assert set(chosen) == expert_layers
    for layer, experts in chosen.items():
        assert experts.shape == (200, 2), layer
        assert len(np.unique(experts)) >= 8, layer
        assert experts.min() >= 0, layer
        assert experts.max() < 16, layer


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write each model. Copy none that was written before."""
    monkeypatch.delenv(MADE)


@pytest.mark.usefixtures("anew")
def test_the_same_arguments_write_the_same_bytes(tmp_path: Path) -> None:
    first = make_tiny("qwen3moe", "Q4_0", tmp_path / "a.gguf", seed=3).read_bytes()
    assert make_tiny("qwen3moe", "Q4_0", tmp_path / "b.gguf", seed=3).read_bytes() == first
    assert make_tiny("qwen3moe", "Q4_0", tmp_path / "c.gguf", seed=4).read_bytes() != first


def test_a_kept_model_is_the_one_of_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that changes its copy changes no other."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("Q8_0", {}), ("Q4_0", {}), ("Q8_0", {"seed": 3}), ("Q8_0", {"n_layer": 1}),
    ]  # fmt: skip
    (folder := tmp_path / "kept").mkdir()

    def made() -> list[bytes]:
        found = [make_tiny("qwen3moe", q, tmp_path / "m.gguf", **o).read_bytes() for q, o in kinds]
        (tmp_path / "m.gguf").write_bytes(b"")
        return found

    monkeypatch.delenv(MADE)
    expected = made()
    monkeypatch.setenv(MADE, str(folder))
    assert made() == made() == expected
    assert len(list(folder.iterdir())) == len(kinds)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(ValueError, match="no qwen3moe model with Q2_K experts"):
        make_tiny("qwen3moe", "Q2_K", path)
    with pytest.raises(ValueError, match="no elephant"):
        make_tiny("elephant", "F16", path)
    with pytest.raises(ValueError, match="n_elephant"):
        make_tiny("qwen3moe", "F16", path, n_elephant=3)
    with pytest.raises(ValueError, match="fused"):
        make_tiny("qwen3moe", "F16", path, fused=True)
    with pytest.raises(ValueError, match="do not fit Q4_K"):
        make_tiny("qwen3moe", "Q4_K", path, n_ff_exp=128)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_K", "MXFP4", "F16"])
def test_random_blocks_have_zero_mean_and_the_asked_spread(name: str) -> None:
    kind = GgmlType[name]
    data = random_data(np.random.default_rng(0), kind, 256 * 400, 0.02)
    if kind is GgmlType.F16:
        values = data.view(np.float16).astype(np.float32)
    else:
        values = dequantize(data, kind).reshape(-1)
    assert values.shape == (256 * 400,)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.02 * values.std()
    factor = 1.5 if name == "MXFP4" else 1.05
    assert 0.02 / factor < values.std() < 0.02 * factor


@pytest.mark.parametrize(
    ("arch", "fused"),
    [("deepseek2", True), ("gemma4", False), ("cohere2moe", True), ("qwen3next", True)],
)
def test_gate_and_up_can_be_fused(arch: str, fused: bool, tmp_path: Path) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf", fused=fused)
    names = {t.name.split(".")[-2] for t in GGUFReader(path).tensors if "_exps.weight" in t.name}
    gates = {"ffn_gate_up_exps"} if fused else {"ffn_gate_exps", "ffn_up_exps"}
    assert names == {*gates, "ffn_down_exps"}
    assert np.isfinite(stock_logits(path, random_tokens(9))).all()


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "llama4"])
def test_experts_can_have_scales(arch: str, tmp_path: Path) -> None:
    plain = make_tiny(arch, "Q8_0", tmp_path / "plain.gguf")
    scaled = make_tiny(arch, "Q8_0", tmp_path / "scaled.gguf", expert_scales=True)
    assert any(t.name.endswith("down_exps.scale") for t in GGUFReader(scaled).tensors)
    tokens = random_tokens(9)
    assert np.isfinite(stock_logits(scaled, tokens)).all()
    assert not np.array_equal(stock_logits(plain, tokens), stock_logits(scaled, tokens))


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_split_model_has_the_same_logits(parts: int, tmp_path: Path) -> None:
    path = make_tiny("glm4moe", "Q4_0", tmp_path / "m.gguf")
    paths = make_split(path, parts)
    assert [p.name for p in paths] == [f"m-{i + 1:05d}-of-{parts:05d}.gguf" for i in range(parts)]
    tokens = random_tokens(9)
    assert np.array_equal(stock_logits(paths[0], tokens), stock_logits(path, tokens))


def test_the_large_model_has_its_layers(tmp_path: Path) -> None:
    path = make_large(tmp_path / "large.gguf", n_layer=1)
    reader = GGUFReader(path)
    shapes = {t.name: tuple(int(n) for n in t.shape) for t in reader.tensors}
    assert shapes["blk.0.ffn_gate_exps.weight"] == (2048, 768, 128)
    assert shapes["blk.0.ffn_down_exps.weight"] == (768, 2048, 128)
    assert shapes["blk.0.attn_q.weight"] == (2048, 32 * 128)
    assert reader.fields["qwen3moe.expert_used_count"].contents() == 8
    chosen = routed_experts(path, random_tokens(40))
    # Routings vary, but tokens share experts, as in a text.
    assert 32 <= len(np.unique(chosen[0])) <= 96
    path.unlink()  # pytest keeps temporary folders; this file has 360 MB


@pytest.mark.parametrize(
    ("name", "billions", "n_table"),
    [("gpt-oss-20b", 20.91, 2), ("Gemma 4 26B-A4B", 25.25, 1), ("Qwen3.6-35B-A3B", 34.66, 2)],
)
def test_a_published_model_has_its_parameters_in_a_sparse_file(
    name: str, billions: float, n_table: int, tmp_path: Path
) -> None:
    """A small vocabulary is faster; its rows are counted as many as the model has."""
    _, _, sizes = PUBLISHED[name]
    path = make_published(tmp_path / "m.gguf", name, is_sparse=True, n_vocab=512)
    n_weight = sum(math.prod(map(int, t.shape)) for t in GGUFReader(path).tensors)
    n_weight += n_table * (int(sizes["n_vocab"]) - 512) * int(sizes["n_embd"])  # type: ignore
    assert round(n_weight / 1e9, 2) == billions
    assert path.stat().st_blocks * 512 < 1e6 < path.stat().st_size


def test_a_chained_model_continues_every_token_with_another(tmp_path: Path) -> None:
    path = chain(make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", embedding_std=9.0))
    token, seen = 5, [5]
    for _ in range(20):
        token = int(stock_logits(path, seen)[-1].argmax())
        seen.append(token)
    assert len(set(seen)) == 21
    assert list(stock_logits(path, seen)[:-1].argmax(axis=1)) == seen[1:]


@pytest.mark.usefixtures("anew")
def test_command_line(tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"
    command = [sys.executable, "-m", "factory", "qwen3moe", "Q4_0", str(out), "--split", "2"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.count("bytes") == 3
    assert out.read_bytes() == make_tiny("qwen3moe", "Q4_0", tmp_path / "n.gguf").read_bytes()


WITHOUT_EXPERTS = frozenset(
    """
    apertus arcee arwkv7 baichuan bert bitnet bloom chameleon chatglm clip codeshell cogvlm
    cohere2 command-r deci dflash eagle3 ernie4_5 eurobert exaone exaone4 falcon falcon-h1 gemma
    gemma-embedding gemma2 gemma3 gemma3n gemma4-assistant glm4 gpt2 gptj gptneox granite
    granite_swa graniteswitch hrm_text hunyuan-dense hunyuan_vl internlm2 jais jais2
    jina-bert-v2 jina-bert-v3 lfm2 llama-embed maincoder mamba mamba2 minicpm minicpm3 mistral3
    modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h neo-bert nomic-bert olmo olmo2
    openelm orion paddleocr pangu-embedded phi2 phi3 plamo plamo2 plamo3 plm pockettts qwen
    qwen2 qwen2vl qwen3 qwen3tts qwen3vl refact rwkv6 rwkv6qwen2 rwkv7 seed_oss smollm3
    spark2_5 stablelm starcoder starcoder2 t5 t5encoder talkie wavtokenizer-dec xverse
    """.split()
)
"""Architectures whose files have no experts, or that share the tensors of one that is built."""
OF_EMBEDDINGS = frozenset({"nomic-bert-moe"})
"""With experts, but without text to write (factory.embedding, tests/engine/test_embeddings.py)."""


def test_every_architecture_of_llama_cpp_is_known() -> None:
    """A new llama.cpp has new ones: build them, refuse them, or say that they have no experts."""
    made = {arch for arch in ARCHITECTURES if arch != "dense"}
    groups = (made, DIFFUSION, WITHOUT_EXPERTS, OF_EMBEDDINGS)
    assert sum(map(len, groups)) == len(frozenset().union(*groups))
    assert frozenset().union(*groups) == set(llama_architectures())
