"""Chats that are exported and imported: what an import takes, and its limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.state.conversation import Conversation, Ending, Message
from app.store import exchange
from app.store.chats import ChatStore
from app.store.exchange import ImportRefused, import_file, to_json, to_markdown
from backend.protocol.chat import ToolCall

Import = Callable[..., int]
FILE = {"name": "a.txt", "kind": "text", "text": "words"}
FIRST_MARK = "5feceb66"  # the mark of an export none of whose texts has it


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    made = ChatStore.open(tmp_path / "chats.db")
    yield made
    made.close()


@pytest.fixture
def take(store: ChatStore, tmp_path: Path) -> Import:
    """Import one chat from JSON, or a text as it is. Return the chat's id."""

    def take(content: Any) -> int:
        if not isinstance(content, str):
            data = {"format": "outrider-chats", "version": 2, "chats": [content]}
            content = json.dumps(data)
        file = tmp_path / "in"
        file.write_bytes(content.encode())
        (chat_id,) = import_file(store, file)
        return chat_id

    return take


def said(*texts: str, **more: Any) -> list[dict[str, Any]]:
    """Return messages in a row."""
    return [
        {"role": "user", "content": text, "parent": i - 1 if i else None, **more}
        for i, text in enumerate(texts)
    ]


def messages(store: ChatStore, chat_id: int) -> list[Message]:
    conversation = store.load(chat_id)
    assert conversation is not None
    return conversation.messages


def test_facts_of_a_chat_go_round(store: ChatStore, take: Import) -> None:
    """What is shown ends at the leaf, or at the last message if the file names none."""
    for leaf, shown in ((0, "a"), (1, "b"), (None, "c")):
        data = {"title": "t" * 300, "is_pinned": True, "slides": True, "leaf": leaf}
        chat_id = take(data | {"messages": said("a", "b", "c")})
        assert messages(store, chat_id)[-1].content == shown
        (row,) = [row for row in store.chats() if row.id == chat_id]
        assert row.is_pinned and row.title == "t" * 200
        again = json.loads(to_json(store, [chat_id]))["chats"][0]
        assert (
            again["slides"]
            and again["is_pinned"]
            and again["leaf"] == (2 if leaf is None else leaf)
        )
    plain = json.loads(to_json(store, [take({"messages": []})]))["chats"][0]
    assert not plain["slides"] and not plain["is_pinned"] and plain["leaf"] is None


@pytest.mark.parametrize("ending", ["waiting", "streaming"])
def test_an_answer_that_was_being_written_is_cut_off(
    store: ChatStore, take: Import, ending: str
) -> None:
    chat_id = take({"messages": said("x", ending=ending)})
    assert messages(store, chat_id)[0].ending is Ending.CUT_OFF


def test_a_chat_has_a_greatest_number_of_messages(
    store: ChatStore, take: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "N_MESSAGE_MAX", 2)
    assert len(messages(store, take({"messages": said("a", "b")}))) == 2
    with pytest.raises(ImportRefused, match="more than 2 messages"):
        take({"messages": said("a", "b", "c")})
    assert len(store.chats()) == 1


def test_a_file_has_a_greatest_size(
    store: ChatStore, take: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps({"format": "outrider-chats", "version": 1, "chats": [{"messages": []}]})
    monkeypatch.setattr(exchange, "FILE_BYTES_MAX", len(content))
    take(content)
    with pytest.raises(ImportRefused):
        take(content + " ")
    assert len(store.chats()) == 1


@pytest.mark.parametrize("version", [0, -1, True, "1", 3, None])
def test_another_version_is_refused(take: Import, version: Any) -> None:
    data = {"format": "outrider-chats", "version": version, "chats": [{"messages": []}]}
    with pytest.raises(ImportRefused):
        take(json.dumps(data))


def test_markdown_brings_no_settings_of_a_chat(store: ChatStore, take: Import) -> None:
    written = to_markdown(Conversation([Message("user", "a")], title="T", slides=True))
    chat = json.loads(to_json(store, [take(written)]))["chats"][0]
    assert not chat["slides"] and not chat["is_pinned"] and chat["preset"] is None


def test_all_chats_of_a_file_are_taken_or_none(store: ChatStore, take: Import) -> None:
    chats = [{"messages": said("a")}, {"messages": [{"role": "user"}]}]
    with pytest.raises(ImportRefused):
        take(json.dumps({"format": "outrider-chats", "version": 2, "chats": chats}))
    assert store.chats() == []


def test_line_ends_of_another_program_are_taken_back(store: ChatStore, take: Import) -> None:
    written = to_markdown(Conversation([Message("user", "a\nb")], title="T"))
    assert messages(store, take(written.replace("\n", "\r\n")))[0].content == "a\nb"
    assert messages(store, take("\ufeff" + written))[0].content == "a\nb"


@pytest.mark.parametrize(
    "message",
    [
        Message("user", FIRST_MARK),
        Message("assistant", "x", reasoning=f"so {FIRST_MARK}"),
        Message("tool", "x", name=FIRST_MARK),
        Message("tool", "x", tool_call_id=FIRST_MARK),
        Message("assistant", "", tool_calls=[ToolCall("1", "f", json.dumps({"a": FIRST_MARK}))]),
        Message("assistant", "", tool_calls=[ToolCall(FIRST_MARK, "f", "{}")]),
        Message("user", "x", details={"attachments": [FILE | {"name": FIRST_MARK}]}),
        Message("user", "x", details={"attachments": [FILE | {"text": FIRST_MARK}]}),
    ],
    ids=["content", "thought", "name", "call id", "arguments", "id", "file", "its text"],
)
def test_the_mark_of_an_export_is_in_none_of_its_texts(message: Message) -> None:
    """A text could otherwise end its part of the file, and begin another one."""
    assert FIRST_MARK in to_markdown(Conversation([Message("user", "x")])).partition("\n")[0]
    written = to_markdown(Conversation([message]))
    assert FIRST_MARK in written and FIRST_MARK not in written.partition("\n")[0]
