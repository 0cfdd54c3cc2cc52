"""Kills at random moments: of writers, of engines that keep states, of worker and window."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import stat
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import fork_server
from asking import of_chat
from benchmarks.chat_kills import Expected, one_round
from chats import model
from endless import make_endless
from oracle import replayed

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
from backend.engine.engine import Engine
from backend.llama.batch_log import SUFFIX, VARIABLE
from backend.protocol.client import WorkerClient, WorkerDied
from backend.protocol.settings import EngineConfig, Sampling
from backend.system import kept_file

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


_N_KILL = 24
"""Engines that are killed one after the other, before one that is not."""
_ARCHS = ("qwen3moe", "gpt-oss", "qwen35moe")
"""Their states are pieces; in one piece, of a ring; in one piece, with recurrent states."""
_CHANGES = {"open", "os.rename", "os.link", "os.remove"}
"""Audit events of Python that come before a change of a folder."""
_FORMAT = "backend.llama.format_child"
_models: dict[str, Path] = {}


def prepare_engines(folder: Path) -> None:
    """Write models, and compute the digests without which nothing is kept."""
    fork_server.command(["-m", _FORMAT], (_FORMAT,))  # whose server the killed engines share
    for arch in () if _models else _ARCHS:
        own = folder / f"engines-{os.getpid()}-{arch}"
        own.mkdir()
        path = model(arch, own)
        end = in_child(partial(_converse, path, own, 0, 1), own, 300)
        if (end.kind, end.value) != ("ended", 0) or not [*own.glob("states/*/*.state")]:
            raise Finding(f"{arch}: {end}")
        _models[arch] = path


def attack_engine(seed: int, folder: Path) -> str:
    """Kill engines within their writes: later ones restore nothing that is damaged or wrong."""
    chance, arch = random.Random(f"engine {seed}"), _ARCHS[seed % len(_ARCHS)]
    shutil.copy(_models[arch].parent / "digests.json", folder)
    n_within = n_killed = 0
    for number in range(_N_KILL + 1):
        n_change = chance.randint(1, 30) if number < _N_KILL else 0
        act = partial(_converse, _models[arch], folder, chance.random(), 6, n_change)
        end = in_child(act, folder, 300)
        killed = (end.kind, end.value) == ("signal", signal.SIGKILL) and n_change > 0
        if end.said or not (killed or (end.kind, end.value) == ("ended", 0)):
            raise Finding(f"{arch}, engine {number}: {end}")
        n_killed += killed
        parts = {*folder.glob("states/*/*.part")}
        n_within += len(parts) > 0
        for part in parts:
            part.unlink()
    n_state = 0
    logs = sorted(folder.glob(f"logs/*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
    for found in replayed(*logs):
        obstacle = found["obstacle"]
        is_cut = isinstance(obstacle, str) and obstacle.endswith(" is cut.")
        if found["difference"] or (obstacle and not is_cut) or found["n_taken"]:
            raise Finding(f"{arch}: {found}")
        n_state += found["n_state"]
    return f"{n_killed} killed, {n_within} with a file begun; {n_state} restored"


def _converse(path: Path, folder: Path, seed: float, n_turn: int, n_change: int = 0) -> int:
    """Go on with two chats, and keep them. Their texts are the same in every process.

    n_change: the process is killed before this change of the states' folder; 0: it is not.
    """
    os.environ[VARIABLE] = str(folder / "logs")
    os.environ["OUTRIDER_STATES"] = states = str(folder / "states")
    fork_server.fork_children()
    chance, changes = random.Random(seed), itertools.count(1)
    engine = Engine.open(path, EngineConfig.of(n_thread=1, context_length=1024, n_ubatch=64))
    engine.keep_in(folder / "states")
    _keep_all(engine)

    def change(descriptor: int | None = None) -> None:
        if next(changes) == n_change:
            if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
                n_byte = os.fstat(descriptor).st_size  # some of them may not be written yet
                os.ftruncate(descriptor, chance.choice((n_byte, chance.randint(0, n_byte))))
            os.kill(os.getpid(), signal.SIGKILL)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        name = str(arguments[0]) if event in _CHANGES else ""
        if name.startswith(states) and (event != "open" or name.endswith(".part")):
            change()

    def sync(descriptor: int) -> None:
        change(descriptor)
        real(descriptor)

    real, kept_file.sync = kept_file.sync, sync
    if n_change:
        sys.addaudithook(note)
    for _ in range(n_turn):
        owner, messages = chance.choice("ab"), list[Any]()
        for number in range(chance.randint(1, 4)):
            text = " ".join(random.Random(f"{owner}{number}").choices(("fox", "owl"), k=30))
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "No."}]
        list(engine.answer(of_chat(messages[:-1], Sampling(temperature=0), 8, owner=owner)))
        _keep_all(engine)
    engine.close()
    return 0


def _keep_all(engine: Engine) -> None:
    while engine.keep():
        time.sleep(0.001)


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
