"""Traces: the experts that a model chose for each token and, on request, the router's scores.

A trace is a list of passes. A pass computes a piece of a prompt, or one decoded token. Each token
has a row for each MoE layer. A trace is one file (backend.traces.container); reading it needs no
model. The simulator, the training of predictors and the statistics start from it.

`weights` are the router's probabilities of the chosen experts, in the order of `ids`, as llama.cpp
computes them: after the architecture's softmax or sigmoid, before the chosen probabilities are
scaled to a sum of one, and before any selection bias. Some architectures take the softmax over the
chosen experts only (gpt-oss); `weights` are then that softmax.
`scores` are the probabilities of all experts. For gpt-oss they are the scores before the softmax.
`inputs` are the inputs of a layer's router. In nearly all architectures its experts get the same.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.traces.container import ContainerError, read, write

__all__ = ["DECODE", "KIND", "PREFILL", "ContainerError", "Trace", "join"]

KIND = "outrider-trace"
VERSION = 1
PREFILL, DECODE = 0, 1
N_LAYER_MAX = 4096
N_EXPERT_MAX = 1 << 16

Array = NDArray[Any]

_ARRAYS = ("phases", "requests", "n_token", "n_routed", "tokens", "ids")
_OPTIONAL = ("weights", "scores", "inputs", "has_inputs", "sequences")
_INTEGERS = ("n_expert", "n_expert_used", "n_embd")
_LISTS = ("layers", "n_cut", "layer_kind", "n_used")


@dataclass(frozen=True, eq=False)
class Trace:
    """The routing of a run. Arrays are read-only by convention; n is the number of tokens.

    Raises ValueError, a clause without its full stop, if lengths or values contradict each other.
    """

    architecture: str
    layers: tuple[int, ...]
    """The numbers of the MoE layers in the model."""
    n_expert: int
    n_expert_used: int
    chunk_bytes: tuple[tuple[int, ...], ...]
    """[layer][matrix]: bytes of each matrix of one expert."""
    phases: Array
    """[pass]: PREFILL or DECODE."""
    requests: Array
    """[pass]: the number of the request (one answer to a prompt). It never decreases."""
    n_token: Array
    """[pass]: tokens of the pass."""
    n_routed: Array
    """[pass, layer]: tokens that the layer routed. They are the LAST tokens of the pass: llama.cpp
    computes the last layer only for tokens whose logits are wanted. Rows not routed are zero."""
    tokens: Array
    """[n]: token ids; -1 if unknown."""
    ids: Array
    """[n, layer, n_expert_used]: the chosen experts, u1 or u2, in the router's order. A layer that
    uses fewer (n_used) repeats its last one, with the weight 0."""
    weights: Array | None = None
    """[n, layer, n_expert_used]: f2 or f4."""
    scores: Array | None = None
    """[n, layer, n_expert]: f2."""
    inputs: Array | None = None
    """[n, layer, n_embd]: f2."""
    sequences: Array | None = None
    """[n]: number of the sequence that a token belongs to, where passes computed several at once.
    Tokens whose logits were wanted are the last ones of their pass. None: one at a time."""
    has_inputs: Array | None = None
    """[layer]: whether the layer's inputs were recorded. If not, its rows of `inputs` are zero."""
    n_embd: int = 0
    """Width of the MoE layers' inputs; 0 if unknown."""
    n_cut: tuple[int, ...] = ()
    """[layer]: number of equal pieces into which an expert may be cut. Empty: no cuts."""
    layer_kind: tuple[int, ...] = ()
    """[layer]: layers of the same kind may share a pool. Empty: layers of equal chunk_bytes."""
    n_used: tuple[int, ...] = ()
    """[layer]: experts that a token uses. Empty: n_expert_used in every layer."""
    model: str = ""
    """ModelFile.fingerprint of the model; empty if unknown."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Notes on the recording for a reader."""

    def __post_init__(self) -> None:
        if fault := _fault(self):
            raise ValueError(fault)

    # Sizes and places.

    @property
    def n_layer(self) -> int:
        """Number of MoE layers."""
        return len(self.layers)

    @property
    def n_pass(self) -> int:
        """Number of passes."""
        return len(self.n_token)

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (getattr(self, name) for name in (*_ARRAYS, *_OPTIONAL))
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def shows_inputs(self) -> bool:
        """Whether the inputs of every layer were recorded."""
        has_inputs = self.has_inputs
        return self.inputs is not None and has_inputs is not None and bool(has_inputs.all())

    @functools.cached_property
    def begins(self) -> Array:
        """[pass + 1]: the first token of each pass, then the end of the last pass."""
        return np.concatenate([[0], np.cumsum(self.n_token, dtype=np.int64)])

    @functools.cached_property
    def routed(self) -> Array:
        """[n, layer]: whether the layer computed this token."""
        pass_of = np.repeat(np.arange(self.n_pass), self.n_token)
        to_end = self.begins[1:][pass_of] - np.arange(len(self.tokens))  # 1 for the last token
        mask: Array = to_end[:, None] <= self.n_routed[pass_of]
        return mask

    def rows(self, number: int, layer: int) -> slice:
        """Return the tokens that `layer` computed in pass `number`."""
        end = int(self.begins[number + 1])
        return slice(end - int(self.n_routed[number, layer]), end)

    # Parts of a trace.

    def passes(self, begin: int, end: int) -> Trace:
        """Return passes begin to end - 1 as views, without a copy."""
        begin = min(max(begin, 0), self.n_pass)
        end = min(max(begin, end), self.n_pass)
        first, last = int(self.begins[begin]), int(self.begins[end])
        parts: dict[str, Any] = {
            name: getattr(self, name)[begin:end]
            for name in ("phases", "requests", "n_token", "n_routed")
        }
        for name in ("tokens", "ids", "weights", "scores", "inputs", "sequences"):
            array = getattr(self, name)
            parts[name] = None if array is None else array[first:last]
        return replace(self, **parts)

    def requests_between(self, begin: int, end: int) -> Trace:
        """Return requests begin to end - 1."""
        first, last = np.searchsorted(self.requests, [begin, max(begin, end)])
        return self.passes(int(first), int(last))

    def each_request(self) -> Iterator[Trace]:
        """Yield a trace for each request."""
        for number in np.unique(self.requests):
            yield self.requests_between(int(number), int(number) + 1)

    # For the core.

    def shape(self) -> _native.Shape:
        """Return the model's sizes."""
        return _native.Shape(
            n_expert=self.n_expert,
            n_expert_used=self.n_expert_used,
            chunk_bytes=[list(sizes) for sizes in self.chunk_bytes],
            n_cut=list(self.n_cut),
            kind=list(self.layer_kind),
            n_used=list(self.n_used),
        )

    def future(self) -> _native.Future:
        """Return all routings, for the simulator and for parts that know the future."""
        future = _native.Future()
        known = bool((self.tokens >= 0).all())
        before = None
        for i in range(self.n_pass):
            part = slice(int(self.begins[i]), int(self.begins[i + 1]))
            request = int(self.requests[i])
            future.append(
                phase=_native.Phase.decode if self.phases[i] == DECODE else _native.Phase.prefill,
                tokens=self.tokens[part].tolist() if known else [],
                begins_request=request != before,
                ids=np.ascontiguousarray(self.ids[part].transpose(1, 0, 2), np.int32),
                n_routed=self.n_routed[i].tolist(),
                sequences=[] if self.sequences is None else self.sequences[part].tolist(),
                n_used=list(self.n_used),
            )
            before = request
        return future

    # The file.

    def write(self, path: Path) -> None:
        """Write the file atomically. Raise ContainerError on failure."""
        header = {
            "kind": KIND,
            "version": VERSION,
            "model": self.model,
            "architecture": self.architecture,
            "chunk_bytes": [list(sizes) for sizes in self.chunk_bytes],
            "about": dict(self.about),
            **{name: getattr(self, name) for name in _INTEGERS},
            **{name: list(getattr(self, name)) for name in _LISTS},
        }
        arrays = {name: getattr(self, name) for name in (*_ARRAYS, *_OPTIONAL)}
        write(path, header, {name: a for name, a in arrays.items() if a is not None})

    @classmethod
    def read(cls, path: Path, *, mapped: bool = False) -> Trace:
        """Read a file of write(). `mapped`: map the arrays instead of reading them into memory.

        Raises ContainerError, one sentence.
        """
        header, arrays = read(path, KIND, VERSION, mapped=mapped)
        return _of_file(path, header, arrays)


