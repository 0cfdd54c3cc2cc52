"""Runs the turns of every way, round by round, each in a child process while the others wait."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from backend.bench.cap import CapRefused, MemoryCap
from backend.bench.child import Job
from backend.bench.workload import Request
from backend.gguf.model_file import ModelFile
from backend.memory.plan import KvCache, plan, slots
from backend.protocol.settings import EngineConfig
from backend.system import children, faults
from backend.system.memory import available_bytes, physical_cores, total_bytes

FORMAT, VERSION = "outrider-bench", 1
_SHARE_OF_MEMORY = 0.9
_HEADROOM_BYTES = 256 << 20
_KILLED = -9  # by SIGKILL, which Windows lacks


@dataclass(frozen=True)
class Way:
    """One way to run the model, a row of the comparison. `kind`: see child.Job.kind."""

    kind: str
    method: str = ""
    rate: float = 1.0
    pack: bool = False
    """Whether to read experts from the model's pack, if there is one."""
    is_reference: bool = False
    """Whether it serves only the bounds of other ways. It is then never under the memory cap."""

    @property
    def name(self) -> str:
        """The name in tables."""
        if self.kind == "outrider":
            return self.method + (", packed" if self.pack else "")
        return _NAMES[self.kind]


_NAMES = {
    "stock": "stock, mmap",
    "fastest": "stock, fastest",
    "resident": "stock, resident",
    "link": "copies",
}


@dataclass(frozen=True)
class Setting:
    """The input of a comparison."""

    file: ModelFile
    """The model, with the number of experts per token that forced routing needs."""
    ways: Sequence[Way]
    requests: Sequence[Request]
    config: EngineConfig
    """The settings that all ways of Outrider share. llama.cpp without a cache takes the threads and
    the batch size of it, and computes on the processor."""
    n_round: int = 3
    cap_bytes: int = 0
    """Memory cap; 0: none."""
    tokens: str = ""
    forced: Any = None
    """Experts of all rounds' tokens, [token, layer, k] (workload.forced_rows), or None."""
    accuracy: float | None = None
    lookahead: int = 1
    link_bytes_per_s: float = 0.0
    limit_s: float = 60.0
    max_s: float = math.inf
    """No turn begins after this time. The turns until then count."""
    remarks: Sequence[str] = ()
    """Notes for the reader of the result, a sentence each."""


class ChildFailed(Exception):
    """A way cannot be run, or its process died. str() is one plain sentence."""


