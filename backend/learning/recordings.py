"""Recordings of the user's own chats, for training on this machine. Off by default.

With the user's consent the routing of answers is recorded in the application's data folder, up to a
limit. Recordings have token ids but no texts; they are as private as the chats. When the engine is
idle, a child process of the lowest priority trains on them (child.py). Its weights replace the
present ones only if they predict held-out recordings better. supervisor.py runs this in the worker.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend.evaluation.predictors import Candidate, evaluate
from backend.gguf.model_file import ModelFile
from backend.learning.consent import allowed, recordings_folder
from backend.methods.compose import Learned
from backend.methods.part import part
from backend.simulation.model import routers
from backend.system.kept_file import make_folder, read_object, write_json
from backend.system.paths import is_folder
from backend.traces.container import ContainerError
from backend.traces.reading import read_trace
from backend.traces.trace import Trace
from backend.weights.file import PredictorWeights, read
from backend.weights.lookup import in_data_folder, sizes_of, weights_of

MOST_BYTES = 512 << 20
"""Limit of one model's recordings; the oldest are deleted. Up to twice this if tokens are large."""
ENOUGH_TOKENS = 20_000
"""Training begins at this number of tokens, or at fewer if no more fit the limit."""
EVERY = 10
"""Every tenth recording is held out: it is never trained on and serves to compare weights."""
_STATE = "state.json"


def n_bytes(root: Path) -> int:
    """Return the bytes of all models' recordings."""
    return sum(_size(path) for path in _recorded(root))


def delete_all(root: Path) -> None:
    """Delete all models' recordings. The trained weights stay."""
    for folder in _folders(root):
        shutil.rmtree(folder, ignore_errors=True)


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if is_folder(root) else []


def _recorded(root: Path) -> Iterator[Path]:
    for folder in _folders(root):
        yield from folder.glob("*.npz")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted in the meantime
        return 0


class Recordings:
    """The recorded chats of one model, in files "<number>-<tokens>.npz"."""

    def __init__(
        self, file: ModelFile, root: Path | None = None, most_bytes: int | None = None
    ) -> None:
        self._root = root if root is not None else recordings_folder()
        self._folder = self._root / file.fingerprint[:32]
        sizes = sizes_of(file)
        value_bytes = 2  # inputs and scores are float16
        self._token_bytes = sizes.n_layer * (sizes.n_embd + sizes.n_expert + 8) * value_bytes
        enough_bytes = int(1.5 * ENOUGH_TOKENS * self._token_bytes)
        self.most_bytes = most_bytes or min(max(MOST_BYTES, enough_bytes), 2 * MOST_BYTES)

    @property
    def enough_tokens(self) -> int:
        """Tokens at which training begins: ENOUGH_TOKENS, or fewer if no more fit the limit."""
        return min(ENOUGH_TOKENS, int(self.most_bytes / 1.5 / self._token_bytes))

    @property
    def allowed(self) -> bool:
        """Whether the user consented."""
        return allowed(self._root)

    def add(self, trace: Trace) -> bool:
        """Write the trace of an answer. Return False without consent or tokens.

        Raises ContainerError or OSError if it cannot be written.
        """
        if not self.allowed or not len(trace.tokens):
            return False
        make_folder(self._folder)
        number = max(map(number_of, self.paths), default=self.trained_to) + 1
        trace.write(self._folder / f"{number:08}-{len(trace.tokens)}.npz")
        self._delete_oldest()
        return True

    @property
    def paths(self) -> list[Path]:
        """All recordings, the oldest first."""
        found = self._folder.glob("*-*.npz") if self._folder.is_dir() else ()
        return sorted(path for path in found if path.stem.replace("-", "").isdecimal())

    @property
    def n_bytes(self) -> int:
        """Bytes on the drive."""
        return sum(map(_size, self.paths))

    def delete(self) -> None:
        """Delete all recordings of this model."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def split(self) -> tuple[list[Path], list[Path]]:
        """Return the recordings to train on, and the held-out ones."""
        held_out = [path for path in self.paths if number_of(path) % EVERY == 0]
        return [path for path in self.paths if path not in held_out], held_out

    @property
    def is_due(self) -> bool:
        """Whether there are enough tokens, a quarter of them new since the last training."""
        train, held_out = self.split()
        n_new = sum(n_token(path) for path in train if number_of(path) > self.trained_to)
        n_all = sum(map(n_token, train))
        return bool(held_out) and n_all >= self.enough_tokens and 4 * n_new >= self.enough_tokens

    @property
    def trained_to(self) -> int:
        """The number of the newest recording of the last training; 0 before the first."""
        number = self._state().get("trained_to")
        return number if isinstance(number, int) and number >= 0 else 0

    @property
    def result(self) -> str:
        """The outcome of the last training, a sentence; "" before the first."""
        text = self._state().get("result")
        return text if isinstance(text, str) else ""

    def note_training(self, trained_to: int, result: str) -> None:
        """Keep the outcome of a training, unless the recordings were deleted meanwhile."""
        if self._folder.is_dir():
            write_json(self._folder / _STATE, {"trained_to": trained_to, "result": result})

    def _state(self) -> dict[str, Any]:
        return read_object(self._folder / _STATE)

    def _delete_oldest(self) -> None:
        for path in self.paths:
            if self.n_bytes <= self.most_bytes:
                return
            path.unlink(missing_ok=True)


def number_of(path: Path) -> int:
    """Return the number of a recording, from its name."""
    return int(path.stem.partition("-")[0])


def n_token(path: Path) -> int:
    """Return the tokens of a recording, from its name."""
    return int(path.stem.partition("-")[2])


@dataclass(frozen=True)
class Verdict:
    """Whether the new weights predict held-out recordings better; accuracies from 0 to 1."""

    is_better: bool
    new: float = 0.0
    old: float = 0.0


def adopt_if_better(file: ModelFile, candidate: Path, held_out: Sequence[Path]) -> Verdict:
    """Replace the present weights if the candidate's predict held-out recordings better.

    Without present weights the candidate has to beat the next router. Its file is moved or deleted.
    """
    try:
        new = read(candidate, file.fingerprint, sizes_of(file))
        traces = [read_trace(path, file.fingerprint) for path in held_out]
        old, _ = weights_of(file, "learned")
        shares = accuracy(file, traces, new), accuracy(file, traces, old)
        if not traces or shares[0] <= shares[1]:
            return Verdict(False, *shares)
        candidate.replace(in_data_folder(file, "learned"))
        return Verdict(True, *shares)
    except (ContainerError, OSError):
        return Verdict(False)  # a broken candidate or recording changes nothing
    finally:
        candidate.unlink(missing_ok=True)


def accuracy(file: ModelFile, traces: Sequence[Trace], weights: PredictorWeights | None) -> float:
    """Return the mean accuracy over layers, at the largest stride of the weights.

    weights: None evaluates the next router.
    """
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
