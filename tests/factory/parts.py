"""Parts of layers that several architectures have. b: begins the names of a layer's tensors."""

from __future__ import annotations

from collections.abc import Iterable

from .layout import Layout

N_INDEX = 64
"""Values of an indexer's key."""
_N_CONV = 4


def windows(m: Layout, layers: Iterable[bool | int]) -> None:
    """Set the keys of sliding windows, in the layers that are True."""
    m.key(
        attention__sliding_window=m.g.n_window,
        attention__sliding_window_pattern=[bool(is_windowed) for is_windowed in layers],
        rope__freq_base_swa=5000.0,
    )


# Latent attention, and the choice of tokens by an indexer


def latent_keys(m: Layout, n_rope: int, n_lora: int) -> None:
    """Set the keys of latent attention."""
    m.key(
        attention__head_count_kv=1,
        attention__key_length=n_lora + n_rope,
        attention__value_length=n_lora,
        attention__key_length_mla=m.g.head_dim + n_rope,
        attention__value_length_mla=m.g.head_dim,
        attention__q_lora_rank=n_lora,
        attention__kv_lora_rank=n_lora,
        rope__dimension_count=n_rope,
    )


def latent_attention(m: Layout, b: str, n_rope: int, n_lora: int) -> None:
    """Add the tensors of latent attention and its norm."""
    g = m.g
    m.norm(f"{b}.attn_norm", g.n_embd)
    m.add(f"{b}.attn_q_a.weight", g.n_embd, n_lora)
    m.norm(f"{b}.attn_q_a_norm", n_lora)
    m.add(f"{b}.attn_q_b.weight", n_lora, g.n_head * (g.head_dim + n_rope))
    m.add(f"{b}.attn_kv_a_mqa.weight", g.n_embd, n_lora + n_rope)
    m.norm(f"{b}.attn_kv_a_norm", n_lora)
    m.add(f"{b}.attn_k_b.weight", g.head_dim, n_lora, g.n_head)
    m.add(f"{b}.attn_v_b.weight", n_lora, g.head_dim, g.n_head)
    m.add(f"{b}.attn_output.weight", g.n_head * g.head_dim, g.n_embd)


def indexer_keys(m: Layout, n_head: int = 2, n_value: int = N_INDEX, top_k: int = 16) -> None:
    """Set the keys of an indexer."""
    m.key(
        attention__indexer__head_count=n_head,
        attention__indexer__key_length=n_value,
        attention__indexer__top_k=top_k,
    )


def indexer(m: Layout, b: str, n_lora: int) -> None:
    """Add an indexer with two heads, whose queries come from the latent ones."""
    m.norm(f"{b}.indexer.k_norm", N_INDEX, bias=True)
    m.add(f"{b}.indexer.proj.weight", m.g.n_embd, 2)
    m.add(f"{b}.indexer.attn_k.weight", m.g.n_embd, N_INDEX)
    m.add(f"{b}.indexer.attn_q_b.weight", n_lora, 2 * N_INDEX)


def block_indexer(m: Layout, b: str, n_value: int) -> None:
    """Add an indexer with one head for each of the attention's, of blocks of tokens."""
    m.add(f"{b}.indexer.q_proj.weight", m.g.n_embd, m.g.n_head_kv * n_value)
    m.add(f"{b}.indexer.k_proj.weight", m.g.n_embd, n_value)
    m.norm(f"{b}.indexer.q_norm", n_value)
    m.norm(f"{b}.indexer.k_norm", n_value)


def compressor(m: Layout, stem: str, ratio: int, n_value: int) -> None:
    """Add what makes one key of `ratio` tokens. Those of 4 tokens overlap."""
    n_wide = n_value * (2 if ratio == 4 else 1)
    m.add(f"{stem}_kv.weight", m.g.n_embd, n_wide)
    m.add(f"{stem}_gate.weight", m.g.n_embd, n_wide)
    m.add(f"{stem}_ape.weight", n_wide, ratio, kind="router")
    m.norm(f"{stem}_norm", n_value)


# Streams of hyper-connections


def stream_keys(m: Layout, n_stream: int) -> None:
    """Set the keys of streams that are mixed by doubly stochastic matrices."""
    m.key(
        hyper_connection__count=n_stream,
        hyper_connection__sinkhorn_iterations=4,
        hyper_connection__epsilon=1e-6,
    )


def stream_weights(m: Layout, stem: str, n_stream: int, n_mix: int, n_scale: int) -> None:
    """Add what mixes the streams."""
    m.add(f"{stem}_fn.weight", n_stream * m.g.n_embd, n_mix, kind="router")
    m.add(f"{stem}_base.weight", n_mix, kind="bias")
    m.add(f"{stem}_scale.weight", n_scale, kind="norm")


