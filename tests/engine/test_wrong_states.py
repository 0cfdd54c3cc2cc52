"""A checkpoint that is not of its tokens is seen by the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import of_text
from chats import CHAT, GREEDY, QUESTIONS, model, n_read
from oracle import Oracle

from backend.engine.engine import Engine
from backend.llama import api, batch_log

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


def spoil(log: Path, change: Callable[[list[Any]], Any]) -> None:
    """Change the entries of a log. change: returns what stands in the place of one; []: nothing."""
    found = [change(entry) for entry in batch_log.read(log)]
    log.write_text("".join(json.dumps(entry) + "\n" for entry in found if entry))


def saves_others(context: Any, sequence: int, n: int, **more: Any) -> None:
    """Save a checkpoint, and say that it is of another position."""
    save(context, sequence, n, **more)
    context._checkpoints[-1].n = n + 3


save = api.Context.save


def flips_a_bit(context: Any, sequence: int, n: int, **more: Any) -> None:
    save(context, sequence, n, **more)
    context._checkpoints[-1].state[-5] ^= 64


def keeps_old(context: Any, name: str, *_: int, done: bool) -> None:
    """Leave a checkpoint whose positions were removed."""
    if name == "clear":
        context._checkpoints.clear()


@pytest.mark.parametrize(
    ("what", "wrong"), [("save", saves_others), ("save", flips_a_bit), ("_follow", keeps_old)]
)
def test_a_wrong_checkpoint_is_seen(
    what: str,
    wrong: Callable[..., Any],
    open_engine: OpenEngine,
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api.Context, what, wrong)
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024)
    other = "Quite another question, which is longer than the first one of the chat"
    for text in (QUESTIONS[0], QUESTIONS[0], f"{other} is.", f"{other} was."):
        n_read(engine, [{"role": "user", "content": text}])
    assert oracle.difference()


def test_cells_behind_a_checkpoint_that_were_not_removed_are_seen(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024)
    for messages in (CHAT[:1], CHAT[:1]):
        n_read(engine, messages)
    spoil(oracle.logs[0], lambda entry: entry if entry[0] != "seq_rm" else [])
    assert "position" in oracle.difference()
