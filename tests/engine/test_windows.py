"""Layers with a sliding window keep its cells in a ring, and nobody computes with a part of one.

Replay judges: it computes each log in a context that keeps all cells, too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from asking import jointly, keep_all, of_chat
from chats import CHAT, GREEDY, model, n_read
from factory import can_predict, make_tiny
from oracle import Oracle
from scripts import Always

from backend.engine.engine import Engine
from backend.engine.loading import load_plain
from backend.evaluation.whole_windows import WholeWindows, state_of
from backend.gguf.model_file import read_model
from backend.llama.api import Context
from backend.llama.row import Row
from backend.protocol.request import Request
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]
RING = {"context_length": 1024, "n_ubatch": 32}
"""Windows of 16 tokens, as all tiny models have, then have a ring of 256 cells, the fewest."""
NIGHT = pytest.mark.night
N_SCRIPT = int(os.environ.get("OUTRIDER_SCRIPTS", "4"))
WORDS = ["fox", "wolf", "owl", "eats", "mice", "in", "winter", "and", "sleeps", "long"]


def long(seed: int, n: int) -> str:
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(n))


FIRST: list[Any] = [{"role": "user", "content": long(0, 60)}]
TURN = [*FIRST, {"role": "assistant", "content": "Mice."}, CHAT[2]]
CALL = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": "{}"}}
STEP: list[Any] = [
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": CALL["id"], "content": "nothing"},
]
BESIDE = ["afmoe", "cohere2moe", "exaone-moe", "laguna", "maple", "mellum", "step35"]


@pytest.mark.parametrize(
    ("arch", "n_sequence", "drafts"),
    [
        ("gpt-oss", 1, "off"),
        ("gemma4", 4, "auto"),  # guesses where the text repeats itself
        ("mimo2", 4, "auto"),  # has a layer that guesses
        *(pytest.param(a, 1 + 3 * (i % 2), "auto", marks=NIGHT) for i, a in enumerate(BESIDE)),
    ],
)
def test_every_way_of_going_on_or_back_has_a_whole_window(
    arch: str, n_sequence: int, drafts: str, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """The first answer is longer than the ring reaches back: its border needs a checkpoint."""
    layers = {"n_nextn": 1} if can_predict(arch) else {}
    # No rounding to other experts or to 8 bits: of exaone-moe that gave another token of two.
    path = model(arch, tmp_path, "F16", n_expert=4, n_expert_used=4, **layers)

    def opened() -> Engine:
        engine = open_engine(path, **RING, n_sequence=n_sequence, drafts=drafts)
        engine.passes.width = Always(3)
        engine.keep_in(tmp_path / "states")
        keep_all(engine)
        return engine

    engine = opened()
    assert engine.loaded.context.has_ring
    whole = n_read(engine, FIRST, 270)
    assert n_read(engine, FIRST, 20) <= 9 < 200 < whole  # Retry
    assert n_read(engine, [*FIRST, *STEP], 8) < 150  # a tool round
    assert n_read(engine, TURN, 70) < 80  # append, and the thought is dropped
    edited = [*TURN[:-1], {"role": "user", "content": "And hares?"}]
    assert n_read(engine, edited, 8) < 80
    n_read(engine, TURN, 8)  # back to the branch
    n_read(engine, [{"role": "user", "content": long(1, 60)}], 8)
    n_read(engine, TURN, 8)
    stopped, said = of_chat(TURN, GREEDY, 40), ""
    for piece in engine.answer(stopped):
        said += piece.text
        if len(said) > 20:
            stopped.handle.cancel()
    assert n_read(engine, [*TURN, {"role": "assistant", "content": said}], 8) < 80
    sampled = [Sampling(temperature=1, seed=i) for i in range(3)]
    others = [Request(i, each, 40, messages=TURN) for i, each in enumerate(sampled)]
    for answer in jointly(engine, others, keeps=True):  # More answers
        assert answer.n_prompt - answer.n_reused <= 9
    assert n_read(engine, TURN, 8, owner="a") <= 9
    keep_all(engine)
    engine.close()
    engine = opened()
    asked = [*TURN, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]
    assert n_read(engine, asked, 8, owner="a") < 80  # restart
    counts = oracle.approve()
    assert counts["n_restored"] > 0 < counts["n_state"] and not counts["n_taken"]


def test_without_the_rule_the_oracle_sees_a_part_of_a_window(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "_can_forget", lambda *_: True)
    engine = open_engine(model("gpt-oss", tmp_path), **RING)
    n_read(engine, FIRST, 270)
    assert n_read(engine, FIRST, 20) <= 9
    with pytest.raises(AssertionError, match="without the whole window"):
        oracle.approve()


def test_the_judge_gets_a_window_that_llama_cpp_used_again(tmp_path: Path) -> None:
    """Its context has cells for all, and yet loses some: a search for cells comes across them."""
    file = read_model(make_tiny("gpt-oss", "F16", tmp_path / "m.gguf", n_layer=2))
    stock, tokens = load_plain(file, repack=False), [i % 50 for i in range(400)]

    def opened() -> Context:
        return Context(stock, n_context=1024, n_ubatch=16, n_thread=1, n_sequence=2, windows=False)

    def compute(context: Context, begin: int, end: int, sequence: int = 0) -> None:
        for i in range(begin, end):
            row = Row(tokens[i], i, sequence, has_logits=True)
            assert context.decode_rows([row]) == 0

    context, fresh = opened(), opened()
    judge = WholeWindows(context.pointer, stock.n_vocab)
    compute(context, 0, 200, 1)
    compute(context, 0, 300)
    window = state_of(context.pointer, 0, llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
    judge.remember("seq_rm", 1, -1, -1)
    compute(context, 300, 400)
    compute(context, 0, 400, 1)
    first = llama_cpp.llama_memory_seq_pos_min(llama_cpp.llama_get_memory(context.pointer), 0)
    assert first > 300 - 15  # of the window before 300
    judge.remember("seq_rm", 0, 300, -1)
    judge.complete(0, 300 - 15, lambda: window)
    compute(context, 300, 301)
    compute(fresh, 0, 301)
    difference = abs(context.row_logits(-1) - fresh.row_logits(-1)).max()
    assert difference < 0.01 * abs(fresh.row_logits(-1)).max()
    for each in (context, fresh):
        each.close()
    stock.close()


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
