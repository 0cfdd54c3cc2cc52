"""A search in the chats: what it finds, in which order, and what it shows of a message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.state.conversation import Message
from app.store import search
from app.store.chats import ChatStore
from app.store.search import snippet


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatStore]:
    monkeypatch.setattr(search, "BUDGET_S", 1000.0)  # not on a busy machine either
    made = ChatStore.open(tmp_path / "chats.db")
    yield made
    made.close()


def chat(store: ChatStore, title: str, *said: str) -> int:
    """Keep a chat with questions in a row."""
    chat_id, parent = store.new_chat(title), 0
    for words in said:
        message = Message("user", words)
        store.add(chat_id, parent, message)
        parent = message.id
    return chat_id


def found(store: ChatStore, words: str) -> list[tuple[int, str]]:
    return [(one.chat_id, one.snippet) for one in store.search(words)]


def test_one_letter_looks_into_titles_and_two_into_messages_too(store: ChatStore) -> None:
    said, title = chat(store, "Other", "an ox here"), chat(store, "Oxen", "nothing")
    assert found(store, "o") == [(title, ""), (said, "")]  # both titles have an o
    assert found(store, "ox") == [(title, ""), (said, "an ox here")]
    assert found(store, "a ox") == [(said, "an ox here")]


def test_titles_come_first_and_the_newest_first(store: ChatStore) -> None:
    by_title = [chat(store, "A fox"), chat(store, "The fox")]
    by_text = [chat(store, "x", "one fox"), chat(store, "y", "two fox")]
    assert [n for n, _ in found(store, "fox")] == [*by_title[::-1], *by_text[::-1]]


def test_a_chat_is_found_once_with_its_newest_passage(store: ChatStore) -> None:
    chat_id = chat(store, "x", "the first fox", "the second fox")
    assert found(store, "fox") == [(chat_id, "the second fox")]


@pytest.mark.parametrize("where", ["title", "text"])
def test_sixty_chats_are_enough(store: ChatStore, where: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "N_FOUND", 3)
    made = [chat(store, "fox") if where == "title" else chat(store, "x", "fox") for _ in range(5)]
    assert [n for n, _ in found(store, "fox")] == made[:1:-1]


def test_older_messages_are_found_behind_many_newer_ones(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PAGE", 2)
    old = chat(store, "old", "fox")
    new = chat(store, "new", *["fox"] * 5)
    assert [n for n, _ in found(store, "fox")] == [new, old]
    monkeypatch.setattr(search, "BUDGET_S", -1.0)  # the time is over after the first page
    assert [n for n, _ in found(store, "fox")] == [new]


def test_a_deleted_chat_is_not_found(store: ChatStore) -> None:
    gone, stays = chat(store, "fox", "a fox"), chat(store, "x", "a fox")
    store.delete(gone)
    assert [n for n, _ in found(store, "fox")] == [stays]


def test_twelve_words_are_looked_for(store: ChatStore) -> None:
    chat_id = chat(store, "x", " ".join(f"w{i}w" for i in range(12)))
    words = " ".join(f"w{i}w" for i in range(12))
    assert [n for n, _ in found(store, f"{words} unsaid")] == [chat_id]
    assert found(store, "w0w unsaid") == []


@pytest.mark.parametrize(
    ("content", "words", "shown"),
    [
        ("The fox ran.", ["fox"], "The fox ran."),
        ("one\n\ttwo  fox", ["fox"], "one two fox"),
        ("0123456789 123456789 123 fox", ["fox"], "\u2026123456789 123 fox"),
        ("01234567890123456789 23 fox", ["fox"], "01234567890123456789 23 fox"),
        ("x" * 40 + "-fox", ["fox"], "\u2026" + "x" * 23 + "-fox"),
        ("fox " + "y" * 100, ["fox"], "fox " + "y" * 66),
        ("firefox, a FOX", ["fox"], "firefox, a FOX"),
        ("firefox " * 5 + "Foxes", ["fox"], "\u2026firefox firefox Foxes"),
        ("nothing of it", ["fox"], "nothing of it"),
        ("a cat and a fox", ["fox", "cat"], "a cat and a fox"),
    ],
)
def test_the_passage_around_a_word(content: str, words: list[str], shown: str) -> None:
    assert snippet(content, words) == shown
