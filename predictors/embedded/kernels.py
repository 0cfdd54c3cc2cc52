"""Hand-written forward and backward passes of the three costly parts: experts, attention, loss.

On a CPU, autograd's generic graph spends more time on allocation and memory passes than on the
products. Here tokens are sorted by expert, so that every product is one large matrix
multiplication. The loss computes its gradient in the forward pass, so that a batch's logits never
exist together. torch.compile fuses elementwise passes if there is a C++ compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

LOSS_ROWS = 2048  # rows of logits in memory at once
GROUP_ROWS = 64  # the row count of an expert's product is a multiple of this


class Fusible:
    """A function that runs unchanged, or fused by torch.compile inside `with fusing():`.

    Each shape is compiled apart. Only the training loop, which has few shapes, uses fusing.
    """

    enabled = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        self.compiled: Callable[..., Any] | None = None
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> Any:
        """Run the function, fused if enabled."""
        if not Fusible.enabled:
            return self.plain(*args)
        if self.compiled is None:
            import torch._inductor.config as inductor  # heavy; only fusing needs it

            inductor.cpp.dynamic_threads = True  # the number of threads may change between calls
            self.compiled = torch.compile(self.plain, dynamic=False, fullgraph=True)
        return self.compiled(*args)


@contextmanager
def fusing(enabled: bool = True) -> Iterator[None]:
    """Fuse elementwise passes in the context. Needs a C++ compiler, and a minute the first time."""
    before, Fusible.enabled = Fusible.enabled, enabled
    try:
        yield
    finally:
        Fusible.enabled = before


@Fusible
def swiglu(gate_up: Tensor, weight: Tensor) -> Tensor:
    """Return silu(gate) * up * weight; [n, 2f], [n, 1] -> [n, f]."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (torch.sigmoid(gate) * gate * up * weight).to(gate_up.dtype)


