"""Compose the chats of the instruct phase from the instruction sets, the texts and rules.

A conversation is a list of {"role", "content"} in turns of user and assistant.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from predictors.embedded import composed
from predictors.embedded.prompts import KEPT_OUT

Message = dict[str, str]
Conversation = list[Message]
Text = tuple[str, str, str]  # source, title, text

MAX_PROMPT_CHARS = 1400
# Few chats are from the instruction sets: a model of this size learns their noise, not their skill.
MAX_PER_PROMPT_FILE = 6
MAX_GSM8K = 200
MAX_PER_CHAPTER = 2
N_COMPOSED = 90_000
# The answers to these prompts are a letter, a number or yes/no: useless for chats.
SKIPPED_T0 = re.compile(
    r"index|answer_id|prompt_id|paws|Guess_Title|guess_person|is_correct|Check_if"
)

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"']?\s+(?=[\"'A-Z])")

EXPLAIN_ASKS = ("What is {}?", "Tell me about {}.", "What do you know about {}?", "Explain {}.")
CONTINUE_ASKS = ("Go on with this passage: {}", "Continue this passage.\n\n{}")
WHO_ASKS = ("Who was {}?", "Tell me about {}.", "What do you know about {}?", "Who is {}?")


def _chat(*turns: str) -> Conversation:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text.strip()} for i, text in enumerate(turns)]


def sentences(text: str) -> list[str]:
    """Split at sentence ends that are followed by a capital; good enough for prose."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def _leading(text: str, max_chars: int) -> str:
    """Return whole sentences from the start of `text`, at most `max_chars` characters."""
    if len(text) <= max_chars:
        return text
    cut = text[:max_chars]
    ends = [m.end() for m in re.finditer(r"[.!?][\"']?(?=\s)", cut)]
    return cut[: ends[-1]] if ends else ""


def from_t0(data: Path, rng: random.Random) -> Iterator[Conversation]:
    """Yield P3 prompts with non-empty answers, without the literal end mark."""
    for path in sorted((data / "train-t0").glob("*.jsonl")):
        if SKIPPED_T0.search(path.stem):
            continue
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        rng.shuffle(rows)
        n_taken = 0
        for row in rows:
            answer = row["completion"].replace("<|endoftext|>", "").strip()
            prompt = row["prompt"].replace("<|endoftext|>", "").strip()
            if n_taken < MAX_PER_PROMPT_FILE and answer and len(prompt) <= MAX_PROMPT_CHARS:
                yield _chat(prompt, answer)
                n_taken += 1


def from_seed(data: Path) -> Iterator[Conversation]:
    """Yield the 175 seed instructions, with their input if they have one."""
    for path in sorted((data / "train-seed").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            for instance in row["instances"]:
                prompt = row["instruction"]
                if instance["input"]:
                    prompt += "\n\n" + instance["input"]
                if len(prompt) <= MAX_PROMPT_CHARS and instance["output"]:
                    yield _chat(prompt, instance["output"][:3000])


def from_gsm8k(data: Path) -> Iterator[Conversation]:
    """Yield word problems with their steps, without the calculator marks `<<...>>`."""
    for path in sorted((data / "train-gsm8k").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines()[:MAX_GSM8K]:
            row = json.loads(line)
            steps, _, result = re.sub(r"<<[^>]*>>", "", row["answer"]).partition("\n#### ")
            yield _chat(row["question"], f"{steps}\nThe answer is {result}.")


def from_books(texts: Sequence[Text], rng: random.Random) -> Iterator[Conversation]:
    """Yield passages of books to continue; few, because their English is old and names are many."""
    for source, _, text in texts:
        if source != "books":
            continue
        paragraphs = [p for p in text.split("\n\n") if 160 < len(p) < 900]
        for paragraph in paragraphs[:: MAX_PER_CHAPTER * 40][:MAX_PER_CHAPTER]:
            beginning = " ".join(sentences(paragraph)[: rng.randint(1, 2)])
            following = paragraph[len(beginning) :].strip()
            if len(following) > 80 and len(beginning) > 40:
                yield _chat(rng.choice(CONTINUE_ASKS).format(beginning), following)


def from_encyclopaedia(texts: Sequence[Text], rng: random.Random) -> Iterator[Conversation]:
    """Yield a question about X with the first sentence or two of the article on X."""
    known = composed.read_things()
    for source, title, text in texts:
        lines = text.split("\n")
        if source != "wikipedia" or not title or len(title) > 40 or title.startswith("List of"):
            continue
        body = next((line for line in lines if line != title and len(line) > 100), "")
        answer = _leading(body, 260)
        if len(answer) < 80 or title.split(" ")[0].lower() not in answer.lower():
            continue
        name, is_thing = spoken_name(title, text)
        is_person = not is_thing and re.search(r"\((?:born |\d)|\b(?:he|she|his|her)\b", text[:400])
        ask = rng.choice(WHO_ASKS if is_person else EXPLAIN_ASKS)
        if name not in known:
            yield _chat(ask.format(name), answer)


def spoken_name(title: str, text: str) -> tuple[str, bool]:
    """Return an article's name for a question ("a ceramic", "Lorraine"), and True for a thing.

    A thing is a common noun: the text writes the title in lower case within sentences.
    """
    name = re.sub(r" \(.*\)", "", title)
    small = name[0].lower() + name[1:]
    n_small = len(re.findall(rf"\b{re.escape(small)}\b", text))
    n_capital = len(re.findall(rf"(?<=[a-z,] ){re.escape(name)}\b", text))
    if small == name or n_small <= n_capital:
        return name, False
    article = re.search(rf"\b([Aa]n?) {re.escape(small)}\b", text)
    return (f"{article.group(1).lower()} {small}" if article else small), True


def follow_ups(chats: Sequence[Conversation], n: int, rng: random.Random) -> Iterator[Conversation]:
    """Yield chats of two or three turns, joined from short ones, to teach several turns."""
    short = [c for c in chats if sum(len(m["content"]) for m in c) < 700]
    for _ in range(n):
        joined: Conversation = []
        for chat in rng.sample(short, rng.choice((2, 2, 3))):
            joined += chat
        yield joined


def compose(
    data: Path, texts: Sequence[Text], seed: int, n_composed: int = N_COMPOSED
) -> list[Conversation]:
    """Return all conversations of the instruct phase, in an order shuffled by `seed`."""
    rng = random.Random(seed)
    parts: tuple[Callable[[], Iterator[Conversation]], ...] = (
        lambda: from_t0(data, rng),
        lambda: from_seed(data),
        lambda: from_gsm8k(data),
        lambda: from_books(texts, rng),
        lambda: from_encyclopaedia(texts, rng),
        lambda: (_chat(*turns) for turns in composed.compose(n_composed, rng)),
    )
    chats = [chat for part in parts for chat in part()]
    chats += list(follow_ups(chats, len(chats) // 8, rng))
    chats = [
        chat for chat in chats if not any(kept in m["content"] for m in chat for kept in KEPT_OUT)
    ]
    rng.shuffle(chats)
    return chats
