"""Trains on a model's recorded chats: the process that the worker starts when the engine is idle.

    python -m backend.learning.child MODEL RECORDINGS MINUTES

Standard output has a JSON object per line: {"share": 0 to 1, "text": ...} for progress, and at the
end {"result": a sentence}. Standard input has the lines "pause" and "go on". Its end means that the
worker is gone, and ends this process at once. The next process resumes from a checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil

from backend.gguf.model_file import ModelFile, read_model
from backend.learning.recordings import Recordings, Verdict, adopt_if_better, number_of
from backend.system import faults
from backend.system.memory import offer_first
from backend.text import Text, text, to_json
from backend.traces.container import ContainerError
from backend.traces.reading import read_trace
from backend.weights.lookup import in_data_folder
from predictors.fit import fit, write

EPOCHS = 6


class _Line:
    """The connection to the worker: reads its commands and reports progress."""

    def __init__(self) -> None:
        self._may_run = threading.Event()
        self._may_run.set()
        faults.Thread("commands", self._listen, failed=lambda _: os._exit(1)).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "pause":
                self._may_run.clear()
            else:
                self._may_run.set()
        os._exit(1)

    def tell(self, share: float, text: str) -> None:
        """Report progress, then wait while the worker has paused this process."""
        _say(share=round(share, 3), text=text)
        self._may_run.wait()


def _say(**values: Any) -> None:
    print(json.dumps(to_json(values)), flush=True)


def step_back() -> None:
    """Take the lowest priority for the processor, the drive and memory."""
    me = psutil.Process()
    is_windows = sys.platform == "win32"
    with contextlib.suppress(OSError, psutil.Error):
        me.nice(getattr(psutil, "IDLE_PRIORITY_CLASS", 19))
    with contextlib.suppress(OSError, psutil.Error, AttributeError):  # not on every system
        me.ionice(getattr(psutil, "IOPRIO_VERYLOW" if is_windows else "IOPRIO_CLASS_IDLE"))
    offer_first(1000)


def train(file: ModelFile, recordings: Recordings, minutes: float, line: _Line) -> str:
    """Train, and adopt the weights if they are better. Return the outcome, a sentence."""
    paths, held_out = recordings.split()
    trained_to = max(map(number_of, recordings.paths), default=0)
    candidate = in_data_folder(file, "learned").with_suffix(".candidate")
    work = candidate.with_suffix(".work")
    work.mkdir(parents=True, exist_ok=True)
    last_s = 0.0

    def progress(share: float, text: str) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > 0.5:
            last_s = time.monotonic()
            line.tell(share, text)

    weights = fit(
        "learned",
        [read_trace(path, file.fingerprint, mapped=True) for path in paths],
        file,
        strides=(1, 2),
        minutes=minutes,
        epochs=EPOCHS,
        checkpoint=work / "learned.npz",
        progress=progress,
    )
    write(candidate, file.fingerprint, weights)
    line.tell(1.0, "comparing")
    result = _sentence(adopt_if_better(file, candidate, held_out))
    shutil.rmtree(work, ignore_errors=True)
    recordings.note_training(trained_to, result)
    return result


def _sentence(verdict: Verdict) -> Text:
    if verdict.is_better:
        return text("learning.better", new=verdict.new, old=verdict.old)
    return text("learning.not_better", new=verdict.new, old=verdict.old)


def main() -> NoReturn:
    """Train as the arguments say, and end the process."""
    step_back()
    model, root, minutes = sys.argv[1:]
    line = _Line()
    try:
        file = read_model(Path(model))
        _say(result=train(file, Recordings(file, Path(root)), float(minutes), line))
        status = 0
    except (ContainerError, OSError, ValueError) as error:
        _say(result=text("learning.failed", reason=str(error)))
        status = 1
    os._exit(status)


if __name__ == "__main__":
    main()
