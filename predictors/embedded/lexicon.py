"""Words of the composed chats, and the characters who act in them."""

from __future__ import annotations

import random
from dataclasses import dataclass

GIRLS = tuple(
    "Anna Mary Lucy Emma Rose Clara Ella Nora Lily Grace Alice Jane Sara Ruth Eva Ida Mia Julia "
    "Kate Helen Martha Agnes Edith Flora Daisy Ivy Hazel Molly Polly Betty Amy Laura Nina Olga "
    "Vera Zoe Maya Leila Amina Sofia Elena Rita Tina Dora Greta Heidi Ingrid Karin Maria Paula "
    "Susan Wendy Bella Stella Violet Mabel Elsie Fanny Hilda Iris June Kitty Lena Minna Nell "
    "Peggy Tilda".split()
)
BOYS = tuple(
    "Tom Ben Sam Jack Peter Paul John James Henry George Will Max Leo Hugo Oscar Felix Karl Otto "
    "Emil Adam Noah Luke Mark Simon David Daniel Martin Robert Fred Frank Charles Edward Arthur "
    "Harry Jim Joe Nick Ned Ted Tim Toby Victor Walter Albert Alfred Anton Bruno Conrad Dennis "
    "Eric Finn Gabriel Hans Ivan Jonas Kurt Lars Miles Nils Omar Pablo Ralph Rufus Stephen Theo "
    "Ali Yusuf Zack".split()
)
BEASTS = tuple(
    "fox crow bear wolf rabbit mouse owl cat dog hen goose duck frog turtle snail hedgehog "
    "squirrel deer horse donkey goat sheep pig lion tiger elephant monkey parrot eagle sparrow "
    "raven swan stork bee ant spider butterfly whale dolphin seal penguin badger beaver otter "
    "mole rat lamb calf pony kitten puppy robin peacock camel lizard snake crab fish cricket "
    "dragon hare rooster bat dinosaur unicorn".split()
)
MEN = (
    "king prince farmer fisherman miller shepherd baker sailor soldier woodcutter giant wizard "
    "blacksmith hunter tailor shoemaker clockmaker boy merchant gardener captain pirate knight "
    "painter carpenter snowman robot ghost dwarf scarecrow teacher doctor cook king prince"
).split()
WOMEN = "queen princess witch weaver dancer fairy mermaid girl teacher nurse princess queen".split()
ROYAL = frozenset(("king", "prince", "queen", "princess", "knight"))
ADJECTIVES = "little small young old clever brave kind lonely curious poor shy gentle quiet".split()
COLOURS = "red blue green yellow white black brown grey golden silver purple orange pink".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ITEMS = (
    "key ring book hat boat lamp box bell map kite ball coin letter drum mirror cup basket flute "
    "doll watch coat scarf lantern stone feather shell button violin spoon umbrella clock candle "
    "whistle picture necklace sword crown blanket cart toy pearl"
).split()
FOODS = "bread cheese cake soup honey apples nuts berries pie pears porridge plums corn".split()
PLACES = (
    "the forest", "the river", "the lake", "the sea", "the mountain", "the garden", "the market",
    "the mill", "the bridge", "the old tower", "the meadow", "the hill", "the village", "the beach",
    "the farm", "the church", "the cave", "the well", "the barn", "the park",
)  # fmt: skip
HOMES = {
    "beast": (
        "in a deep forest", "under an old oak tree", "near a quiet pond", "on a green hill",
        "at the edge of the wood", "by the river", "in a barn on a small farm", "near the forest",
        "in a hole under a stone wall", "in a sunny meadow", "on an island in a lake",
    ),
    "person": (
        "in a small house near the forest", "in a little village by the sea", "near the forest",
        "in a cottage at the foot of a mountain", "in an old mill by the river",
        "in a town with narrow streets", "at the edge of a great wood", "on a farm in the valley",
        "in a house with a red roof", "beside a wide lake", "in a quiet village", "near the sea",
    ),
    "royal": (
        "in a castle on a high hill", "in a great palace with a hundred rooms",
        "in a white castle by the sea", "in a tower above the town", "in a far country",
        "in a palace with golden gates", "in an old castle near the forest",
    ),
}  # fmt: skip

