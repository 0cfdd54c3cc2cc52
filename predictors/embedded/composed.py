"""Compose chats by rules: stories, scenes, passages, explanations, sums, small talk.

Everything here is written for this project. A conversation is a list of turns, the user's first.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from predictors.embedded import lexicon, passages, scenes, stories
from predictors.embedded.lexicon import cap

Turns = list[str]
THINGS_FILE = Path(__file__).with_name("things.txt")
QUESTIONS_FILE = Path(__file__).with_name("questions.txt")
LARGEST_TERM = 20

_ASKS = stories.read_plots(Path(__file__).with_name("asks.txt"))
STORY_ASKS, STORY_ABOUT_ASKS = _ASKS["story"][0], _ASKS["story_about"][0]
BEGIN_ASKS, CONTINUE_ASKS, MORE_ASKS = _ASKS["begin"][0], _ASKS["continue"][0], _ASKS["more"][0]
EXPLAIN_ASKS, EXPLAIN_MANY_ASKS = _ASKS["explain"][0], _ASKS["explain_many"][0]
ADD_ASKS, SUBTRACT_ASKS = _ASKS["add"][0], _ASKS["subtract"][0]
SMALL_TALK = tuple(steps for name, steps in _ASKS.items() if name.startswith("talk_"))
TOO_HARD, TOO_HARD_ANSWERS = _ASKS["too_hard"]


def read_things(path: Path = THINGS_FILE) -> dict[str, str]:
    """Read explanations by name with its article, or answers by question."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" | ", 1) for line in lines if line and not line.startswith("#"))
    return {name.strip(): text.strip() for name, text in pairs}


def is_heldout_sum(x: int, y: int) -> bool:
    """Return whether a sum is held out: one unordered pair in ten is in no training chat."""
    digest = hashlib.sha256(f"{min(x, y)}+{max(x, y)}".encode()).digest()
    return digest[0] % 10 == 0


def tell(rng: random.Random) -> Turns:
    """Compose a request for a story, mostly with a topic, and the story."""
    story = stories.story(rng)
    if rng.random() < 0.12:
        return [rng.choice(STORY_ASKS), story.text]
    if rng.random() < 0.2:
        n = rng.randint(3, 6)
        beginning = " ".join(story.sentences[:n])
        turns = [rng.choice(BEGIN_ASKS).format(rng.choice(story.topics)), beginning]
        if rng.random() < 0.3:
            turns += [rng.choice(MORE_ASKS), " ".join(story.sentences[n:])]
        return turns
    return [rng.choice(STORY_ABOUT_ASKS).format(rng.choice(story.topics)), story.text]


def go_on(rng: random.Random) -> Turns:
    """Compose a request to continue a story or a scene, and the continuation."""
    if rng.random() < 0.3:
        sentences, n = stories.story(rng).sentences, rng.randint(1, 3)
        beginning, following = sentences[:n], sentences[n:]
    else:
        beginning, following = scenes.scene(rng)
    return [rng.choice(CONTINUE_ASKS).format(" ".join(beginning)), " ".join(following)]


def plural(noun: str) -> str:
    """Return the plural of a noun: regular, or one of the few irregular ones among the things."""
    irregular = {
        "fish": "fish",
        "deer": "deer",
        "sheep": "sheep",
        "mouse": "mice",
        "goose": "geese",
    }
    irregular |= {"wolf": "wolves", "leaf": "leaves", "knife": "knives", "foot": "feet"}
    irregular |= {"tooth": "teeth", "child": "children", "fisherman": "fishermen"}
    if noun in irregular:
        return irregular[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    hiss = noun.endswith(("s", "x", "ch", "sh")) or noun in ("potato", "tomato", "volcano")
    return noun + ("es" if hiss else "s")


def explain(rng: random.Random, things: dict[str, str]) -> Turns:
    """Compose a question about a thing, sometimes in the plural, and its explanation."""
    name = rng.choice(list(things))
    article, _, noun = name.partition(" ")
    if rng.random() < 0.25 and article in ("a", "an") and " " not in noun:
        return [rng.choice(EXPLAIN_MANY_ASKS).format(plural(noun)), things[name]]
    return [cap(rng.choice(EXPLAIN_ASKS).format(name)), things[name]]


def add(rng: random.Random) -> Turns:
    """Compose a sum or difference of two numbers, sometimes as a word problem."""
    while True:
        x, y = rng.randint(0, LARGEST_TERM), rng.randint(0, LARGEST_TERM)
        if not is_heldout_sum(x, y):
            break
    roll = rng.random()
    if roll < 0.15:
        x, y = max(x, y), min(x, y)
        return [rng.choice(SUBTRACT_ASKS).format(a=x, b=y), f"{x} - {y} = {x - y}."]
    if roll < 0.3 and x > 1 and y > 1:
        who, what = rng.choice(lexicon.GIRLS + lexicon.BOYS), rng.choice(passages.GOODS)
        ask = f"{who} has {x} {what} and gets {y} more. How many {what} does {who} have now?"
        return [ask, f"{x} + {y} = {x + y}. {who} has {x + y} {what}."]
    return [rng.choice(ADD_ASKS).format(a=x, b=y), f"{x} + {y} = {x + y}."]


def small_talk(rng: random.Random) -> Turns:
    """Compose greetings, thanks, and questions about the model or beyond its abilities."""
    if rng.random() < 0.35:
        ask = rng.choice(TOO_HARD).format(
            rng.choice(lexicon.ITEMS), big=rng.randint(21, 999), big2=rng.randint(13, 99),
            town=lexicon.town(rng),
        )  # fmt: skip
        return [ask, rng.choice(TOO_HARD_ANSWERS)]
    asks, answers = rng.choice(SMALL_TALK)
    return [rng.choice(asks), rng.choice(answers)]


def _hasty(ask: str, rng: random.Random) -> str:
    """Return the request as typed in a hurry: lower-case first letter, no final mark."""
    if rng.random() < 0.5 and not ask.startswith("I "):
        ask = ask[:1].lower() + ask[1:]
    return ask.rstrip(".?!") if rng.random() < 0.6 else ask


def compose(n: int, rng: random.Random) -> Iterator[Turns]:
    """Yield `n` conversations, the kinds in fixed shares; one first request in twelve is hasty.

    Explanations and sums have large shares because they are short and need repetition. Counted in
    tokens, stories are more than half.
    """
    things, questions = read_things(), list(read_things(QUESTIONS_FILE).items())
    kinds: tuple[tuple[float, Callable[[], Turns]], ...] = (
        (0.11, lambda: tell(rng)),
        (0.12, lambda: go_on(rng)),
        (0.26, lambda: passages.conversation(rng)),
        (0.25, lambda: explain(rng, things)),
        (0.03, lambda: list(rng.choice(questions))),
        (0.20, lambda: add(rng)),
        (0.03, lambda: small_talk(rng)),
    )
    for _ in range(n):
        (make,) = rng.choices([make for _, make in kinds], [share for share, _ in kinds])
        turns = make()
        if rng.random() < 0.08 and "\n" not in turns[0]:
            turns[0] = _hasty(turns[0], rng)
        yield turns