@Fusible
def swiglu_backward(gate_up: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the recomputed hidden row, the gradient of gate_up and the gradient of weight."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    grad = grad.float()
    sigmoid = torch.sigmoid(gate)
    silu = sigmoid * gate
    hidden = silu * up
    scaled = grad * weight
    grad_gate = scaled * up * (sigmoid + silu * (1 - sigmoid))
    both = torch.cat([grad_gate, scaled * silu], dim=-1).to(gate_up.dtype)
    return (hidden * weight).to(gate_up.dtype), both, (grad * hidden).sum(-1, keepdim=True)


@Fusible
def loss_rows(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted sum of some rows' cross entropies, and its gradient for the logits."""
    wide = logits.float()
    log_z = torch.logsumexp(wide, dim=-1)
    picked = wide.gather(1, target[:, None])[:, 0]
    column = torch.arange(logits.shape[1], device=logits.device)
    hit = (column[None, :] == target[:, None]).float()
    grad = (torch.exp(wide - log_z[:, None]) - hit) * weight[:, None]
    return ((log_z - picked) * weight).sum(), grad.to(logits.dtype)


def group_rows(chosen: Tensor, weight: Tensor, n_expert: int) -> tuple[Any, Tensor, Tensor, Tensor]:
    """Group (token, expert) pairs by expert, and pad each group to `GROUP_ROWS`.

    Return the groups' bounds, each row's token and weight [rows, 1], and each pair's row. Padding
    has token 0 and weight 0, so it adds nothing to values or gradients. Without padding nearly
    every product has a new shape, and oneDNN builds a kernel for each, which took longer than the
    products. The number of rows depends on the shapes only.
    """
    _n_token, n_used = chosen.shape
    flat = chosen.reshape(-1).cpu().numpy()
    # A stable sort of bytes is a radix sort in numpy, ten times faster than torch's.
    order = np.argsort(flat.astype(np.uint8), kind="stable")
    count = np.bincount(flat, minlength=n_expert)
    padded = -(-count // GROUP_ROWS) * GROUP_ROWS
    bounds = np.concatenate([[0], np.cumsum(padded)])
    shift = bounds[:-1] - (np.cumsum(count) - count)
    place_of_sorted = np.arange(order.size) + np.repeat(shift, count)
    n_row = order.size + n_expert * GROUP_ROWS
    token = np.zeros(n_row, dtype=np.int64)
    token[place_of_sorted] = order // n_used
    place = np.empty(order.size, dtype=np.int64)
    place[order] = place_of_sorted
    place_tensor = torch.from_numpy(place).to(weight.device)
    row_weight = torch.zeros(n_row, 1, device=weight.device)
    row_weight[place_tensor, 0] = weight.detach().reshape(-1)
    return bounds, torch.from_numpy(token).to(weight.device), row_weight, place_tensor


class _Experts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, chosen: Tensor
    ) -> Tensor:
        n_token, n_used = chosen.shape
        n_expert = gate_up.shape[0]
        bounds, token, row_weight, place = group_rows(chosen, weight, n_expert)
        rows = x.index_select(0, token)
        mid = x.new_empty(rows.shape[0], gate_up.shape[1])
        out = torch.empty_like(rows)
        for e in range(n_expert):
            span = slice(bounds[e], bounds[e + 1])
            torch.mm(rows[span], gate_up[e].t(), out=mid[span])
        hidden = swiglu(mid, row_weight)
        for e in range(n_expert):
            span = slice(bounds[e], bounds[e + 1])
            torch.mm(hidden[span], down[e].t(), out=out[span])
        ctx.save_for_backward(x, gate_up, down, mid, row_weight, token, place)
        ctx.bounds, ctx.n_used = bounds, n_used
        return out.index_select(0, place).view(n_token, n_used, -1).sum(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, gate_up, down, mid, row_weight, token, place = ctx.saved_tensors
        bounds, n_expert = ctx.bounds, gate_up.shape[0]
        grad_out = grads[0].contiguous().index_select(0, token)
        rows = x.index_select(0, token)
        grad_hidden = mid.new_empty(mid.shape[0], down.shape[2])
        for e in range(n_expert):
            span = slice(bounds[e], bounds[e + 1])
            torch.mm(grad_out[span], down[e], out=grad_hidden[span])
        hidden, grad_mid, grad_weight = swiglu_backward(mid, row_weight, grad_hidden)
        grad_gate_up, grad_down = torch.empty_like(gate_up), torch.empty_like(down)
        grad_rows = torch.empty_like(rows)
        for e in range(n_expert):
            span = slice(bounds[e], bounds[e + 1])
            torch.mm(grad_out[span].t(), hidden[span], out=grad_down[e])
            torch.mm(grad_mid[span].t(), rows[span], out=grad_gate_up[e])
            torch.mm(grad_mid[span], gate_up[e], out=grad_rows[span])
        grad_x = grad_rows.index_select(0, place).view(x.shape[0], ctx.n_used, -1).sum(1)
        grad_w = grad_weight[:, 0].index_select(0, place).view(x.shape[0], ctx.n_used)
        return grad_x, grad_gate_up, grad_down, grad_w, None


def experts(x: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
    """Return the sum over the chosen experts of weight * down(silu(gate(x)) * up(x)).

    Shapes: x [n, d]; gate_up [e, 2f, d], gate first; down [e, d, f]; weight and chosen [n, k].
    """
    return cast(Tensor, _Experts.apply(x, gate_up, down, weight, chosen))  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n_batch, n_kv, n_rep_row, _ = q.shape
        n_row = k.shape[2]
        scale = q.shape[3] ** -0.5
        mask = torch.full((n_row, n_row), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
        mask = mask.repeat(n_rep_row // n_row, 1)
        out = torch.empty_like(q)
        prob = q.new_empty(n_batch, n_kv, n_rep_row, n_row)
        for b in range(n_batch):  # one sequence at a time stays in the cache
            score = torch.baddbmm(mask, q[b], k[b].transpose(1, 2), alpha=scale)
            torch.softmax(score, dim=-1, out=prob[b])
            torch.bmm(prob[b], v[b], out=out[b])
        ctx.save_for_backward(q, k, v, prob)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        q, k, v, prob = ctx.saved_tensors
        grad = grads[0].contiguous()
        scale = q.shape[3] ** -0.5
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for b in range(q.shape[0]):
            torch.bmm(prob[b].transpose(1, 2), grad[b], out=grad_v[b])
            grad_prob = torch.bmm(grad[b], v[b].transpose(1, 2))
            score = torch._softmax_backward_data(grad_prob, prob[b], -1, q.dtype)
            score.mul_(scale)
            torch.bmm(score, k[b], out=grad_q[b])
            torch.bmm(score.transpose(1, 2), q[b], out=grad_k[b])
        return grad_q, grad_k, grad_v


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention of grouped queries.

    Shapes: k and v [batch, kv heads, rows, dim]; q [batch, kv heads, repeats * rows, dim], where
    repeats is the number of query heads for each kv head.
    """
    return cast(Tensor, _Attention.apply(q, k, v))  # type: ignore[no-untyped-call]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, head: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        grad_x = torch.empty_like(x)
        grad_head = torch.zeros_like(head, dtype=torch.float32)
        total = torch.zeros((), dtype=torch.float32, device=x.device)
        weight = weight / weight.sum().clamp(min=1)
        for start in range(0, x.shape[0], LOSS_ROWS):
            span = slice(start, start + LOSS_ROWS)
            loss, grad = loss_rows(x[span] @ head.t(), target[span], weight[span])
            total += loss
            torch.mm(grad, head, out=grad_x[span])
            grad_head += grad.t() @ x[span]
        ctx.save_for_backward(grad_x, grad_head.to(head.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, grad_head = ctx.saved_tensors
        return (
            grad_x * grads[0].to(grad_x.dtype),
            grad_head * grads[0].to(grad_head.dtype),
            None,
            None,
        )


def loss(x: Tensor, head: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean cross entropy in nats; x [n, d], head [vocab, d], others [n]."""
    return cast(Tensor, _Loss.apply(x, head, target, weight))  # type: ignore[no-untyped-call]
