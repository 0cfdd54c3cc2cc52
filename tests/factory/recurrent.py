"""Architectures with recurrent layers between those with attention."""

from __future__ import annotations

from .architectures import Architecture
from .layout import SIGMOID, Layout
from .parts import (
    N_INDEX,
    block_indexer,
    delta_attention,
    delta_keys,
    gated_delta_keys,
    gated_delta_net,
    indexer,
    indexer_keys,
    latent_attention,
    latent_keys,
    mamba2,
    mamba2_keys,
    mixed_streams,
    stream_keys,
)


def _qwen35moe(m: Layout) -> None:
    """Build Qwen3-Next with M-RoPE, and beta and alpha apart."""
    _qwen3next(m, joined=False)
    m.positions_in_sections()


def _qwen35(m: Layout) -> None:
    """Build Qwen3.5 without experts."""
    _qwen3next(m, joined=False, has_experts=False)
    m.positions_in_sections()


def _qwen3next(m: Layout, *, joined: bool = True, has_experts: bool = True) -> None:
    """Build recurrent (gated delta net) and attention layers, and a gated shared expert."""
    g, n_state = m.g, m.g.n_state
    m.common_keys(moe=has_experts)
    if has_experts:
        m.key(
            expert_feed_forward_length=g.n_ff_exp,
            expert_shared_feed_forward_length=g.n_ff_shexp,
        )
    gated_delta_keys(m, n_state)
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if (i + 1) % g.period == 0:
            m.attention(i, qk_norm="head", n_q_factor=2)
        else:
            m.norm(f"{b}.attn_norm", g.n_embd)
            gated_delta_net(m, b, n_state, joined=joined)
        m.norm(f"{b}.post_attention_norm", g.n_embd)
        if not has_experts:
            m.feed_forward(i)
            continue
        m.experts(i)
        m.gated_shared(i)


def _bailingmoe3(m: Layout) -> None:
    """Build layers of delta attention and of latent attention with gated heads."""
    _delta_and_latent(m, whole="f_a g_a")
    for i in range(1, m.g.n_layer, 2):
        m.add(f"blk.{i}.attn_gate.weight", m.g.n_embd, m.g.n_head)


def _kimi_linear(m: Layout) -> None:
    """Build the same with gates of low rank, and queries in one matrix."""
    _delta_and_latent(m, low="fg")
    m.tensors[:] = [t for t in m.tensors if ".attn_q_" not in t.name]
    for i in range(1, m.g.n_layer, 2):
        m.add(f"blk.{i}.attn_q.weight", m.g.n_embd, m.g.n_head * (m.g.head_dim + m.g.n_rope))


def _kimi_k3(m: Layout) -> None:
    """Build experts in a latent space, gated attention, and residuals that choose among layers."""
    g, n_latent = m.g, m.g.n_ff_exp
    _delta_and_latent(m, low="f", whole="g", is_flat=True, n_latent=n_latent)
    m.key(
        attn_res__block_size=2,
        activation__situ_beta=4.0,
        activation__situ_linear_beta=25.0,
        expert_latent_length=n_latent,
    )
    m.norm("output_res_score", g.n_embd)
    for i in range(g.n_layer):
        b = f"blk.{i}"
        m.norm(f"{b}.attn_res_score", g.n_embd)
        m.norm(f"{b}.ffn_res_score", g.n_embd)
        if i % 2:
            m.add(f"{b}.attn_gate.weight", g.n_embd, g.n_head * g.head_dim)
        if i:
            m.add(f"{b}.ffn_routed_down.weight", g.n_embd, n_latent)
            m.norm(f"{b}.ffn_routed_norm", n_latent)
            m.add(f"{b}.ffn_routed_up.weight", n_latent, g.n_embd)


def _delta_and_latent(
    m: Layout, *, low: str = "", whole: str = "", is_flat: bool = False, n_latent: int = 0
) -> None:
    g, n_rope, n_lora = m.g, m.g.n_rope, 32
    m.common_keys()
    latent_keys(m, n_rope, n_lora)
    delta_keys(m)
    m.mixture_keys(1.5)
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if i % 2:
            latent_attention(m, b, n_rope, n_lora)
        else:
            delta_attention(m, b, low=low, whole=whole, is_flat=is_flat)
        m.mixture(i, n_inside=n_latent)


