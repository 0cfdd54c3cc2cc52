"""Export and import of chats: JSON with all branches, Markdown with the shown branch.

An exported file is imported without loss. A file is checked whole before the store changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.state.conversation import Conversation, Ending, Message
from app.state.preset import Preset
from app.store.chats import ChatStore, figures_text, note_text, read_figures, sound
from backend.system.kept_file import parse_json
from backend.text import text
from backend.text import to_json as with_ids

FORMAT = "outrider-chats"
VERSION = 1
FILE_BYTES_MAX = 256 << 20
N_MESSAGE_MAX = 1_000_000
_HEAD = re.compile(r"<!-- outrider chat ([0-9a-f]{8}) -->\n")
_LIVE = (Ending.WAITING, Ending.STREAMING)


class ImportRefused(ValueError):
    """A file cannot be imported; str() is one sentence for the user."""


@dataclass(frozen=True)
class _Message:
    parent: int | None  # index in the list
    message: Message


@dataclass(frozen=True)
class _Chat:
    title: str
    is_pinned: bool
    leaf: int | None
    preset: Preset | None
    slides: bool
    messages: list[_Message]


def to_markdown(conversation: Conversation) -> str:
    """Return the shown branch of a chat as plain Markdown that can be imported again."""
    texts = [message.content for message in conversation.messages]
    mark = _mark(texts)
    title = " ".join(conversation.title.split())
    parts = [f"<!-- outrider chat {mark} -->\n# {title}\n"]
    for message in conversation.messages:
        name = "You" if message.role == "user" else "Answer"
        parts.append(f"<!-- {mark} {message.role} -->\n## {name}\n\n{message.content}\n")
    return "\n".join(parts) + f"\n<!-- {mark} end -->\n"


def to_json(store: ChatStore, chat_ids: list[int]) -> str:
    """Return chats with all their branches as JSON."""
    with store.reading():
        chats = [_chat_json(store, chat_id) for chat_id in chat_ids]
    data = {"format": FORMAT, "version": VERSION, "chats": [chat for chat in chats if chat]}
    return json.dumps(with_ids(data), ensure_ascii=False, indent=1)


def import_file(store: ChatStore, path: Path) -> list[int]:
    """Read a file into the store, whole or not at all. Return the ids of the new chats.

    Raises ImportRefused, and StoreError if the disk fails.
    """
    try:
        if not path.is_file():
            raise ImportRefused(text("chats.import_no_file", file=path.name))
        if path.stat().st_size > FILE_BYTES_MAX:
            most = FILE_BYTES_MAX
            raise ImportRefused(text("chats.import_too_large", file=path.name, most=most))
        content = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportRefused(text("chats.import_not_utf8", file=path.name)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ImportRefused(text("kept.not_read", what=path.name, reason=reason)) from error
    if "-->\r\n" in content[:100]:  # another program has changed the line ends
        content = content.replace("\r\n", "\n")
    try:
        chats = _from_markdown(content) if _HEAD.match(content) else _from_json(content)
    except (ValueError, RecursionError, OverflowError) as error:
        reason = str(error) if type(error) is ValueError else text("chats.import_not_chats")
        raise ImportRefused(text("chats.import_refused", file=path.name, reason=reason)) from error
    return _insert(store, chats)


def _chat_json(store: ChatStore, chat_id: int) -> dict[str, Any] | None:
    chat = store.connection.execute(
        "SELECT coalesce(CAST(title AS TEXT), ''), is_pinned, leaf_id, slides, "
        "CAST(preset AS TEXT) FROM chat WHERE id = ? AND deleted_s IS NULL", (chat_id,),
    ).fetchone()  # fmt: skip
    if chat is None:
        return None
    rows = store.connection.execute(
        "SELECT id, parent_id FROM message WHERE chat_id = ? ORDER BY id", (chat_id,)
    ).fetchall()
    place = {message_id: index for index, (message_id, _) in enumerate(rows)}
    messages = []
    for message_id, parent_id in rows:
        message = store.message(message_id)
        messages.append(
            {
                "parent": place.get(parent_id), "role": message.role, "content": message.content,
                "ending": message.ending.value, "note": message.note,
                "figures": json.loads(figures_text(message)),
            }
        )  # fmt: skip
    title, is_pinned, leaf_id, slides, preset = chat
    kept = Preset.from_text(preset)
    return {
        "title": title, "is_pinned": bool(is_pinned), "leaf": place.get(leaf_id),
        "slides": bool(slides), "preset": json.loads(kept.to_text()) if kept else None,
        "messages": messages,
    }  # fmt: skip


def _mark(texts: list[str]) -> str:
    """Return eight digits that occur in none of the texts."""
    number = 0
    while True:
        mark = hashlib.sha256(f"{number}".encode()).hexdigest()[:8]
        if not any(mark in text for text in texts):
            return mark
        number += 1


def _from_markdown(content: str) -> list[_Chat]:
    head = _HEAD.match(content)
    assert head is not None
    pieces = re.split(rf"\n<!-- {head[1]} (user|assistant|end) -->\n", content[head.end() - 1 :])
    if len(pieces) < 2 or pieces[-2] != "end":
        raise ValueError("its end is missing")
    title = pieces[0].strip().removeprefix("#").strip()
    messages: list[_Message] = []
    for role, body in zip(pieces[1:-2:2], pieces[2:-2:2], strict=True):
        said = re.sub(r"\A## (You|Answer)\n\n", "", body).removesuffix("\n")
        parent = len(messages) - 1 if messages else None
        messages.append(_Message(parent, Message(role, _text(said))))
    return [_Chat(_text(title)[:200], False, len(messages) - 1, None, False, messages)]


def _from_json(content: str) -> list[_Chat]:
    try:
        data = parse_json(content)
    except ValueError as error:
        raise ValueError(text("chats.import_no_form")) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(text("chats.import_not_chats"))
    version = data.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ValueError(text("chats.import_newer"))
    if version != VERSION or not isinstance(data.get("chats"), list):
        raise ValueError(text("chats.import_not_chats"))
    return [_checked_chat(chat) for chat in data["chats"]]


def _checked_chat(data: Any) -> _Chat:
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise ValueError("a chat has no messages")
    if len(data["messages"]) > N_MESSAGE_MAX:
        raise ValueError(f"a chat has more than {N_MESSAGE_MAX:,} messages")
    messages: list[_Message] = []
    for item in data["messages"]:
        messages.append(_checked_message(item, len(messages)))
    leaf = data.get("leaf")
    if leaf is not None and not (_is_count(leaf) and leaf < len(messages)):
        raise ValueError("a chat ends at a message that is not there")
    preset = data.get("preset")
    return _Chat(
        _text(data.get("title", ""))[:200], data.get("is_pinned") is True, leaf,
        Preset.from_json(preset) if preset is not None else None,
        data.get("slides") is True, messages,
    )  # fmt: skip


def _checked_message(data: Any, place: int) -> _Message:
    if not isinstance(data, dict):
        raise ValueError("a message is not an object")
    parent = data.get("parent")
    if parent is not None and not (_is_count(parent) and parent < place):
        raise ValueError("a message follows one that does not come before it")
    if data.get("role") not in ("user", "assistant"):
        raise ValueError("a message is from neither the user nor the model")
    try:
        ending = Ending(data.get("ending", "finished"))
    except ValueError:
        raise ValueError("a message ends in an unknown way") from None
    message = Message(
        data["role"], _text(data.get("content")), Ending.CUT_OFF if ending in _LIVE else ending,
        _text(data.get("note", "")),
    )  # fmt: skip
    figures = data.get("figures", {})
    if not isinstance(figures, dict) or not _are_numbers(figures):
        raise ValueError("the figures of a message are not numbers")
    read_figures(message, json.dumps(figures))
    return _Message(parent, message)


def _insert(store: ChatStore, chats: list[_Chat]) -> list[int]:
    """Write the chats in one transaction."""
    ids = []
    with store.writing() as connection:
        for chat in chats:
            now_s = time.time()
            cursor = connection.execute(
                "INSERT INTO chat (title, is_pinned, created_s, changed_s, slides, preset) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    chat.title, int(chat.is_pinned), now_s, now_s, int(chat.slides),
                    chat.preset.to_text() if chat.preset else None,
                ),
            )  # fmt: skip
            chat_id = int(cursor.lastrowid or 0)
            places = _insert_messages(connection, chat_id, chat.messages, now_s)
            leaf = chat.leaf if chat.leaf is not None else len(places) - 1
            connection.execute(
                "UPDATE chat SET leaf_id = ? WHERE id = ?",
                (places[leaf] if places else None, chat_id),
            )
            ids.append(chat_id)
    return ids


def _insert_messages(
    connection: sqlite3.Connection, chat_id: int, messages: list[_Message], now_s: float
) -> list[int]:
    places: list[int] = []
    for item in messages:
        message = item.message
        cursor = connection.execute(
            "INSERT INTO message (chat_id, parent_id, role, content, ending, note, figures, "
            "created_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                chat_id, places[item.parent] if item.parent is not None else None, message.role,
                message.content, message.ending.value, note_text(message), figures_text(message),
                now_s,
            ),
        )  # fmt: skip
        places.append(int(cursor.lastrowid or 0))
    return places


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("something that should be text is not")
    if sound(value) != value:
        raise ValueError("it holds half characters")
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_numbers(figures: dict[str, Any]) -> bool:
    values = [*figures.values()]
    statistics = figures.get("statistics", {})
    if not isinstance(statistics, dict):
        return False
    values = [value for value in values if value is not statistics] + [*statistics.values()]
    return all(
        isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1e18
        for value in values
    )
