"""Search while the user types: titles first, then messages, newest first."""

from __future__ import annotations

import re
import sqlite3
import time
from dataclasses import dataclass

N_FOUND = 60  # chats
PAGE = 400  # messages per query
BUDGET_S = 0.05  # time limit; the results so far are shown
SNIPPET_CHARS = 70
N_WORD = 12

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Found:
    """A matching chat. `snippet`: the passage of a message, empty if the title matches."""

    chat_id: int
    snippet: str


def find(connection: sqlite3.Connection, text: str) -> list[Found]:
    """Return the chats that contain all the words, or words that begin with them."""
    words = [word.lower() for word in _WORD.findall(text)][:N_WORD]
    if not words:
        return []
    found = {chat_id: Found(chat_id, "") for chat_id in _titles(connection, words)}
    if max(map(len, words)) >= 2:
        find_said(connection, words, found)
    return list(found.values())[:N_FOUND]


def match_expression(words: list[str]) -> str:
    """Return the FTS5 expression that matches all words; none of them acts as an operator."""
    *whole, last = [f'"{word}"' for word in words]
    return " AND ".join([*(word + " *" for word in whole), last + " *"])


def _titles(connection: sqlite3.Connection, words: list[str]) -> list[int]:
    wanted = " AND ".join(["title LIKE ?"] * len(words))
    rows = connection.execute(
        f"SELECT id FROM chat WHERE deleted_s IS NULL AND {wanted} ORDER BY changed_s DESC LIMIT ?",
        [*(f"%{word}%" for word in words), N_FOUND],
    )  # words have only letters and digits: no % and no _
    return [row[0] for row in rows]


def find_said(connection: sqlite3.Connection, words: list[str], found: dict[int, Found]) -> None:
    """Add the chats with a message that contains all the words."""
    ends_s = time.monotonic() + BUDGET_S
    expression, before = match_expression(words), 1 << 62
    while len(found) < N_FOUND:
        rows: list[tuple[int, int, str]] = connection.execute(
            "SELECT message.id, chat_id, message.content FROM ("
            "SELECT rowid AS id FROM word WHERE word MATCH ? AND rowid < ? "
            "ORDER BY rowid DESC LIMIT ?) AS hit "
            "JOIN message USING (id) JOIN chat ON chat.id = chat_id AND deleted_s IS NULL "
            "ORDER BY message.id DESC",
            (expression, before, PAGE),
        ).fetchall()
        for _, chat_id, content in rows:
            if chat_id not in found:
                found[chat_id] = Found(chat_id, snippet(content, words))
                if len(found) >= N_FOUND:
                    return
        if not rows or time.monotonic() > ends_s:
            return
        before = rows[-1][0]


def snippet(content: str, words: list[str]) -> str:
    """Return the passage around the first of the words, on one line."""
    pattern = r"(?<![^\W_])(?:" + "|".join(map(re.escape, words)) + ")"
    place = re.search(pattern, content, re.IGNORECASE)
    begin = max(place.start() - 24, 0) if place else 0
    text = " ".join(content[begin : begin + SNIPPET_CHARS].split())
    if begin:
        text = "\u2026" + text.partition(" ")[2] if " " in text else "\u2026" + text
    return text
