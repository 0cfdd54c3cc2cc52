"""Train the predictor `learned`: a two-layer network per layer and stride (ProMoE, section 4.3).

The loss is the cross-entropy with the router's probabilities. The network thus learns the scores
of nearly chosen experts too. docs/log/predictors.md compares the losses that were tried.

Equal data, design and seed give equal weights on the same machine, unless time runs out first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.traces import container
from backend.traces.container import ContainerError
from backend.weights.file import PredictorWeights
from backend.weights.four_bits import group_of
from predictors.adam import Adam
from predictors.networks import ROUNDED, Model, Span
from predictors.rounding import in_half, split
from predictors.routings import Floats, Routings, Rows

BATCH = 1024
RATE = 3e-3
BETAS, DECAY = (0.9, 0.98), 0.01
WITHOUT_BEFORE = 0.15
"""Share of tokens trained without the previous token's experts: a prompt does not know them."""
WARM_UP_STEPS = 50
PATIENCE = 2
"""Number of epochs without a better held-out accuracy after which training ends."""
CHECKPOINT_S = 20.0
CHECKPOINT_SHARE = 0.05
"""Largest share of the time that checkpoints of a large model may take."""
UNROUNDED = 0.6
"""Share of the training after which the forward pass uses the rounded weights of the file."""
MAIN = 0.85
"""Share of the time after which only factors and biases are trained (see _finish)."""
FACTOR_RATE, BIAS_RATE = 1e-4, 3e-4
FINISH_BETAS = (0.9, 0.999)
FINISH = 1 << 32
"""Takes the place of an epoch's number in the seeds of _finish."""

_KIND, _VERSION = "outrider-checkpoint", 1

Progress = Callable[[float, str], None]
"""Receives the share that is done, and a few words about the present step."""


@dataclass
class Run:
    """State of a training run that a checkpoint holds besides the parameters."""

    epoch: int = 0
    step: int = 0
    spent_s: float = 0.0
    best: float = -1.0
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass
class _State:
    """The state from which an interrupted training continues."""

    model: Model
    adam: Adam
    run: Run
    best: Floats
    """The values with the best held-out accuracy; empty before the first epoch ends."""


def weights(model: Model, data: Routings, rows: Rows, about: dict[str, Any]) -> PredictorWeights:
    """Return the arrays that the engine loads, with the accuracy on held-out rows."""
    n_layer, design = data.sizes.n_layer, model.design
    of_layers, of_first = model.accuracy(data, rows)
    by_stride: dict[str, Any] = {str(stride): {} for stride in design.strides}
    for (layer, stride), target, share in zip(model.pairs, model.targets, of_layers, strict=True):
        of_stride = by_stride[str(stride)]
        of_stride[str(target)] = round(share, 4)
        if layer + stride >= n_layer and target < len(of_first):
            of_stride[f"{target} before its token is known"] = round(share, 4)
            of_stride[str(target)] = round(of_first[target], 4)
    return PredictorWeights(
        "learned",
        data.sizes,
        model.named_arrays(),
        {"activation": 0, "bytes": int(design.in_bytes(data.sizes))},
        {
            **about,
            "strides": list(design.strides),
            "hidden_width": design.n_hidden,
            "token_rank": design.token_rank,
            "accuracy_by_stride_and_layer": by_stride,
        },
    )


