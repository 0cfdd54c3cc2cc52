"""Measure what a gigabyte of experts costs, by kind of read, with Linux's perf.

    PYTHONPATH=.:tests .venv/bin/python tests/benchmarks/reads.py MODEL.gguf --rounds 5

A pack beside the model is measured too, with threads and with the kernel's own queue. Each kind
copies experts, ordered by matrices as the methods do, alone and beside two threads of ggml. For
each: the speed, milliseconds of processor per gigabyte by what they are spent on, system calls and
context switches per gigabyte. All but the speeds hold on a busy machine. System calls are counted
where tracefs is mounted. Needs the right to use perf.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

COUNTED = ("task-clock", "context-switches", "cpu-migrations", "page-faults")
CALLS = "raw_syscalls:sys_enter"
# A sample is of the first of these that its call chain has.
CAUSES = {
    "faults": r"asm_exc_page_fault",
    "futex": r"futex",
    "interrupts": r"asm_(common|sysvec)_|_interrupt$",
    "completions": r"io_cqring|task_work|io_handle_tw|io_run_",
    "pages": r"pin_user|iov_iter_(get|extract)_pages|bio_(release|set|iov)|unpin|gup_",
    "drive": r"submit_bio|blk_|virtblk|virtio|iomap|ext4|block_direct",
    "switches": r"schedule",
    "calls": r"entry_SYSCALL|syscall",
    "memcpy": r"mem(cpy|move)",
    "sums": r"crc32",
}


@contextmanager
def perf(*arguments: str) -> Iterator[None]:
    """Run perf on this process meanwhile."""
    child = subprocess.Popen(["perf", *arguments, "-p", str(os.getpid())], stdout=-3, stderr=-3)
    time.sleep(0.3)  # it attaches
    try:
        yield
    finally:
        child.send_signal(2)
        child.wait()


def counted(work: Callable[[], float]) -> tuple[float, Counter[str]]:
    """Return what the work returns, and its counts."""
    with tempfile.NamedTemporaryFile() as out:
        has_calls = any(Path(at, "events").is_dir() for at in _traces())
        events = ",".join(COUNTED + ((CALLS,) if has_calls else ()))
        with perf("stat", "-x", ";", "-o", out.name, "-e", events):
            value = work()
        counts: Counter[str] = Counter()
        for line in Path(out.name).read_text().splitlines():
            fields = line.split(";")
            if len(fields) > 2 and re.fullmatch(r"[\d.]+", fields[0]):
                counts[fields[2]] += float(fields[0])  # type: ignore[assignment]
    return value, counts


def _traces() -> list[str]:
    mounts = Path("/proc/mounts").read_text().splitlines()
    return [m.split()[1] for m in mounts if m.split()[2] == "tracefs"]


def sampled(work: Callable[[], float]) -> tuple[float, Counter[str]]:
    """Return what the work returns, and the seconds of processor by cause."""
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        with perf("record", "-g", "-e", "cpu-clock", "-F", "5000", "-o", data):
            value = work()
        script = ["perf", "script", "-i", data, "-F", "comm,ip,sym"]
        text = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    seconds: Counter[str] = Counter()
    for sample in text.split("\n\n"):
        if sample.strip():
            chain = sample.split("\n", 1)[-1]
            cause = next((c for c, sign in CAUSES.items() if re.search(sign, chain)), "other")
            seconds[cause] += 1 / 5000  # type: ignore[assignment]
    return value, seconds


def kinds(model: Path) -> Iterator[tuple[str, Any, Any]]:
    """Open the model in each way that there is. Yield a name, the model and the options."""
    from backend import _native
    from backend.engine.loading import CachedModel
    from backend.gguf.model_file import read_model
    from backend.packs.file import find

    file = read_model(model)
    pack, _ = find(file)
    ways: list[tuple[str, Any]] = [("model", None)]
    if pack is not None:
        ways.append(("striped pack" if len(pack.sources) > 1 else "pack", pack))
    for name, of in ways:
        cached = CachedModel(file, n_thread=1, pack=of)
        for ring, n in itertools.product((False, True), (2, 4)):
            yield (
                f"{name}, {n} in {'queue' if ring else 'threads'}",
                cached,
                _native.PatchOptions(
                    n_thread=1, n_transfer_thread=n, ring=ring, repack=cached.repacked
                ),
            )
        cached.close()


@contextmanager
def computing() -> Iterator[None]:
    """Multiply with two threads meanwhile."""
    from backend import _native

    stop = threading.Event()

    def multiply() -> None:
        while not stop.is_set():
            _native.measure_product(2, 2048, 16384, 1, 2, False, 0.1)

    thread = threading.Thread(target=multiply)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rate", type=float, default=0.25)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="", help="only kinds with this in their name")
    args = parser.parse_args()

    from backend.methods.catalogue import METHODS
    from backend.methods.compose import composition, layout
    from backend.methods.slots import slots_of
    from backend.system.memory import rss_bytes

    lru = METHODS["lru"]
    for name, cached, options in kinds(args.model):
        if args.kinds not in name:
            continue
        patch = cached.patch
        slots = layout(lru, patch.shape, slots_of(args.rate, patch.shape.n_expert))
        patch.configure(slots, composition(lru, patch.shape), options)
        before = 0
        while rss_bytes() > before:  # the slots get their pages in the background
            before = rss_bytes()
            time.sleep(0.5)

        def copy(patch: Any = patch) -> float:
            return float(patch.measure_link(args.seconds, True))

        alone, beside, rows = [], [], []
        causes: Counter[str] = Counter()
        for _ in range(args.rounds):
            speed, counts = counted(copy)
            alone.append(speed)
            rows.append({k: v / (speed * args.seconds / 1e9) for k, v in counts.items()})
            speed, seconds = sampled(copy)
            for cause, s in seconds.items():
                causes[cause] += s / (speed * args.seconds / 1e9) / args.rounds
            with computing():
                beside.append(copy())
        of = {k: median(row.get(k, 0) for row in rows) for k in rows[0]}
        ratio = median(b / a for a, b in zip(alone, beside, strict=True))
        print(
            f"{name}: alone {median(alone) / 1e9:.2f} GB/s, beside {median(beside) / 1e9:.2f} "
            f"({ratio:.2f}); per GB: "
            + ", ".join(f"{v:.0f} {k}" for k, v in of.items())
            + "; ms per GB: "
            + ", ".join(f"{1e3 * s:.1f} {cause}" for cause, s in causes.most_common()),
            flush=True,
        )


if __name__ == "__main__":
    main()