_SYLLABLES = (
    "al bar bel bran cor dal dun el fen gar hal kel lin lor mar mel mor nor os pel ral rin sol "
    "tal tor ul val ver wes wil win".split()
)
_TOWN_ENDS = "ton ford bury ham ley wick field burg mouth dale stead".split()


def made_up(rng: random.Random, ends: list[str] | None = None) -> str:
    """Return a made-up name of a place or river, not meant to be real: "Belford", "Marlin"."""
    first = rng.choice(_SYLLABLES)
    return (first + rng.choice(ends or _SYLLABLES)).capitalize()


def town(rng: random.Random) -> str:
    """Return a made-up name of a town."""
    return made_up(rng, _TOWN_ENDS)


def a(words: str) -> str:
    """Return the words with the article that fits their first letter."""
    return ("an " if words[0].lower() in "aeiou" else "a ") + words


def cap(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Character:
    """Someone in a story: introduction, name and pronouns."""

    intro: str  # "a little girl named Anna", "a fox"
    name: str  # "Anna", "the fox"
    pronouns: tuple[str, str, str]  # he, him, his
    home_kind: str  # a key of HOMES

    def fields(self, prefix: str) -> dict[str, str]:
        """Return template fields; a prefix `h` gives h, H, he, He, him, his, His and h_intro."""
        he, him, his = self.pronouns
        out = {"": self.name, "e": he, "im": him, "is": his, "_intro": self.intro}
        named = {prefix + key: value for key, value in out.items()}
        return named | {cap(key): cap(value) for key, value in named.items()}


HE, SHE, IT = ("he", "him", "his"), ("she", "her", "her"), ("it", "it", "its")


def person(rng: random.Random) -> Character:
    """Return a child or grown person with a name."""
    if rng.random() < 0.5:
        name, pronouns, nouns = (
            rng.choice(GIRLS),
            SHE,
            ("girl", "girl", "woman", "farmer's daughter"),
        )
    else:
        name, pronouns, nouns = rng.choice(BOYS), HE, ("boy", "boy", "man", "farmer's son")
    noun, adjective = rng.choice(nouns), rng.choice(ADJECTIVES)
    if noun in ("girl", "boy") and adjective == "old":
        adjective = "little"
    word = rng.choice(("named", "called"))
    intro = f"{a(f'{adjective} {noun}')} {word} {name}"
    return Character(intro, name, pronouns, "person")


def figure(rng: random.Random) -> Character:
    """Return a fairy-tale figure named by role: the king, the old man."""
    if rng.random() < 0.25:
        noun, pronouns = rng.choice(
            (("old man", HE), ("old woman", SHE), ("little girl", SHE), ("little boy", HE))
        )
        return Character(a(noun), f"the {noun}", pronouns, "person")
    male = rng.random() < 0.65
    noun = rng.choice(MEN if male else WOMEN)
    pronouns = HE if male else SHE
    home = "royal" if noun in ROYAL else "person"
    adjective = rng.choice(ADJECTIVES) + " " if rng.random() < 0.5 else ""
    if noun in ("girl", "boy") and adjective == "old ":
        adjective = ""
    return Character(a(adjective + noun), f"the {noun}", pronouns, home)


def beast(rng: random.Random) -> Character:
    """Return an animal of a fable, named by its kind, seldom with a proper name."""
    noun = rng.choice(BEASTS)
    adjective = rng.choice(ADJECTIVES) + " " if rng.random() < 0.5 else ""
    pronouns = rng.choice((HE, SHE, HE, IT))
    if rng.random() < 0.15:
        pronouns = rng.choice((HE, SHE))
        name = rng.choice(BOYS if pronouns is HE else GIRLS)
        return Character(f"{a(adjective + noun)} named {name}", name, pronouns, "beast")
    return Character(a(adjective + noun), f"the {noun}", pronouns, "beast")


def anyone(rng: random.Random) -> Character:
    """Return a character of any kind."""
    return rng.choice((person, figure, beast, beast))(rng)
