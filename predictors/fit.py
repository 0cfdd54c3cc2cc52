"""Turn traces into weights files. This is the entry to training for every predictor."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from backend.traces.trace import Trace
from backend.weights import file as predictor_file
from backend.weights.file import PredictorWeights, Storage
from predictors import expert_mlp, learned, model_arrays, networks, tables
from predictors.routings import Routings

METHODS = ("learned", "expert_mlp", "correlation", "token_table", "eam", "popularity")
"""Predictors that can be trained. All but the first two are tables of counts."""
_COUNTED = {
    "correlation": tables.correlation,
    "token_table": tables.token_table,
    "eam": tables.eam,
    "popularity": tables.popularity,
}
_STORAGE: dict[str, dict[str, Storage]] = {
    "expert_mlp": expert_mlp.STORAGE,
    "token_table": tables.STORAGE,
}


def fit(
    method: str,
    traces: Sequence[Trace],
    model_paths: Sequence[Path],
    *,
    strides: tuple[int, ...],
    dense_bytes: int,
    n_vocab: int,
    minutes: float,
    epochs: int,
    checkpoint: Path | None,
    progress: Callable[[float, str], None],
    of_paper: bool = False,
) -> PredictorWeights:
    """Train one predictor.

    of_paper: "learned" has ProMoE's own network instead of ours. dense_bytes: size of the model's
    dense weights. minutes, epochs: training stops at the first limit that it reaches. Raise
    ValueError with one sentence if the traces do not suffice.
    """
    torch.set_num_threads(1)
    n_token = sum(len(trace.tokens) for trace in traces)
    about = {
        "date": datetime.date.today().isoformat(),
        "tokens": n_token,
        "torch": torch.__version__.split("+")[0],
    }
    if method in _COUNTED:
        found = _COUNTED[method](traces)
        return replace(found, about={**found.about, **about})
    if method == "expert_mlp":
        found = expert_mlp.train(traces, minutes=minutes, epochs=epochs, progress=progress)
        return replace(found, about={**found.about, **about})
    data = Routings.of(traces)
    design = (
        networks.Design.of_paper(data.sizes, strides)
        if of_paper
        else networks.Design.fitting(data.sizes, strides, dense_bytes, n_vocab)
    )
    rows = None
    if design.token_rank:
        rows = model_arrays.token_rows(model_paths, n_vocab, design.token_rank)
    routers = None if of_paper else model_arrays.routers(model_paths, traces[0].layers)
    model = learned.Model(data, design, routers, rows)
    run = learned.train(
        data, model, minutes=minutes, epochs=epochs, checkpoint=checkpoint, progress=progress
    )
    _, held_out = data.split()
    about |= {"seconds": round(run.spent_s), "epochs": run.epoch, "history": run.history}
    return model.weights(data, held_out, about)


def write(path: Path, model: str, weights: PredictorWeights) -> None:
    """Write a weights file in the smallest types that cost no accuracy. Raise ContainerError."""
    is_learned = weights.name == "learned"
    storage = networks.storage(weights.arrays) if is_learned else _STORAGE.get(weights.name, {})
    predictor_file.write(path, model, weights, storage)
