"""Routers are balanced on text by a direction that acts as a bias. Little else changes."""

# ruff: noqa: E402 (what needs torch is imported after asking for torch)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from predictors.embedded.balance import MAX_STEPS, constant_direction, even_out, shares
from predictors.embedded.config import ModelConfig
from predictors.embedded.model import Model

SHAPE = ModelConfig(
    n_vocab=300, n_layer=2, n_embd=64, n_head=2, n_head_kv=1, head_dim=32, n_expert=8,
    n_expert_used=2, n_ff_exp=32, n_ctx=64,
)  # fmt: skip


def rows_with_a_mean() -> torch.Tensor:
    """Return rows around a common mean, like the outputs of a norm with weights."""
    generator = torch.manual_seed(1)
    return torch.randn(4000, 64, generator=generator) + torch.linspace(-2, 2, 64)


def test_the_direction_adds_the_same_to_every_row() -> None:
    rows = rows_with_a_mean()
    added = rows @ constant_direction(rows)
    assert added.mean().item() == pytest.approx(1.0, abs=1e-3)
    assert added.std() < 0.2


def test_shares_are_relative_to_an_even_one() -> None:
    router = torch.eye(8, 64)
    rows = torch.eye(64)[[0, 1, 2, 3]] * 2 + torch.eye(64)[[1, 2, 3, 0]]
    assert shares(rows, router, 2).tolist() == [2.0] * 4 + [0.0] * 4


def test_every_expert_gets_its_least_share() -> None:
    model = Model(SHAPE, torch.float32, seed=3)
    generator = torch.manual_seed(4)
    tokens = torch.randint(0, SHAPE.n_vocab, (16, 64), generator=generator)
    with torch.no_grad():
        for layer in model.layers:
            layer.ffn_norm += torch.linspace(0, 2, 64)
            layer.ffn_gate_inp.mul_(10)
    before = model(tokens)[2]
    steps = even_out(model, tokens, least=0.8, last=0.8)
    after = model(tokens)[2]
    even = tokens.numel() * SHAPE.n_expert_used / SHAPE.n_expert
    assert before.min() < 0.6 * even and 0 < max(steps) < MAX_STEPS
    assert after.min() >= 0.79 * even
