"""Export and import of chats: JSON with all branches, Markdown with the shown branch.

An exported file is imported without loss. Imported chats are hidden until all are there.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import sqlite3
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from app.state.conversation import Conversation, Ending, Message
from app.state.preset import Preset
from app.store import foreign, schema
from app.store.chats import (
    ARRIVING_S,
    ChatStore,
    figures_text,
    insert,
    read_figures,
    sound,
    title_of,
)
from app.store.tagged_thoughts import split
from backend.protocol.chat import ToolCall
from backend.system.kept_file import parse_json, parse_kept
from backend.text import text
from backend.text import to_json as with_ids

FORMAT = "outrider-chats"
VERSION = 2  # 1 had thoughts inside the content
FILE_BYTES_MAX = 256 << 20
N_MESSAGE_MAX = 1_000_000
PIECE_CHARS = 1 << 18  # of messages that are written at once; another change waits for them
_HEAD = re.compile(r"<!-- outrider chat (?:(\d{1,9}) )?([0-9a-f]{8}) -->\n")
_NAMES = {"user": "You", "assistant": "Answer", "tool": "Result"}
_LIVE = (Ending.WAITING, Ending.STREAMING)


@dataclass(eq=False)
class Progress:
    """How far an import or export is, and whether it has to stop. Two threads share it."""

    n_chat: int = 0
    share: float = 0.0
    is_stopped: bool = False


class ImportRefused(ValueError):
    """A file cannot be imported; str() is one sentence for the user."""


@dataclass(frozen=True)
class _Message:
    parent: int | None  # index in the list
    message: Message
    at_s: float = 0.0  # 0: not known


@dataclass(frozen=True)
class _Chat:
    title: str
    is_pinned: bool
    leaf: int | None
    preset: Preset | None
    slides: bool
    messages: list[_Message]
    created_s: float = 0.0  # 0: not known
    changed_s: float = 0.0


def to_markdown(conversation: Conversation) -> str:
    """Return the shown branch of a chat as plain Markdown that can be imported again."""
    title = " ".join(conversation.title.split())
    mark = _mark(conversation)
    parts = [f"<!-- outrider chat {VERSION} {mark} -->\n# {title}\n"]
    for message in conversation.messages:
        parts.append(f"<!-- {mark} {message.role} -->\n## {_NAMES[message.role]}\n")
        if message.reasoning:
            parts.append(
                f"<!-- {mark} thought -->\n<details><summary>Thought</summary>\n\n"
                f"{message.reasoning}\n\n</details>\n"
            )
        calls = [call.to_json() for call in message.tool_calls]
        of_tool = {"tool_call_id": message.tool_call_id, "name": message.name}
        for kind, value in (("calls", calls), ("of", of_tool if message.role == "tool" else None)):
            if value:
                words = json.dumps(value, ensure_ascii=False, indent=1)
                parts.append(f"<!-- {mark} {kind} -->\n```json\n{words}\n```\n")
        for file in message.attachments:
            facts = file.to_json()
            said = facts.pop("text")
            head = f"<details><summary>{json.dumps(facts, ensure_ascii=False)}</summary>"
            parts.append(f"<!-- {mark} file -->\n{head}\n\n{said}\n\n</details>\n")
        parts.append(f"<!-- {mark} text -->\n{message.content}\n")
    return "\n".join(parts) + f"\n<!-- {mark} end -->\n"


def to_json(store: ChatStore, chat_ids: Sequence[int]) -> str:
    """Return chats with all their branches as JSON."""
    file = io.StringIO()
    write_json(store, chat_ids, file)
    return file.getvalue()


def write_json(
    store: ChatStore, chat_ids: Sequence[int], file: TextIO, progress: Progress | None = None
) -> None:
    """Write chats with all their branches as JSON, one after the other, until a stop."""
    progress = progress or Progress()
    begin = "[\n"
    file.write(f'{{\n "format": "{FORMAT}",\n "version": {VERSION},\n "chats": ')
    with store.snapshot():
        for number, chat_id in enumerate(chat_ids):
            if progress.is_stopped:
                return
            progress.n_chat, progress.share = number, number / len(chat_ids)
            if (chat := _chat_json(store, chat_id)) is not None:
                file.write(begin + json.dumps(with_ids(chat), ensure_ascii=False, indent=1))
                begin = ",\n"
    file.write("\n ]\n}" if begin == ",\n" else "[]\n}")


@dataclass(frozen=True)
class Imported:
    """The ids of the new chats, the number of chats that could not be read, and that of lost files.

    These are pictures, files and voices that chats name and that the export lacks.
    """

    ids: list[int]
    n_bad: int = 0
    n_lost: int = 0


def import_file(store: ChatStore, path: Path) -> list[int]:
    """Read a file into the store, whole or not at all. Return the ids of the new chats.

    Raises ImportRefused, and StoreError if the disk fails.
    """
    return import_chats(store, path).ids


def import_chats(store: ChatStore, path: Path, progress: Progress | None = None) -> Imported:
    """Read a file into the store; of another program also its archive, or its folder.

    A file of this program is read whole or not at all. Of another one a chat that cannot be read
    is left out and counted. An import that `progress` stops leaves whole chats. Raises
    ImportRefused, and StoreError if the disk fails.
    """
    progress = progress or Progress()
    try:
        if foreign.is_export(path):
            place = foreign.Place(path)
            ids = _insert(store, _of_place(place, progress), progress)
            return Imported(ids, place.n_bad, place.n_lost)
        if not path.is_file():
            raise ImportRefused(text("chats.import_no_file", file=path.name))
        if path.stat().st_size > FILE_BYTES_MAX:
            most = FILE_BYTES_MAX
            raise ImportRefused(text("chats.import_too_large", file=path.name, most=most))
        content = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportRefused(text("file.not_utf8", file=path.name)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ImportRefused(text("kept.not_read", what=path.name, reason=reason)) from error
    except ImportRefused:
        raise
    except (ValueError, RecursionError, zipfile.BadZipFile) as error:
        reason = text("chats.import_damaged")
        raise ImportRefused(text("chats.import_refused", file=path.name, reason=reason)) from error
    if "-->\r\n" in content[:100]:  # another program has changed the line ends
        content = content.replace("\r\n", "\n")
    try:
        chats = _from_markdown(content) if _HEAD.match(content) else _from_json(content)
    except (ValueError, RecursionError, OverflowError) as error:
        reason = str(error) if type(error) is ValueError else text("chats.import_not_chats")
        raise ImportRefused(text("chats.import_refused", file=path.name, reason=reason)) from error
    return Imported(_insert(store, chats, progress))


def _of_place(place: foreign.Place, progress: Progress) -> Iterator[_Chat]:
    for chat in place.chats():
        progress.share = place.share
        yield _of_foreign(chat)


def _of_foreign(chat: foreign.Foreign) -> _Chat:
    messages = [_Message(parent, message, at_s) for parent, message, at_s in chat.messages]
    title = chat.title or title_of(chat.messages[0][1].content)
    return _Chat(sound(title), False, chat.leaf, None, False, messages, chat.created_s,
                 chat.changed_s)  # fmt: skip


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
        data = {
            "parent": place.get(parent_id), "role": message.role, "content": message.content,
            "ending": message.ending.value, "note": message.note,
            "figures": json.loads(figures_text(message)),
        }  # fmt: skip
        rare = {
            "reasoning": message.reasoning, "raw": message.raw,
            "tool_calls": [call.to_json() for call in message.tool_calls],
            "tool_call_id": message.tool_call_id, "name": message.name,
            "details": message.details,
        }  # fmt: skip
        messages.append(data | {name: value for name, value in rare.items() if value})
    title, is_pinned, leaf_id, slides, preset = chat
    kept = Preset.from_text(preset)
    return {
        "title": title, "is_pinned": bool(is_pinned), "leaf": place.get(leaf_id),
        "slides": bool(slides), "preset": json.loads(kept.to_text()) if kept else None,
        "messages": messages,
    }  # fmt: skip


def _mark(conversation: Conversation) -> str:
    """Return eight digits that occur in none of the texts."""
    texts = [conversation.title]
    for message in conversation.messages:
        texts += [message.content, message.reasoning, message.name, message.tool_call_id]
        texts += [part for file in message.attachments for part in (file.name, file.text)]
        texts += [part for call in message.tool_calls for part in vars(call).values()]
    number = 0
    while True:
        mark = hashlib.sha256(f"{number}".encode()).hexdigest()[:8]
        if not any(mark in text for text in texts):
            return mark
        number += 1


def _from_markdown(content: str) -> list[_Chat]:
    head = _HEAD.match(content)
    assert head is not None
    version = int(head[1] or 1)
    if version > VERSION:
        raise ValueError(text("chats.import_newer"))
    kinds = "user|assistant|tool|thought|calls|of|file|text|end"
    pieces = re.split(rf"\n<!-- {head[2]} ({kinds}) -->\n", content[head.end() - 1 :])
    if len(pieces) < 2 or pieces[-2] != "end":
        raise ValueError("its end is missing")
    title = pieces[0].strip().removeprefix("#").strip()
    found: list[dict[str, Any]] = []
    for kind, body in zip(pieces[1:-2:2], pieces[2:-2:2], strict=True):
        body = body.removesuffix("\n")
        if kind in _NAMES:
            said = body.removeprefix(f"## {_NAMES[kind]}\n\n") if version == 1 else ""
            parent = len(found) - 1 if found else None
            found.append({"role": kind, "content": said, "parent": parent})
        elif not found:
            raise ValueError("a part belongs to no message")
        elif kind == "text":
            found[-1]["content"] = body
        elif kind == "thought":
            body = body.removeprefix("<details><summary>Thought</summary>\n\n")
            found[-1]["reasoning"] = body.removesuffix("\n\n</details>")
        elif kind == "file":
            facts, _, said = body.partition("</summary>\n\n")
            file = _object(parse_json(facts.removeprefix("<details><summary>")))
            file["text"] = said.removesuffix("\n\n</details>")
            details = found[-1].setdefault("details", {})
            details.setdefault("attachments", []).append(file)
        else:
            value = parse_json(body.removeprefix("```json\n").removesuffix("\n```"))
            found[-1] |= {"tool_calls": value} if kind == "calls" else _object(value)
    messages = [_checked_message(item, place, version) for place, item in enumerate(found)]
    return [_Chat(_text(title)[:200], False, len(messages) - 1, None, False, messages)]


def _from_json(content: str) -> list[_Chat]:
    try:
        data = parse_kept(content)
    except ValueError as error:
        raise ValueError(text("chats.import_no_form")) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(text("chats.import_not_chats"))
    version = data.get("version", 0)
    if not _is_count(version) or version < 1 or not isinstance(data.get("chats"), list):
        raise ValueError(text("chats.import_not_chats"))
    if version > VERSION:
        raise ValueError(text("chats.import_newer"))
    return [_checked_chat(chat, version) for chat in data["chats"]]


def _checked_chat(data: Any, version: int) -> _Chat:
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        raise ValueError("a chat has no messages")
    if len(data["messages"]) > N_MESSAGE_MAX:
        raise ValueError(f"a chat has more than {N_MESSAGE_MAX:,} messages")
    messages: list[_Message] = []
    for item in data["messages"]:
        messages.append(_checked_message(item, len(messages), version))
    leaf = data.get("leaf")
    if leaf is not None and not (_is_count(leaf) and leaf < len(messages)):
        raise ValueError("a chat ends at a message that is not there")
    preset = data.get("preset")
    return _Chat(
        _text(data.get("title", ""))[:200], data.get("is_pinned") is True, leaf,
        Preset.from_json(preset) if preset is not None else None,
        data.get("slides") is True, messages,
    )  # fmt: skip


def _checked_message(data: Any, place: int, version: int) -> _Message:
    if not isinstance(data, dict):
        raise ValueError("a message is not an object")
    parent = data.get("parent")
    if parent is not None and not (_is_count(parent) and parent < place):
        raise ValueError("a message follows one that does not come before it")
    if data.get("role") not in _NAMES:
        raise ValueError("a message is from neither the user, the model nor a tool")
    try:
        ending = Ending(data.get("ending", "finished"))
    except ValueError:
        raise ValueError("a message ends in an unknown way") from None
    message = Message(
        data["role"], _text(data.get("content")), Ending.CUT_OFF if ending in _LIVE else ending,
        _text(data.get("note", "")), tool_call_id=_text(data.get("tool_call_id", "")),
        name=_text(data.get("name", "")), details=_object(data.get("details", {})),
        reasoning=_text(data.get("reasoning", "")), tool_calls=_calls(data.get("tool_calls", [])),
        raw=None if data.get("raw") is None else _text(data["raw"]),
    )  # fmt: skip
    if version == 1 and message.role == "assistant":
        whole = message.content
        message.reasoning, message.content = split(whole)
        message.raw = whole if whole != message.content else None
    figures = data.get("figures", {})
    if not isinstance(figures, dict) or not _are_numbers(figures):
        raise ValueError("the figures of a message are not numbers")
    read_figures(message, json.dumps(figures))
    return _Message(parent, message)


def _insert(store: ChatStore, chats: Iterable[_Chat], progress: Progress) -> list[int]:
    """Write chats, hidden, in short transactions. Show them when all are there, or at a stop."""
    ids: list[int] = []
    places: list[int] = []  # ids of the messages of the present chat
    for piece in _pieces(chats, progress):
        now_s = time.time()
        with store.writing(durable=False) as connection, schema.indexed_at_once(connection):
            for chat, begin, end in piece:
                if not begin:
                    ids.append(_insert_hidden(connection, chat, now_s))
                    places = []
                for item in chat.messages[begin:end]:
                    parent_id = places[item.parent] if item.parent is not None else None
                    at_s = item.at_s or now_s
                    places.append(insert(connection, ids[-1], parent_id, item.message, at_s))
                if places and end == len(chat.messages):
                    leaf = places[chat.leaf if chat.leaf is not None else -1]
                    connection.execute("UPDATE chat SET leaf_id = ? WHERE id = ?", (leaf, ids[-1]))
        store.shorten_journal()
    with store.writing() as connection:
        connection.executemany(
            "UPDATE chat SET deleted_s = NULL WHERE id = ?", [(chat_id,) for chat_id in ids]
        )
    return ids


def _pieces(chats: Iterable[_Chat], progress: Progress) -> Iterator[list[tuple[_Chat, int, int]]]:
    """Yield what is written at once: chats, or a part of one, from a message up to another."""
    piece: list[tuple[_Chat, int, int]] = []
    n_char = 0
    for number, chat in enumerate(chats):
        if progress.is_stopped:
            break
        progress.n_chat = number + 1
        if isinstance(chats, Sized):
            progress.share = number / len(chats)
        begin = 0
        for end, item in enumerate(chat.messages, 1):
            n_char += len(item.message.content)
            if n_char > PIECE_CHARS:
                yield [*piece, (chat, begin, end)]
                piece, n_char, begin = [], 0, end
        if not begin or begin < len(chat.messages):
            piece.append((chat, begin, len(chat.messages)))
    if piece:
        yield piece


def _insert_hidden(connection: sqlite3.Connection, chat: _Chat, now_s: float) -> int:
    cursor = connection.execute(
        "INSERT INTO chat (title, is_pinned, created_s, changed_s, slides, preset, deleted_s) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            chat.title, int(chat.is_pinned), chat.created_s or now_s, chat.changed_s or now_s,
            int(chat.slides), chat.preset.to_text() if chat.preset else None, ARRIVING_S,
        ),
    )  # fmt: skip
    return int(cursor.lastrowid or 0)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("something that should be text is not")
    if sound(value) != value:
        raise ValueError("it holds half characters")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("something that should be an object is not")
    return value


def _calls(value: Any) -> list[ToolCall]:
    """Check tool calls in OpenAI's form."""
    try:
        calls = [ToolCall.from_json(call) for call in value]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError("a tool call has an unknown form") from None
    for call in calls:
        for part in vars(call).values():
            _text(part)
    return calls


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