def _glm5_next(m: Layout) -> None:
    """Build streams, delta attention, and latent attention with an indexer of pooled keys."""
    g, n_lora, n_stream, n_pool = m.g, 32, 4, 4
    n_rope = 0
    m.common_keys()
    latent_keys(m, n_rope, n_lora)
    delta_keys(m)
    m.mixture_keys(1.5)
    indexer_keys(m)
    stream_keys(m, n_stream)
    m.key(attention__indexer__kpool=n_pool)
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        mixed_streams(m, b, n_stream)
        if i % 2:
            latent_attention(m, b, n_rope, n_lora)
            indexer(m, b, n_lora)
            m.add(f"{b}.indexer_compressor_gate.weight", g.n_embd, N_INDEX)
            m.add(f"{b}.indexer_compressor_ape.weight", N_INDEX, n_pool, kind="router")
        else:
            delta_attention(m, b, low="fg", is_flat=True)
        m.mixture(i)


def _qwen4exp(m: Layout) -> None:
    """Build streams of hyper-connections, an indexer, and a table of n-grams read by rows."""
    g, n_state, n_stream, n_low, n_row, n_head = m.g, 16, 4, 8, 64, 2
    n_table, wide = g.n_table_row or n_row, n_stream * g.n_embd
    m.common_keys()
    m.positions_in_sections()
    gated_delta_keys(m, n_state)
    indexer_keys(m, g.n_head_kv, g.head_dim)
    m.key(
        expert_feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        hyper_connection__count=n_stream,
        hyper_connection__low_rank=n_low,
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
            m.attention(i, qk_norm="head", n_q_factor=2, normed=False)
            block_indexer(m, b, g.head_dim)
        else:
            gated_delta_net(m, b, n_state, joined=False)
        if i == 0:
            m.add(f"{b}.ple_key.weight", g.n_embd, wide)
            m.add(f"{b}.ple_value.weight", g.n_embd, g.n_embd)
            for name in ("key", "query", "conv"):
                m.norm(f"{b}.ple_norm_{name}", wide)
            m.add(f"{b}.ple_conv1d.weight", 3, wide, kind="router")
        m.experts(i)
        m.gated_shared(i)


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
        m.mixture(i, 0)


def _nemotron_h_moe(m: Layout) -> None:
    """Build separate layers of mamba, attention, and experts without a gate (squared ReLU).

    by_layer: the layers of experts differ, as in the "puzzle" models.
    """
    g, n_state, n_head = m.g, 16, 4
    roles = [("mamba", "experts", "attention", "experts")[i % 4] for i in range(g.n_layer)]
    with_experts = [i for i, role in enumerate(roles) if role == "experts"]
    sizes = g.by_layer or ((g.n_expert_used, g.n_ff_exp),) * len(with_experts)
    by_layer = dict(zip(with_experts, sizes, strict=True))
    used, widths = ([by_layer.get(i, (0, 0))[n] for i in range(g.n_layer)] for n in (0, 1))
    m.common_keys()
    if g.by_layer:
        m.key(expert_used_count=used)
    mamba2_keys(m, g.n_embd, n_state, n_head)
    m.key(
        attention__layer_norm_epsilon=1e-5,
        attention__head_count_kv=[g.n_head_kv if r == "attention" else 0 for r in roles],
        feed_forward_length=widths,
        expert_feed_forward_length=widths if g.by_layer else g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        expert_shared_count=1,
        expert_weights_norm=True,
        expert_weights_scale=1.5,
    )
    m.ends()
    for i, role in enumerate(roles):
        b = f"blk.{i}"
        if role == "attention":
            m.attention(i)
            continue
        m.norm(f"{b}.attn_norm", g.n_embd)
        if role == "experts":
            m.experts(i, selection_bias=True, gated=False, n_ff=widths[i])
            m.add(f"{b}.ffn_up_shexp.weight", g.n_embd, g.n_ff_shexp)
            m.add(f"{b}.ffn_down_shexp.weight", g.n_ff_shexp, g.n_embd)
        else:
            mamba2(m, b, g.n_embd, n_state, n_head)


def _granitehybrid(m: Layout) -> None:
    """Build Mamba-2 and attention layers with scales, experts and a shared one in all."""
    g, n_inner, n_state, n_head = m.g, 2 * m.g.n_embd, 16, 4
    m.common_keys()
    mamba2_keys(m, n_inner, n_state, n_head)
    m.key(
        attention__head_count_kv=[g.n_head_kv if i % 2 else 0 for i in range(g.n_layer)],
        feed_forward_length=g.n_ff_exp,
        expert_shared_feed_forward_length=g.n_ff_shexp,
        logit_scale=2.0,
        residual_scale=0.5,
        embedding_scale=3.0,
        attention__scale=0.1,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if i % 2 == 1:
            m.attention(i)
        else:
            m.norm(f"{b}.attn_norm", g.n_embd)
            mamba2(m, b, n_inner, n_state, n_head)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        m.experts(i)
        m.feed_forward(i, g.n_ff_shexp, "_shexp")


def _jamba(m: Layout) -> None:
    """Build Mamba, attention without positions, and experts in every second layer."""
    g, n_inner, n_state, n_conv, n_step = m.g, 2 * m.g.n_embd, 16, 4, 8
    m.common_keys()
    m.key(
        attention__head_count_kv=[g.n_head_kv if i % 2 else 0 for i in range(g.n_layer)],
        feed_forward_length=g.n_ff_exp,
        ssm__conv_kernel=n_conv,
        ssm__inner_size=n_inner,
        ssm__state_size=n_state,
        ssm__time_step_rank=n_step,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if i % 2 == 1:
            m.attention(i)
        else:
            m.norm(f"{b}.attn_norm", g.n_embd)
            m.add(f"{b}.ssm_in.weight", g.n_embd, 2 * n_inner)
            m.add(f"{b}.ssm_conv1d.weight", n_conv, n_inner, kind="router")
            m.bias(f"{b}.ssm_conv1d", n_inner)
            m.add(f"{b}.ssm_x.weight", n_inner, n_step + 2 * n_state)
            m.add(f"{b}.ssm_dt.weight", n_step, n_inner)
            m.bias(f"{b}.ssm_dt", n_inner)
            for name, n in (("dt", n_step), ("b", n_state), ("c", n_state)):
                m.norm(f"{b}.ssm_{name}_norm", n)
            m.add(f"{b}.ssm_a", n_state, n_inner, kind="decay")
            m.add(f"{b}.ssm_d", n_inner, kind="norm")
            m.add(f"{b}.ssm_out.weight", n_inner, g.n_embd)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        if i % 2 == 1:
            m.experts(i)
        else:
            m.feed_forward(i, g.n_ff_exp)


def _minimax_01(m: Layout) -> None:
    """Build lightning attention, whose state decays, and scaled residuals."""
    g = m.g
    n_inner = g.n_head * g.head_dim
    m.common_keys()
    m.key(
        feed_forward_length=g.n_ff_exp,
        residual_scale=3.5,
        full_attention_interval=2,
        rope__dimension_count=g.head_dim // 2,
    )
    m.ends()
    for i in range(g.n_layer):
        b = f"blk.{i}"
        if i % 2 == 1:
            m.attention(i)
        else:
            m.norm(f"{b}.attn_norm", g.n_embd)
            m.norm(f"{b}.attn_norm_2", n_inner)
            m.add(f"{b}.attn_qkv.weight", g.n_embd, 3 * n_inner)
            m.add(f"{b}.attn_gate.weight", g.n_embd, n_inner)
            m.add(f"{b}.attn_output.weight", n_inner, g.n_embd)
        m.norm(f"{b}.ffn_norm", g.n_embd)
        m.experts(i)


PUZZLE = {"n_layer": 8, "n_expert": 16, "by_layer": ((2, 64), (4, 32), (1, 96), (3, 64))}
"""Sizes of a nemotron_h_moe whose layers use different numbers of experts of different widths."""

RECURRENT: dict[str, Architecture] = {
    "qwen3next": Architecture(
        _qwen3next, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}, can_fuse=True
    ),
    "qwen35moe": Architecture(
        _qwen35moe, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}, can_fuse=True
    ),
    "qwen35": Architecture(_qwen35, {"n_layer": 4}),
    "qwen4exp": Architecture(
        _qwen4exp, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}, can_fuse=True
    ),
    "kimi-linear": Architecture(_kimi_linear, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "kimi-k3": Architecture(_kimi_k3, {"n_layer": 4, "n_ff_exp": 32}),
    "bailingmoe3": Architecture(_bailingmoe3, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "glm5-next": Architecture(_glm5_next, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "lfm2moe": Architecture(_lfm2moe, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}),
    "nemotron_h_moe": Architecture(
        _nemotron_h_moe, {"n_layer": 4, "n_expert": 8, "n_expert_used": 2}
    ),
    "granitehybrid": Architecture(_granitehybrid, {"n_expert": 12, "n_expert_used": 3}),
    "jamba": Architecture(_jamba, {"n_layer": 4}),
    "minimax-01": Architecture(_minimax_01, {"n_layer": 3, "n_expert_used": 3}),
}
