"""Compose short stories in plain English from plots written for this project.

plots.txt has the plots and explains their fields.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from predictors.embedded import lexicon
from predictors.embedded.lexicon import Character, a

Step = tuple[str, ...]


def read_plots(path: Path) -> dict[str, tuple[Step, ...]]:
    """Read the plots of a file: steps by name. The top of plots.txt explains the format."""
    plots: dict[str, list[Step]] = {}
    name = ""
    lines: list[str] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("#"):
            continue
        if line.startswith("["):
            name = line.strip("[]")
            plots[name] = []
        elif line.startswith("@"):
            lines += plots[line[1:]][0]
        elif line:
            lines.append("" if line == "-" else line)
        elif lines:
            plots[name].append(tuple(lines))
            lines = []
    return {name: tuple(steps) for name, steps in plots.items()}


PLOTS_FILE = Path(__file__).with_name("plots.txt")
PARTS = ("openings", "traits", "morals")  # parts of stories, not plots
PLOTS = read_plots(PLOTS_FILE)
NAMES = tuple(name for name in PLOTS if name not in PARTS)
ITEM_PLOTS = ("lost", "magic", "door")
PLACE_PLOTS = ("journey", "help", "lonely")
STORED_FOODS = ("nuts", "berries", "apples", "corn", "seeds", "grain", "pears", "honey")
FAR_PLACES = (
    "the sea", "the great city", "the high mountain", "the end of the river", "the king's castle",
    "the island of birds", "the big waterfall", "the land of snow", "the old tower", "the harbour",
)  # fmt: skip
SKILLS = (
    "swim", "sing", "dance", "paint", "bake bread", "ride", "read", "play the flute", "skate",
    "row", "climb trees", "write", "play the drum", "jump over the fence", "whistle",
    "count to a hundred",
)  # fmt: skip
_MONSTERS = ("dragon", "giant bear", "grey wolf", "big troll", "lion", "sea monster")


@dataclass(frozen=True)
class Story:
    """The sentences of a story, and its possible topics."""

    sentences: list[str]
    topics: list[str]  # "a fox", "a fox and a crow", "a lost key"

    @property
    def text(self) -> str:
        """Return the whole story in one paragraph, or two if it is long."""
        cut = len(self.sentences) if len(self.sentences) < 9 else len(self.sentences) // 2
        return "\n\n".join(
            " ".join(part) for part in (self.sentences[:cut], self.sentences[cut:]) if part
        )


def fields(hero: Character, friend: Character, rng: random.Random) -> dict[str, str]:
    """Return all fields that a template may name."""
    item, (place, place2) = rng.choice(lexicon.ITEMS), rng.sample(lexicon.PLACES, 2)
    colour = rng.choice(lexicon.COLOURS)
    long_item = f"{rng.choice((colour, 'small', 'old', 'little', 'wooden'))} {item}"
    return {
        **hero.fields("h"),
        **friend.fields("f"),
        "he": hero.pronouns[0],
        "He": lexicon.cap(hero.pronouns[0]),
        "him": hero.pronouns[1],
        "his": hero.pronouns[2],
        "His": lexicon.cap(hero.pronouns[2]),
        "His_neighbour": lexicon.cap(hero.pronouns[2]) + " neighbour",
        "home": rng.choice(lexicon.HOMES[hero.home_kind]),
        "item": item,
        "a_item": a(long_item),
        "food": rng.choice(lexicon.FOODS),
        "place": place,
        "place2": place2,
        "colour": colour,
        "day": rng.choice(lexicon.DAYS),
        "skill": rng.choice(SKILLS),
        "beast": rng.choice(_MONSTERS),
    }


def two(rng: random.Random) -> tuple[Character, Character]:
    """Return a hero and a friend with different names and introductions."""
    hero = lexicon.anyone(rng)
    friend = lexicon.anyone(rng)
    while friend.name == hero.name or friend.intro == hero.intro:
        friend = lexicon.anyone(rng)
    return hero, friend


def _short(intro: str) -> str:
    """Return the short form for a request: "a fox" for "a clever fox". Names stay."""
    words = intro.split()
    if "named" in words or "called" in words or len(words) < 3:
        return intro
    return a(" ".join(words[2:]) if words[1] in lexicon.ADJECTIVES else " ".join(words[1:]))


def story(rng: random.Random) -> Story:
    """Compose a story from a random plot, random characters and random things."""
    hero, friend = two(rng)
    plot = rng.choice(NAMES)
    values = fields(hero, friend, rng)
    if plot == "share":
        values["food"] = rng.choice(STORED_FOODS)
    if plot == "journey":
        values["place"] = rng.choice(FAR_PLACES)
    steps = (*PLOTS["openings"], *PLOTS["traits"], *PLOTS[plot])
    knows_friend = False
    sentences = []
    for step in steps:
        text = rng.choice(step)
        if not text:
            continue
        if "{f_intro}" in text or "{F_intro}" in text:
            if knows_friend:  # introduced already: "a fox" becomes "the fox"
                text = text.replace(", {f_intro},", " {f}").replace("{f_intro}", "{f}")
                text = text.replace("{F_intro}", "{F}")
            knows_friend = True
        elif not knows_friend and ("{f}" in text or "{F}" in text):
            text = text.replace("{f}", "{f_intro}", 1) if "{f}" in text else text
            text = text.replace("{F}", "{F_intro}", 1) if "{F}" in text else text
            knows_friend = True
        sentences.append(text.format(**values))
    topics = [_short(hero.intro), hero.intro, f"{_short(hero.intro)} and {_short(friend.intro)}"]
    if " named " in hero.intro or " called " in hero.intro:
        topics.append(f"{hero.name} and {friend.name}")
    if plot in ITEM_PLOTS:
        topics += [f"{a(values['item'])}", f"a lost {values['item']}"][: 1 if plot == "door" else 2]
    if plot in PLACE_PLOTS:
        topics.append(f"{_short(hero.intro)} and {values['place']}")
    return Story(sentences, topics)
