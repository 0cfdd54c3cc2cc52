"""Traces as training data: each layer's inputs, its chosen experts and the order of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.traces.trace import Trace
from backend.weights.file import PredictorSizes

LEAST_BY_SCORE = 0.98
"""Share of the chosen experts that have the highest scores, where no bias takes part in the choice.
Equal scores after rounding make it less than one."""
HELD_OUT_OF = 10
"""One request in ten is held out (ProMoE, section 4.3: 9:1)."""

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
"""Numbers of tokens."""


@dataclass(frozen=True)
class Routings:
    """Tokens in the order of their passes. Shapes: L layers, E experts, k used, n tokens."""

    sizes: PredictorSizes
    inputs: NDArray[np.float16]
    """[L, n, n_embd]: the MoE inputs."""
    ids: NDArray[np.int32]
    """[L, n, k]: the chosen experts."""
    wanted: NDArray[np.float16]
    """[L, n, E]: the router's probabilities, which sum to one. They are the soft targets."""
    routed: NDArray[np.bool_]
    """[L, n]: whether the layer computed the token."""
    follows: NDArray[np.bool_]
    """[n]: whether the previous token belongs to the same request."""
    tokens: NDArray[np.int64]
    """[n]: token ids, -1 where unknown."""
    requests: NDArray[np.int64]
    """[n]: request numbers."""

    @property
    def n(self) -> int:
        """Return the number of tokens."""
        return len(self.tokens)

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> Routings:
        """Join traces of one model.

        Raise ValueError with one sentence if a trace lacks the layers' inputs or all lack tokens.
        """
        if not all(trace.shows_inputs for trace in traces):
            raise ValueError("A trace without the layers' inputs cannot be trained on.")
        if not sum(len(trace.tokens) for trace in traces):
            raise ValueError("The traces hold no tokens.")
        first = traces[0]
        requests, offset = [], 0
        for trace in traces:
            numbers = np.repeat(trace.requests, trace.n_token).astype(np.int64)
            numbers += offset - (numbers[0] if len(numbers) else 0)
            offset = int(numbers[-1]) + 1 if len(numbers) else offset
            requests.append(numbers)
        of_token = np.concatenate(requests)
        ids = _joined([trace.ids for trace in traces], np.int32)
        return cls(
            sizes=PredictorSizes(first.n_layer, first.n_expert, first.n_expert_used, first.n_embd),
            inputs=_joined([t.inputs for t in traces if t.inputs is not None], np.float16),
            ids=ids,
            wanted=_targets(traces, ids, first.n_expert),
            routed=_joined([trace.routed for trace in traces], np.bool_),
            follows=np.r_[False, of_token[1:] == of_token[:-1]],
            tokens=np.concatenate([t.tokens for t in traces]).astype(np.int64),
            requests=of_token,
        )

    def split(self, seed: int = 0) -> tuple[Rows, Rows]:
        """Return the numbers of the training tokens and of the held-out tokens, by whole requests.

        With a single request, hold out its last tenth.
        """
        numbers = np.unique(self.requests)
        if len(numbers) == 1:
            cut = max(self.n - max(self.n // HELD_OUT_OF, 1), 0)
            return np.arange(cut), np.arange(cut, self.n)
        n_out = max(1, len(numbers) // HELD_OUT_OF)
        out = np.random.default_rng(seed).permutation(numbers)[:n_out]
        is_out = np.isin(self.requests, out)
        return np.flatnonzero(~is_out), np.flatnonzero(is_out)

    def chosen(self, layer: int, rows: Rows) -> Floats:
        """Return [len(rows), E]: 1 for chosen experts; all 0 if the layer skipped the token."""
        marked = hot(self.ids[layer][rows], self.sizes.n_expert)
        marked *= self.routed[layer][rows, None]
        return marked


def hot(ids: NDArray[Any], n_expert: int) -> Floats:
    """Return [n, E] for ids [n, k]: 1 for each expert of the row."""
    marked = np.zeros((len(ids), n_expert), np.float32)
    marked[np.arange(len(ids))[:, None], ids] = 1
    return marked


def best(scores: NDArray[Any], k: int) -> NDArray[np.intp]:
    """Return [n, k]: the experts with the k highest scores of each row, in no order."""
    n_expert = scores.shape[1]
    return np.argpartition(scores, n_expert - k, axis=1)[:, n_expert - k :]


def _joined(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """Join arrays [n, L, ...] of the traces to [L, n, ...]. Each is read once."""
    first = arrays[0]
    n = sum(map(len, arrays))
    whole: NDArray[Any] = np.empty((first.shape[1], n, *first.shape[2:]), dtype)
    begin = 0
    for array in arrays:
        whole[:, begin : begin + len(array)] = np.swapaxes(array, 0, 1)
        begin += len(array)
    return whole


def _targets(traces: Sequence[Trace], ids: NDArray[np.int32], n_expert: int) -> NDArray[np.float16]:
    """Return the router's probabilities, or equal shares of the chosen experts.

    Probabilities are no targets where they were not recorded, or where the model selects by another
    order than theirs: with a bias on the probabilities (DeepSeek-V3's technical report, section
    2.1.2), the chosen experts are not the most probable ones.
    """
    k = ids.shape[2]
    if all(trace.scores is not None for trace in traces):
        scores = _joined([t.scores for t in traces if t.scores is not None], np.float16)
        by_score = [
            np.take_along_axis(hot(of_layer, n_expert), best(rows, k), 1).mean()
            for of_layer, rows in zip(ids, scores, strict=True)
        ]
        if np.mean(by_score) >= LEAST_BY_SCORE:
            is_softmax_due = bool((scores < 0).any())  # scores before a softmax
            for rows in scores:
                values = rows.astype(np.float32)
                if is_softmax_due:
                    values = np.exp(values - values.max(1, keepdims=True))
                rows[:] = values / np.maximum(values.sum(1, keepdims=True), 1e-6)
            return scores
    shares: NDArray[np.float16] = np.zeros((*ids.shape[:2], n_expert), np.float16)
    np.put_along_axis(shares, ids.astype(np.intp), np.float16(1.0 / k), 2)
    return shares
