"""The command line: what it prints, its exit statuses, and that no error is a traceback.

Faults and interrupts are played against the fake engine of fake_worker.py; the rest runs the real
one on a tiny model.
"""

import ast
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fork_server
import psutil
import pytest
from command_line import COMMAND, ROOT, Ended, environment, outrider, started
from endless import make_endless
from factory import make_tiny
from processes import NO_FILE, wait_until_gone
from waiting import WAIT_S, until

from backend import cli
from backend.cli import COMMANDS, main

FAKE = ROOT / "tests" / "fake_worker.py"
FAKE_CLI = [
    sys.executable,
    "-c",
    "import sys, backend.protocol.client as client\n"
    f"client.worker_command = lambda: [sys.executable, {str(FAKE)!r}]\n"
    "from backend.cli import main\n"
    "sys.exit(main())",
]
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and terminals")


def asked(*words: object, input: str = "") -> Ended:
    """Run a command in this process, with the fake worker."""
    worker = fork_server.command([str(FAKE)], ("fake_worker",))
    return outrider(*words, input=input, worker=worker)


def check_one_sentence(done: Ended, words: str, status: int) -> None:
    assert done.returncode == status, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("outrider: ") and lines[0].endswith(".")
    assert words in lines[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_endless(tmp_path_factory.mktemp("cli") / "tiny.gguf")


# The command as a whole.


def test_a_pipe_gets_utf8(tmp_path: Path) -> None:
    done = started("inspect", tmp_path / "grüße 模型 🦊.gguf")
    assert done.returncode == 1 and "grüße 模型 🦊.gguf" in done.stderr


def test_help_and_version_load_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from backend.cli import main\n"
        "for words in (['--help'], ['--version'], ['chat', '--help'], ['inspect', '--help']):\n"
        "    try:\n"
        "        main(words)\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 0, end.code\n"
        "heavy = {'llama_cpp', 'numpy', 'torch', 'PySide6'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for word in ("chat", "inspect", "verify"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "COMMAND"),
        (["dance"], "no command 'dance'"),
        (["--dance"], "COMMAND"),
        (["chat", "--dance"], "--dance"),
        (["inspect"], "MODEL"),
        (["chat", "m", "--cache-rate", "7"], "from 0 to 1"),
        (["chat", "m", "--cache-rate", "nan"], "from 0 to 1"),
        (["chat", "m", "--cache-rate", "-0.1"], "from 0 to 1"),
        (["chat", "m", "--cache-rate", "abc"], "'abc'"),
        (["chat", "m", "--cache-rate", "101%"], "from 0 to 1"),
        (["inspect", "m", "--cache-rate", "inf"], "from 0 to 1"),
        (["chat", "m", "--max-tokens", "0"], "at least 1"),
        (["chat", "m", "--max-tokens", "-5"], "at least 1"),
        (["chat", "m", "--max-tokens", "1.5"], "at least 1"),
        (["chat", "m", "--context", "0"], "from 1"),
        (["chat", "m", "--threads", "-1"], "from 0"),
        (["chat", "m", "--seed", "x"], "whole number"),
        (["chat", "m", "--seed", "4294967295"], "from 0 to 4294967294"),
        (["chat", "m", "--temperature", "-1"], "from 0 to 100"),
        (["chat", "m", "--temperature", "inf"], "from 0 to 100"),
        (["trace", "m", "--temperature", "101"], "from 0 to 100"),
        (["verify", "m", "--threads", "1025"], "from 0 to 1024"),
        (["chat", "m", "--method", "magic"], "promoe"),
        (["chat", "m", "--json"], "-p"),
        (["chat", "m", "-p", " "], "empty"),
        (["chat", "m", "-p", "-"], "empty"),
    ],
)
def test_wrong_use_is_one_sentence(words: list[str], sentence: str) -> None:
    check_one_sentence(outrider(*words), sentence, status=2)