def join(traces: Sequence[Trace]) -> Trace:
    """Concatenate traces and renumber their requests.

    Keep an optional array only if all traces have it. Raise ValueError for different models.
    """
    first = traces[0]
    same = ("model", "layers", "n_expert", "n_expert_used", "n_used", "chunk_bytes", "n_embd")
    parts: dict[str, list[Array]] = {name: [] for name in (*_ARRAYS, *_OPTIONAL)}
    n_request = 0
    for trace in traces:
        if any(getattr(trace, name) != getattr(first, name) for name in same):
            raise ValueError("they are of different models")
        requests = trace.requests - (trace.requests[:1] if trace.n_pass else 0) + n_request
        n_request = int(requests[-1]) + 1 if trace.n_pass else n_request
        for name, list_ in parts.items():
            array = requests if name == "requests" else getattr(trace, name)
            if array is not None:
                list_.append(array)
    whole: dict[str, Any] = {
        name: np.concatenate(list_) if len(list_) == len(traces) else None
        for name, list_ in parts.items()
        if name != "has_inputs"
    }
    if whole["inputs"] is not None:
        whole["has_inputs"] = np.logical_and.reduce(parts["has_inputs"]).astype(np.uint8)
    else:
        whole["has_inputs"] = None
    return replace(first, **whole)


