"""Traces as tensors: each layer's inputs, its chosen experts and the order of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backend.traces.trace import Trace
from backend.weights.file import PredictorSizes

LEAST_BY_SCORE = 0.98
"""Share of the chosen experts that have the highest scores, where no bias takes part in the choice.
Equal scores after rounding make it less than one."""
HELD_OUT_OF = 10
"""One request in ten is held out (ProMoE, section 4.3: 9:1)."""


@dataclass(frozen=True)
class Routings:
    """Tokens in the order of their passes. Shapes: L layers, E experts, k used, n tokens."""

    sizes: PredictorSizes
    inputs: Tensor
    """[L, n, n_embd] f16: the MoE inputs."""
    ids: Tensor
    """[L, n, k] int64: the chosen experts."""
    wanted: Tensor
    """[L, n, E] f16: the router's probabilities, which sum to one. They are the soft targets."""
    routed: Tensor
    """[L, n] bool: whether the layer computed the token."""
    follows: Tensor
    """[n] bool: whether the previous token belongs to the same request."""
    tokens: Tensor
    """[n] int64: token ids, -1 where unknown."""
    requests: Tensor
    """[n] int64: request numbers."""

    @property
    def n(self) -> int:
        """Return the number of tokens."""
        return len(self.tokens)

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> Routings:
        """Join traces of one model.

        Raise ValueError with one sentence if a trace lacks the layers' inputs or all lack tokens.
        """
        for trace in traces:
            if trace.inputs is None or trace.has_inputs is None or not trace.has_inputs.all():
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
        ids = _joined([trace.ids for trace in traces]).long()
        return cls(
            sizes=PredictorSizes(first.n_layer, first.n_expert, first.n_expert_used, first.n_embd),
            inputs=_joined([t.inputs for t in traces if t.inputs is not None]),
            ids=ids,
            wanted=_targets(traces, ids, first.n_expert),
            routed=_joined([trace.routed for trace in traces]),
            follows=torch.from_numpy(np.r_[False, of_token[1:] == of_token[:-1]]),
            tokens=torch.from_numpy(np.concatenate([t.tokens for t in traces]).astype(np.int64)),
            requests=torch.from_numpy(of_token),
        )

    def split(self, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return the numbers of the training tokens and of the held-out tokens, by whole requests.

        With a single request, hold out its last tenth.
        """
        numbers = torch.unique(self.requests)
        if len(numbers) == 1:
            cut = max(self.n - max(self.n // HELD_OUT_OF, 1), 0)
            return torch.arange(cut), torch.arange(cut, self.n)
        order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
        n_out = max(1, len(numbers) // HELD_OUT_OF)
        is_out = torch.isin(self.requests, numbers[order[:n_out]])
        return torch.nonzero(~is_out)[:, 0], torch.nonzero(is_out)[:, 0]

    def chosen(self, layer: int, rows: Tensor) -> Tensor:
        """Return [len(rows), E] f32: 1 for chosen experts; all 0 if the layer skipped the token."""
        hot = torch.zeros(len(rows), self.sizes.n_expert)
        hot.scatter_(1, self.ids[layer, rows], 1.0)
        return hot * self.routed[layer, rows].unsqueeze(1)


def _joined(arrays: Sequence[np.ndarray]) -> Tensor:
    """Join arrays [n, L, ...] of the traces to [L, n, ...]."""
    parts = [np.ascontiguousarray(np.swapaxes(array, 0, 1)) for array in arrays]
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return torch.from_numpy(whole.astype(np.int32) if whole.dtype.kind == "u" else whole)


def _targets(traces: Sequence[Trace], ids: Tensor, n_expert: int) -> Tensor:
    """Return the router's probabilities, or equal shares of the chosen experts.

    Probabilities are no targets where they were not recorded, or where the model selects by another
    order than theirs: with a bias on the probabilities (DeepSeek-V3's technical report, section
    2.1.2), the chosen experts are not the most probable ones.
    """
    shares = torch.zeros(*ids.shape[:2], n_expert, dtype=torch.float16)
    shares.scatter_(2, ids, 1.0 / ids.shape[2])
    if any(trace.scores is None for trace in traces):
        return shares
    scores = _joined([trace.scores for trace in traces if trace.scores is not None])
    best = torch.zeros(*ids.shape[:2], n_expert, dtype=torch.bool)
    best.scatter_(2, scores.float().topk(ids.shape[2], -1).indices, True)
    if float(best.gather(2, ids).float().mean()) < LEAST_BY_SCORE:
        return shares
    if bool((scores < 0).any()):  # scores before a softmax
        return torch.softmax(scores.float(), -1).half()
    return (scores.float() / scores.float().sum(-1, keepdim=True).clamp(min=1e-6)).half()
