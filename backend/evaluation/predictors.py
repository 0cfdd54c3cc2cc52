"""Measures the accuracy of predictors: the engine's own code replays a trace, token by token.

The prediction of a layer at stride s is its last forecast made at or before the gate s layers
earlier. The first s layers have no such gate: their forecast is the one made at the start of the
pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.methods.compose import NOTHING_LEARNED, Learned, spec
from backend.methods.part import Part, part
from backend.traces.trace import DECODE, Trace

STRIDES = (1, 2)


@dataclass(frozen=True)
class Candidate:
    """A predictor to evaluate at a stride."""

    label: str
    part: Part
    stride: int


@dataclass(frozen=True)
class Scores:
    """The scores of a predictor at one stride on one trace. Arrays are [layer], from 0 to 1.

    k is the number of experts that a token uses in a layer.
    """

    label: str
    stride: int
    n_token: int
    accuracy: NDArray[np.float64]
    """Share of the first k predicted experts that were used; nan without predictions."""
    recall: NDArray[np.float64]
    """[m, layer]: share of the used experts among the first m + 1 predicted, up to 2k."""
    exact: NDArray[np.float64]
    """Share of the tokens whose first k predicted experts are the used ones."""
    any_one: NDArray[np.float64]
    """Share of the tokens that used at least one of the first k predicted experts."""
    n_expert_used: int

    def recall_at(self, m: int) -> NDArray[np.float64]:
        """Return the recall with `m` experts fetched, [layer]."""
        row: NDArray[np.float64] = self.recall[min(m, len(self.recall)) - 1]
        return row

    def fetches_for(self, wanted: float) -> int | None:
        """Return the experts to fetch for this mean recall over layers; None if 2k are too few."""
        enough = np.flatnonzero(self.recall.mean(axis=1) >= wanted)
        return int(enough[0]) + 1 if enough.size else None

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        k = self.n_expert_used
        per_layer = {
            "accuracy": self.accuracy,
            "recall_k": self.recall_at(k),
            "recall_k2": self.recall_at(k + 2),
            "recall_2k": self.recall_at(2 * k),
            "exact": self.exact,
            "any": self.any_one,
        }
        return {
            "predictor": self.label,
            "stride": self.stride,
            "tokens": self.n_token,
            **{name: round(float(np.nan_to_num(v).mean()), 4) for name, v in per_layer.items()},
            "fetches_for_90_percent": self.fetches_for(0.9),
            "layers": {
                name: [None if np.isnan(x) else round(float(x), 4) for x in v]
                for name, v in per_layer.items()
            },
        }


def token_by_token(trace: Trace) -> Trace:
    """Return a trace of the same tokens in which each is decoded in its own pass."""
    n = len(trace.tokens)
    return replace(
        trace,
        phases=np.full(n, DECODE, np.uint8),
        requests=np.repeat(trace.requests, trace.n_token),
        n_token=np.ones(n, np.int32),
        n_routed=trace.routed.astype(np.int32),
    )


def candidates(learned: Learned, *, has_routers: bool) -> list[Candidate]:
    """Return all predictors that these weights permit, at each stride."""
    found = []
    for stride in STRIDES:
        if any(f".s{stride}." in name for name in learned.arrays.get("learned", ())):
            found.append(Candidate("learned", part("learned", stride=stride), stride))
        if has_routers:
            found.append(Candidate("next_router", part("next_router", stride=stride), stride))
        if "expert_mlp" in learned.arrays and stride == 1:  # its only stride
            found.append(Candidate("expert_mlp", part("expert_mlp"), stride))
        for name in ("token_table", "eam", "previous_token", "popularity"):
            found.append(Candidate(name, part(name), stride))
        if stride == 1:
            found.append(Candidate("correlation", part("correlation"), stride))
    return found


def evaluate(
    trace: Trace,
    chosen: Sequence[Candidate],
    routers: Sequence[Any] = (),
    learned: Learned = NOTHING_LEARNED,
    biases: Sequence[_native.RouterBias] = (),
) -> Iterator[Scores]:
    """Evaluate predictors on a trace with inputs. Skip those that cannot be made."""
    for candidate in chosen:
        try:
            probe = _probe(trace, candidate, routers, learned, biases)
        except ValueError:
            continue
        yield _Replay(trace, candidate, probe).run()


def _probe(
    trace: Trace,
    candidate: Candidate,
    routers: Sequence[Any],
    learned: Learned,
    biases: Sequence[_native.RouterBias],
) -> Any:
    shape = trace.shape()
    layout = _native.Layout.per_layer([trace.n_expert] * trace.n_layer)
    return _native.PredictorProbe(
        spec(candidate.part, learned),
        shape,
        layout,
        n_embd=trace.n_embd,
        routers=list(routers),
        biases=list(biases),
        n_predict=min(2 * trace.n_expert_used, trace.n_expert),
    )


class _Replay:
    """Replays a trace for one predictor and counts right forecasts."""

    def __init__(self, trace: Trace, candidate: Candidate, probe: Any) -> None:
        self.trace, self.candidate, self.probe = trace, candidate, probe
        n_layer, k = trace.n_layer, trace.n_expert_used
        self.n_most = min(2 * k, trace.n_expert)
        self.newest: list[list[int] | None] = [None] * n_layer  # the last forecast of each layer
        self.due: list[list[int] | None] = [None] * n_layer  # the forecast at the stride, judged
        self.found = np.zeros((self.n_most, n_layer))  # [rank, layer]: forecasts that were used
        self.n_predicted = np.zeros(n_layer)
        self.exact, self.any_one, self.n = np.zeros(n_layer), np.zeros(n_layer), np.zeros(n_layer)

    def run(self) -> Scores:
        trace, probe = self.trace, self.probe
        n_layer, k, stride = trace.n_layer, trace.n_expert_used, self.candidate.stride
        wants_input = probe.wants_input and trace.inputs is not None
        request = None
        numbers = np.repeat(trace.requests, trace.n_token)
        routed = trace.routed
        for at in range(len(trace.tokens)):
            begins = numbers[at] != request
            if begins:
                request = numbers[at]
                probe.request_began()
                self.newest = [None] * n_layer
                self.due = [None] * n_layer
            token = int(trace.tokens[at])
            self.note(probe.pass_began(_native.Phase.decode, [token] if token >= 0 else []))
            for layer in range(min(stride, n_layer)):
                self.due[layer] = self.newest[layer]
            for layer in range(n_layer):
                if not routed[at, layer]:
                    continue
                ids = trace.ids[at, layer].tolist()
                if not begins or layer >= stride:
                    self.judge(layer, ids)
                weights = [] if trace.weights is None else trace.weights[at, layer].tolist()
                self.note(probe.routed(layer, ids, weights, 1))
                if wants_input and trace.inputs is not None:
                    row = np.ascontiguousarray(trace.inputs[at, layer][None], np.float32)
                    self.note(probe.gate_seen(layer, row))
                target = layer + stride
                if target < n_layer:
                    self.due[target] = self.newest[target]
        n = np.maximum(self.n, 1)
        with np.errstate(invalid="ignore"):
            accuracy = self.found[:k].sum(axis=0) / np.where(
                self.n_predicted > 0, self.n_predicted, np.nan
            )
        return Scores(
            self.candidate.label,
            stride,
            len(trace.tokens),
            accuracy,
            np.cumsum(self.found, axis=0) / (n * k),
            self.exact / n,
            self.any_one / n,
            k,
        )

    def note(self, forecasts: list[tuple[int, list[int], list[float]]]) -> None:
        for layer, experts, _ in forecasts:
            self.newest[layer] = experts

    def judge(self, layer: int, ids: list[int]) -> None:
        """Compare the forecast of a layer with its routing."""
        predicted = self.due[layer] or []
        used = set(ids)
        hits = [e in used for e in predicted[: self.n_most]]
        k = len(ids)
        self.n[layer] += 1
        self.n_predicted[layer] += min(len(predicted), k)
        self.found[: len(hits), layer] += hits
        self.exact[layer] += sum(hits[:k]) == k
        self.any_one[layer] += any(hits[:k])