@dataclass
class Child:
    """The process of a way. Its first command starts it."""

    job: Job
    cap_bytes: int
    name: str
    _process: subprocess.Popen[str] | None = None
    _cap: MemoryCap | None = None
    memory: dict[str, int] = field(default_factory=dict)
    """MemoryCap.memory after the last command."""

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command and return its answer. Raises ChildFailed, CapRefused."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            print(command, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        if not line:
            raise ChildFailed(self._describe_exit())
        if self._cap is not None:
            self.memory = self._cap.memory()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildFailed(answer["error"])
        return answer

    @property
    def is_running(self) -> bool:
        """Whether the process was started and not closed."""
        return self._process is not None

    def close(self) -> None:
        """End the process and remove its control group. A second call does nothing."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
        if self._cap is not None:
            self._cap.close()
            self._cap = None

    def _start(self) -> None:
        job = self.job
        if self.cap_bytes:
            self._cap = MemoryCap(self.cap_bytes, self.name)
            job = replace(job, join=str(self._cap.join_path))
        self._process = subprocess.Popen(
            children.command("backend.bench.child", json.dumps(asdict(job))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=children.environment(),
        )

    def _describe_exit(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        if status == _KILLED and self.cap_bytes:
            return "It was killed: it needs more memory than the cap."
        if status == _KILLED:
            return "It was killed: memory ran out."
        fault = faults.of_process(self._process.pid)
        return fault or f"It ended by itself (status {status})."


def run(setting: Setting, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure every way. Return the result, which is JSON. Report progress to `say`."""
    remarks = list(setting.remarks)
    cap_bytes = setting.cap_bytes
    if cap_bytes:
        try:
            MemoryCap(cap_bytes, "try").close()
        except CapRefused as refused:
            cap_bytes = 0
            remarks.append(f"{refused} So the comparison is uncapped.")
    with _forced_file(setting.forced) as forced:
        ways = [*references(setting.ways, cap_bytes), *setting.ways]
        children = [_child(setting, way, i, cap_bytes, forced) for i, way in enumerate(ways)]
        try:
            rows = _rounds(setting, ways, children, cap_bytes, say)
        finally:
            for child in children:
                child.close()
    file = setting.file
    return {
        "format": FORMAT,
        "version": VERSION,
        "date": time.strftime("%Y-%m-%d"),
        "model": {
            "name": file.path.stem,
            "architecture": file.architecture,
            "bytes": file.file_size_bytes,
            "dense_bytes": file.dense_bytes,
            "expert_bytes": file.expert_bytes_total / max(file.n_moe_layer * file.n_expert, 1),
            "n_moe_layer": file.n_moe_layer,
            "n_expert": file.n_expert,
            "n_expert_used": file.n_expert_used,
        },
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "n_core": physical_cores(),
            "memory_bytes": total_bytes(),
        },
        "cap_bytes": cap_bytes,
        "n_ubatch": setting.config.setup.n_ubatch,
        "n_round": setting.n_round,
        "accuracy": setting.accuracy,
        "lookahead": setting.lookahead,
        "link_bytes_per_s": setting.link_bytes_per_s,
        "is_forced": setting.forced is not None,
        "remarks": remarks,
        "ways": rows,
    }


def references(ways: Sequence[Way], cap_bytes: int) -> list[Way]:
    """Return the reference ways that the bounds of these ways need: copies and computing alone."""
    packs = sorted({way.pack for way in ways if way.kind == "outrider"})
    found = [Way("link", pack=pack, is_reference=True) for pack in packs]
    if False in packs:
        found.append(Way("resident", is_reference=True))
    if True in packs and (cap_bytes or not any(way.kind == "fastest" for way in ways)):
        found.append(Way("fastest", is_reference=True))
    return found


def _rounds(
    setting: Setting,
    ways: Sequence[Way],
    children: Sequence[Child],
    cap_bytes: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "name": w.name + (" (no cap)" if w.is_reference and cap_bytes else ""),
            "kind": w.kind,
            "asked_rate": w.rate,
            "facts": {},
            "turns": [],
            "error": "",
        }
        for w in ways
    ]
    needs = [_needed_bytes(setting, way, cap_bytes) for way in ways]
    room_bytes = available_bytes() * _SHARE_OF_MEMORY
    stay = _kept_open(ways, needs, room_bytes)
    deadline_s = time.monotonic() + setting.max_s
    for i, need in enumerate(needs):
        limit = cap_bytes if cap_bytes and not ways[i].is_reference else room_bytes
        if need > limit:
            rows[i]["error"] = (
                f"It needs {need / 1e9:.1f} GB of memory; there are {limit / 1e9:.1f} GB."
            )
    by_kind = {(w.kind, w.pack): c for w, c in zip(ways, children, strict=True)}
    for n in range(setting.n_round):
        for row, way, child, stays in zip(rows, ways, children, stay, strict=True):
            if row["error"] or time.monotonic() > deadline_s:
                continue
            say(f"round {n + 1} of {setting.n_round}: {way.name}" + _rate_text(way))
            try:
                alone = by_kind.get(("fastest", False) if way.pack else ("resident", False))
                _turn(setting, way, child, row, by_kind.get(("link", way.pack)), alone)
            except ChildFailed as failed:
                row["error"] = str(failed)
            if row["error"] or not stays:
                child.close()
    for row in rows:
        if not row["turns"] and not row["error"]:
            row["error"] = "There was no time left."
    return rows


