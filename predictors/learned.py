"""Train the predictor `learned`: a two-layer network per layer and stride (ProMoE, section 4.3).

The loss is the cross-entropy with the router's probabilities. The network thus learns the scores
of nearly chosen experts too. docs/log/predictors.md compares the losses that were tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from backend.weights.file import PredictorWeights
from predictors.networks import Design, Networks, Rounding, TokenNetworks
from predictors.rounding import Factors
from predictors.routings import Routings

BATCH = 1024
RATE = 3e-3
WITHOUT_BEFORE = 0.15
"""Share of tokens trained without the previous token's experts: a prompt does not know them."""
WARM_UP_STEPS = 50
PATIENCE = 2
"""Number of epochs without a better held-out accuracy after which training ends."""
CHECKPOINT_S = 20.0
UNROUNDED = 0.6
"""Share of the training after which the forward pass uses the rounded weights of the file."""
MAIN = 0.85
"""Share of the time after which only factors and biases are trained (see _finish)."""
FACTOR_RATE, BIAS_RATE = 1e-4, 3e-4

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
    best_state: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


class Model(torch.nn.Module):
    """The networks of all layers, and the token networks of the first layers."""

    def __init__(
        self,
        data: Routings,
        design: Design,
        routers: Tensor | None,
        rows: Tensor | None,
    ) -> None:
        super().__init__()
        self.design = design
        self.of_layers = Networks(data.sizes, design, routers)
        self.of_tokens = None
        if rows is not None and design.token_rank and bool((data.tokens >= 0).any()):
            self.of_tokens = TokenNetworks(data.sizes, design, rows)

    @property
    def parts(self) -> list[Rounding]:
        """Return the kinds of networks that this model has."""
        return [self.of_layers] if self.of_tokens is None else [self.of_layers, self.of_tokens]

    def round(self, yes: bool) -> None:
        """Compute with the weights rounded as in the file (yes), or with the full weights."""
        for part in self.parts:
            part.is_rounded = yes

    def loss(self, data: Routings, rows: Tensor) -> Tensor:
        """Return the loss: sum over the networks, mean over the tokens."""
        keeps = (torch.rand(1, len(rows), 1) > WITHOUT_BEFORE).float()
        x, before, wanted, _, counts = self.of_layers.batch(data, rows)
        total = _loss(self.of_layers(x, before * keeps), wanted, counts)
        if self.of_tokens is not None:
            tokens, last, before, wanted, _, counts = self.of_tokens.batch(data, rows)
            scores = self.of_tokens(tokens, last * keeps[0], before * keeps)
            total = total + _loss(scores, wanted, counts)
        return total

    @torch.no_grad()
    def accuracy(self, data: Routings, rows: Tensor) -> tuple[list[float], list[float]]:
        """Return, for each network, the share of its k best experts that were chosen.

        The first list is of (layer, stride) pairs, the second of the first layers' token networks.
        Weights are rounded as in the file.
        """
        self.round(True)
        layers, firsts = _Shares(), _Shares()
        for part in torch.split(rows, 4 * BATCH):
            x, before, _, ids, counts = self.of_layers.batch(data, part)
            layers.add(self.of_layers(x, before), ids, counts)
            if self.of_tokens is not None:
                tokens, last, before, _, ids, counts = self.of_tokens.batch(data, part)
                firsts.add(self.of_tokens(tokens, last, before), ids, counts)
        return layers.shares(), firsts.shares()

    def weights(self, data: Routings, rows: Tensor, about: dict[str, Any]) -> PredictorWeights:
        """Return the arrays that the engine loads, with the accuracy on held-out rows."""
        arrays = self.of_layers.arrays()
        of_layers, of_first = self.accuracy(data, rows)
        by_stride: dict[str, Any] = {}
        for (layer, stride), target, share in zip(
            self.of_layers.pairs, self.of_layers.targets, of_layers, strict=True
        ):
            of_stride = by_stride.setdefault(str(stride), {})
            of_stride[str(target)] = round(share, 4)
            if layer + stride >= data.sizes.n_layer and target < len(of_first):
                of_stride[f"{target} before its token is known"] = round(share, 4)
                of_stride[str(target)] = round(of_first[target], 4)
        if self.of_tokens is not None:
            arrays |= self.of_tokens.arrays()
        return PredictorWeights(
            "learned",
            data.sizes,
            arrays,
            {"activation": 0, "bytes": int(self.design.in_bytes(data.sizes))},
            {
                **about,
                "strides": list(self.design.strides),
                "hidden_width": self.design.n_hidden,
                "token_rank": self.design.token_rank,
                "accuracy_by_stride_and_layer": by_stride,
            },
        )


class _Shares:
    """Accumulate, for each network, the share of the k best that was right."""

    def __init__(self) -> None:
        self.right: Tensor | None = None
        self.n: Tensor | None = None

    def add(self, scores: Tensor, ids: Tensor, counts: Tensor) -> None:
        n_used = ids.shape[2]
        best = scores.topk(n_used, -1).indices
        found = (best.unsqueeze(-1) == ids.unsqueeze(-2)).any(-1).float().mean(-1)
        right, n = (found * counts).sum(1), counts.sum(1)
        self.right = right if self.right is None else self.right + right
        self.n = n if self.n is None else self.n + n

    def shares(self) -> list[float]:
        if self.right is None or self.n is None:
            return []
        values: list[float] = (self.right / self.n.clamp(min=1)).tolist()
        return values


