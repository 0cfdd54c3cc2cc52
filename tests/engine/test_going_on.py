"""A stopped answer of the embedded model goes on as if it had not been stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asking import jointly, of_chat

from backend.engine.engine import Engine
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.request import Handle, Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.system.paths import embedded_model

ASKED = [{"role": "user", "content": "Tell me about a fox and its señor: 🦊!"}]
N_TOKEN = 24
GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=1.2, seed=3, repeat_penalty=1.3)
FORM = {"grammar": 'root ::= ("[" [0-9]{2} "," [a-z]{3} "]"){20}'}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine.open(embedded_model(), EngineConfig(context_length=1024, n_thread=1))
    yield engine
    engine.close()


def answer(
    engine: Engine, sampling: Sampling, n: int, before: AnswerText | None = None, **options: Any
) -> tuple[list[int], AnswerText]:
    """Return the tokens of an answer, or of the rest of one, and its text."""
    messages = [*ASKED, before.to_message()] if before is not None else ASKED
    said = AnswerText()
    chosen = ChatOptions(**options)
    pieces = engine.answer(of_chat(messages, sampling, n, options=chosen, on_delta=said.add))
    tokens = [piece.token_id for piece in pieces]
    return tokens[: engine.statistics().n_token], said


@pytest.mark.parametrize(
    ("sampling", "options", "places"),
    [
        (GREEDY, {}, range(1, 21, 2)),
        (WARM, {}, range(2, 21, 2)),
        (GREEDY, FORM, range(2, 21, 2)),
        (WARM, FORM, range(1, 21, 2)),
    ],
    ids=["greedy", "warm", "greedy in a form", "warm in a form"],
)
def test_every_token_is_a_place_to_stop(
    sampling: Sampling, options: dict[str, Any], places: range, engine: Engine
) -> None:
    tokens, whole = answer(engine, sampling, N_TOKEN, **options)
    for n in places:
        first, begun = answer(engine, sampling, n, **options)
        rest, more = answer(engine, sampling, N_TOKEN - n, begun, **options)
        assert engine.statistics().n_reused == engine.statistics().n_prompt - 1
        assert first + rest == tokens, n
        assert begun.content + more.content == whole.content, n


def test_an_answer_can_be_stopped_again_and_again(engine: Engine) -> None:
    tokens, whole = answer(engine, WARM, 12)
    said, text = answer(engine, WARM, 1)
    while len(said) < 12:
        one, more = answer(engine, WARM, 1, text)
        said += one
        text = AnswerText(content=text.content + more.content)
    assert said == tokens and text == whole


def test_another_sampling_goes_on_from_the_same_tokens(engine: Engine) -> None:
    tokens, _ = answer(engine, GREEDY, N_TOKEN)
    first, begun = answer(engine, WARM, 1)
    other, _ = answer(engine, GREEDY, 10, begun)
    assert engine.statistics().n_reused == engine.statistics().n_prompt - 1
    if first == tokens[:1]:
        assert other == tokens[1:11]


def test_an_answer_goes_on_from_its_text_where_its_tokens_are_lost(engine: Engine) -> None:
    """As after a restart. The answer is exact if the text has the same tokens, as is usual."""
    tokens, whole = answer(engine, GREEDY, N_TOKEN)
    n_same = 0
    for n in range(1, 21, 2):
        _, begun = answer(engine, GREEDY, n)
        engine.forget()
        list(engine.answer(of_chat([{"role": "user", "content": "x"}], GREEDY, 1)))
        rest, more = answer(engine, GREEDY, N_TOKEN - n, begun)
        prompt = engine.prompts.tokenize(engine.prompts.format([*ASKED, begun.to_message()]))
        if prompt[-n:] == tokens[:n]:
            n_same += 1
            assert rest == tokens[n:] and begun.content + more.content == whole.content, n
    assert n_same >= 7


@pytest.mark.parametrize("n_kept", [2, 1])
def test_stopped_answers_of_several_owners_go_on(
    n_kept: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who were stopped last; an older one goes on from its text, with another sampler."""
    monkeypatch.setattr("backend.engine.engine.N_PARTIAL", n_kept)
    hot = Sampling(temperature=2, seed=3, top_k=20, top_p=1, min_p=0)

    def part(owner: str, n: int, before: str = "") -> tuple[list[int], str]:
        messages = [{"role": "user", "content": f"Tell me about {owner}!"}]
        if before:
            messages.append({"role": "assistant", "content": before})
        said = AnswerText()
        pieces = engine.answer(of_chat(messages, hot, n, on_delta=said.add, owner=owner))
        return [piece.token_id for piece in pieces if piece.token_id >= 0], said.content

    whole = {owner: part(owner, 16)[0] for owner in ("foxes", "whales")}
    begun = {owner: part(owner, 7) for owner in whole}
    exact = {}
    for owner in ("whales", "foxes"):
        first, text = begun[owner]
        exact[owner] = first + part(owner, 9, text)[0] == whole[owner]
    assert exact == {"whales": True, "foxes": n_kept == 2}


def test_a_changed_answer_is_not_the_one_that_was_stopped(engine: Engine) -> None:
    _, begun = answer(engine, GREEDY, 5)
    changed = AnswerText(content=begun.content + " No")
    answer(engine, GREEDY, 3, changed)
    assert engine.statistics().n_reused < engine.statistics().n_prompt - 1


def test_a_stopped_answer_of_a_group_goes_on_in_another(engine: Engine) -> None:
    """It is given as far as it was written, and its sampler stays."""

    class Stops(Handle):
        n = 0
        splits = "live"

        def wrote(self, piece: Any) -> None:
            self.n += 1
            if self.n == 7:
                engine.stop()

    tokens, _ = answer(engine, WARM, 20)
    stops = Request(0, WARM, 20, ASKED, handle=Stops(), priority="person")
    (begun,) = jointly(engine, [stops], keeps=True)
    assert begun.finish_reason == "cancelled" and begun.n_token == 7
    goes_on = Request(0, WARM, 13, [*ASKED, begun.text.to_message()], priority="person")
    (rest,) = jointly(engine, [goes_on], keeps=True)
    found = [piece.token_id for piece in (*begun.pieces, *rest.pieces) if piece.token_id >= 0]
    assert found == tokens and rest.n_reused == begun.n_prompt + 7 - 1


def test_the_answer_of_another_takes_no_place_of_one_that_was_stopped(
    open_engine: Callable[..., Engine],
) -> None:
    engine = open_engine(embedded_model(), context_length=1024, n_sequence=3)
    hot = Sampling(temperature=2, seed=3, top_k=20, top_p=1, min_p=0)
    tokens, _ = answer(engine, hot, 20)
    (begun,) = jointly(engine, [Request(0, hot, 7, ASKED, priority="person")], keeps=True)
    others = [Request(i, GREEDY, 3, [{"role": "user", "content": f"{i} x"}]) for i in (1, 2)]
    ends = {given.finish_reason for given in jointly(engine, others, keeps=True)}
    assert ends == {"length"}
    goes_on = Request(0, hot, 13, [*ASKED, begun.text.to_message()], priority="person")
    (rest,) = jointly(engine, [goes_on], keeps=True)
    found = [piece.token_id for piece in (*begun.pieces, *rest.pieces) if piece.token_id >= 0]
    assert found == tokens and rest.n_reused == begun.n_prompt + 7 - 1
