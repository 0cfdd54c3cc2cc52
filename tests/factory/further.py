"""Further architectures, each with a feature that the required ones lack."""

from __future__ import annotations

from .architectures import Architecture, deepseek2, qwen3moe
from .layout import SIGMOID, SQRT_SOFTPLUS, Layout
from .parts import (
    N_INDEX,
    block_indexer,
    compressor,
    indexer,
    indexer_keys,
    latent_attention,
    latent_keys,
    mixed_streams,
    stream_keys,
    stream_weights,
    windows,
)


def _dbrx(m: Layout) -> None:
    """Build LayerNorm without bias, and clamped and joined q, k, v."""
    g = m.g
    m.common_keys(layer_norm=True)
    m.key(feed_forward_length=g.n_ff_exp, attention__clamp_kqv=8.0)
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, joined=True)
        m.norm(f"blk.{i}.attn_output_norm", g.n_embd)
        m.experts(i)


def _phimoe(m: Layout) -> None:
    """Build biases on every norm and on the attention."""
    g = m.g
    m.common_keys()
    m.key(feed_forward_length=g.n_ff_exp)
    m.ends(bias=True)
    for i in range(g.n_layer):
        m.attention(i, qkv_bias=True, out_bias=True, norm_bias=True)
        m.norm(f"blk.{i}.ffn_norm", g.n_embd, bias=True)
        m.experts(i)


