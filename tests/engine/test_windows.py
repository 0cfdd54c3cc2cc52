"""Layers with a sliding window keep its cells in a ring, and nobody computes with a part of one.

Replay judges: it computes each log in a context that keeps all cells, too.
"""

from __future__ import annotations

import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chats import CHAT, FAMILIES, TEMPLATES, n_read
from factory import make_tiny
from oracle import Oracle
from reciter import with_template

from backend.engine.engine import Engine
from backend.engine.loading import load_plain
from backend.gguf.model_file import read_model
from backend.llama.api import Context
from backend.llama.row import Row

OpenEngine = Callable[..., Engine]
RING = {"context_length": 1024, "n_ubatch": 32}
"""Windows of 16 tokens, as all tiny models have, then have a ring of 256 cells, the fewest."""
N_SCRIPT = int(os.environ.get("OUTRIDER_SCRIPTS", "4"))
WORDS = ["fox", "wolf", "owl", "eats", "mice", "in", "winter", "and", "sleeps", "long"]


def model(arch: str, folder: Path) -> Path:
    """Return a tiny model with a template that drops the thoughts of earlier turns."""
    template = zipfile.ZipFile(TEMPLATES).read(f"{FAMILIES['qwen35moe']}.jinja").decode()
    return with_template(make_tiny(arch, "F16", folder / "t.gguf"), folder / "m.gguf", template)


def long(seed: int, n: int) -> str:
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(n))


FIRST: list[Any] = [{"role": "user", "content": long(0, 120)}]
TURN = [*FIRST, {"role": "assistant", "content": "Mice."}, CHAT[2]]


@pytest.mark.parametrize(("arch", "n_sequence"), [("gpt-oss", 1), ("gemma4", 4)])
def test_every_way_of_going_back_has_a_whole_window(
    arch: str, n_sequence: int, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """Answers are longer than the ring reaches back, so that the border needs a checkpoint."""
    engine = open_engine(model(arch, tmp_path), **RING, n_sequence=n_sequence)
    assert engine.loaded.context.has_ring
    whole = n_read(engine, FIRST, 300)
    assert n_read(engine, FIRST, 20) <= 9 < 400 < whole  # Retry
    assert n_read(engine, TURN, 300) < 80  # the thought is dropped
    edited = [*TURN[:-1], {"role": "user", "content": "And hares?"}]
    assert n_read(engine, edited, 20) < 80
    n_read(engine, TURN, 20)  # back to the branch
    n_read(engine, [{"role": "user", "content": "And geese?"}], 280)
    n_read(engine, TURN, 20)
    oracle.approve()


def test_without_the_rule_the_oracle_sees_a_part_of_a_window(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "_can_forget", lambda *_: True)
    engine = open_engine(model("gpt-oss", tmp_path), **RING)
    n_read(engine, FIRST, 300)
    assert n_read(engine, FIRST, 20) <= 9
    with pytest.raises(AssertionError, match="without the whole window"):
        oracle.approve()


N_TIGHT = 15
"""Sequences whose windows and a pass of 16 tokens fill a ring of 256 cells."""


def play(context: Context, seed: int, n_step: int = 60) -> int:
    """Fork, share, guess, go back and write long answers. Return the passes."""
    chosen, held, n_pass = random.Random(seed), {0: [1]}, 0
    context.clear()
    assert context.decode_rows([Row(1, 0, 0, has_logits=True)]) == 0
    for _ in range(n_step):
        sequence = chosen.choice(sorted(held))
        tokens = held[sequence]
        n = context.reachable(sequence, chosen.randint(0, len(tokens)))
        act = chosen.random()
        free = sorted(set(range(N_TIGHT)) - set(held))
        if act < 0.3 and free and n:
            if context.copy_sequence(sequence, free[0], n):
                held[free[0]] = tokens[:n]
        elif act < 0.4 and n and context.go_back(n, sequence):
            held[sequence] = tokens[:n]
        elif act < 0.45 and len(held) > 1:
            context.forget_from(0, sequence)
            del held[sequence]
        elif act < 0.55:
            context.save(sequence, n)
        else:
            writing = chosen.sample(sorted(held), chosen.randint(1, min(len(held), 8)))
            for _ in range(chosen.choice((1, 1, 40))):
                each = max(1, 16 // len(writing) if act < 0.7 else 1)
                writing = [s for s in writing if len(held[s]) + each < 400]
                rows = [
                    Row(i % 50, len(held[s]) + i, s, has_logits=True)
                    for s in writing
                    for i in range(each)
                ]
                if not rows or sum(map(len, held.values())) + len(rows) > context.n_context:
                    break
                assert all(context.reachable(s, len(held[s])) == len(held[s]) for s in writing)
                assert context.decode_rows(rows) == 0, "there is no cell"
                n_pass += 1
                for s in writing:
                    held[s] += [i % 50 for i in range(each)]
                    if each > 1 and chosen.random() < 0.5:  # all but one were wrong guesses
                        n = len(held[s]) - each + 1
                        assert context.forget_from(n, s)
                        del held[s][n:]
    return n_pass


def test_no_script_of_forks_shares_and_guesses_lacks_a_cell(tmp_path: Path) -> None:
    file = read_model(make_tiny("gpt-oss", "F16", tmp_path / "m.gguf", n_layer=2))
    stock = load_plain(file, repack=False)
    context = Context(
        stock, n_context=4096, n_ubatch=16, n_thread=1, n_sequence=N_TIGHT, n_checkpoint=4
    )
    assert context.has_ring
    assert sum(play(context, seed) for seed in range(N_SCRIPT)) > 10 * N_SCRIPT
    for context.has_ring in (True, False):  # copies share cells otherwise, which stay in use
        context.clear()
        assert not any(context.decode([1] * 16, n) for n in range(0, 240, 16))
        assert all(context.copy_sequence(0, s, 240) for s in range(1, N_TIGHT))
        found = [context.decode([1] * 16, n) for n in (240, 256)]
        assert found == ([0, 0] if context.has_ring else [0, 1])
    context.close()
    stock.close()
