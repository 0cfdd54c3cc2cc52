"""Grammars, penalties, biases and probabilities, through the engine."""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from asking import of_chat, of_text
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

    model = make_reciter(tmp_path / "m.gguf", "abc<def>ghijk")

    def answer(rendered: Rendered, options: ChatOptions | None = None, n: int = 40) -> str:
        engine = open_engine(model)
        engine.loaded.weights.chat_format = Format(rendered)
        return text_of(
            list(engine.answer(of_chat(ASKED, GREEDY, n, options=options or ChatOptions())))
        )

    return answer


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_grammar_constrains_an_answer(rate: float, open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, cache_rate=rate)
    grammar = 'root ::= "[" [0-9]{3} (", " [a-f]{2}){2} "]"'
    for sampling in (GREEDY, Sampling(temperature=2.0, seed=3)):
        text = text_of(list(engine.answer(of_text("the", sampling, 60, grammar=grammar))))
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
        engine.answer(of_chat(ASKED, GREEDY, 3, options=ChatOptions(grammar=grammar)))
    assert str(error.value).startswith(sentence)
    assert len(list(engine.answer(of_text("the", GREEDY, 3)))) == 3


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
        # One that ends its answer in the thought ends the thought with it.
        (
            replace(LAZY, triggers=WORD, thinks=True, thinking_ends=("{}", "[]")),
            r"abc<def>ghijk\{\}<def>[xyz]{3}",
        ),
        (
            replace(
                LAZY,
                triggers=(Trigger("pattern_full", "(<def>)"),),
                thinks=True,
                thinking_ends=("{}",),
            ),
            r"abc<def>ghijk\{\}<def>[xyz]{3}",
        ),
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
        {p.token_id for p in engine.answer(of_text("the", sampling, 60))}
        for sampling in (GREEDY, penalised)
    )
    assert len(other) > len(plain)