def _grok(m: Layout) -> None:
    """Build GELU experts, a soft-capped router, and norms after attention and experts."""
    g = m.g
    m.common_keys()
    m.key(feed_forward_length=g.n_ff_exp, embedding_scale=2.0)
    m.ends()
    for i in range(g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.attn_output_norm", g.n_embd)
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        m.experts(i)
        m.norm(f"blk.{i}.post_ffw_norm", g.n_embd)


def _arctic(m: Layout) -> None:
    """Build a dense feed-forward in sequence, and experts in parallel on the layer's input."""
    g = m.g
    m.common_keys()
    m.key(feed_forward_length=g.n_ff_exp)
    m.ends()
    for i in range(g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        m.feed_forward(i, g.n_embd)
        m.norm(f"blk.{i}.ffn_norm_exps", g.n_embd)
        m.experts(i)


def _dots1(m: Layout) -> None:
    m.common_keys()
    m.mixture_keys(2.5)
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i, qk_norm="head")
        m.mixture(i)


def _bailingmoe(m: Layout) -> None:
    """Build experts in every layer, and a shared one."""
    m.common_keys()
    m.key(expert_feed_forward_length=m.g.n_ff_exp, expert_shared_count=1)
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        m.experts(i)
        m.feed_forward(i, m.g.n_ff_exp, "_shexp")


def _exaone_moe(m: Layout) -> None:
    """Build dots1 with a sliding window in most layers."""
    _dots1(m)
    m.key(
        expert_shared_feed_forward_length=m.g.n_ff_exp,
        attention__sliding_window=m.g.n_window,
        rope__freq_base_swa=10000.0,
    )


def _deepseek(m: Layout) -> None:
    """Build a leading dense layer, and a shared expert."""
    m.common_keys()
    m.key(
        leading_dense_block_count=1,
        expert_feed_forward_length=m.g.n_ff_exp,
        expert_shared_count=1,
        expert_weights_scale=1.0,
    )
    m.ends()
    for i in range(m.g.n_layer):
        m.attention(i)
        m.mixture(i, selection_bias=False)


def _bailingmoe2(m: Layout) -> None:
    """Build joined q, k, v, expert groups and a shared expert."""
    g = m.g
    m.common_keys()
    m.mixture_keys(2.5)
    m.key(
        expert_shared_feed_forward_length=g.n_ff_shexp,
        expert_group_count=4,
        expert_group_used_count=2,
        rope__dimension_count=g.head_dim // 2,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, joined=True, qk_norm="head")
        m.mixture(i, g.n_ff_shexp)


def _ernie4_5_moe(m: Layout) -> None:
    g = m.g
    m.common_keys()
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        interleave_moe_layer_step=1,
        leading_dense_block_count=1,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i)
        m.mixture(i, g.n_ff_shexp)


def _hunyuan_moe(m: Layout) -> None:
    g = m.g
    m.common_keys()
    m.key(
        feed_forward_length=g.n_ff_exp,
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, qk_norm="head")
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        m.experts(i)
        m.feed_forward(i, g.n_ff_shexp, "_shexp")


def _minimax_m2(m: Layout) -> None:
    g = m.g
    m.common_keys()
    m.key(
        feed_forward_length=g.n_ff_exp,
        expert_feed_forward_length=g.n_ff_exp,
        expert_gating_func=SIGMOID,
        rope__dimension_count=g.head_dim // 2,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, qk_norm="full")
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        m.experts(i, selection_bias=True)


def _minimax_m3(m: Layout) -> None:
    """Build sparse attention: a token sees the best blocks of tokens, and the last one."""
    g, n_index = m.g, m.g.head_dim
    m.common_keys()
    m.mixture_keys(2.0)
    indexer_keys(m, g.n_head_kv, n_index, top_k=2)
    m.key(
        rope__dimension_count=g.head_dim // 2,
        attention__indexer__block_size=16,
        attention__indexer__local_blocks=1,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, qk_norm="head")
        m.mixture(i)
        if i > 0:
            block_indexer(m, f"blk.{i}", n_index)


def _cohere2moe(m: Layout) -> None:
    """Build attention and experts in parallel after one norm; gate_up may be fused."""
    g = m.g
    m.common_keys(layer_norm=True)
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_count=1,
        leading_dense_block_count=1,
        attention__sliding_window=16,
        logit_scale=0.25,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i)
            m.feed_forward(i, g.n_ff_exp, "_shexp")


def _indexed_latent(m: Layout) -> None:
    """Build latent attention to the tokens that an indexer chooses, of every layer."""
    g, n_rope, n_lora = m.g, m.g.n_rope, 32
    m.common_keys()
    latent_keys(m, n_rope, n_lora)
    m.mixture_keys(1.5)
    indexer_keys(m)
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        latent_attention(m, b, n_rope, n_lora)
        indexer(m, b, n_lora)
        m.mixture(i)


def _hy_v4(m: Layout) -> None:
    """Build streams, sinks, and gated latent attention to the tokens of an indexer."""
    g, n_stream = m.g, 4
    _indexed_latent(m)
    m.key(
        attention__indexer__types=[1] * g.n_layer,
        hyper_connection__count=n_stream,
        hyper_connection__epsilon=1e-6,
        hyper_connection__magnitude=1.0,
    )
    stream_weights(m, "output_hc", n_stream, n_stream, 1)
    for i in range(g.n_layer):
        b = f"blk.{i}"
        m.add(f"{b}.attn_sinks.weight", g.n_head, kind="bias")
        m.add(f"{b}.attn_gate.weight", g.n_embd, g.n_head * g.head_dim)
        for name in ("attn", "ffn"):
            stream_weights(m, f"{b}.hc_{name}", n_stream, 2 * n_stream, 2)


def _dots3note(m: Layout) -> None:
    """Build latent attention with gated heads, to a window in every second layer."""
    g, n_rope = m.g, m.g.n_rope
    _indexed_latent(m)
    windows(m, [i % 2 for i in range(g.n_layer)])
    m.key(
        attention__kv_lora_rank_swa=32,
        attention__key_length_swa=32 + n_rope,
        attention__value_length_swa=32,
        attention__key_length_mla_swa=g.head_dim + n_rope,
        attention__value_length_mla_swa=g.head_dim,
        attention__indexer__types=[1 - i % 2 for i in range(g.n_layer)],
        rope__dimension_count_swa=n_rope,
    )
    windowed = tuple(f"blk.{i}.indexer." for i in range(1, g.n_layer, 2))
    m.tensors[:] = [t for t in m.tensors if not t.name.startswith(windowed)]
    for i in range(g.n_layer):
        m.norm(f"blk.{i}.attn_k_norm", n_rope)
        m.add(f"blk.{i}.attn_gate.weight", g.n_embd, g.n_head)


def _deepseek4(m: Layout) -> None:
    """Build experts that follow from the token, and attention to compressed tokens.

    Layers attend to a window, to the best keys of 4 tokens, and to all keys of 128 tokens.
    """
    g, n_stream, n_lora, n_group, n_hash = m.g, 4, 32, 2, 2
    ratios = [(0, 4, 128)[i % 3] for i in range(g.n_layer)] + [0] * g.n_nextn
    n_q = g.n_head * g.head_dim
    m.common_keys()
    m.mixture_keys(1.5)
    indexer_keys(m)
    stream_keys(m, n_stream)
    m.key(
        attention__head_count_kv=1,
        attention__sliding_window=16,
        attention__q_lora_rank=n_lora,
        attention__output_group_count=n_group,
        attention__output_lora_rank=n_lora,
        attention__compress_ratios=ratios,
        attention__compress_rope_freq_base=160000.0,
        expert_gating_func=SQRT_SOFTPLUS,
        hash_layer_count=n_hash,
        rope__dimension_count=min(g.head_dim // 2, N_INDEX),
        swiglu_clamp_exp=10.0,
    )
    m.ends()
    stream_weights(m, "output_hc", n_stream, n_stream, 1)
    for i, ratio in enumerate(ratios):
        b = f"blk.{i}"
        m.norm(f"{b}.attn_norm", g.n_embd)
        m.add(f"{b}.attn_sinks.weight", g.n_head, kind="bias")
        m.add(f"{b}.attn_q_a.weight", g.n_embd, n_lora)
        m.norm(f"{b}.attn_q_a_norm", n_lora)
        m.add(f"{b}.attn_q_b.weight", n_lora, n_q)
        m.add(f"{b}.attn_kv.weight", g.n_embd, g.head_dim)
        m.norm(f"{b}.attn_kv_a_norm", g.head_dim)
        m.add(f"{b}.attn_output_a.weight", n_q // n_group, n_lora * n_group)
        m.add(f"{b}.attn_output_b.weight", n_lora * n_group, g.n_embd)
        mixed_streams(m, b, n_stream)
        if ratio:
            compressor(m, f"{b}.attn_compressor", ratio, g.head_dim)
        if ratio == 4:
            m.add(f"{b}.indexer.proj.weight", g.n_embd, 2)
            m.add(f"{b}.indexer.attn_q_b.weight", n_lora, 2 * N_INDEX)
            compressor(m, f"{b}.indexer_compressor", ratio, N_INDEX)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        m.experts(i, selection_bias=i >= n_hash)
        if i < n_hash:
            m.add(f"{b}.ffn_gate_tid2eid.weight", g.n_expert_used, g.n_vocab, kind="ids")
        m.feed_forward(i, g.n_ff_exp, "_shexp")
        m.nextn(i)


def _afmoe(m: Layout) -> None:
    """Build gated attention, windows, and norms before and after attention and experts."""
    g = m.g
    m.common_keys()
    m.mixture_keys(2.8)
    windows(m, [(i + 1) % g.period for i in range(g.n_layer)])
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        m.attention(i, qk_norm="head")
        m.add(f"{b}.attn_gate.weight", g.n_embd, g.n_head * g.head_dim)
        m.norm(f"{b}.post_attention_norm", g.n_embd)
        m.mixture(i)
        m.norm(f"{b}.post_ffw_norm", g.n_embd)


def _laguna(m: Layout) -> None:
    """Build windows with twice the heads, a gate for each head, and positions by YaRN."""
    g = m.g
    is_windowed = [i % 2 == 1 for i in range(g.n_layer)]
    n_head = [g.n_head * (1 + w) for w in is_windowed]
    m.common_keys()
    m.mixture_keys(2.5)
    windows(m, is_windowed)
    m.key(
        attention__head_count=n_head,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        rope__dimension_count=g.head_dim // 2,
        rope__dimension_count_swa=g.head_dim,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=g.n_ctx // 4,
    )
    m.ends()
    for i, n in enumerate(n_head):
        m.attention(i, qk_norm="head", n_head=n)
        m.add(f"blk.{i}.attn_gate.weight", g.n_embd, n)
        m.mixture(i, g.n_ff_shexp)


def _windowed(m: Layout) -> None:
    """Build Qwen3-MoE with windows in all layers but every second one."""
    qwen3moe(m)
    windows(m, [i % 2 == 0 for i in range(m.g.n_layer)])


def _maple(m: Layout) -> None:
    """Build the same with clamped experts."""
    _windowed(m)
    m.key(swiglu_clamp_exp=7.0)


def _hy_v3(m: Layout) -> None:
    """Build a bias of the selection with another name, and a layer that predicts."""
    g = m.g
    m.common_keys()
    m.mixture_keys(2.5)
    m.key(expert_shared_feed_forward_length=g.n_ff_shexp)
    m.ends()
    for i in range(g.n_layer + g.n_nextn):
        m.attention(i, qk_norm="head")
        m.mixture(i, g.n_ff_shexp, selection_bias=False)
        if i > 0:
            m.add(f"blk.{i}.exp_probs_b", g.n_expert, kind="bias")
        m.nextn(i)


def _mimo2(m: Layout) -> None:
    """Build joined q, k, v with short values, sinks, windows, and a dense layer that predicts."""
    g, n_value = m.g, m.g.head_dim // 2
    is_windowed = [i % g.period != 0 for i in range(g.n_layer + g.n_nextn)]
    n_head_kv = [g.n_head_kv // (2 - w) for w in is_windowed]
    m.common_keys()
    windows(m, is_windowed)
    m.key(
        attention__head_count_kv=n_head_kv,
        attention__value_length=n_value,
        attention__value_scale=0.7,
        expert_feed_forward_length=g.n_ff_exp,
        expert_weights_scale=1.5,
        rope__dimension_count=g.head_dim // 2,
    )
    m.ends()
    for i, n in enumerate(n_head_kv):
        m.attention(i, joined=True, n_head_kv=n, n_value=n_value)
        m.add(f"blk.{i}.attn_sinks.weight", g.n_head, kind="bias")
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        if 0 < i < g.n_layer:
            m.experts(i, selection_bias=True)
        else:
            m.feed_forward(i)
        m.nextn(i)


def _step35(m: Layout) -> None:
    """Build laguna's heads with other positions, clamped experts, and a layer that predicts."""
    g = m.g
    n_layer = g.n_layer + g.n_nextn
    is_windowed = [i % g.period != 0 for i in range(n_layer)]
    n_windowed = g.n_head_windowed or 2 * g.n_head
    n_head = [n_windowed if w else g.n_head for w in is_windowed]
    m.common_keys()
    m.mixture_keys(2.5)
    windows(m, is_windowed)
    m.key(
        attention__head_count=n_head,
        attention__head_count_kv=[g.n_head_kv] * n_layer,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        rope__dimension_count_swa=g.head_dim,
        swiglu_clamp_exp=[7.0] * n_layer,
        swiglu_clamp_shexp=[16.0] * n_layer,
    )
    m.ends()
    m.norm("rope_freqs", g.head_dim // 2)
    for i, n in enumerate(n_head):
        m.attention(i, qk_norm="head", n_head=n)
        m.add(f"blk.{i}.attn_gate.weight", g.n_embd, n)
        m.mixture(i, g.n_ff_shexp)
        m.nextn(i)


def _smallthinker(m: Layout) -> None:
    """Build ReLU experts whose router reads the layer's input before attention."""
    g = m.g
    m.common_keys()
    m.key(expert_feed_forward_length=g.n_ff_exp, expert_gating_func=SIGMOID)
    m.ends()
    for i in range(g.n_layer):
        m.attention(i)
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        m.experts(i)


def _grovemoe(m: Layout) -> None:
    """Build two expert passes per layer: the experts, and small adjugate experts of groups.

    Both passes use the same node names. The second one's tensors are named *_chexps.
    """
    g, n_group_experts = m.g, 2
    m.common_keys()
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_chunk_feed_forward_length=g.n_ff_exp,
        expert_group_scale=0.5,
        experts_per_group=n_group_experts,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        m.attention(i, qk_norm="head")
        m.norm(f"{b}.ffn_norm", g.n_embd)
        m.experts(i)
        n_chunk = g.n_expert // n_group_experts
        for name, n_in, n_out in (
            ("gate", g.n_embd, g.n_ff_exp),
            ("up", g.n_embd, g.n_ff_exp),
            ("down", g.n_ff_exp, g.n_embd),
        ):
            m.add(f"{b}.ffn_{name}_chexps.weight", n_in, n_out, n_chunk, kind="expert")


def _qwen3vlmoe(m: Layout) -> None:
    """Build Qwen3-MoE with positions in time, height and width (M-RoPE)."""
    qwen3moe(m)
    m.positions_in_sections()


FURTHER: dict[str, Architecture] = {
    "qwen3vlmoe": Architecture(_qwen3vlmoe, {"n_expert": 16, "n_expert_used": 4}),
    "dbrx": Architecture(_dbrx, {"n_expert": 16, "n_expert_used": 4}),
    "phimoe": Architecture(_phimoe, {"n_expert": 8, "n_expert_used": 2}),
    "grok": Architecture(_grok, {"n_expert": 8, "n_expert_used": 2}),
    "arctic": Architecture(_arctic, {"n_expert": 12, "n_expert_used": 2}),
    "dots1": Architecture(
        _dots1, {"n_layer": 3, "n_expert": 12, "n_expert_used": 3, "n_head_kv": 4}
    ),
    "bailingmoe2": Architecture(_bailingmoe2, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "ernie4_5-moe": Architecture(_ernie4_5_moe, {"n_layer": 3, "n_expert": 8, "n_expert_used": 3}),
    "hunyuan-moe": Architecture(_hunyuan_moe, {"n_expert": 8, "n_expert_used": 2}),
    "minimax-m2": Architecture(_minimax_m2, {"n_expert": 16, "n_expert_used": 4}),
    "minimax-m3": Architecture(_minimax_m3, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "cohere2moe": Architecture(
        _cohere2moe,
        {"n_layer": 3, "n_expert": 8, "n_expert_used": 2, "fused": True},
        can_fuse=True,
    ),
    "bailingmoe": Architecture(_bailingmoe, {"n_expert": 16, "n_expert_used": 4}),
    "deepseek": Architecture(_deepseek, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "mistral4": Architecture(deepseek2, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "exaone-moe": Architecture(_exaone_moe, {"n_layer": 4, "n_expert": 12, "n_expert_used": 3}),
    "deepseek32": Architecture(_indexed_latent, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "glm-dsa": Architecture(_indexed_latent, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "hy_v4": Architecture(_hy_v4, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "dots3note": Architecture(_dots3note, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "deepseek4": Architecture(_deepseek4, {"n_layer": 3, "n_expert_used": 3}, can_predict=True),
    "deepseek2-ocr": Architecture(_deepseek, {"n_layer": 3, "n_head_kv": 4}, can_fuse=True),
    "afmoe": Architecture(_afmoe, {"n_layer": 3, "n_expert": 12, "n_expert_used": 3}),
    "laguna": Architecture(_laguna, {"n_layer": 3}),
    "mellum": Architecture(_windowed, {"n_expert": 16, "n_expert_used": 4}),
    "maple": Architecture(_maple, {"n_expert": 12, "n_expert_used": 3}),
    "hy_v3": Architecture(_hy_v3, {"n_layer": 3, "n_nextn": 1}, can_fuse=True, can_predict=True),
    "mimo2": Architecture(_mimo2, {"n_layer": 3, "n_nextn": 1}, can_predict=True),
    "step35": Architecture(_step35, {"n_layer": 3, "n_nextn": 1}, can_predict=True),
    "smallthinker": Architecture(_smallthinker, {"n_expert": 8, "n_expert_used": 2}),
    "grovemoe": Architecture(_grovemoe, {"n_expert": 8, "n_expert_used": 2}),
}
