"""Sentences with ids: rendered, sent, and rendered again in another language."""

from __future__ import annotations

import json
import pickle

import pytest

from backend.text import (
    FORMATS,
    Text,
    from_json,
    joined,
    render,
    text,
    to_json,
    without_folders,
)

FEWER = text("memory.fewer_slots", free=3 << 30, n=12, all=128, wanted=64)


def test_a_text_is_its_english_sentence() -> None:
    assert FEWER == (
        "3.0 GiB of memory are free: 12 of 128 experts of each layer are kept instead of 64."
    )


def test_a_text_survives_json_and_pickle() -> None:
    for text_ in (FEWER, joined(FEWER, FEWER, "")):
        assert isinstance(text_, Text)
        data = json.loads(json.dumps(to_json({"a": [1, text_]})), object_hook=from_json)
        for other in (data["a"][1], pickle.loads(pickle.dumps(text_))):
            assert (other, other.id, other.values) == (text_, text_.id, text_.values)


def test_another_language_renders_the_values_itself() -> None:
    german = {"memory.fewer_slots": "{n} von {all}, frei: {free:size}"}
    formats = {**FORMATS, "size": lambda n: f"{n / (1 << 30):.1f} GiB".replace(".", ",")}
    both = joined(FEWER, "x")
    assert isinstance(both, Text)
    said = render(both.id, both.values, german.__getitem__, formats)
    assert said == "12 von 128, frei: 3,0 GiB x"


def test_one_sentence_is_joined_to_itself_and_none_to_nothing() -> None:
    assert joined("", FEWER) is FEWER
    assert joined("", "") == ""


def test_an_exception_keeps_the_id() -> None:
    found = str(ValueError(FEWER))
    assert isinstance(found, Text) and found.id == "memory.fewer_slots"


@pytest.mark.parametrize(
    ("id", "values"),
    [("no.such", {}), ("memory.fewer_slots", {}), ("memory.fewer_slots", {"free": "x"})],
)
def test_another_version_s_text_stays_english(id: str, values: dict[str, object]) -> None:
    assert from_json({"text_id": id, "values": values, "text": "Words."}) == "Words."


@pytest.mark.parametrize(
    "data",
    [
        {"text_id": 3, "values": {}, "text": ""},
        {"text_id": "memory.fewer_slots", "values": [], "text": ""},
        {"text_id": "memory.fewer_slots", "values": {"free": None}, "text": ""},
        {"text_id": "memory.fewer_slots", "values": {"free": float("inf")}, "text": ""},
        {"text_id": "", "values": {"parts": [["x", {}]]}, "text": ""},
        {"text_id": "no.such", "values": {}, "text": 3},
    ],
)
def test_nonsense_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        from_json(data)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("no '/home/a b/m.gguf' (why)", "no 'm.gguf' (why)"),
        ("Not allowed: /home/u/m.gguf and /x/y z/n.gguf.", "Not allowed: m.gguf and n.gguf."),
        (r"C:\Users\x y\m.gguf is bad, \\host\s\n too.", "m.gguf is bad, n too."),
        ("file:///home/u/m.gguf is odd.", "m.gguf is odd."),
        ("A web page, http://127.0.0.1/v1/x, is text/html, 3 / 4.", ""),
        (text("pack.file_missing", file="/a, b's/x"), text("pack.file_missing", file="x")),
        (joined(text("file.not_written", file="/a/b", reason="no: /c/d"), "See /e/f."),
         joined(text("file.not_written", file="b", reason="no: d"), "See f.")),
    ],
)  # fmt: skip
def test_files_are_named_without_their_folders(said: str, named: str) -> None:
    assert without_folders(said) == (named or said)
    assert isinstance(without_folders(said), Text) == isinstance(said, Text)
