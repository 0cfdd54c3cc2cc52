"""Kills at random moments: of writers, of the worker, of the window."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from benchmarks.chat_kills import Expected, one_round
from endless import make_endless

from attack.area import Finding, in_child
from attack.scenarios import (
    CHATS,
    DOWNLOAD,
    PACK,
    SETTINGS,
    TRACE,
    acknowledged,
    perform,
    prepare_hub,
)
from backend.protocol.client import WorkerClient, WorkerDied

_WRITERS = (CHATS, PACK, SETTINGS, TRACE, CHATS, PACK, SETTINGS, DOWNLOAD)
_endless: list[Path] = []
prepare = prepare_hub


def prepare_worker(folder: Path) -> None:
    """Write a model that answers without end."""
    if not _endless:
        _endless.append(make_endless(folder / f"endless-{os.getpid()}.gguf"))


def attack_writer(seed: int, folder: Path) -> str:
    """Kill a writer at a random moment: nothing that it acknowledged is lost."""
    chance = random.Random(f"kill {seed}")
    scenario = _WRITERS[seed % len(_WRITERS)]
    scenario.prepare(folder)
    wait_s = chance.uniform(0, 1) ** 2 * 0.08
    end = in_child(lambda: perform(scenario, folder, chance), folder, wait_s)
    if end.kind == "signal" or "Traceback" in end.said:
        raise Finding(f"{scenario.name}: {end}")
    scenario.judge(folder, acknowledged(folder))
    return f"{scenario.name} {'killed' if end.kind == 'hang' else 'was faster'}"


def attack_worker(seed: int, _folder: Path) -> str:
    """Kill the worker while it loads or answers: a sentence says so within five seconds."""
    chance = random.Random(f"worker {seed}")
    client = WorkerClient()
    try:
        settings = {"cache_rate": 0.5, "method": "lru", "context_length": 256, "n_thread": 1}
        reply = client.request("load", path=str(_endless[0]), device="cpu", **settings)
        loads = chance.random() < 0.3
        if not loads:
            reply.final()
            ask = {"prompt": "the of", "sampling": {}, "max_tokens": -1}
            reply = client.request("generate", **ask)
        time.sleep(chance.random() * 0.3)
        os.kill(client.pid, signal.SIGKILL)
        began_s = time.monotonic()
        try:
            for _ in reply:
                pass
            return "was faster"
        except WorkerDied as error:
            if not str(error).endswith(".") or time.monotonic() - began_s > 5:
                raise Finding(f"after a kill: {error}") from None
        return "a load" if loads else "an answer"
    finally:
        client.kill()


def attack_window(seed: int, folder: Path) -> str:
    """Kill the window, or first its worker: nothing that was on the screen is lost."""
    (folder / "model.gguf").write_text(json.dumps({"token_s": 0.004}))
    expected, n_told = Expected(), 0
    for number in range(2):
        n_told += one_round(folder, 2 * seed + number, expected, worker_first=number == 0)
        if faults := expected.lost(folder / "chats.db"):
            raise Finding("; ".join(faults[:5]))
    if any("broken" in path.name for path in folder.iterdir()):
        raise Finding("the file of chats was set aside")
    return "killed"
