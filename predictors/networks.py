"""The networks of backend/native/core/predict/learned.h, with their gradients.

Each array has the shape that it has in the file: a row belongs to one output. All arrays of a model
lie in one vector, network after network, so that optimisers and checkpoints work on vectors. A
network has two layers; backward() has its gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.weights.file import PredictorSizes, Storage
from backend.weights.four_bits import GROUP, group_of
from predictors.rounding import rounded
from predictors.routings import Floats, Routings, Rows, best, hot

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
"""Size of one layer's predictor in ProMoE, section 6.3."""
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


EVALUATED_TOKENS = 4096
"""Tokens evaluated at once, which bounds memory."""

Arrays = dict[str, Floats]


def storage(arrays: Mapping[str, np.ndarray]) -> dict[str, Storage]:
    """Return the type in which the file stores each array."""
    kept: dict[str, Storage] = dict(_SMALL)
    for name, array in arrays.items():
        if name.rsplit(".", 1)[-1] in ROUNDED:
            kept[name] = "q4" if group_of(array.shape[-1]) else "i1"
    return kept


@dataclass(frozen=True)
class Span:
    """The part of a vector in which the arrays of one network lie."""

    name: str
    """Prefix of the arrays' names in the file."""
    begin: int
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def n(self) -> int:
        """Return the number of values."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def end(self) -> int:
        """Return the place behind the last value."""
        return self.begin + self.n

    def of(self, vector: Floats) -> Floats:
        """Return this part of a vector."""
        return vector[self.begin : self.end]

    def arrays(self, part: Floats) -> Arrays:
        """Return the arrays by their names. They share the memory of `part`, a vector [n]."""
        found, begin = {}, 0
        for name, shape in self.shapes.items():
            end = begin + math.prod(shape)
            found[name] = part[begin:end].reshape(shape)
            begin = end
        return found


Update = Callable[[Span, Floats], None]
"""Receives a span and the gradient [n] of its values, whose memory it may change."""


@dataclass(frozen=True)
class Samples:
    """The inputs and the targets of one network for some tokens."""

    x: Floats
    """[batch, width]: the layer's inputs, or the rows of the token ids."""
    before: Floats
    """[batch, E]: 1 for the experts that the later layer chose for the token before."""
    wanted: Floats
    """[batch, E]: the soft targets."""
    ids: NDArray[np.int32]
    """[batch, k]: the chosen experts."""
    counts: Floats
    """[batch]: 1 if inputs and targets are known, otherwise 0."""
    last: Floats | None = None
    """[batch, n_embd]: the last layer's inputs for the token before, for token networks only."""
    by_router: Floats | None = None
    """[batch, E]: the later layer's router applied to x, if the linear term only scales it."""


def forward(w: Arrays, s: Samples) -> tuple[Floats, Floats]:
    """Return the scores [batch, E] and the hidden values [batch, n_hidden] of a network."""
    hidden: Floats = s.x @ w["w1"].T
    hidden += w["b1"]
    if s.last is not None:
        hidden += s.last @ w["w1_last"].T
    if "hidden_before" in w:
        hidden += s.before @ w["hidden_before"]
    np.maximum(hidden, 0, out=hidden)
    scores: Floats = hidden @ w["w2"].T
    scores += w["b2"]
    if "before" in w:
        scores += s.before @ w["before"]
    if "skip" in w:
        scores += s.x @ w["skip"].T
    if s.by_router is not None:
        scores += s.by_router * w["router"]
    return scores, hidden


def loss(scores: Floats, s: Samples) -> tuple[float, Floats]:
    """Return the cross-entropy with the targets, mean over the tokens, and the scores' gradient."""
    odds = scores - scores.max(1, keepdims=True)
    by_wanted = np.einsum("be,be->b", s.wanted, odds)
    np.exp(odds, out=odds)
    total, n_wanted = odds.sum(1), s.wanted.sum(1)
    value = float((np.log(total) * n_wanted - by_wanted) @ s.counts) / len(scores)
    odds *= (n_wanted / total)[:, None]
    odds -= s.wanted
    odds *= (s.counts / np.float32(len(scores)))[:, None]
    return value, odds


def backward(w: Arrays, s: Samples, hidden: Floats, of_scores: Floats, to: Arrays) -> Floats:
    """Write the gradients of all arrays, given the scores' gradient. Return the hidden layer's.

    to: arrays with the shapes of w.
    """
    of_hidden = of_scores @ w["w2"]
    of_hidden *= hidden > 0
    np.matmul(of_hidden.T, s.x, out=to["w1"])
    np.sum(of_hidden, 0, out=to["b1"])
    np.matmul(of_scores.T, hidden, out=to["w2"])
    np.sum(of_scores, 0, out=to["b2"])
    if s.last is not None:
        np.matmul(of_hidden.T, s.last, out=to["w1_last"])
    if "hidden_before" in w:
        np.matmul(s.before.T, of_hidden, out=to["hidden_before"])
        np.matmul(s.before.T, of_scores, out=to["before"])
    if "skip" in w:
        np.matmul(of_scores.T, s.x, out=to["skip"])
    if s.by_router is not None:
        np.einsum("be,be->e", of_scores, s.by_router, out=to["router"])
    return of_hidden