def test_a_bias_forces_and_excludes_a_token(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(make_reciter(tmp_path / "m.gguf", "abc"))
    for bias, text in ((-100, "bc"), (100, "aaa")):
        sampling = Sampling(temperature=0, logit_bias=((byte_token(ord("a")), bias),))
        answer = text_of(list(engine.answer(of_text("\n", sampling, 3))))
        assert answer == text if bias > 0 else "a" not in answer
    message = json.loads(json.dumps(sampling.to_json()))
    assert Sampling.from_message(message) == sampling
    with pytest.raises(RequestError, match=r"logit_bias must be a list of pairs"):
        Sampling.from_message({"logit_bias": {"1": 2}})


def test_probabilities_are_those_of_the_logits(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    n_vocab = engine.loaded.llama.n_vocab
    sampling = Sampling(temperature=2.0, seed=5, n_probs=4, top_k=0)
    for piece in engine.answer(of_text("the", sampling, 8)):
        chosen, *top = piece.chances
        logits = engine.loaded.context.logits(1)[0].astype(np.float64)
        expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        assert logits.shape == (n_vocab,)
        assert chosen.token_id == piece.token_id
        assert chosen.logprob == pytest.approx(expected[chosen.token_id], abs=1e-5)
        assert [c.token_id for c in top] == list(np.argsort(-expected, kind="stable")[:4])
        assert all(c.data == engine.loaded.llama.piece(c.token_id, special=True) for c in top)
    assert all(p.chances == () for p in engine.answer(of_text("the", GREEDY, 3)))


# llama.cpp's samplers.

BREAKERS = ("the", "\n")
SAMPLERS: list[dict[str, Any]] = [
    {},
    {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    {"dry_multiplier": 2.0, "dry_penalty_last_n": -1, "dry_sequence_breakers": BREAKERS},
    {"xtc_probability": 0.7, "xtc_threshold": 0.02},
    {"typical_p": 0.3},
    {"top_n_sigma": 1.0, "top_k": 0},
    {"mirostat": 1, "mirostat_tau": 3.0},
    {"mirostat": 2, "mirostat_eta": 0.5},
    {"dynatemp_range": 0.8, "dynatemp_exponent": 1.3},
    {"repeat_last_n": 2, "repeat_penalty": 1.9},
    {"repeat_last_n": 0, "repeat_penalty": 1.9},
    {"repeat_penalty": 1.9, "presence_penalty": 0.5, "frequency_penalty": 0.5},
    {"samplers": ("temperature", "min_p", "top_k"), "top_k": 3, "temperature": 2.0},
    {"samplers": ("top_k", "adaptive_p"), "adaptive_target": 0.3},
    {"samplers": ()},
    {"min_keep": 7, "top_p": 0.1, "min_p": 0.9},
    {"temperature": 0.0, "xtc_probability": 1.0, "xtc_threshold": 0.01},
    {"temperature": 0.0, "typical_p": 0.2},
    {"temperature": 0.0, "repeat_penalty": 1.5, "dry_multiplier": 1.0},
    {"ignore_eos": True, "logit_bias": ((5, 3.0), (9, False))},
]


def stock_chain(llama: Any, s: Sampling) -> Any:
    """Return the chain that common/sampling.cpp of llama.cpp builds, all its samplers added."""
    c, vocab = llama_cpp, llama.vocab
    chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    add = lambda one: c.llama_sampler_chain_add(chain, one)  # noqa: E731
    ends = [t for t in range(llama.n_vocab) if c.llama_vocab_is_eog(vocab, t)]
    pairs = [(t, -math.inf if b is False else b) for t, b in s.logit_bias]
    pairs += [(t, -math.inf) for t in ends] if s.ignore_eos else []
    if pairs:
        array = (c.llama_logit_bias * len(pairs))(*(c.llama_logit_bias(*p) for p in pairs))
        add(c.llama_sampler_init_logit_bias(llama.n_vocab, len(pairs), array))
    if s.mirostat:
        add(c.llama_sampler_init_temp(s.temperature))
        aim = s.mirostat_tau, s.mirostat_eta
        if s.mirostat == 1:
            add(c.llama_sampler_init_mirostat(llama.n_vocab, s.seed, *aim, 100))
        else:
            add(c.llama_sampler_init_mirostat_v2(s.seed, *aim))
        return chain
    words = [word.encode() for word in s.dry_sequence_breakers]
    n_dry = 1000 if s.dry_penalty_last_n < 0 else s.dry_penalty_last_n
    made = {
        "penalties": lambda: c.llama_sampler_init_penalties(
            llama.n_vocab, s.repeat_last_n, s.repeat_penalty,
            s.frequency_penalty, s.presence_penalty,
        ),
        "dry": lambda: c.llama_sampler_init_dry(
            vocab, s.dry_multiplier, s.dry_base, s.dry_allowed_length, n_dry,
            (ctypes.c_char_p * len(words))(*words), len(words),
        ),
        "top_n_sigma": lambda: c.llama_sampler_init_top_n_sigma(s.top_n_sigma),
        "top_k": lambda: c.llama_sampler_init_top_k(s.top_k),
        "typ_p": lambda: c.llama_sampler_init_typical(s.typical_p, s.min_keep),
        "top_p": lambda: c.llama_sampler_init_top_p(s.top_p, s.min_keep),
        "min_p": lambda: c.llama_sampler_init_min_p(s.min_p, s.min_keep),
        "xtc": lambda: c.llama_sampler_init_xtc(
            s.xtc_probability, s.xtc_threshold, s.min_keep, s.seed
        ),
        "temperature": lambda: c.llama_sampler_init_temp_ext(
            s.temperature, s.dynatemp_range, s.dynatemp_exponent
        ),
    }  # fmt: skip
    for name in s.samplers:
        if name in made:
            add(made[name]())
    if "adaptive_p" in s.samplers:
        add(c.llama_sampler_init_adaptive_p(s.adaptive_target, s.adaptive_decay, s.seed))
    else:
        add(c.llama_sampler_init_dist(s.seed))
    return chain


@pytest.mark.parametrize("given", SAMPLERS, ids=lambda given: " ".join(given) or "default")
def test_samplers_choose_as_llama_cpp_s_chain(
    given: dict[str, Any], open_engine: OpenEngine, tiny: Path
) -> None:
    """A second time, too, when the context has the prompt: only the logits may differ."""
    engine = open_engine(tiny)
    sampling = Sampling(**{"temperature": 0.9, "seed": 3, **given})
    prompt = "the the of and the the of and the"
    for has_prompt in (False, True):
        chosen, expected = chosen_and_expected(engine, prompt, sampling)
        assert chosen == expected and chosen
        assert (engine.statistics().n_reused > 0) == has_prompt


def chosen_and_expected(
    engine: Engine, prompt: str, sampling: Sampling
) -> tuple[list[int], list[int]]:
    """Return the tokens of an answer, and those of llama.cpp's chain for the same logits."""
    llama = engine.loaded.llama
    chain = stock_chain(llama, sampling)
    for token in engine.prompts.prompt_tokens(prompt):
        llama_cpp.llama_sampler_accept(chain, token)
    chosen, expected = [], []
    for piece in engine.answer(of_text(prompt, sampling, 24)):
        if piece.token_id < 0:
            continue
        logits = engine.loaded.context.logits(1)[0]
        data = (llama_cpp.llama_token_data * llama.n_vocab)(
            *((token, float(logit), 0.0) for token, logit in enumerate(logits))
        )
        array = llama_cpp.llama_token_data_array(
            ctypes.cast(data, llama_cpp.llama_token_data_p), len(data), -1, False
        )
        llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
        expected.append(array.data[array.selected].id)
        llama_cpp.llama_sampler_accept(chain, expected[-1])
        chosen.append(piece.token_id)
    llama_cpp.llama_sampler_free(chain)
    return chosen, expected


def test_probabilities_after_the_samplers(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    plain = Sampling(temperature=1.0, seed=5, top_k=3)
    after = replace(plain, n_probs=5, post_sampling_probs=True)
    pieces = list(engine.answer(of_text("the", after, 8)))
    same = [p.token_id for p in engine.answer(of_text("the", plain, 8))]
    assert [p.token_id for p in pieces] == same
    for chosen, *top in (p.chances for p in pieces):
        assert 1 <= len(top) <= 3 and chosen in top
        assert sum(math.exp(c.logprob) for c in top) == pytest.approx(1, abs=1e-5)
    with pytest.raises(EngineError, match="Probabilities after sampling"):
        list(engine.answer(of_text("the", after, 8, grammar='root ::= "a"')))


def test_a_prompt_may_be_tokens_and_texts(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    whole = engine.prompts.prompt_tokens("the of and")
    ids = [p.token_id for p in engine.answer(of_text(tuple(whole), GREEDY, 5))]
    assert ids == [p.token_id for p in engine.answer(of_text("the of and", GREEDY, 5))]
    mixed = engine.prompts.prompt_tokens((3, "the", 4, "of"))
    tail = engine.prompts.tokenize("of")
    assert mixed[0] == 3 and mixed[-len(tail) :] == tail and 4 in mixed
    with pytest.raises(EngineError, match="no such token"):
        engine.prompts.prompt_tokens((10**6,))


def test_no_token_leaves_the_answer_empty(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    assert list(engine.answer(of_text("the", GREEDY, 0))) == []
    assert engine.finish_reason == "length"
