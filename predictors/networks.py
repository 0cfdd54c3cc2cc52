"""The networks of backend/native/core/predict/learned.h in torch, for all layers at once.

Networks of equal shape are stacked: a layer's network is a slice of every parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from backend.weights.file import PredictorSizes, Storage
from backend.weights.four_bits import GROUP, group_of
from predictors.rounding import rounded
from predictors.routings import Routings

ROUNDED = ("w1", "w1_last", "w2", "skip", "rows", "before", "hidden_before")
"""Arrays stored in four bits if their rows divide into groups, otherwise in bytes."""
BYTES_OF_VALUE = 0.5 + 2 / GROUP
_SMALL: dict[str, Storage] = dict.fromkeys(("b1", "b2", "router"), "f2")

LEAST_BYTES = 690_000
"""Minimum size budget of a predictor, for models with few dense weights."""
SHARE_OF_DENSE = 0.03
MOST_PRODUCTS = 600_000
"""Maximum multiplications of one network, most of them of bytes. They take 43 us on one core when
the weights of all layers exceed its caches."""
PARAMETERS_OF_PAPER = 2_000_000
"""Of one layer's predictor in ProMoE, section 6.3."""
FEW_PRODUCTS = 100_000
"""Up to this many, floats are as fast as bytes and avoid one more rounding."""


