"""Describe a tiny model: its sizes, its metadata and the shapes of its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SIGMOID, SQRT_SOFTPLUS = 2, 4  # enum llama_expert_gating_func_type

Kind = Literal["expert", "matrix", "router", "embedding", "norm", "bias", "decay", "hole", "ids"]
"""hole: zeros that take no room on the drive. ids: in each row, different numbers of experts."""
Value = bool | int | float | str | list[int] | list[bool] | list[float] | tuple[int, ...]
"""A tuple is an array of uint64."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a model; lengths are in values, not bytes."""

    n_layer: int = 2
    n_nextn: int = 0
    """Layers for multi-token prediction behind them, if the architecture can have some."""
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    n_rope: int = 16
    """Values that are rotated of a key, where attention is latent."""
    n_ff: int = 64
    n_ff_exp: int = 64
    n_ff_shexp: int = 64
    n_expert: int = 8
    n_expert_used: int = 2
    by_layer: tuple[tuple[int, int], ...] = ()
    """(n_expert_used, n_ff_exp) of each layer with experts, if they may differ."""
    n_ctx: int = 1024
    n_vocab: int = 0
    embedding_std: float = 1.0
    """A larger value makes a token's embedding decide its experts in deeper layers too."""
    embedding_shared: float = 0.0
    """Share of the embeddings' variance that is common to all tokens. A larger value gives a token
    more experts in common with previous tokens."""
    fused: bool = False
    """Write one gate_up tensor per layer instead of gate and up, if the architecture can."""
    tied: bool = False
    """The output matrix is the token embedding."""
    n_dense: int = 1
    """Layers without experts before those with some, in architectures that have such."""
    n_window: int = 16
    """Tokens that a layer with a window sees."""
    period: int = 2
    """One of as many layers sees all tokens, or has attention among recurrent layers."""
    n_head_windowed: int = 0
    """Heads of layers with a window, where they differ; 0: twice those of others."""
    head_dim_whole: int = 0
    """Length of a head that sees all tokens, in gemma4; 0: that of others."""
    n_head_kv_whole: int = 0
    """Heads of keys that all tokens are seen by, in gemma4; 0: as many as others."""
    n_state: int = 32
    """Length of a key of a gated delta net."""
    n_k_head: int = 2
    n_v_head: int = 4
    """Heads of keys and of values of a gated delta net."""
    n_table_row: int = 0
    """Rows of a table that is read by rows, as a hole in the file; 0: few, with values."""
    expert_scales: bool = False
    """Add the optional per-expert scale tensors (ffn_gate_exps.scale and so on)."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor. shape is in ggml order: the row length ne[0] comes first."""

    name: str
    shape: tuple[int, ...]
    kind: Kind


