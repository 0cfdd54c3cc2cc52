"""Defines the work of a round: prompts, the tokens decoded after them, and forced routing.

Forced routing replaces the choices of a model's routers by those of a recorded trace of the same
geometry. A trace with more layers than the model is sampled evenly: with S = trace layers // model
layers, layer i of the model is routed as layer S * i + r of the trace. At first r is 0. A text
longer than the trace repeats it with r = 1, 2, ..., and so with other choices. The decoded tokens
of a round follow those of the round before; after the trace's end they begin again at its start.
llama.cpp computes the last layer only for a prompt's last token. A token that a layer of the trace
did not compute gets the choice of the next token that it computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.gguf.model_file import ModelFile
from backend.traces.trace import DECODE, Trace

Ids = NDArray[np.int32]


class WorkloadError(ValueError):
    """A workload is not possible. str() is one plain sentence."""


@dataclass(frozen=True)
class Request:
    """The tokens of a prompt, and the tokens decoded after it."""

    n_prompt: int
    n_decode: int

    @property
    def n_token(self) -> int:
        """All tokens of the request."""
        return self.n_prompt + self.n_decode


@dataclass(frozen=True)
class Pass:
    """One call of llama_decode: `n_token` tokens of the request, from `position`."""

    position: int
    n_token: int
    is_decode: bool


def passes(request: Request, n_ubatch: int) -> Iterator[Pass]:
    """Yield the passes of a request. The prompt is cut into pieces of n_ubatch tokens."""
    for position in range(0, request.n_prompt, n_ubatch):
        yield Pass(position, min(n_ubatch, request.n_prompt - position), is_decode=False)
    for position in range(request.n_prompt, request.n_token):
        yield Pass(position, 1, is_decode=True)


def random_tokens(n: int, n_vocab: int) -> list[int]:
    """Return the same token ids every time, from the vocabulary without control tokens."""
    random = Random(1)
    return [random.randrange(min(5, n_vocab - 1), min(n_vocab, 250)) for _ in range(n)]


def check_trace(trace: Trace, file: ModelFile) -> ModelFile:
    """Return the model with as many experts per token as the trace.

    Raises WorkloadError if the trace's routing cannot be forced on the model.
    """
    name = trace.about.get("source") or "The trace"
    if trace.n_expert != file.n_expert:
        raise WorkloadError(
            f"{name} is of a model with {trace.n_expert} experts, but {file.path.name} has "
            f"{file.n_expert}: its routing cannot be forced on it."
        )
    if trace.n_layer < file.n_moe_layer:
        raise WorkloadError(
            f"{name} has {trace.n_layer} MoE layers, but {file.path.name} has {file.n_moe_layer}: "
            "there is no routing for all of them."
        )
    if not 0 < n_recorded_prompt(trace) < len(trace.tokens):
        raise WorkloadError(f"{name} holds no prompt with tokens after it.")
    if trace.n_expert_used == file.n_expert_used:
        return file
    try:
        return file.using(trace.n_expert_used)
    except ValueError as error:
        raise WorkloadError(
            f"{name} has {trace.n_expert_used} experts for each token, {file.path.name} "
            f"{file.n_expert_used}, and that cannot be changed: {error}"
        ) from None


def n_recorded_prompt(trace: Trace) -> int:
    """Return the number of tokens before the first decoded one."""
    decoded = np.flatnonzero(trace.phases == DECODE)
    return int(trace.begins[decoded[0]]) if len(decoded) else 0


def forced_rows(
    trace: Trace, file: ModelFile, requests: Sequence[Request], n_round: int = 1
) -> Ids:
    """Return the experts of all tokens of the rounds' requests, in order, [token, layer, k]."""
    n_layer = file.n_moe_layer
    stride = trace.n_layer // n_layer
    whole = _filled(trace)
    n_prompt = n_recorded_prompt(trace)
    rows = []
    for round_, request in ((n, r) for n in range(n_round) for r in requests):
        if request.n_decode:  # a conversation: the recorded prompt, then the recorded answer
            after = np.roll(whole[n_prompt:], -round_ * request.n_decode, axis=0)
            parts = ((whole[:n_prompt], request.n_prompt), (after, request.n_decode))
        else:
            parts = ((whole, request.n_prompt), (whole, 0))
        for source, n_token in parts:
            at = np.arange(n_token)
            repeat = at // len(source) % stride
            layers = stride * np.arange(n_layer)[None, :] + repeat[:, None]
            rows.append(source[(at % len(source))[:, None], layers])
    return np.ascontiguousarray(np.concatenate(rows), np.int32)


def _filled(trace: Trace) -> Ids:
    """Return the trace's choices. A token that a layer skipped gets those of its next token."""
    ids = np.asarray(trace.ids, np.int32).copy()
    for layer in range(trace.n_layer):
        known = np.flatnonzero(trace.routed[:, layer])
        if len(known) == 0:
            raise WorkloadError(f"The trace's layer {trace.layers[layer]} routed nothing.")
        after = np.searchsorted(known, np.arange(len(ids)))
        ids[:, layer] = ids[known[np.minimum(after, len(known) - 1)], layer]
    return ids


def future(
    ids: Ids, requests: Sequence[Request], n_ubatch: int, n_round: int, n_used: Sequence[int] = ()
) -> _native.Future:
    """Return all passes of `n_round` rounds, for predictors that know the future.

    n_used: experts of a token in each layer; empty: all of `ids`.
    """
    coming = _native.Future()
    first = 0
    for _ in range(n_round):
        for request in requests:
            for step in passes(request, n_ubatch):
                begin = first + step.position
                n_routed = [step.n_token] * ids.shape[1]
                n_routed[-1] = 1  # the last layer is computed for the last token only
                coming.append(
                    phase=_native.Phase.decode if step.is_decode else _native.Phase.prefill,
                    tokens=[],
                    begins_request=step.position == 0,
                    ids=np.ascontiguousarray(ids[begin : begin + step.n_token].transpose(1, 0, 2)),
                    n_routed=n_routed,
                    n_used=list(n_used),
                )
            first += request.n_token
    return coming
