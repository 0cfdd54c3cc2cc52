"""Training runs: pretraining on text, then on chats; each kind may run several times.

A run has a budget of minutes or tokens, and a schedule over it. Its clock adds up the time of all
starts: it runs while the run is paused, and stops while the program does not run. Streams of rows
depend on the seed and on counters only, so the checkpoint holds no other random state. A run that
continues another one takes over its weights, moments and streams, and warms up again.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from predictors.embedded import checkpoint, tokenizer
from predictors.embedded.config import (
    FLOOR_OF_DECAY,
    ModelConfig,
    Stage,
    TrainConfig,
    from_dict,
)
from predictors.embedded.cores import FreeCores
from predictors.embedded.data import (
    InstructStream,
    Rows,
    TextStream,
    Weights,
    heldout_rows,
    instruct_rows,
    text_tokens,
)
from predictors.embedded.kernels import fusing
from predictors.embedded.model import Model, choose_device
from predictors.embedded.optim import Optimiser

HELDOUT_TOKENS = {"wikipedia": 8_000, "books": 8_000}  # scored at every checkpoint


def lr_scale(fraction: float, stage: Stage, rate: float = 1.0) -> float:
    """Return the rate: linear warm-up to `rate`, constant, linear decay to `FLOOR_OF_DECAY`."""
    warm = min(1.0, (fraction + 1e-4) / stage.warmup)
    left = (1.0 - fraction) / (1.0 - stage.decay_from) if fraction > stage.decay_from else 1.0
    return rate * warm * max(FLOOR_OF_DECAY, left)


def keep_freed_memory() -> None:
    """Make glibc reuse large blocks. Otherwise it maps new pages for each tensor."""
    if sys.platform.startswith("linux"):
        try:
            libc = ctypes.CDLL("libc.so.6")
        except OSError:
            return
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        libc.mallopt(-2, 64 << 20)  # M_TOP_PAD


@torch.no_grad()
def bits_per_byte(model: Model, work: Path, source: str, n_token: int) -> tuple[float, Tensor]:
    """Return bits per byte on about `n_token` held-out tokens of a source, in training arithmetic.

    Also return the number of rows that each expert got, [layer, expert].
    """
    bits, n_byte, n_seen = 0.0, 0, 0
    counts = torch.zeros(model.config.n_layer, model.config.n_expert, dtype=torch.int64)
    for ids, size in heldout_rows(work, tokenizer.load(work), source, model.config.n_ctx):
        row = torch.from_numpy(ids).to(model.device)
        weight = torch.ones(1, row.shape[1] - 1, device=model.device)
        loss, _, count = model.loss(row[:, :-1], row[:, 1:], weight)
        bits += loss.item() * (row.shape[1] - 1) / math.log(2)
        counts += count.cpu()
        n_byte += size
        n_seen += row.shape[1] - 1
        if n_seen >= n_token:
            break
    return bits / max(1, n_byte), counts


@dataclass
class Counters:
    """Progress of one run. The last one of a checkpoint's list is the present run."""

    stage: str
    elapsed_s: float = 0.0
    n_token: int = 0
    n_step: int = 0
    settings: dict[str, Any] = field(default_factory=dict)


