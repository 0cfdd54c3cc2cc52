"""The training run: pretraining, then chats, on a schedule over the run's own clock.

The clock is the time spent in this step, over all starts together; it goes on while the run is
paused, and stands while the program is not running. Streams of rows are functions of the seed and
of counters, so that the checkpoint holds no other random state.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from predictors.embedded import checkpoint, tokenizer
from predictors.embedded.config import ModelConfig, TrainConfig, from_dict, to_dict
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
from predictors.embedded.model import Model
from predictors.embedded.optim import Optimiser

TEXT_SHARE_IN_INSTRUCT = 0.25  # rows of plain text among the chats, against forgetting
HELDOUT_TOKENS = {"wikipedia": 8_000, "books": 8_000}  # at every checkpoint
FLOOR_OF_DECAY = 0.01


def lr_scale(fraction: float, config: TrainConfig) -> float:
    """Linear warm-up, constant, then linear decay that ends at `FLOOR_OF_DECAY`."""
    warm = min(1.0, (fraction + 1e-4) / config.warmup)
    left = (1.0 - fraction) / (1.0 - config.decay_from)
    return warm * min(1.0, max(FLOOR_OF_DECAY, left))


def keep_freed_memory() -> None:
    """Tells glibc to reuse large blocks; otherwise each tensor is mapped and faulted in anew."""
    if sys.platform.startswith("linux"):
        try:
            libc = ctypes.CDLL("libc.so.6")
        except OSError:
            return
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        libc.mallopt(-2, 64 << 20)  # M_TOP_PAD


@torch.no_grad()
def bits_per_byte(model: Model, work: Path, source: str, n_token: int) -> float:
    """Bits per byte on about `n_token` held-out tokens of a source, in training arithmetic."""
    bits, n_byte, n_seen = 0.0, 0, 0
    for ids, size in heldout_rows(work, tokenizer.load(work), source, model.config.n_ctx):
        row = torch.from_numpy(ids)
        loss, _, _ = model.loss(row[:, :-1], row[:, 1:], torch.ones(1, row.shape[1] - 1))
        bits += loss.item() * (row.shape[1] - 1) / math.log(2)
        n_byte += size
        n_seen += row.shape[1] - 1
        if n_seen >= n_token:
            break
    return bits / max(1, n_byte)


class Run:
    """One training run: its model, optimiser, streams and clock."""

    def __init__(self, work: Path, model_config: ModelConfig, config: TrainConfig) -> None:
        self.work, self.config = work, config
        stored = checkpoint.load(work)
        if stored is not None:
            model_config = from_dict(ModelConfig, stored["model_config"])
        dtype = torch.bfloat16
        self.model = Model(model_config, dtype, config.seed)
        self.optimiser = Optimiser(self.model, config)
        words = tokenizer.load(work)
        self.text = TextStream(text_tokens(work, words, config.seed), config.seed)
        self.chats = InstructStream(*instruct_rows(work, words, model_config.n_ctx), config.seed)
        self.elapsed_s, self.n_token = 0.0, 0
        if stored is not None:
            self.optimiser.load_state_dict(stored["optimiser"])
            self.text.restore(stored["text"])
            self.chats.n_taken = stored["chats"]
            self.elapsed_s, self.n_token = stored["elapsed_s"], stored["n_token"]

    @property
    def fraction(self) -> float:
        """How much of the budget is spent, 0 to 1."""
        return min(1.0, self.elapsed_s / (60 * self.config.budget_minutes))

    def save(self) -> None:
        """Writes the checkpoint."""
        checkpoint.save(
            self.work,
            {
                "model_config": to_dict(self.model.config),
                "train_config": to_dict(self.config),
                "optimiser": self.optimiser.state_dict(),
                "text": self.text.state(),
                "chats": self.chats.n_taken,
                "elapsed_s": self.elapsed_s,
                "n_token": self.n_token,
            },
        )

    def batch(self) -> tuple[str, Rows, Weights]:
        """The phase's name, and the ids and loss weights [batch, rows + 1] of one step."""
        c, n_ctx = self.config, self.model.config.n_ctx
        instruct = self.fraction >= c.instruct_from
        long = instruct or self.fraction >= c.long_context_from
        n_row = n_ctx if long else c.short_context
        n_batch = max(1, c.batch_tokens // n_row)
        n_text = round(n_batch * TEXT_SHARE_IN_INSTRUCT) if instruct else n_batch
        rows = self.text.take(n_text, n_row)
        weights = np.ones(rows.shape, dtype=np.float32)
        if instruct:
            chat_rows, chat_weights = self.chats.take(n_batch - n_text)
            rows = np.concatenate([rows, chat_rows])
            weights = np.concatenate([weights, chat_weights])
        return ("instruct" if instruct else "long" if long else "short"), rows, weights

    def step(self) -> dict[str, Any]:
        """One optimiser step; returns what is logged."""
        phase, rows, weights = self.batch()
        ids = torch.from_numpy(rows)
        loss, balance, count = self.model.loss(
            ids[:, :-1].contiguous(), ids[:, 1:], torch.from_numpy(weights[:, 1:].copy())
        )
        torch.autograd.backward(loss + self.config.balance_weight * balance)
        self.n_token += ids[:, 1:].numel()
        scale = lr_scale(self.fraction, self.config)
        self.optimiser.step(scale)
        share = count.float() / count.sum(1, keepdim=True) * self.model.config.n_expert
        return {
            "step": self.optimiser.n_step,
            "phase": phase,
            "loss": round(loss.item(), 4),
            "balance": round(balance.item(), 4),
            "share_min": round(share.min().item(), 3),
            "share_max": round(share.max().item(), 3),
            "lr_scale": round(scale, 4),
        }


def heldout(run: Run) -> None:
    """Log and print bits per byte, in training arithmetic, on a part of the held-out text."""
    found = {
        f"heldout_{source}_bpb": round(bits_per_byte(run.model, run.work, source, n_token), 4)
        for source, n_token in HELDOUT_TOKENS.items()
    }
    log = {"step": run.optimiser.n_step, "n_token": run.n_token, "elapsed_s": run.elapsed_s}
    checkpoint.log(run.work, **log, **found)
    print(found, flush=True)


def announce(run: Run) -> None:
    """Prints what is trained and how long it takes."""
    model, left = run.model.config, run.config.budget_minutes - run.elapsed_s / 60
    print(
        f"{model.n_parameter() / 1e6:.1f} M parameters, {model.n_active_parameter() / 1e6:.1f} M "
        f"active, {len(run.text.tokens) / 1e6:.2f} M tokens of text; {left:.0f} more minutes",
        flush=True,
    )


def train(
    work: Path,
    model_config: ModelConfig,
    config: TrainConfig,
    pause_file: Path | None = None,
    checkpoint_minutes: float = 3.0,
    fuse: bool = True,
) -> None:
    """Runs to the end of the budget, or to SIGTERM or SIGINT; the same call continues."""
    keep_freed_memory()
    fuse = fuse and shutil.which("g++") is not None
    free_cores = FreeCores(torch.get_num_threads())
    run = Run(work, model_config, config)
    stop = False

    def on_signal(number: int, frame: object) -> None:
        nonlocal stop
        stop = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    announce(run)
    began, n_start, base_s = time.monotonic(), run.n_token, run.elapsed_s
    saved_s = run.elapsed_s
    while not stop and run.fraction < 1.0:
        while pause_file is not None and pause_file.exists() and not stop:
            time.sleep(0.5)
        torch.set_num_threads(free_cores())
        with fusing(fuse):
            line = run.step()
        run.elapsed_s = base_s + time.monotonic() - began
        speed = (run.n_token - n_start) / (run.elapsed_s - base_s)
        line |= {"elapsed_s": round(run.elapsed_s, 1), "n_token": run.n_token}
        line |= {"speed": round(speed), "threads": torch.get_num_threads()}
        checkpoint.log(work, **line)
        if line["step"] % 10 == 0:
            rest_s = 60 * config.budget_minutes - run.elapsed_s
            expected = run.n_token + speed * rest_s
            print(line, f"{rest_s / 60:.0f} min left, {expected:.3g} tokens", flush=True)
        if stop or run.fraction >= 1.0 or run.elapsed_s - saved_s > 60 * checkpoint_minutes:
            run.save()
            saved_s = run.elapsed_s
            if not stop:
                heldout(run)
