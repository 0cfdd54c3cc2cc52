"""Attack Outrider for some time: `make attack SECONDS=300`.

    python -m attack [--seconds 300] [--jobs 2] [--only AREA] [--folder build/attack] [--new]
    python -m attack --replay AREA:SEED

A later run goes on with the next seeds; --new begins again with the first. The folder keeps
state.json and a file for each finding. The exit status is 1 if the run has found something.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from attack import ROOT
from attack.area import build_faults
from attack.areas import AREAS
from attack.job import BLOCK, replay

_CHUNK_S = 2.0
"""Time that a job gets for the cases of one area before it asks for more."""


class Job:
    """A process that runs cases. It preloads faults.c, which does nothing until a child asks."""

    def __init__(self, folder: Path, preload: str) -> None:
        self.folder, self._preload = folder, preload
        self.area, self.seed = "", -1
        folder.mkdir(parents=True, exist_ok=True)
        self._start()

    def _start(self) -> None:
        environment = {
            **os.environ,
            "LD_PRELOAD": self._preload,
            "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}",
            "QT_QPA_PLATFORM": "offscreen",
            "OPENBLAS_NUM_THREADS": "1",
            "GGML_NO_BACKTRACE": "1",
            "XDG_DATA_HOME": str(self.folder / "data"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        self._errors = open(self.folder / "errors", "w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attack.job", str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment,
        )  # fmt: skip

    def ask(self, area: str, first: int) -> None:
        """Begin the cases of an area at a seed."""
        self.area, self.seed = area, first
        assert self.process.stdin is not None
        self.process.stdin.write(f"{area} {first} {_CHUNK_S}\n".encode())
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the result of ask(). After a death it is a finding, and another process starts."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        status = self.process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace")[-4000:]
        self._errors.close()
        seed_file = self.folder / "seed"
        seed = int(seed_file.read_text()) if seed_file.exists() else self.seed
        self._start()
        words = f"the attack's own process ended with {status}\n{said}"
        return {"next": seed + 1, "ends": {}, "findings": {str(seed): words}}

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)
        self._errors.close()


class State:
    """The results of earlier runs, by area."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.areas: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.areas = json.loads(path.read_text())["areas"]

    def area(self, name: str) -> dict[str, Any]:
        """Return the entry of an area: the next seed, cases, ends and seeds with a finding."""
        return self.areas.setdefault(name, {"next": 0, "n": 0, "ends": {}, "findings": []})

    def add(self, name: str, found: dict[str, Any]) -> None:
        """Add the result of a job."""
        entry = self.area(name)
        ends = Counter(entry["ends"])
        ends.update(found["ends"])
        entry["ends"] = dict(ends)
        entry["n"] += sum(found["ends"].values()) + len(found["findings"])
        entry["findings"] += list(found["findings"])

    def save(self) -> None:
        """Write state.json."""
        self._path.write_text(json.dumps({"areas": self.areas}, indent=1))


def attack(folder: Path, seconds: float, n_job: int, only: list[str]) -> int:
    """Run jobs for some time. Return the number of findings."""
    folder.mkdir(parents=True, exist_ok=True)
    preload = build_faults(folder / "faults.so")
    state, end_s = State(folder / "state.json"), time.monotonic() + seconds
    names = [name for name in AREAS if not only or name in only]
    done: Counter[str] = Counter()  # in this run
    n_finding = 0
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="attack-", dir=memory) as scratch:
        jobs = [Job(Path(scratch) / str(i), preload) for i in range(n_job)]
        waiting = selectors.DefaultSelector()

        def begin(job: Job) -> None:
            waiting.register(job.process.stdout, selectors.EVENT_READ, job)  # type: ignore[arg-type]
            name = min(names, key=lambda n: (done[n] + running[n]) / AREAS[n].per_hour)
            running[name] += max(AREAS[name].per_hour / 1800, 1)
            entry = state.area(name)
            job.ask(name, entry["next"])
            entry["next"] += BLOCK

        running: Counter[str] = Counter()
        for job in jobs:
            begin(job)
        while waiting.get_map():
            for key, _ in waiting.select():
                job = key.data
                waiting.unregister(key.fileobj)
                found = job.answer()
                done[job.area] += sum(found["ends"].values())
                running[job.area] = 0
                state.add(job.area, found)
                for seed, words in found["findings"].items():
                    n_finding += 1
                    _keep(folder, job.area, seed, words)
                state.save()
                if time.monotonic() < end_s:
                    begin(job)
        for job in jobs:
            job.close()
    print(summary(state, done))
    return n_finding


def _keep(folder: Path, area: str, seed: str, words: str) -> None:
    """Write a finding to a file and show its beginning."""
    command = f"make attack ARGS='--replay {area}:{seed}'"
    (folder / f"finding-{area}-{seed}.txt").write_text(f"{command}\n\n{words}\n")
    print(f"{area}:{seed}: {words.strip()[-600:]}\n", flush=True)


def summary(state: State, done: Counter[str]) -> str:
    """Return a table of the areas and how their cases ended, and the classes of crashes."""
    lines = [f"{'area':<10} {'this run':>9} {'in all':>9} {'found':>6}  ends"]
    crashes: dict[str, list[str]] = {}
    for name, entry in state.areas.items():
        ends: Counter[str] = Counter()
        for end, n in entry["ends"].items():
            if end.startswith("crash: "):
                kind, _, how = end.removeprefix("crash: ").partition(" | ")
                crashes.setdefault(f"{name}: {kind}", []).append(how)
                end = "crash of llama.cpp"
            ends[end] += n
        told = ", ".join(f"{n} {end}" for end, n in ends.most_common(12))
        n_found = len(entry["findings"])
        lines.append(f"{name:<10} {done[name]:>9} {entry['n']:>9} {n_found:>6}  {told}")
    for kind, hows in sorted(crashes.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(hows):>4} x {kind}; such as: {hows[0][:150]}")
    return "\n".join(lines)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", action="append", choices=sorted(AREAS), default=[])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "attack")
    parser.add_argument("--new", action="store_true", help="forget earlier runs")
    parser.add_argument("--replay", metavar="AREA:SEED", help="run one case and show its end")
    args = parser.parse_args()
    if args.replay:
        if not re.fullmatch(r"\w+:\d+", args.replay):
            parser.error("--replay takes AREA:SEED")
        name, _, seed = args.replay.partition(":")
        args.folder.mkdir(parents=True, exist_ok=True)
        return replay(name, int(seed), args.folder / "faults.so")
    if args.new:
        shutil.rmtree(args.folder, ignore_errors=True)
    return 1 if attack(args.folder, args.seconds, args.jobs, args.only) else 0


if __name__ == "__main__":
    sys.exit(main())
