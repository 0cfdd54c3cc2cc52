"""The file format of a predictor's weights for one model: arrays, numbers and their origin.

The file is a container (backend.traces.container) of kind "predictor". Its header has the name and
numbers of the predictor, as backend/native/core/predict defines them, the model's sizes, and
`about`, notes for a reader. The header file of each predictor lists its arrays. A row is the last
dimension of an array. In memory all arrays are float32. In the file an array is one of

- f4 or f2, floating point;
- u2 or i4, integers (counts, token ids);
- i1, with an array "<name>.scale" that has a factor for each row;
- q4, four bits for a value and a factor for each group of a row (four_bits.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.text import text
from backend.traces import container
from backend.traces.container import ContainerError
from backend.weights import four_bits

KIND = "predictor"
VERSION = 2
"""Version 1 had no q4."""
LEARNING = ("correlation", "eam", "expert_mlp", "learned", "popularity", "token_table")
"""The predictors that have trained weights, and so a file."""

Storage = Literal["f4", "f2", "i1", "q4", "u2", "i4"]
Floats = NDArray[np.float32]

_SCALE = ".scale"


@dataclass(frozen=True)
class PredictorSizes:
    """The sizes of a model that its predictors depend on; n_layer counts MoE layers."""

    n_layer: int
    n_expert: int
    n_expert_used: int
    n_embd: int
    """Width of the MoE layers' inputs."""


@dataclass(frozen=True)
class PredictorWeights:
    """The trained weights of a predictor."""

    name: str
    """One of LEARNING."""
    sizes: PredictorSizes
    arrays: Mapping[str, Floats]
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    about: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Any JSON: the recipe, the accuracy per layer, the date."""

    def fault(self) -> str | None:
        """Return why these weights make no predictor, a clause, or None if they do."""
        if self.name not in LEARNING:
            return f"it is of a predictor called {self.name[:40]!a}, which learns nothing here"
        s = self.sizes
        try:
            spec = _native.Spec(self.name, dict(self.numbers), dict(self.arrays))
            shape = _native.Shape(s.n_expert, s.n_expert_used, [[1]] * s.n_layer)
            _native.check_predictor(spec, shape, s.n_embd)
        except ValueError as error:
            detail = str(error)
            return detail[:1].lower() + detail[1:]
        return None


def write(
    path: Path,
    model: str,
    weights: PredictorWeights,
    storage: Mapping[str, Storage] = MappingProxyType({}),
) -> None:
    """Write a file atomically, for the model with this ModelFile.fingerprint.

    `storage`: the type of an array in the file, by its name or by the part after the name's last
    dot; "f4" by default. The error of a value is at most 1/254 of its row's largest with "i1", and
    1/8 of its group's with "q4". Raises ContainerError if the file cannot be written, and
    ValueError, a sentence, if the weights make no predictor or their storage cannot hold them.
    """
    if fault := weights.fault():
        raise ValueError(f"These weights cannot be used: {fault}.")
    arrays: dict[str, NDArray[Any]] = {}
    row_lengths = {}
    for name, array in weights.arrays.items():
        kept = storage.get(name, storage.get(name.rsplit(".", 1)[-1], "f4"))
        arrays |= _packed(name, np.asarray(array, np.float32), kept)
        if kept == "q4":
            row_lengths[name] = array.shape[-1]
    header = {
        "kind": KIND,
        "version": VERSION,
        "model": model,
        "predictor": weights.name,
        "sizes": asdict(weights.sizes),
        "numbers": dict(weights.numbers),
        "about": dict(weights.about),
        "q4": row_lengths,
    }
    container.write(path, header, arrays)


def read(path: Path, model: str, sizes: PredictorSizes) -> PredictorWeights:
    """Read a file of weights for the model with this fingerprint and these sizes.

    Raises ContainerError, one sentence, if the file belongs to another model, is truncated, damaged
    or of a newer version, or has arrays of wrong shapes or with values that are not numbers.
    """
    path = Path(path)
    header, packed = container.read(path, KIND, VERSION)
    container.require_model(path, header, model)
    if header.get("sizes") != asdict(sizes):
        raise ContainerError(path, text("file.other_sizes"))
    name, numbers, about = (header.get(key) for key in ("predictor", "numbers", "about"))
    if not isinstance(name, str) or not isinstance(about, dict):
        raise _damaged(path, "its header does not say what it holds")
    if not isinstance(numbers, dict) or not all(
        isinstance(n, int | float) and abs(n) < 2**53 for n in numbers.values()
    ):
        raise _damaged(path, "its header has numbers that are none")
    if name not in LEARNING:  # refuse before unpacking, which takes much memory
        raise ContainerError(path, text("weights.unknown", name=ascii(name[:40])))
    weights = PredictorWeights(
        name,
        sizes,
        _unpacked(path, packed, header.get("q4", {})),
        {key: float(value) for key, value in numbers.items()},
        about,
    )
    if fault := weights.fault():
        raise ContainerError(path, text("weights.unfit", detail=fault))
    return weights


def _damaged(path: Path, detail: str) -> ContainerError:
    return ContainerError(path, text("file.damaged", detail=detail))


def _packed(name: str, array: Floats, storage: Storage) -> dict[str, NDArray[Any]]:
    """Return an array in its storage type, with its scale if it has one."""
    if storage == "q4":
        return {name: four_bits.packed(name, array)}
    if storage == "i1" and array.ndim > 0:
        scale = np.abs(array).max(-1, initial=0) / np.float32(127)
        rounded = np.rint(array / np.where(scale > 0, scale, 1)[..., None])
        return {name: rounded.astype(np.int8), name + _SCALE: scale.astype(np.float32)}
    with np.errstate(over="ignore"):
        kept = array.astype(np.dtype(storage))
    if storage in ("u2", "i4") and not np.array_equal(kept, array):
        raise ValueError(f"The array {name} has values that {storage} cannot hold.")
    if not np.isfinite(kept).all():
        raise ValueError(f"The array {name} has values that {storage} cannot hold.")
    return {name: kept}


def _unpacked(
    path: Path, packed: Mapping[str, NDArray[Any]], row_lengths: Any
) -> dict[str, Floats]:
    """Return all arrays as float32. row_lengths: those of the q4 arrays, from the header."""
    if not isinstance(row_lengths, dict) or not row_lengths.keys() <= packed.keys():
        raise _damaged(path, "its header does not say what it holds")
    arrays = {}
    scales = {f"{name}{_SCALE}" for name, array in packed.items() if array.dtype == np.int8}
    for name, array in packed.items():
        if name in scales:
            continue
        if name in row_lengths:
            try:
                arrays[name] = four_bits.unpacked(name, array, row_lengths[name])
            except ValueError as error:
                raise _damaged(path, str(error)) from None
            continue
        whole = array.astype(np.float32)
        if array.dtype == np.int8:
            scale = packed.get(name + _SCALE)
            if scale is None or scale.shape != array.shape[:-1] or array.ndim == 0:
                raise _damaged(path, f"its array {name} has no scale that fits it")
            whole *= scale.astype(np.float32)[..., None]
        arrays[name] = whole
    return arrays
