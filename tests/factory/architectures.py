"""Architectures that the cache must handle, as llama-cpp-python 0.3.36 loads them.

Each function fills a Layout with the metadata and the tensors that the architecture's
`load_arch_hparams` and `load_arch_tensors` in llama.cpp require.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .layout import Layout, Value
from .parts import latent_attention, latent_keys


@dataclass(frozen=True)
class Architecture:
    """One architecture. build fills a Layout; sizes replace defaults of Geometry."""

    build: Callable[[Layout], None]
    sizes: dict[str, Value] = field(default_factory=dict)
    gguf_name: str = ""
    """general.architecture, if it differs from the name in the table."""
    can_fuse: bool = False
    """Whether llama.cpp accepts ffn_gate_up_exps for ffn_gate_exps and ffn_up_exps."""
    can_predict: bool = False
    """Whether a layer for multi-token prediction may follow."""


def _dense(m: Layout) -> None:
    m.common_keys(moe=False)
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        m.feed_forward(i)


def _llama(m: Layout) -> None:
    """Build Mixtral: plain llama with experts in every layer."""
    m.common_keys()
    m.key(feed_forward_length=m.g.n_ff_exp)
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        m.experts(i)


def _qwen2moe(m: Layout) -> None:
    """Build a shared expert with its own gate, and biases on q, k and v."""
    m.common_keys()
    m.key(
        expert_feed_forward_length=m.g.n_ff_exp,
        expert_shared_feed_forward_length=m.g.n_ff_shexp,
    )
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i, qkv_bias=True)
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        m.experts(i)
        m.gated_shared(i)


def qwen3moe(m: Layout) -> None:
    """Build a norm of every head of the attention."""
    m.common_keys()
    m.key(expert_feed_forward_length=m.g.n_ff_exp)
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i, qk_norm="head")
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        m.experts(i)


def _olmoe(m: Layout) -> None:
    m.common_keys()
    m.key(feed_forward_length=m.g.n_ff_exp)
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i, qk_norm="full")
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        m.experts(i)


def deepseek2(m: Layout) -> None:
    """Build latent attention, a leading dense layer, shared experts and group-limited routing."""
    g, n_rope, n_lora = m.g, m.g.n_rope, 32
    m.common_keys()
    latent_keys(m, n_rope, n_lora)
    m.mixture_keys(1.5, n_shared=2)
    m.key(expert_group_count=4, expert_group_used_count=2)
    m.ends()
    for i in range(g.n_layer + g.n_nextn):
        b = f"blk.{i}"
        latent_attention(m, b, n_rope, n_lora)
        m.mixture(i, 2 * g.n_ff_exp)
        m.nextn(i)


def _gpt_oss(m: Layout) -> None:
    """Build biases on expert matrices and router, attention sinks and a sliding window."""
    g = m.g
    m.common_keys()
    m.key(expert_feed_forward_length=g.n_ff_exp, attention__sliding_window=g.n_window)
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, qkv_bias=True, out_bias=True)
        m.norm(f"blk.{i}.post_attention_norm", g.n_embd)
        m.add(f"blk.{i}.attn_sinks.weight", g.n_head, kind="bias")
        m.experts(i, biases=True)


def _granitemoe(m: Layout) -> None:
    m.common_keys()
    m.key(
        feed_forward_length=m.g.n_ff_exp,
        logit_scale=2.0,
        residual_scale=0.5,
        embedding_scale=3.0,
        attention__scale=0.1,
    )
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        m.experts(i)


def _glm4moe(m: Layout) -> None:
    """Build a bias for the selection only, a shared expert and a leading dense layer."""
    g = m.g
    m.common_keys()
    m.mixture_keys(2.5)
    m.key(rope__dimension_count=g.head_dim // 2)
    m.ends()
    for i in range(g.n_layer + g.n_nextn):
        m.attention(i, qkv_bias=True, qk_norm="head")
        m.norm(f"blk.{i}.post_attention_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)
            m.feed_forward(i, g.n_ff_exp, "_shexp")
        m.nextn(i)


def _llama4(m: Layout) -> None:
    """Build layers whose routing weight multiplies the experts' input; every second is dense."""
    g = m.g
    m.common_keys()
    m.key(expert_feed_forward_length=g.n_ff_exp, interleave_moe_layer_step=2)
    m.ends()
    for i in range(g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        if i % 2 == 1:
            m.experts(i)
            m.feed_forward(i, g.n_ff_exp, "_shexp")
        else:
            m.feed_forward(i)


def _gemma4(m: Layout) -> None:
    """Build fused gate_up tensors, GELU, a scale per expert on down, and a parallel dense branch.

    The router's input differs from the experts' input.
    """
    g = m.g
    is_windowed = [(i + 1) % g.period != 0 for i in range(g.n_layer)]
    n_whole, n_kv_whole = g.head_dim_whole or g.head_dim, g.n_head_kv_whole or g.n_head_kv
    m.common_keys()
    if g.head_dim_whole:
        m.key(
            attention__head_count_kv=[g.n_head_kv if w else n_kv_whole for w in is_windowed],
            attention__key_length=n_whole,
            attention__value_length=n_whole,
            rope__dimension_count=n_whole,
        )
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        attention__sliding_window=g.n_window,
        attention__sliding_window_pattern=is_windowed,
        attention__key_length_swa=g.head_dim,
        attention__value_length_swa=g.head_dim,
        rope__dimension_count_swa=g.head_dim,
        embedding_length_per_layer_input=0,
        final_logit_softcapping=30.0,
    )
    m.ends()
    m.add("rope_freqs.weight", n_whole // 2, kind="norm")
    for i, windowed in enumerate(is_windowed):
        b = f"blk.{i}"
        if windowed:
            m.attention(i, qk_norm="head")
        else:
            m.attention(i, qk_norm="head", n_head_kv=n_kv_whole, head_dim=n_whole)
        m.norm(f"{b}.post_attention_norm", g.n_embd)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        m.feed_forward(i)
        m.norm(f"{b}.post_ffw_norm", g.n_embd)
        m.experts(i)
        m.add(f"{b}.ffn_gate_inp.scale", g.n_embd, kind="norm")
        if not g.expert_scales:
            m.add(f"{b}.ffn_down_exps.scale", g.n_expert, kind="norm")
        m.norm(f"{b}.pre_ffw_norm_2", g.n_embd)
        m.norm(f"{b}.post_ffw_norm_1", g.n_embd)
        m.norm(f"{b}.post_ffw_norm_2", g.n_embd)


REQUIRED: dict[str, Architecture] = {
    "dense": Architecture(_dense, {"n_layer": 2}, gguf_name="llama"),
    "llama": Architecture(_llama, {"n_expert": 8, "n_expert_used": 2}),
    "qwen2moe": Architecture(
        _qwen2moe, {"n_expert": 12, "n_expert_used": 4, "n_ff_exp": 32, "n_head_kv": 4}
    ),
    "qwen3moe": Architecture(
        qwen3moe, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4, "n_ff_exp": 32}
    ),
    "olmoe": Architecture(_olmoe, {"n_expert": 16, "n_expert_used": 4, "n_head_kv": 4}),
    "deepseek2": Architecture(
        deepseek2,
        {"n_layer": 3, "n_expert": 16, "n_expert_used": 4},
        can_fuse=True,
        can_predict=True,
    ),
    "gpt-oss": Architecture(_gpt_oss, {"n_expert": 12, "n_expert_used": 4}),
    "granitemoe": Architecture(_granitemoe, {"n_expert": 10, "n_expert_used": 3}),
    "glm4moe": Architecture(
        _glm4moe, {"n_layer": 3, "n_expert": 14, "n_expert_used": 3}, can_predict=True
    ),
    "llama4": Architecture(_llama4, {"n_layer": 4, "n_expert": 8, "n_expert_used": 1}),
    "gemma4": Architecture(
        _gemma4, {"n_expert": 8, "n_expert_used": 2, "fused": True}, can_fuse=True
    ),
}
