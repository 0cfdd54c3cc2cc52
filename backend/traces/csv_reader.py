"""Reads routings from CSV files of the format "route_trace v1", which BigMoeOnEdge writes.

    # route_trace v1
    # model=x.gguf arch=qwen3moe n_layer=48 n_expert=128 n_expert_used=6
    # layer=0 expert_bytes=3059712 dense_bytes=11953152
    turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
    0,0,0,0,0,49,0.221297,0,3059712

A turn is a request; steps number its tokens. Phase 0 is prefill, one pass; phase 1 is decode, one
pass per step. Slots number the experts of one token in one layer. The columns residency and
expert_bytes describe another program's cache; the reader ignores them. The reader allocates no
memory in proportion to a number that only the file claims.
"""

from __future__ import annotations

import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from backend.traces.container import ContainerError
from backend.traces.trace import DECODE, N_EXPERT_MAX, N_LAYER_MAX, PREFILL, Trace

LINE_BYTES_MAX = 4096
_FIRST = "# route_trace v1"
_COLUMNS = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes"
_N_CHUNK = 3  # matrices of an expert; the file gives only their total bytes

Integers = NDArray[np.int64]


@dataclass
class _Head:
    """The lines that begin with #."""

    sizes: dict[str, int]
    texts: dict[str, str]
    expert_bytes: dict[int, int] = field(default_factory=dict)
    dense_bytes: list[int] = field(default_factory=list)


@dataclass
class _Rows:
    """The columns of all routing lines, and the line numbers."""

    turn: Integers
    phase: Integers
    step: Integers
    layer: Integers
    slot: Integers
    expert: Integers
    weight: NDArray[np.float32]
    line: Integers


