"""A conversation goes on in another context: at another cache rate, with programs beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import keep_all, of_text, read
from factory import make_tiny
from oracle import Oracle

from backend.engine.engine import Engine
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]

EMBEDDED = Path(__file__).resolve().parents[2] / "assets/embedded/outrider-tiny.gguf"
GREEDY = Sampling(temperature=0)
PROMPT = "some words that a conversation begins with " * 4


def begin(engine: Engine, owner: str = "") -> None:
    list(engine.answer(of_text(PROMPT, GREEDY, 6, owner=owner)))


def go_on(engine: Engine, tokens: list[int], owner: str = "") -> int:
    """Read a conversation and one more token. Return how many were computed."""
    return len(tokens) + 1 - read(engine, [*tokens, 1], owner)


@pytest.mark.parametrize("architecture", ["qwen3moe", "qwen3next", "gemma4", "gpt-oss"])
def test_a_conversation_goes_on_at_every_cache_rate(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path, architecture: str
) -> None:
    """Also where the weights are loaded again. Stock llama.cpp computes the same from there."""
    engine = open_engine(make_tiny(architecture, "Q4_0", tmp_path / "m.gguf"), cache_rate=0.5)
    begin(engine)
    for rate in (1.0, 0.25, 1.0):
        tokens = list(engine.passes.tokens)
        engine.set_cache_rate(rate)
        assert go_on(engine, tokens) == 1, rate
    engine.close()
    oracle.approve()


def test_room_for_programs_keeps_the_conversation(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, cache_rate=0.5)
    begin(engine)
    for n_sequence in (4, 1):
        tokens = list(engine.passes.tokens)
        engine.change(engine.loaded.config.changed(n_sequence=n_sequence))
        assert go_on(engine, tokens) == 1, n_sequence


def test_what_has_moved_is_not_kept_on_the_drive(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    """Other kernels computed it than those by whose name it would be found."""
    engine = open_engine(tiny, cache_rate=0.5)
    engine.keep_in(tmp_path / "states")
    begin(engine, "chat-1")
    engine.set_cache_rate(1.0)
    tokens = list(engine.passes.tokens)
    assert go_on(engine, tokens, "chat-1") == 1
    keep_all(engine)
    assert not [*(tmp_path / "states").rglob("*.state")]
    engine.forget()
    begin(engine, "chat-1")
    keep_all(engine)
    assert [*(tmp_path / "states").rglob("*.state")]


@pytest.mark.parametrize(
    "changes", [{"context_length": 256}, {"kv_type": "q8_0"}, {"kv_type": "q8_0", "cache_rate": 1}]
)
def test_a_context_that_cannot_hold_it_begins_again(
    open_engine: OpenEngine, changes: dict[str, Any]
) -> None:
    engine = open_engine(EMBEDDED, cache_rate=0.5, context_length=512)
    list(engine.answer(of_text("word " * 260, GREEDY, 2)))
    tokens = list(engine.passes.tokens)
    assert len(tokens) > 256
    engine.change(engine.loaded.config.changed(**changes))
    n = min(len(tokens), 200)
    assert go_on(engine, tokens[:n]) == n + 1
