"""Compose short passages of facts about made-up people, with questions that they answer.

A fact is a sentence with its questions. A passage is two to five facts about one person or place.
Sometimes it has a sentence about somebody else, so that the answer must be searched for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from predictors.embedded import lexicon
from predictors.embedded.lexicon import a, cap

QA = tuple[str, str]  # question, answer

JOBS = {
    "baker": "in a small bakery", "teacher": "in a school", "doctor": "in a hospital",
    "farmer": "on a farm", "fisherman": "at the harbour", "gardener": "in a large park",
    "cook": "in a hotel", "tailor": "in a shop", "miller": "in a mill", "sailor": "on a ship",
    "painter": "in a bright room", "nurse": "in a hospital", "clerk": "in an office",
    "mechanic": "in a garage", "driver": "in the city", "shepherd": "in the hills",
    "carpenter": "in a workshop", "librarian": "in a library", "postman": "in a village",
}  # fmt: skip
RELATIONS = {
    "brother": "m", "sister": "f", "father": "m", "mother": "f", "uncle": "m", "aunt": "f",
    "cousin": "mf", "friend": "mf", "grandfather": "m", "grandmother": "f", "neighbour": "mf",
}  # fmt: skip
THINGS = {  # thing: verb in third person, plain verb, places
    "boat": ("sails", "sail", ("on the lake", "on the river", "near the harbour")),
    "kite": ("flies", "fly", ("on the hill", "on the beach", "in the park")),
    "bicycle": ("rides", "ride", ("in the park", "to school", "through the village")),
    "ball": ("plays with", "play with", ("in the garden", "in the yard", "on the beach")),
    "violin": ("plays", "play", ("in the church", "at home", "in the town hall")),
    "car": ("drives", "drive", ("to the city", "to work", "along the coast")),
    "horse": ("rides", "ride", ("in the forest", "over the fields", "on the beach")),
    "book": ("reads", "read", ("in the library", "under the apple tree", "in bed")),
    "drum": ("plays", "play", ("in the yard", "in the school hall", "in the cellar")),
    "sledge": ("pulls", "pull", ("up the hill", "through the snow", "over the ice")),
    "guitar": ("plays", "play", ("in the kitchen", "in the park", "on the stairs")),
    "camera": ("uses", "use", ("in the mountains", "in the zoo", "by the sea")),
}  # fmt: skip
PETS = "dog cat rabbit horse parrot hamster goat pony canary tortoise".split()
SUBJECTS = "music history English mathematics drawing geography French science".split()
GOODS = "apples pears eggs carrots lemons onions candles potatoes oranges plums cakes roses".split()
BOUGHT = "hat coat basket lamp book cup chair scarf knife cheese cake blanket".split()
HIDDEN = "ring key purse watch glove umbrella letter ticket coin cap".split()
SPOTS = (
    "under the bed", "behind the door", "in the kitchen", "under a bench", "in the garden",
    "on the stairs", "in the car", "near the well", "in a drawer", "on the table", "in the snow",
)  # fmt: skip
DOINGS = (
    ("read a book", "read"), ("baked a cake", "bake"), ("painted a picture", "paint"),
    ("wrote a letter", "write"), ("cleaned the house", "clean"), ("played chess", "play"),
    ("slept all day", "do"), ("repaired the clock", "repair"), ("cooked soup", "cook"),
)  # fmt: skip
TRANSPORT = "by train,by bus,by ship,on foot,by car,on a horse,by bicycle".split(",")
MATERIALS = "stone wood brick iron glass marble".split()
NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()


@dataclass
class Passage:
    """Sentences, and questions that they answer."""

    sentences: list[str] = field(default_factory=list)
    questions: list[QA] = field(default_factory=list)

    def add(self, sentence: str, *questions: QA) -> None:
        """Add a fact and its questions. Capitalise the first letter of each."""
        self.sentences.append(cap(sentence))
        self.questions += [(cap(question), cap(answer)) for question, answer in questions]


class _Person:
    """Someone with a name and pronouns. `named`: the passage has named them already."""

    def __init__(self, rng: random.Random, sex: str = "mf") -> None:
        self.female = rng.choice(sex) == "f"
        self.name = rng.choice(lexicon.GIRLS if self.female else lexicon.BOYS)
        if rng.random() < 0.12:
            self.name = ("Mrs " if self.female else "Mr ") + lexicon.made_up(rng)
        self.he, self.him, self.his = lexicon.SHE if self.female else lexicon.HE
        self.named, self.rng = False, rng

    def subject(self) -> str:
        """Return the name the first time, then the pronoun or the name."""
        word = self.he if self.named and self.rng.random() < 0.4 else self.name
        self.named = True
        return word


def _number(rng: random.Random, low: int = 2, high: int = 99) -> str:
    value = rng.randint(low, high)
    return NUMBERS[value - 2] if value <= 12 and rng.random() < 0.6 else str(value)


def _relative(rng: random.Random) -> tuple[str, _Person]:
    relation = rng.choice(sorted(RELATIONS))
    return relation, _Person(rng, RELATIONS[relation])


def owns(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add a coloured thing and its use: where, when and with whom."""
    thing = rng.choice(sorted(THINGS))
    does, do, wheres = THINGS[thing]
    colour, where, day = (
        rng.choice(lexicon.COLOURS[:9]),
        rng.choice(wheres),
        rng.choice(lexicon.DAYS),
    )
    verb = rng.choice(("has", "has", "owns", "bought"))
    p.add(
        f"{who.subject()} {verb} {a(f'{colour} {thing}')}.",
        (f"what colour is the {thing}?", f"the {thing} is {colour}."),
        (f"what colour is {who.name}'s {thing}?", f"{who.name}'s {thing} is {colour}."),
        (f"who {verb} {a(f'{colour} {thing}')}?", f"{who.name} {verb} {a(f'{colour} {thing}')}."),
        (f"what does {who.name} have?", f"{who.name} has {a(f'{colour} {thing}')}."),
    )
    relation, other = _relative(rng)
    p.add(
        f"{who.he} {does} it {where} every {day} with {who.his} {relation} {other.name}.",
        (f"where does {who.name} {do} the {thing}?", f"{who.name} {does} the {thing} {where}."),
        (f"when does {who.name} {do} the {thing}?", f"{who.name} {does} the {thing} every {day}."),
        (f"on which day does {who.he} {do} the {thing}?", f"{who.he} {does} it every {day}."),
        (f"who is {other.name}?", f"{other.name} is {who.name}'s {relation}."),
        (
            f"what is the name of {who.name}'s {relation}?",
            f"{who.name}'s {relation} is {other.name}.",
        ),
    )


