"""Drafts: an answer with guessed tokens equals the one without, and wrong guesses cost little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, of_chat, of_text
from factory import make_tiny
from oracle import Oracle
from reciter import make_reciter

from backend.engine.drafts import BY_MODEL, Lookup, Width
from backend.engine.engine import Engine
from backend.engine.runner import Runner
from backend.protocol.request import Handle, Request
from backend.protocol.settings import DRAFTED_MAX, Sampling

OpenEngine = Callable[..., Engine]
TEXT = "abcdefghijk"
GREEDY = Sampling(temperature=0)
SAMPLED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7, repeat_penalty=1.1)


class Always(Width):
    """Guesses as much as it can, whatever a pass costs."""

    def choose(self, n_equal: int) -> int:
        return self.n_most if n_equal else 0


class Once(Width):
    """Guesses in one pass only."""

    def choose(self, n_equal: int) -> int:
        return 0 if self._costs or not n_equal else self.n_most


@pytest.fixture(scope="module")
def reciter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that writes TEXT and a line break again and again."""
    return make_reciter(tmp_path_factory.mktemp("reciter") / "m.gguf", TEXT, ends=False)


@pytest.fixture
def engines(open_engine: OpenEngine, reciter: Path) -> Iterator[tuple[Engine, Engine]]:
    """Return an engine without drafts, and one that always drafts."""
    settings = {"cache_rate": 0.5, "context_length": 96}
    pair = open_engine(reciter, **settings), open_engine(reciter, drafts="auto", **settings)
    pair[1].passes.width = Always(DRAFTED_MAX)
    return pair


def recited(engine: Engine, n: int, **options: object) -> str:
    """Return the answer to a line break."""
    pieces = engine.answer(of_text("\n", GREEDY, n, **options))  # type: ignore[arg-type]
    return "".join(piece.text for piece in pieces)


def n_pass(engine: Engine) -> int:
    return engine.passes.meter.n_pass


# The same answer.


def test_every_limit_ends_a_drafted_answer_where_it_ends_others(
    engines: tuple[Engine, Engine],
) -> None:
    plain, drafting = engines
    for n in (*range(12, 24), 60):
        assert recited(drafting, n) == recited(plain, n) and plain.finish_reason == "length"
        assert drafting.finish_reason == "length" and drafting.statistics().n_token == n
        assert drafting.passes.tokens == plain.passes.tokens
        assert drafting.decoded.n_token == plain.decoded.n_token
        assert plain.statistics().n_drafted == 0
    statistics = drafting.statistics()
    assert statistics.n_drafted == statistics.n_accepted > 30
    assert n_pass(drafting) == n_pass(plain) - statistics.n_accepted


def test_a_stop_within_a_draft(engines: tuple[Engine, Engine]) -> None:
    plain, drafting = engines
    for stop in ("k\nabc", "e", "jk\nabcdefghijk\na"):
        assert recited(drafting, 80, stops=[stop]) == recited(plain, 80, stops=[stop])
        assert drafting.finish_reason == plain.finish_reason == "stop"
        assert drafting.last is not None and drafting.last.stop_text == stop
        assert drafting.passes.tokens == plain.passes.tokens


def test_the_context_ends_within_a_draft(engines: tuple[Engine, Engine]) -> None:
    plain, drafting = engines
    assert recited(drafting, -1) == recited(plain, -1)
    assert drafting.finish_reason == plain.finish_reason == "context"
    assert drafting.statistics().n_accepted > 30 and drafting.passes.tokens == plain.passes.tokens


