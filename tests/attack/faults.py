"""Faults of the system: the n-th read, write, allocation and so on fails; the clock jumps."""

from __future__ import annotations

import ctypes
import errno
import random
import resource
import signal
from pathlib import Path

from attack.area import Finding, in_child
from attack.models import crash_class
from attack.scenarios import ANSWER, CHATS, PACK, SETTINGS, TRACE, acknowledged, perform, prepare

__all__ = ["attack", "attack_limits", "prepare"]

_KINDS: dict[str, tuple[int, ...]] = {
    "read": (errno.EIO, 0, errno.EINTR),
    "write": (errno.ENOSPC, errno.EIO, 0, errno.EDQUOT),
    "open": (errno.EMFILE, errno.EACCES, errno.EIO),
    "fsync": (errno.EIO, errno.ENOSPC),
    "mmap": (errno.ENOMEM,),
    "malloc": (errno.ENOMEM,),
    "thread": (errno.EAGAIN,),
    "rename": (errno.EIO, errno.ENOSPC),
    "truncate": (errno.ENOSPC, errno.EIO),
    "clock": (-86_400 * 4000, 3600, -3600, 86_400 * 30_000),
}
_SCENARIOS = (CHATS, ANSWER, PACK, SETTINGS, TRACE)
_PATIENCE_S = 120.0


def attack(seed: int, folder: Path) -> str:
    """Let a call fail: the result is right, or a sentence; nothing acknowledged is lost."""
    chance = random.Random(f"fault {seed}")
    scenario = _SCENARIOS[seed % len(_SCENARIOS)]
    kind = chance.choice(sorted(_KINDS))
    error, lasting = chance.choice(_KINDS[kind]), chance.random() < 0.3 and kind != "clock"
    if error == errno.EINTR:
        lasting = False
    number = int(2 ** chance.uniform(0, 8))
    scenario.prepare(folder)
    shim = ctypes.CDLL(None)

    def act() -> int:
        def arm() -> None:
            assert shim.attack_arm(kind.encode(), number, error, int(lasting)) == 0

        status = perform(scenario, folder, chance, arm)
        happened = shim.attack_left() < 1
        shim.attack_arm(b"clock", 1 << 30, 0, 0)
        return status + (10 if happened else 0)

    end = in_child(act, folder, _PATIENCE_S)
    what = f"{scenario.name} with {kind} {number} {errno.errorcode.get(error, error)}"
    what += " from then on" if lasting else ""
    if end.kind == "hang":
        raise Finding(f"{what}: hangs")
    if end.kind == "signal":
        if scenario is not ANSWER or kind not in ("malloc", "mmap", "thread"):
            raise Finding(f"{what}: {signal.Signals(end.value).name}\n{end.said[-2000:]}")
        scenario.judge(folder, acknowledged(folder))
        return f"crash: {crash_class(end.value, end.said)} | {seed}: {what}"
    if "Traceback" in end.said and not _is_want_of_memory(kind, end.said):
        raise Finding(f"{what}\n{end.said[-3000:]}")
    try:
        scenario.judge(folder, acknowledged(folder))
    except Finding as error_found:
        raise Finding(f"{what}: {error_found}") from None
    ends = {0: "no fault", 1: "no fault", 10: "right", 11: "a sentence"}
    return f"{scenario.name}: {ends.get(end.value, 'no memory')}"


def _is_want_of_memory(kind: str, said: str) -> bool:
    """Return whether a traceback ends in what Python raises for want of memory or threads."""
    last = said.strip().splitlines()[-1]
    return kind in ("malloc", "mmap", "thread") and last.startswith(
        ("MemoryError", "RuntimeError: can't start new thread", "numpy")
    )


def attack_limits(seed: int, folder: Path) -> str:
    """Limit descriptors, file sizes or memory: a sentence, or the right result."""
    chance = random.Random(f"limit {seed}")
    scenario = _SCENARIOS[seed % len(_SCENARIOS)]
    kind, number = chance.choice(
        (("files", chance.randrange(8, 40)), ("size", int(2 ** chance.uniform(8, 20))),
         ("memory", int(2 ** chance.uniform(20, 28))))
    )  # fmt: skip
    scenario.prepare(folder)

    def limit() -> None:
        if kind == "files":
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
        elif kind == "size":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))

    def act() -> int:
        return perform(scenario, folder, chance, limit)

    memory_bytes = number if kind == "memory" else 0
    end = in_child(act, folder, _PATIENCE_S, memory_bytes=memory_bytes)
    what = f"{scenario.name} with a limit of {number} for {kind}"
    if end.kind == "hang" or (
        end.kind == "signal" and (scenario is not ANSWER or kind != "memory")
    ):
        raise Finding(f"{what}: {end.kind} {end.value}\n{end.said[-2000:]}")
    if end.kind == "ended" and "Traceback" in end.said:
        if kind != "memory" or not _is_want_of_memory("malloc", end.said):
            raise Finding(f"{what}\n{end.said[-3000:]}")
    try:
        scenario.judge(folder, acknowledged(folder))
    except Finding as error_found:
        raise Finding(f"{what}: {error_found}") from None
    if end.kind == "signal":
        return f"crash: {crash_class(end.value, end.said)} | {seed}: {what}"
    return {0: "right", 1: "a sentence"}.get(end.value, "no memory")
