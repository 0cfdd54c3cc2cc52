"""Grammars, penalties, biases and probabilities, through the engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reciter import byte_token, make_reciter

from backend.engine.engine import Engine, EngineError, Piece
from backend.llama.chat_format import Rendered, Trigger
from backend.protocol.chat import ChatOptions
from backend.protocol.errors import RequestError
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
ASKED = [{"role": "user", "content": "?"}]
RENDERED = Rendered("\n")


class Format:
    """A chat format that renders the same for every conversation."""

    def __init__(self, rendered: Rendered) -> None:
        self._rendered = rendered

    def render(self, messages: Sequence[Any], *_: Any) -> Rendered:
        return self._rendered

    def stop(self) -> None:
        """Do nothing."""

    close = stop


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(p.text for p in pieces)


@pytest.fixture
def recite(open_engine: OpenEngine, tmp_path: Path) -> Callable[..., str]:
    """Answer with a model that says "abc<def>ghijk" to every prompt, under a grammar."""

    def answer(rendered: Rendered, options: ChatOptions | None = None, n: int = 40) -> str:
        engine = open_engine(make_reciter(tmp_path / "m.gguf", "abc<def>ghijk"))
        engine.loaded.weights.chat_format = Format(rendered)
        return text_of(list(engine.generate(ASKED, GREEDY, n, options=options or ChatOptions())))

    return answer


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_grammar_constrains_an_answer(rate: float, open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, cache_rate=rate)
    grammar = 'root ::= "[" [0-9]{3} (", " [a-f]{2}){2} "]"'
    for sampling in (GREEDY, Sampling(temperature=2.0, seed=3)):
        text = text_of(list(engine.generate_text("the", sampling, 60, grammar=grammar)))
        assert engine.finish_reason == "stop"
        assert text[0] + text[4:6] + text[8:10] + text[-1] == "[, , ]" and text[1:4].isdigit()


@pytest.mark.parametrize(
    ("grammar", "sentence"),
    [
        ('root ::= "a', "The grammar is invalid: it cannot be parsed."),
        ("root ::= other", "The grammar is invalid: it cannot be parsed."),
        ('other ::= "a"', "The grammar is invalid: grammar does not contain a 'root' symbol."),
        ('root ::= root "a"', "The grammar is invalid: unsupported grammar, left recursion "),
        ('root ::= "a\0"', "The grammar is invalid: it has a character NUL."),
        ("root ::= " + "(" * 100_000, "The grammar is too large or too deeply nested."),
        ('root ::= "a"\n' + 'x ::= "b"\n' * 30_000, "The grammar is too large or too deeply "),
    ],
    ids=lambda value: value[:20],
)
def test_an_invalid_grammar_is_refused(
    grammar: str, sentence: str, open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny)
    with pytest.raises(EngineError) as error:
        engine.generate(ASKED, GREEDY, 3, options=ChatOptions(grammar=grammar))
    assert str(error.value).startswith(sentence)
    assert len(list(engine.generate_text("the", GREEDY, 3))) == 3


def test_a_grammar_that_no_token_fits(recite: Callable[..., str]) -> None:
    """It asks for a token that the vocabulary lacks."""
    with pytest.raises(EngineError, match="No token of the model fits"):
        recite(replace(RENDERED, grammar='root ::= "a" <[99999999]>'))


# A lazy grammar constrains from a trigger on. Without one the answer is "abc<def>ghijk".
LAZY = replace(RENDERED, grammar_lazy=True, grammar='root ::= "<def>" [xyz]{3}')
WORD = (Trigger("word", "<def>"),)
PLAIN, CALL = "abc<def>ghijk", "abc<def>[xyz]{3}"


@pytest.mark.parametrize(
    ("rendered", "text"),
    [
        (replace(LAZY, triggers=WORD), CALL),
        (replace(LAZY, triggers=(Trigger("token", "<def>"),)), CALL),
        (replace(LAZY, triggers=(Trigger("word", "<dog>"),)), PLAIN),
        (replace(LAZY, triggers=(Trigger("pattern", "<d[ef]+>"),)), CALL),
        (replace(LAZY, triggers=(Trigger("pattern_full", "abc(<def>)"),)), CALL),
        (replace(LAZY, triggers=(Trigger("pattern_full", "<def>"),)), PLAIN),
        # Triggers do not count within a thought.
        (replace(LAZY, triggers=WORD, thinks=True, thinking_ends=("hi",)), PLAIN),
        (replace(LAZY, triggers=WORD, thinks=True, thinking_ends=("c", "b")), CALL),
        (replace(LAZY, triggers=WORD, thinking_start="bc", thinking_ends=("hi",)), PLAIN),
        (replace(LAZY, triggers=WORD, thinking_start="a", thinking_ends=("c",)), CALL),
        # The mark that ends a thought may be the trigger.
        (replace(LAZY, triggers=WORD, thinks=True, thinking_ends=("<def>",)), CALL),
        # The text after the trigger in the thought does not fit the grammar. It is no call.
        (replace(LAZY, triggers=(Trigger("word", "<de"),), grammar='root ::= "<dx"'), PLAIN),
    ],
)
def test_a_lazy_grammar_begins_at_its_trigger(
    rendered: Rendered, text: str, recite: Callable[..., str]
) -> None:
    assert re.fullmatch(text, recite(rendered))


@pytest.mark.parametrize(
    ("rendered", "text"),
    [
        (replace(LAZY, triggers=WORD), "<def>[xyz]{3}"),
        (replace(LAZY, triggers=WORD, thinks=True, thinking_ends=("c",)), CALL),
        # The model may open a thought itself.
        (replace(LAZY, triggers=WORD, thinking_start="a", thinking_ends=("c",)), CALL),
        (replace(LAZY, triggers=WORD, thinking_start="b", thinking_ends=("c",)), "<def>[xyz]{3}"),
    ],
)
def test_a_required_call_begins_at_once_or_after_the_thought(
    rendered: Rendered, text: str, recite: Callable[..., str]
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert re.fullmatch(text, recite(rendered, ChatOptions((tool,), "required")))


def test_a_lazy_grammar_needs_a_trigger(recite: Callable[..., str]) -> None:
    with pytest.raises(EngineError, match="no trigger"):
        recite(LAZY)


def test_a_grammar_takes_the_beginning_of_the_answer_from_the_prompt(
    recite: Callable[..., str],
) -> None:
    rendered = replace(RENDERED, grammar='root ::= "so: " "ab" "cc"', begun="so: ab")
    assert recite(rendered) == "cc"
    with pytest.raises(EngineError, match="does not fit the beginning"):
        recite(replace(rendered, begun="no: "))
    # A user's grammar describes only the answer.
    own = 'root ::= "ab" "cc"'
    assert recite(replace(rendered, grammar=own), ChatOptions(grammar=own)) == "abcc"


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_penalties_make_tokens_rarer(name: str, open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    penalised = Sampling(temperature=0, **{name: 2.0})  # type: ignore[arg-type]
    plain, other = (
        {p.token_id for p in engine.generate_text("the", sampling, 60)}
        for sampling in (GREEDY, penalised)
    )
    assert len(other) > len(plain)


def test_a_bias_forces_and_excludes_a_token(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(make_reciter(tmp_path / "m.gguf", "abc"))
    for bias, text in ((-100, "bc"), (100, "aaa")):
        sampling = Sampling(temperature=0, logit_bias=((byte_token(ord("a")), bias),))
        answer = text_of(list(engine.generate_text("\n", sampling, 3)))
        assert answer == text if bias > 0 else "a" not in answer
    message = json.loads(json.dumps(sampling.to_json()))
    assert Sampling.from_message(message) == sampling
    with pytest.raises(RequestError, match=r"logit_bias must be a list of pairs"):
        Sampling.from_message({"logit_bias": {"1": 2}})


def test_probabilities_are_those_of_the_logits(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    n_vocab = engine.loaded.llama.n_vocab
    sampling = Sampling(temperature=2.0, seed=5, n_probs=4, top_k=0)
    for piece in engine.generate_text("the", sampling, 8):
        chosen, *top = piece.chances
        logits = engine.loaded.context.logits(1)[0].astype(np.float64)
        expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        assert logits.shape == (n_vocab,)
        assert chosen.token_id == piece.token_id
        assert chosen.logprob == pytest.approx(expected[chosen.token_id], abs=1e-5)
        assert [c.token_id for c in top] == list(np.argsort(-expected, kind="stable")[:4])
        assert all(c.data == engine.loaded.llama.piece(c.token_id, special=True) for c in top)
    assert all(p.chances == () for p in engine.generate_text("the", GREEDY, 3))