def works(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add a job, its place and its hours."""
    job = rng.choice(sorted(JOBS))
    hour = _number(rng, 4, 11)
    p.add(
        f"{who.subject()} is {a(job)} and works {JOBS[job]}.",
        (f"what is {who.name}?", f"{who.name} is {a(job)}."),
        (f"what does {who.name} do?", f"{who.name} is {a(job)}."),
        (f"where does {who.name} work?", f"{who.name} works {JOBS[job]}."),
        (f"who works {JOBS[job]}?", f"{who.name} works {JOBS[job]}."),
    )
    p.add(
        f"{who.he} gets up at {hour} o'clock every morning.",
        (f"when does {who.name} get up?", f"{who.name} gets up at {hour} o'clock."),
        (f"at what time does {who.he} get up?", f"{who.he} gets up at {hour} o'clock."),
    )


def lives(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add a house, its town, colour and garden."""
    place, colour, n = lexicon.town(rng), rng.choice(lexicon.COLOURS[:8]), _number(rng, 2, 12)
    tree = rng.choice("apple cherry pear plum lemon oak".split())
    p.add(
        f"{who.subject()} lives in {a(f'{colour} house')} in {place}.",
        (f"where does {who.name} live?", f"{who.name} lives in {place}."),
        (f"what colour is {who.name}'s house?", f"{who.name}'s house is {colour}."),
        (f"who lives in {place}?", f"{who.name} lives in {place}."),
    )
    p.add(
        f"there are {n} {tree} trees in the garden.",
        (f"how many {tree} trees are in the garden?", f"there are {n} {tree} trees in the garden."),
        ("how many trees are there?", f"there are {n} {tree} trees."),
        ("what kind of trees are in the garden?", f"there are {tree} trees in the garden."),
    )


def pet(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add an animal with a name, an age and a favourite food."""
    kind, name, age = (
        rng.choice(PETS),
        rng.choice(lexicon.GIRLS + lexicon.BOYS),
        _number(rng, 2, 15),
    )
    food = rng.choice("bread fish apples carrots milk cheese corn grass".split())
    p.add(
        f"{who.subject()} has {a(kind)} called {name}.",
        (f"what is the name of the {kind}?", f"the {kind} is called {name}."),
        (f"what is the {kind} called?", f"the {kind} is called {name}."),
        (f"who is {name}?", f"{name} is {who.name}'s {kind}."),
        (f"what animal does {who.name} have?", f"{who.name} has {a(kind)}."),
    )
    p.add(
        f"{name} is {age} years old and likes {food}.",
        (f"how old is {name}?", f"{name} is {age} years old."),
        (f"how old is the {kind}?", f"the {kind} is {age} years old."),
        (f"what does {name} like?", f"{name} likes {food}."),
        (f"what does the {kind} like?", f"the {kind} likes {food}."),
    )


def market(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add a day's shopping: goods, number and day."""
    day, n, goods, thing = (
        rng.choice(lexicon.DAYS), _number(rng, 2, 20), rng.choice(GOODS), rng.choice(BOUGHT),
    )  # fmt: skip
    place = rng.choice(("the market", "the shop", "the town", "the fair"))
    p.add(
        f"on {day} {who.subject()} went to {place}.",
        (f"when did {who.name} go to {place}?", f"{who.name} went to {place} on {day}."),
        (f"where did {who.name} go on {day}?", f"{who.name} went to {place}."),
        (f"who went to {place}?", f"{who.name} went to {place}."),
    )
    p.add(
        f"{who.he} bought {n} {goods} and {a(thing)}.",
        (f"what did {who.name} buy?", f"{who.name} bought {n} {goods} and {a(thing)}."),
        (f"how many {goods} did {who.name} buy?", f"{who.name} bought {n} {goods}."),
        (f"who bought {a(thing)}?", f"{who.name} bought {a(thing)}."),
    )


def lost(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add a thing that is lost, and found by somebody else."""
    thing, where, found = rng.choice(HIDDEN), *rng.sample(SPOTS, 2)
    relation, other = _relative(rng)
    p.add(
        f"{who.subject()} lost {who.his} {thing} {where}.",
        (f"what did {who.name} lose?", f"{who.name} lost {who.his} {thing}."),
        (
            f"where did {who.name} lose {who.his} {thing}?",
            f"{who.name} lost {who.his} {thing} {where}.",
        ),
        (f"who lost {a(thing)}?", f"{who.name} lost {a(thing)}."),
    )
    found_it = rng.random() < 0.5 and where != found
    spot = found if found_it else where
    p.add(
        f"{who.his} {relation} {other.name} found it {spot}.",
        (f"who found the {thing}?", f"{other.name} found the {thing}."),
        (f"where was the {thing}?", f"the {thing} was {spot}."),
        (f"where did {other.name} find the {thing}?", f"{other.name} found the {thing} {spot}."),
    )


def journey(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add a journey between two towns: means and duration."""
    start, end, how, hours = (
        lexicon.town(rng),
        lexicon.town(rng),
        rng.choice(TRANSPORT),
        _number(rng),
    )
    p.add(
        f"{who.subject()} travelled from {start} to {end} {how}.",
        (f"where did {who.name} go?", f"{who.name} went to {end}."),
        (f"where did {who.name} come from?", f"{who.name} came from {start}."),
        (f"how did {who.name} travel?", f"{who.name} travelled {how}."),
        (f"who travelled to {end}?", f"{who.name} travelled to {end}."),
    )
    p.add(
        f"the journey took {hours} hours.",
        ("how long did the journey take?", f"the journey took {hours} hours."),
        ("how many hours did the journey take?", f"it took {hours} hours."),
    )


def school(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add a class, its teacher and subjects."""
    n, subject, day = _number(rng, 8, 32), rng.choice(SUBJECTS), rng.choice(lexicon.DAYS[:5])
    teacher = rng.choice(("Mr ", "Mrs ")) + lexicon.made_up(rng)
    p.add(
        f"{who.subject()} goes to school in {(place := lexicon.town(rng))}. "
        f"There are {n} children in {who.his} class.",
        (f"how many children are in {who.name}'s class?", f"there are {n} children in the class."),
        (f"where does {who.name} go to school?", f"{who.name} goes to school in {place}."),
    )
    p.add(
        f"{teacher} teaches {subject} on {day}.",
        (f"who teaches {subject}?", f"{teacher} teaches {subject}."),
        (f"when do they learn {subject}?", f"they learn {subject} on {day}."),
        (f"what does {teacher} teach?", f"{teacher} teaches {subject}."),
    )


def rain(p: Passage, who: _Person, rng: random.Random) -> None:
    """Add the weather of a day and an activity."""
    (did, _), day = rng.choice(DOINGS), rng.choice(lexicon.DAYS)
    weather = rng.choice(("it rained", "it snowed", "there was a storm", "it was very hot"))
    p.add(
        f"on {day} {weather}, so {who.subject()} stayed at home and {did}.",
        (f"what did {who.name} do on {day}?", f"{who.name} stayed at home and {did}."),
        (f"why did {who.name} stay at home?", f"{who.name} stayed at home because {weather}."),
        (f"what was the weather like on {day}?", f"on {day} {weather}."),
        ("who stayed at home?", f"{who.name} stayed at home."),
    )


ABOUT_PEOPLE = (owns, works, lives, pet, market, lost, journey, school, rain)


def river(p: Passage, rng: random.Random) -> None:
    """Add a river: course, length and fish."""
    name = f"the river {lexicon.made_up(rng, None if rng.random() < 0.5 else [''])}"
    start = rng.choice(
        ("the mountains", "the hills", "a lake", "a forest", f"Lake {lexicon.made_up(rng)}")
    )
    end = rng.choice(("the sea", "a lake", "the ocean", f"the town of {lexicon.town(rng)}"))
    miles, fish = _number(rng, 5, 900), rng.choice("trout salmon pike eels carp".split())
    p.add(
        f"{name} flows from {start} to {end}.",
        ("where does the river flow?", f"the river flows from {start} to {end}."),
        (f"where does {name} flow?", f"{name} flows from {start} to {end}."),
        ("where does the river begin?", f"the river begins in {start}."),
        ("what is the name of the river?", f"it is {name}."),
    )
    p.add(
        f"it is {miles} miles long, and there are many {fish} in it.",
        ("how long is the river?", f"the river is {miles} miles long."),
        (f"how long is {name}?", f"{name} is {miles} miles long."),
        ("what fish live in the river?", f"there are many {fish} in the river."),
    )


def village(p: Passage, rng: random.Random) -> None:
    """Add a village: position, number of people and fame."""
    name, n = lexicon.town(rng), _number(rng, 20, 9000)
    where = rng.choice(
        ("in a valley", "by the sea", "on a hill", "near a large forest", "on an island")
    )
    fame = rng.choice("cheese honey wine apples clocks bells pottery bread lace".split())
    p.add(
        f"{name} is a small village {where}.",
        (f"what is {name}?", f"{name} is a small village {where}."),
        (f"where is {name}?", f"{name} is {where}."),
        ("where is the village?", f"the village is {where}."),
    )
    p.add(
        f"{n} people live there, and it is known for its {fame}.",
        (f"how many people live in {name}?", f"{n} people live in {name}."),
        (f"what is {name} known for?", f"{name} is known for its {fame}."),
        ("what is the village known for?", f"the village is known for its {fame}."),
    )


def building(p: Passage, rng: random.Random) -> None:
    """Add a building: year, material and size."""
    kind, place = rng.choice("bridge tower church castle mill library".split()), lexicon.town(rng)
    year, stuff, feet = rng.randint(1100, 1990), rng.choice(MATERIALS), _number(rng, 20, 400)
    size = "long" if kind == "bridge" else "high"
    p.add(
        f"the {kind} of {place} was built in {year}.",
        (f"when was the {kind} built?", f"the {kind} was built in {year}."),
        (f"what was built in {year}?", f"the {kind} of {place} was built in {year}."),
        (f"where is the {kind}?", f"the {kind} is in {place}."),
    )
    p.add(
        f"it is made of {stuff} and is {feet} feet {size}.",
        (f"what is the {kind} made of?", f"the {kind} is made of {stuff}."),
        (f"how {size} is the {kind}?", f"the {kind} is {feet} feet {size}."),
    )


def ruler(p: Passage, rng: random.Random) -> None:
    """Add a king or queen: years of rule, work and heir."""
    female = rng.random() < 0.5
    name = rng.choice(lexicon.GIRLS if female else lexicon.BOYS)
    title, he = ("Queen", "she") if female else ("King", "he")
    land, years = lexicon.made_up(rng) + rng.choice(("ia", "land", "")), _number(rng, 2, 60)
    work = rng.choice(
        ("a great wall", "a new harbour", "a school", "three bridges", "a palace", "a road")
    )
    child, heir = rng.choice(
        (("son", rng.choice(lexicon.BOYS)), ("daughter", rng.choice(lexicon.GIRLS)))
    )
    p.add(
        f"{title} {name} ruled {land} for {years} years.",
        (f"who ruled {land}?", f"{title} {name} ruled {land}."),
        (f"how long did {title} {name} rule?", f"{title} {name} ruled for {years} years."),
        (f"which land did {title} {name} rule?", f"{title} {name} ruled {land}."),
    )
    p.add(
        f"{he} built {work}, and after {lexicon.SHE[1] if female else lexicon.HE[1]} "
        f"{'her' if female else 'his'} {child} {heir} ruled.",
        (f"what did {title} {name} build?", f"{title} {name} built {work}."),
        (f"who ruled after {title} {name}?", f"{heir} ruled after {title} {name}."),
        (f"who was {heir}?", f"{heir} was the {child} of {title} {name}."),
    )


ABOUT_PLACES = (river, village, building, ruler)

WRAPPERS = (
    "Read the passage and answer the question.\n\n{p}\n\nQuestion: {q}",
    "{p}\n\nQuestion: {q}",
    "{p}\n\n{q}",
    "{p} {q}",
    "Passage: {p}\n\nQuestion: {q}\n\nAnswer:",
    "Here is a short text.\n\n{p}\n\n{q}",
    "Answer the question about the text.\n\n{p}\n\n{q}",
    "Read this: {p}\n\nNow tell me: {q}",
    "{q}\n\n{p}",
    "Use the text to answer. {p} Question: {q}",
)


def passage(rng: random.Random) -> tuple[str, list[QA]]:
    """Return a passage and its questions in random order."""
    p = Passage()
    if rng.random() < 0.3:
        for about_place in rng.sample(ABOUT_PLACES, rng.choice((1, 1, 2))):
            about_place(p, rng)
    else:
        n_people = rng.choice((1, 1, 2))
        for _ in range(n_people):
            who = _Person(rng)
            n_fact = rng.choice((1, 1, 2)) if n_people == 1 else 1
            for about_person in rng.sample(ABOUT_PEOPLE, n_fact):
                about_person(p, who, rng)
    rng.shuffle(p.questions)
    return " ".join(p.sentences), p.questions


def conversation(rng: random.Random) -> list[str]:
    """Return the turns of a chat about a passage: one question, sometimes two or three."""
    text, questions = passage(rng)
    turns = [rng.choice(WRAPPERS).format(p=text, q=questions[0][0]), questions[0][1]]
    for question, answer in questions[1 : rng.choice((1, 1, 1, 2, 3))]:
        turns += [question, answer]
    return turns