def _kept_open(ways: Sequence[Way], needs: Sequence[int], room_bytes: float) -> list[bool]:
    """Choose the processes that keep their model open, references first, while memory permits.

    The others open the model for every turn, and begin cold.
    """
    order = sorted(range(len(ways)), key=lambda i: (ways[i].kind != "link", -ways[i].is_reference))
    stay = [False] * len(ways)
    for i in order:
        kept = sum(need for need, stays in zip(needs, stay, strict=True) if stays) + needs[i]
        others = [n for k, n in enumerate(needs) if not stay[k] and k != i]
        stay[i] = kept + max(others, default=0) < room_bytes
    return stay


def _turn(
    setting: Setting,
    way: Way,
    child: Child,
    row: dict[str, Any],
    link: Child | None,
    alone: Child | None,
) -> None:
    """Run one turn of a way. Measure copies and computing alone before and after it."""
    for path in setting.file.paths:
        drop_page_cache(path)
    was_open = child.is_running
    if not was_open:
        row["facts"] = child.ask("open")
    if way.kind == "link":
        row["turns"].append(child.ask("read_dense"))
        return
    bounds: list[dict[str, float]] = []

    def measure_bounds() -> None:
        if way.kind != "outrider":
            return
        found: dict[str, float] = {}
        for reference, command in ((link, "measure_link"), (alone, "brief")):
            if reference is not None and reference.is_running:
                found |= reference.ask(command)
        bounds.append(found)

    # A child that was just opened is still filling its slots with pages and would slow the others.
    if was_open:
        measure_bounds()
    turn = child.ask("turn")
    measure_bounds()
    row["turns"].append(turn | {"group": dict(child.memory), "bounds": bounds})


def _child(setting: Setting, way: Way, number: int, cap_bytes: int, forced: str) -> Child:
    config = replace(
        setting.config,
        method=way.method or "lru",
        cache_rate=way.rate if way.kind == "outrider" else 0.0,
        n_thread=setting.config.n_thread or physical_cores(),
        pack=way.pack,
    )
    job = Job(
        kind=way.kind,
        model=str(setting.file.path),
        config=config,
        n_round=setting.n_round,
        requests=[[r.n_prompt, r.n_decode] for r in setting.requests],
        tokens=setting.tokens,
        n_expert_used=setting.file.n_expert_used,
        forced=forced,
        accuracy=setting.accuracy,
        lookahead=setting.lookahead,
        link_bytes_per_s=setting.link_bytes_per_s,
        limit_s=setting.limit_s,
    )
    return Child(job, 0 if way.is_reference else cap_bytes, str(number))


def _needed_bytes(setting: Setting, way: Way, cap_bytes: int) -> int:
    """Return the memory that the way needs, in bytes, as an upper bound."""
    file = setting.file
    if way.kind in ("resident", "fastest"):
        return file.file_size_bytes + _HEADROOM_BYTES
    if way.kind == "stock":
        return min(cap_bytes, file.file_size_bytes) if cap_bytes else 0
    n_context = max(r.n_token for r in setting.requests)
    rate = way.rate if way.kind == "outrider" else 0.0
    kv = KvCache(n_ubatch=setting.config.setup.n_ubatch)
    planned = plan(file, slots(file, rate), n_context, 0, kv)
    return min(planned.total_bytes, cap_bytes) if cap_bytes else planned.total_bytes


def _rate_text(way: Way) -> str:
    return f" at {way.rate:.1%}" if way.kind == "outrider" else ""


@contextlib.contextmanager
def _forced_file(forced: Any) -> Iterator[str]:
    """Yield a file with the forced experts: a child reads it with less memory than a trace."""
    if forced is None:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        path = os.path.join(folder, "forced.npy")
        np.save(path, forced)
        yield path


def drop_page_cache(path: Path) -> None:
    """Drop the file's pages. Pages that another group has read would not count against the cap."""
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
