"""The oracle: stock llama.cpp computes the log of an engine, and finds what is wrong in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, keep_all, of_text, read
from factory import make_tiny
from oracle import MODULE, Oracle, replayed

from backend.engine.engine import Engine, EngineError
from backend.evaluation import verify
from backend.gguf.model_file import read_model
from backend.llama.api import LlamaError
from backend.llama.batch_log import VARIABLE, line_of
from backend.packs import write as pack
from backend.packs.file import LAYOUTS
from backend.protocol.request import GroupAnswer, Request
from backend.protocol.settings import Sampling
from backend.system import children

OpenEngine = Callable[..., Engine]

ROOT = Path(__file__).resolve().parents[2]
GREEDY = Sampling(temperature=0)
SAMPLED = Sampling(temperature=1.5, seed=7)
PROMPT = "it was one of the words that they had not said " * 30  # some 390 tokens


def say(
    engine: Engine, prompt: str, n: int = 12, sampling: Sampling = GREEDY, owner: str = ""
) -> list[int]:
    return [piece.token_id for piece in engine.answer(of_text(prompt, sampling, n, owner=owner))]


def keep(engine: Engine, prompt: str, n: int = 8) -> list[int]:
    """Answer a prompt and keep the conversation. Return its tokens."""
    say(engine, prompt, n, owner="chat-1")
    keep_all(engine)
    return list(engine.passes.tokens)


def asked(n: int, n_token: int = 20, **more: Any) -> list[Request]:
    """Return requests that begin in the same way, of other lengths."""
    return [
        Request(i, (GREEDY, SAMPLED)[i % 2], n_token + i, prompt="of the words " * 3 + "no " * i)
        for i in range(n)
    ]


@pytest.mark.parametrize("arch", ["minimax-m3", "gpt-oss"])
def test_one_answer_has_the_context_that_everybody_has(
    arch: str, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """Several sequences in a context would change what minimax-m3 computes."""
    engine = open_engine(make_tiny(arch, "Q8_0", tmp_path / "m.gguf"), context_length=1024)
    engine.keep_in(tmp_path / "states")
    tokens = keep(engine, PROMPT, 30)
    engine.forget()
    assert read(engine, [*tokens, 1]) == len(tokens)
    assert oracle.approve()["n_pass"] > 30


def test_answers_of_a_model_that_needs_its_context_alone(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    path = make_tiny("minimax-m3", "Q8_0", tmp_path / "m.gguf")
    engine = open_engine(path, n_sequence=4, context_length=2048)
    engine.make_room(4)
    assert engine.n_sequence == 1 and "one after the other" in engine.cache.reason
    assert len(list(jointly(engine, asked(3), keeps=True))) == 3
    counts = oracle.approve()
    assert counts["n_answer"] == 3 and counts["n_pass"] > 60


@pytest.mark.parametrize("n_sequence", [1, 2])
def test_verify_compares_with_the_context_that_everybody_has(
    n_sequence: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cache in a context of two sequences has another attention, which verify sees."""
    make = verify.Context

    def made(model: Any, **options: Any) -> Any:
        return make(model, **{**options, "n_sequence": n_sequence})

    monkeypatch.setattr(verify, "Context", made)
    file = read_model(make_tiny("minimax-m3", "Q8_0", tmp_path / "m.gguf"))
    [found] = verify.compare(file, [0.5], ["lru"], n_token=100, n_thread=1)
    assert found.identical == (n_sequence == 1)
    assert found.first_position == (None if n_sequence == 1 else 32)


