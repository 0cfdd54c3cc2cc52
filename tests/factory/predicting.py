"""Layers for multi-token prediction, which architectures of other modules get behind their own."""

from __future__ import annotations

from collections.abc import Callable

from .layout import Layout, Value
from .parts import indexer, latent_attention

_N_LORA = 32


def add_prediction(m: Layout) -> None:
    """Add the layers for multi-token prediction of a layout, if its architecture has them here."""
    add = PREDICTIONS.get(m.arch)
    if add is None:
        return
    for i in range(m.g.n_layer, m.g.n_layer + m.g.n_nextn):
        add(m, i)


def _attention(m: Layout, i: int) -> None:
    """Build a gated layer with attention of Qwen3-Next."""
    m.attention(i, qk_norm="head", n_q_factor=2)
    m.norm(f"blk.{i}.post_attention_norm", m.g.n_embd)
    if m.arch == "qwen35":
        m.feed_forward(i)
        m.nextn(i)
        return
    m.experts(i)
    m.add(f"blk.{i}.ffn_gate_inp_shexp.weight", m.g.n_embd, kind="router")
    m.feed_forward(i, m.g.n_ff_shexp, "_shexp")
    m.nextn(i)


def _latent(m: Layout, i: int) -> None:
    """Build latent attention, and an indexer, which llama.cpp loads and leaves out."""
    _latent_attention(m, i)
    indexer(m, f"blk.{i}", _N_LORA)
    m.nextn(i)


def _latent_attention(m: Layout, i: int) -> None:
    latent_attention(m, f"blk.{i}", 16, _N_LORA)
    m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
    m.experts(i, selection_bias=True)
    m.feed_forward(i, m.g.n_ff_exp, "_shexp")


def _gated_latent(m: Layout, i: int) -> None:
    """Build latent attention with gated heads behind delta attention."""
    _latent_attention(m, i)
    m.add(f"blk.{i}.attn_gate.weight", m.g.n_embd, m.g.n_head)
    _append(m, "attention.head_count_kv", 1)
    m.nextn(i)
    for t in [t for t in m.tensors if t.name == f"blk.{i}.nextn.shared_head_norm.weight"]:
        m.tensors.remove(t)
    m.norm(f"blk.{i}.layer_output_norm", m.g.n_embd)


def _parallel(m: Layout, i: int) -> None:
    """Build attention and experts in parallel."""
    m.attention(i)
    m.experts(i)
    m.feed_forward(i, m.g.n_ff_exp, "_shexp")
    m.nextn(i)


def _mamba(m: Layout, i: int) -> None:
    """Build attention and experts without a gate in one layer."""
    b = f"blk.{i}"
    m.attention(i)
    m.norm(f"{b}.post_attention_norm", m.g.n_embd)
    m.experts(i, selection_bias=True, gated=False)
    m.add(f"{b}.ffn_up_shexp.weight", m.g.n_embd, m.g.n_ff_shexp)
    m.add(f"{b}.ffn_down_shexp.weight", m.g.n_ff_shexp, m.g.n_embd)
    _append(m, "attention.head_count_kv", m.g.n_head_kv)
    _append(m, "feed_forward_length", m.g.n_ff_exp)
    m.nextn(i)


def _append(m: Layout, name: str, value: int) -> None:
    """Append the value of a layer to a key with one for each."""
    of_layers: Value = m.keys[f"{m.arch}.{name}"]
    assert isinstance(of_layers, list)
    m.keys[f"{m.arch}.{name}"] = [*map(int, of_layers), value]


PREDICTIONS: dict[str, Callable[[Layout, int], None]] = {
    "bailingmoe3": _gated_latent,
    "cohere2moe": _parallel,
    "deepseek32": _latent,
    "glm-dsa": _latent,
    "nemotron_h_moe": _mamba,
    "qwen35": _attention,
    "qwen35moe": _attention,
    "qwen3next": _attention,
}
