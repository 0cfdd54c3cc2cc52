"""Continual use: learning from one's own chats, on this machine only, and only where allowed.

Off by default. With the user's consent an engine's routing is recorded while it answers, in the
application's data folder, at most MOST_BYTES of it; texts are not kept, but token ids are, so the
recordings are as private as the chats. When nobody waits for the engine a child process of the
lowest priority trains on them, and its weights replace the present ones only if they predict
held-out recordings better.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.compose import Learned
from backend.container import ContainerError
from backend.evaluation import Candidate, evaluate
from backend.gguf_file import ModelFile
from backend.learned import in_data_folder, sizes_of, weights_of
from backend.parts import part
from backend.predictor_file import PredictorWeights, read
from backend.simulate_model import routers
from backend.system.paths import data_folder
from backend.trace import Trace, read_trace

MOST_BYTES = 512 << 20
"""Of one model's recordings; the oldest leave."""
LEAST_TOKENS = 20_000
"""Fewer are not worth training on."""
EVERY = 10
"""Every tenth recording is held out: never trained on, only used to judge."""
_CONSENT = "consent.json"


class Recordings:
    """One model's recorded chats."""

    def __init__(
        self, file: ModelFile, folder: Path | None = None, most_bytes: int = MOST_BYTES
    ) -> None:
        self._file = file
        self._root = folder if folder is not None else data_folder() / "recordings"
        self._folder = self._root / file.fingerprint[:32]
        self._most_bytes = most_bytes

    @property
    def allowed(self) -> bool:
        """Whether the user said yes; False where nobody asked, or the answer cannot be read."""
        try:
            said = json.loads((self._root / _CONSENT).read_text("utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(said, dict) and said.get("record") is True

    def allow(self, yes: bool) -> None:
        """Remember the user's answer, for all models. What was recorded stays: see delete()."""
        self._root.mkdir(parents=True, exist_ok=True)
        partial = self._root / f"{_CONSENT}.{secrets.token_hex(4)}"
        partial.write_text(json.dumps({"record": yes}), "utf-8")
        partial.replace(self._root / _CONSENT)

    def add(self, trace: Trace) -> bool:
        """Keep one answer's trace; False, and nothing is written, without consent."""
        if not self.allowed or not len(trace.tokens):
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        numbers = [int(path.stem) for path in self.paths]
        number = max(numbers, default=0) + 1
        trace.write(self._folder / f"{number:08}.npz")
        self._bound()
        return True

    @property
    def paths(self) -> list[Path]:
        """All recordings, the oldest first."""
        found = self._folder.glob("*.npz") if self._folder.is_dir() else ()
        return sorted(path for path in found if path.stem.isdecimal())

    @property
    def n_bytes(self) -> int:
        """Bytes on the drive."""
        return sum(path.stat().st_size for path in self.paths)

    def delete(self) -> None:
        """Delete everything recorded of this model."""
        for path in self.paths:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def split(self) -> tuple[list[Path], list[Path]]:
        """Recordings to train on, and those held out."""
        held_out = [path for path in self.paths if int(path.stem) % EVERY == 0]
        return [path for path in self.paths if path not in held_out], held_out

    def _bound(self) -> None:
        for path in self.paths:
            if self.n_bytes <= self._most_bytes:
                return
            path.unlink(missing_ok=True)


def train_command(file: ModelFile, traces: Sequence[Path], out: Path, minutes: float) -> list[str]:
    """The command of the child process that trains."""
    paths = [str(path) for path in traces]
    return [
        sys.executable, "-m", "backend.cli", "train", str(file.path),
        "--out", str(out), "--minutes", str(minutes), "--json", "--trace", *paths,
    ]  # fmt: skip


def start_training(
    file: ModelFile, recordings: Recordings, minutes: float = 10.0
) -> tuple[subprocess.Popen[bytes], Path] | None:
    """Start training on the recordings, at the lowest priority; None where there are too few.

    Returns the process, which may be ended at any time, and the file that it will write.
    """
    chosen, held_out = recordings.split()
    if not recordings.allowed or not held_out or _n_token(chosen, file) < LEAST_TOKENS:
        return None
    out = in_data_folder(file, "learned").with_suffix(".candidate")
    out.parent.mkdir(parents=True, exist_ok=True)
    flags = getattr(subprocess, "IDLE_PRIORITY_CLASS", 0)
    process = subprocess.Popen(
        train_command(file, chosen, out, minutes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        creationflags=flags,
    )
    if hasattr(os, "setpriority"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, 19)
    return process, out


def adopt_if_better(file: ModelFile, candidate: Path, held_out: Sequence[Path]) -> bool:
    """Replace the present weights where the candidate's predict held-out recordings better.

    The candidate's file is gone afterwards. Without present weights it has to beat the next router.
    """
    try:
        new = read(candidate, file.fingerprint, sizes_of(file))
        traces = [read_trace(path, file.fingerprint) for path in held_out]
        old, _ = weights_of(file, "learned")
        if not traces or accuracy(file, traces, new) <= accuracy(file, traces, old):
            return False
        candidate.replace(in_data_folder(file, "learned"))
        return True
    except (ContainerError, OSError):
        return False  # a broken candidate or recording changes nothing
    finally:
        candidate.unlink(missing_ok=True)


def accuracy(file: ModelFile, traces: Sequence[Trace], weights: PredictorWeights | None) -> float:
    """Mean over layers, at the larger stride that there is; of the next router for None."""
    if weights is None:
        chosen, learned = Candidate("next_router", part("next_router", stride=2), 2), Learned()
    else:
        strides = [s for s in (1, 2) if any(f".s{s}." in name for name in weights.arrays)]
        stride = max(strides, default=1)
        chosen = Candidate("learned", part("learned", stride=stride), stride)
        learned = Learned({"learned": weights.arrays}, {"learned": weights.numbers})
    shares: list[Any] = []
    for trace in traces:
        matrices = routers(file, trace.layers)
        for scores in evaluate(trace, [chosen], matrices, learned):
            shares.append((np.nan_to_num(scores.accuracy).mean(), scores.n_token))
    n = sum(n for _, n in shares)
    return float(sum(share * n for share, n in shares) / n) if n else 0.0


def _n_token(paths: Sequence[Path], file: ModelFile) -> int:
    total = 0
    for path in paths:
        with contextlib.suppress(ContainerError):
            total += len(read_trace(path, file.fingerprint, mapped=True).tokens)
    return total
