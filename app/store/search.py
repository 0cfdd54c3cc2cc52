"""Search while the user types: titles first, then messages, newest first."""

from __future__ import annotations

import re
import sqlite3
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

N_FOUND = 60  # chats
PAGE = 400  # messages per query
BUDGET_S = 0.05  # time limit; the results so far are shown
SHORT_BUDGET_S = 0.15  # for words that are in no index
SNIPPET_CHARS = 70
_AROUND_CHARS = 300  # that are read before and after the words
SHORT_CHARS = 3  # a shorter word is in no index of parts of words
SCANNED = 1000  # messages per query that looks for short words
N_PART = 24
N_WORD = 12

_ACCENTED_CHARS = 100_000  # of a message, in which accents are looked for
_ACCENTS = re.compile("[\u0300-\u036f]+")
_WORD = re.compile(r"[^\W_]+")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.M)
Plain = Callable[[str], str]
"""Returns a passage of an answer without the signs of Markdown."""
_QUOTES = "\"'\u201c\u201d\u201e\u00ab\u00bb"


@dataclass(frozen=True)
class Found:
    """A matching chat.

    snippet: the passage of a message, empty if the title matches. message_id: of the newest message
    that matches, or 0. marked: what to mark in it.
    """

    chat_id: int
    snippet: str
    message_id: int = 0
    marked: str = ""


class _Letters(dict[int, str]):
    """The small letter of a character, without accents. Turkish i, of I, is an i."""

    def __missing__(self, code: int) -> str:
        char = "i" if code == 0x131 else chr(code)
        parts = unicodedata.normalize("NFKD", char.casefold())
        self[code] = parts[0] if len(_ACCENTS.sub("", parts)) == 1 else char.lower()[:1]
        return self[code]


_LETTERS = _Letters()


def without_accents(text: str) -> str:
    """Return a text in small letters without accents."""
    return text.lower() if text.isascii() else _ACCENTS.sub("", text.translate(_LETTERS))


_Row = tuple[int, int, str, str, int]  # message, chat, role, content, whether it is sure


class Results(list[Found]):
    """The chats that were found. is_cut: others may match, too."""

    is_cut = False


def find(connection: sqlite3.Connection, text: str, plain: Plain = str) -> Results:
    """Return the chats that contain all the words, in the title or in a message."""
    small = text.lower().replace("i\u0307", "i")  # of a Turkish capital i
    bare = (word.strip(_QUOTES) for word in small.replace("\0", " ").split())
    words = [word for word in bare if word][:N_WORD]
    if not words:
        return Results()
    found = {chat_id: Found(chat_id, "") for chat_id in _titles(connection, words)}
    is_cut = len(found) >= N_FOUND
    if any(len(word) >= 2 or not word.isascii() for word in words) and not is_cut:
        is_cut = not find_said(connection, words, found, plain)
    results = Results(list(found.values())[:N_FOUND])
    results.is_cut = is_cut
    return results


def match_expression(words: list[str]) -> str:
    """Return the FTS5 expression that matches all words; none of them acts as an operator.

    The index knows no Turkish, so the small letter of I is an i there.
    """
    forms = [{word, word.replace("\u0131", "i")} for word in words]
    return " AND ".join(
        "(" + " OR ".join(f'"{one}" *' for one in sorted(same)) + ")" for same in forms
    )


def _parts_expression(words: list[str]) -> str:
    """Return the FTS5 expression of the parts of words, three letters each; "" without any."""
    parts = {word[at : at + 3] for word in words for at in range(len(word) - SHORT_CHARS + 1)}
    quoted = ('"' + part.replace('"', '""') + '"' for part in sorted(parts)[:N_PART])
    return " AND ".join(quoted)


def _pattern(word: str) -> str:
    """Return the pattern of LIKE for a text that contains a word."""
    return "%" + re.sub(r"([%_\\])", r"\\\1", word) + "%"


def _titles(connection: sqlite3.Connection, words: list[str]) -> list[int]:
    connection.create_function("without_accents", 1, without_accents, deterministic=True)
    wanted = " AND ".join(["instr(without_accents(CAST(title AS TEXT)), ?)"] * len(words))
    rows = connection.execute(
        f"SELECT id FROM chat WHERE deleted_s IS NULL AND {wanted} ORDER BY changed_s DESC LIMIT ?",
        [*map(without_accents, words), N_FOUND],
    )
    return [row[0] for row in rows]


