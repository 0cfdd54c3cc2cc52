"""Shorten a conversation that is longer than the context. No Qt.

The system prompt and the first question are kept, then as much of the end as fits. The beginning
carries the topic, and attention relies on the first tokens (Xiao et al., StreamingLLM, 2024,
section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backend.protocol.chat import Json
from backend.text import Text

FIRST_SHARE = 0.25  # limit of the first question, as a share of the room
PART_CHARS = 2000  # the length of a part without text, such as an image
TURN_TOKENS = 3  # of the marks around a turn, at least
CHARS_PER_TOKEN = 16  # more than any text has
USUAL_CHARS_PER_TOKEN = 3


def tokens_refused(sentence: str) -> int:
    """Return the tokens of a prompt that the engine refuses as too long; 0 for other sentences."""
    if isinstance(sentence, Text) and sentence.id == "engine.prompt_too_long":
        return int(sentence.values["n"])
    return 0


def cannot_fit(turns: Sequence[Json], n_context: int) -> bool:
    """Return whether a conversation is certainly longer than the context, without counting it."""
    n_token = len(turns) * TURN_TOKENS + size(turns) // CHARS_PER_TOKEN
    return n_context > 0 and n_token > n_context


def half_of(turns: Sequence[Json], n_context: int) -> int:
    """Estimate the characters that fill half the context, for a conversation not yet counted."""
    n_char = max(size(turns), 1)
    n_token = len(turns) * 2 * TURN_TOKENS + n_char // USUAL_CHARS_PER_TOKEN
    return max(n_char * n_context // (2 * n_token), 1)


def size(turns: Sequence[Json]) -> int:
    """Return the characters of turns. Thoughts count only in the last: templates drop others."""
    last = turns[-1].get("reasoning_content", "") if turns else ""
    return sum(map(_size, turns)) + len(last)


def fit(turns: list[Json], n_char_max: int) -> tuple[list[Json], int]:
    """Shorten the turns to about `n_char_max` characters.

    Return them, and the index of the first given turn from which all are kept, perhaps itself cut;
    0 if nothing was shortened.

    At least the end of the last turn is kept. Successive turns of the user are joined. An answer
    with tool calls stays together with their results.
    """
    if size(turns) <= n_char_max:
        return turns, 0
    head = [turn for turn in turns[:1] if turn["role"] == "system"]
    rest = turns[len(head) :]
    room = max(n_char_max - size(head), n_char_max // 4, 1)
    first: list[Json] = []
    if len(rest) > 1 and rest[0]["role"] == "user":
        limit = int(room * FIRST_SHARE)
        first = [_cut(rest[0], limit, _beginning)]
        if _size(first[0]) > limit + PART_CHARS // 2:  # parts without a text are too large
            first = [_cut({**rest[0], "content": _text(rest[0]["content"])}, limit, _beginning)]
        room -= _size(first[0])
        rest = rest[1:]
    kept: list[list[Json]] = []
    for group in reversed(_groups(rest)):
        n_char = size(group)
        if n_char > room:
            if not kept or (room > 200 and len(group) == 1):
                kept.append(_cut_group(group, max(room, 1)))
            break
        kept.append(group)
        room -= n_char
    tail = [turn for group in reversed(kept) for turn in group]
    begin = len(turns) - len(tail)
    if first and tail and tail[0]["role"] == "user":
        tail[0] = {**tail[0], "content": joined(first[0]["content"], tail[0]["content"])}
        first = []
    elif not first and len(kept) > 1 and tail[0]["role"] == "assistant":
        tail = tail[len(kept[-1]) :]
        begin += len(kept[-1])
    return head + first + tail, begin


def joined(first: Any, second: Any) -> Any:
    """Join the contents of two turns: texts, or lists of parts."""
    if isinstance(first, str) and isinstance(second, str):
        return first + "\n\n" + second
    parts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in (first, second)]
    return [*parts[0], *parts[1]]


def _text(content: Any) -> str:
    """Return the text of a content: a text, or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n\n".join(part["text"] for part in content if "text" in part)


def _groups(turns: list[Json]) -> list[list[Json]]:
    """Group each answer with the results of its tool calls; other turns are alone."""
    groups: list[list[Json]] = []
    for turn in turns:
        if turn["role"] == "tool" and groups:
            groups[-1].append(turn)
        else:
            groups.append([turn])
    return groups


def _size(turn: Json) -> int:
    content = turn["content"]
    calls = sum(len(c["function"]["name"]) + len(c["function"]["arguments"])
                for c in turn.get("tool_calls", ()))  # fmt: skip
    if isinstance(content, str):
        return len(content) + calls
    return calls + sum(len(part["text"]) if "text" in part else PART_CHARS for part in content)


def _cut_group(group: list[Json], n_char: int) -> list[Json]:
    """Cut the texts of a group to equal shares. Calls stay whole."""
    return [_cut(turn, n_char // len(group), _end) for turn in group]


def _cut(turn: Json, n_char: int, shorten: Callable[[str, int], str]) -> Json:
    """Shorten the texts of a turn. Parts without a text stay."""
    content, n_char = turn["content"], max(n_char, 1)
    if isinstance(content, str):
        return {**turn, "content": shorten(content, n_char)}
    parts = [
        {**part, "text": shorten(part["text"], max(n_char // len(content), 1))}
        if "text" in part
        else part
        for part in content
    ]
    return {**turn, "content": parts}


def _beginning(text: str, n_char: int) -> str:
    if len(text) <= n_char:
        return text
    cut = text[:n_char]
    return (cut.rpartition(" ")[0] or cut) + " \u2026"


def _end(text: str, n_char: int) -> str:
    if len(text) <= n_char:
        return text
    cut = text[-n_char:]
    return cut.partition(" ")[2] or cut
