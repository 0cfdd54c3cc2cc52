"""Further architectures, each with a feature that the required ones lack."""

from __future__ import annotations

from .architectures import (
    SIGMOID,
    Architecture,
    deepseek2,
    latent_attention,
    latent_keys,
    qwen3moe,
)
from .layout import Layout


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
    g = m.g
    m.common_keys()
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_count=1,
        leading_dense_block_count=1,
        expert_weights_scale=2.5,
        expert_weights_norm=True,
        expert_gating_func=SIGMOID,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, qk_norm="head")
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)
            m.feed_forward(i, g.n_ff_exp, "_shexp")


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
        attention__sliding_window=16,
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
        m.norm(f"blk.{i}.ffn_norm", m.g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i)
            m.feed_forward(i, m.g.n_ff_exp, "_shexp")


def _bailingmoe2(m: Layout) -> None:
    """Build joined q, k, v, expert groups and a shared expert."""
    g = m.g
    m.common_keys()
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        expert_shared_count=1,
        leading_dense_block_count=1,
        expert_weights_scale=2.5,
        expert_weights_norm=True,
        expert_gating_func=SIGMOID,
        expert_group_count=4,
        expert_group_used_count=2,
        rope__dimension_count=g.head_dim // 2,
    )
    m.ends()
    for i in range(g.n_layer):
        m.attention(i, joined=True, qk_norm="head")
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)
            m.feed_forward(i, g.n_ff_shexp, "_shexp")


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
        m.norm(f"blk.{i}.ffn_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)
            m.feed_forward(i, g.n_ff_shexp, "_shexp")


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
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_count=1,
        leading_dense_block_count=1,
        expert_weights_scale=2.0,
        expert_weights_norm=True,
        expert_gating_func=SIGMOID,
        rope__dimension_count=g.head_dim // 2,
        attention__indexer__head_count=g.n_head_kv,
        attention__indexer__key_length=n_index,
        attention__indexer__top_k=2,
        attention__indexer__block_size=16,
        attention__indexer__local_blocks=1,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        m.attention(i, qk_norm="head")
        m.norm(f"{b}.ffn_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
            continue
        m.experts(i, selection_bias=True)
        m.feed_forward(i, g.n_ff_exp, "_shexp")
        m.add(f"{b}.indexer.q_proj.weight", g.n_embd, g.n_head_kv * n_index)
        m.add(f"{b}.indexer.k_proj.weight", g.n_embd, n_index)
        m.norm(f"{b}.indexer.q_norm", n_index)
        m.norm(f"{b}.indexer.k_norm", n_index)


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


def _qwen35moe(m: Layout) -> None:
    """Build Qwen3-Next with M-RoPE, and beta and alpha apart."""
    _qwen3next(m, joined="")
    half = m.g.head_dim // 2
    m.key(rope__dimension_sections=[half - 2 * (half // 4), half // 4, half // 4, 0])


def _qwen3next(m: Layout, joined: str = "ba") -> None:
    """Build recurrent (gated delta net) and attention layers, and a gated shared expert."""
    g, d_state, n_k_head, n_v_head, n_conv = m.g, 32, 2, 4, 4
    n_key, n_value = d_state * n_k_head, d_state * n_v_head
    m.common_keys()
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        full_attention_interval=2,
        ssm__conv_kernel=n_conv,
        ssm__inner_size=n_value,
        ssm__state_size=d_state,
        ssm__time_step_rank=n_v_head,
        ssm__group_count=n_k_head,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if i % 2 == 1:
            m.attention(i, qk_norm="head", n_q_factor=2)
        else:
            m.norm(f"{b}.attn_norm", g.n_embd)
            m.add(f"{b}.attn_qkv.weight", g.n_embd, 2 * n_key + n_value)
            m.add(f"{b}.attn_gate.weight", g.n_embd, n_value)
            m.add(f"{b}.ssm_conv1d.weight", n_conv, 2 * n_key + n_value, kind="router")
            m.bias(f"{b}.ssm_dt", n_v_head)
            m.add(f"{b}.ssm_a", n_v_head, kind="decay")
            if joined:
                m.add(f"{b}.ssm_ba.weight", g.n_embd, 2 * n_v_head)
            else:
                m.add(f"{b}.ssm_beta.weight", g.n_embd, n_v_head)
                m.add(f"{b}.ssm_alpha.weight", g.n_embd, n_v_head)
            m.norm(f"{b}.ssm_norm", d_state)
            m.add(f"{b}.ssm_out.weight", n_value, g.n_embd)
        m.norm(f"{b}.post_attention_norm", g.n_embd)
        m.experts(i)
        m.add(f"{b}.ffn_gate_inp_shexp.weight", g.n_embd, kind="router")
        m.feed_forward(i, g.n_ff_shexp, "_shexp")


def _indexed_latent(m: Layout) -> None:
    """Build latent attention to the tokens that an indexer chooses, of every layer."""
    g, n_rope, n_lora = m.g, 16, 32
    m.common_keys()
    latent_keys(m, n_rope, n_lora)
    m.key(
        leading_dense_block_count=1,
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_count=1,
        expert_weights_scale=1.5,
        expert_weights_norm=True,
        expert_gating_func=SIGMOID,
        attention__indexer__head_count=2,
        attention__indexer__key_length=_N_INDEX,
        attention__indexer__top_k=16,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        latent_attention(m, b, n_rope, n_lora)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        _indexer(m, b, n_lora)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)
            m.feed_forward(i, g.n_ff_exp, "_shexp")


_N_INDEX = 64


def _indexer(m: Layout, b: str, n_lora: int) -> None:
    """Add an indexer with two heads. b: begins the names."""
    m.norm(f"{b}.indexer.k_norm", _N_INDEX, bias=True)
    m.add(f"{b}.indexer.proj.weight", m.g.n_embd, 2)
    m.add(f"{b}.indexer.attn_k.weight", m.g.n_embd, _N_INDEX)
    m.add(f"{b}.indexer.attn_q_b.weight", n_lora, 2 * _N_INDEX)


def _delta_attention(m: Layout, b: str, *, is_low: bool, is_flat: bool = False) -> None:
    """Add Kimi delta attention.

    is_low: its gates have matrices of low rank. is_flat: its decay has one dimension.
    """
    g = m.g
    n_inner = g.n_head * g.head_dim
    m.norm(f"{b}.attn_norm", g.n_embd)
    for name in "qkv":
        m.add(f"{b}.ssm_conv1d_{name}.weight", 4, 1, n_inner, kind="router")
        m.add(f"{b}.attn_{name}.weight", g.n_embd, n_inner)
    for name in "fg":
        m.add(f"{b}.ssm_{name}_a.weight", g.n_embd, g.head_dim if is_low else n_inner)
        if is_low:
            m.add(f"{b}.ssm_{name}_b.weight", g.head_dim, n_inner)
    m.add(f"{b}.ssm_beta.weight", g.n_embd, g.n_head)
    m.add(f"{b}.ssm_a", *((g.n_head,) if is_flat else (1, g.n_head)), kind="decay")
    m.bias(f"{b}.ssm_dt", n_inner)
    m.norm(f"{b}.ssm_norm", g.head_dim)
    m.add(f"{b}.attn_output.weight", n_inner, g.n_embd)


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
    _stream_weights(m, "output_hc", n_stream, n_stream, 1)
    for i in range(g.n_layer):
        b = f"blk.{i}"
        m.add(f"{b}.attn_sinks.weight", g.n_head, kind="bias")
        m.add(f"{b}.attn_gate.weight", g.n_embd, g.n_head * g.head_dim)
        for name in ("attn", "ffn"):
            _stream_weights(m, f"{b}.hc_{name}", n_stream, 2 * n_stream, 2)


def _stream_weights(m: Layout, stem: str, n_stream: int, n_mix: int, n_scale: int) -> None:
    """Add what mixes the streams of hyper-connections."""
    m.add(f"{stem}_fn.weight", n_stream * m.g.n_embd, n_mix, kind="router")
    m.add(f"{stem}_base.weight", n_mix, kind="bias")
    m.add(f"{stem}_scale.weight", n_scale, kind="norm")


def _dots3note(m: Layout) -> None:
    """Build latent attention with gated heads, to a window in every second layer."""
    g, n_rope = m.g, 16
    _indexed_latent(m)
    m.key(
        attention__kv_lora_rank_swa=32,
        attention__key_length_swa=32 + n_rope,
        attention__value_length_swa=32,
        attention__key_length_mla_swa=g.head_dim + n_rope,
        attention__value_length_mla_swa=g.head_dim,
        attention__sliding_window=16,
        attention__sliding_window_pattern=[i % 2 == 1 for i in range(g.n_layer)],
        attention__indexer__types=[1 - i % 2 for i in range(g.n_layer)],
        rope__freq_base_swa=10000.0,
        rope__dimension_count_swa=n_rope,
    )
    windowed = tuple(f"blk.{i}.indexer." for i in range(1, g.n_layer, 2))
    m.tensors[:] = [t for t in m.tensors if not t.name.startswith(windowed)]
    for i in range(g.n_layer):
        m.norm(f"blk.{i}.attn_k_norm", n_rope)
        m.add(f"blk.{i}.attn_gate.weight", g.n_embd, g.n_head)


def _bailingmoe3(m: Layout) -> None:
    """Build layers of delta attention and of latent attention with gated heads."""
    _delta_and_latent(m, is_low=False)
    for i in range(1, m.g.n_layer, 2):
        m.add(f"blk.{i}.attn_gate.weight", m.g.n_embd, m.g.n_head)


def _kimi_linear(m: Layout) -> None:
    """Build the same with gates of low rank, and queries in one matrix."""
    _delta_and_latent(m, is_low=True)
    m.tensors[:] = [t for t in m.tensors if ".attn_q_" not in t.name]
    for i in range(1, m.g.n_layer, 2):
        m.add(f"blk.{i}.attn_q.weight", m.g.n_embd, m.g.n_head * (m.g.head_dim + 16))


def _delta_and_latent(m: Layout, *, is_low: bool) -> None:
    g, n_rope, n_lora = m.g, 16, 32
    m.common_keys()
    latent_keys(m, n_rope, n_lora)
    m.key(
        attention__head_count_kv=[i % 2 for i in range(g.n_layer)],
        ssm__conv_kernel=4,
        kda__head_dim=g.head_dim,
        kda__gate_lower_bound=-5.0,
        leading_dense_block_count=1,
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_count=1,
        expert_weights_scale=1.5,
        expert_weights_norm=True,
        expert_gating_func=SIGMOID,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if i % 2:
            latent_attention(m, b, n_rope, n_lora)
        else:
            _delta_attention(m, b, is_low=is_low)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)
            m.feed_forward(i, g.n_ff_exp, "_shexp")


def _glm5_next(m: Layout) -> None:
    """Build streams, delta attention, and latent attention with an indexer of pooled keys."""
    g, n_lora, n_stream, n_pool = m.g, 32, 4, 4
    n_rope = 0
    m.common_keys()
    latent_keys(m, n_rope, n_lora)
    m.key(
        attention__head_count_kv=[i % 2 for i in range(g.n_layer)],
        ssm__conv_kernel=4,
        kda__head_dim=g.head_dim,
        kda__gate_lower_bound=-5.0,
        leading_dense_block_count=1,
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_count=1,
        expert_weights_scale=1.5,
        expert_weights_norm=True,
        expert_gating_func=SIGMOID,
        attention__indexer__head_count=2,
        attention__indexer__key_length=_N_INDEX,
        attention__indexer__top_k=16,
        attention__indexer__kpool=n_pool,
        hyper_connection__count=n_stream,
        hyper_connection__sinkhorn_iterations=4,
        hyper_connection__epsilon=1e-6,
    )
    m.ends()
    n_mix = (2 + n_stream) * n_stream
    for i in range(g.n_layer):
        b = f"blk.{i}"
        for name in ("attn", "ffn"):
            _stream_weights(m, f"{b}.hc_{name}", n_stream, n_mix, 3)
        if i % 2:
            latent_attention(m, b, n_rope, n_lora)
            _indexer(m, b, n_lora)
            m.add(f"{b}.indexer_compressor_gate.weight", g.n_embd, _N_INDEX)
            m.add(f"{b}.indexer_compressor_ape.weight", _N_INDEX, n_pool, kind="router")
        else:
            _delta_attention(m, b, is_low=True, is_flat=True)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)
            m.feed_forward(i, g.n_ff_exp, "_shexp")


def _qwen4exp(m: Layout) -> None:
    """Build streams of hyper-connections, an indexer, and a table of n-grams read by rows."""
    g, d_state, n_k_head, n_v_head, n_conv = m.g, 16, 2, 4, 4
    n_key, n_value, n_stream, n_low, n_index, n_row = d_state * 2, d_state * 4, 4, 8, g.head_dim, 64
    n_head, n_table = 2, g.n_table_row or n_row
    m.common_keys()
    half = g.head_dim // 2
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        rope__dimension_sections=[half - 2 * (half // 4), half // 4, half // 4, 0],
        full_attention_interval=2,
        ssm__conv_kernel=n_conv,
        ssm__inner_size=n_value,
        ssm__state_size=d_state,
        ssm__time_step_rank=n_v_head,
        ssm__group_count=n_k_head,
        hyper_connection__count=n_stream,
        hyper_connection__low_rank=n_low,
        attention__indexer__head_count=g.n_head_kv,
        attention__indexer__key_length=n_index,
        attention__indexer__top_k=16,
        attention__compress_ratios=[4] * g.n_layer,
        embedding_length_per_layer_input=g.n_embd // n_head,
        ple__layers=[0],
        ple__ngram_size=2,
        ple__heads_per_ngram=n_head,
        ple__conv_kernel=3,
        ple__eos_token_id=0,
        ple__layer_multipliers=(31, 17),
        ple__head_offsets=(0, n_table // 2),
        ple__head_vocab_sizes=(n_table // 2, n_table // 2),
    )
    m.add("token_embd.weight", g.n_embd, g.n_vocab, kind="embedding")
    m.add("output.weight", g.n_embd, g.n_vocab)
    wide = n_stream * g.n_embd

    def mixer(name: str, *, injects: bool) -> None:
        m.norm(f"{name}_norm", wide)
        m.add(f"{name}_down.weight", wide, n_low)
        m.add(f"{name}_up.weight", n_low, wide)
        if injects:
            m.add(f"{name}_inject.weight", wide, n_stream)

    mixer("output_hc", injects=False)
    table = "hole" if g.n_table_row else "embedding"
    m.add("per_layer_token_embd.weight", g.n_embd // n_head, n_table, kind=table)
    for i in range(g.n_layer):
        b = f"blk.{i}"
        mixer(f"{b}.hc_attn", injects=True)
        mixer(f"{b}.hc_ffn", injects=True)
        if i % 2 == 1:
            n_q, n_kv = g.n_head * g.head_dim, g.n_head_kv * g.head_dim
            for name, n in (("q", 2 * n_q), ("k", n_kv), ("v", n_kv)):
                m.add(f"{b}.attn_{name}.weight", g.n_embd, n)
            m.add(f"{b}.attn_output.weight", n_q, g.n_embd)
            m.norm(f"{b}.attn_q_norm", g.head_dim)
            m.norm(f"{b}.attn_k_norm", g.head_dim)
            m.add(f"{b}.indexer.q_proj.weight", g.n_embd, g.n_head_kv * n_index)
            m.add(f"{b}.indexer.k_proj.weight", g.n_embd, n_index)
            m.norm(f"{b}.indexer.q_norm", n_index)
            m.norm(f"{b}.indexer.k_norm", n_index)
        else:
            m.add(f"{b}.attn_qkv.weight", g.n_embd, 2 * n_key + n_value)
            m.add(f"{b}.attn_gate.weight", g.n_embd, n_value)
            m.add(f"{b}.ssm_conv1d.weight", n_conv, 2 * n_key + n_value, kind="router")
            m.bias(f"{b}.ssm_dt", n_v_head)
            m.add(f"{b}.ssm_a", n_v_head, kind="decay")
            m.add(f"{b}.ssm_beta.weight", g.n_embd, n_v_head)
            m.add(f"{b}.ssm_alpha.weight", g.n_embd, n_v_head)
            m.norm(f"{b}.ssm_norm", d_state)
            m.add(f"{b}.ssm_out.weight", n_value, g.n_embd)
        if i == 0:
            m.add(f"{b}.ple_key.weight", g.n_embd, wide)
            m.add(f"{b}.ple_value.weight", g.n_embd, g.n_embd)
            for name in ("key", "query", "conv"):
                m.norm(f"{b}.ple_norm_{name}", wide)
            m.add(f"{b}.ple_conv1d.weight", 3, wide, kind="router")
        m.experts(i)
        m.add(f"{b}.ffn_gate_inp_shexp.weight", g.n_embd, kind="router")
        m.feed_forward(i, g.n_ff_shexp, "_shexp")


def _lfm2moe(m: Layout) -> None:
    """Build short-convolution layers between attention layers; the first layer is dense."""
    g, n_cache = m.g, 3
    m.common_keys()
    m.key(
        attention__head_count_kv=[g.n_head_kv if i % 2 else 0 for i in range(g.n_layer)],
        expert_feed_forward_length=g.n_ff_exp,
        leading_dense_block_count=1,
        expert_gating_func=SIGMOID,
        shortconv__l_cache=n_cache,
    )
    m.ends(norm_name="token_embd_norm")
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if i % 2 == 1:
            m.attention(i, qk_norm="head")
        else:
            m.norm(f"{b}.attn_norm", g.n_embd)
            m.add(f"{b}.shortconv.conv.weight", n_cache, g.n_embd, kind="router")
            m.add(f"{b}.shortconv.in_proj.weight", g.n_embd, 3 * g.n_embd)
            m.add(f"{b}.shortconv.out_proj.weight", g.n_embd, g.n_embd)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        if i == 0:
            m.feed_forward(i)
        else:
            m.experts(i, selection_bias=True)


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


def _nemotron_h_moe(m: Layout) -> None:
    """Build separate layers of mamba, attention, and experts without a gate (squared ReLU)."""
    g, n_conv, n_state, n_ssm_head = m.g, 4, 16, 4
    roles = [("mamba", "experts", "attention", "experts")[i % 4] for i in range(g.n_layer)]
    m.common_keys()
    m.key(
        attention__layer_norm_epsilon=1e-5,
        attention__head_count_kv=[g.n_head_kv if r == "attention" else 0 for r in roles],
        feed_forward_length=[g.n_ff_exp if r == "experts" else 0 for r in roles],
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        expert_shared_count=1,
        expert_weights_norm=True,
        expert_weights_scale=1.5,
        ssm__conv_kernel=n_conv,
        ssm__inner_size=g.n_embd,
        ssm__state_size=n_state,
        ssm__time_step_rank=n_ssm_head,
        ssm__group_count=1,
    )
    m.ends()
    for i, role in enumerate(roles):
        b = f"blk.{i}"
        if role == "attention":
            m.attention(i)
            continue
        m.norm(f"{b}.attn_norm", g.n_embd)
        if role == "experts":
            m.experts(i, selection_bias=True, gated=False)
            m.add(f"{b}.ffn_up_shexp.weight", g.n_embd, g.n_ff_shexp)
            m.add(f"{b}.ffn_down_shexp.weight", g.n_ff_shexp, g.n_embd)
        else:
            n_mixed = g.n_embd + 2 * n_state
            m.add(f"{b}.ssm_in.weight", g.n_embd, g.n_embd + n_mixed + n_ssm_head)
            m.add(f"{b}.ssm_conv1d.weight", n_conv, n_mixed, kind="router")
            m.bias(f"{b}.ssm_conv1d", n_mixed)
            m.bias(f"{b}.ssm_dt", n_ssm_head)
            m.add(f"{b}.ssm_a", 1, n_ssm_head, kind="decay")
            m.add(f"{b}.ssm_d", 1, n_ssm_head, kind="norm")
            m.add(f"{b}.ssm_norm.weight", g.n_embd, 1, kind="norm")
            m.add(f"{b}.ssm_out.weight", g.n_embd, g.n_embd)


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
    half = m.g.head_dim // 2
    m.key(rope__dimension_sections=[half - 2 * (half // 4), half // 4, half // 4, 0])


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
    "qwen3next": Architecture(
        _qwen3next, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}, can_fuse=True
    ),
    "bailingmoe": Architecture(_bailingmoe, {"n_expert": 16, "n_expert_used": 4}),
    "deepseek": Architecture(_deepseek, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "mistral4": Architecture(deepseek2, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "exaone-moe": Architecture(_exaone_moe, {"n_layer": 4, "n_expert": 12, "n_expert_used": 3}),
    "kimi-linear": Architecture(_kimi_linear, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "qwen35moe": Architecture(
        _qwen35moe, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}, can_fuse=True
    ),
    "deepseek32": Architecture(_indexed_latent, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "glm-dsa": Architecture(_indexed_latent, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "hy_v4": Architecture(_hy_v4, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "dots3note": Architecture(_dots3note, {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}),
    "glm5-next": Architecture(_glm5_next, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "bailingmoe3": Architecture(_bailingmoe3, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "qwen4exp": Architecture(
        _qwen4exp, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}, can_fuse=True
    ),
    "lfm2moe": Architecture(_lfm2moe, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "smallthinker": Architecture(_smallthinker, {"n_expert": 8, "n_expert_used": 2}),
    "nemotron_h_moe": Architecture(
        _nemotron_h_moe, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}
    ),
    "grovemoe": Architecture(_grovemoe, {"n_expert": 8, "n_expert_used": 2}),
}
