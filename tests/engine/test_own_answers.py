"""An answer that an owner received keeps the model's own tokens in the prompts of later turns."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, keep_all, of_chat
from chats import GREEDY, model

from backend.engine import own_answers
from backend.engine.engine import Engine
from backend.engine.open_answer import OpenAnswer
from backend.engine.own_answers import OwnAnswers, is_same
from backend.engine.prompts import Prompts
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.settings import EngineConfig

USER = {"role": "user", "content": "what do foxes eat?"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
OPTIONS = ChatOptions(tools=(TOOL,))
WRITTEN = (
    "They eat  mice.\n</think>\n\n\n<tool_call>\n<function=f>\n<parameter=b>\n1\n</parameter>\n"
    "<parameter=a>\nof the fox\n</parameter>\n</function>\n</tool_call>"
)


def called(thought: str = "They eat  mice.", number: int = 1) -> dict[str, Any]:
    function = {"name": "f", "arguments": json.dumps({"a": "of the fox", "b": number})}
    call = {"id": "c1", "type": "function", "function": function}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    return {**message, "reasoning_content": thought}


def went_on(answer: dict[str, Any], question: dict[str, Any] = USER) -> list[dict[str, Any]]:
    result = {"role": "tool", "tool_call_id": "c1", "content": "nothing"}
    return [question, answer, result]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model("qwen35moe", tmp_path_factory.mktemp("models"), n_ctx=4096)


@pytest.fixture(scope="module")
def opened(path: Path) -> Iterator[Engine]:
    engine = Engine.open(path, EngineConfig.of(n_thread=1, context_length=4096))
    yield engine
    engine.close()


@pytest.fixture
def engine(opened: Engine) -> Engine:
    """Return an engine that has given no answer."""
    opened.forget()
    opened.prompts = Prompts(opened.loaded, opened.passes.begin)
    return opened


def tokens(engine: Engine, messages: list[dict[str, Any]], owner: str = "a") -> list[int]:
    rendered = engine.prompts.rendered(messages, OPTIONS)
    assert rendered is not None
    return engine.prompts.conversation_tokens(rendered, (), owner)


def split(engine: Engine, text: str) -> list[int]:
    """Return tokens of a text that are not those of the vocabulary: a letter each."""
    return [token for letter in text for token in engine.prompts.tokenize(letter, special=False)]


def remember(engine: Engine, answer: list[int], owner: str = "a") -> None:
    rendered = engine.prompts.rendered([USER], OPTIONS)
    assert rendered is not None
    engine.prompts.remember(owner, rendered, answer)


def test_the_next_step_reads_the_result_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [*split(engine, WRITTEN), engine._llama.eos]
    script = iter(said)
    monkeypatch.setattr(OpenAnswer, "sample", lambda _self, _row=-1: next(script))
    list(engine.answer(of_chat([USER], GREEDY, options=OPTIONS, on_delta=lambda _: None)))
    assert engine.last is not None and engine.last.given is not None
    answer = engine.last.given.text.to_message()
    (call,) = answer["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    call["function"]["arguments"] = json.dumps(dict(sorted(arguments.items())), indent=4)
    call["id"] = "c1"
    held = list(engine.passes.tokens)
    monkeypatch.undo()
    list(engine.answer(of_chat(went_on(answer), GREEDY, 1, options=OPTIONS)))
    assert engine.statistics().n_reused == len(held) > len(said)
    assert engine.passes.tokens[: len(held)] == held


def test_own_tokens_take_the_place_of_their_rendering_alone(engine: Engine) -> None:
    before, plain = tokens(engine, [USER]), tokens(engine, went_on(called()))
    own = split(engine, WRITTEN)
    remember(engine, own)
    found = tokens(engine, went_on(called()))
    end = plain.index(engine._llama.eos, len(before))
    assert found == before + own + plain[end:] and found != plain
    # A second answer to the same prompt does not hide the first one.
    remember(engine, split(engine, WRITTEN.replace("mice", "eggs")))
    assert tokens(engine, went_on(called())) == found
    # A later answer has its own tokens behind them.
    second = engine.prompts.rendered(went_on(called()), OPTIONS)
    assert second is not None
    engine.prompts.remember("a", second, own)
    two = [*went_on(called()), *went_on(called())[1:]]
    assert tokens(engine, two)[: len(found) + len(own)] == found + own
    # The template drops the thought before a later question.
    later = [*went_on(called()), {"role": "assistant", "content": "No."}, USER]
    assert tokens(engine, later) == tokens(engine, later, "another")


@pytest.mark.parametrize(
    ("written", "sent", "owner"),
    [
        (WRITTEN, went_on(called(thought="")), "a"),
        (WRITTEN, went_on(called(thought="They eat mice.")), "a"),
        (WRITTEN, went_on(called(number=2)), "a"),
        (WRITTEN, went_on(called(), {**USER, "content": "what do owls eat?"}), "a"),
        (WRITTEN, went_on(called()), "b"),
        (WRITTEN.replace("fox\n", "fox<|im_start|>\n"), went_on(called()), "a"),
        (WRITTEN.replace("=f>", "=f>\n<!-- c1 -->"), went_on(called()), "a"),
        ("", went_on(called()), "a"),
    ],
    ids=["no thought", "another", "a number", "question", "owner", "control", "text", "empty"],
)
def test_another_answer_keeps_its_rendering(
    engine: Engine, written: str, sent: list[dict[str, Any]], owner: str
) -> None:
    plain = tokens(engine, sent, owner)
    remember(engine, engine.prompts.tokenize(written))
    assert tokens(engine, sent, owner) == plain


def test_what_a_client_writes_becomes_no_control_token(engine: Engine) -> None:
    """The answer quotes a mark in letters; own tokens have letters, and no more marks."""
    thought = "The mark <|im_start|> is quoted."
    plain = tokens(engine, went_on(called(thought=thought)))
    own = split(engine, WRITTEN.replace("They eat  mice.", thought))
    remember(engine, own)
    found = tokens(engine, went_on(called(thought=thought)))
    marks = [[t for t in of if engine._llama.is_control(t)] for of in (plain, found)]
    assert found != plain and marks[0] == marks[1]


def wait(engine: Engine) -> None:
    keep_all(engine)


@pytest.mark.parametrize("forgets", [False, True], ids=["kept", "deleted"])
def test_after_a_restart_only_what_is_new_is_read(
    forgets: bool, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig.of(n_thread=1, context_length=4096)
    engine = Engine.open(path, config)
    engine.keep_in(tmp_path)
    script = iter([*split(engine, WRITTEN), engine._llama.eos])
    monkeypatch.setattr(OpenAnswer, "sample", lambda _self, _row=-1: next(script))
    list(engine.answer(of_chat([USER], GREEDY, options=OPTIONS, owner="chat-1")))
    held = list(engine.passes.tokens)
    monkeypatch.undo()
    wait(engine)
    files = [*tmp_path.glob("chat-1/*.answers")]
    assert len(files) == 1 and files[0].stat().st_size < 4 * len(WRITTEN) + 500
    if forgets:
        engine.forget_kept("chat-1")
        assert not [*tmp_path.iterdir()]
        plain = tokens(engine, went_on(called()), "nobody")
        assert tokens(engine, went_on(called()), "chat-1") == plain
    engine.close()
    again = Engine.open(path, config)
    again.keep_in(tmp_path)
    wait(again)  # until the digest is known
    later = of_chat(went_on(called()), GREEDY, 1, options=OPTIONS, owner="chat-1")
    list(again.answer(later))
    assert again.statistics().n_reused == (0 if forgets else len(held))
    again.close()


def test_one_of_several_answers_is_gone_on_with(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever it is; the state of the first one alone is the owner's."""
    said = [*split(engine, WRITTEN), engine._llama.eos]
    scripts: dict[OpenAnswer, Iterator[int]] = {}

    def sample(self: OpenAnswer, _row: int = -1) -> int:
        own = said if self.request.is_further else [engine._llama.eos]
        return next(scripts.setdefault(self, iter(own)))

    monkeypatch.setattr(OpenAnswer, "sample", sample)
    first = of_chat([USER], GREEDY, options=OPTIONS, owner="a")
    further = replace(first, priority="program", is_further=True, handle=type(first.handle)())
    assert first.goes_on and not further.goes_on
    owners = list[set[str]]()
    requests = iter([first, further])
    answers = jointly(
        engine, requests, lambda _: owners.append({*engine.loaded.scheduler.owners.values()})
    )
    assert len(list(answers)) == 2
    assert "" in owners[-1]
    own = said[:-1]
    found = tokens(engine, went_on(called()))
    assert any(found[i : i + len(own)] == own for i in range(len(found)))


