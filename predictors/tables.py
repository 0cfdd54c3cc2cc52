"""What predictors without networks learn: counts, of the same traces that networks learn from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backend.traces.trace import DECODE, Trace
from backend.weights.file import PredictorSizes, PredictorWeights, Storage

EAM_CAPACITY = 120
"""Past requests of each phase (MoE-Infinity, section 4.3)."""
TABLE_BYTES_MAX = 64 << 20
STORAGE: dict[str, Storage] = {"tokens": "i4"}

Counts = NDArray[np.float32]


def hot(trace: Trace, layer: int) -> Counts:
    """[n, E]: 1 for the experts that a layer chose for each token."""
    rows = np.zeros((len(trace.tokens), trace.n_expert), np.float32)
    np.put_along_axis(rows, trace.ids[:, layer].astype(np.int64), 1.0, axis=1)
    return rows * trace.routed[:, layer, None]


def popularity_counts(traces: Sequence[Trace]) -> Counts:
    """[L, E]: how often each expert was chosen (DuoServe-MoE, Eq. 2, before its division)."""
    first = traces[0]
    return np.stack(
        [sum(hot(t, layer).sum(0) for t in traces) for layer in range(first.n_layer)]
    ).astype(np.float32)


def pair_counts(traces: Sequence[Trace]) -> Counts:
    """[L, E, E]: how often j was chosen in layer l by tokens that chose i in the layer before.

    Of layer 0 the layer before is the last one of the token before.
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
    """For the predictor `popularity`."""
    return PredictorWeights("popularity", sizes(traces), {"counts": popularity_counts(traces)})


def correlation(traces: Sequence[Trace]) -> PredictorWeights:
    """For Klotski's correlation table."""
    return PredictorWeights("correlation", sizes(traces), {"counts": pair_counts(traces)})


def token_table(traces: Sequence[Trace]) -> PredictorWeights:
    """For the table of token ids: the most frequent ones, as many as fit in 64 MiB.

    Raises ValueError, a sentence, where the traces do not say which tokens they are of.
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
    """For activation matching: the matrices of the last requests, of each phase.

    In a trace of texts that were computed whole everything is prefill; then both get the same.
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
    """Of the traces' model; raises ValueError where they do not hold them."""
    t = traces[0]
    return PredictorSizes(t.n_layer, t.n_expert, t.n_expert_used, t.n_embd)
