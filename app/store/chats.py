"""The chats in the database: read, change and search them."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from app.state.conversation import Conversation, Ending, Message
from app.state.preset import Preset
from app.store import schema
from app.store.schema import StoreError
from app.store.search import Plain, Results, find
from backend.protocol.attachments import Attachment
from backend.protocol.chat import Delta, ToolCall
from backend.protocol.statistics import Statistics
from backend.system import faults
from backend.system.kept_file import parse_json, parse_kept
from backend.text import Text, text, to_json

TITLE_CHARS = 60
ARRIVING_S = 4e9  # deleted_s of a chat that an import has not shown yet
CHECKPOINT_BYTES = 4 << 20  # a longer journal is written into the file

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Removed:
    """Messages that were removed from the middle of a chat, to put them back."""

    chat_id: int
    messages: Rows
    pieces: Rows
    moved: Rows  # (id, parent_id) of the messages below them, as they were
    leaf_id: int | None  # of the chat before
    leaf_id_after: int | None


@dataclass(frozen=True)
class ChatRow:
    """A row of the list of chats."""

    id: int
    title: str
    is_pinned: bool
    changed_s: float  # seconds since 1970
    snippet: str = ""
    folder: str = ""
    is_named: bool = True  # by the user or by a model
    message_id: int = 0  # of the snippet
    marked: str = ""  # in the snippet's message

    @property
    def order(self) -> tuple[object, ...]:
        """Return the sorting key: pinned chats, folders by name, the others; newest first."""
        if self.is_pinned:
            return 0, "", "", -self.changed_s, -self.id
        return (
            1 if self.folder else 2,
            self.folder.casefold(),
            self.folder,
            -self.changed_s,
            -self.id,
        )


class ChatStore:
    """Chats in one file. All methods raise StoreError, with a sentence, if the disk fails.

    A method that changes the store returns after the change is in the file: a killed process loses
    nothing. Questions and the ends of answers also survive a loss of power.
    """

    def __init__(self, opened: schema.Opened) -> None:
        self.trouble = opened.trouble
        self.path = opened.path
        self.connection = opened.connection
        self._lock = opened.lock
        self._turn = opened.turn
        self._checkpoint: threading.Thread | None = None
        self.cut_off: list[int] = []
        """The chats with an answer that the end of the last window has cut off, newest last."""

    @classmethod
    def open(cls, path: Path) -> ChatStore:
        """Open the file, or a replacement; then `trouble` says why, in a sentence."""
        store = cls(schema.open_database(path))
        try:
            store._end_open_answers()
            store.purge()
        except StoreError as error:
            store.trouble = store.trouble or str(error)
        return store

    @property
    def is_kept(self) -> bool:
        """Return whether the chats are on a disk."""
        return self.path is not None

    @contextlib.contextmanager
    def for_thread(self) -> Iterator[ChatStore]:
        """Yield the same chats for long work in a thread. Raises StoreError.

        It has a connection of its own, so that the window reads meanwhile. Its changes and the
        window's take turns.
        """
        if self.path is None:  # in memory: there is one connection
            yield self
            return
        with self.reading():
            connection = schema.connect(self.path)
        try:
            yield ChatStore(schema.Opened(connection, self.path, turn=self._turn))
        finally:
            connection.close()

    def close(self) -> None:
        """Purge deleted chats and close the file."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        try:
            self.purge()
            self.connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")
        except (StoreError, sqlite3.Error):
            pass
        self.connection.close()
        if self._lock is not None:
            self._lock.close()

    def free_memory(self) -> None:
        """Give back the memory that keeps pages of the file; they are read again when wanted."""
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute("PRAGMA shrink_memory")

    # Lists

    def chats(self) -> list[ChatRow]:
        """Return all chats in the order of ChatRow.order."""
        with self.reading():
            rows = [
                ChatRow(chat_id, title, bool(is_pinned), changed_s, "", folder, bool(is_named))
                for chat_id, title, is_pinned, changed_s, folder, is_named in
                self.connection.execute(
                    # In a damaged file a value may have another type or size.
                    "SELECT id, coalesce(CAST(title AS TEXT), ''), is_pinned, "
                    "coalesce(min(max(CAST(changed_s AS REAL), 0.0), 4e9), 0.0), "
                    "coalesce(CAST(folder AS TEXT), ''), is_named "
                    "FROM chat WHERE deleted_s IS NULL"
                )
            ]  # fmt: skip
        return sorted(rows, key=lambda row: row.order)

    def search(self, text: str, plain: Plain = str) -> Results:
        """Return the chats that contain the words of a text, with passages without Markdown."""
        with self.reading():
            return find(self.connection, text, plain)

    # One chat

    def load(self, chat_id: int) -> Conversation | None:
        """Return a chat along its active path; None if there is no such chat."""
        with self.reading():
            chat = self.connection.execute(
                "SELECT CAST(title AS TEXT), leaf_id, slides, CAST(preset AS TEXT) FROM chat "
                "WHERE id = ? AND deleted_s IS NULL", (chat_id,),
            ).fetchone()  # fmt: skip
            if chat is None:
                return None
            title, leaf_id, slides, preset = chat
            tree = self.connection.execute(
                "SELECT id, parent_id FROM message WHERE chat_id = ? ORDER BY id", (chat_id,)
            ).fetchall()
            parents = dict(tree)
            children: dict[int | None, list[int]] = {}
            for message_id, parent_id in tree:
                children.setdefault(parent_id, []).append(message_id)
            if leaf_id not in parents:
                leaf_id = tree[-1][0] if tree else None
            path: list[int] = []
            while leaf_id in parents:
                path.append(leaf_id)
                leaf_id = parents.pop(leaf_id)  # a damaged file may contain a cycle
            parents = dict(tree)
            messages = []
            for message_id in reversed(path):
                message = self.message(message_id)
                siblings = children[parents[message_id]]
                message.branch = (siblings.index(message_id) + 1, len(siblings))
                messages.append(message)
        return Conversation(
            messages, chat_id, title, preset=Preset.from_text(preset), slides=bool(slides)
        )

    def new_chat(self, title: str, preset: Preset | None = None) -> int:
        """Create a chat and return its id."""
        now_s = time.time()
        with self.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO chat (title, created_s, changed_s, preset, is_named) "
                "VALUES (?, ?, ?, ?, 0)",
                (sound(title), now_s, now_s, preset.to_text() if preset else None),
            )
        return int(cursor.lastrowid or 0)

    def rename(self, chat_id: int, title: str) -> None:
        """Rename a chat."""
        with self.writing() as connection:
            connection.execute(
                "UPDATE chat SET title = ?, is_named = 1 WHERE id = ?",
                (sound(" ".join(title.split())[:200]), chat_id),
            )

    def set_folder(self, chat_id: int, folder: str) -> None:
        """Put a chat into a folder; "": into none."""
        self._set_column(chat_id, "folder", sound(" ".join(folder.split())[:80]))

    def rename_folder(self, folder: str, name: str) -> None:
        """Rename a folder, or join it with another; "": its chats leave it."""
        with self.writing() as connection:
            connection.execute(
                "UPDATE chat SET folder = ? WHERE folder = ?",
                (sound(" ".join(name.split())[:80]), folder),
            )

    def draft(self, chat_id: int) -> str:
        """Return the text typed in a chat but not sent; 0: in a new chat."""
        with self.reading():
            row = self.connection.execute(
                "SELECT CAST(text AS TEXT) FROM draft WHERE chat_id = ?", (chat_id,)
            ).fetchone()
        return str(row[0]) if row and row[0] else ""

    def draft_files(self, chat_id: int) -> list[Attachment]:
        """Return what was pasted in a chat but not sent, without what cannot be read."""
        with self.reading():
            row = self.connection.execute(
                "SELECT CAST(files AS TEXT) FROM draft_paste WHERE chat_id = ?", (chat_id,)
            ).fetchone()
        found: list[Attachment] = []
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found.extend(map(Attachment.from_json, parse_json(row[0]) if row else ()))
        return found

    def set_draft_files(self, chat_id: int, pasted: Sequence[Attachment]) -> None:
        """Keep what was pasted in a chat but not sent."""
        with self.writing(durable=False) as connection:
            if pasted:
                row = chat_id, json.dumps([file.to_json() for file in pasted])
                connection.execute("REPLACE INTO draft_paste VALUES (?, ?)", row)
            else:
                connection.execute("DELETE FROM draft_paste WHERE chat_id = ?", (chat_id,))

    def set_draft(self, chat_id: int, text: str) -> None:
        """Keep the text typed in a chat but not sent; it survives a killed process."""
        with self.writing(durable=False) as connection:
            if text:
                connection.execute("REPLACE INTO draft VALUES (?, ?)", (chat_id, sound(text)))
            else:
                connection.execute("DELETE FROM draft WHERE chat_id = ?", (chat_id,))

    def pin(self, chat_id: int, is_pinned: bool) -> None:
        """Pin a chat to the head of the list, or unpin it."""
        self._set_column(chat_id, "is_pinned", int(is_pinned))

    def delete(self, chat_id: int) -> None:
        """Delete a chat; restore() brings it back until it is purged."""
        self._set_column(chat_id, "deleted_s", time.time())

    def restore(self, chat_id: int) -> None:
        """Restore a deleted chat."""
        self._set_column(chat_id, "deleted_s", None)

    def set_preset(self, chat_id: int, preset: Preset | None) -> None:
        """Set a chat's own system prompt and sampling."""
        self._set_column(chat_id, "preset", preset.to_text() if preset else None)

    def set_slides(self, chat_id: int, slides: bool) -> None:
        """Set whether a full context leaves out its middle without asking."""
        self._set_column(chat_id, "slides", int(slides))

    def purge(self) -> None:
        """Remove deleted chats for good."""
        with self.reading():
            query = "SELECT 1 FROM chat WHERE deleted_s < ? LIMIT 1"
            if self.connection.execute(query, (ARRIVING_S,)).fetchone() is None:
                return
        with self.writing() as connection:
            connection.execute("DELETE FROM chat WHERE deleted_s < ?", (ARRIVING_S,))
            for table in ("draft", "draft_paste"):
                connection.execute(
                    f"DELETE FROM {table} "
                    "WHERE chat_id != 0 AND chat_id NOT IN (SELECT id FROM chat)"
                )

    def arriving(self) -> list[int]:
        """Return the chats that an import has not shown."""
        with self.reading():
            query = "SELECT id FROM chat WHERE deleted_s = ?"
            return [row[0] for row in self.connection.execute(query, (ARRIVING_S,))]

    def remove_arriving(self) -> None:
        """Remove the chats of an import that was cut off. It takes as long as the import did."""
        for chat_id in self.arriving():
            with self.writing(durable=False) as connection:
                connection.execute("DELETE FROM chat WHERE id = ?", (chat_id,))

    # Messages

    def add(self, chat_id: int, parent_id: int, message: Message) -> None:
        """Add a message below another (0: as the first). It becomes the active leaf.

        Set the message's id and branch.
        """
        parent = parent_id or None
        now_s = time.time()
        with self.writing() as connection:
            message_id = insert(connection, chat_id, parent, message, now_s)
            connection.execute(
                "UPDATE chat SET leaf_id = ?, changed_s = ? WHERE id = ?",
                (message_id, now_s, chat_id),
            )
        message.id = message_id
        siblings = self._siblings(message_id)
        message.branch = (len(siblings), len(siblings))

    def append(self, message_id: int, reasoning: str, content: str, raw: str) -> None:
        """Append to a growing answer. The text survives a killed process, not a loss of power."""
        with self.writing(durable=False) as connection:
            connection.execute(
                "INSERT INTO piece SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4 "
                "FROM piece WHERE message_id = ?1",
                (message_id, sound(reasoning), sound(content), sound(raw)),
            )

    def save(self, message: Message, durable: bool = True) -> None:
        """Write a whole message. `durable`: it survives a loss of power."""
        columns = _columns(message)
        with self.writing(durable) as connection:
            connection.execute(
                f"UPDATE message SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?",
                (*columns.values(), message.id),
            )
            connection.execute("DELETE FROM piece WHERE message_id = ?", (message.id,))

    def withdraw(self, chat_id: int, messages: list[Message]) -> None:
        """Remove failed messages of the newest branch, and the chat if it is empty then.

        The draft of such a chat becomes that of a new one, before what was typed there.
        """
        with self.writing() as connection:
            for message in messages:
                row = connection.execute(
                    "SELECT parent_id FROM message WHERE id = ?", (message.id,)
                ).fetchone()
                if row is None:
                    continue
                connection.execute("UPDATE chat SET leaf_id = ? WHERE id = ?", (row[0], chat_id))
                connection.execute("DELETE FROM message WHERE id = ?", (message.id,))
                break  # the messages below it were deleted with it
            query = "SELECT 1 FROM message WHERE chat_id = ? LIMIT 1"
            if connection.execute(query, (chat_id,)).fetchone() is None:
                connection.execute(
                    "INSERT INTO draft SELECT 0, text FROM draft WHERE chat_id = ? ON CONFLICT "
                    "(chat_id) DO UPDATE SET text = excluded.text || char(10, 10) || text",
                    (chat_id,),
                )
                connection.execute(
                    "UPDATE OR REPLACE draft_paste SET chat_id = 0 WHERE chat_id = ?", (chat_id,)
                )
                connection.execute("DELETE FROM draft WHERE chat_id = ?", (chat_id,))
                connection.execute("DELETE FROM chat WHERE id = ?", (chat_id,))

    def add_version(self, chat_id: int, of: Message, new: Message, rest: Sequence[Message]) -> None:
        """Add another version of a message, with copies of the messages below it.

        Set the id and branch of `new`. The messages of `rest` become their copies. The last one
        becomes the active leaf.
        """
        now_s = time.time()
        with self.writing() as connection:
            parent = connection.execute(
                "SELECT parent_id FROM message WHERE id = ?", (of.id,)
            ).fetchone()[0]
            ids = [parent]
            for message in (new, *rest):
                ids.append(insert(connection, chat_id, ids[-1], message, now_s))
            connection.execute(
                "UPDATE chat SET leaf_id = ?, changed_s = ? WHERE id = ?", (ids[-1], now_s, chat_id)
            )
        for message, message_id in zip((new, *rest), ids[1:], strict=True):
            message.id, message.branch = message_id, (1, 1)
        siblings = self._siblings(new.id)
        new.branch = (len(siblings), len(siblings))

    def copy(self, title: str, conversation: Conversation, n_message: int) -> int:
        """Copy the first messages of a conversation into a new chat, and return its id."""
        chat_id = self.new_chat(title, conversation.preset)
        now_s = time.time()
        with self.writing() as connection:
            leaf: int | None = None
            for message in conversation.messages[:n_message]:
                leaf = insert(connection, chat_id, leaf, message, now_s)
            connection.execute(
                "UPDATE chat SET leaf_id = ?, slides = ?, is_named = 1 WHERE id = ?",
                (leaf, int(conversation.slides), chat_id),
            )
        return chat_id

    def remove(self, chat_id: int, ids: Sequence[int]) -> Removed:
        """Remove messages, each below the one before. What is below them moves up.

        If nothing is below them, another version of the first one is shown, if there is one.
        """
        marks = ", ".join("?" * len(ids))
        with self.writing() as connection:

            def rows(query: str) -> Rows:
                return connection.execute(query.format(marks), tuple(ids)).fetchall()

            messages = rows("SELECT * FROM message WHERE id IN ({}) ORDER BY id")
            pieces = rows("SELECT * FROM piece WHERE message_id IN ({})")
            below = rows("SELECT id, parent_id FROM message WHERE parent_id IN ({})")
            moved = [row for row in below if row[0] not in ids]
            (parent,), (leaf,) = (
                connection.execute(query, (key,)).fetchone()
                for query, key in (
                    ("SELECT parent_id FROM message WHERE id = ?", ids[0]),
                    ("SELECT leaf_id FROM chat WHERE id = ?", chat_id),
                )
            )
            connection.executemany(
                "UPDATE message SET parent_id = ? WHERE id = ?", [(parent, row[0]) for row in moved]
            )
            # The last one first: each takes what is below it along.
            connection.executemany("DELETE FROM message WHERE id = ?", [(i,) for i in ids[::-1]])
            after = leaf
            if leaf in ids:
                after = self._newest_leaf(chat_id, parent)
                connection.execute("UPDATE chat SET leaf_id = ? WHERE id = ?", (after, chat_id))
        return Removed(chat_id, messages, pieces, moved, leaf, after)

    def put_back(self, removed: Removed) -> None:
        """Put messages back between those around them."""
        with self.writing() as connection:
            for table, kept in (("message", removed.messages), ("piece", removed.pieces)):
                for row in kept:
                    marks = ", ".join("?" * len(row))
                    connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)
            connection.executemany("UPDATE message SET parent_id = ?2 WHERE id = ?1", removed.moved)
            connection.execute(
                "UPDATE chat SET leaf_id = ? WHERE id = ? AND leaf_id IS ?",
                (removed.leaf_id, removed.chat_id, removed.leaf_id_after),
            )

    def switch(self, chat_id: int, message_id: int, step: int) -> None:
        """Activate the branch before or after that of a message, down to its leaf."""
        siblings = self._siblings(message_id)
        self.activate(chat_id, siblings[(siblings.index(message_id) + step) % len(siblings)])

    def activate(self, chat_id: int, message_id: int) -> None:
        """Activate the branch of a message, down to its leaf."""
        with self.reading():
            leaf = self._newest_leaf(chat_id, message_id)
        self._set_column(chat_id, "leaf_id", leaf)

    def _newest_leaf(self, chat_id: int, message_id: int | None) -> int | None:
        """Return the end of the newest branch below a message; None: of the chat."""
        # A message has a larger id than its parent, except in a damaged file.
        query = (
            "SELECT max(id) FROM message WHERE chat_id = ?1 AND parent_id IS ?2 "
            "AND id > coalesce(?2, 0)"
        )
        leaf, asked = message_id, (chat_id, message_id)
        while (child := self.connection.execute(query, asked).fetchone()[0]) is not None:
            leaf, asked = child, (chat_id, child)
        return leaf

    # Presets of models

    def model_preset(self, model: str) -> Preset:
        """Return the default preset of a model."""
        with self.reading():
            row = self.connection.execute(
                "SELECT data FROM preset WHERE model = ?", (sound(model),)
            ).fetchone()
        return (Preset.from_text(row[0]) if row else None) or Preset()

    def set_model_preset(self, model: str, preset: Preset) -> None:
        """Set the default preset of a model."""
        with self.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO preset VALUES (?, ?)", (sound(model), preset.to_text())
            )

    # Helpers

    def message(self, message_id: int) -> Message:
        """Return one message. REQUIRES: the caller is within reading()."""
        # In a damaged file a value may have another type.
        role, content, reasoning, raw, calls, call_id, name, details, ending, note, figures = (
            self.connection.execute(
                "SELECT role, coalesce(CAST(content AS TEXT), ''), "
                "coalesce(CAST(reasoning AS TEXT), ''), CAST(raw AS TEXT), tool_calls, "
                "coalesce(CAST(tool_call_id AS TEXT), ''), coalesce(CAST(name AS TEXT), ''), "
                "details, ending, CAST(note AS TEXT), figures FROM message WHERE id = ?",
                (message_id,),
            ).fetchone()
        )
        message = Message(
            role, content, _ending(ending), _note(note), reasoning=reasoning, raw=raw,
            tool_calls=_calls(calls), tool_call_id=call_id, name=name, details=_details(details),
            id=message_id,
        )  # fmt: skip
        for piece in self.connection.execute(
            "SELECT CAST(reasoning AS TEXT), CAST(content AS TEXT), CAST(raw AS TEXT) FROM piece "
            "WHERE message_id = ? ORDER BY number", (message_id,),
        ):  # fmt: skip
            message.gain(Delta(piece[0] or "", piece[1] or ""), piece[2] or "")
        read_figures(message, figures)
        return message

    def _siblings(self, message_id: int) -> list[int]:
        with self.reading():
            return [
                row[0]
                for row in self.connection.execute(
                    "SELECT other.id FROM message JOIN message AS other ON "
                    "other.chat_id = message.chat_id AND other.parent_id IS message.parent_id "
                    "WHERE message.id = ? ORDER BY other.id",
                    (message_id,),
                )
            ]

    def _set_column(self, chat_id: int, column: str, value: object) -> None:
        with self.writing() as connection:
            connection.execute(f"UPDATE chat SET {column} = ? WHERE id = ?", (value, chat_id))

    def _end_open_answers(self) -> None:
        """End the answers that were in progress when the window ended."""
        with self.reading():
            live = self.connection.execute(
                "SELECT id, chat_id FROM message WHERE ending IN ('waiting', 'streaming') "
                "ORDER BY id"
            ).fetchall()
        for message_id, chat_id in live:
            self.cut_off.append(chat_id)
            with self.reading():
                message = self.message(message_id)
            message.ending, message.note = Ending.CUT_OFF, text("chats.cut_off")
            self.save(message)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Turn the database's exceptions into StoreError."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._trouble(
                error, text("chats.not_read", reason=schema.reason(error))
            ) from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read what stays the same until the end, whatever another connection changes."""
        with self.reading(), self._turn if self.path is None else contextlib.nullcontext():
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.rollback()

    @contextlib.contextmanager
    def writing(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Run a change as one transaction. `durable`: it survives a loss of power."""
        with self._turn:
            yield from self._changing(durable)
        if durable:
            self.shorten_journal()

    def _changing(self, durable: bool) -> Iterator[sqlite3.Connection]:
        connection = self.connection
        try:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.rollback()
            sentence = text("chats.not_written", reason=schema.reason(error))
            raise self._trouble(error, sentence) from error
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise

    def _trouble(self, error: sqlite3.Error, sentence: Text) -> StoreError:
        if schema.is_damage(error) and self.path is not None:
            schema.mark_for_check(self.path)
        return StoreError(sentence)

    def shorten_journal(self) -> None:
        """Write a long journal into the file, in a thread, because that waits for the disk."""
        if self.path is None or (self._checkpoint and self._checkpoint.is_alive()):
            return
        try:
            if Path(f"{self.path}-wal").stat().st_size < CHECKPOINT_BYTES:
                return
        except OSError:
            return
        self._checkpoint = faults.Thread(
            "journal", _write_journal, self.path, failed=faults.no_place
        )
        self._checkpoint.start()


