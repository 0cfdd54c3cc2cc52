"""Finds the trained predictor weights of a model, so that the engine uses them unasked.

Weights files (backend.weights.file) are searched in two places. The application's data folder
holds those that were trained on this machine. The model's own folder holds those that came with the
model, such as the embedded model's in assets. A damaged or unfit file is skipped with a sentence:
without it the engine is slower, and its answers are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from backend.gguf.model_file import ModelFile
from backend.methods.compose import Learned
from backend.system.paths import data_folder
from backend.text import joined, text
from backend.traces.container import ContainerError
from backend.weights.file import LEARNING, PredictorSizes, PredictorWeights, read

__all__ = ["SUFFIX", "beside", "in_data_folder", "load", "sizes_of", "weights_of"]

SUFFIX = ".predictor"
FILE_BYTES_MAX = 1 << 30
"""A larger file is not read: it cannot be a predictor."""

_PART_OF_SPLIT = re.compile(r"-00001-of-\d{5}$")


def sizes_of(file: ModelFile) -> PredictorSizes:
    """Return the sizes of a model that its predictors depend on."""
    width = file.key("embedding_length", 0)
    return PredictorSizes(
        n_layer=file.n_moe_layer,
        n_expert=file.n_expert,
        n_expert_used=file.n_expert_used,
        n_embd=width if isinstance(width, int) else 0,
    )


def beside(file: ModelFile, name: str) -> Path:
    """Return the path of the weights of the predictor `name` beside the model."""
    stem = _PART_OF_SPLIT.sub("", file.path.stem)
    return file.path.with_name(f"{stem}.{name}{SUFFIX}")


def in_data_folder(file: ModelFile, name: str) -> Path:
    """Return the path of the weights of the predictor `name` in the application's data folder."""
    return data_folder() / "predictors" / f"{file.fingerprint[:32]}.{name}{SUFFIX}"


def load(file: ModelFile) -> tuple[Learned, str]:
    """Return the trained weights of a model, and remarks for the user on the files not used.

    Take the first valid file for each predictor. The contents of a file never raise.
    """
    arrays, numbers, refusals = {}, {}, []
    for name in LEARNING:
        found, remarks = weights_of(file, name)
        refusals += remarks
        if found is not None:
            arrays[name], numbers[name] = found.arrays, found.numbers
    return Learned(arrays, numbers), joined(*refusals)


def weights_of(file: ModelFile, name: str) -> tuple[PredictorWeights | None, list[str]]:
    """Return the first valid weights of one predictor, and why the files before them are not."""
    refusals: list[str] = []
    for path in _places(file, name):
        try:
            if not path.is_file():
                continue
            if path.stat().st_size > FILE_BYTES_MAX:
                raise ContainerError(path, text("weights.too_large"))
            weights = read(path, file.fingerprint, sizes_of(file))
            if weights.name == name:
                return weights, refusals
            raise ContainerError(path, text("weights.other_predictor", name=weights.name))
        except ContainerError as error:
            refusals.append(str(error))
        except (OSError, ValueError, MemoryError) as error:
            why = text("model.unreadable", reason=getattr(error, "strerror", "") or str(error))
            refusals.append(str(ContainerError(path, why)))
    return None, refusals


def _places(file: ModelFile, name: str) -> Iterator[Path]:
    yield in_data_folder(file, name)
    yield beside(file, name)