def test_the_answer_ends_although_the_draft_goes_on(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    """In the prompt another letter follows where the answer ends."""
    text = TEXT[:8]
    engine = open_engine(make_reciter(tmp_path / "m.gguf", text), drafts="auto")
    engine.passes.width = Always(DRAFTED_MAX)
    pieces = list(engine.answer(of_text(f"{text}xyz{text}xyz\n", GREEDY, 40)))
    assert "".join(piece.text for piece in pieces) == text and engine.finish_reason == "stop"
    statistics = engine.statistics()
    assert (statistics.n_accepted, statistics.n_drafted) == (5, 8)
    assert statistics.n_token == len(text)


def test_an_answer_stopped_within_a_draft_goes_on(engines: tuple[Engine, Engine]) -> None:
    """Tokens that were computed and not yet chosen change neither sampler nor context."""
    whole = {}
    for engine in engines:
        question = {"role": "user", "content": "\n"}
        whole[engine] = "".join(p.text for p in engine.answer(of_chat([question], SAMPLED, 50)))
        engine.forget()
        parts, messages = "", [question]
        for n in (17, 5, 28):
            parts += "".join(p.text for p in engine.answer(of_chat(messages, SAMPLED, n)))
            messages = [question, {"role": "assistant", "content": parts}]
        assert parts == whole[engine]
    assert len(set(whole.values())) == 1


def test_an_abandoned_answer_leaves_no_guessed_tokens(engines: tuple[Engine, Engine]) -> None:
    """The next conversation finds what was accepted, and computes the same."""
    plain, drafting = engines
    for engine in engines:
        abandoned = engine.answer(of_text("\n", GREEDY, 40))
        list(islice(abandoned, 15))
        again = engine.answer(of_text(f"\n{TEXT}\nab", GREEDY, 8))
        first = next(again)
        abandoned.close()
        assert first.text + "".join(piece.text for piece in again) == "cdefghij"
    assert drafting.passes.tokens == plain.passes.tokens
    assert drafting.statistics().n_reused == plain.statistics().n_reused > 10


def test_a_kept_state_has_no_guessed_tokens(
    open_engine: OpenEngine, reciter: Path, tmp_path: Path
) -> None:
    """A state that is written after a draft equals that of the same tokens without drafts."""
    states = []
    for drafts in ("off", "auto"):
        engine = open_engine(reciter, drafts=drafts)
        engine.passes.width = Once(DRAFTED_MAX)
        request = of_text("\n", GREEDY, 40)

        class Leaves(Handle):
            n = 0

            def wrote(self, piece: Any) -> None:
                self.n += 1
                if self.n == 16:
                    self.cancel()

        list(engine.answer(replace(request, handle=Leaves())))
        statistics = engine.statistics()
        assert (statistics.n_drafted > statistics.n_accepted) == (drafts == "auto")
        tokens = list(engine.passes.tokens)
        states.append((tokens, len(engine.loaded.context.state(0, len(tokens) + DRAFTED_MAX))))
    assert states[0] == states[1]


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "deepseek2"])
def test_a_repeating_random_model_accepts_drafts(
    arch: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """Each token is the best of its logits, up to the rounding of a pass of several tokens."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    engine = open_engine(path, cache_rate=0.5, drafts="auto")
    engine.passes.width = Always(DRAFTED_MAX)
    prompt = "abcabcabc" * 4
    tokens = [piece.token_id for piece in engine.answer(of_text(prompt, GREEDY, 48))]
    plain = open_engine(path, cache_rate=0.5)
    asked = Sampling(temperature=0, n_probs=2)
    for piece, token in zip(plain.answer(of_text(prompt, asked, 48)), tokens, strict=True):
        if piece.token_id != token:  # only where two tokens are as good
            best, second = piece.chances[1:3]
            assert second.token_id == token and best.logprob - second.logprob < 0.05
            break
    assert engine.statistics().n_drafted > 0


# Where there are none.


def test_a_model_that_cannot_drop_tokens_has_no_drafts(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    engine = open_engine(make_tiny("qwen3next", "F16", tmp_path / "m.gguf"), drafts="auto")
    engine.passes.width = Always(DRAFTED_MAX)
    list(engine.answer(of_text("abcabcabcabc", GREEDY, 12)))
    assert engine.cache.drafts == "off" and engine.statistics().n_drafted == 0


@pytest.mark.parametrize("arch", ["qwen3next", "lfm2moe", "jamba"])
def test_where_several_may_run_its_state_is_held_while_guesses_are_tried(
    arch: str,
    open_engine: OpenEngine,
    tmp_path: Path,
    oracle: Oracle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside another answer and alone, whether all guesses are right or one is wrong."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    engine = open_engine(path, drafts="auto", n_sequence=2, n_ubatch=32)
    assert engine.cache.drafts == "auto"
    seen: set[tuple[int, int]] = set()
    texts: list[list[int]] = []

    def watch(group: Runner) -> None:
        if group.n_drafted:
            seen.add((group.n_running, group.n_drafted - group.n_right))

    def note(_: Lookup, tokens: list[int], _n_most: int) -> tuple[list[int], int]:
        texts.insert(0, list(tokens))
        return [], 0

    def find(_: Lookup, tokens: list[int], n_most: int) -> tuple[list[int], int]:
        n = len(tokens)
        text = next((text for text in texts if text[:n] == tokens), tokens)
        found = text[n : n + min(n_most, 4)]
        n_right = n % 5  # of at most four
        return found[:n_right] + [(token + 1) % 90 for token in found[n_right:]], 16

    engine.passes._widths = {n: Always(DRAFTED_MAX) for n in (1, 2)}
    for function in (note, find):
        monkeypatch.setattr(Lookup, "find", function)
        prompts = enumerate(("a fox", "some of the words", "it was"))
        asked = [Request(n, GREEDY, 30 - 4 * n, prompt=prompt) for n, prompt in prompts]
        for answer in jointly(engine, asked, watch):
            assert not answer.error
    assert {(n, n_wrong > 0) for n, n_wrong in seen} == {(1, 0), (1, 1), (2, 0), (2, 1)}, seen
    assert oracle.approve()["n_taken"] == 0


def test_a_recorded_answer_has_no_drafts(engines: tuple[Engine, Engine]) -> None:
    from backend import _native

    _, drafting = engines
    shape = {"n_layer": 3, "n_expert": 16, "n_expert_used": 4}
    drafting.record(_native.Recorder(**shape, n_embd=0, scores=False, inputs=False, max_bytes=0))
    recited(drafting, 40)
    assert drafting.statistics().n_drafted == 0
    drafting.record(None)
    recited(drafting, 40)
    assert drafting.statistics().n_drafted > 0


# The guess and its width.


def test_what_followed_is_found() -> None:
    lookup = Lookup()
    tokens = [1, 2, 3, 4, 5, 6, 9, 1, 2, 3]
    assert lookup.find(tokens, 3) == ([4, 5, 6], 3)
    assert lookup.find([*tokens, 4], 9) == ([5, 6, 9, 1, 2, 3, 4, 5, 6], 4)
    assert lookup.find([*tokens, 4, 7], 3) == ([], 0)
    assert Lookup().find([1, 1, 1, 1], 3) == ([1, 1, 1], 3)
    assert Lookup().find([], 3) == Lookup().find([1, 2], 3) == ([], 0)


def test_the_longer_repetition_is_preferred() -> None:
    begun = list(range(20, 30))
    tokens = [*begun, 1, 7, 27, 28, 29, 2, 8, *begun]
    assert Lookup().find(tokens, 1) == ([1], 10)


def test_no_image_is_guessed() -> None:
    assert Lookup().find([1, 2, 3, 4, -5, -5, 1, 2, 3], 4) == ([4], 3)


def repeat(width: Width, n: int, chance: float, cost: float) -> tuple[int, float]:
    """Return the tokens and the time of n passes. cost: of a guessed token. A pass takes 1."""
    n_token, took, wrong = 0, 0.0, 0.0
    for _ in range(n):
        n_guessed = width.choose(3)
        n_right = 0
        while n_right < n_guessed and (wrong := wrong + 1 - chance) < 1:
            n_right += 1
        wrong %= 1
        wall_s = 1 + cost * n_guessed
        width.observe(3, n_guessed, n_right, wall_s)
        n_token, took = n_token + 1 + n_right, took + wall_s
    return n_token, took


def test_wrong_guesses_end() -> None:
    width = Width(DRAFTED_MAX)
    n_token, took = repeat(width, 400, chance=0.0, cost=0.6)
    assert n_token == 400 and took < 1.02 * 400
    n_token, took = repeat(width, 4000, chance=0.0, cost=0.6)
    assert took < 1.01 * 4000


def test_right_guesses_grow() -> None:
    n_token, took = repeat(Width(DRAFTED_MAX), 400, chance=0.95, cost=0.15)
    assert n_token / took > 2


def test_guesses_that_cost_as_much_as_tokens_end() -> None:
    n_token, took = repeat(Width(DRAFTED_MAX), 400, chance=0.7, cost=1.0)
    assert n_token / took > 0.98


def test_guessing_begins_again_where_it_pays() -> None:
    width = Width(DRAFTED_MAX)
    repeat(width, 2000, chance=0.0, cost=0.3)
    repeat(width, 200, chance=1.0, cost=0.3)
    n_token, took = repeat(width, 100, chance=1.0, cost=0.3)
    assert n_token / took > 2


def test_the_first_passes_tell_most_of_what_a_guess_costs() -> None:
    """Three passes with two guesses of a model, which take as long as passes without."""
    width = Width(4)
    for _ in range(8):
        width.observe(0, 0, 0, 0.025)
    assert width.choose(BY_MODEL) > 0
    for _ in range(3):
        width.observe(BY_MODEL, 2, 2, 0.025 * 3)
    assert width.cost(BY_MODEL, 2) > 0.8


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_drafts_beside_other_answers(
    rate: float, open_engine: OpenEngine, oracle: Oracle, reciter: Path
) -> None:
    """The same tokens in fewer passes. One answer of a pass is drafted, the person's first."""
    found, passes = {}, {}
    for drafts in ("off", "auto"):
        settings = {"cache_rate": rate, "context_length": 512, "n_sequence": 3}
        engine = open_engine(reciter, drafts=drafts, **settings)
        for n in (1, 2, 3):
            engine.passes._widths[n] = Always(DRAFTED_MAX)
        requests = [
            Request(i, GREEDY, 40 + i, prompt="\n", priority=("program", "person")[i == 2])
            for i in range(3)
        ]
        own = [requests.pop()]
        group = jointly(
            engine, requests, keeps=True, urgent=lambda own=own: own.pop() if own else None
        )
        answers = {answer.request.key: answer for answer in group}
        assert all(answer.finish_reason == "length" for answer in answers.values())
        found[drafts] = {k: [p.token_id for p in a.pieces] for k, a in answers.items()}
        passes[drafts] = n_pass(engine)
        statistics = engine.statistics()
        assert (statistics.n_accepted > 20) == (drafts == "auto")
        again = engine.answer(of_text("\n", GREEDY, 12))
        assert [piece.token_id for piece in again] == found[drafts][0][:12]
    assert found["off"] == found["auto"] and passes["auto"] < passes["off"] - 10
    oracle.approve()
