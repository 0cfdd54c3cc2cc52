"""Print how soon the next turn of a long chat and an agent's next step begin, on a real geometry.

    python tests/benchmarks/next_turn.py make FAMILY MODEL.gguf [--layers N]
    python tests/benchmarks/next_turn.py time MODEL.gguf [--tokens 8000] [--cap 4e9] [--rate 0.25]
    python tests/benchmarks/next_turn.py states

`make` writes a model of random weights in the sizes of FAMILY with fewer layers, its template and a
real vocabulary. `time` asks a chat whose system prompt has --tokens tokens; then some turns of 50
tokens, behind an answer of 150 whose thought the template drops; then an agent's steps (a call and
its result of 1,000 tokens); then it reads as many new tokens as a turn, and as a step, behind all
that the context holds. A row: tokens of the prompt, those that were read, seconds and processor
seconds to the first token, MB of experts that were read, and seconds to go back to a checkpoint.
The last rows compare the medians. `states` prints how long it takes to save and to restore what
cannot be cut, from memory and from the drive, for published numbers of layers, heads and states;
the other sizes of its models are small.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("", "backend", "engine")]

import numpy as np
from asking import of_chat, of_text, read
from chat_formats import template
from factory import make_published
from reciter import with_template

from backend.bench.cap import MemoryCap
from backend.engine.engine import Engine
from backend.engine.keeping import Keeping
from backend.llama.api import Context
from backend.protocol.chat import ChatOptions
from backend.protocol.settings import EngineConfig, Sampling

FAMILIES = {  # the family in agent_sessions.py, and whose sizes the model has
    "qwen": ("Qwen3.5", "Qwen3.6-35B-A3B"),
    "next": ("Qwen3.5", "Qwen3-Next-80B-A3B"),
    "gpt-oss": ("gpt-oss", "gpt-oss-20b"),
    "gemma": ("Gemma 4", "Gemma 4 26B-A4B"),
}
NARROW = {
    "n_embd": 64, "n_ff": 64, "n_ff_exp": 64, "n_ff_shexp": 64, "n_expert": 8, "n_expert_used": 2,
    "n_vocab": 512,
}  # fmt: skip
STATES = {
    "Qwen3.6-35B-A3B": ("Qwen3.6-35B-A3B", {}),
    "Qwen3-Next-80B-A3B": ("Qwen3-Next-80B-A3B", {}),
    "Qwen3.5-397B-A17B": ("Qwen3.6-35B-A3B", {"n_layer": 60, "n_v_head": 64}),
    "Gemma 4 26B-A4B": ("Gemma 4 26B-A4B", {}),
}
GREEDY = Sampling(temperature=0)
TOOLS = ({"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}},)
WORDS = "config reader value state token cache layer index parse write buffer result".split()


def make(family: str, path: Path, n_layer: int) -> None:
    from agent_sessions import FAMILIES as REAL  # its vocabularies are beside the checkout
    from agent_sessions import vocabulary

    real, name = FAMILIES[family]
    arch, named, end, _ = REAL[real]
    tokenizer = vocabulary(arch, named, end)
    n_vocab = len(tokenizer["tokenizer.ggml.tokens"][0])
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        plain = make_published(Path(folder) / "m.gguf", name, n_layer=n_layer, n_vocab=n_vocab)
        with_template(plain, path, template(named), vocabulary=tokenizer)


class Clock:
    """Adds up the seconds and processor seconds that calls of a method take."""

    def __init__(self, of: type, name: str) -> None:
        self.of: list[tuple[float, float]] = []
        method = getattr(of, name)

        def timed(*args: Any, **named: Any) -> Any:
            began = time.perf_counter(), time.process_time()
            try:
                return method(*args, **named)
            finally:
                self.of.append((time.perf_counter() - began[0], time.process_time() - began[1]))

        setattr(of, name, timed)

    def taken(self) -> tuple[float, float]:
        """Return the sums since the last call."""
        found, self.of = self.of, []
        return sum(s for s, _ in found), sum(cpu for _, cpu in found)


class Times:
    """Asks, and measures each first token."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rows: dict[str, list[dict[str, float]]] = {}
        self.chance = random.Random(1)
        self.back = Clock(Context, "go_back")

    def text(self, n_token: int) -> str:
        """Return random text of about this many tokens."""
        text = ""
        while (n := self.engine.prompts.count([user(text)])) < n_token:
            text += " ".join(self.chance.choices(WORDS, k=max(1, (n_token - n) * 2 // 3))) + " "
        return text

    def ask(self, way: str, prompt: list[dict[str, Any]] | tuple[int, ...]) -> int:
        """Return how many tokens were read."""
        self.back.taken()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        if isinstance(prompt, tuple):
            request = of_text(prompt, GREEDY, 4, owner="a")
        else:
            request = of_chat(prompt, GREEDY, 4, options=ChatOptions(tools=TOOLS), owner="a")
        pieces = self.engine.answer(request)
        next(pieces, None)
        row = {
            "s": time.perf_counter() - began_s,
            "cpu_s": time.process_time() - began_cpu_s,
            "mb": self.engine.statistics().bytes_read / 1e6,
            "back_s": self.back.taken()[0],
        }
        for _ in pieces:
            pass
        found = self.engine.statistics()
        row |= {"n_prompt": found.n_prompt, "n_read": found.n_prompt - found.n_reused}
        self.rows.setdefault(way, []).append(row)
        print(json.dumps({"way": way} | {k: round(v, 3) for k, v in row.items()}), flush=True)
        while self.engine.keep():  # as when the engine idles
            pass
        return int(row["n_read"])

    def append(self, way: str, n_token: int) -> None:
        """Read new tokens behind all that the context holds."""
        assert self.engine.last is not None
        known = list(self.engine.last.tokens)
        self.ask(way, (*known, *self.chance.choices(known, k=n_token + 1)[1:]))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def run(arguments: argparse.Namespace) -> None:
    config = EngineConfig.of(
        cache_rate=arguments.rate,
        method=arguments.method,
        context_length=arguments.tokens + 8192,
        n_thread=arguments.threads,
        n_ubatch=arguments.pass_length,
    )
    engine = Engine.open(arguments.model, config)
    plan = engine.loaded.plan
    print(json.dumps({"slots": plan.n_slot, "pass": plan.n_ubatch, "mode": plan.mode}), flush=True)
    if arguments.states:
        engine.keep_in(arguments.states)
    times = Times(engine)
    chat = [{"role": "system", "content": times.text(arguments.tokens)}, user("Where is it?")]
    times.ask("first", chat)
    n_turn = n_step = 0
    for _ in range(arguments.times):
        said = {"role": "assistant", "content": times.text(150)}
        chat += [said | {"reasoning_content": times.text(100)}, user(times.text(50))]
        n_turn = times.ask("turn", chat)
    for i in range(arguments.times):
        call = {"name": "read", "arguments": '{"path": "a.py"}'}
        calls = [{"id": f"call{i}0000", "type": "function", "function": call}]
        called = {"role": "assistant", "content": "", "tool_calls": calls}
        result = {"role": "tool", "tool_call_id": calls[0]["id"], "name": "read"}
        chat += [called | {"reasoning_content": times.text(50)}]
        chat += [result | {"content": times.text(1000)}]
        n_step = times.ask("step", chat)
    for _ in range(arguments.times if arguments.appends else 0):
        times.append("append to a turn", n_turn)
        times.append("append to a step", n_step)
    for way in ("turn", "step") if arguments.appends else ():
        for unit in ("s", "cpu_s"):
            a, b = (
                statistics.median(row[unit] for row in times.rows[w])
                for w in (way, f"append to a {way}")
            )
            print(f"{way}: {a:.2f} {unit}, new tokens alone {b:.2f}: {a / b:.2f} times")
    engine.close()


def drop(paths: Iterable[Path]) -> None:
    """Drop files from the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def restore(name: str, n_token: int, n_time: int) -> None:
    """Print the times of one geometry."""
    base, sizes = STATES[name]
    clocks = {n: Clock(Context, n) for n in ("save", "go_back")}
    from_drive = Clock(Keeping, "restore")
    with tempfile.TemporaryDirectory() as folder:
        path = make_published(Path(folder) / "m.gguf", base, **{**NARROW, **sizes})
        config = EngineConfig.of(cache_rate=1.0, context_length=8 * n_token, n_thread=1)
        found: dict[str, list[tuple[float, float]]] = {"save": [], "go_back": [], "drive": []}
        engine = Engine.open(path, config)
        engine.keep_in(Path(folder) / "states")
        tokens = [int(t) for t in np.random.default_rng(1).integers(0, 256, n_token)]
        read(engine, tokens, owner="a")
        while engine.keep():
            pass
        context, n = engine.loaded.context, n_token
        n_behind = 1024 if context.has_ring else 8  # until the ring has lost the window
        clocks["save"].taken()
        for _ in range(n_time):
            context.decode(tokens[:8], n)
            n += 8
            context.save(0, n)
            found["save"].append(clocks["save"].taken())
            for i in range(0, n_behind, 512):
                context.decode(tokens[: min(512, n_behind)], n + i)
            assert context.go_back(n, 0)
            found["go_back"].append(clocks["go_back"].taken())
        n_bytes = len(context.checkpoint(0)[1])
        engine.close()
        states = [f for f in (Path(folder) / "states").rglob("*") if f.is_file()]
        n_file = sum(f.stat().st_size for f in states)
        for _ in range(n_time):
            engine = Engine.open(path, config)
            engine.keep_in(Path(folder) / "states")
            drop(states)
            n_reused = read(engine, [*tokens, 1, 2, 3], owner="a")
            found["drive"].append(from_drive.taken())
            engine.close()
    told = [
        f"{way} {statistics.median(s for s, _ in of):.3f} ({min(of)[0]:.3f}), "
        f"{statistics.median(cpu for _, cpu in of):.3f} of a processor"
        for way, of in found.items()
    ]
    print(
        f"{name}: {n_bytes / 1e6:.0f} MB, on the drive {n_file / 1e6:.0f} MB with "
        f"{n_token} tokens, {n_reused} reused; medians and least of {n_time}, s: {'; '.join(told)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "time", "states", "child"])
    parser.add_argument("given", nargs="*", metavar="[FAMILY] MODEL")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.25)
    parser.add_argument("--method", default="lru")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pass-length", type=int, default=0)
    parser.add_argument("--cap", type=float, default=4e9)
    parser.add_argument("--no-appends", dest="appends", action="store_false")
    parser.add_argument("--states", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "states":
        for name in arguments.given or STATES:
            restore(name, 1024, arguments.times)
        return
    arguments.model = Path(arguments.given[-1])
    if arguments.what == "make":
        make(arguments.given[0], arguments.model, arguments.layers)
    elif arguments.what == "child":
        run(arguments)
    else:
        cap = MemoryCap(int(arguments.cap), "next-turn")
        drop([arguments.model])
        options = ["child" if word == "time" else word for word in sys.argv[1:]]
        join = f'echo 0 > {cap.join_path}; exec "$@"'
        command = ["sh", "-c", join, "sh", sys.executable, __file__, *options]
        subprocess.run(command, check=False)
        print(f"peak of memory: {cap.memory()['peak_bytes'] / 1e9:.2f} GB")
        cap.close()


if __name__ == "__main__":
    main()