def _of_file(path: Path, header: dict[str, Any], arrays: dict[str, Array]) -> Trace:
    for name in _ARRAYS:
        if name not in arrays:
            raise ContainerError(path, f"the array {name} is missing")
    try:
        fields: dict[str, Any] = {
            "architecture": _text(header, "architecture"),
            "model": _text(header, "model"),
            "chunk_bytes": tuple(_numbers(sizes, "chunk_bytes") for sizes in _list(header)),
            "about": header["about"] if isinstance(header.get("about"), dict) else {},
            **{name: _numbers([header.get(name)], name)[0] for name in _INTEGERS},
            # Older traces do not say n_used.
            **{
                name: _numbers(header.get(name, [] if name == "n_used" else None), name)
                for name in _LISTS
            },
        }
        fields.update({name: arrays.get(name) for name in (*_ARRAYS, *_OPTIONAL)})
        return Trace(**fields)
    except ValueError as error:
        raise ContainerError(path, str(error)) from None


def _text(header: dict[str, Any], name: str) -> str:
    if not isinstance(header.get(name), str):
        raise ValueError(f"its header says no {name}")
    return str(header[name])


def _list(header: dict[str, Any]) -> list[Any]:
    sizes = header.get("chunk_bytes")
    if not isinstance(sizes, list) or not all(isinstance(row, list) for row in sizes):
        raise ValueError("its header says no chunk_bytes")
    return sizes


def _numbers(values: Any, name: str) -> tuple[int, ...]:
    """Return a list of integers from the header. Raise ValueError unless all are plausible."""
    if not isinstance(values, list):
        raise ValueError(f"its header says no {name}")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 48:
            raise ValueError(f"its header says something impossible for {name}")
    return tuple(values)


def _fault(trace: Trace) -> str | None:
    """Return why the shapes and types of a trace are inconsistent, or None."""
    n_layer, n_pass, n = len(trace.layers), trace.n_token.size, trace.tokens.size
    if not 1 <= n_layer <= N_LAYER_MAX or not 1 <= trace.n_expert <= N_EXPERT_MAX:
        return "it has no plausible number of layers and experts"
    k = trace.n_expert_used
    if not 1 <= k <= trace.n_expert:
        return f"it says that {k} of {trace.n_expert} experts are used"
    if len(trace.chunk_bytes) != n_layer or any(
        not sizes or min(sizes) < 1 or len(sizes) > 32 for sizes in trace.chunk_bytes
    ):
        return "it does not say the sizes of the experts"
    lists = {"n_cut": trace.n_cut, "layer_kind": trace.layer_kind, "n_used": trace.n_used}
    for name, values in lists.items():
        if values and len(values) != n_layer:
            return f"{name} has {len(values)} items for {n_layer} layers"
    if not all(1 <= n <= k for n in trace.n_used):
        return f"a layer does not use 1 to {k} experts"
    rows = (n, n_layer)
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "phases": ((n_pass,), "u"),
        "requests": ((n_pass,), "i"),
        "n_token": ((n_pass,), "i"),
        "n_routed": ((n_pass, n_layer), "i"),
        "tokens": ((n,), "i"),
        "sequences": ((n,), "i"),
        "ids": ((*rows, k), "u"),
        "weights": ((*rows, k), "f"),
        "scores": ((*rows, trace.n_expert), "f"),
        "inputs": ((*rows, trace.n_embd), "f"),
        "has_inputs": ((n_layer,), "u"),
    }
    for name, (shape, kind) in shapes.items():
        array = getattr(trace, name)
        if array is not None and (array.shape != shape or array.dtype.kind != kind):
            return f"{name} is of another shape or type than the rest of it"
    if (trace.inputs is None) != (trace.has_inputs is None):
        return "it does not say which layers' inputs it has"
    return _value_fault(trace)


def _value_fault(trace: Trace) -> str | None:
    """Return why the values of a trace with valid shapes are invalid, or None."""
    if not np.isin(trace.phases, (PREFILL, DECODE)).all():
        return "a pass is neither prefill nor decode"
    if (trace.n_token < 1).any() or int(trace.n_token.sum(dtype=np.int64)) != len(trace.tokens):
        return "its passes do not have as many tokens as it holds"
    if (trace.n_routed < 0).any() or (trace.n_routed > trace.n_token[:, None]).any():
        return "a layer routed more tokens than its pass has"
    if (trace.requests < 0).any() or (np.diff(trace.requests) < 0).any():
        return "the numbers of its requests are out of order"
    if len(trace.ids) and int(trace.ids.max(initial=0)) >= trace.n_expert:
        return f"an expert's number is {int(trace.ids.max())}, but there are {trace.n_expert}"
    for layer in range(trace.n_layer):  # one layer at a time, because sorting copies
        n_used = trace.n_used[layer] if trace.n_used else trace.n_expert_used
        chosen = np.sort(trace.ids[trace.routed[:, layer], layer, :n_used], axis=-1)
        if (chosen[:, 1:] == chosen[:, :-1]).any():
            return "a token has the same expert twice"
    return None