@pytest.mark.parametrize(("n_row", "n_compared"), [(1000, 40), (35, 35), (25, 24), (7, 0)])
def test_verify_compares_the_passes_that_there_was_time_for(
    n_row: int, n_compared: int, monkeypatch: pytest.MonkeyPatch, tiny: Path
) -> None:
    """Stock ends within a pass; here after n_row rows. The prompt comes in passes of 8, 16, 6."""
    file = read_model(tiny)
    program = (
        "import os, sys; from backend.evaluation.replay import main; main()\n"
        "out, most = sys.argv[2], int(sys.argv[4])\n"
        "os.truncate(out, min(os.path.getsize(out), most))"
    )

    def command(_module: str, *words: str) -> list[str]:
        return [sys.executable, "-c", program, *words, str(n_row * n_vocab * 4)]

    n_vocab = len(file.metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    monkeypatch.setattr(verify.children, "command", command)
    compare = verify.compare(file, [0.5], ["lru"], n_token=40, n_thread=1, limit_s=600)
    if n_compared:
        [found] = compare
        assert (found.identical, found.n_position) == (True, n_compared)
    else:
        with pytest.raises(LlamaError, match="no pass"):
            list(compare)


def test_verify_ends_stock_after_its_time(tiny: Path) -> None:
    with pytest.raises(LlamaError, match="no pass within"):
        list(verify.compare(read_model(tiny), [0.5], ["lru"], n_token=9, n_thread=1, limit_s=1e-3))


@pytest.mark.parametrize(
    ("arch", "streams"),
    [
        pytest.param(arch, streams, marks=() if i % 2 == streams else pytest.mark.night)
        for i, arch in enumerate(["qwen3moe", "gpt-oss", "deepseek2", "qwen3next"])
        for streams in (False, True)
    ],
)
def test_groups(
    arch: str, streams: bool, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf")
    engine = open_engine(path, n_sequence=4, streams=streams, context_length=2048)
    for keeps in (False, not streams):
        found: Iterator[GroupAnswer] = jointly(engine, asked(7), keeps=keeps)
        assert len(list(found)) == 7
    list(jointly(engine, asked(2), keeps=not streams))
    counts = oracle.approve()
    assert counts["n_answer"] == 16 and counts["n_token"] > 16 * 20
    assert counts["n_pass"] < counts["n_token"] / 2


@pytest.mark.parametrize(
    "arch", ["qwen3moe", "deepseek2", "gpt-oss", "gemma4", "qwen3next", "lfm2moe"]
)
def test_restored_states(
    arch: str, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """A script (test_scripts.py) restores those of llama4."""
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf")
    before, after = (open_engine(path, context_length=1024) for _ in range(2))
    for engine in (before, after):
        engine.keep_in(tmp_path / "states")
    tokens = keep(before, PROMPT, 120)
    keep_all(after)  # learns the model's digest
    for token in (5, 6, 7):
        assert read(after, [*tokens, token]) == len(tokens)
        tokens.append(token)
    counts = oracle.approve()
    assert counts["n_state"] > 0 and counts["n_taken"] == 0


def test_every_way_to_load(open_engine: OpenEngine, oracle: Oracle, tmp_path: Path) -> None:
    """Experts as they are in the file or repacked, from one file or several, or all in memory."""
    file = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf"))
    folders = [tmp_path, tmp_path / "second"]
    folders[1].mkdir()
    engine = open_engine(file.path)
    say(engine, "the end of the words", 8)
    engine.set_cache_rate(1.0)
    say(engine, "the end of the words", 8)
    layouts = []
    for layout in LAYOUTS:
        written = pack.write(file, layout, folders=folders)
        engine = open_engine(file.path, method="lru")
        say(engine, "the end of the words", 8)
        layouts.append((engine.cache.layout, bool(engine.cache.pack)))
        engine.close()  # Windows removes no open file
        pack.delete(written.path)
    assert layouts == [(layout, True) for layout in LAYOUTS]
    assert oracle.approve()["n_answer"] == 2 + len(LAYOUTS)


def test_sparse_attention(open_engine: OpenEngine, oracle: Oracle, tiny: Path) -> None:
    engine = open_engine(tiny, n_sequence=2, context_length=512)
    assert len(list(jointly(engine, asked(3, 30), attends=(4, 16)))) == 3
    assert oracle.approve()["n_answer"] == 3


def test_people_can_have_a_log_computed_again(
    open_engine: OpenEngine, oracle: Oracle, tiny: Path
) -> None:
    say(open_engine(tiny), "the end", 5)
    [log] = oracle.logs
    if os.name == "posix":
        assert log.stat().st_mode & 0o777 == 0o600

    lines = log.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"sent"' in line)
    other, none = log.with_name("other"), log.with_name("none")
    line, _ = line_of(["sent", 1, 0], int(json.loads(lines[at - 1])[-1], 16))
    other.write_text("".join([*lines[:at], line]))
    none.write_text("[]\n")
    command = children.command("backend.cli", "verify", "--replay", *map(str, (log, other, none)))
    done = subprocess.run(command, capture_output=True, text=True)
    end = "The log has no end: its process still writes, was killed, or its last lines are missing."
    said = [line for line in done.stdout.splitlines() if not line.startswith("Compared")]
    assert said == [
        "Every bit is the same.",
        end,
        f"Answer 1: token 0 was sent, but {json.loads(lines[at])[2]} was chosen.",
        end,
        "Line 1 of none is no entry.",
    ]
    assert done.returncode == 1


def test_a_damaged_log_is_told(open_engine: OpenEngine, oracle: Oracle, tiny: Path) -> None:
    """What is before the damage is compared."""
    for prompt in ("the end", "one"):
        engine = open_engine(tiny)
        say(engine, prompt, 5)
        engine.close()
    lines, others = ([*log.open()] for log in oracle.logs)
    n, at = len(lines), next(i for i, line in enumerate(lines) if '"pass"' in line) + 3
    is_of = [line.startswith(('["answer"', '["chose"', '["sent"')) for line in lines]
    not_followed = (
        "Line {} of log does not follow the lines before it: some were changed, removed or added."
    )
    damages = {
        "": lines,
        f"Line {n} of log is cut.": [*lines[:-1], lines[-1][:-1]],
        f"Line {at + 1} of log is cut.": [*lines[:at], lines[at][:9]],
        "Line 1 of log is cut.": [lines[0][:9]],
        "log is empty.": [],
        "log is no batch log of version 4.": lines[1:],
        not_followed.format(at + 1): [*lines[:at], *lines[at - 1 :]],  # twice
        not_followed.format(at): [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]],
        not_followed.format(at + 2): [
            *lines[: at + 1],
            lines[at + 1][:1] + " " + lines[at + 1][1:],
        ],
        not_followed.format(n + 1): [*lines, *others],
        not_followed.format(n - 1): [*lines[:-2], lines[-1]],
        not_followed.format(at + 3): [*lines[: at + 2], *others[at + 2 :]],
        not_followed.format(is_of.index(True) + 1): [
            line for line, is_one in zip(lines, is_of, strict=True) if not is_one
        ],
    }
    assert len(damages) == 13
    logs = []
    for i, damaged in enumerate(damages.values()):
        logs.append(oracle.folder / str(i) / "log")
        logs[-1].parent.mkdir()
        logs[-1].write_text("".join(damaged))
    logs.append(oracle.folder / "version 3")  # which has no checksums, and no end
    former = [json.loads(line)[:-1] for line in lines[:-1]]
    former[0][1] = 3
    logs[-1].write_text("".join(json.dumps(entry) + "\n" for entry in former))
    found = replayed(*logs)
    assert found.pop() == found[0] == {**found[0], "remark": "", "obstacle": "", "difference": ""}
    assert [one["obstacle"] for one in found] == list(damages)
    assert not any(one["difference"] for one in found) and found[0]["n_pass"] == found[1]["n_pass"]
    assert [bool(one["remark"]) for one in found[:3]] == [False, True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no full device")
def test_a_log_that_cannot_be_written(
    open_engine: OpenEngine,
    oracle: Oracle,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a place for it no model is loaded; a drive that fails later ends no answer."""
    monkeypatch.setenv(VARIABLE, str(tiny))
    with pytest.raises(EngineError, match=r"tiny\.gguf could not be written: "):
        open_engine(tiny)
    monkeypatch.setenv(VARIABLE, str(oracle.folder))
    engine = open_engine(tiny)
    expected = say(engine, "the end", 6)

    engine.forget()
    [log] = oracle.logs
    links = {fd: os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    for fd in (int(fd) for fd, link in links.items() if link == str(log)):
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, fd)
        os.close(full)
    assert say(engine, "the end", 6) == expected
    assert capsys.readouterr().err.endswith(" ends: No space left on device.\n")
    assert oracle.approve()["n_answer"] == 1


def test_the_replay_has_nothing_of_the_engine() -> None:
    """Its own llama.cpp only: neither the native part nor what calls llama.cpp for the engine."""
    code = (
        f"import sys, {MODULE}\n"
        "ours = {'backend._native', 'backend.llama.api', 'backend.engine'}\n"
        "print(sorted(ours & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