def find_said(
    connection: sqlite3.Connection, words: list[str], found: dict[int, Found], plain: Plain = str
) -> bool:
    """Add the chats with a message that contains all the words, newest first.

    Words that begin so come without their accents. Return False if there may be more.
    """
    ends_s = time.monotonic() + BUDGET_S
    hits, values = [], []
    if all(map(_WORD.fullmatch, words)):
        hits.append("SELECT rowid AS id, 1 AS is_sure FROM word WHERE word MATCH ? AND rowid < ?")
        values.append(match_expression(words))
    if parts := _parts_expression(words):
        hits.append(
            "SELECT rowid AS id, 0 AS is_sure FROM word_part WHERE word_part MATCH ? AND rowid < ?"
        )
        values.append(parts)
    if hits:
        hit = " UNION ALL ".join(hits) + " ORDER BY 1 DESC LIMIT ?"
        before = 1 << 62
        while True:
            limits = [value for expression in values for value in (expression, before)]
            rows = _messages(connection, hit, [*limits, PAGE])
            _take(rows, words, found, plain)
            if len(found) >= N_FOUND:
                return False
            if not rows:
                break
            if time.monotonic() > ends_s:
                return False
            before = rows[-1][0]
    return bool(parts) or _find_short(connection, words, found, plain)


def _find_short(
    connection: sqlite3.Connection, words: list[str], found: dict[int, Found], plain: Plain
) -> bool:
    """Add the chats with short words within words: read the messages, newest first."""
    ends_s = time.monotonic() + SHORT_BUDGET_S
    tests, patterns = [], []
    for word in words:
        if word.isascii():
            tests.append("content LIKE ? ESCAPE '\\'")
            patterns.append(_pattern(word))
        else:  # LIKE takes twice the time, and knows no other case of such letters
            cases = {word, word.upper(), word.title()}
            tests.append("(" + " OR ".join(["instr(content, ?)"] * len(cases)) + ")")
            patterns.extend(cases)
    hit = (
        "SELECT id, 0 AS is_sure FROM message WHERE id < ? AND id >= ? AND "
        + " AND ".join(tests)
        + " ORDER BY id DESC"
    )
    before = connection.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()[0] + 1
    while before > 0:
        values: list[object] = [before, before - SCANNED, *patterns]
        _take(_messages(connection, hit, values), words, found, plain)
        before -= SCANNED
        if len(found) >= N_FOUND or (before > 0 and time.monotonic() > ends_s):
            return False
    return True


def _messages(connection: sqlite3.Connection, hit: str, values: list[object]) -> list[_Row]:
    return connection.execute(
        f"SELECT message.id, chat_id, role, message.content, is_sure FROM ({hit}) AS hit "
        "JOIN message USING (id) JOIN chat ON chat.id = chat_id AND deleted_s IS NULL "
        "ORDER BY message.id DESC",
        values,
    ).fetchall()


def _take(rows: list[_Row], words: list[str], found: dict[int, Found], plain: Plain) -> None:
    """Add the chats of rows that do contain the words."""
    for message_id, chat_id, role, content, is_sure in rows:
        known = found.get(chat_id)
        if len(found) >= N_FOUND if known is None else known.message_id:
            continue
        folded = content.casefold()
        if is_sure or all(word.casefold() in folded for word in words):
            phrase = " ".join(words)
            marked = phrase if phrase in folded else max(words, key=len)
            if marked not in folded:
                marked = _with_accents(content, marked)
            passage = ""
            if known is None:  # else its title has the words
                passage = snippet(content, [marked, *words], plain if role == "assistant" else str)
            found[chat_id] = Found(chat_id, passage, message_id, marked)


def snippet(content: str, words: list[str], plain: Plain = str) -> str:
    """Return the passage around the words, the first rather than the others, on one line."""
    place = _place_of(content, words)
    if place:
        fences = [fence.end() for fence in _FENCE.finditer(content, 0, place.start())]
        begin = max(place.start() - _AROUND_CHARS, 0)
        begin = max([begin and content.find(" ", begin, place.start()), begin, *fences[-1:]])
        shown = content[begin : place.end() + _AROUND_CHARS]
        if len(fences) % 2:  # it is code, which begins below the fence
            shown = _FENCE.split(content[fences[-1] :], maxsplit=1)[0].partition("\n")[2]
        else:
            shown = plain(shown)
        if shown_place := _place_of(shown, words):  # else they are within the signs
            content, place = shown, shown_place
    begin = max(place.start() - 24, 0) if place else 0
    text = " ".join(content[begin : begin + SNIPPET_CHARS].split())
    if begin:
        text = "\u2026" + text.partition(" ")[2] if " " in text else "\u2026" + text
    return text


def _with_accents(content: str, word: str) -> str:
    """Return the first letters of a text that are those of a word, but for accents."""
    letters = f"{_ACCENTS.pattern[:-1]}*".join(map(re.escape, without_accents(word)))
    place = re.search(letters, content[:_ACCENTED_CHARS].translate(_LETTERS))
    return content[place.start() : place.end()] if place else word


def _place_of(content: str, words: list[str]) -> re.Match[str] | None:
    for wanted in (words[:1], words):
        pattern = "(?:" + "|".join(map(re.escape, wanted)) + ")"
        for begin in (r"(?<![^\W_])", ""):
            if place := re.search(begin + pattern, content, re.IGNORECASE):
                return place
    return None
