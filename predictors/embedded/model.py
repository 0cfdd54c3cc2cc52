"""The decoder, in the arithmetic of llama.cpp's qwen3moe graph.

Differences from a textbook: queries and keys are normalised per head (QK-norm). Rotation pairs
dimension i with i + dim/2 (NEOX). The router takes softmax over all experts, keeps the best k and
renormalises their weights to one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from predictors.embedded import kernels
from predictors.embedded.config import ModelConfig
from predictors.embedded.kernels import Fusible

_BF16_CHECKS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def choose_device() -> tuple[torch.device, torch.dtype]:
    """Return a GPU if there is one, and bfloat16 if it multiplies faster than f32 there."""
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported()
        return torch.device("cuda"), torch.bfloat16 if fast else torch.float32
    # Without AVX512-BF16 or AMX, bf16 products are emulated and slower than f32.
    fast = any(getattr(torch.cpu, name, bool)() for name in _BF16_CHECKS)
    return torch.device("cpu"), torch.bfloat16 if fast else torch.float32


@Fusible
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the root-mean-square normalisation over the last dimension, in f32."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rotation(n_row: int, head_dim: int, freq_base: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary embedding, each [n_row, head_dim / 2]."""
    frequency = freq_base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(n_row, dtype=torch.float64)[:, None] * frequency[None, :]
    return angle.cos().float(), angle.sin().float()


@Fusible
def heads(x: Tensor, weight: Tensor | None, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """Transpose x [batch, rows, heads, dim] to [batch, heads, rows, dim].

    If there is a weight, norm and rotate the heads too.
    """
    if weight is None:
        return x.transpose(1, 2).contiguous()
    low, high = rms_norm.plain(x, weight, eps).chunk(2, dim=-1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    turned = torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
    return turned.to(x.dtype).transpose(1, 2).contiguous()


@Fusible
def norm_and_route(x: Tensor, weight: Tensor, router: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the normalised rows and the router's probabilities, both f32."""
    rows = rms_norm.plain(x, weight, eps)
    return rows, torch.softmax(rows @ router.t(), dim=-1)


class Layer(nn.Module):
    """Attention and a layer of routed experts; norms and router are f32, the rest `dtype`."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        super().__init__()
        c, d = config, config.n_embd
        n_q, n_kv = c.n_head * c.head_dim, c.n_head_kv * c.head_dim
        self.config = config
        self.attn_norm = nn.Parameter(torch.ones(d))
        self.attn_qkv = nn.Parameter(torch.randn(n_q + 2 * n_kv, d).mul_(d**-0.5).to(dtype))
        self.attn_q_norm = nn.Parameter(torch.ones(c.head_dim))
        self.attn_k_norm = nn.Parameter(torch.ones(c.head_dim))
        self.attn_output = nn.Parameter((torch.randn(d, n_q) * n_q**-0.5 * 0.1).to(dtype))
        self.ffn_norm = nn.Parameter(torch.ones(d))
        self.ffn_gate_inp = nn.Parameter(torch.randn(c.n_expert, d) * 0.02)
        up = torch.randn(c.n_expert, 2 * c.n_ff_exp, d) * d**-0.5
        self.ffn_gate_up_exps = nn.Parameter(up.to(dtype))
        down = torch.randn(c.n_expert, d, c.n_ff_exp) * c.n_ff_exp**-0.5 * 0.1
        self.ffn_down_exps = nn.Parameter(down.to(dtype))

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the attention block's contribution to the residual; x [batch, rows, d] f32."""
        c = self.config
        batch, n_row, _ = x.shape
        n_q, n_kv = c.n_head * c.head_dim, c.n_head_kv * c.head_dim
        rows = rms_norm(x, self.attn_norm, c.rms_eps).to(self.attn_qkv.dtype)
        q, k, v = torch.split(F.linear(rows, self.attn_qkv), [n_q, n_kv, n_kv], dim=-1)
        shape = (batch, n_row, -1, c.head_dim)
        q = heads(q.reshape(shape), self.attn_q_norm, cos, sin, c.rms_eps)
        k = heads(k.reshape(shape), self.attn_k_norm, cos, sin, c.rms_eps)
        v = heads.plain(v.reshape(shape), None, cos, sin, c.rms_eps)
        out = kernels.causal_attention(q.view(batch, c.n_head_kv, -1, c.head_dim), k, v)
        out = (
            out.view(batch, c.n_head, n_row, c.head_dim).transpose(1, 2).reshape(batch, n_row, n_q)
        )
        return F.linear(out, self.attn_output)

    def mix(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the experts' contribution, the balance loss and the number of rows per expert."""
        c = self.config
        flat = x.reshape(-1, c.n_embd)
        rows, prob = norm_and_route(flat, self.ffn_norm, self.ffn_gate_inp, c.rms_eps)
        best, chosen = torch.topk(prob, c.n_expert_used, dim=-1)
        weight = best / best.sum(-1, keepdim=True)
        count = torch.bincount(chosen.reshape(-1), minlength=c.n_expert)
        # Switch Transformers (Fedus et al., 2021), section 2.2; 1 when the load is even.
        share = count.float() / chosen.numel()
        balance = c.n_expert * (share * prob.mean(0)).sum()
        rows = rows.to(self.ffn_gate_up_exps.dtype)
        out = kernels.experts(rows, self.ffn_gate_up_exps, self.ffn_down_exps, weight, chosen)
        return out.view_as(x), balance, count


class Model(nn.Module):
    """Map token ids [batch, rows] to final rows. The output matrix is the embedding."""

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype = torch.float32, seed: int = 1
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.config = config
        self.cos: Tensor
        self.sin: Tensor
        self.token_embd = nn.Parameter(
            (torch.randn(config.n_vocab, config.n_embd) * 0.02).to(dtype)
        )
        self.layers = nn.ModuleList(Layer(config, dtype) for _ in range(config.n_layer))
        self.output_norm = nn.Parameter(torch.ones(config.n_embd))
        cos, sin = rotation(config.n_ctx, config.head_dim, config.rope_freq_base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @property
    def device(self) -> torch.device:
        """Return the device of the parameters."""
        return self.token_embd.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the working type of the matrices."""
        return self.token_embd.dtype

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return final rows [batch, rows, d], the mean balance loss and counts [layer, expert]."""
        n_row = tokens.shape[1]
        cos, sin = self.cos[:n_row], self.sin[:n_row]
        x = F.embedding(tokens, self.token_embd).float()
        balances, counts = [], []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            x = x + layer.attend(x, cos, sin)
            mixed, balance, count = layer.mix(x)
            x = x + mixed
            balances.append(balance)
            counts.append(count)
        rows = rms_norm(x, self.output_norm, self.config.rms_eps).to(self.token_embd.dtype)
        return rows, torch.stack(balances).mean(), torch.stack(counts)

    def loss(self, tokens: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean cross entropy in nats, the balance loss and the counts."""
        rows, balance, counts = self(tokens)
        flat = rows.view(-1, self.config.n_embd)
        return (
            kernels.loss(flat, self.token_embd, target.reshape(-1), weight.reshape(-1)),
            balance,
            counts,
        )

    @torch.no_grad()
    def logits(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, rows, vocab] in f32, for tests and samples."""
        rows, _, _ = self(tokens)
        return F.linear(rows, self.token_embd).float()
