"""Finds what was learned for a model, so that an engine uses it by itself.

Weights files (backend.weights.file) lie in the application's data folder, where trained ones are
put, or beside the model, where the embedded model's lies in assets. A file that is not fit, or is
of another model, is left out with a sentence: without it an engine is slower, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from backend.gguf.model_file import ModelFile
from backend.methods.compose import Learned
from backend.system.paths import data_folder
from backend.weights.file import LEARNING, PredictorSizes, PredictorWeights, read

__all__ = ["SUFFIX", "beside", "in_data_folder", "load", "sizes_of", "weights_of"]

SUFFIX = ".predictor"
FILE_BYTES_MAX = 1 << 30
"""A larger file is no predictor's: it is not read."""

_PART_OF_SPLIT = re.compile(r"-00001-of-\d{5}$")


def sizes_of(file: ModelFile) -> PredictorSizes:
    """What a model's predictors depend on."""
    width = file.key("embedding_length", 0)
    return PredictorSizes(
        n_layer=file.n_moe_layer,
        n_expert=file.n_expert,
        n_expert_used=file.n_expert_used,
        n_embd=width if isinstance(width, int) else 0,
    )


def beside(file: ModelFile, name: str) -> Path:
    """Where the weights of the predictor `name` lie beside a model."""
    stem = _PART_OF_SPLIT.sub("", file.path.stem)
    return file.path.with_name(f"{stem}.{name}{SUFFIX}")


def in_data_folder(file: ModelFile, name: str) -> Path:
    """Where the weights of the predictor `name` lie in the application's data folder."""
    return data_folder() / "predictors" / f"{file.fingerprint[:32]}.{name}{SUFFIX}"


def load(file: ModelFile) -> tuple[Learned, str]:
    """What was learned for a model, and a remark for the user about files that are not used.

    Never raises for what is in a file. The first file that fits is taken for each predictor.
    """
    arrays, numbers, refusals = {}, {}, []
    for name in LEARNING:
        found, remarks = weights_of(file, name)
        refusals += remarks
        if found is not None:
            arrays[name], numbers[name] = found.arrays, found.numbers
    return Learned(arrays, numbers), " ".join(refusals)


def weights_of(file: ModelFile, name: str) -> tuple[PredictorWeights | None, list[str]]:
    """The first fitting weights of one predictor, and why the files before it do not fit."""
    refusals = []
    for path in _places(file, name):
        try:
            if not path.is_file():
                continue
            if path.stat().st_size > FILE_BYTES_MAX:
                refusals.append(f"{path.name} cannot be used: it is too large for a predictor.")
                continue
            weights = read(path, file.fingerprint, sizes_of(file))
        except (OSError, ValueError, MemoryError) as error:
            text = str(error) if isinstance(error, ValueError) else "it cannot be read."
            refusals.append(text if path.name in text else f"{path.name} cannot be used: {text}")
            continue
        if weights.name == name:
            return weights, refusals
        refusals.append(f"{path.name} cannot be used: it is of the predictor {weights.name}.")
    return None, refusals


def _places(file: ModelFile, name: str) -> Iterator[Path]:
    yield in_data_folder(file, name)
    yield beside(file, name)
