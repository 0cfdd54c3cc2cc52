"""The composed chats: whole sentences, correct sums, answers found in their passage."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from predictors.embedded import chats, composed, lexicon, passages, scenes, stories
from predictors.embedded.prompts import KEPT_OUT, PROMPTS

N = 300
# Words of questions and answers that need not be in the passage.
GLUE = set(
    "a an the is are was were has have had does did do in of by with it its they there when where "
    "what who how because so goes comes came from travels went stayed works called begins learn "
    "teaches river village town made long high old ruled built found lost lives after son daughter "
    "reads plays rides flies sails drives uses pulls buys for many much at on s number trees "
    "children class animal like".split()
)


def words(text: str) -> list[str]:
    """Return the words in lower case, and the numbers."""
    return re.findall(r"[a-z]+|\d+", text.lower())


def whole(text: str) -> bool:
    """Return whether a text begins and ends like a sentence and has no unfilled field."""
    return (
        bool(re.match(r"[A-Z0-9\"]", text)) and text[-1] in '.!?"' and not re.search(r"[{}@]", text)
    )


def test_stories_are_whole_and_speak_of_their_topic() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(N):
        story = stories.story(rng)
        seen.add(story.text)
        assert len(story.sentences) >= 8
        assert all(whole(sentence) for sentence in story.sentences), story.text
        assert story.text.count('"') % 2 == 0
        noun = words(story.topics[0])[-1]
        assert noun in words(story.text)
    assert len(seen) == N


def test_every_plot_can_be_told_from_any_choice() -> None:
    hero, friend = lexicon.person(random.Random(2)), lexicon.beast(random.Random(3))
    values = stories.fields(hero, friend, random.Random(4))
    for steps in stories.PLOTS.values():
        for step in steps:
            for text in step:
                assert not text or whole(text.format(**values)), text


def test_a_friend_is_introduced_before_being_named() -> None:
    rng = random.Random(5)
    for _ in range(N):
        story = stories.story(rng)
        named = re.search(r"(?:named|called) ([A-Z][a-z]+)$", story.topics[2])
        if named and story.topics[1].split()[-1] != named.group(1):
            first = next((s for s in story.sentences if named.group(1) in s), "named ")
            assert "named " in first or "called " in first, story.text


def test_scenes_go_on_with_the_same_person() -> None:
    rng = random.Random(6)
    for _ in range(N):
        beginning, following = scenes.scene(rng)
        assert all(whole(sentence) for sentence in beginning + following)
        assert len(following) >= 3


def test_answers_stand_in_their_passage() -> None:
    rng = random.Random(7)
    n_question = 0
    for _ in range(N):
        text, questions = passages.passage(rng)
        known = set(words(text)) | GLUE
        for question, answer in questions:
            assert question.endswith("?") and question[0].isupper() and whole(answer)
            stray = set(words(answer)) - known - set(words(question))
            assert not stray, (text, question, answer, stray)
            n_question += 1
    assert n_question > 3 * N


def test_sums_are_right_and_some_are_held_out() -> None:
    rng = random.Random(8)
    for _ in range(2000):
        question, answer = composed.add(rng)
        x, y = (int(n) for n in re.findall(r"\d+", question)[:2])
        found = re.match(r"(\d+) ([+-]) (\d+) = (\d+)\.", answer)
        assert found is not None
        a, sign, b, c = found.groups()
        assert int(c) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
        if sign == "+":
            assert {x, y} == {int(a), int(b)} and not composed.is_heldout_sum(x, y)
    pairs = [(x, y) for x in range(21) for y in range(x, 21)]
    assert 10 < sum(composed.is_heldout_sum(x, y) for x, y in pairs) < 40
    assert all(composed.is_heldout_sum(x, y) == composed.is_heldout_sum(y, x) for x, y in pairs)


def test_explanations_name_their_thing() -> None:
    things = composed.read_things()
    assert len(things) > 300
    for name, text in things.items():
        noun = name.split(" ", 1)[-1] if name.startswith(("a ", "an ", "the ")) else name
        assert noun.lower() in text.lower() and whole(text)


def test_the_prompts_of_the_card_are_in_no_chat(tmp_path: Path) -> None:
    for _, prompt in PROMPTS:
        assert any(kept in prompt for kept in KEPT_OUT)
    for chat in chats.compose(tmp_path, [], seed=2, n_composed=4000):
        for message in chat:
            assert not any(kept in message["content"] for kept in KEPT_OUT)
            assert message["content"] not in {prompt for _, prompt in PROMPTS}


@pytest.mark.parametrize("seed", [1, 2])
def test_conversations_are_those_of_their_seed(seed: int) -> None:
    first = list(composed.compose(50, random.Random(seed)))
    assert first == list(composed.compose(50, random.Random(seed)))
    assert first != list(composed.compose(50, random.Random(seed + 10)))
