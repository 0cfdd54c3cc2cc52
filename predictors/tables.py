"""Count tables for predictors without networks, from the traces that networks train on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backend.traces.trace import DECODE, Trace
from backend.weights.file import PredictorSizes, PredictorWeights, Storage

EAM_CAPACITY = 120
"""Number of past requests kept per phase (MoE-Infinity, section 4.3)."""
TABLE_BYTES_MAX = 64 << 20
STORAGE: dict[str, Storage] = {"tokens": "i4"}

Counts = NDArray[np.float32]


def hot(trace: Trace, layer: int) -> Counts:
    """Return [n, E]: 1 for the experts that a layer chose for each token."""
    rows = np.zeros((len(trace.tokens), trace.n_expert), np.float32)
    np.put_along_axis(rows, trace.ids[:, layer].astype(np.int64), 1.0, axis=1)
    return rows * trace.routed[:, layer, None]


def popularity_counts(traces: Sequence[Trace]) -> Counts:
    """Return [L, E]: how often each expert was chosen (DuoServe-MoE, Eq. 2, not yet divided)."""
    first = traces[0]
    return np.stack(
        [sum(hot(t, layer).sum(0) for t in traces) for layer in range(first.n_layer)]
    ).astype(np.float32)


def pair_counts(traces: Sequence[Trace]) -> Counts:
    """Return [L, E, E]: how often tokens that chose i in layer l - 1 chose j in layer l.

    For layer 0, i is a choice of the previous token in the last layer.
    """
    first = traces[0]
    counts = np.zeros((first.n_layer, first.n_expert, first.n_expert), np.float32)
    for trace in traces:
        rows = [hot(trace, layer) for layer in range(first.n_layer)]
        numbers = np.repeat(trace.requests, trace.n_token)
        follows = (numbers[1:] == numbers[:-1]).astype(np.float32)[:, None]
        counts[0] += (rows[-1][:-1] * follows).T @ rows[0][1:]
        for layer in range(1, first.n_layer):
            counts[layer] += rows[layer - 1].T @ rows[layer]
    return counts


def popularity(traces: Sequence[Trace]) -> PredictorWeights:
    """Return the table of the predictor `popularity`."""
    return PredictorWeights("popularity", sizes(traces), {"counts": popularity_counts(traces)})


def correlation(traces: Sequence[Trace]) -> PredictorWeights:
    """Return Klotski's correlation table."""
    return PredictorWeights("correlation", sizes(traces), {"counts": pair_counts(traces)})


def token_table(traces: Sequence[Trace]) -> PredictorWeights:
    """Return the table of the most frequent token ids that fit in 64 MiB.

    Raise ValueError with one sentence if the traces hold no token ids.
    """
    first = traces[0]
    ids = np.concatenate([trace.tokens for trace in traces])
    known, n_seen = np.unique(ids[ids >= 0], return_counts=True)
    if not len(known):
        raise ValueError("The traces do not say which tokens they are of.")
    most = max(1, TABLE_BYTES_MAX // (4 * first.n_layer * first.n_expert))
    kept = np.sort(known[np.argsort(-n_seen, kind="stable")[:most]])
    counts = np.zeros((len(kept), first.n_layer, first.n_expert), np.float32)
    for trace in traces:
        place = np.searchsorted(kept, trace.tokens).clip(max=len(kept) - 1)
        is_kept = kept[place] == trace.tokens
        for layer in range(first.n_layer):
            np.add.at(counts[:, layer], place[is_kept], hot(trace, layer)[is_kept])
    arrays = {"tokens": kept.astype(np.float32), "counts": counts}
    return PredictorWeights("token_table", sizes(traces), arrays)


def eam(traces: Sequence[Trace]) -> PredictorWeights:
    """Return the activation matrices of the last requests of each phase (MoE-Infinity).

    If the traces hold one phase only, as recordings of whole texts do, both phases get its
    matrices.
    """
    found: dict[str, list[Counts]] = {"prefill": [], "decode": []}
    for trace in traces:
        for request in trace.each_request():
            decoded = np.repeat(request.phases == DECODE, request.n_token)
            rows = np.stack([hot(request, layer) for layer in range(trace.n_layer)], 1)
            for name, mask in (("prefill", ~decoded), ("decode", decoded)):
                if mask.any():
                    found[name].append(rows[mask].sum(0))
    for name, other in (("prefill", "decode"), ("decode", "prefill")):
        found[name] = found[name] or found[other]
    arrays = {name: np.stack(list_[-EAM_CAPACITY:]) for name, list_ in found.items()}
    return PredictorWeights("eam", sizes(traces), arrays)


def sizes(traces: Sequence[Trace]) -> PredictorSizes:
    """Return the sizes of the traces' model. Raise ValueError if they are not recorded."""
    t = traces[0]
    return PredictorSizes(t.n_layer, t.n_expert, t.n_expert_used, t.n_embd)