def _loss(scores: Tensor, wanted: Tensor, counts: Tensor) -> Tensor:
    entropy = -(wanted.float() * torch.log_softmax(scores, -1)).sum(-1)
    return (entropy * counts).mean(1).sum()


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
    torch.manual_seed(seed)
    train_rows, held_out = data.split()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
    run = _resume(checkpoint, model, optimiser, data)
    batch = min(BATCH, max(len(train_rows) // 8, 1))
    n_step = max(len(train_rows) // batch, 1)
    before_s, began_s = run.spent_s, time.monotonic()
    saved_s = began_s
    while run.epoch < epochs and run.epoch - run.best_epoch < PATIENCE:
        generator = torch.Generator().manual_seed(seed * 1000 + run.epoch)
        order = train_rows[torch.randperm(len(train_rows), generator=generator)]
        while run.step < n_step:
            run.spent_s = before_s + time.monotonic() - began_s
            by_steps = (run.epoch + run.step / n_step) / epochs
            done = max(by_steps, run.spent_s / (60 * minutes * MAIN))
            if done >= 1:
                break
            model.round(done > UNROUNDED)
            begin = run.step * batch
            warm = min(1.0, (run.epoch * n_step + run.step + 1) / WARM_UP_STEPS)
            for group in optimiser.param_groups:
                group["lr"] = RATE * warm * (1 - done)
            loss = model.loss(data, order[begin : begin + batch])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            run.step += 1
            reported_s = time.monotonic()
            progress(done * MAIN, _progress_text(run, epochs, done))
            began_s += time.monotonic() - reported_s  # the caller may pause training in progress()
            if checkpoint is not None and time.monotonic() - saved_s > CHECKPOINT_S:
                _save(checkpoint, model, optimiser, run, data)
                saved_s = time.monotonic()
        is_over = run.step < n_step
        run.epoch, run.step = run.epoch + 1, 0
        _evaluate(run, model, data, held_out)
        if checkpoint is not None:
            _save(checkpoint, model, optimiser, run, data)
        if is_over:
            break
    if run.best_state:
        model.load_state_dict(run.best_state)
    _finish(data, model, run, 60 * minutes - run.spent_s, progress)
    return run


def _finish(data: Routings, model: Model, run: Run, budget_s: float, progress: Progress) -> None:
    """Train factors and biases of the rounded weights, one epoch at most. Keep them if better."""
    train_rows, held_out = data.split()
    kept = [pair for part in model.parts for pair in part.kept_parameters()]
    factors, chosen = Factors(kept), {id(parameter) for parameter, _ in kept}
    model.round(False)  # Factors has rounded them already
    rest = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    groups = [(factors.factors, FACTOR_RATE), (rest, BIAS_RATE)]
    optimiser = torch.optim.Adam([{"params": p, "lr": rate} for p, rate in groups])
    order = train_rows[torch.randperm(len(train_rows), generator=torch.Generator().manual_seed(7))]
    batches = torch.split(order, min(BATCH, max(len(train_rows) // 8, 1)))
    left_s = budget_s
    for number, rows in enumerate(batches):
        began_s = time.monotonic()
        done = max(number / len(batches), 1 - left_s / max(budget_s, 1e-9))
        if done >= 1:
            break
        for group, (_, rate) in zip(optimiser.param_groups, groups, strict=True):
            group["lr"] = rate * (1 - done)
        optimiser.zero_grad(set_to_none=True)
        model.loss(data, rows).backward()  # type: ignore[no-untyped-call]
        factors.take_gradients()
        optimiser.step()
        factors.put()
        left_s -= time.monotonic() - began_s
        progress(MAIN + (1 - MAIN) * done, f"factors, {max(run.best, 0):.1%} right before")
    before = run.best
    _evaluate(run, model, data, held_out)
    if run.best == before and run.best_state:
        model.load_state_dict(run.best_state)


def _progress_text(run: Run, epochs: int, done: float) -> str:
    left_s = run.spent_s * (1 - done) / max(done, 1e-3)
    accuracy = f", {run.best:.1%} right" if run.history else ""
    return f"epoch {run.epoch + 1} of {epochs}{accuracy}, {left_s:.0f} s left"


def _evaluate(run: Run, model: Model, data: Routings, held_out: Tensor) -> None:
    """Measure the accuracy on the held-out requests. Keep the state if it is the best."""
    of_layers, of_first = model.accuracy(data, held_out)
    mean = sum(of_layers + of_first) / max(len(of_layers + of_first), 1)
    run.history.append({"epoch": run.epoch, "accuracy": round(mean, 4)})
    if mean > run.best:
        run.best, run.best_epoch = mean, run.epoch
        run.best_state = {name: value.clone() for name, value in model.state_dict().items()}


def _key(model: Model, data: Routings) -> list[int]:
    """Return a key of data and design; a checkpoint must have the same."""
    return [data.n, int(data.ids[:, :: max(data.n // 97, 1)].sum()), model.design.n_hidden]


def _save(
    path: Path, model: Model, optimiser: torch.optim.Optimizer, run: Run, data: Routings
) -> None:
    partial = path.with_name(path.name + ".partial")
    values = {
        "key": _key(model, data),
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "run": dict(vars(run)),
    }
    torch.save(values, partial)
    partial.replace(path)


def _resume(
    path: Path | None, model: Model, optimiser: torch.optim.Optimizer, data: Routings
) -> Run:
    """Load the state of an interrupted run, or return a new one."""
    if path is None or not path.is_file():
        return Run()
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
        if values["key"] != _key(model, data):
            return Run()
        model.load_state_dict(values["model"])
        optimiser.load_state_dict(values["optimiser"])
        return Run(**values["run"])
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError, UnpicklingError):
        return Run()  # the checkpoint is damaged or of another version