@dataclass(frozen=True)
class Design:
    """Widths of the networks. strides: 1, 2, or both."""

    strides: tuple[int, ...]
    n_hidden: int
    full_skip: bool
    """The linear term has its own matrix; otherwise it is the later layer's router, scaled."""
    token_rank: int
    """Width of a token id's row. 0: the first layers are not forecast from the token."""
    plain: bool = False
    """Only two matrices with biases, from random values: no linear term, no previous experts."""

    @classmethod
    def of_paper(cls, sizes: PredictorSizes, strides: tuple[int, ...]) -> Design:
        """Return ProMoE's predictor: two layers, about 2 M parameters (ProMoE, section 6.3)."""
        n_hidden = PARAMETERS_OF_PAPER // (sizes.n_embd + sizes.n_expert + 1)
        return cls(strides, n_hidden // 16 * 16, full_skip=False, token_rank=0, plain=True)

    @classmethod
    def fitting(
        cls, sizes: PredictorSizes, strides: tuple[int, ...], dense_bytes: int, n_vocab: int
    ) -> Design:
        """Return the widest design within 3 % of the dense weights' bytes and 60 us per layer."""
        n_value = int(max(LEAST_BYTES, SHARE_OF_DENSE * dense_bytes) / BYTES_OF_VALUE)
        n_network = sizes.n_layer * len(strides)
        skip = sizes.n_expert * sizes.n_embd
        full_skip = skip * n_network <= n_value // 2 and skip <= MOST_PRODUCTS // 2
        rank = max((r for r in (16, 32, 64) if n_vocab * r <= n_value // 3), default=0)
        rest = n_value - n_vocab * rank - (skip * n_network if full_skip else 0)
        rest -= n_network * sizes.n_expert**2
        a_unit = sizes.n_embd + 2 * sizes.n_expert
        n_all = n_network + (max(strides) if rank else 0)
        by_bytes = rest // (n_all * a_unit)
        by_time = (MOST_PRODUCTS - skip) // (sizes.n_embd + sizes.n_expert)
        n_hidden = max(16, min(int(by_bytes), int(by_time), 512) // 16 * 16)
        return cls(strides, n_hidden, full_skip, rank)

    def in_bytes(self, sizes: PredictorSizes) -> bool:
        """Return whether the engine should multiply bytes instead of floats (learned.h)."""
        return sizes.n_embd * (self.n_hidden + sizes.n_expert) > FEW_PRODUCTS


def storage(arrays: Mapping[str, np.ndarray]) -> dict[str, Storage]:
    """Return the type in which the file stores each array."""
    kept: dict[str, Storage] = dict(_SMALL)
    for name, array in arrays.items():
        if name.rsplit(".", 1)[-1] in ROUNDED:
            kept[name] = "q4" if group_of(array.shape[-1]) else "i1"
    return kept


def _zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


def _random(*shape: int, scale: float) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * scale)


class Rounding(nn.Module):
    """Base of both kinds of networks: gives weights in full or rounded as the file stores them."""

    def __init__(self) -> None:
        super().__init__()
        self.is_rounded = False

    def kept(self, values: Tensor, dim: int = -1) -> Tensor:
        """Return the values, rounded if `is_rounded`. The file's rows are along `dim`."""
        return rounded(values, dim) if self.is_rounded else values

    def kept_parameters(self) -> Iterator[tuple[nn.Parameter, int]]:
        """Yield the parameters stored in four bits, each with the dimension of its rows."""
        for name, parameter in self.named_parameters(recurse=False):
            if name in ROUNDED:
                yield parameter, 1 if name in ("w1", "w1_last", "w2", "skip") else -1


class Networks(Rounding):
    """Networks of every layer and stride, from the layer's input to the later layer's scores."""

    def __init__(self, sizes: PredictorSizes, design: Design, routers: Tensor | None) -> None:
        """Initialise the linear term with routers [L, E, n_embd] if they are given."""
        super().__init__()
        self.sizes = sizes
        pairs = [(layer, s) for s in design.strides for layer in range(sizes.n_layer)]
        n_layer = sizes.n_layer
        # The engine predicts at most one pass ahead (layer_after in ranking.h).
        self.pairs = [(a, s) for a, s in pairs if a + s < n_layer or a + s - n_layer <= a]
        self.sources = [layer for layer, _ in self.pairs]
        self.targets = [(layer + stride) % n_layer for layer, stride in self.pairs]
        n, h, e, d = len(self.pairs), design.n_hidden, sizes.n_expert, sizes.n_embd
        self.w1 = _random(n, d, h, scale=d**-0.5)
        self.b1, self.w2, self.b2 = _zeros(n, 1, h), _zeros(n, h, e), _zeros(n, 1, e)
        self.hidden_before: nn.Parameter | None = None
        self.before: nn.Parameter | None = None
        self.router: nn.Parameter | None = None
        self.skip: nn.Parameter | None = None
        self.routers: Tensor
        if design.plain:
            self.w2 = _random(n, h, e, scale=h**-0.5)
            return
        self.hidden_before, self.before = _zeros(n, e, h), _zeros(n, e, e)
        of_target = None if routers is None else routers[self.targets].transpose(1, 2).clone()
        if design.full_skip:
            self.skip = _zeros(n, d, e) if of_target is None else nn.Parameter(of_target)
        elif of_target is not None:
            self.router = nn.Parameter(torch.ones(n, 1, e))
            self.register_buffer("routers", of_target, persistent=False)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """Map x [n, batch, n_embd] and before [n, batch, E] to scores [n, batch, E]."""
        kept = self.kept
        hidden = torch.baddbmm(self.b1, x, kept(self.w1, 1))
        if self.hidden_before is not None:
            hidden = hidden + before @ kept(self.hidden_before)
        scores = torch.baddbmm(self.b2, torch.relu(hidden), kept(self.w2, 1))
        if self.before is not None:
            scores = scores + before @ kept(self.before)
        if self.skip is not None:
            return scores + x @ kept(self.skip, 1)
        return scores if self.router is None else scores + (x @ self.routers) * self.router

    def batch(self, data: Routings, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return (x, before, wanted, ids, counts) of some tokens. counts [n, batch]: 1 if known."""
        n_layer = self.sizes.n_layer
        after, prior = (rows + 1).clamp(max=data.n - 1), (rows - 1).clamp(min=0)
        is_followed = (data.follows[after] & (after > rows)).float()
        has_prior = data.follows[rows].unsqueeze(1).float()
        chosen = [data.chosen(layer, rows) for layer in range(n_layer)]
        prior_chosen = [data.chosen(layer, prior) * has_prior for layer in range(n_layer)]
        before, wanted, ids, counts = [], [], [], []
        for (source, stride), target in zip(self.pairs, self.targets, strict=True):
            wraps = source + stride >= n_layer
            at = after if wraps else rows
            before.append(chosen[target] if wraps else prior_chosen[target])
            wanted.append(data.wanted[target, at])
            ids.append(data.ids[target, at])
            known = data.routed[source, rows] & data.routed[target, at]
            counts.append(known.float() * is_followed if wraps else known.float())
        x = data.inputs[:, rows].float()[self.sources]
        stacked = (torch.stack(parts) for parts in (before, wanted, ids, counts))
        return (x, *stacked)  # type: ignore[return-value]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by their names in learned.h."""
        found: dict[str, np.ndarray] = {}
        for i, (layer, stride) in enumerate(self.pairs):
            values = {
                "w1": self.w1[i].T, "b1": self.b1[i, 0], "w2": self.w2[i].T, "b2": self.b2[i, 0],
            }  # fmt: skip
            if self.hidden_before is not None and self.before is not None:
                values |= {"hidden_before": self.hidden_before[i], "before": self.before[i]}
            if self.skip is not None:
                values["skip"] = self.skip[i].T
            elif self.router is not None:
                values["router"] = self.router[i, 0]
            found |= _named(f"l{layer}.s{stride}.", values)
        return found


class TokenNetworks(Rounding):
    """Networks of the first layers: from the token's id and the previous token's last input."""

    def __init__(self, sizes: PredictorSizes, design: Design, rows: Tensor) -> None:
        """Initialise the token rows with `rows` [n_vocab, token_rank]."""
        super().__init__()
        self.sizes = sizes
        n, h, e = max(design.strides), design.n_hidden, sizes.n_expert
        n = min(n, sizes.n_layer)
        rank, d = design.token_rank, sizes.n_embd
        self.rows = nn.Parameter(rows)
        self.w1 = _random(n, rank, h, scale=rank**-0.5)
        self.w1_last = _zeros(n, d, h)
        self.b1, self.w2, self.b2 = _zeros(n, 1, h), _zeros(n, h, e), _zeros(n, 1, e)
        self.skip, self.hidden_before, self.before = (
            _zeros(n, rank, e), _zeros(n, e, h), _zeros(n, e, e),
        )  # fmt: skip

    def forward(self, tokens: Tensor, last: Tensor, before: Tensor) -> Tensor:
        """Map tokens [batch], last [batch, n_embd] and before [n, batch, E] to [n, batch, E]."""
        kept = self.kept
        x = kept(self.rows[tokens]).expand(len(self.w1), -1, -1)
        hidden = torch.baddbmm(self.b1, x, kept(self.w1, 1)) + last @ kept(self.w1_last, 1)
        hidden = torch.relu(hidden + before @ kept(self.hidden_before))
        scores = torch.baddbmm(self.b2, hidden, kept(self.w2, 1))
        return scores + x @ kept(self.skip, 1) + before @ kept(self.before)

    def batch(
        self, data: Routings, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return (tokens, last, before, wanted, ids, counts) of some tokens."""
        n = len(self.w1)
        prior = (rows - 1).clamp(min=0)
        has_prior = data.follows[rows].unsqueeze(1).float()
        known = data.routed[-1, prior].unsqueeze(1).float() * has_prior
        last = data.inputs[-1, prior].float() * known
        before = torch.stack([data.chosen(layer, prior) * has_prior for layer in range(n)])
        tokens = data.tokens[rows]
        is_known = (tokens >= 0) & (tokens < len(self.rows))
        counts = data.routed[:n, rows].float() * is_known.float()
        tokens = tokens.clamp(0, len(self.rows) - 1)
        return tokens, last, before, data.wanted[:n, rows], data.ids[:n, rows], counts

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by their names in learned.h."""
        found = _named("token.", {"rows": self.rows})
        for i in range(len(self.w1)):
            values = {
                "w1": self.w1[i].T, "w1_last": self.w1_last[i].T, "b1": self.b1[i, 0],
                "w2": self.w2[i].T, "b2": self.b2[i, 0], "skip": self.skip[i].T,
                "hidden_before": self.hidden_before[i], "before": self.before[i],
            }  # fmt: skip
            found |= _named(f"t{i}.", values)
        return found


def _named(prefix: str, values: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {
        prefix + name: np.ascontiguousarray(value.detach().numpy(), np.float32)
        for name, value in values.items()
    }