def read_csv(path: Path) -> Trace:
    """Read a CSV trace. Raise ContainerError, whose sentence names the line."""
    path = Path(path)
    try:
        return _Reader(path).read()
    except OSError as error:
        reason = error.strerror or "the system did not say why"
        raise ContainerError(path, f"it cannot be read ({reason})") from error
    except MemoryError as error:
        raise ContainerError(path, "there is not enough memory for it") from error


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Trace:
        head, rows = self._parse()
        layers = tuple(sorted(head.expert_bytes))
        if not layers:
            self._refuse("no line says the size of an expert")
        if not len(rows.line):
            self._refuse("it has no routings")
        try:
            return self._trace(head, layers, rows)
        except ValueError as error:
            if isinstance(error, ContainerError):
                raise
            raise ContainerError(self._path, str(error)) from None

    def _refuse(self, reason: str, line: int | None = None) -> NoReturn:
        where = "" if line is None else f"line {line}: "
        raise ContainerError(self._path, where + reason)

    # Lines.

    def _parse(self) -> tuple[_Head, _Rows]:
        head: _Head | None = None
        integers = array.array("q")
        weights = array.array("f")
        lines = array.array("q")
        with open(self._path, "rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
                if len(raw) == LINE_BYTES_MAX:
                    self._refuse(f"it is longer than {LINE_BYTES_MAX} bytes", number)
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if number == 1 and line != _FIRST:
                    self._refuse(f'it is "{_FIRST[2:]}" in no first line')
                elif number == 2:
                    head = self._first_facts(line)
                elif head is not None and line.startswith("#"):
                    self._layer_facts(head, line, number)
                elif head is not None and line != _COLUMNS:
                    self._routing(head, line, number, integers, weights)
                    lines.append(number)
        if head is None:
            self._refuse("it ends before it says what it is of")
        columns = np.frombuffer(integers, np.int64) if integers else np.zeros(0, np.int64)
        columns = columns.reshape(-1, 6)
        turn, phase, step, layer, slot, expert = columns.T
        weight, line_numbers = np.array(weights, np.float32), np.array(lines, np.int64)
        return head, _Rows(turn, phase, step, layer, slot, expert, weight, line_numbers)

    def _facts(self, line: str, number: int) -> dict[str, str]:
        facts = {}
        for word in line.lstrip("# ").split():
            key, equals, value = word.partition("=")
            if not equals:
                self._refuse("it is not made of key=value", number)
            facts[key] = value
        return facts

    def _whole(self, text: str | None, least: int, end: int, what: str, number: int) -> int:
        try:
            value = int(text) if text is not None else -1
        except ValueError:
            value = -1
        if not least <= value < end:
            shown = "nothing" if text is None else ascii(text[:40])
            self._refuse(f"{what} is {shown}, not a number from {least} to {end - 1}", number)
        return value

    def _first_facts(self, line: str) -> _Head:
        facts = self._facts(line, 2)
        sizes = {
            key: self._whole(facts.get(key), 1, end, key, 2)
            for key, end in (
                ("n_layer", N_LAYER_MAX + 1),
                ("n_expert", N_EXPERT_MAX + 1),
                ("n_expert_used", N_EXPERT_MAX + 1),
            )
        }
        if sizes["n_expert_used"] > sizes["n_expert"]:
            self._refuse("more experts are used than there are", 2)
        return _Head(sizes, {key: facts.get(key, "")[:200] for key in ("model", "arch")})

    def _layer_facts(self, head: _Head, line: str, number: int) -> None:
        facts = self._facts(line, number)
        if "layer" not in facts:
            return
        layer = self._whole(facts["layer"], 0, head.sizes["n_layer"], "layer", number)
        n_bytes = self._whole(facts.get("expert_bytes"), 0, 1 << 40, "expert_bytes", number)
        if "dense_bytes" in facts:
            dense = self._whole(facts["dense_bytes"], 0, 1 << 40, "dense_bytes", number)
            head.dense_bytes.append(dense)
        if n_bytes >= _N_CHUNK:  # a dense layer has none
            head.expert_bytes[layer] = n_bytes

    def _routing(
        self,
        head: _Head,
        line: str,
        number: int,
        integers: array.array[int],
        weights: array.array[float],
    ) -> None:
        fields = line.split(",")
        if len(fields) != 9:
            self._refuse(f"it has {len(fields)} fields instead of 9", number)
        sizes = head.sizes
        ends = (1 << 31, 2, 1 << 31, sizes["n_layer"], sizes["n_expert_used"], sizes["n_expert"])
        for text, end, what in zip(fields, ends, _COLUMNS.split(","), strict=False):
            integers.append(self._whole(text, 0, end, what, number))
        if integers[-3] not in head.expert_bytes:
            self._refuse(f"layer {integers[-3]} has no experts, as no line says their size", number)
        try:
            weights.append(float(fields[6]))
        except (ValueError, OverflowError):
            self._refuse(f"weight is {fields[6][:40]!a}, not a number", number)

    # Passes.

    def _trace(self, head: _Head, layers: tuple[int, ...], rows: _Rows) -> Trace:
        k, n_layer = head.sizes["n_expert_used"], len(layers)
        keys, token = np.unique(np.stack([rows.turn, rows.step]), axis=1, return_inverse=True)
        token = token.reshape(-1)
        n_token = keys.shape[1]
        if n_token * n_layer * k > 4 * len(rows.line):
            self._refuse("it has too few routings for its tokens and layers")
        layer = np.searchsorted(layers, rows.layer)
        cell = (token * n_layer + layer) * k + rows.slot
        self._check_unique(cell, rows, "the same slot")
        filled = np.zeros(n_token * n_layer * k, bool)
        filled[cell] = True
        whole = filled.reshape(n_token, n_layer, k)
        some: NDArray[np.bool_] = np.any(whole, axis=2)
        if not (some == whole.all(axis=2)).all():
            t, at = np.argwhere(some != whole.all(axis=2))[0]
            first = int(rows.line[(token == t) & (layer == at)][0])
            self._refuse(f"its token has fewer than {k} experts in layer {layers[at]}", first)
        phases, begins = self._passes(rows, token, keys)
        n_routed = self._n_routed(rows, token, layers, some, begins)
        ids = np.zeros(len(filled), np.uint8 if head.sizes["n_expert"] <= 256 else np.uint16)
        ids[cell] = rows.expert
        weights = np.zeros(len(filled), np.float32)
        weights[cell] = rows.weight
        return Trace(
            architecture=head.texts["arch"],
            layers=layers,
            n_expert=head.sizes["n_expert"],
            n_expert_used=k,
            chunk_bytes=tuple(_chunks(head.expert_bytes[number]) for number in layers),
            phases=phases[begins].astype(np.uint8),
            requests=keys[0, begins].astype(np.int32),
            n_token=np.diff(np.append(begins, n_token)).astype(np.int32),
            n_routed=n_routed,
            tokens=np.full(n_token, -1, np.int32),
            ids=ids.reshape(whole.shape),
            weights=weights.reshape(whole.shape),
            about={
                "source": self._path.name,
                "model_file": head.texts["model"],
                "layer_dense_bytes": sum(head.dense_bytes) // max(len(head.dense_bytes), 1),
                "output_bytes": 0,
            },
        )

    def _n_routed(
        self,
        rows: _Rows,
        token: Integers,
        layers: tuple[int, ...],
        some: NDArray[np.bool_],
        begins: Integers,
    ) -> NDArray[np.int32]:
        """Count routed tokens, [pass, layer]. Refuse any that are not the last of their pass."""
        counts = np.add.reduceat(some.astype(np.int32), begins, axis=0)
        ends = np.append(begins[1:], len(some))
        pass_of = np.repeat(np.arange(len(begins)), ends - begins)
        expected = np.arange(len(some))[:, None] >= (ends[:, None] - counts)[pass_of]
        if not (expected == some).all():
            t, at = np.argwhere(expected != some)[0]
            first = int(rows.line[token == t][0])
            self._refuse(f"layer {layers[at]} routes others than the last tokens", first)
        return counts

    def _check_unique(self, values: Integers, rows: _Rows, what: str) -> None:
        _, first = np.unique(values, return_index=True)
        if len(first) != len(values):
            again = np.setdiff1d(np.arange(len(values)), first)[0]
            self._refuse(f"{what} was there before", int(rows.line[again]))

    def _passes(self, rows: _Rows, token: Integers, keys: Integers) -> tuple[Integers, Integers]:
        """Return the phase of each token, and the first token of each pass."""
        phases = np.full(keys.shape[1], -1)
        phases[token] = rows.phase
        wrong = np.flatnonzero(phases[token] != rows.phase)
        if len(wrong):
            self._refuse("the phase differs within its token", int(rows.line[wrong[0]]))
        turn = keys[0]
        is_new = np.ones(keys.shape[1], bool)
        is_new[1:] = (turn[1:] != turn[:-1]) | (phases[1:] == DECODE) | (phases[:-1] != PREFILL)
        return phases, np.flatnonzero(is_new)


def _chunks(n_bytes: int) -> tuple[int, ...]:
    """Split an expert's bytes among three matrices of about the same size."""
    each = n_bytes // _N_CHUNK
    return (each,) * (_N_CHUNK - 1) + (n_bytes - each * (_N_CHUNK - 1),)