def mixed_streams(m: Layout, b: str, n_stream: int) -> None:
    """Add what such a matrix of a layer's attention and of its experts is made of."""
    for name in ("attn", "ffn"):
        stream_weights(m, f"{b}.hc_{name}", n_stream, (2 + n_stream) * n_stream, 3)


# Recurrent layers


def gated_delta_keys(m: Layout, n_state: int) -> None:
    """Set the keys of a gated delta net in all layers but one of a period."""
    m.key(
        full_attention_interval=m.g.period,
        ssm__conv_kernel=_N_CONV,
        ssm__inner_size=n_state * m.g.n_v_head,
        ssm__state_size=n_state,
        ssm__time_step_rank=m.g.n_v_head,
        ssm__group_count=m.g.n_k_head,
    )


def gated_delta_net(m: Layout, b: str, n_state: int, *, joined: bool) -> None:
    """Add a gated delta net. joined: beta and alpha have one matrix."""
    g, n_k_head, n_v_head = m.g, m.g.n_k_head, m.g.n_v_head
    n_key, n_value = n_state * n_k_head, n_state * n_v_head
    m.add(f"{b}.attn_qkv.weight", g.n_embd, 2 * n_key + n_value)
    m.add(f"{b}.attn_gate.weight", g.n_embd, n_value)
    m.add(f"{b}.ssm_conv1d.weight", _N_CONV, 2 * n_key + n_value, kind="router")
    m.bias(f"{b}.ssm_dt", n_v_head)
    m.add(f"{b}.ssm_a", n_v_head, kind="decay")
    if joined:
        m.add(f"{b}.ssm_ba.weight", g.n_embd, 2 * n_v_head)
    else:
        m.add(f"{b}.ssm_beta.weight", g.n_embd, n_v_head)
        m.add(f"{b}.ssm_alpha.weight", g.n_embd, n_v_head)
    m.norm(f"{b}.ssm_norm", n_state)
    m.add(f"{b}.ssm_out.weight", n_value, g.n_embd)


def delta_keys(m: Layout) -> None:
    """Set the keys of Kimi delta attention in all layers but every second one."""
    m.key(
        attention__head_count_kv=[i % 2 for i in range(m.g.n_layer)],
        ssm__conv_kernel=_N_CONV,
        kda__head_dim=m.g.head_dim,
        kda__gate_lower_bound=-5.0,
    )


def delta_attention(
    m: Layout, b: str, *, low: str = "", whole: str = "", is_flat: bool = False
) -> None:
    """Add Kimi delta attention.

    low: its gates with two matrices of low rank, whole: those with one matrix; f or g, in the order
    of the file. is_flat: its decay has one dimension.
    """
    g = m.g
    n_inner = g.n_head * g.head_dim
    m.norm(f"{b}.attn_norm", g.n_embd)
    for name in "qkv":
        m.add(f"{b}.ssm_conv1d_{name}.weight", _N_CONV, 1, n_inner, kind="router")
        m.add(f"{b}.attn_{name}.weight", g.n_embd, n_inner)
    for name in low:
        m.add(f"{b}.ssm_{name}_a.weight", g.n_embd, g.head_dim)
        m.add(f"{b}.ssm_{name}_b.weight", g.head_dim, n_inner)
    for name in whole.split():
        m.add(f"{b}.ssm_{name}.weight", g.n_embd, n_inner)
    m.add(f"{b}.ssm_beta.weight", g.n_embd, g.n_head)
    m.add(f"{b}.ssm_a", *((g.n_head,) if is_flat else (1, g.n_head)), kind="decay")
    m.bias(f"{b}.ssm_dt", n_inner)
    m.norm(f"{b}.ssm_norm", g.head_dim)
    m.add(f"{b}.attn_output.weight", n_inner, g.n_embd)


def mamba2_keys(m: Layout, n_inner: int, n_state: int, n_head: int) -> None:
    """Set the keys of Mamba-2."""
    m.key(
        ssm__conv_kernel=_N_CONV,
        ssm__inner_size=n_inner,
        ssm__state_size=n_state,
        ssm__time_step_rank=n_head,
        ssm__group_count=1,
    )


def mamba2(m: Layout, b: str, n_inner: int, n_state: int, n_head: int) -> None:
    """Add Mamba-2 without its norm."""
    n_mixed = n_inner + 2 * n_state
    m.add(f"{b}.ssm_in.weight", m.g.n_embd, n_inner + n_mixed + n_head)
    m.add(f"{b}.ssm_conv1d.weight", _N_CONV, n_mixed, kind="router")
    m.bias(f"{b}.ssm_conv1d", n_mixed)
    m.bias(f"{b}.ssm_dt", n_head)
    m.add(f"{b}.ssm_a", 1, n_head, kind="decay")
    m.add(f"{b}.ssm_d", 1, n_head, kind="norm")
    m.add(f"{b}.ssm_norm.weight", n_inner, 1, kind="norm")
    m.add(f"{b}.ssm_out.weight", n_inner, m.g.n_embd)