def test_what_is_forgotten_does_not_come_back() -> None:
    kept = OwnAnswers(100)
    kept.add("a", "p", [1])
    kept.add("b", "p", [2])
    kept.forget("a")
    kept.add("a", "p", [3])  # of an answer that was not complete then
    assert not list(kept.within("a", "prompt")) and kept.unwritten == {"b"}
    kept.add("a", "p", [4])
    assert list(kept.within("a", "prompt")) and kept.unwritten == {"a", "b"}


@pytest.mark.parametrize(
    ("written", "n"),
    [
        ("", 0),
        ("{", 0),
        ("[[1]]", 0),
        ('[[1,"zz",[1]]]', 0),
        ('[[1,"00",[-1]],[1,"00",[100]],[1,"00",[99]]]', 1),
        ('[[1,"00",[1e99]]]', 0),
        ('[[1,"00",[99999999999]]]', 0),
        ("[" * 9999, 0),
    ],
)
def test_odd_files_have_no_answers(written: str, n: int) -> None:
    kept = OwnAnswers(100)
    kept.read = lambda _: written.encode()
    list(kept.within("a", "prompt"))
    assert len(json.loads(kept.packed("a"))) == n
    assert not kept.unwritten


def test_what_cannot_be_read_is_not_the_same() -> None:
    assert is_same(AnswerText(content="a "), AnswerText(content="a"))
    assert not is_same(AnswerText(), AnswerText())


def test_memory_is_bounded_and_no_owner_displaces_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_answers, "N_ANSWER_MAX", 4)
    monkeypatch.setattr(own_answers, "TOKENS_BYTES_MAX", 400)
    kept = OwnAnswers(100)
    kept.add("a", "p", [1])
    for i in range(9):
        kept.add("b", "p", [i])

    def of(owner: str) -> list[array[int]]:
        return [own.tokens for _, found in kept.within(owner, "prompt") for own in found]

    assert of("a") == [array("i", [1])]
    assert of("b") == [array("i", [i]) for i in (8, 7, 6)]
    kept.add("b", "pr", range(98))  # takes the room of the others
    assert [len(tokens) for tokens in of("b")] == [1, 98] and of("a")
    assert not list(kept.within("c", "prompt")) and not list(kept.within("b", "q" * 9))
