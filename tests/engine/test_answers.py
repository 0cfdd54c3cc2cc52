"""Answers through the engine's public names: text, ends, limits, prefixes, templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from asking import of_chat, of_text
from factory import make_tiny
from oracle import Oracle
from reciter import make_reciter

from backend.engine.answer import PartialAnswer, Reading
from backend.engine.engine import Engine, EngineError, Piece
from backend.protocol.chat import AnswerText, ChatOptions, Delta
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
TEXT = "ça: 🍕!"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def say(engine: Engine, prompt: str, n: int = 20, sampling: Sampling = GREEDY) -> list[Piece]:
    """Return the pieces of an answer to a raw prompt that have a token."""
    return list(engine.answer(of_text(prompt, sampling, n)))


def n_token(engine: Engine, *turns: dict[str, str]) -> int:
    """Return the number of tokens of a short answer to a conversation."""
    list(engine.answer(of_chat(turns, GREEDY, 3)))
    return engine.statistics().n_token


def text_of(pieces: list[Piece]) -> str:
    return "".join(p.text for p in pieces)


# Text and tokens.


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_characters_are_split_across_tokens(
    rate: float, open_engine: OpenEngine, tmp_path: Path
) -> None:
    engine = open_engine(make_reciter(tmp_path / "m.gguf", TEXT), cache_rate=rate)
    pieces = say(engine, "\n", 100)
    assert [p.text for p in pieces] == ["", "ç", "a", ":", " ", "", "", "", "🍕", "!"]
    assert engine.finish_reason == "stop"
    assert engine.statistics().n_token == len(TEXT.encode())


@pytest.mark.parametrize("n_token", range(1, 10))
def test_an_answer_that_ends_within_a_character(
    n_token: int, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """The streamed text equals that of all bytes decoded at once."""
    engine = open_engine(make_reciter(tmp_path / "m.gguf", TEXT))
    pieces = say(engine, "\n", n_token)
    assert text_of(pieces) == TEXT.encode()[:n_token].decode(errors="replace")
    assert engine.finish_reason == "length" and engine.statistics().n_token == n_token


def test_random_bytes_are_streamed_as_they_decode_at_once(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny)
    for seed in range(5):
        pieces = say(engine, "the", 60, Sampling(temperature=2.0, seed=seed, top_k=0, min_p=0))
        n = engine.statistics().n_token
        data = b"".join(engine.loaded.llama.piece(p.token_id) for p in pieces[:n])
        assert text_of(pieces) == data.decode(errors="replace")
        assert len(pieces) in (n, n + 1)  # one more piece for the rest of a character


def test_the_same_seed_gives_the_same_answer(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    answers = [
        [p.token_id for p in say(engine, "once", 30, Sampling(temperature=1.5, seed=seed))]
        for seed in (1, 1, 2, 1)
    ]
    assert answers[0] == answers[1] == answers[3] != answers[2]


def test_without_a_seed_answers_differ(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    sampling = Sampling(temperature=3.0, top_k=0, top_p=1, min_p=0)
    answers = {tuple(p.token_id for p in say(engine, "once", 30, sampling)) for _ in range(3)}
    assert len(answers) > 1


def test_the_whole_rate_is_stock_llama_cpp(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf")  # which has one layout only
    plain, cached = open_engine(path, cache_rate=1.0), open_engine(path, cache_rate=0.25)
    assert (plain.cache.mode, plain.cache.method) == ("plain", "stock")
    assert (cached.cache.mode, cached.cache.method) == ("cached", "promoe")
    assert [p.token_id for p in say(plain, "of the")] == [p.token_id for p in say(cached, "of the")]


# Limits.


def test_one_token_can_be_asked_for(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    assert len(say(engine, "the", 1)) == engine.statistics().n_token == 1
    assert engine.finish_reason == "length"


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_the_context_fills_up(rate: float, open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_reciter(tmp_path / "m.gguf", "ab", ends=False)
    engine = open_engine(path, cache_rate=rate, context_length=256)
    n_context = engine.model.context_length
    text = text_of(say(engine, "x" * 100 + "\n", -1))
    assert engine.finish_reason == "context"
    n_prompt = engine.statistics().n_prompt
    assert n_prompt == 101 and n_prompt + engine.statistics().n_token == n_context + 1
    assert text == ("ab\n" * n_context)[: len(text)]
    # and the next answer finds room again
    assert text_of(say(engine, "\n", 2)) == "ab"


def test_a_prompt_that_does_not_fit_is_refused_with_both_counts(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, context_length=256)
    n_context = engine.model.context_length
    for n in (n_context, n_context + 1, 5000):
        sentence = f"^The prompt has {n:,} tokens, but the context holds only {n_context}\\.$"
        with pytest.raises(EngineError, match=sentence):
            say(engine, "!" * n)
    assert len(say(engine, "!" * (n_context - 1), -1)) >= 1


def test_an_empty_prompt_is_answered(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    assert len(say(engine, "", 3)) == 3


def test_text_that_is_not_unicode_is_answered(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    assert len(say(engine, "\ud800 \x00 \U0010ffff", 3)) == 3


# Prefixes.


@pytest.mark.parametrize(
    ("arch", "can_go_back"),
    [
        ("qwen3moe", True),
        ("gpt-oss", True),  # a sliding window
        ("gemma4", True),
        ("deepseek2", True),
        ("qwen3next", False),  # recurrent layers can only go back to a checkpoint
        ("nemotron_h_moe", False),
    ],
)
def test_what_is_known_of_the_prompt_is_reused(
    arch: str, can_go_back: bool, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(make_tiny(arch, "Q8_0", tmp_path / "m.gguf"))

    def n_reused(prompt: str) -> int:
        say(engine, prompt, 5)
        return engine.statistics().n_reused

    prompt = "it was on the way that they had " * 4
    assert n_reused(prompt) == 0
    n_prompt = engine.statistics().n_prompt
    # The same prompt: only its last token is computed again.
    assert n_reused(prompt) == n_prompt - 1
    assert n_reused(prompt + "!") == n_prompt - (not can_go_back)
    # Another end: the prefix is kept if the model can go back.
    n = n_reused(prompt[:-20] + "something else")
    assert 0 < n < n_prompt if can_go_back else n == 0
    assert n_reused("altogether different") == 0
    assert oracle.approve()["n_pass"] > 20


@pytest.mark.parametrize("arch", ["lfm2moe", "qwen35moe"])
def test_a_recurrent_state_goes_back_a_token_for_an_answer_without_a_limit(
    arch: str, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """It may take every cell, also those that the tokens before have."""
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf")
    engine = open_engine(path, drafts="auto", context_length=64)
    prompt = tuple(range(20, 40))
    for last in (39, 7):
        list(engine.answer(of_text((*prompt[:-1], last), GREEDY, 2 if last == 39 else -1)))
    assert engine.statistics().n_reused == len(prompt) - 1
    assert oracle.approve()["n_answer"] == 2


def test_a_conversation_reuses_its_turns(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(make_reciter(tmp_path / "m.gguf", "yes."))
    turns = [user("Is it so?")]
    answer = text_of(list(engine.answer(of_chat(turns, GREEDY, 20))))
    assert answer == "yes." and engine.statistics().n_reused == 0
    n_known = engine.statistics().n_prompt + engine.statistics().n_token - 1
    turns += [assistant(answer), user("Really?")]
    assert text_of(list(engine.answer(of_chat(turns, GREEDY, 20)))) == "yes."
    assert engine.statistics().n_reused >= n_known


def test_what_was_shown_of_a_stopped_answer_is_known() -> None:
    """The reader begins again with the text before, and nothing of it is shown twice."""

    class Reader:
        """Shows capitals as a thought, and each letter when the next one comes."""

        held = ""

        def feed(self, text: str) -> Delta:
            said, self.held = (self.held + text)[:-1], (self.held + text)[-1:]
            return self.shown(said)

        def finish(self) -> Delta:
            said, self.held = self.held, ""
            return self.shown(said)

        def shown(self, said: str) -> Delta:
            thought = "".join(letter for letter in said if letter.isupper())
            return Delta(thought, said.removeprefix(thought))

    before = PartialAnswer(ChatOptions(), [], 0, GREEDY, None, None)
    told: list[Delta] = []
    for text, thought, content in (("AB", "AB", ""), ("Cab", "ABC", "ab"), ("c", "ABC", "abc")):
        reading = Reading(Reader(), told.append, before)
        reading.feed(text)
        reading.close()
        assert reading.fault is None and reading.shown == AnswerText(thought, content)
        before = replace(before, text=before.text + text, shown=reading.shown)
    assert "".join(d.reasoning for d in told) == "ABC"
    assert "".join(d.content for d in told) == "abc"


def test_an_answer_goes_on_where_it_was_cut(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(make_reciter(tmp_path / "m.gguf", TEXT))
    cut = text_of(list(engine.answer(of_chat([user("?")], GREEDY, 3))))
    assert cut == "ça"
    rest = text_of(list(engine.answer(of_chat([user("?"), assistant(cut)], GREEDY, 100))))
    assert rest == ": 🍕!"
    assert engine.statistics().n_reused > 0
