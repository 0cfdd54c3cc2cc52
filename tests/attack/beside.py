"""Random scripts with every architecture: stock llama.cpp computes the same again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from factory import ARCHITECTURES
from oracle import replayed
from scripts import Script

from attack.area import Finding, in_child
from backend.engine.engine import Engine
from backend.llama.batch_log import SUFFIX, VARIABLE
from backend.protocol.settings import EngineConfig

_ANSWERS_S = 150.0


def attack(seed: int, folder: Path) -> str:
    """Run a random script. Replay what its engines have computed."""
    arch = ARCHITECTURES[seed % len(ARCHITECTURES)]
    logs = folder / "logs"
    end = in_child(lambda: _answer(arch, seed, folder, logs), folder, _ANSWERS_S)
    if (end.kind, end.value) != ("ended", 0):
        raise Finding(f"{arch}: {end.kind} {end.value}\n{end.said[-3000:]}")
    names = sorted(logs.glob(f"*{SUFFIX}"), key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    for found in replayed(*names):
        if found["difference"] or found["obstacle"] or found["n_taken"]:
            raise Finding(f"{arch}: {found}")
    return "equal"


def _answer(arch: str, seed: int, folder: Path, logs: Path) -> int:
    os.environ[VARIABLE] = str(logs)
    os.environ["OUTRIDER_STATES"] = str(folder / "states")
    with contextlib.ExitStack() as opened:

        def open_engine(path: Path, **settings: Any) -> Engine:
            config = EngineConfig.of(n_thread=1, **settings)
            return opened.enter_context(contextlib.closing(Engine.open(path, config)))

        Script(arch, seed, folder / "script", open_engine).run()
    return 0