@pytest.mark.parametrize("words", [["dance"], ["verify", "m", "--threads", "1025"]])
def test_the_process_and_its_child_end_with_the_status(words: list[str]) -> None:
    """`verify` runs in a child of the process."""
    said = outrider(*words)
    check_one_sentence(said, words[-1], status=2)
    ended = started(*words)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, said.stdout, said.stderr)


@posix
def test_prompt_that_is_no_text_is_one_sentence() -> None:
    """Python decodes such arguments to lone surrogates."""
    check_one_sentence(outrider("chat", "m", "-p", "\udcff\udcfe"), "UTF-8", status=2)


def bad_files(folder: Path, good: Path) -> Iterator[tuple[str, Path]]:
    data = good.read_bytes()
    yield "missing", folder / "missing.gguf"
    yield "folder", folder
    for name, content in {
        "empty": b"",
        "text": b"hello, this is no model\n" * 9,
        "short": data[: len(data) // 2],
        "header": data[:100],
        "magic": data[:4],
    }.items():
        path = folder / f"{name}.gguf"
        path.write_bytes(content)
        yield name, path


@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json"], ["chat", "-p", "hello"]])
def test_bad_files_are_one_sentence(command: list[str], tiny: Path, tmp_path: Path) -> None:
    for name, path in bad_files(tmp_path, tiny):
        if command[0] == "chat" and name in ("text", "short", "magic"):
            continue  # a worker reads files as `inspect` does, and takes half a second
        done = outrider(*command, path)
        check_one_sentence(done, path.name, status=1)
        assert done.stdout == "", name


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_one_sentence(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(tiny.read_bytes())
    path.chmod(0)
    check_one_sentence(outrider("inspect", path), "secret.gguf", status=1)


def test_unexpected_errors_are_one_sentence_too(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode() -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("backend.cli.inspect.memory_facts", explode)
    assert main(["inspect", str(tiny)]) == 1
    assert capsys.readouterr().err == (
        "outrider: Something unexpected failed (KeyError: 'surprise'); "
        "with OUTRIDER_DEBUG=1 in the environment it shows where.\n"
    )
    monkeypatch.setenv("OUTRIDER_DEBUG", "1")
    assert main(["inspect", str(tiny)]) == 1
    assert "Traceback" in capsys.readouterr().err


# outrider inspect


def test_inspect_tells_what_is_in_the_file(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tiny), "--json", "--cache-rate", "50%", "--context", "512"]) == 0
    report = json.loads(capsys.readouterr().out)
    expected = {
        "architecture": "qwen3moe",
        "n_layer": 3,
        "n_moe_layer": 3,
        "n_expert": 8,
        "n_expert_used": 2,
        "expert_types": ["Q8_0"],
        "file_bytes": tiny.stat().st_size,
        "n_part": 1,
        "cacheable": True,
        "reason": "",
    }
    assert {name: report[name] for name in expected} == expected
    assert report["expert_bytes_total"] == 3 * 8 * report["expert_bytes"]
    assert report["dense_bytes"] + report["expert_bytes_total"] < report["file_bytes"]
    plan = report["plan"]
    assert (plan["rate"], plan["n_slot"], plan["context_length"]) == (0.5, 4, 512)
    assert plan["expert_bytes"] == report["expert_bytes_total"] // 2
    assert plan["available_bytes"] == report["memory"]["available_bytes"]
    assert report["warnings"] == []


def test_inspect_tells_what_llama_cpp_warns_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_tiny("glm4moe", "Q8_0", tmp_path / "m.gguf", n_nextn=1)
    assert main(["inspect", str(path), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("model has unused tensor blk.3.nextn.eh_proj.weight" in line for line in warnings)


def test_inspect_for_people(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tiny), "--cache-rate", "0.1"]) == 0
    text = capsys.readouterr().out
    for words in (
        "qwen3moe",
        "8 a layer, 2 used by a token",
        "0.25: 2 of 8 experts of each layer; 0.1 was asked for",
        "KV cache",
        "It fits here",
    ):
        assert words in text


def test_inspect_tells_what_a_layer_may_guess(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arch, said, predicts in (
        ("qwen35moe", "possible with the layer for multi-token prediction: --drafts auto", True),
        ("qwen3next", "llama.cpp cannot take a token of qwen3next back", False),
    ):
        path = str(make_tiny(arch, "Q8_0", tmp_path / arch, n_nextn=1))
        assert main(["inspect", path]) == 0 and said in capsys.readouterr().out
        assert main(["inspect", path, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["predicts"] == predicts
        assert bool(report["why_no_guess"]) != predicts and report["why_no_guess"] in said


def test_inspect_of_a_dense_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_tiny("dense", "Q8_0", tmp_path / "dense.gguf")
    assert main(["inspect", str(path)]) == 0
    assert "not used: it is a dense model" in capsys.readouterr().out
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cacheable"] is False


def test_a_models_name_cannot_steer_the_terminal(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from backend.gguf.model_file import ModelFile

    monkeypatch.setattr(ModelFile, "name", "evil\x1b]0;title\x07\x9b2J\nVerdict\u202e")
    assert main(["inspect", str(tiny)]) == 0
    text = capsys.readouterr().out
    assert "evil?]0;title??2J?Verdict?\n" in text


def test_a_files_name_is_one_line_of_the_terminal(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a\n\x1b[2Jb.gguf"
    shutil.copy(tiny, path)
    (tmp_path / "p\rq.jsonl").write_text("{}")
    for words in (
        ["inspect", str(path)],
        ["pack", str(path), "--delete"],
        ["verify", str(path), "--tokens", "1", "--rates", "1.0", "--methods", "lru"],
        ["batch", str(path), str(tmp_path / "p\rq.jsonl"), "--out", str(tmp_path / "o\n.jsonl")],
        ["bench", str(path.with_suffix(".json"))],
        ["no\x1bsuch"],
    ):
        main(words)
        said = "".join(capsys.readouterr())
        assert said and not any(c in said for c in "\x1b\r") and "a\n" not in said, words


def test_the_command_line_prints_by_one_function() -> None:
    """What others have named would else control the terminal. JSON escapes it."""
    found = []
    for path in sorted(Path(cli.__file__).parent.glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "print":
                found.append((path.name, ast.unparse(call.args[0])))
    others = [(name, given) for name, given in found if not given.startswith("json.dumps(")]
    assert others == [("common.py", "*map(one_line, lines)")]


# outrider chat against the fake engine: scripts, faults, interrupts


def test_answer_goes_to_stdout_and_nothing_else(tmp_path: Path) -> None:
    done = asked("chat", "model", "-p", "count 3")
    assert (done.returncode, done.stdout) == (0, "w1 w2 w3 \n")
    runs = "25 % of the experts are in memory, 1 of each layer, chosen by the method"
    assert len(done.stderr.splitlines()) == 1 and runs in done.stderr
    done = asked("chat", "model", "-p", "-", input="count 2")
    assert (done.returncode, done.stdout) == (0, "w1 w2 \n")


def test_json_is_one_object_with_every_figure() -> None:
    done = asked("chat", "model", "-p", "count 3", "--json", "--method", "lru")
    assert done.returncode == 0 and done.stderr == ""
    report = json.loads(done.stdout)
    assert (report["text"], report["tokens"]) == ("w1 w2 w3 ", [1, 2, 3])
    assert report["method"] == "lru" and "the method lru" in report["runs"]
    assert [layer["layer"] for layer in report["layers"]] == [1, 2]
    for name in ("hits", "late", "misses"):
        assert report[name] == sum(layer[name] for layer in report["layers"])
    assert report["hits"] + report["late"] + report["misses"] == 3 * 2


def test_thought_answer_and_calls_are_apart(tmp_path: Path) -> None:
    """A program that reads the output gets the content alone."""
    model = tmp_path / "thinks"
    calls = [["look", '{"at": 1}']]
    options = {"n_layer": 2, "thought": "so so", "text": "yes.", "calls": calls}
    model.write_text(json.dumps(options))
    done = asked("chat", model, "-p", "?", "--json")
    report = json.loads(done.stdout)
    assert (report["reasoning"], report["content"], report["text"]) == ("so so", "yes.", "yes.")
    assert report["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 1}'}
    assert report["raw"].startswith("<think>so so</think>yes.")
    done = asked("chat", model, "-p", "?")
    assert (done.returncode, done.stdout) == (0, "yes.\n")


def test_how_a_model_thinks_and_answers_reaches_the_engine(tmp_path: Path) -> None:
    model, schema, grammar = (tmp_path / name for name in ("m", "schema.json", "list.gbnf"))
    chat = {"thinking": "switch", "efforts": ["low", "high"]}
    model.write_text(json.dumps({"n_layer": 2, "echo": "options", "chat": chat}))
    schema.write_text('{"type": "object"}')
    grammar.write_text('root ::= "ä"', encoding="utf-8")

    def options(*words: object) -> tuple[dict[str, Any], str]:
        done = asked("chat", model, "-p", "?", *words)
        assert "of the experts are in memory" in done.stderr.splitlines()[-1]
        return json.loads(done.stdout), "\n".join(done.stderr.splitlines()[:-1])

    assert options() == ({}, "")
    thinking = {"thinking": False, "effort": "low"}
    assert options("--think", "off", "--effort", "low") == (thinking, "")
    assert options("--effort", "max")[1] == "This model knows the efforts low, high."
    assert options("--schema", schema)[0] == {"json_schema": {"type": "object"}}
    assert options("--grammar", grammar)[0] == {"grammar": 'root ::= "ä"'}
    model.write_text(json.dumps({"n_layer": 2, "echo": "options"}))
    assert options("--think", "on")[1] == "This model never thinks; it has no switch."
    for words, sentence in (
        (("--schema", grammar), "is not a JSON schema"),
        (("--schema", tmp_path / "none"), NO_FILE),
        (("--grammar", grammar, "--schema", schema), "not allowed with"),
    ):
        check_one_sentence(asked("chat", model, "-p", "?", *words), sentence, 2)


@posix
@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [("crash", "signal 9"), ("abort", "(a == b)"), ("fail", "could not be read any more")],
)
def test_fault_during_an_answer_keeps_what_was_said(prompt: str, sentence: str) -> None:
    done = asked("chat", "model", "-p", prompt)
    check_one_sentence(done, sentence, status=1)
    assert done.stdout == ("w1 w2 w3 \n" if prompt != "abort" else done.stdout)
    done = asked("chat", "model", "-p", prompt, "--json")
    check_one_sentence(done, sentence, status=1)
    assert sentence in json.loads(done.stdout)["error"]


def test_lines_from_a_pipe_are_turns() -> None:
    lines = "count 2\n\n/rate 75%\n/stats\ncount 1\n/new\n/quit\ncount 9\n"
    done = asked("chat", "model", input=lines)
    assert (done.returncode, done.stdout) == (0, "w1 w2 \nw1 \n")
    assert "75 % of the experts are in memory, 3 of each layer" in done.stderr
    assert re.search(r"\d resident, \d late, \d missed", done.stderr)


def test_mistakes_in_a_script_show_in_the_status() -> None:
    done = asked("chat", "model", input="/dance\n/rate 7\nfail\ncount 1\n")
    assert (done.returncode, done.stdout) == (1, "w1 w2 w3 \nw1 \n")
    assert len(done.stderr.splitlines()) == 4
    assert "/dance" in done.stderr and "from 0 to 1" in done.stderr


def test_end_of_input_at_once_is_no_error() -> None:
    done = started(
        "chat", "model", command=FAKE_CLI, input=""
    )  # Windows takes its NUL for a terminal
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@posix
def test_without_standard_input_it_says_so() -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *FAKE_CLI, "chat", "model"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    check_one_sentence(done, "standard input", status=2)


@posix
@pytest.mark.parametrize("words", [["chat", "model", "-p", "forever"], ["inspect", "TINY"]])
def test_closed_output_is_quiet(words: list[str], tiny: Path) -> None:
    words = [str(tiny) if word == "TINY" else word for word in words]
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = started(*words, command=FAKE_CLI, stdout=write_end)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_full_disk_behind_the_output_is_one_sentence(tiny: Path) -> None:
    for words in (["chat", "model", "-p", "count 3"], ["inspect", tiny]):
        with open("/dev/full", "w") as full:
            done = started(*words, command=FAKE_CLI, stdout=full)
        check_one_sentence(done, "No space left", status=1)


@posix
def test_interrupt_stops_the_answer_and_keeps_it() -> None:
    process = subprocess.Popen(
        [*FAKE_CLI, "chat", "model", "-p", "forever"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    worker = wait_for_worker(process.pid)
    assert process.stdout is not None
    text = process.stdout.read(4096)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130 and err.count(b"\n") == 1 and b"in memory" in err
    words = (text + rest).decode().split()
    assert words == [f"w{i}" for i in range(1, len(words) + 1)]
    assert (text + rest).endswith(b" \n")
    wait_until_gone(worker)


class Terminal:
    """A command that runs on a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        import pty

        self.fd, other = pty.openpty()
        self.process = subprocess.Popen(
            [*FAKE_CLI, *words],
            env=environment(TERM="dumb"),
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.text = ""

    def expect(self, pattern: str) -> str:
        """Read until the pattern appears. Return the text up to its end and drop it."""
        deadline = time.monotonic() + WAIT_S
        while (found := re.search(pattern, self.text)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} never came: {self.text!r}"
            if select.select([self.fd], [], [], 1.0)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode()
                except OSError:  # the other side is closed
                    raise AssertionError(f"it ended before {pattern!r}: {self.text!r}") from None
        seen, self.text = self.text[: found.end()], self.text[found.end() :]
        return seen

    def type(self, line: str) -> None:
        os.write(self.fd, line.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    if os.name == "nt":
        pytest.skip("pseudo-terminals")
    terminal = Terminal("chat", "model")
    terminal.expect("lists the commands")
    terminal.expect("> ")
    yield terminal
    terminal.process.kill()
    terminal.process.wait()
    os.close(terminal.fd)


def test_terminal_answers_and_leaves(terminal: Terminal) -> None:
    terminal.type("count 3\n")
    terminal.expect(r"w1 w2 w3 \r\n\(3 tokens, [\d.]+ token/s, \d+ % of experts in time")
    terminal.expect("> ")
    terminal.type("/help\n")
    terminal.expect("/rate R")
    terminal.expect("> ")
    terminal.type("\x04")
    assert terminal.process.wait(WAIT_S) == 0


def test_terminal_shows_thoughts_dim_and_what_the_model_saw(terminal: Terminal) -> None:
    said = [["<think>so", {"reasoning": "so"}], ["</think>yes", {"content": "yes"}]]
    terminal.type("/raw\n")
    terminal.expect("There is no answer yet")
    terminal.type(f"say {json.dumps(said)}\n")
    terminal.expect(r"\x1b\[2mso\x1b\[0m\r\n\r\nyes\r\n")
    terminal.type("/think off\n")
    terminal.expect("never thinks")
    terminal.type("/think loud\n")
    terminal.expect("needs on, off or auto")
    terminal.type("/effort low\n")
    terminal.expect("no efforts")
    terminal.type("/raw\n")
    terminal.expect(r'"role": "user".*, \{\}\]<think>so</think>yes')  # rendered as for that answer


def test_terminal_interrupt_stops_only_the_answer(terminal: Terminal) -> None:
    for _ in range(2):
        terminal.type("forever\n")
        terminal.expect("w20 ")
        terminal.interrupt()
        terminal.expect(r"\(\d+ tokens")
        terminal.expect("> ")
    terminal.type("count 2\n")
    terminal.expect("w1 w2 ")


def test_terminal_two_interrupts_leave(terminal: Terminal) -> None:
    # readline can miss an interrupt between its prompt and its wait; the next one wakes it.
    for _ in range(30):
        terminal.interrupt()
        try:
            terminal.process.wait(2)
            break
        except subprocess.TimeoutExpired:
            continue
    assert terminal.process.poll() == 0
    terminal.expect(r"\(Ctrl-C again or Ctrl-D leaves.\)")


def test_terminal_second_interrupt_leaves_a_hanging_answer(terminal: Terminal) -> None:
    terminal.type("hang\n")
    terminal.expect("w3 ")
    worker = wait_for_worker(terminal.process.pid)
    while terminal.process.poll() is None:
        terminal.interrupt()
        time.sleep(0.1)
    # The last interrupt may come while Python ends, after the program set its status.
    assert terminal.process.returncode in (130, -signal.SIGINT)
    wait_until_gone(worker)


@pytest.mark.parametrize("wish", ["\n", "n\n"])
def test_terminal_offers_to_start_a_dead_worker_again(terminal: Terminal, wish: str) -> None:
    terminal.type("crash\n")
    seen = terminal.expect(r"Start it again\? \[Y/n\] ")
    assert "w1 w2 w3 " in seen and "signal 9" in seen
    terminal.type(wish)
    if wish == "n\n":
        assert terminal.process.wait(WAIT_S) == 1
    else:
        terminal.expect("It runs again")
        terminal.expect("> ")
        terminal.type("count 2\n")
        terminal.expect("w1 w2 ")


def wait_for_worker(parent: int) -> int:
    """Wait for a command's worker and return its process id."""
    children: list[psutil.Process] = []
    until(lambda: children.extend(psutil.Process(parent).children()) or children)
    return int(children[0].pid)


# outrider chat with the real engine

FIXED = ("--temperature", "0", "--threads", "1")


def test_real_answer_as_json(tiny: Path) -> None:
    words = ["chat", tiny, "-p", "the and of", "--max-tokens", "8", *FIXED]
    done = outrider(*words, "--cache-rate", "0.5", "--method", "promoe", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["cache_rate"] == 0.5 and report["method"] == "promoe"
    assert len(report["tokens"]) == 8 and report["reason"] == "length"
    for name in ("ttft_s", "tokens_per_s", "stall_s", "compute_s", "other_s"):
        assert report[name] >= 0
    for name in ("hits", "late", "misses"):
        assert report[name] == sum(layer[name] for layer in report["layers"])
    assert [layer["layer"] for layer in report["layers"]] == [0, 1, 2]
    assert report["peak_rss_bytes"] > 1 << 20 and report["bytes_read"] > 0
    again = json.loads(outrider(*words, "--cache-rate", "0.25", "--json").stdout)
    assert again["tokens"] == report["tokens"]
    plain = outrider(*words, "--cache-rate", "0.5")
    assert plain.stdout.rstrip("\n") == report["text"].rstrip("\n")
    assert plain.stderr.startswith("The cache rate is 50 % by hand; automatic it would be 100 %.")
    automatic = outrider(*words, "--json")
    report = json.loads(automatic.stdout)
    assert (report["cache_rate"], report["overridden"]) == (1.0, "")


def test_real_prompt_longer_than_the_context(tiny: Path) -> None:
    done = outrider("chat", tiny, "-p", "the and " * 200, "--context", "256")
    overridden, refused = done.stderr.splitlines()
    assert overridden == "The context is 256 tokens by hand; automatic it would be 1,024."
    assert done.returncode == 1 and "holds only 256" in refused


def test_real_conversation_from_a_pipe(tiny: Path) -> None:
    lines = "the and\n/rate 100%\nof to\n/stats\n"
    done = started("chat", tiny, "--max-tokens", "4", *FIXED, input=lines)
    assert done.returncode == 0, done.stderr
    assert "Every expert is in memory" in done.stderr and "first token after" in done.stderr


def test_real_prompt_with_files(tiny: Path, tmp_path: Path) -> None:
    for name in ("a.txt", "b.md"):
        (tmp_path / name).write_text("the and " * 20, encoding="utf-8")
    words = ["chat", str(tiny), "-p", "the", "--max-tokens", "2", "--json", *FIXED]
    files = [word for name in ("a.txt", "b.md") for word in ("--attach", str(tmp_path / name))]
    assert json.loads(outrider(*words, *files).stdout)["n_prompt"] > 80  # "the " alone has few
    done = outrider(*words, "--attach", str(tmp_path))
    check_one_sentence(done, "is a folder", status=1)
    lines = f"/attach {tmp_path / 'a.txt'}\nthe\n/stats\n/attach {tmp_path / 'none'}\n"
    done = outrider("chat", str(tiny), "--max-tokens", "2", *FIXED, input=lines)
    assert "a.txt goes with the next message (160 characters)." in done.stderr
    assert "none cannot be read" in done.stderr and done.returncode == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "my-pc"], "must be an address of this machine"),
        (["--allow-host", "my-pc:80"], "must be a name such as"),
        (["--allow-origin", "chat.example"], "must be an origin such as"),
        (["--allow-origin", "https://chat.example/"], "must be an origin such as"),
    ],
)
def test_who_may_ask_is_named_in_the_right_form(words: list[str], said: str) -> None:
    check_one_sentence(outrider("serve", *words), said, status=2)


def test_other_machines_need_a_long_key_and_their_user_is_warned(tmp_path: Path) -> None:
    words = ["serve", tmp_path / "none.gguf", "--port", "0", "--host", "0.0.0.0"]
    short = outrider(*words, OUTRIDER_API_KEY="short")
    check_one_sentence(short, "must have at least 16", status=1)
    warning, refused = outrider(*words, "--allow-origin", "*").stderr.split("\n", 1)
    assert "Nothing is encrypted" in warning
    assert "Pages of all origins" in refused and "none.gguf" in refused


def test_a_crash_of_the_server_is_one_sentence() -> None:
    """llama.cpp ends its process on some models: the command loads them in a child."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--cache-rate", "0.5", "--context", "16"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    said = [process.stdout.readline().decode().rstrip() for _ in range(3)]  # it serves
    assert said[2] == "A conversation has up to 256 tokens; up to 4 at once share 256."
    (child,) = psutil.Process(process.pid).children()
    if sys.platform == "win32":
        terminate, access_violation = 1, 0xC0000005
        kernel = ctypes.windll.kernel32
        kernel.TerminateProcess(kernel.OpenProcess(terminate, False, child.pid), access_violation)
        status, end = 1, "access violation)."
    else:
        child.send_signal(signal.SIGSEGV)
        status, end = 128 + signal.SIGSEGV, "(signal 11, SIGSEGV)."
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == status
    assert err.decode().splitlines()[-1].endswith(end)


@posix
def test_real_worker_killed_during_an_answer(tiny: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "chat", str(tiny), "-p", "the", "--context", "65536", *FIXED],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    worker = wait_for_worker(process.pid)
    assert process.stdout is not None
    said = process.stdout.read(1)
    os.kill(worker, signal.SIGKILL)
    rest, err = process.communicate(timeout=WAIT_S)
    assert said and rest.endswith(b"\n")
    assert process.returncode == 1
    assert err.decode().count("\n") == 1 and "signal 9" in err.decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"outrider {name}" in capsys.readouterr().out


@pytest.mark.parametrize("debug", ["", "1"])
def test_what_llama_cpp_says_before_a_model_is_shown_to_those_who_ask(debug: str) -> None:
    """Packages have backends as modules, and loading each is such a message."""
    program = (
        "import backend, ctypes, llama_cpp; from llama_cpp._logger import llama_log_callback; "
        "llama_log_callback(1, b'load_backend: loaded', ctypes.c_void_p(0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S,
        env={**os.environ, "OUTRIDER_DEBUG": debug},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "load_backend: loaded" if debug else "")