class Run:
    """One run of a stage: its model, optimiser, streams and counters.

    `work` holds the texts and the tokenizer, `folder` the checkpoint and the log.
    """

    def __init__(
        self,
        work: Path,
        model_config: ModelConfig,
        config: TrainConfig,
        stage: Stage,
        folder: Path | None = None,
        again: bool = False,
    ) -> None:
        self.work, self.config, self.stage = work, config, stage
        self.folder = folder or work
        stored = checkpoint.load(self.folder)
        if stored is not None:
            model_config = from_dict(ModelConfig, stored["model_config"])
        device, dtype = choose_device()
        self.model = Model(model_config, dtype, config.seed).to(device)
        self.optimiser = Optimiser(self.model, config)
        words = tokenizer.load(work)
        self.text = TextStream(text_tokens(work, words, config.seed), config.seed)
        self.chats: InstructStream | None = None  # packed for the present row length
        self.n_token, self.n_chat = 0, 0
        self.runs: list[Counters] = []
        if stored is not None:
            self.optimiser.load_state_dict(stored["optimiser"])
            self.text.restore(stored["text"])
            self.n_token, self.n_chat = stored["n_token"], stored["chats"]
            self.runs = [Counters(**run) for run in stored.get("runs", [])]
        earlier = [run for run in self.runs if run.stage == stage.name]
        unfinished = bool(earlier) and earlier[-1] is self.runs[-1] and not self._over(earlier[-1])
        self.wanted = unfinished or again or not earlier
        if self.wanted and not unfinished:
            self.runs.append(Counters(stage.name))
        self.now = self.runs[-1]
        self.now.settings = asdict(config)

    def _over(self, run: Counters) -> bool:
        return self._fraction(run) >= 1.0

    def _fraction(self, run: Counters) -> float:
        if self.config.budget_tokens:
            return min(1.0, run.n_token / self.config.budget_tokens)
        return min(1.0, run.elapsed_s / (60 * self.config.budget_minutes))

    @property
    def fraction(self) -> float:
        """Return the spent share of the budget, 0 to 1."""
        return self._fraction(self.now)

    def save(self) -> None:
        """Write the checkpoint."""
        checkpoint.save(
            self.folder,
            {
                "model_config": asdict(self.model.config),
                "optimiser": self.optimiser.state_dict(),
                "text": self.text.state(),
                "chats": self.n_chat,
                "n_token": self.n_token,
                "runs": [vars(run) for run in self.runs],
            },
        )

    def batch(self) -> tuple[Rows, Weights]:
        """Return the ids and loss weights [batch, rows + 1] of one step."""
        n_ctx = self.model.config.n_ctx
        long = self.fraction >= self.stage.long_context_from
        n_row = n_ctx if long else self.config.short_context
        n_batch = max(1, self.config.batch_tokens // n_row)
        n_text = round(n_batch * self.stage.text_share)
        rows = self.text.take(n_text, n_row)
        weights = np.ones(rows.shape, dtype=np.float32)
        if n_text < n_batch:
            chat_rows, chat_weights = self._take_chats(n_batch - n_text, n_row)
            rows = np.concatenate([rows, chat_rows])
            weights = np.concatenate([weights, chat_weights])
        return rows, weights

    def _take_chats(self, n_batch: int, n_row: int) -> tuple[Rows, Weights]:
        if self.chats is None or self.chats.n_row != n_row:
            packed = instruct_rows(self.work, tokenizer.load(self.work), n_row)
            self.chats = InstructStream(*packed, self.config.seed)
            self.chats.n_taken = self.n_chat
        taken = self.chats.take(n_batch)
        self.n_chat = self.chats.n_taken
        return taken

    def step(self) -> dict[str, Any]:
        """Make one optimiser step. Return the values for the log."""
        rows, weights = self.batch()
        ids = torch.from_numpy(rows).to(self.model.device)
        loss, balance, count = self.model.loss(
            ids[:, :-1].contiguous(),
            ids[:, 1:],
            torch.from_numpy(weights[:, 1:].copy()).to(self.model.device),
        )
        torch.autograd.backward(loss + self.config.balance_weight * balance)
        n_token = ids[:, 1:].numel()
        self.n_token += n_token
        self.now.n_token += n_token
        self.now.n_step += 1
        scale = lr_scale(self.fraction, self.stage, self.config.rate)
        self.optimiser.step(scale)
        share = count.float() / count.sum(1, keepdim=True) * self.model.config.n_expert
        return {
            "step": self.optimiser.n_step,
            "phase": self.stage.name,
            "n_row": rows.shape[1] - 1,
            "loss": round(loss.item(), 4),
            "balance": round(balance.item(), 4),
            "share_min": round(share.min().item(), 3),
            "share_max": round(share.max().item(), 3),
            "lr_scale": round(scale, 4),
        }


def heldout(run: Run) -> None:
    """Log and print bits per byte, in training arithmetic, on a part of the held-out text.

    Log the use of experts on that text too: per layer, the least and the greatest share.
    """
    found: dict[str, Any] = {}
    counts = torch.zeros(run.model.config.n_layer, run.model.config.n_expert)
    for source, n_token in HELDOUT_TOKENS.items():
        value, count = bits_per_byte(run.model, run.work, source, n_token)
        found[f"heldout_{source}_bpb"] = round(value, 4)
        counts += count
    share = counts / counts.sum(1, keepdim=True).clamp(min=1) * counts.shape[1]
    found["expert_share_min"] = [round(float(s.min()), 3) for s in share]
    found["expert_share_max"] = [round(float(s.max()), 3) for s in share]
    log = {"step": run.optimiser.n_step, "n_token": run.n_token, "elapsed_s": run.now.elapsed_s}
    checkpoint.log(run.folder, **log, **found)
    print(found, flush=True)


def announce(run: Run) -> None:
    """Print the model, the data and the remaining budget."""
    model, config = run.model.config, run.config
    if config.budget_tokens:
        left = f"{(config.budget_tokens - run.now.n_token) / 1e6:.2f} M more tokens"
    else:
        left = f"{config.budget_minutes - run.now.elapsed_s / 60:.0f} more minutes"
    print(
        f"{run.stage.name}, run {len(run.runs)}: {model.n_parameter() / 1e6:.1f} M parameters, "
        f"{model.n_active_parameter() / 1e6:.1f} M active, {len(run.text.tokens) / 1e6:.2f} M "
        f"tokens of text, on {run.model.device} in {run.model.dtype}; {left}",
        flush=True,
    )


def _progress(run: Run, line: dict[str, Any], speed: float) -> None:
    fraction = run.fraction
    if run.config.budget_tokens:
        rest_s = (run.config.budget_tokens - run.now.n_token) / speed
    else:
        rest_s = (1 - fraction) * 60 * run.config.budget_minutes
    expected = run.n_token + speed * rest_s
    print(line, f"{rest_s / 60:.0f} min left, {expected:.3g} tokens then", flush=True)


def train(
    run: Run,
    pause_file: Path | None = None,
    checkpoint_minutes: float = 3.0,
    fuse: bool = True,
) -> bool:
    """Train until the budget is spent, or until SIGTERM or SIGINT; the same call continues.

    Return whether the budget is spent.
    """
    if not run.wanted:
        print(f"the step {run.stage.name} is done; --again adds a run", flush=True)
        return True
    keep_freed_memory()
    fuse = fuse and shutil.which("g++") is not None and run.model.device.type == "cpu"
    free_cores = FreeCores(torch.get_num_threads())
    stop = False

    def on_signal(number: int, frame: object) -> None:
        nonlocal stop
        stop = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    announce(run)
    began, n_start, base_s = time.monotonic(), run.n_token, run.now.elapsed_s
    saved_s = base_s
    while not stop and run.fraction < 1.0:
        while pause_file is not None and pause_file.exists() and not stop:
            time.sleep(0.5)
        torch.set_num_threads(free_cores())
        with fusing(fuse):
            line = run.step()
        run.now.elapsed_s = base_s + time.monotonic() - began
        speed = (run.n_token - n_start) / (run.now.elapsed_s - base_s)
        line |= {"elapsed_s": round(run.now.elapsed_s, 1), "n_token": run.n_token}
        line |= {"speed": round(speed), "threads": torch.get_num_threads()}
        checkpoint.log(run.folder, **line)
        if line["step"] % 10 == 0:
            _progress(run, line, speed)
        if stop or run.fraction >= 1.0 or run.now.elapsed_s - saved_s > 60 * checkpoint_minutes:
            run.save()
            saved_s = run.now.elapsed_s
            if not stop:
                heldout(run)
    return run.fraction >= 1.0
