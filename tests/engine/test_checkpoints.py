"""A model with recurrent states goes back to a checkpoint: a turn reads what is new."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, of_chat, of_text
from factory import make_tiny
from oracle import Oracle
from reciter import with_template

from backend.engine.engine import Engine
from backend.llama import api, batch_log
from backend.protocol.request import Request
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
TEMPLATES = Path(__file__).resolve().parents[1] / "data" / "chat-formats.zip"
FAMILIES = {
    "qwen35moe": "Qwen3.5-4B",
    "qwen3next": "Qwen3.5-4B",
    "nemotron_h_moe": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "lfm2moe": "LFM2-8B-A1B",
    "granitehybrid": "allenai-OLMoE-1B-7B-Instruct",
}
QUESTIONS = [f"{i}: what do foxes, wolves and owls eat in the winter?" for i in range(5)]
CHAT: list[Any] = [{"role": "user", "content": QUESTIONS[0]}]
for _i, _answer in enumerate(("They eat mice.", "They sleep, but not for long.")):
    CHAT += [{"role": "assistant", "content": _answer}]
    CHAT += [{"role": "user", "content": QUESTIONS[_i + 1]}]


def model(arch: str, folder: Path) -> Path:
    template = zipfile.ZipFile(TEMPLATES).read(f"{FAMILIES[arch]}.jinja").decode()
    return with_template(make_tiny(arch, "Q8_0", folder / "t.gguf"), folder / "m.gguf", template)


def n_read(engine: Engine, messages: list[Any], n: int = 4) -> int:
    """Answer a conversation. Return the tokens of the prompt that were computed."""
    list(engine.answer(of_chat(messages, GREEDY, n)))
    stats = engine.statistics()
    return stats.n_prompt - stats.n_reused


def passes(log: Path) -> list[tuple[Any, Any]]:
    """Return the rows and the bits of every pass of a log."""
    return [(entry[1], entry[3]) for entry in batch_log.read(log) if entry[0] == "pass"]


@pytest.mark.parametrize("n_sequence", [1, 4])
@pytest.mark.parametrize("arch", FAMILIES)
def test_every_way_of_going_back_reads_what_is_new(
    arch: str, n_sequence: int, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """The last tokens of a prompt, which open a thought, are read again: nine at most here."""
    engine = open_engine(model(arch, tmp_path), context_length=1024, n_sequence=n_sequence)
    turn = engine.count(CHAT) - engine.count(CHAT[:3]) + 9
    whole = [n_read(engine, CHAT[:1]), n_read(engine, CHAT[:3]), n_read(engine, CHAT)]
    assert whole[0] > 40 and max(whole[1:]) <= turn
    assert n_read(engine, CHAT) <= 9  # the same question once more
    edited = [*CHAT[:-1], {"role": "user", "content": "And hares?"}]
    assert n_read(engine, edited) <= turn
    earlier = [*CHAT[:2], {"role": "user", "content": "And geese?"}]
    assert n_read(engine, earlier) <= turn
    assert n_read(engine, CHAT) <= 2 * turn  # back to the branch
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
    n_prompt, context = engine.count(CHAT[:1]), engine.loaded.context
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


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_state_goes_back_within_the_last_pass_only(
    is_checked: bool,
    open_engine: OpenEngine,
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it keeps states for guesses, llama.cpp goes back further, to wrong states."""
    if not is_checked:
        monkeypatch.setattr(api.Context, "_can_forget", lambda *_: True)
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024, drafts="auto")
    list(engine.answer(of_text(tuple(range(20, 40)), GREEDY, 2)))  # a last pass of one token
    assert engine.loaded.context.forget_from(len(engine.passes.tokens) - 2) is not is_checked
    assert bool(oracle.difference()) is not is_checked


def spoil(log: Path, change: Callable[[list[Any]], Any]) -> None:
    """Change the entries of a log. change: returns what stands in the place of one; []: nothing."""
    found = [change(entry) for entry in batch_log.read(log)]
    log.write_text("".join(json.dumps(entry) + "\n" for entry in found if entry))


def saves_others(context: Any, sequence: int, n: int) -> None:
    """Save a checkpoint, and say that it is of another position."""
    save(context, sequence, n)
    context._checkpoints[-1].n = n + 3


save = api.Context.save


def flips_a_bit(context: Any, sequence: int, n: int) -> None:
    save(context, sequence, n)
    context._checkpoints[-1].state[-5] ^= 64


def keeps_old(context: Any, name: str, *_: int, done: bool) -> None:
    """Leave a checkpoint whose positions were removed."""
    if name == "clear":
        context._checkpoints.clear()


@pytest.mark.parametrize(
    ("what", "wrong"), [("save", saves_others), ("save", flips_a_bit), ("_follow", keeps_old)]
)
def test_a_wrong_checkpoint_is_seen(
    what: str,
    wrong: Callable[..., Any],
    open_engine: OpenEngine,
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api.Context, what, wrong)
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024)
    other = "Quite another question, which is longer than the first one of the chat"
    for text in (QUESTIONS[0], QUESTIONS[0], f"{other} is.", f"{other} was."):
        n_read(engine, [{"role": "user", "content": text}])
    assert oracle.difference()


def test_cells_behind_a_checkpoint_that_were_not_removed_are_seen(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    engine = open_engine(model("qwen35moe", tmp_path), context_length=1024)
    for messages in (CHAT[:1], CHAT[:1]):
        n_read(engine, messages)
    spoil(oracle.logs[0], lambda entry: entry if entry[0] != "seq_rm" else [])
    assert "position" in oracle.difference()
