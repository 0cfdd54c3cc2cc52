"""A file of what a predictor learned for one model: arrays, numbers, and where they are from.

A container (backend.traces.container) of kind "predictor". Its header has the predictor's name and
numbers
as backend/native/core/predict knows them (each predictor's header file lists its arrays), the
model's sizes, and `about`: whatever else is worth knowing, for people. Arrays are kept as f4 or f2,
as whole numbers (counts, token ids), as i1 with an array "<name>.scale" that has a factor for each
row, a row being the last dimension, or as q4: four bits for a value and a factor for each group of
a row, see four_bits.py. In memory all are float32.
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
from backend.traces import container
from backend.traces.container import ContainerError
from backend.weights import four_bits

KIND = "predictor"
VERSION = 2
"""1: without q4."""
LEARNING = ("correlation", "eam", "expert_mlp", "learned", "popularity", "token_table")
"""The predictors that learn, and so may have a file."""

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
    """What a predictor learned."""

    name: str
    """One of LEARNING."""
    sizes: PredictorSizes
    arrays: Mapping[str, Floats]
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    about: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What JSON can say: the recipe, the accuracy per layer, the date."""

    def fault(self) -> str | None:
        """Why no such predictor can be made, the end of a sentence; None if it can."""
        if self.name not in LEARNING:
            return f"it is of a predictor called {ascii(self.name[:40])}, which learns nothing here"
        s = self.sizes
        try:
            spec = _native.Spec(self.name, dict(self.numbers), dict(self.arrays))
            shape = _native.Shape(s.n_expert, s.n_expert_used, [[1]] * s.n_layer)
            _native.check_predictor(spec, shape, s.n_embd)
        except ValueError as error:
            text = str(error)
            return text[:1].lower() + text[1:]
        return None


def write(
    path: Path,
    model: str,
    weights: PredictorWeights,
    storage: Mapping[str, Storage] = MappingProxyType({}),
) -> None:
    """Write a file as a whole or not at all, for the model of this ModelFile.fingerprint.

    `storage`: how an array is kept, by its name or by what follows the name's last dot; "f4" is the
    default. "i1" keeps a value within half a 127th of its row's largest, "q4" within an 8th of its
    group's. Raises ContainerError when the file cannot be written, and ValueError, a sentence, for
    weights that make no predictor or do not fit their storage.
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
    """Read the file of a model of this fingerprint and these sizes.

    Raises ContainerError, one sentence, for a file of another model, one that is cut short or
    damaged, of a newer version, with values that are not numbers, or of arrays of wrong shapes.
    """
    path = Path(path)
    header, packed = container.read(path, KIND, VERSION)
    container.require_model(path, header, model)
    if header.get("sizes") != asdict(sizes):
        raise ContainerError(path, "it was made for a model of other sizes")
    name, numbers, about = (header.get(key) for key in ("predictor", "numbers", "about"))
    if not isinstance(name, str) or not isinstance(about, dict):
        raise ContainerError(path, "its header does not say what it holds")
    if not isinstance(numbers, dict) or not all(
        isinstance(n, int | float) and abs(n) < 2**53 for n in numbers.values()
    ):
        raise ContainerError(path, "its header has numbers that are none")
    if name not in LEARNING:  # before a lot of memory is asked for
        fault: str | None = f"it is of a predictor called {ascii(name[:40])}"
        raise ContainerError(path, f"{fault}, which this Outrider does not know")
    weights = PredictorWeights(
        name,
        sizes,
        _unpacked(path, packed, header.get("q4", {})),
        {key: float(value) for key, value in numbers.items()},
        about,
    )
    if fault := weights.fault():
        raise ContainerError(path, fault)
    return weights


def _packed(name: str, array: Floats, storage: Storage) -> dict[str, NDArray[Any]]:
    """An array as it is kept, with its scale if it has one."""
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
    """All arrays as float32. row_lengths: those of q4, as the header has them."""
    if not isinstance(row_lengths, dict) or not row_lengths.keys() <= packed.keys():
        raise ContainerError(path, "its header does not say what it holds")
    arrays = {}
    scales = {f"{name}{_SCALE}" for name, array in packed.items() if array.dtype == np.int8}
    for name, array in packed.items():
        if name in scales:
            continue
        if name in row_lengths:
            try:
                arrays[name] = four_bits.unpacked(name, array, row_lengths[name])
            except ValueError as error:
                raise ContainerError(path, str(error)) from None
            continue
        whole = array.astype(np.float32)
        if array.dtype == np.int8:
            scale = packed.get(name + _SCALE)
            if scale is None or scale.shape != array.shape[:-1] or array.ndim == 0:
                raise ContainerError(path, f"its array {name} has no scale that fits it")
            whole *= scale.astype(np.float32)[..., None]
        arrays[name] = whole
    return arrays
