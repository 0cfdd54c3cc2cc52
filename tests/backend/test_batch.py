"""`outrider batch`: its files, what is answered, and what a kill leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from engine.reciter import make_reciter
from waiting import WAIT_S

from backend.cli import main
from backend.cli.crashes import Crashes, Notes
from backend.engine.engine import Engine
from backend.engine.passes import Passes
from backend.protocol.errors import EngineError
from backend.protocol.settings import EngineConfig
from backend.server.batch_file import AnswerFile, BatchError, error_line, read_lines

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["--cache-rate", "0.5", "--threads", "1", "--temperature", "0", "--max-tokens", "3"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reciter(tmp_path_factory.mktemp("batch") / "m.gguf", "abcdefg")


def answers(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def written(path: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{line}\n" for line in texts), "utf-8", newline="\n")
    return path


# Files.


def test_lines_of_a_text_are_prompts(tmp_path: Path) -> None:
    lines = list(read_lines(written(tmp_path / "p.txt", "one", "", "two")))
    assert [(line.id, line.number) for line in lines] == [("1", 1), ("3", 3)]
    assert [line.ask({}).messages[0]["content"] for line in lines] == ["one", "two"]
    assert [m["content"] for m in lines[0].ask({}, "Be brief.").messages] == ["Be brief.", "one"]


def test_columns_of_a_table_are_fields(tmp_path: Path) -> None:
    path = written(
        tmp_path / "p.csv",
        "id,system,prompt,temperature,max_tokens",
        'first,Be brief.,"two\nlines",0.5,7',
        ",,other,,",
        "bad,,x,warm,",
    )
    first, other, bad = read_lines(path)
    ask = first.ask({"temperature": 0, "max_tokens": 9})
    assert (first.id, other.id) == ("first", "2")
    assert ask.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "two\nlines"},
    )
    assert (ask.sampling.temperature, ask.max_tokens) == (0.5, 7)
    asked = other.ask({"temperature": 0, "max_tokens": 9})
    assert (asked.sampling.temperature, asked.max_tokens) == (0, 9)
    assert "number" in bad.error


def test_json_lines_and_openais_format(tmp_path: Path) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 3}
    path = written(
        tmp_path / "p.jsonl",
        {"prompt": "a", "id": 7, "system": "s", "top_k": 5},
        {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": chat},
        {"custom_id": "d", "url": "/v1/completions", "body": {"prompt": "x", "n": 2}},
        {"custom_id": "e", "url": "/v1/embeddings", "body": {}},
        "no json",
    )
    plain, openai, raw, unknown, bad = read_lines(path)
    assert plain.id == "7" and plain.ask({}).sampling.top_k == 5 and not plain.url
    assert [m["role"] for m in plain.ask({}).messages] == ["system", "user"]
    assert openai.id == "c" and openai.ask({}).sampling.seed == 3
    assert raw.ask({}).prompts == ("x",) and raw.ask({}).n == 2
    assert "/v1/embeddings" in unknown.error and "JSON" in bad.error


def test_a_table_needs_its_column(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match="no column"):
        list(read_lines(written(tmp_path / "p.csv", "text", "x")))
    with pytest.raises(BatchError, match="must end in"):
        list(read_lines(tmp_path / "p.pdf"))


def test_a_cut_line_is_asked_again(tmp_path: Path) -> None:
    one, two = read_lines(written(tmp_path / "p.txt", "one", "two"))
    out = AnswerFile(tmp_path / "out.jsonl")
    out.add(error_line(one, "it failed"))
    out.add(error_line(two, "it failed"))
    out.close()
    whole = out.path.read_bytes()
    for n in (len(whole) - 1, len(whole) - 20, whole.index(b"\n") + 1):
        out.path.write_bytes(whole[:n])
        again = AnswerFile(out.path)
        assert list(again.done) == ["1"]
        again.add(error_line(two, "it failed"))
        again.close()
        assert out.path.read_bytes() == whole
    end = whole.index(b"\n") + 1
    out.path.write_bytes(whole[:end] + bytes(30) + whole[end + 30 :])  # after a loss of power
    again = AnswerFile(out.path)
    again.close()
    assert list(again.done) == ["1"] and out.path.read_bytes() == whole[:end]
    out.path.write_bytes(b"other\n" + whole)
    with pytest.raises(BatchError, match="Line 1 of out.jsonl"):
        AnswerFile(out.path)


# The command.


def test_a_file_is_answered_once(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backend.cli.batch._LOG_S", 0.0)  # progress after every pass
    configs = list[EngineConfig]()

    def opened(path: Path, config: EngineConfig, *more: Any, own: Any = Engine.open) -> Engine:
        configs.append(config)
        engine: Engine = own(path, config, *more)
        return engine

    monkeypatch.setattr(Engine, "open", opened)
    body = {"prompt": "x\n", "max_tokens": 2, "n": 2, "temperature": 0}
    prompts = written(
        tmp_path / "p.jsonl",
        {"prompt": "one\n"},
        {"custom_id": "openai", "url": "/v1/completions", "body": body},
        {"prompt": "too long " * 2000},
        {"prompt": "two\n", "max_tokens": 4},
    )
    out = tmp_path / "out.jsonl"
    words = ["batch", str(model), "--prompts", str(prompts), "--out", str(out), *OPTIONS]
    assert main([*words, "--group", "3", "--context", "256"]) == 0
    found = {line.get("custom_id", line["id"]): line for line in answers(out)}
    assert found.keys() == {"1", "openai", "3", "4"}
    assert len(found["1"]["answer"]) > 0 and found["1"]["completion_tokens"] <= 3
    assert found["4"]["completion_tokens"] <= 4
    assert "error" in found["3"]
    response = found["openai"]["response"]
    assert response["status_code"] == 200
    assert [c["text"] for c in response["body"]["choices"]] == ["ab", "ab"]
    assert response["body"]["usage"]["completion_tokens"] == 4
    assert "the method" in response["body"]["runs"]
    progress = capsys.readouterr().err
    assert "3 requests are computed at once" in progress
    assert configs[0].n_checkpoint == 0  # nothing goes on with what a request leaves
    assert re.search(r"[123] of 4 requests, [123] at once, .* token/s, about \d+ s left", progress)
    before = out.read_bytes()
    assert main(words) == 0
    assert out.read_bytes() == before and "All 4 requests" in capsys.readouterr().out


def test_a_drive_that_has_failed_costs_few_requests(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prompts = written(tmp_path / "p.txt", *(f"number {i}" for i in range(12)))
    out = tmp_path / "out.jsonl"
    words = ["batch", str(model), "--prompts", str(prompts), "--out", str(out), *OPTIONS]

    def fails(*_: object, **__: object) -> bool:
        raise EngineError("The drive is gone.")

    with monkeypatch.context() as broken:
        broken.setattr(Passes, "compute", fails)
        assert main([*words, "--group", "2"]) == 1
    assert "The drive is gone. The same command" in capsys.readouterr().err
    n_failed = len(answers(out))
    assert 0 < n_failed < 8
    assert main(words) == 0
    found = answers(out)
    assert len(found) == 12 and sum("error" in line for line in found) == n_failed


def test_answers_to_other_requests_are_not_mixed(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = written(tmp_path / "p.txt", "one"), tmp_path / "out.jsonl"
    words = ["batch", str(model), "--prompts", str(prompts), "--out", str(out), *OPTIONS]
    assert main(words) == 0
    written(prompts, "another")
    assert main(words) == 1
    assert "another request of the id '1'" in capsys.readouterr().err
    prompts = written(tmp_path / "q.jsonl", {"id": 1, "prompt": "a"}, {"id": 1, "prompt": "b"})
    words[3] = str(prompts)
    assert main([*words[:5], str(tmp_path / "new.jsonl")]) == 1
    assert "have the id '1'" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_kill_a_crash_and_an_interrupt_lose_and_repeat_nothing(
    model: Path, tmp_path: Path
) -> None:
    """Kill, let a request crash llama.cpp, interrupt, and complete.

    benchmarks/batch_kills.py kills more.
    """
    n, bad = 40, 22
    requests: list[dict[str, Any]] = [{"prompt": "w " * (i % 9 + 1)} for i in range(n)]
    body = {"prompt": "poison", "max_tokens": 2}
    requests[bad - 1] = {"custom_id": f"{bad}", "url": "/v1/completions", "body": body}
    prompts, out = written(tmp_path / "p.jsonl", *requests), tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "backend.cli", "batch", str(model), "--prompts", str(prompts)]
    command += ["--out", str(out), *OPTIONS, "--group", "4", "--context", "256"]
    written(tmp_path / "sitecustomize.py", CRASHES_ON_POISON)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}

    def run(until: int, number: int = 0) -> tuple[int, str]:
        """Send the signal once there are `until` answers. Return the exit status and errors."""
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None:
            if number and out.exists() and out.read_bytes().count(b"\n") >= until:
                process.send_signal(number)
                break
            time.sleep(0.002)
        _, errors = process.communicate(timeout=WAIT_S)
        return process.returncode, errors

    def found() -> dict[str, dict[str, Any]]:
        lines = answers(out)
        by_name = {line.get("custom_id", line["id"]): line for line in lines}
        assert len(by_name) == len(lines), "a request was answered twice"
        return by_name

    assert run(10, signal.SIGKILL)[0] == -signal.SIGKILL
    status, errors = run(28, signal.SIGINT)
    assert status == 128 + signal.SIGINT
    assert errors.count("llama.cpp stopped on a failed check (a == b)") == 2, "in a group and alone"
    assert errors.count("are asked again, one at a time.") == 2
    assert f"The request '{bad}' crashes alone, too." in errors
    assert len(found()) < n
    assert main(command[3:]) == 0
    assert sorted(map(int, found())) == list(range(1, n + 1))
    assert [name for name, line in found().items() if line.get("error")] == [f"{bad}"]
    assert "failed check (a == b)" in found()[f"{bad}"]["error"]["message"]


def test_who_crashes_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    crashes = Crashes()

    def child() -> Notes:
        for name, value in crashes.environment().items():
            monkeypatch.setenv(name, value)
        return Notes()

    def crash(number: int = signal.SIGSEGV, *, had_memory: bool = True) -> bool:
        return crashes.goes_on(-number, f"Signal {int(number)}.", had_memory=had_memory)

    notes = child()
    assert (notes.alone, notes.failed, notes.gives_up) == (frozenset(), {}, False)
    notes.begin(1)
    notes.end(1)  # its tokens are counted
    for number in (1, 2, 3):
        notes.begin(number)
    notes.answered(2)
    assert crash()
    notes = child()
    assert notes.alone == {1, 3} and not notes.failed
    notes.begin(1)
    assert crash()
    notes = child()
    assert notes.alone == {3} and notes.failed == {1: "Signal 11."}
    notes.begin(3)
    notes.answered(3)
    notes.begin(4)
    killed = 9  # SIGKILL, which Windows lacks
    assert not crash(killed), "somebody killed it"
    assert not crash(signal.SIGINT)
    assert crash(killed, had_memory=False)
    assert child().alone == {4} and not crashes.failed
    assert not crash(), "it crashed before it computed anything"


@pytest.mark.parametrize("n_group", [1, 4])
def test_a_model_that_always_crashes_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, n_group: int
) -> None:
    crashes, failed = Crashes(), list[int]()
    for _ in range(20):
        for name, value in crashes.environment().items():
            monkeypatch.setenv(name, value)
        notes = Notes()
        failed += notes.failed
        if notes.gives_up:
            break
        fresh = [n for n in range(1, 100) if n not in failed]
        for number in [min(notes.alone)] if notes.alone else fresh[:n_group]:
            notes.begin(number)
        assert crashes.goes_on(-signal.SIGABRT, "It crashed.", had_memory=True)
    assert failed == [1, 2, 3]


CRASHES_ON_POISON = """
import os, sys, threading, time
def poison():
    while not hasattr(sys.modules.get("backend.engine.engine"), "Engine"):
        time.sleep(0.001)
    engine = sys.modules["backend.engine.engine"].Engine
    real = engine.submit
    def watched(self, request):
        if request.prompt == "poison":
            os.write(2, b"ggml.c:1: GGML_ASSERT(a == b) failed\\n")
            os.abort()
        return real(self, request)
    engine.submit = watched
if "OUTRIDER_COMMAND_CHILD" in os.environ:
    threading.Thread(target=poison, daemon=True).start()
"""
