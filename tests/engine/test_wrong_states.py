"""A checkpoint that is not of its tokens is seen by the oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, of_text
from chats import GREEDY, QUESTIONS, model, n_read
from oracle import Oracle, spoil

from backend.engine.engine import Engine
from backend.llama import api
from backend.protocol.errors import EngineError
from backend.protocol.request import Request

OpenEngine = Callable[..., Engine]


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_state_goes_back_within_the_last_pass_only(
    is_checked: bool,
    open_engine: OpenEngine,
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it keeps states for guesses, llama.cpp goes back further, to wrong states."""
    if not is_checked:
        monkeypatch.setattr(api.Context, "_can_forget", lambda *_: True)
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024, drafts="auto")
    list(engine.answer(of_text(tuple(range(20, 40)), GREEDY, 2)))  # a last pass of one token
    assert engine.loaded.context.forget_from(len(engine.passes.tokens) - 2) is not is_checked
    assert bool(oracle.difference()) is not is_checked


save, restore, copy = api.Context.save, api.Context._restore, api.Context.copy_sequence


def shifted(by: int) -> Callable[..., None]:
    """Return a save() that says of each checkpoint that it is of another position."""

    def saved(context: Any, sequence: int, n: int, **more: Any) -> None:
        save(context, sequence, n, **more)
        context._checkpoints[-1].n = n + by

    return saved


def flips_a_bit(context: Any, sequence: int, n: int, **more: Any) -> None:
    save(context, sequence, n, **more)
    context._checkpoints[-1].state[-5] ^= 64


def keeps_old(context: Any, name: str, *_: int, done: bool) -> None:
    """Leave a checkpoint whose positions were removed."""
    if name == "clear":
        context._checkpoints.clear()


def restores_of_another(context: Any, checkpoint: Any, sequence: int) -> bool:
    others = (c for c in context._checkpoints if sequence not in c.sequences)
    return restore(context, next(others, checkpoint), sequence)


def shares_windows(context: Any, *arguments: int) -> bool:
    """Leave a copy the cells of the sequence that it was copied of."""
    context.has_ring = False
    try:
        return copy(context, *arguments)
    finally:
        context.has_ring = True


SHORT = [{"role": "user", "content": QUESTIONS[0]}]
LATER = [
    *SHORT,
    {"role": "assistant", "content": "Mice."},
    {"role": "user", "content": "No. " * 80},
]
"""A window before the answer to SHORT is not in a ring any more."""
OTHER = "Quite another question, which is longer than the first one of the chat"
ALIKE = [[{"role": "user", "content": t}] for t in (QUESTIONS[0], f"{OTHER} is.", f"{OTHER} was.")]


@pytest.mark.parametrize(
    ("arch", "what", "wrong", "said"),
    [
        ("qwen35moe", "save", shifted(3), "state"),
        ("qwen35moe", "save", flips_a_bit, "logits"),
        ("qwen35moe", "_follow", keeps_old, "state"),
        ("qwen35moe", "_restore", restores_of_another, "state"),
        ("gpt-oss", "save", shifted(-3), "position"),
        ("gpt-oss", "save", flips_a_bit, "logits"),
        ("gpt-oss", "_restore", restores_of_another, "state"),
        ("gpt-oss", "copy_sequence", shares_windows, "no free cell"),
    ],
)
def test_a_wrong_checkpoint_is_seen(
    arch: str,
    what: str,
    wrong: Callable[..., Any],
    said: str,
    open_engine: OpenEngine,
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api.Context, what, wrong)
    is_copy = what == "copy_sequence"
    engine = open_engine(
        model(arch, tmp_path), context_length=2048, n_ubatch=32, n_sequence=2 + is_copy
    )
    with contextlib.suppress(EngineError):
        for messages in (SHORT, LATER, *ALIKE, SHORT):
            n_read(engine, messages)
        more = [Request(i, GREEDY, 40, messages=LATER) for i in range(2)]
        list(jointly(engine, more if is_copy else [], keeps=True))
    assert said in oracle.difference()


@pytest.mark.parametrize("arch", ["qwen35moe", "gpt-oss"])
def test_cells_behind_a_checkpoint_that_were_not_removed_are_seen(
    arch: str, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model(arch, tmp_path), context_length=1024, n_ubatch=32)
    for messages in (SHORT, LATER, SHORT):
        n_read(engine, messages)
    spoil(oracle.logs[0], lambda entry: entry if entry[0] != "seq_rm" else [])
    assert "position" in oracle.difference()


def test_rows_of_an_answer_that_is_not_in_the_log_are_seen(
    open_engine: OpenEngine, oracle: Oracle, tiny: Path
) -> None:
    engine = open_engine(tiny)
    for prompt in ("one", "two"):
        list(engine.answer(of_text(prompt, GREEDY, 2)))
    gone = ("answer", "chose", "sent")
    spoil(oracle.logs[0], lambda entry: [] if entry[0] in gone and entry[1] == 2 else entry)
    assert oracle.difference() == "The log names answer 2, which none of its entries before has."
