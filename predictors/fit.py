"""Turn traces into weights files. This is the entry to training for every predictor."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from backend.gguf.model_file import ModelFile
from backend.traces.trace import Trace
from backend.weights import file as predictor_file
from backend.weights.file import PredictorWeights, Storage
from predictors import learned, model_arrays, networks, tables
from predictors.routings import Routings

_COUNTED = {
    "correlation": tables.correlation,
    "token_table": tables.token_table,
    "eam": tables.eam,
    "popularity": tables.popularity,
}
_STORAGE: dict[str, dict[str, Storage]] = {
    "expert_mlp": {**{f"w{i}": "i1" for i in range(7)}, "affinity": "f2"},
    "token_table": tables.STORAGE,
}


def fit(
    method: str,
    traces: Sequence[Trace],
    file: ModelFile,
    *,
    strides: tuple[int, ...],
    minutes: float,
    epochs: int,
    checkpoint: Path | None,
    progress: Callable[[float, str], None],
    of_paper: bool = False,
) -> PredictorWeights:
    """Train one predictor of the model that the traces are of.

    of_paper: "learned" has ProMoE's own network instead of ours. minutes, epochs: training stops at
    the first limit that it reaches. Raise ValueError with one sentence if the traces do not
    suffice. "expert_mlp" needs torch.
    """
    about = {
        "date": datetime.date.today().isoformat(),
        "tokens": sum(len(trace.tokens) for trace in traces),
    }
    if method in _COUNTED:
        found = _COUNTED[method](traces)
        return replace(found, about={**found.about, **about})
    if method == "expert_mlp":
        from predictors import expert_mlp  # needs torch, which packages do not have

        found = expert_mlp.train(traces, minutes=minutes, epochs=epochs, progress=progress)
        return replace(found, about={**found.about, **about})
    data = Routings.of(traces)
    embedding = model_arrays.vocabulary(file)
    n_vocab = embedding.shape[1] if embedding is not None else 0
    if of_paper:
        design = networks.Design.of_paper(data.sizes, strides)
    else:
        dense_bytes = file.file_size_bytes - file.expert_bytes_total
        design = networks.Design.fitting(data.sizes, strides, dense_bytes, n_vocab)
    rows = None
    if design.token_rank and embedding is not None and (data.tokens >= 0).any():
        rows = model_arrays.token_rows(file, embedding, design.token_rank)
    routers = None if of_paper else model_arrays.routers(file, traces[0].layers)
    model = networks.Model(data.sizes, design, routers, rows)
    run = learned.train(
        data, model, minutes=minutes, epochs=epochs, checkpoint=checkpoint, progress=progress
    )
    _, held_out = data.split()
    about |= {"seconds": round(run.spent_s), "epochs": run.epoch, "history": run.history}
    return learned.weights(model, data, held_out, about)


def write(path: Path, model: str, weights: PredictorWeights) -> None:
    """Write a weights file in the smallest types that cost no accuracy. Raise ContainerError."""
    is_learned = weights.name == "learned"
    storage = networks.storage(weights.arrays) if is_learned else _STORAGE.get(weights.name, {})
    predictor_file.write(path, model, weights, storage)