class Model:
    """The networks of all layers and strides, and the token networks of the first layers.

    A layer's network maps the layer's input to the scores of a later layer. The first layers have
    token networks: from the token's id and the last layer's input for the token before.
    """

    def __init__(
        self,
        sizes: PredictorSizes,
        design: Design,
        routers: Floats | None,
        rows: Floats | None,
        seed: int = 1,
    ) -> None:
        """Initialise the linear terms with routers [L, E, n_embd], if they are given.

        rows: [n_vocab, token_rank], the initial rows of the token ids; None: no token networks.
        Raise ValueError where no layer is `design.strides` ahead of another.
        """
        self.sizes, self.design = sizes, design
        n_layer, h, e, d = sizes.n_layer, design.n_hidden, sizes.n_expert, sizes.n_embd
        pairs = [(layer, stride) for layer in range(n_layer) for stride in design.strides]
        # The engine predicts at most one pass ahead (layer_after in ranking.h).
        self.pairs = [(a, s) for a, s in pairs if a + s < n_layer or a + s - n_layer <= a]
        if not self.pairs:
            raise ValueError("The model has too few layers with experts to predict so far ahead.")
        self.targets = [(layer + stride) % n_layer for layer, stride in self.pairs]
        shapes: dict[str, tuple[int, ...]] = {"w1": (h, d), "b1": (h,), "w2": (e, h), "b2": (e,)}
        self._routers = None
        if not design.plain:
            shapes |= {"hidden_before": (e, h), "before": (e, e)}
            if design.full_skip:
                shapes["skip"] = (e, d)
            elif routers is not None:
                shapes["router"] = (e,)
                self._routers = routers
        self.layers = _spans(0, [f"l{layer}.s{stride}." for layer, stride in self.pairs], shapes)
        self.firsts: list[Span] = []
        self.rows: Span | None = None
        if rows is not None:
            r, n_first = rows.shape[1], min(max(design.strides), n_layer)
            shapes = {
                "w1": (h, r), "w1_last": (h, d), "b1": (h,), "w2": (e, h), "b2": (e,),
                "skip": (e, r), "hidden_before": (e, h), "before": (e, e),
            }  # fmt: skip
            self.firsts = _spans(self.layers[-1].end, [f"t{i}." for i in range(n_first)], shapes)
            self.rows = Span("token.", self.firsts[-1].end, {"rows": rows.shape})
        self.spans = [*self.layers, *self.firsts, *([self.rows] if self.rows else [])]
        """The spans of all networks, then that of the token rows."""
        self.values: Floats = np.zeros(self.spans[-1].end, np.float32)
        self.is_rounded = False
        """Compute with the weights rounded as in the file, instead of the full weights."""
        self._initialise(routers, rows, np.random.default_rng(seed))

    def _initialise(
        self, routers: Floats | None, rows: Floats | None, draw: np.random.Generator
    ) -> None:
        for span in (*self.layers, *self.firsts):
            arrays = self.arrays(span)
            for name in ("w1", "w2") if self.design.plain else ("w1",):
                draw.standard_normal(dtype=np.float32, out=arrays[name])
                arrays[name] *= arrays[name].shape[1] ** -0.5
        if routers is not None:
            for span, target in zip(self.layers, self.targets, strict=True):
                arrays = self.arrays(span)
                if "skip" in arrays:
                    arrays["skip"][:] = routers[target]
                if "router" in arrays:
                    arrays["router"].fill(1)
        if self.rows is not None and rows is not None:
            self.arrays(self.rows)["rows"][:] = rows

    def arrays(self, span: Span) -> Arrays:
        """Return a network's arrays in full. They share the memory of `values`."""
        return span.arrays(span.of(self.values))

    def named_arrays(self) -> Arrays:
        """Return copies of all arrays by their names in learned.h."""
        return {
            span.name + name: array.copy()
            for span in self.spans
            for name, array in self.arrays(span).items()
        }

    def gradients(self, data: Routings, rows: Rows, keeps: Floats, update: Update) -> float:
        """Pass the gradient of every span to `update`, which may change the values of that span.

        Return the loss: sum over the networks, mean over the tokens. keeps [len(rows)]: 0 for
        tokens that are computed without the token before, otherwise 1.
        """
        total = 0.0
        of_rows: Floats | None = None
        for span, samples in self.samples(data, rows):
            of_before = [samples.before] if samples.last is None else [samples.before, samples.last]
            for values in of_before:
                values *= keeps[:, None]
            w, gradient = self._weights(span), np.empty(span.n, self.values.dtype)
            scores, hidden = forward(w, samples)
            value, of_scores = loss(scores, samples)
            total += value
            of_hidden = backward(w, samples, hidden, of_scores, span.arrays(gradient))
            if samples.last is not None:
                of_x = of_hidden @ w["w1"] + of_scores @ w["skip"]
                of_rows = of_x if of_rows is None else of_rows + of_x
            update(span, gradient)
        if self.rows is not None and of_rows is not None:
            gradient = np.zeros(self.rows.n, self.values.dtype)
            tokens = self._tokens(data, rows)
            order = np.argsort(tokens, kind="stable")
            distinct, begins = np.unique(tokens[order], return_index=True)
            to = self.rows.arrays(gradient)["rows"]
            to[distinct] = np.add.reduceat(of_rows[order], begins)
            update(self.rows, gradient)
        return total

    def accuracy(self, data: Routings, rows: Rows) -> tuple[list[float], list[float]]:
        """Return, for each network, the share of its k best experts that were chosen.

        The first list is of (layer, stride) pairs, the second of the first layers' token networks.
        Weights are rounded as in the file.
        """
        self.is_rounded = True
        right: dict[str, float] = {}
        n: dict[str, float] = {}
        for begin in range(0, len(rows), EVALUATED_TOKENS):
            for span, s in self.samples(data, rows[begin : begin + EVALUATED_TOKENS]):
                chosen = best(forward(self._weights(span), s)[0], s.ids.shape[1])
                share = np.take_along_axis(hot(s.ids, self.sizes.n_expert), chosen, 1).mean(1)
                right[span.name] = right.get(span.name, 0.0) + float(share @ s.counts)
                n[span.name] = n.get(span.name, 0.0) + float(s.counts.sum())

        def shares(spans: list[Span]) -> list[float]:
            return [right[span.name] / max(n[span.name], 1.0) for span in spans if n]

        return shares(self.layers), shares(self.firsts)

    def samples(self, data: Routings, rows: Rows) -> Iterator[tuple[Span, Samples]]:
        """Yield each network with its inputs and targets for some tokens."""
        n_layer = self.sizes.n_layer
        after, prior = np.minimum(rows + 1, data.n - 1), np.maximum(rows - 1, 0)
        is_followed = data.follows[after] & (after > rows)
        has_prior = data.follows[rows]
        x: Floats = np.empty((0, 0), np.float32)
        of_layer = -1
        for span, (layer, stride), target in zip(
            self.layers, self.pairs, self.targets, strict=True
        ):
            if layer != of_layer:
                of_layer, x = layer, data.inputs[layer][rows].astype(np.float32)
            if layer + stride >= n_layer:  # of the next token
                at, is_known, before = after, is_followed, data.chosen(target, rows)
            else:
                at, is_known, before = rows, np.ones_like(has_prior), data.chosen(target, prior)
                before *= has_prior[:, None]
            known = data.routed[layer][rows] & data.routed[target][at] & is_known
            yield (
                span,
                Samples(
                    x=x,
                    before=before,
                    wanted=data.wanted[target][at].astype(np.float32),
                    ids=data.ids[target][at],
                    counts=known.astype(np.float32),
                    by_router=None if self._routers is None else x @ self._routers[target].T,
                ),
            )
        if self.rows is None:
            return
        last = data.inputs[-1][prior].astype(np.float32)
        last *= (data.routed[-1][prior] & has_prior)[:, None]
        tokens = data.tokens[rows]
        is_known = (tokens >= 0) & (tokens < self.rows.shapes["rows"][0])
        x = self.arrays(self.rows)["rows"][self._tokens(data, rows)]
        if self.is_rounded:
            x = rounded(x)
        for layer, span in enumerate(self.firsts):
            before = data.chosen(layer, prior)
            before *= has_prior[:, None]
            yield (
                span,
                Samples(
                    x=x,
                    before=before,
                    wanted=data.wanted[layer][rows].astype(np.float32),
                    ids=data.ids[layer][rows],
                    counts=(data.routed[layer][rows] & is_known).astype(np.float32),
                    last=last,
                ),
            )

    def _tokens(self, data: Routings, rows: Rows) -> Rows:
        """Return the places of the tokens' rows; any place for an unknown token."""
        assert self.rows is not None
        return np.clip(data.tokens[rows], 0, self.rows.shapes["rows"][0] - 1)

    def _weights(self, span: Span) -> Arrays:
        """Return a network's arrays as the forward pass uses them."""
        arrays = self.arrays(span)
        if not self.is_rounded:
            return arrays
        return {n: rounded(a) if n in ROUNDED else a for n, a in arrays.items()}


def _spans(begin: int, names: list[str], shapes: dict[str, tuple[int, ...]]) -> list[Span]:
    spans: list[Span] = []
    for name in names:
        spans.append(Span(name, spans[-1].end if spans else begin, shapes))
    return spans
