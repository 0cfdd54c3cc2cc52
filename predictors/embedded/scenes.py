"""Compose scenes, a beginning and a continuation each, for "go on with this story".

A scene has one kind of place. Its things and characters fit the place, so that the continuation
fits the first sentence.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from predictors.embedded import lexicon
from predictors.embedded.lexicon import HE, SHE, Character
from predictors.embedded.stories import Step, read_plots


@dataclass(frozen=True)
class Scene:
    """Possible events at one kind of place; templates as in `stories`."""

    openings: Step  # the first action of {h}
    notice: Step  # a thing that {he} sees or hears there
    meet: Step  # introduces {g}, who is behind it
    guests: Step  # noun phrases for {g_intro}
    deed: Step  # their action
    end: Step


SCENES_FILE = Path(__file__).with_name("scenes.txt")
_PARTS = read_plots(SCENES_FILE)
LEADS, FEELINGS = _PARTS.pop("leads")[0], _PARTS.pop("feelings")[0]
SCENES = tuple(Scene(*steps) for steps in _PARTS.values())
THE_PEOPLE = tuple(
    (f"{adjective}{noun}", pronouns)
    for noun, pronouns in (
        ("man", HE), ("woman", SHE), ("boy", HE), ("girl", SHE), ("king", HE), ("queen", SHE),
        ("sailor", HE), ("farmer", HE), ("princess", SHE), ("soldier", HE), 
        ("fisherman", HE), ("teacher", SHE), ("doctor", HE), ("shepherd", HE), ("traveller", HE),
    )
    for adjective in ("old ", "young ", "poor ", "little ", "")
    if not (adjective == "old " and noun in ("boy", "girl"))
)  # fmt: skip


def someone(rng: random.Random) -> Character:
    """Return the hero of a scene, such as a named child or "the old man"."""
    if rng.random() < 0.3:
        return lexicon.anyone(rng)
    noun, pronouns = rng.choice(THE_PEOPLE)
    return Character(lexicon.a(noun), f"the {noun}", pronouns, "person")


def scene(rng: random.Random) -> tuple[list[str], list[str]]:
    """Return the first sentences, and those that follow."""
    hero, chosen = someone(rng), rng.choice(SCENES)
    guest = rng.choice(chosen.guests)
    noun = guest.split(" ", 1)[1] if guest.startswith(("a ", "an ")) else guest[4:]
    for mark in (" with ", " without ", " from ", " on ", " that ", " of ", " in "):
        noun = noun.split(mark)[0]
    values = {
        **hero.fields("h"),
        "he": hero.pronouns[0], "He": lexicon.cap(hero.pronouns[0]), "him": hero.pronouns[1],
        "his": hero.pronouns[2], "His": lexicon.cap(hero.pronouns[2]),
        "g_intro": guest, "g": f"the {noun}", "day": rng.choice(lexicon.DAYS),
    }  # fmt: skip
    values["opening"] = rng.choice(chosen.openings).format(**values)
    beginning = [rng.choice(LEADS)]
    following = [rng.choice(step) for step in (chosen.notice, FEELINGS, chosen.meet)]
    following += [rng.choice(chosen.deed), rng.choice(chosen.end)]
    if rng.random() < 0.35:
        beginning.append(following.pop(0))
    return (
        [text.format(**values) for text in beginning],
        [text.format(**values) for text in following if text],
    )
