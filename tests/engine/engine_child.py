"""Run an engine in a process of its own. Print the result as one JSON object.

    python engine_child.py residency MODEL RATE
    python engine_child.py shortage MODEL
    python engine_child.py hang MODEL
    python engine_child.py fail MODEL
    python engine_child.py ram MODEL DEVICE HOST_BYTES

residency: which pages of the model's file are in the page cache after an answer, and by how much
the resident set has grown. shortage: what happens when a higher cache rate finds no memory. hang:
whether an answer can be stopped while the drive does not answer. fail: what is answered beside and
after passes that the drive fails in. These three need faults.c. ram: what is in memory beside a
device when most experts were used, and what was planned.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from asking import jointly, of_text

from backend.engine.engine import Engine, EngineError
from backend.gguf.model_file import ModelFile, read_model
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling

PAGE = mmap.PAGESIZE
PROMPT = "it was one of the words that they had not said " * 8


def resident_pages(path: Path) -> list[bool]:
    """Return for each page of the file whether it is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as handle:
        # Private and writable, for an address; nothing is written.
        view = mmap.mmap(handle.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        n_page = -(-len(view) // PAGE)
        flags = (ctypes.c_ubyte * n_page)()
        anchor = ctypes.c_char.from_buffer(view)
        address = ctypes.c_void_p(ctypes.addressof(anchor))
        if libc.mincore(address, ctypes.c_size_t(len(view)), flags) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        del anchor
        view.close()
    return [bool(flag & 1) for flag in flags]


def expert_pages(file: ModelFile) -> set[int]:
    """Return the pages that hold only experts."""
    pages: set[int] = set()
    for tensors in file.expert_tensors.values():
        for t in tensors:
            pages |= set(range(-(-t.offset // PAGE), (t.offset + t.n_bytes) // PAGE))
    return pages


def drop_cached(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def status_bytes(name: str) -> int:
    """Return the bytes of a field of /proc/self/status, such as VmHWM."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if name in x)
    return int(line.split()[1]) * 1024


def open_engine(path: Path, rate: float) -> Engine:
    return Engine.open(path, EngineConfig(cache_rate=rate, n_thread=1, context_length=256))


def tokens(engine: Engine) -> list[int]:
    engine.forget()  # so that the passes are always the same
    return [p.token_id for p in engine.answer(of_text(PROMPT, Sampling(temperature=0), 8))]


def residency(path: Path, rate: float) -> dict[str, object]:
    pages = expert_pages(read_model(path))
    drop_cached(path)
    before = resident_pages(path)
    peak_before = status_bytes("VmHWM")
    engine = open_engine(path, rate)
    tokens(engine)
    after = resident_pages(path)
    return {
        "n_page": len(pages),
        "n_before": sum(before[i] for i in pages),
        "n_after": sum(after[i] for i in pages),
        "bytes_read": engine.statistics().bytes_read,
        "grown_bytes": status_bytes("VmHWM") - peak_before,
        "expert_bytes": engine.model.expert_bytes_total,
        "slab_bytes": engine.cache.bytes,
        "mode": engine.cache.mode,
    }


def shortage(path: Path) -> dict[str, object]:
    """faults.c refuses large allocations while the file "shortage" exists."""
    engine = open_engine(path, 0.0)
    expected, facts = tokens(engine), engine.cache
    sign, error = Path("shortage"), ""
    sign.touch()
    try:
        engine.set_cache_rate(0.97)
    except EngineError as caught:
        error = str(caught)
    found: dict[str, object] = {
        "error": error,
        "same_facts": engine.cache == facts,
        "same_tokens": tokens(engine) == expected,
    }
    sign.unlink()
    found["n_slot_later"] = engine.set_cache_rate(0.97).n_slot
    found["same_tokens_later"] = tokens(engine) == expected
    # Now memory is missing for the old rate, too.
    sign.touch()
    errors = []
    other = EngineConfig(cache_rate=0.97, method="lru", n_thread=1, context_length=256)
    for attempt in (lambda: engine.change(other), lambda: tokens(engine)):
        try:
            attempt()
        except EngineError as caught:
            errors.append(str(caught))
    sign.unlink()
    engine.change(other)
    return {**found, "errors": errors, "same_tokens_at_last": tokens(engine) == expected}


def hang(path: Path) -> dict[str, object]:
    """faults.c delays every read while the file "hanging" exists."""
    engine = open_engine(path, 0.0)
    expected = tokens(engine)
    sign, was_hanging = Path("hanging"), []
    begun = threading.Event()

    def stop_when_it_hangs() -> None:
        begun.wait()  # an earlier stop would not count for this answer
        while not any(byte & 2 for byte in engine.residency()):
            time.sleep(0.001)
        engine.stop()

    def answer() -> int:
        """Return the tokens for a prompt that shares no prefix with the others."""
        asked = engine.answer(
            of_text("of " * 40, Sampling(temperature=0), 8, on_prefill=lambda *_: begun.set())
        )
        pieces = list(asked)
        was_hanging.append(sign.exists())
        return len(pieces)

    engine.set_cache_rate(0.5)  # the number of slots is new, so nothing is resident
    sign.touch()
    stopper = threading.Thread(target=stop_when_it_hangs)
    stopper.start()
    n_piece = answer()
    stopper.join()
    reason = engine.finish_reason
    sign.unlink()
    return {
        "n_piece": n_piece,
        "reason": reason,
        "was_hanging": was_hanging,
        "same_tokens": tokens(engine) == expected,
    }


def fail(path: Path) -> dict[str, object]:
    """faults.c lets every read fail while the file "failing" exists."""
    config = EngineConfig.of(
        cache_rate=0.25, method="lru", n_thread=1, context_length=512, n_sequence=2
    )
    engine, sign = Engine.open(path, config), Path("failing")
    context, greedy = engine.loaded.context, Sampling(temperature=0)
    real, failing, n_pass = context.decode_rows, range(0), 0

    def decode_rows(rows: Any) -> int:
        nonlocal n_pass
        n_pass += 1
        if n_pass in failing:
            sign.touch()
        else:
            sign.unlink(missing_ok=True)
        return int(real(rows))

    def answers(*, keeps: bool = False) -> list[tuple[str, list[int]]]:
        """Answer four requests, of which two run at once. Return errors and tokens."""
        nonlocal n_pass
        n_pass = 0
        prompts = [f"{word} of the words that they had" for word in ("one", "two", "three", "four")]
        requests = [Request(i, greedy, 6, prompt=prompt) for i, prompt in enumerate(prompts)]
        found = {a.request.key: a for a in jointly(engine, requests, keeps=keeps)}
        return [(found[i].error, [p.token_id for p in found[i].pieces][:6]) for i in range(4)]

    def alone() -> list[int]:
        nonlocal n_pass
        n_pass = 0
        return tokens(engine)

    context.decode_rows = decode_rows
    usual, n_usual = answers(), n_pass
    usual_alone = alone()
    found: dict[str, object] = {"usual": usual, "n_usual": n_usual}
    failing = range(4, 5)
    found["once"], found["n_once"] = answers(), n_pass
    found["alone_once"] = alone() == usual_alone
    failing = range(4, 6) if context.n_piece else range(4, 7)
    found["twice"] = answers(keeps=True)
    try:
        alone()
    except EngineError as error:
        found["alone_twice"] = str(error)
    failing = range(0)
    sign.unlink(missing_ok=True)
    found["later"] = answers() == usual
    found["alone_later"] = alone() == usual_alone
    engine.close()
    return found


def ram(path: Path, device: str, host_bytes: int) -> dict[str, object]:
    config = EngineConfig(
        cache_rate=0.25,
        method="lru-overlapped",
        context_length=512,
        n_thread=1,
        device=device,
        host_bytes=host_bytes,
    )
    engine, chance = Engine.open(path, config), random.Random(1)
    for _ in range(2):
        text = "".join(chr(chance.randrange(32, 127)) for _ in range(400))
        list(engine.answer(of_text(text, Sampling(temperature=0), 4)))
        engine.forget()
    host = engine.loaded.plan.host
    unread_bytes = host.bytes - int(engine.loaded.patch.host_held_bytes)
    found: dict[str, object] = {
        "planned": host.total_bytes,
        "unread": unread_bytes,  # bytes of the store without data: no token chose these experts
        "used": status_bytes("VmRSS"),
        "store": host.bytes,
    }
    engine.close()
    return found


if __name__ == "__main__":
    what, model, *rest = sys.argv[1:]
    if what == "residency":
        found = residency(Path(model), float(rest[0]))
    elif what == "ram":
        found = ram(Path(model), rest[0], int(rest[1]))
    else:
        found = {"shortage": shortage, "hang": hang, "fail": fail}[what](Path(model))
    print(json.dumps(found))
