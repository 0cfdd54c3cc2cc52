"""The client's side of the pipe: replies, deaths and their sentences."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.client import (
    RequestFailed,
    WorkerClient,
    WorkerDied,
    describe_exit,
    worker_command,
)

FAKE = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]
LOAD = {"cache_rate": 0.5, "method": "promoe", "context_length": 512, "n_thread": 0}
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@pytest.fixture
def client() -> Iterator[WorkerClient]:
    with WorkerClient(FAKE) as client:
        client.request("load", path="model", **LOAD).final()
        yield client


def ask(client: WorkerClient, prompt: str) -> "object":
    return client.request("generate", prompt=prompt, sampling={}, max_tokens=-1)


def test_reply_ends_with_its_final_message(client: WorkerClient) -> None:
    messages = list(ask(client, "count 50"))
    assert messages[-1]["type"] == "done"
    text = "".join(m["text"] for m in messages if m["type"] == "text")
    assert text == "".join(f"w{i} " for i in range(1, 51))


def test_several_requests_do_not_mix(client: WorkerClient) -> None:
    first = ask(client, "forever")
    second = ask(client, "count 3")
    assert client.request("ping").final()["type"] == "pong"
    client.stop(first)
    assert first.final()["reason"] == "cancelled"
    assert second.final()["stats"]["n_token"] == 3


def test_error_is_raised_with_its_sentence(client: WorkerClient) -> None:
    with pytest.raises(RequestFailed, match="^The model's file could not be read any more.$"):
        ask(client, "fail").final()
    assert ask(client, "count 1").final()["type"] == "done"


@posix
def test_death_during_an_answer_keeps_what_was_said(client: WorkerClient) -> None:
    text = ""
    with pytest.raises(WorkerDied, match="signal 9.*memory"):
        for message in ask(client, "crash"):
            text += message.get("text", "")
    assert text == "w1 w2 w3 "
    with pytest.raises(WorkerDied, match="signal 9"):
        client.request("ping").final()


@posix
def test_failed_check_is_named(client: WorkerClient) -> None:
    with pytest.raises(WorkerDied) as caught:
        ask(client, "abort").final()
    assert str(caught.value) == (
        "The engine's process ended unexpectedly: llama.cpp stopped on a failed check (a == b)."
    )


def test_death_ends_every_open_reply(client: WorkerClient) -> None:
    replies = [ask(client, "forever") for _ in range(3)]
    client.kill()
    for reply in replies:
        with pytest.raises(WorkerDied):
            reply.final()


def test_close_while_it_hangs_ends_the_process(client: WorkerClient) -> None:
    ask(client, "hang")
    client.close()
    with pytest.raises(WorkerDied):
        client.request("ping")


def test_requests_from_many_threads(client: WorkerClient) -> None:
    kinds: list[str] = []

    def ping() -> None:
        kinds.append(client.request("ping").final()["type"])

    threads = [threading.Thread(target=ping) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds == ["pong"] * 20


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("import sys; sys.exit(3)", "status 3"),
        ("print('hello')", "unreadable"),
        ("raise MemoryError", "memory ran out"),
    ],
)
def test_a_process_that_is_no_worker_is_refused(script: str, sentence: str) -> None:
    with pytest.raises(WorkerDied, match=sentence):
        WorkerClient([sys.executable, "-c", script])


def test_a_program_that_is_missing_is_refused() -> None:
    with pytest.raises(WorkerDied, match="could not be started"):
        WorkerClient(["/nowhere/python"])


def test_worker_of_another_version_is_refused() -> None:
    script = (
        "import sys, time; sys.path[:0] = sys.argv[1:]\n"
        "from backend.messages import encode\n"
        "sys.stdout.buffer.write(encode({'type': 'hello', 'version': 0})); sys.stdout.flush()\n"
        "time.sleep(60)"
    )
    root = str(Path(__file__).resolve().parents[2])
    with pytest.raises(WorkerDied, match="another version"):
        WorkerClient([sys.executable, "-c", script, root])


def test_worker_command_starts_this_very_code_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend" / "__init__.py").write_text("raise SystemExit('the wrong backend')")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.Popen(
        worker_command(),
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    hello = process.stdout.read(4096)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert b'"type":"hello"' in hello


def test_thread_that_may_end_asks_for_no_death_signal() -> None:
    commands: list[list[str]] = []
    thread = threading.Thread(target=lambda: commands.append(worker_command()))
    thread.start()
    thread.join()
    assert "--die-with-parent" not in commands[0]
    assert "--die-with-parent" in worker_command()


@pytest.mark.parametrize(
    ("returncode", "stderr_tail", "words"),
    [
        pytest.param(-signal.SIGKILL if os.name != "nt" else -9, "", "memory", marks=posix),
        pytest.param(-11, "", "it crashed (signal 11, SIGSEGV)", marks=posix),
        pytest.param(-6, "", "failed check (signal 6, SIGABRT)", marks=posix),
        pytest.param(-6, "terminate: std::bad_alloc", "memory ran out (signal 6)", marks=posix),
        pytest.param(-7, "", "the model file could not be read", marks=posix),
        pytest.param(-15, "", "told to end", marks=posix),
        (-6, "x.c:1: GGML_ASSERT(n > 0) failed\nmore", "(n > 0)"),
        (-6, "ggml.c:9: fatal error: no device", "(no device)"),
        (-200, "", "signal 200"),
        (0, "", "without an error"),
        (7, "", "status 7"),
        (1, "MemoryError", "memory ran out"),
        (0xC0000005, "", "access violation"),
        (0xC0000005 - (1 << 32), "", "access violation"),
        (None, "", "ended unexpectedly"),
    ],
)
def test_every_exit_is_one_plain_sentence(
    returncode: int | None, stderr_tail: str, words: str
) -> None:
    sentence = describe_exit(returncode, stderr_tail)
    assert words in sentence
    assert sentence.endswith(".") and "\n" not in sentence
