"""Mutated model files: the check of the header, then a real load and four tokens in a child."""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path

from asking import of_text
from factory import ARCHITECTURES, QUANTS, make_tiny, supported

from attack.area import Finding, in_child
from attack.gguf_mutations import Model, Mutator, damage
from backend.engine.engine import Engine
from backend.gguf.model_file import ModelFileError, read_model
from backend.llama.api import LlamaError
from backend.protocol.errors import EngineError, RequestError
from backend.protocol.settings import EngineConfig, Sampling

_CHECK = re.compile(r"GGML_ASSERT\((.*)\) failed|fatal error: (.*)|([\w./-]+:\d+): (.*)")
_LOAD_S = 100.0
_models: list[Model] = []


def prepare(folder: Path) -> None:
    """Write a sound model of every architecture, and read them into their parts."""
    if _models:
        return
    for i, arch in enumerate(ARCHITECTURES):
        quants = [q for q in QUANTS if supported(arch, q) and q != "Q4_K"]
        path = folder / f"{arch}.gguf"
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            # With fewer layers, these have none with attention over the whole context.
            n_layer = {"llama4": 4, "nemotron_h_moe": 3}.get(arch, 2)
            make_tiny(arch, quants[i % len(quants)], part, n_layer=n_layer)
            part.replace(path)
        _models.append(Model.of(path))


def mutant(seed: int) -> tuple[Model, list[str], bytes | None]:
    """Return a mutated model, what was done to it, and its bytes if they were damaged besides."""
    chance = random.Random(f"model {seed}")
    mutator = Mutator(chance, _models)
    model = mutator.mutate(_models[seed % len(_models)])
    steps = [ARCHITECTURES[seed % len(_models)], *mutator.steps]
    if chance.random() < 0.15:
        header, _ = model.header()
        whole = model.build()
        return model, [*steps, "damage"], damage(header, chance) + whole[len(header) :]
    return model, steps, None


def attack_header(seed: int, folder: Path) -> str:
    """Check the header of a mutated model: it is read, or refused in one sentence."""
    model, steps, damaged = mutant(seed)
    header, n_bytes = model.header()
    path = folder / "m.gguf"
    if damaged is None:
        path.write_bytes(header)
        os.truncate(path, len(header) + n_bytes)  # the data does not matter here
    else:
        path.write_bytes(damaged)
    try:
        file = read_model(path)
    except ModelFileError as error:
        if not re.fullmatch(r"m\.gguf cannot be used: [^\n]+\.", str(error)):
            raise Finding(f"no sentence: {str(error)!r} after {steps}") from None
        return "refused"
    for t in file.tensors:
        if t.offset + t.n_bytes > path.stat().st_size:
            raise Finding(f"{t.name} ends beyond the file after {steps}")
    return "read"


def attack_load(seed: int, folder: Path) -> str:
    """Load a mutated model and compute four tokens: an answer, a sentence, or llama.cpp's crash."""
    seed_now = seed
    for seed_now in range(seed << 12, (seed << 12) + 4096):  # the next one whose header passes
        model, steps, damaged = mutant(seed_now)
        path = folder / "m.gguf"
        path.write_bytes(model.build() if damaged is None else damaged)
        try:
            read_model(path)
            break
        except ModelFileError:
            continue
    end = in_child(lambda: _load(path, seed), folder, _LOAD_S, memory_bytes=6 << 30)
    if end.kind == "hang":
        raise Finding(f"a load hangs after {steps}")
    if end.kind == "signal":
        return f"crash: {crash_class(end.value, end.said)} | load:{seed}: {'; '.join(steps)}"
    if "Traceback" in end.said:
        raise Finding(f"{end.said[-3000:]}\nafter {steps}")
    return {0: "answered", 1: "a sentence"}.get(end.value, f"status {end.value}")


def _load(path: Path, seed: int) -> int:
    os.environ["GGML_NO_BACKTRACE"] = "1"
    rate = (0.25, 1.0, 0.5)[seed % 3]
    config = EngineConfig(cache_rate=rate, n_thread=1, context_length=64)
    try:
        engine = Engine.open(path, config)
        list(engine.answer(of_text("the of and", Sampling(temperature=0), 4)))
    except (EngineError, LlamaError, ModelFileError, RequestError) as error:
        if not str(error).endswith("."):
            raise Finding(f"no sentence: {error}") from None
        return 1
    return 0


def crash_class(number: int, said: str) -> str:
    """Return what a crash is called in the list of classes."""
    name = signal.Signals(number).name
    for line in reversed(said.splitlines()):
        if found := _CHECK.search(line):
            words = [word.rpartition("/")[2] for word in found.groups() if word]
            return f"{name} {' '.join(words)}"[:160]
    what = [line for line in said.splitlines() if "what()" in line or "terminate" in line]
    return f"{name} {what[-1].strip() if what else ''}".strip()[:160]
