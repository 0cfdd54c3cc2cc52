"""A search in the chats: what it finds, in which order, and what it shows of a message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from window_samples import WAIT_MS, Model, Opener

from app.chat.plain_text import plain_text
from app.sidebar.list_delegate import place_of
from app.state.conversation import Message
from app.store import search
from app.store.chats import ChatStore
from app.store.search import snippet


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatStore]:
    for name in ("BUDGET_S", "SHORT_BUDGET_S"):
        monkeypatch.setattr(search, name, 1000.0)  # not on a busy machine either
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


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (
            "Use **the fox** and `fox()` of [a fox](https://e.example)",
            "Use the fox and fox() of a fox",
        ),
        ("x\n```python\nfox = a*b*c\n```\n**y**", "fox = a*b*c"),
        ("```\nx\n```\n## A _fox_, $x^2$", "A fox, x\u00b2"),
        ("| **a** | b |\n|---|---|\n| fox | `c` |", "a b fox c"),
        ("[it](https://fox.example) **is**", "[it](https://fox.example) **is**"),
        ("1. a\n   - *the* \\*fox\\*", "a the *fox*"),
    ],
)
def test_a_passage_of_an_answer_has_no_signs(qapp: Any, content: str, shown: str) -> None:
    assert snippet(content, ["fox"], plain_text) == shown


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("ein Donaudampfschiff", "dampf"),
        ("ein Donaudampfschiff", "am"),
        ("\u6211\u559c\u6b22\u673a\u5668\u5b66\u4e60\u548c\u6570\u5b66", "\u5668\u5b66\u4e60"),
        ("\u6211\u559c\u6b22\u673a\u5668\u5b66\u4e60\u548c\u6570\u5b66", "\u6570\u5b66"),
        ("\u5e84\u306b\u72ac\u304c\u3044\u308b", "\u72ac"),
        (
            "\u0e09\u0e31\u0e19\u0e01\u0e34\u0e19\u0e02\u0e49\u0e32\u0e27",
            "\u0e02\u0e49\u0e32\u0e27",
        ),
        (
            "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e",
            "\u0928\u094d\u0926\u0940",
        ),
        ("use snake_case_names, please", "case_name"),
        ("written in C++ and 50% done", "c++"),
        ("written in C++ and 50% done", "50% c++"),
        ('he said "tin soldier"', '"tin soldier"'),
    ],
)
def test_parts_of_words_and_scripts_without_spaces_are_found(
    store: ChatStore, content: str, words: str
) -> None:
    chat_id = chat(store, "x", "nothing", content)
    chat(store, "y", "abc def xyz \u4e00\u4e8c\u4e09", "50 c+ d m pf")
    assert found(store, words) == [(chat_id, content)]


@pytest.mark.parametrize(
    ("said", "words", "marked"),
    [
        ("\xdcbungen f\xfcr Anna", "\xfcbungen", "\xfcbungen"),
        ("\xdcbungen f\xfcr Anna", "\xdcBUNGEN anna", "\xfcbungen"),
        ("Ti\u1ebfng Vi\u1ec7t", "viet", "Vi\u1ec7t"),
        ("zwei Cafe\u0301s", "caf\xe9s", "Cafe\u0301s"),
        ("\u0420\u0435\u0446\u0435\u043f\u0442", "\u0440\u0435\u0446", "\u0440\u0435\u0446"),
        ("ho\u015f geldin \u0130stanbul", "istanbul", "\u0130stanbul"),
        ("ho\u015f geldin \u0130stanbul", "\u0130STANBUL", "\u0130stanbul"),
        ("G\xdcLLER ISPARTA", "\u0131sparta", "ISPARTA"),
        ("Die Stra\xdfe", "STRA\xdfE", "Stra\xdfe"),
    ],
)
def test_capitals_and_accents_do_not_matter(
    store: ChatStore, said: str, words: str, marked: str
) -> None:
    """In a title and in a message. What is marked is what stands there, or in small letters."""
    title, message = chat(store, said, "nothing"), chat(store, "x", said)
    assert [one.chat_id for one in store.search(words)] == [title, message]
    assert store.search(words)[1].marked == marked


@pytest.mark.parametrize(
    ("text", "place"),
    [("a fox", (2, 5)), ("Stra\xdfe, Fox", (8, 11)), ("\U0001f98a a FOX", (5, 8)),
     ("\u0130\u0130 fox", (3, 6)), ("a hen", (-1, -1))],
)  # fmt: skip
def test_a_passage_is_marked_where_the_word_stands(text: str, place: tuple[int, int]) -> None:
    """Qt counts in units of UTF-16, and small letters may be more than their capitals."""
    assert place_of("fox", text) == place


def test_what_is_cut_is_said(store: ChatStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        chat(store, "x", "a fox", "an ox")
    assert not store.search("fox").is_cut and not store.search("ox").is_cut
    monkeypatch.setattr(search, "N_FOUND", 3)
    assert store.search("fox").is_cut and store.search("ox").is_cut and store.search("x").is_cut
    monkeypatch.setattr(search, "N_FOUND", 60)
    monkeypatch.setattr(search, "BUDGET_S", -1.0)
    monkeypatch.setattr(search, "SHORT_BUDGET_S", -1.0)
    monkeypatch.setattr(search, "SCANNED", 2)
    assert store.search("fox").is_cut and store.search("ox").is_cut


def test_a_result_leads_to_its_passage_and_marks_it(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text="An `answer` without it. " * 30))
    for question in ("Where is the Donaudampfschiff?", "second", "third"):
        window.ask(question)
        window.wait_end()
    window.session.edit(0, "Another question")  # the passage is in the other branch now
    window.wait_end()
    window.press("New chat")
    window.ask("Of another thing")
    window.wait_end()
    window.sidebar.search.setText("answer")
    assert [row.snippet[:9] for row in window.chats.rows("answer")][-1:] == ["An answer"]
    window.sidebar.search.setText("dampf")
    rows, bar = window.sidebar.list, window.chat.find_bar
    qtbot.waitUntil(lambda: len(rows.titles()) == 1, timeout=WAIT_MS)
    qtbot.keyClick(window.sidebar.search, Qt.Key.Key_Down)
    qtbot.keyClick(rows, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bar.present is not None, timeout=WAIT_MS)
    assert bar.isVisible() and bar.present.selectedText() == "dampf"
    transcript = window.chat.transcript
    bubble = transcript.view_of(window.session.conversation.messages[0].id)
    assert bubble is not None and not bubble.visibleRegion().isEmpty()
    window.press("Close the search")
    assert bar.present is None
