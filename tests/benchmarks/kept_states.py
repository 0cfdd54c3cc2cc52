"""Measures how soon a long chat goes on when its state is on the drive, under a memory limit.

    PYTHONPATH=tests python tests/benchmarks/kept_states.py MODEL [--tokens N] [--threads N]

A first process reads a prompt, keeps its state and is killed by SIGKILL. A second one opens the
model and asks the same again; then it forgets all and asks once more. The page cache holds neither
the states nor the model then. Times are in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from asking import of_text

from backend.bench.cap import MemoryCap
from backend.engine.engine import Engine
from backend.engine.kept_states import KeptStates
from backend.protocol.settings import EngineConfig, Sampling

GREEDY = Sampling(temperature=0)
N_DECODED = 16


def open_engine(model: Path, folder: Path, n_context: int, n_thread: int) -> Engine:
    config = EngineConfig(automatic=True, n_thread=n_thread).decided(context_length=n_context)
    engine = Engine.open(model, config)
    engine.keep_in(folder)
    return engine


def prompt_of(engine: Engine, n_token: int) -> str:
    """Return a random text of about this many tokens."""
    words = "it was one of the words that they had not said and a man in his house by day".split()
    chance, text = random.Random(0), ""
    while len(engine.prompts.tokenize(text)) < n_token:
        text += " ".join(chance.choices(words, k=100)) + " "
    return engine.prompts.detokenize(engine.prompts.tokenize(text)[:n_token])


def ask(engine: Engine, prompt: str) -> dict[str, object]:
    """Return the cost of an answer."""
    began_s = time.perf_counter()
    pieces = engine.answer(of_text(prompt, GREEDY, N_DECODED, owner="chat-1"))
    tokens = [next(pieces).token_id]
    first_s = time.perf_counter() - began_s
    tokens += [piece.token_id for piece in pieces]
    stats = engine.statistics()
    return {
        "n_prompt": stats.n_prompt,
        "n_reused": stats.n_reused,
        "first_token_s": round(first_s, 3),
        "token_s": round(1 / stats.tokens_per_s, 3),
        "tokens": tokens,
    }


def drop(folder: Path, *others: Path) -> int:
    """Drop files from the page cache. Return the bytes of those of the folder."""
    n_bytes = 0
    for path in (*folder.glob("*/*"), *others):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        n_bytes += path.stat().st_size if path not in others else 0
    return n_bytes


def child(model: Path, folder: Path, n_token: int, n_thread: int, part: str) -> None:
    began_s = time.perf_counter()
    engine = open_engine(model, folder, n_token + 512, n_thread)
    print(f"opened in {time.perf_counter() - began_s:.1f} s", flush=True)
    prompt = prompt_of(engine, n_token)
    cache = engine.cache
    if part == "read":
        cost = ask(engine, prompt)
        began_s = time.perf_counter()
        while engine.keep():
            time.sleep(0.01)
        kept_s = round(time.perf_counter() - began_s, 3)
        print(json.dumps({**cost, "keep_s": kept_s, "rate": cache.rate}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(3):
        engine.forget()
        n_bytes = drop(folder, model)
        began_s = time.perf_counter()
        states, tokens = KeptStates(folder), engine.prompts.tokenize(prompt)
        assert engine.passes.keeping is not None
        found = states.find(engine.passes.keeping.root(), tokens, engine.loaded.context.n_piece)
        for _ in states.states(found):
            pass
        states.close()
        alone_s = round(time.perf_counter() - began_s, 3)
        engine.forget()
        drop(folder, model)
        print(
            json.dumps({**ask(engine, prompt), "read_alone_s": alone_s, "n_bytes": n_bytes}),
            flush=True,
        )
    engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cap", type=float, default=2.5e9)
    parser.add_argument("--part", nargs=2)
    given = parser.parse_args()
    if given.part:
        child(given.model, Path(given.part[1]), given.tokens, given.threads, given.part[0])
        return
    cap = MemoryCap(int(given.cap), "kept-states")
    with tempfile.TemporaryDirectory(dir=given.model.parent) as folder:
        for part in ("read", "restore"):
            drop(Path(folder), given.model)
            counts = "--tokens", str(given.tokens), "--threads", str(given.threads)
            command = [sys.executable, __file__, str(given.model), *counts]
            join = f'echo 0 > {cap.join_path}; exec "$@"'
            whole = ["sh", "-c", join, "sh", *command, "--part", part, folder]
            subprocess.run(whole, check=False)
    cap.close()


if __name__ == "__main__":
    main()
