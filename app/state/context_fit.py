"""Shorten a conversation that is longer than the context. No Qt.

The system prompt and the first question are kept, then as much of the end as fits. The beginning
carries the topic, and attention relies on the first tokens (Xiao et al., StreamingLLM, 2024,
section 3).
"""

from __future__ import annotations

from backend.text import Text

Turn = dict[str, str]

FIRST_SHARE = 0.25  # limit of the first question, as a share of the room


def counts(sentence: str) -> tuple[int, int] | None:
    """Return the tokens of the prompt and of the context that the engine's refusal names.

    Return None for other sentences.
    """
    if not isinstance(sentence, Text) or sentence.id != "engine.prompt_too_long":
        return None
    n_prompt, n_context = int(sentence.values["n"]), int(sentence.values["n_context"])
    return (n_prompt, n_context) if n_prompt > 0 else None


def fit(turns: list[Turn], n_char_max: int) -> list[Turn]:
    """Shorten the turns to about `n_char_max` characters.

    At least the end of the last turn is kept. Successive turns of the user are joined.
    """
    if sum(len(turn["content"]) for turn in turns) <= n_char_max:
        return turns
    head = [turn for turn in turns[:1] if turn["role"] == "system"]
    rest = turns[len(head) :]
    room = max(n_char_max - sum(len(turn["content"]) for turn in head), n_char_max // 4, 1)
    first: list[Turn] = []
    if len(rest) > 1 and rest[0]["role"] == "user":
        limit = int(room * FIRST_SHARE)
        first = [{**rest[0], "content": _beginning(rest[0]["content"], limit)}]
        room -= len(first[0]["content"])
        rest = rest[1:]
    tail: list[Turn] = []
    for turn in reversed(rest):
        text = turn["content"]
        if len(text) > room:
            if not tail or room > 200:
                tail.append({**turn, "content": _end(text, max(room, 1))})
            break
        tail.append(turn)
        room -= len(text)
    tail.reverse()
    if first and tail and tail[0]["role"] == "user":
        joined = first[0]["content"] + "\n\n" + tail[0]["content"]
        tail[0] = {**tail[0], "content": joined}
        first = []
    elif not first and len(tail) > 1 and tail[0]["role"] == "assistant":
        tail = tail[1:]
    return head + first + tail


def _beginning(text: str, n_char: int) -> str:
    if len(text) <= n_char:
        return text
    cut = text[:n_char]
    return (cut.rpartition(" ")[0] or cut) + " \u2026"


def _end(text: str, n_char: int) -> str:
    cut = text[-n_char:]
    return cut.partition(" ")[2] or cut
