"""A model with recurrent states goes back to a checkpoint: a turn reads what is new."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, keep_all, of_chat
from chats import CHAT, FAMILIES, GREEDY, QUESTIONS, model, n_read
from oracle import Oracle, replayed

from backend.engine.engine import Engine
from backend.llama import batch_log
from backend.protocol.request import Request

OpenEngine = Callable[..., Engine]


def passes(log: Path) -> list[tuple[Any, Any]]:
    """Return the rows and the bits of every pass of a log."""
    return [(entry[1], entry[3]) for entry in batch_log.read(log) if entry[0] == "pass"]


@pytest.mark.parametrize(
    ("arch", "n_sequence"), list(zip(FAMILIES, (1, 4, 1, 4, 1, 4), strict=True))
)
def test_every_way_of_going_back_reads_what_is_new(
    arch: str, n_sequence: int, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """The last tokens of a prompt, which open a thought, are read again: nine at most here."""
    engine = open_engine(model(arch, tmp_path), context_length=1024, n_sequence=n_sequence)
    turn = engine.prompts.count(CHAT) - engine.prompts.count(CHAT[:3]) + 9
    whole = [n_read(engine, CHAT[:1]), n_read(engine, CHAT[:3]), n_read(engine, CHAT)]
    assert whole[0] > 40 and max(whole[1:]) <= turn
    assert n_read(engine, CHAT) <= 9  # the same question once more
    edited = [*CHAT[:-1], {"role": "user", "content": "And hares?"}]
    assert n_read(engine, edited) <= turn
    earlier = [*CHAT[:2], {"role": "user", "content": "And geese?"}]
    assert n_read(engine, earlier) <= turn
    # Back to the branch, which has a sequence of its own if there are several.
    assert n_read(engine, CHAT) <= (2 * turn if n_sequence == 1 else 9)
    assert oracle.approve()["n_restored"] == 6


def test_what_follows_a_checkpoint_has_the_bits_of_a_context_that_never_went_on(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024)
    n_read(engine, CHAT[:1], 20)
    first = passes(oracle.logs[0])
    n_read(engine, CHAT[:1], 20)
    assert passes(oracle.logs[0])[len(first) :] == first[1:] and len(first) > 5
    n_read(engine, [{"role": "user", "content": "Another chat."}])


def test_a_stop_within_a_pass_loses_the_answer_only(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024)
    n_prompt, context = engine.prompts.count(CHAT[:1]), engine.loaded.context
    request, n_pass, real = of_chat(CHAT[:1], GREEDY, 20), 0, context.decode_rows

    def decode_rows(rows: Any) -> int:
        nonlocal n_pass
        n_pass += 1
        if n_pass == 6:
            request.handle.cancel()
        return real(rows) if n_pass != 6 else real(rows) or 2  # 2: aborted

    context.decode_rows = decode_rows  # type: ignore[method-assign]
    list(engine.answer(request))
    assert n_pass == 6 and n_prompt - 9 <= len(engine.passes.tokens) < n_prompt
    assert n_read(engine, CHAT[:1]) <= 9
    found = oracle.approve()
    assert (found["n_void"], found["n_restored"]) == (1, 1)


def test_a_prompt_of_several_answers_is_read_once(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model("nemotron_h_moe", tmp_path), context_length=1024, n_sequence=4)
    prompt = "what do foxes, wolves and owls eat in the winter?"
    requests = [Request(i, GREEDY, 3, prompt=prompt) for i in range(4)]
    answers = list(jointly(engine, requests, keeps=True))
    n = answers[0].n_prompt
    assert n > 20 and sorted(a.n_reused for a in answers) == [0, n - 1, n - 1, n - 1]
    assert oracle.approve()["n_restored"] == 3


@pytest.mark.parametrize("n_sequence", [1, 2])
def test_a_chat_goes_on_after_another_one_and_in_another_engine(
    n_sequence: int, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """Its state is on the drive with the checkpoint, from which the thought is left out."""
    path, read = model("qwen35moe", tmp_path), []
    chats = [(CHAT[:1], "a"), ([CHAT[2]], "b"), ([CHAT[4]], "c"), (CHAT[:3], "a"), (CHAT, "a")]
    for part in (chats[:4], chats[4:]):
        engine = open_engine(path, context_length=1024, n_sequence=n_sequence)
        engine.keep_in(tmp_path / "states")
        for messages, owner in part:
            read.append(n_read(engine, messages, owner=owner))
            keep_all(engine)
        turn = engine.prompts.count(CHAT) - engine.prompts.count(CHAT[:3]) + 9
        engine.close()
    assert len(list((tmp_path / "states" / "a").glob("*.state"))) == 1
    assert max(read[3:]) <= turn
    found = oracle.approve()
    assert found["n_restored"] == 2 and found["n_state"] == 4 and not found["n_taken"]
    if n_sequence == 1:  # stock computes it from its passes, with the chat's way back among them
        [alone] = replayed(oracle.logs[-1])
        assert alone["n_state"] == 2 and not alone["n_taken"] and not alone["difference"]


def test_a_checkpoint_moves_to_another_context(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model("qwen35moe", tmp_path), context_length=512)
    n_read(engine, CHAT[:1])
    engine.change(engine.loaded.config.changed(context_length=1024))
    assert n_read(engine, CHAT[:1]) <= 9
    assert oracle.approve()["n_restored"] == 1


def test_an_agent_goes_on_step_by_step_and_from_its_question(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """The template drops the thoughts of all steps when the next question comes."""
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024)
    call = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    step = [
        {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00000", "content": "nothing"},
    ]
    n_question, n_step = n_read(engine, CHAT[:1]), engine.prompts.count([*CHAT[:1], *step])
    n_step -= engine.prompts.count(CHAT[:1])
    for n in range(1, 6):
        assert n_read(engine, [*CHAT[:1], *step * n]) <= n_step + 9
    edited = [*CHAT[:1], *step * 5, *CHAT[1:3]]
    assert engine.prompts.count(edited) - n_read(engine, edited) >= n_question - 9
    oracle.approve()


@pytest.mark.parametrize("n_ubatch", [64, 512])
def test_a_conversation_begins_behind_the_system_prompt_of_another(
    n_ubatch: int, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """A pass ends there anyway, or one that is full ends before it: no pass is added."""
    path = model("qwen35moe", tmp_path, n_ctx=4096)
    engine = open_engine(path, context_length=2048, n_ubatch=n_ubatch)
    system = {"role": "system", "content": "the words of the fox and the owl, " * 40}
    first = [system, *CHAT[:1]]
    n = engine.prompts.count(first)
    assert n_read(engine, first) == n
    n_row = [sum(len(run[2]) for run in rows) for rows, _ in passes(oracle.logs[0])]
    assert sum(n_row[: -(-n // n_ubatch) + 1]) >= n  # one more for what opens a thought
    for turn in (3, 5):
        assert n_read(engine, [system, *CHAT[:turn]]) < 200
    other = [system, {"role": "user", "content": "And geese?"}]
    assert n_read(engine, other) < (64 + 60 if n_ubatch == 64 else n - 500)
    oracle.approve()


def test_what_a_recording_lost_is_not_lost_of_a_later_answer(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model("qwen35moe", tmp_path), keeps_outputs=True, n_ubatch=16)
    context, real = engine.loaded.context, engine.loaded.context.decode_rows
    context.decode_rows = lambda rows: real(rows) or 2  # type: ignore[method-assign]
    assert engine.compute(QUESTIONS[0], 40) == 0
    context.decode_rows = real  # type: ignore[method-assign]
    pieces = engine.answer(of_chat(CHAT[:1], GREEDY, 9))
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert n_read(engine, CHAT[:1]) <= 9
    oracle.approve()
