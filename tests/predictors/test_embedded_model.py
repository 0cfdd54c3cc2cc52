"""The hand-written passes against autograd; properties of optimiser and schedule."""

# ruff: noqa: E402 (what needs torch is imported after asking for torch)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F

from predictors.embedded import kernels
from predictors.embedded.config import ModelConfig, TrainConfig
from predictors.embedded.model import Model
from predictors.embedded.optim import Optimiser, orthogonalise

TINY = ModelConfig(
    n_vocab=320, n_layer=2, n_embd=64, n_head=4, n_head_kv=2, head_dim=16, n_expert=8,
    n_expert_used=2, n_ff_exp=32, n_ctx=64,
)  # fmt: skip


def gradients(output: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of a fixed random projection of the output."""
    torch.manual_seed(5)
    return list(torch.autograd.grad((output * torch.randn(output.shape)).sum(), inputs))


def leaf(*shape: int) -> torch.Tensor:
    """Return a random tensor that requires a gradient."""
    return torch.randn(shape, requires_grad=True)


def test_experts_agree_with_a_loop_over_tokens() -> None:
    torch.manual_seed(1)
    x, gate_up, down = leaf(7, 16), leaf(5, 24, 16), leaf(5, 16, 12)
    weight = leaf(7, 2)
    chosen = torch.stack([torch.randperm(4)[:2] for _ in range(7)])  # expert 4 gets no token
    rows = []
    for t in range(7):
        row = torch.zeros(16)
        for k in range(2):
            gate, up = (gate_up[chosen[t, k]] @ x[t]).chunk(2)
            row = row + weight[t, k] * (down[chosen[t, k]] @ (F.silu(gate) * up))
        rows.append(row)
    expected, actual = torch.stack(rows), kernels.experts(x, gate_up, down, weight, chosen)
    inputs = [x, gate_up, down, weight]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    for a, e in zip(gradients(actual, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


def test_attention_agrees_with_torch() -> None:
    torch.manual_seed(2)
    q, k, v = leaf(2, 4, 9, 8), leaf(2, 2, 9, 8), leaf(2, 2, 9, 8)
    expected = F.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True
    )
    actual = kernels.causal_attention(q.reshape(2, 2, 18, 8), k, v).reshape(2, 4, 9, 8)
    torch.testing.assert_close(actual, expected)
    for a, e in zip(gradients(actual, [q, k, v]), gradients(expected, [q, k, v]), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


def test_loss_agrees_with_cross_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LOSS_ROWS", 4)
    torch.manual_seed(3)
    x, head, target = leaf(10, 6), leaf(11, 6), torch.randint(0, 11, (10,))
    weight = torch.rand(10) * 3
    losses = F.cross_entropy(x @ head.t(), target, reduction="none")
    expected = (losses * weight).sum() / weight.sum()
    actual = kernels.loss(x, head, target, weight)
    torch.testing.assert_close(actual, expected)
    for a, e in zip(gradients(actual, [x, head]), gradients(expected, [x, head]), strict=True):
        torch.testing.assert_close(a, e)


def test_a_token_does_not_see_its_future() -> None:
    model = Model(TINY, seed=4)
    tokens = torch.randint(0, TINY.n_vocab, (1, 20))
    changed = tokens.clone()
    changed[0, 12:] = 7
    before, after = model.logits(tokens), model.logits(changed)
    torch.testing.assert_close(before[0, :12], after[0, :12])
    assert not torch.allclose(before[0, 12:], after[0, 12:], atol=1e-3)


def test_counts_and_balance_describe_the_routing() -> None:
    model = Model(TINY, seed=4)
    _, balance, counts = model(torch.randint(0, TINY.n_vocab, (2, 16)))
    assert counts.shape == (TINY.n_layer, TINY.n_expert)
    assert counts.sum(1).tolist() == [2 * 16 * TINY.n_expert_used] * TINY.n_layer
    assert balance.item() >= 0.99  # 1 if the routing is even, more otherwise


def test_parameter_counts_are_those_of_the_model() -> None:
    assert TINY.n_parameter() == sum(p.numel() for p in Model(TINY).parameters())
    idle = 3 * (TINY.n_expert - TINY.n_expert_used) * TINY.n_embd * TINY.n_ff_exp * TINY.n_layer
    assert TINY.n_active_parameter() == TINY.n_parameter() - idle


@pytest.mark.parametrize("shape", [(3, 16, 48), (3, 48, 16), (1, 32, 32)])
def test_orthogonalise_evens_the_singular_values(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(6)
    stack = torch.randn(shape) * 100
    values = torch.linalg.svdvals(orthogonalise(stack, torch.float32))
    assert values.min() > 0.3 and values.max() < 1.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_few_steps_learn_a_repeated_row(dtype: torch.dtype) -> None:
    model = Model(TINY, dtype, seed=7)
    optimiser = Optimiser(model, TrainConfig())
    row = torch.randint(0, TINY.n_vocab, (4, 33))
    losses = []
    for _ in range(12):
        loss, balance, _ = model.loss(row[:, :-1], row[:, 1:], torch.ones(4, 32))
        (loss + 0.02 * balance).backward()
        optimiser.step(1.0)
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1.0