def train(
    data: Routings,
    model: Model,
    *,
    minutes: float,
    epochs: int,
    checkpoint: Path | None,
    progress: Progress,
    seed: int = 1,
) -> Run:
    """Train until time or epochs run out, or accuracy stops improving. Keep the best epoch.

    Continue from `checkpoint` if it belongs to the same data and design.
    """
    train_rows, held_out = data.split()
    adam = Adam(len(model.values), BETAS, DECAY)
    state = _State(model, adam, Run(), np.empty(0, np.float32))
    if checkpoint is not None:
        _resume(checkpoint, state, data)
    run = state.run
    batch = min(BATCH, max(len(train_rows) // 8, 1))
    n_step = max(len(train_rows) // batch, 1)
    before_s, began_s = run.spent_s, time.monotonic()
    due_s = began_s + CHECKPOINT_S
    while run.epoch < epochs and run.epoch - run.best_epoch < PATIENCE:
        order = np.random.default_rng([seed, run.epoch]).permutation(train_rows)
        while run.step < n_step:
            run.spent_s = before_s + time.monotonic() - began_s
            by_steps = (run.epoch + run.step / n_step) / epochs
            by_time = run.spent_s / (60 * minutes * MAIN) if by_steps else 0.0
            done = max(by_steps, by_time)
            if done >= 1:
                break
            model.is_rounded = done > UNROUNDED
            begin = run.step * batch
            warm = min(1.0, (run.epoch * n_step + run.step + 1) / WARM_UP_STEPS)
            rate = RATE * warm * (1 - done)
            adam.begin_step()
            rows = order[begin : begin + batch]
            keeps = _keeps(len(rows), [seed, run.epoch, run.step])
            model.gradients(data, rows, keeps, partial(_step, model, adam, rate))
            run.step += 1
            reported_s = time.monotonic()
            progress(done * MAIN, _progress_text(run, epochs, done))
            began_s += time.monotonic() - reported_s  # the caller may pause training in progress()
            if checkpoint is not None and time.monotonic() > due_s:
                due_s = _save(checkpoint, state, data)
        is_over = run.step < n_step
        run.epoch, run.step = run.epoch + 1, 0
        _evaluate(state, data, held_out)
        if checkpoint is not None:
            due_s = _save(checkpoint, state, data)
        if is_over:
            break
    if len(state.best):
        model.values[:] = state.best
    _finish(data, state, 60 * minutes - run.spent_s, progress, seed)
    return run


def _step(model: Model, adam: Adam, rate: float, span: Span, gradient: Floats) -> None:
    adam.update(span.begin, span.of(model.values), gradient, rate)


def _keeps(n: int, seed: list[int]) -> Floats:
    """Return [n]: 0 for the tokens to train without the token before, otherwise 1."""
    drawn = np.random.default_rng(seed).random(n, np.float32)
    return (drawn > WITHOUT_BEFORE).astype(np.float32)


class Factors:
    """The factors of the groups of a model's four-bit weights, for training with fixed numbers.

    The loss is smooth in the factors, whereas training through the rounding stays noisy. Biases and
    scales are trained too.
    """

    def __init__(self, model: Model) -> None:
        """Round the model's weights."""
        self._model = model
        self._numbers: dict[tuple[str, str], NDArray[np.int8]] = {}
        self._places: dict[tuple[str, str], tuple[int, int]] = {}
        found: list[Floats] = []
        n = 0
        for span in model.spans:
            for name, array in model.arrays(span).items():
                if name in ROUNDED:
                    if not group_of(array.shape[-1]):
                        continue
                    values, numbers = split(array)
                    self._numbers[span.name, name] = numbers.astype(np.int8)
                    array[:] = (values * numbers).reshape(array.shape)
                else:
                    values = array
                self._places[span.name, name] = n, n + values.size
                found.append(values.ravel())
                n += values.size
        self.values = np.concatenate(found)
        self._adam = Adam(n, FINISH_BETAS)

    def begin_step(self) -> None:
        """Count a step."""
        self._adam.begin_step()

    def update(self, share: float, span: Span, gradient: Floats) -> None:
        """Change a network's factors and biases, at a share of the full rates."""
        arrays = self._model.arrays(span)
        for name, of_array in span.arrays(gradient).items():
            if (place := self._places.get((span.name, name))) is None:
                continue
            values = self.values[slice(*place)]
            numbers = self._numbers.get((span.name, name))
            if numbers is None:
                self._adam.update(place[0], values, of_array.ravel(), BIAS_RATE * share)
                arrays[name][:] = values.reshape(of_array.shape)
                continue
            of_factors = np.einsum("gn,gn->g", of_array.reshape(numbers.shape), numbers)
            self._adam.update(place[0], values, of_factors, FACTOR_RATE * share)
            arrays[name][:] = (in_half(values)[:, None] * numbers).reshape(of_array.shape)


def _finish(data: Routings, state: _State, budget_s: float, progress: Progress, seed: int) -> None:
    """Train factors and biases of the rounded weights, one epoch at most. Keep them if better."""
    train_rows, held_out = data.split()
    model, run = state.model, state.run
    factors = Factors(model)
    model.is_rounded = False  # Factors has rounded them already
    order = np.random.default_rng([seed, FINISH]).permutation(train_rows)
    batch = min(BATCH, max(len(train_rows) // 8, 1))
    left_s = budget_s
    for begin in range(0, len(order), batch):
        began_s = time.monotonic()
        done = max(begin / len(order), 1 - left_s / max(budget_s, 1e-9))
        if done >= 1:
            break
        rows = order[begin : begin + batch]
        factors.begin_step()
        keeps = _keeps(len(rows), [seed, FINISH, begin])
        model.gradients(data, rows, keeps, partial(factors.update, 1 - done))
        left_s -= time.monotonic() - began_s
        progress(MAIN + (1 - MAIN) * done, f"factors, {max(run.best, 0):.1%} right before")
    before = run.best
    _evaluate(state, data, held_out)
    if run.best == before and len(state.best):
        model.values[:] = state.best


def _progress_text(run: Run, epochs: int, done: float) -> str:
    left_s = run.spent_s * (1 - done) / max(done, 1e-3)
    accuracy = f", {run.best:.1%} right" if run.history else ""
    return f"epoch {run.epoch + 1} of {epochs}{accuracy}, {left_s:.0f} s left"


def _evaluate(state: _State, data: Routings, held_out: Rows) -> None:
    """Measure the accuracy on the held-out requests. Keep the values if they are the best."""
    run = state.run
    of_layers, of_first = state.model.accuracy(data, held_out)
    mean = sum(of_layers + of_first) / max(len(of_layers + of_first), 1)
    run.history.append({"epoch": run.epoch, "accuracy": round(mean, 4)})
    if mean > run.best:
        run.best, run.best_epoch = mean, run.epoch
        state.best = state.model.values.copy()


def _key(model: Model, data: Routings) -> list[Any]:
    """Return a key of data and design; a checkpoint must have the same."""
    some = data.ids[:, :: max(data.n // 97, 1)]
    return [data.n, int(some.sum()), len(model.values), repr(model.design)]


def _save(path: Path, state: _State, data: Routings) -> float:
    """Write a checkpoint. Return when the next one is due."""
    began_s = time.monotonic()
    header = {
        "kind": _KIND,
        "version": _VERSION,
        "model": "",
        "key": _key(state.model, data),
        "run": asdict(state.run),
        "n_step": state.adam.n_step,
    }
    arrays = {
        "values": state.model.values,
        "mean": state.adam.mean,
        "square": state.adam.square,
        "best": state.best,
    }
    container.write(path, header, arrays)
    now_s = time.monotonic()
    return now_s + max(CHECKPOINT_S, (now_s - began_s) / CHECKPOINT_SHARE)


def _resume(path: Path, state: _State, data: Routings) -> None:
    """Load the state of an interrupted run, if there is one of the same data and design."""
    for unfinished in path.parent.glob(f"{path.name}.*.part"):  # of a process that was killed
        unfinished.unlink(missing_ok=True)
    model, adam = state.model, state.adam
    try:
        header, arrays = container.read(path, _KIND, _VERSION)
        if header["key"] != _key(model, data):
            return
        run = Run(**header["run"])
        n = len(model.values)
        if any(len(arrays[name]) != n for name in ("values", "mean", "square")):
            return
    except (ContainerError, KeyError, TypeError):
        return  # the checkpoint is damaged or of another version
    model.values[:], adam.mean[:], adam.square[:] = (
        arrays[name] for name in ("values", "mean", "square")
    )
    adam.n_step, state.run, state.best = int(header["n_step"]), run, arrays["best"]