def title_of(question: str) -> str:
    """Return a new chat's title: the beginning of its first question."""
    text = " ".join(question.split())
    if len(text) <= TITLE_CHARS:
        return text
    cut = text[:TITLE_CHARS]
    return (cut.rpartition(" ")[0] or cut).rstrip(".,;:") + "\u2026"


def insert(
    connection: sqlite3.Connection,
    chat_id: int,
    parent_id: int | None,
    message: Message,
    created_s: float,
) -> int:
    """Insert a message and return its id. REQUIRES: the caller is within writing()."""
    columns = {
        "chat_id": chat_id, "parent_id": parent_id, "role": message.role, "created_s": created_s,
        **_columns(message),
    }  # fmt: skip
    cursor = connection.execute(
        f"INSERT INTO message ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    return int(cursor.lastrowid or 0)


def _columns(message: Message) -> dict[str, object]:
    """Return the columns of a message that may change."""
    calls = [call.to_json() for call in message.tool_calls]
    return {
        "content": sound(message.content), "reasoning": sound(message.reasoning),
        "raw": None if message.raw is None else sound(message.raw),
        "tool_calls": json.dumps(calls) if calls else "[]",
        "tool_call_id": sound(message.tool_call_id), "name": sound(message.name),
        "details": json.dumps(message.details) if message.details else "{}",
        "ending": message.ending.value, "note": note_text(message),
        "figures": figures_text(message),
    }  # fmt: skip


def _calls(text: str) -> list[ToolCall]:
    """Read tool calls from JSON; leave out invalid ones."""
    try:
        return [ToolCall.from_json(call) for call in parse_json(text)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _details(text: str) -> dict[str, Any]:
    try:
        details = parse_json(text)
    except (ValueError, TypeError):
        return {}
    return details if isinstance(details, dict) else {}


def read_figures(message: Message, text: str) -> None:
    """Read a message's figures from JSON; leave out invalid ones."""
    try:
        data = parse_json(text)
        if data.get("statistics"):
            message.statistics = Statistics.from_json(data["statistics"])
        message.n_token_before = int(data.get("n_token_before", 0))
        message.thought_s = float(data.get("thought_s", 0.0))
    except (ValueError, TypeError, AttributeError, KeyError):
        message.statistics = None


def figures_text(message: Message) -> str:
    """Return a message's figures as JSON."""
    data: dict[str, object] = {}
    if message.statistics is not None:
        data["statistics"] = {
            item.name: value
            for item in fields(Statistics)
            if isinstance(value := getattr(message.statistics, item.name), int | float)
        }
    if message.n_token_before:
        data["n_token_before"] = message.n_token_before
    if message.thought_s:
        data["thought_s"] = round(message.thought_s, 3)
    return json.dumps(data) if data else "{}"


def note_text(message: Message) -> str:
    """Return a message's note as the file keeps it: JSON, if it has an id."""
    note = message.note
    return json.dumps(to_json(note)) if isinstance(note, Text) else sound(note)


def _note(kept: str | None) -> str:
    if not kept or not kept.startswith("{"):
        return kept or ""
    try:
        note = parse_kept(kept)
    except ValueError:
        return kept
    return note if isinstance(note, str) else kept


def _ending(value: str) -> Ending:
    try:
        return Ending(value)
    except ValueError:
        return Ending.CUT_OFF


def sound(text: str) -> str:
    """Return text that can be written as UTF-8: replace lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _write_journal(path: Path) -> None:
    try:
        connection = sqlite3.connect(path, timeout=schema.BUSY_S)
        try:
            connection.execute("PRAGMA wal_checkpoint (PASSIVE)")
        finally:
            connection.close()
    except sqlite3.Error:
        pass