@dataclass
class Layout:
    """Collect the metadata and the tensors of one model."""

    arch: str
    g: Geometry
    keys: dict[str, Value] = field(default_factory=dict)
    tensors: list[TensorSpec] = field(default_factory=list)

    def key(self, **values: Value) -> None:
        """Set keys below the architecture's prefix; a double underscore stands for a dot."""
        for name, value in values.items():
            self.keys[f"{self.arch}.{name.replace('__', '.')}"] = value

    def add(self, name: str, *shape: int, kind: Kind = "matrix") -> None:
        self.tensors.append(TensorSpec(name, shape, kind))

    def norm(self, name: str, n: int, *, bias: bool = False) -> None:
        self.add(f"{name}.weight", n, kind="norm")
        if bias:
            self.add(f"{name}.bias", n, kind="bias")

    def bias(self, name: str, *shape: int) -> None:
        self.add(f"{name}.bias", *shape, kind="bias")

    # Parts that most architectures share:

    def common_keys(self, *, moe: bool = True, layer_norm: bool = False) -> None:
        g = self.g
        self.key(
            context_length=g.n_ctx,
            embedding_length=g.n_embd,
            block_count=g.n_layer + g.n_nextn,
            feed_forward_length=g.n_ff,
            vocab_size=g.n_vocab,
            attention__head_count=g.n_head,
            attention__head_count_kv=g.n_head_kv,
            attention__key_length=g.head_dim,
            attention__value_length=g.head_dim,
            rope__dimension_count=g.head_dim,
            rope__freq_base=10000.0,
        )
        if layer_norm:
            self.key(attention__layer_norm_epsilon=1e-5)
        else:
            self.key(attention__layer_norm_rms_epsilon=1e-5)
        if g.n_nextn:
            self.key(nextn_predict_layers=g.n_nextn)
        if moe:
            self.key(expert_count=g.n_expert, expert_used_count=g.n_expert_used)

    def mixture_keys(self, scale: float, *, n_shared: int = 1) -> None:
        """Set the keys of routing by sigmoids from the second layer on, with shared experts."""
        self.key(
            leading_dense_block_count=self.g.n_dense,
            expert_feed_forward_length=self.g.n_ff_exp,
            expert_shared_count=n_shared,
            expert_weights_scale=scale,
            expert_weights_norm=True,
            expert_gating_func=SIGMOID,
        )

    def positions_in_sections(self) -> None:
        """Set the key of positions in time, height and width (M-RoPE)."""
        half = self.g.head_dim // 2
        self.key(rope__dimension_sections=[half - 2 * (half // 4), half // 4, half // 4, 0])

    def ends(self, *, bias: bool = False, norm_name: str = "output_norm") -> None:
        """Add token embedding, final norm and output matrix."""
        g = self.g
        self.add("token_embd.weight", g.n_embd, g.n_vocab, kind="embedding")
        self.norm(norm_name, g.n_embd, bias=bias)
        if not g.tied:
            self.add("output.weight", g.n_embd, g.n_vocab)
        if bias:
            self.bias("output", g.n_vocab)

    def attention(
        self,
        layer: int,
        *,
        qk_norm: Literal["", "head", "full"] = "",
        qkv_bias: bool = False,
        out_bias: bool = False,
        joined: bool = False,
        n_q_factor: int = 1,
        norm_bias: bool = False,
        normed: bool = True,
        n_head: int = 0,
        n_head_kv: int = 0,
        n_value: int = 0,
        head_dim: int = 0,
    ) -> None:
        """Add attn_norm, the q, k, v and output matrices, and optional norms and biases.

        normed: whether there is attn_norm. n_head, n_head_kv, n_value, head_dim: of this layer, if
        they differ from the model's; n_value is the length of a head's values.
        """
        g, b = self.g, f"blk.{layer}"
        n_head, n_head_kv = n_head or g.n_head, n_head_kv or g.n_head_kv
        head_dim = head_dim or g.head_dim
        n_q, n_kv = n_head * head_dim, n_head_kv * head_dim
        n_v = n_head_kv * (n_value or head_dim)
        if normed:
            self.norm(f"{b}.attn_norm", g.n_embd, bias=norm_bias)
        if joined:
            self.add(f"{b}.attn_qkv.weight", g.n_embd, n_q + n_kv + n_v)
        else:
            for name, n in (("q", n_q * n_q_factor), ("k", n_kv), ("v", n_v)):
                self.add(f"{b}.attn_{name}.weight", g.n_embd, n)
                if qkv_bias:
                    self.bias(f"{b}.attn_{name}", n)
        self.add(f"{b}.attn_output.weight", n_head * (n_value or head_dim), g.n_embd)
        if out_bias:
            self.bias(f"{b}.attn_output", g.n_embd)
        if qk_norm:
            self.norm(f"{b}.attn_q_norm", head_dim if qk_norm == "head" else n_q)
            self.norm(f"{b}.attn_k_norm", head_dim if qk_norm == "head" else n_kv)

    def nextn(self, layer: int) -> None:
        """Add what joins the last hidden state and a token, if the layer predicts further ones."""
        if layer >= self.g.n_layer:
            b = f"blk.{layer}.nextn"
            self.add(f"{b}.eh_proj.weight", 2 * self.g.n_embd, self.g.n_embd)
            self.norm(f"{b}.enorm", self.g.n_embd)
            self.norm(f"{b}.hnorm", self.g.n_embd)
            self.norm(f"{b}.shared_head_norm", self.g.n_embd)

    def feed_forward(self, layer: int, n_ff: int | None = None, suffix: str = "") -> None:
        """Add a dense gate, up and down. The suffix "_shexp" makes them a shared expert."""
        g, b, n = self.g, f"blk.{layer}", n_ff or self.g.n_ff
        self.add(f"{b}.ffn_gate{suffix}.weight", g.n_embd, n)
        self.add(f"{b}.ffn_up{suffix}.weight", g.n_embd, n)
        self.add(f"{b}.ffn_down{suffix}.weight", n, g.n_embd)

    def mixture(
        self,
        layer: int,
        n_shared: int | None = None,
        *,
        selection_bias: bool = True,
        n_inside: int = 0,
    ) -> None:
        """Add a norm, and a dense feed-forward in the first layers, or experts and a shared one.

        n_shared: hidden values of the shared expert; 0: there is none. n_inside: as for experts.
        """
        self.norm(f"blk.{layer}.ffn_norm", self.g.n_embd)
        if layer < self.g.n_dense:
            self.feed_forward(layer)
            return
        self.experts(layer, selection_bias=selection_bias, n_inside=n_inside)
        if n_shared != 0:
            self.feed_forward(layer, n_shared or self.g.n_ff_exp, "_shexp")

    def gated_shared(self, layer: int) -> None:
        """Add a shared expert with a gate of its own."""
        self.add(f"blk.{layer}.ffn_gate_inp_shexp.weight", self.g.n_embd, kind="router")
        self.feed_forward(layer, self.g.n_ff_shexp, "_shexp")

    def experts(
        self,
        layer: int,
        *,
        selection_bias: bool = False,
        biases: bool = False,
        gated: bool = True,
        n_inside: int = 0,
        n_ff: int = 0,
    ) -> None:
        """Add the router and the routed experts.

        n_inside: values of their input and output. n_ff: of their hidden rows, if not n_ff_exp.
        """
        g, b = self.g, f"blk.{layer}"
        n_ff = n_ff or g.n_ff_exp
        self.add(f"{b}.ffn_gate_inp.weight", g.n_embd, g.n_expert, kind="router")
        if selection_bias:
            self.bias(f"{b}.exp_probs_b", g.n_expert)
        ups = ["gate", "up"] if gated else ["up"]
        n_inside = n_inside or g.n_embd
        shapes = dict.fromkeys(ups, (n_inside, n_ff))
        if g.fused:
            shapes = {"gate_up": (n_inside, 2 * n_ff)}
        shapes["down"] = (n_ff, n_inside)
        for name, (n_in, n_out) in shapes.items():
            stem = f"{b}.ffn_{name}_exps"
            self.add(f"{stem}.weight", n_in, n_out, g.n_expert, kind="expert")
            if biases:
                self.bias(stem, n_out, g.n_expert)
            if g.expert_scales and name != "gate_up":
                self.add(f"{stem}.scale", g.n_expert, kind="norm")
        if biases:
            self.bias(f"{b}.ffn_gate_inp", g.n_expert)
