"""The worker process: requests and answers, stop, faults, and the death of either side.

The engine is a fake that fails on demand (fake_worker.py). test_client.py and test_cli.py run the
real one.
"""

import base64
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fork_server
import httpx
import pytest
from factory.embedding import make_embedder
from processes import kill_parent, wait_until_gone
from waiting import WAIT_S, until

from backend.methods import cells
from backend.protocol.chat import AnswerText, Delta, ToolCall
from backend.protocol.messages import FINAL, VERSION, Decoder, encode
from backend.server.running import own_address
from backend.worker.outbox import Outbox

FAKE = Path(__file__).parents[1] / "fake_worker.py"
LOAD = {"cache_rate": 0.5, "method": "promoe", "context_length": 512, "n_thread": 1}


class Pipe:
    """A worker process; tests exchange single frames with it."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.decoder = Decoder()
        self.inbox: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.write(encode({"type": kind, **fields}))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def receive(self) -> dict[str, Any]:
        """Return the next message. Raises EOFError at the end."""
        assert self.process.stdout is not None
        while not self.inbox:
            if os.name == "posix":  # Windows cannot wait for a pipe
                assert select.select([self.process.stdout], [], [], WAIT_S)[0], "it says nothing"
            data = self.process.stdout.read(65536)
            if not data:
                raise EOFError
            self.inbox += self.decoder.feed(data)
        return self.inbox.pop(0)

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return all messages up to and with the first of this type."""
        messages = [self.receive()]
        while not wanted(messages[-1]):
            messages.append(self.receive())
        return messages

    def is_full(self) -> bool:
        """Return whether something is unread and nothing is written."""
        import fcntl  # Windows has neither
        import termios

        assert self.process.stdout is not None
        looks = []
        for _ in range(2):
            looks.append(fcntl.ioctl(self.process.stdout, termios.FIONREAD, bytes(4)))
            time.sleep(0.1)
        return looks[0] == looks[1] != bytes(4)

    def reply(self, job_id: int) -> list[dict[str, Any]]:
        return self.until(lambda m: m.get("id") == job_id and m["type"] in FINAL)

    def ready(self, path: str = "model") -> "Pipe":
        """Return a worker that was greeted and has loaded a model."""
        self.send("hello", version=VERSION)
        self.send("load", id=1000, path=path, **LOAD)
        assert self.reply(1000)[-1]["type"] == "loaded"
        return self

    def generate(self, job_id: int, prompt: str, **fields: Any) -> None:
        message = {"messages": [{"role": "user", "content": prompt}], "sampling": {}}
        self.send("generate", id=job_id, **{**message, "max_tokens": -1, **fields})


@pytest.fixture
def pipe(request: pytest.FixtureRequest) -> Iterator[Pipe]:
    own = [sys.executable, str(FAKE)]
    pipe = Pipe(
        own if hasattr(request, "param") else fork_server.command(own[1:], ("fake_worker",))
    )
    yield pipe
    pipe.process.kill()
    pipe.process.wait()
    for stream in (pipe.process.stdin, pipe.process.stdout, pipe.process.stderr):
        assert stream is not None
        stream.close()


needs_own_process = pytest.mark.parametrize("pipe", ["own"], indirect=True)
"""Of tests that know the worker's process id."""


def types(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


@needs_own_process
def test_worker_greets_without_being_asked(pipe: Pipe) -> None:
    hello = pipe.receive()
    assert hello["type"] == "hello" and hello["version"] == VERSION
    assert hello["pid"] == pipe.process.pid
    assert isinstance(hello["engine"], str) and hello["llama_cpp"]


def test_load_reports_progress_then_facts_then_the_map(pipe: Pipe) -> None:
    pipe.send("hello", version=VERSION)
    pipe.send("load", id=1, path="model", **LOAD)
    messages = pipe.reply(1)
    assert types(messages)[0] == "hello" and set(types(messages)[1:-1]) == {"loading"}
    assert messages[-1]["model"]["name"] == "model"
    assert messages[-1]["cache"]["rate"] == 0.5
    residency = pipe.receive()
    assert len(base64.b64decode(residency.pop("data"))) == 2 * 4
    assert residency == {"type": "residency", "id": 1, "moe_layers": [1, 2], "n_expert": 4}


def test_answer_text_is_whole_and_in_order(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "count 2000")
    messages = pipe.reply(1)
    texts = [m for m in messages if m["type"] == "text"]
    assert "".join(m["text"] for m in texts) == "".join(f"w{i} " for i in range(1, 2001))
    assert [token for m in texts for token in m["tokens"]] == list(range(1, 2001))
    assert [m["n_token"] for m in texts] == sorted(m["n_token"] for m in texts)
    assert texts[-1]["n_token"] == 2000
    done = messages[-1]
    assert (done["type"], done["reason"], done["stats"]["n_token"]) == ("done", "stop", 2000)
    assert types(messages).count("started") == 1
    assert types(messages).index("started") < types(messages).index("text")
    assert {"prefill", "residency"} <= set(types(messages))
    assert pipe.receive()["type"] == "residency"  # the map once more, after the end


def test_the_map_is_sent_again_when_the_last_copies_have_ended(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "count 3")
    pipe.reply(1)

    def is_settled(message: dict[str, Any]) -> bool:
        where = {cell & cells.WHERE for cell in base64.b64decode(message["data"])}
        return cells.ARRIVING not in where

    maps = pipe.until(is_settled)
    assert {(m["type"], m["id"]) for m in maps} == {("residency", 1)}
    pipe.send("ping", id=2)
    assert types(pipe.reply(2)) == ["pong"]  # once


def test_raw_prompt_goes_without_messages(pipe: Pipe) -> None:
    pipe.ready()
    pipe.send("generate", id=1, prompt="count 3", sampling={"seed": 1}, max_tokens=9)
    assert pipe.reply(1)[-1]["stats"]["n_token"] == 3


def test_stop_ends_the_answer_and_the_next_one_runs(pipe: Pipe) -> None:
    pipe.ready()
    for job_id in (1, 3):
        pipe.generate(job_id, "forever")
        pipe.until(lambda m: m["type"] == "text")
        pipe.send("stop", id=job_id)
        done = pipe.reply(job_id)[-1]
        assert (done["type"], done["reason"]) == ("done", "cancelled")
    pipe.generate(4, "count 2")
    assert pipe.reply(4)[-1]["reason"] == "stop"


def test_stop_right_behind_the_request_is_not_lost(pipe: Pipe) -> None:
    pipe.ready()
    for job_id in range(1, 30):
        pipe.generate(job_id, "forever")
        pipe.send("stop", id=job_id)
        assert pipe.reply(job_id)[-1]["reason"] == "cancelled"


def test_stop_of_a_waiting_request_leaves_the_running_one(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "forever")
    pipe.generate(2, "forever")
    pipe.until(lambda m: m["type"] == "text")
    pipe.send("stop", id=2)
    pipe.send("stop", id=77)  # an unknown request
    pipe.send("ping", id=3)
    n_token = pipe.reply(3)[-1]["n_token"]
    more = pipe.until(lambda m: m["type"] == "done" or m.get("n_token", 0) > n_token + 50)
    assert more[-1]["type"] == "text"
    pipe.send("stop", id=1)
    assert pipe.reply(1)[-1]["reason"] == "cancelled"
    second = pipe.reply(2)
    assert second[-1]["reason"] == "cancelled"
    assert sum(m["n_token"] for m in second if m["type"] == "text") <= 1


def test_loading_can_be_cancelled(pipe: Pipe) -> None:
    pipe.send("hello", version=VERSION)
    pipe.send("load", id=1, path="slow", **LOAD)
    pipe.until(lambda m: m["type"] == "loading")
    pipe.send("stop", id=1)
    assert pipe.reply(1)[-1] == {"type": "error", "id": 1, "message": "Loading was cancelled."}
    pipe.generate(2, "count 1")
    assert pipe.reply(2)[-1]["message"].id == "engine.no_model"


def test_ping_is_answered_while_the_engine_hangs(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "hang")
    pipe.until(lambda m: m["type"] == "text" and m["n_token"] == 3)
    pipe.send("ping", id=2)
    assert pipe.reply(2)[-1] == {"type": "pong", "id": 2, "n_token": 3}


def test_ping_counts_tokens(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "forever")
    pipe.until(lambda m: m["type"] == "text")
    pipe.send("ping", id=2)
    assert pipe.reply(2)[-1]["n_token"] >= 1


def test_figures_come_while_it_answers(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "forever")
    for _ in range(2):
        stats = pipe.until(lambda m: m["type"] == "stats")[-1]
        assert stats["id"] == 1 and stats["stats"]["n_prompt"] == 5


def test_map_goes_out_while_no_token_comes(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "hang")
    pipe.until(lambda m: m["type"] == "text" and m["n_token"] == 3)
    for _ in range(3):
        assert pipe.until(lambda m: m["type"] == "residency")[-1]["id"] == 1


def test_cache_rate_changes_within_an_answer(pipe: Pipe) -> None:
    pipe.ready()
    pipe.send("configure", id=1, **{**LOAD, "cache_rate": 0.75})
    assert pipe.reply(1)[-1]["cache"]["rate"] == 0.75
    pipe.generate(2, "forever")
    pipe.until(lambda m: m["type"] == "text")
    pipe.send("configure", id=3, **{**LOAD, "cache_rate": 0.5})
    assert pipe.reply(3)[-1]["cache"]["rate"] == 0.5
    pipe.until(lambda m: m["type"] == "text")
    pipe.send("configure", id=5, **{**LOAD, "cache_rate": 7})
    assert pipe.reply(5)[-1]["message"] == "The setting cache_rate must be 0 to 1, not 7."
    pipe.until(lambda m: m["type"] == "text")


def test_settings_that_change_more_than_the_cache_wait_for_the_end(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "forever")
    pipe.until(lambda m: m["type"] == "text")
    pipe.send("configure", id=2, **{**LOAD, "cache_rate": 1})
    pipe.send("configure", id=3, **{**LOAD, "cache_rate": 0.5})
    pipe.send("ping", id=4)
    until_pong = pipe.until(lambda m: m["type"] == "pong")
    more = pipe.until(lambda m: m["type"] == "text")
    assert not [m for m in until_pong + more if m["type"] == "configured"]
    pipe.send("stop", id=1)
    ended = pipe.until(lambda m: m.get("id") == 3 and m["type"] == "configured")
    final = [m for m in ended if m["type"] in ("done", "configured")]
    assert [m["id"] for m in final] == [1, 2, 3]
    assert [m["cache"]["rate"] for m in final[1:]] == [1, 0.5]


def test_unload_then_no_model(pipe: Pipe) -> None:
    pipe.ready()
    pipe.send("unload", id=1)
    assert pipe.reply(1)[-1] == {"type": "unloaded", "id": 1}
    pipe.generate(2, "count 1")
    assert pipe.reply(2)[-1]["message"].id == "engine.no_model"


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        ("fail", "The model's file could not be read any more."),
        ("odd", "Something unexpected failed (KeyError: 'surprise')."),
    ],
)
def test_engine_error_ends_the_request_only(pipe: Pipe, prompt: str, sentence: str) -> None:
    pipe.ready()
    pipe.generate(1, prompt)
    messages = pipe.reply(1)
    assert messages[-1] == {"type": "error", "id": 1, "message": sentence}
    assert "".join(m["text"] for m in messages if m["type"] == "text") == "w1 w2 w3 "
    pipe.generate(2, "count 1")
    assert pipe.reply(2)[-1]["type"] == "done"


def test_an_answer_comes_split_and_raw(pipe: Pipe) -> None:
    """Thought, content and calls are joined in batches, in order."""
    call = [0, "id7", "look", '{"a":']
    said: list[tuple[str, dict[str, Any]]] = [
        ("<think>", {}),
        ("so", {"reasoning": "so"}),
        ("</think>", {}),
        ("yes", {"content": "yes"}),
        ("<call>look {", {"tool_calls": [call]}),
        ("1}", {"tool_calls": [[0, "", "", "1}"]]}),
    ]
    pipe.ready()
    pipe.generate(1, f"say {json.dumps(said)}")
    texts = [m for m in pipe.reply(1) if m["type"] == "text"]
    assert "".join(m["text"] for m in texts) == "".join(raw for raw, _ in said)
    answer = AnswerText()
    for message in texts:
        answer.add(Delta.from_json(message))
    assert answer == AnswerText("so", "yes", [ToolCall("id7", "look", '{"a":1}')])


def test_a_conversation_is_rendered_with_its_options(pipe: Pipe) -> None:
    pipe.ready()
    turns = [{"role": "user", "content": "hello"}]
    for options in ({}, {"thinking": False, "stops": ["a"]}):
        pipe.send("format", id=1, messages=turns, options=options)
        final = pipe.reply(1)[-1]
        assert (final["type"], json.loads(final["prompt"])) == ("formatted", [turns, options])
    for kind in ("format", "generate"):
        pipe.send(kind, id=2, messages=turns, options={"mood": 1}, sampling={}, max_tokens=-1)
        assert "'mood'" in pipe.reply(2)[-1]["message"]


def test_load_error_is_one_sentence_and_another_load_works(pipe: Pipe) -> None:
    pipe.send("hello", version=VERSION)
    pipe.send("load", id=1, path="broken", **LOAD)
    assert pipe.reply(1)[-1]["message"] == "The file is broken."
    pipe.send("load", id=2, path="model", **{**LOAD, "cache_rate": 7})
    assert pipe.reply(2)[-1]["type"] == "error"
    pipe.send("load", id=3, path="model", **LOAD)
    assert pipe.reply(3)[-1]["type"] == "loaded"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sampling": {"temperature": -1}}, "temperature"),
        ({"sampling": {"temperature": "hot"}}, "temperature must be a number"),
        ({"sampling": {"warmth": 1}}, "'warmth'"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
    ],
)
def test_settings_out_of_range_are_refused(pipe: Pipe, fields: dict[str, Any], words: str) -> None:
    pipe.ready()
    pipe.generate(1, "count 1", **fields)
    final = pipe.reply(1)[-1]
    assert final["type"] == "error" and words in final["message"]


def test_malformed_requests_get_an_error_and_the_worker_goes_on(pipe: Pipe) -> None:
    pipe.send("ping", id=1)
    assert "hello" in pipe.reply(1)[-1]["message"]
    pipe.ready()
    pipe.send("dance", id=2)
    assert "dance" in pipe.reply(2)[-1]["message"]
    pipe.send("generate", id=3)
    assert pipe.reply(3)[-1]["type"] == "error"
    pipe.write(encode({"no": "type"}))
    assert pipe.until(lambda m: m["type"] == "error")[-1]["id"] is None
    pipe.generate(4, "forever")
    pipe.generate(4, "forever")
    assert "already in use" in pipe.until(lambda m: m["type"] == "error")[-1]["message"]
    pipe.send("ping", id=5)
    assert pipe.reply(5)[-1]["type"] == "pong"


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01?", b"\x00\x00\x00\x02[]", b"GET / HTTP/1.1"]
)
def test_a_frame_that_cannot_be_trusted_ends_the_worker(pipe: Pipe, data: bytes) -> None:
    pipe.ready()
    pipe.write(data)
    error = pipe.until(lambda m: m["type"] == "error")[-1]
    assert error["id"] is None and error["message"].endswith(".")
    assert pipe.process.wait(WAIT_S) == 2


def test_client_of_another_version_is_refused(pipe: Pipe) -> None:
    pipe.send("hello", version=VERSION + 1)
    assert "version" in pipe.until(lambda m: m["type"] == "error")[-1]["message"]
    assert pipe.process.wait(WAIT_S) == 2


@pytest.mark.parametrize("state", ["idle", "loading", "answering", "hanging"])
@pytest.mark.parametrize("way", ["end of input", "shutdown"])
def test_worker_leaves_in_every_state(pipe: Pipe, state: str, way: str) -> None:
    if state == "loading":
        pipe.send("hello", version=VERSION)
        pipe.send("load", id=1, path="slow", **LOAD)
        pipe.until(lambda m: m["type"] == "loading")
    else:
        pipe.ready()
    if state in ("answering", "hanging"):
        pipe.generate(1, "forever" if state == "answering" else "hang")
        pipe.until(lambda m: m["type"] == "started")
    if way == "shutdown":
        pipe.send("shutdown")
    else:
        assert pipe.process.stdin is not None
        pipe.process.stdin.close()
    assert pipe.process.wait(WAIT_S) == 0


def test_worker_leaves_when_nobody_reads(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "forever")
    assert pipe.process.stdout is not None
    pipe.process.stdout.close()
    assert pipe.process.wait(WAIT_S) == 0


@pytest.mark.skipif(os.name == "nt", reason="it looks into a pipe of POSIX")
def test_a_slow_reader_blocks_neither_stop_nor_the_end(pipe: Pipe) -> None:
    pipe.ready()
    pipe.generate(1, "count 200000")  # more than a pipe holds, while nobody reads
    until(pipe.is_full)
    pipe.send("stop", id=1)
    messages = pipe.reply(1)
    text = "".join(m["text"] for m in messages if m["type"] == "text")
    n_token = messages[-1]["stats"]["n_token"]
    assert text == "".join(f"w{i} " for i in range(1, n_token + 1))


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.skipif(sys.platform != "linux", reason="the file is Linux's")
@needs_own_process
def test_a_shortage_of_memory_ends_the_engine_before_the_window(pipe: Pipe) -> None:
    pipe.receive()
    adjustment = Path(f"/proc/{pipe.process.pid}/oom_score_adj").read_text()
    assert int(adjustment) > int(Path("/proc/self/oom_score_adj").read_text())


@needs_own_process
def test_interrupt_from_the_terminal_is_ignored(pipe: Pipe) -> None:
    pipe.ready()
    pipe.process.send_signal(signal.SIGINT)
    pipe.send("ping", id=1)
    assert pipe.reply(1)[-1]["type"] == "pong"


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_worker_is_gone_soon_after_its_parent_was_killed() -> None:
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, {str(FAKE)!r}], stdin=subprocess.PIPE)\n"
        "print(p.pid, flush=True); time.sleep(60)\n"
    )
    wait_until_gone(kill_parent(code))


# Other settings, and the local server.


def test_settings_change_between_answers(pipe: Pipe) -> None:
    pipe.ready()
    pipe.send("configure", id=1, **{**LOAD, "cache_rate": 0.75})
    done = pipe.reply(1)[-1]
    assert (done["type"], done["cache"]["asked_rate"]) == ("configured", 0.75)
    pipe.send("configure", id=2, **{**LOAD, "method": "nonsense"})
    assert "nonsense" in pipe.reply(2)[-1]["message"]


def test_the_server_answers_in_turns_with_the_client(pipe: Pipe) -> None:
    pipe.ready()
    pipe.send("serve", id=1, on=True, port=0, key="secret")
    served = pipe.reply(1)[-1]
    assert served["on"] and served["trouble"] == "" and served["address"].endswith("/v1")
    headers = {"Authorization": "Bearer secret"}
    url = served["address"]
    assert httpx.get(f"{url}/models").status_code == 401
    assert httpx.get(f"{url}/models", headers=headers).json()["data"][0]["id"] == "model"
    body = {"prompt": "count 5", "max_tokens": 100}
    asked = httpx.post(f"{url}/completions", json=body, headers=headers, timeout=WAIT_S).json()
    assert asked["choices"][0]["text"] == "w1 w2 w3 w4 w5 "
    # The client's answer waits for the answer to a program, and a message says so.
    stream = {"prompt": "endless", "max_tokens": 100_000, "stream": True}
    with httpx.stream("POST", f"{url}/completions", json=stream, headers=headers) as reply:
        pieces = reply.iter_bytes()  # kept, because the connection ends with it
        next(pieces)
        pipe.send("generate", id=2, prompt="count 3", sampling={}, max_tokens=-1)
        first = pipe.until(lambda m: m.get("id") == 2)[-1]
        assert (first["type"], first["n_before"]) == ("waits", 1)
    assert pipe.reply(2)[-1]["reason"] == "stop"
    pipe.send("serve", id=3, on=False, port=0, key="")
    off = pipe.reply(3)[-1]
    assert not off["on"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models", headers=headers)


def test_programs_get_embeddings_of_a_small_model(pipe: Pipe, tmp_path: Path) -> None:
    pipe.ready()
    small = make_embedder(tmp_path / "small.gguf")
    body, headers = {"input": "the cat"}, {"Authorization": "Bearer secret"}
    for i, (path, status, trouble) in enumerate(
        [
            (str(small), 200, ""),
            ("", 501, ""),
            (str(tmp_path / "none.gguf"), 501, "none.gguf"),
            (str(small), 200, ""),
        ]
    ):
        pipe.send("serve", id=i, on=True, port=0, key="secret", embedding_model=path)
        served = pipe.reply(i)[-1]
        assert served["on"] and trouble in served["trouble"]
        assert bool(served["trouble"]) == bool(trouble)
        url = f"{served['address']}/embeddings"
        assert httpx.post(url, json=body, headers=headers, timeout=WAIT_S).status_code == status


def test_a_port_that_is_taken_and_a_missing_key_are_said(pipe: Pipe) -> None:
    pipe.ready()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        pipe.send("serve", id=1, on=True, port=taken.getsockname()[1], key="k")
        said = pipe.reply(1)[-1]
    assert not said["on"] and said["trouble"].startswith("Port ")
    pipe.send("serve", id=2, on=True, port=0, key=" ")
    assert pipe.reply(2)[-1]["message"] == "The server needs a key."
    pipe.send("serve", id=3, on=True, port=70000, key="k")
    assert "65535" in pipe.reply(3)[-1]["message"]


def test_an_old_key_is_refused_as_soon_as_there_is_a_new_one(pipe: Pipe) -> None:
    pipe.ready()
    url, port = "", 0
    for number, key in enumerate(("first", "old", "new")):
        pipe.send("serve", id=number, on=True, port=port, key=key)
        served = pipe.reply(number)[-1]
        url, port = served["address"], served["port"]
    for key, status in (("old", 401), ("new", 200)):
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{url}/models", headers=headers, timeout=WAIT_S).status_code == status


def test_another_model_ends_what_a_program_waits_for(pipe: Pipe) -> None:
    pipe.ready()
    pipe.send("serve", id=1, on=True, port=0, key="k")
    url = pipe.reply(1)[-1]["address"]
    body = {"prompt": "endless", "max_tokens": 100_000, "stream": True}
    with httpx.stream(
        "POST",
        f"{url}/completions",
        json=body,
        headers={"Authorization": "Bearer k"},
        timeout=WAIT_S,
    ) as reply:
        lines = reply.iter_lines()
        next(lines)
        pipe.send("load", id=2, path="other", **LOAD)
        assert pipe.reply(2)[-1]["type"] == "loaded"
        assert [line for line in lines if line][-1] == "data: [DONE]"


class Program:
    """A program that uses the worker's server."""

    def __init__(self, pipe: Pipe, **fields: Any) -> None:
        self.pipe, self.fields = pipe, fields
        pipe.send("serve", id=900, on=True, port=0, key="k", **fields)
        self.served = pipe.reply(900)[-1]
        self.url = self.served["address"]
        self.headers = {"Authorization": "Bearer k"}

    def ask(self, model: str) -> httpx.Response:
        body = {"prompt": "count 2", "max_tokens": 9, "model": model}
        return httpx.post(
            f"{self.url}/completions", json=body, headers=self.headers, timeout=WAIT_S
        )

    def models(self) -> list[str]:
        listed = httpx.get(f"{self.url}/models", headers=self.headers).json()["data"]
        return [model["id"] for model in listed]


def test_the_cache_rate_moves_while_programs_are_answered(pipe: Pipe) -> None:
    """Between two passes of answers that have no end, with and without the client's own."""
    program = Program(pipe.ready("joint"))
    body = {"prompt": "endless", "max_tokens": 100_000_000, "stream": True}
    to = f"{program.url}/completions"
    with httpx.stream("POST", to, json=body, headers=program.headers, timeout=WAIT_S) as reply:
        pieces = reply.iter_bytes()
        next(pieces)
        pipe.send("configure", id=2, **{**LOAD, "cache_rate": 0.75})
        assert pipe.reply(2)[-1]["cache"]["rate"] == 0.75
        next(pieces)
        pipe.generate(3, "endless")
        pipe.until(lambda m: m["type"] == "text")
        pipe.send("configure", id=4, **{**LOAD, "cache_rate": 0.25})
        assert pipe.reply(4)[-1]["cache"]["asked_rate"] == 0.25
        next(pieces)
        pipe.until(lambda m: m["type"] == "text")
        pipe.send("stop", id=3)
        assert pipe.reply(3)[-1]["reason"] == "cancelled"
        next(pieces)


def test_a_server_is_switched_off_while_requests_wait(pipe: Pipe) -> None:
    """They are refused at once, although the engine is busy with the client's own answer."""
    program = Program(pipe.ready())
    pipe.generate(2, "endless")
    pipe.until(lambda m: m["type"] == "text")
    answers: list[httpx.Response] = []
    askers = [
        threading.Thread(target=lambda: answers.append(program.ask("model"))) for _ in range(3)
    ]
    for asker in askers:
        asker.start()
    pipe.until(lambda m: m["type"] == "server" and m["n_open"] == 3)
    pipe.send("serve", id=3, on=False, port=0, key="")
    assert not pipe.reply(3)[-1]["on"]
    for asker in askers:
        asker.join(WAIT_S)
    assert [answer.status_code for answer in answers] == [503] * 3
    assert {answer.json()["error"]["message"] for answer in answers} == {
        "The answer was stopped on this side; ask again."
    }


def test_messages_keep_their_order() -> None:
    """Of progress and of the server's facts, which a reply has, too, unsent ones are replaced."""
    out_fd, in_fd = os.pipe()
    outbox = Outbox(in_fd, lambda _: None)
    for n in range(3):
        outbox.offer({"type": "loading", "n": n})
        outbox.offer({"type": "server", "n": n})
    outbox.send({"type": "server", "n": 3})
    outbox.send({"type": "reloaded", "n": 4})
    outbox.close(WAIT_S)
    os.close(in_fd)
    with open(out_fd, "rb") as pipe:
        told = Decoder().feed(pipe.read())
    numbers = [message["n"] for message in told]
    assert numbers == sorted(numbers) and numbers[-2:] == [3, 4]


def test_a_raw_prompt_is_answered_beside_programs(pipe: Pipe) -> None:
    program = Program(pipe.ready("joint"))
    body = {"prompt": "endless", "max_tokens": 100_000_000, "stream": True}
    to = f"{program.url}/completions"
    with httpx.stream("POST", to, json=body, headers=program.headers, timeout=WAIT_S) as reply:
        pieces = reply.iter_bytes()
        next(pieces)
        pipe.send("generate", id=2, prompt="count 3", sampling={}, max_tokens=-1)
        messages = pipe.reply(2)
        next(pieces)
    assert "waits" not in types(messages) and messages[-1]["reason"] == "stop"
    said = "".join(m["text"] for m in messages if m["type"] == "text")
    assert said == "w1 w2 w3 " and messages[-1]["stats"]["n_token"] == 3


def test_a_program_names_a_model_and_the_client_gets_its_own_again(pipe: Pipe) -> None:
    pipe.ready()
    models = {"mine": "model", "other": "other", "broken": "broken"}
    program = Program(pipe, models=models, settings={"cache_rate": 1.0})
    assert program.models() == ["mine", "other", "broken"]
    assert program.ask("gpt-4o").json()["model"] == "mine"
    assert program.ask("other").json()["model"] == "other"
    told = pipe.until(lambda m: m["type"] == "server" and m["model"] == "other")
    of_other = types(told)[types(told).index("loading") :]
    assert not told[-1]["is_own"] and "residency" not in of_other
    assert program.ask("gpt-4o").json()["model"] == "other"
    # The client's requests are for its own model, with the settings that it had.
    pipe.generate(2, "count 3")
    reply = pipe.reply(2)
    loaded = next(m for m in reply if m["type"] == "reloaded")
    assert (loaded["model"]["name"], loaded["cache"]["rate"]) == ("model", 0.5)
    assert reply[-1]["stats"]["n_token"] == 3 and "loading" in types(reply)
    assert program.ask("gpt-4o").json()["model"] == "mine"
    refused = program.ask("broken")
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "The file is broken.")
    pipe.send("configure", id=3, **{**LOAD, "cache_rate": 0.75})
    assert pipe.reply(3)[-1]["cache"]["rate"] == 0.75
    pipe.send("configure", id=4, **{**LOAD, "cache_rate": 0.25})
    assert pipe.reply(4)[-1]["cache"]["rate"] == 0.25
    assert program.ask("other").json()["model"] == "other"
    pipe.send("count", id=5, text="hello")
    loaded = next(m for m in pipe.reply(5) if m["type"] == "reloaded")
    assert (loaded["model"]["name"], loaded["cache"]["rate"]) == ("model", 0.25)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("format", {"messages": [{"role": "user", "content": "hello"}]}),
        ("count", {"text": "hello"}),
        ("configure", {**LOAD, "cache_rate": 0.75}),
    ],
)
def test_a_model_that_a_program_named_answers_nothing_of_the_clients(
    pipe: Pipe, kind: str, fields: dict[str, Any]
) -> None:
    """Its template, tokens and settings are others. Nor does it go before the program is done."""
    program = Program(pipe.ready(), models={"other": "other"})
    body = {"prompt": "endless", "max_tokens": 100_000_000, "stream": True, "model": "other"}
    to = f"{program.url}/completions"
    with httpx.stream("POST", to, json=body, headers=program.headers, timeout=WAIT_S) as reply:
        pieces = reply.iter_bytes()
        next(pieces)
        pipe.send(kind, id=2, **fields)
        for _ in range(30):
            next(pieces)
        pipe.send("ping", id=3)
        assert "reloaded" not in types(pipe.until(lambda m: m["type"] == "pong"))
    messages = pipe.reply(2)
    (loaded,) = [m for m in messages if m["type"] == "reloaded"]
    assert loaded["model"]["name"] == "model" and messages[-1]["type"] != "error"


def test_the_same_server_goes_on_with_other_models(pipe: Pipe) -> None:
    pipe.ready()
    program = Program(pipe)
    assert program.models() == ["model"] and program.ask("other").json()["model"] == "model"
    again = Program(pipe, models={"other": "other"}, settings={})
    assert again.url == program.url and program.models() == ["model", "other"]
    assert program.ask("other").json()["model"] == "other"
    pipe.send("load", id=2, path="slow", **LOAD)
    pipe.until(lambda m: m["type"] == "loading")
    pipe.send("stop", id=2)
    assert pipe.reply(2)[-1]["type"] == "error"
    pipe.generate(3, "count 2")
    assert pipe.reply(3)[-1]["message"] == "No model is loaded."
    assert program.ask("any").json()["model"] == "other"
    pipe.send("serve", id=4, on=True, port=0, key="k", models={"other": ""})
    assert '"models"' in pipe.reply(4)[-1]["message"]
    pipe.send("serve", id=5, on=True, port=0, key="k", settings={"cache_rate": 7})
    assert "cache_rate" in pipe.reply(5)[-1]["message"]


def test_the_client_says_who_else_may_ask(pipe: Pipe) -> None:
    def serve(key: str, **fields: Any) -> dict[str, Any]:
        pipe.send("serve", id=900, on=True, port=0, key=key, **fields)
        return pipe.reply(900)[-1]

    def from_page(url: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {'k' * 16}", "Origin": "https://chat.example"}
        return httpx.get(f"{url}/models", headers=headers, timeout=WAIT_S)

    pipe.ready()
    first = serve("k" * 16)["address"]
    assert from_page(first).status_code == 403
    named = serve("k" * 16, origins="  https://Chat.example app://notes ")["address"]
    assert named != first
    shared = from_page(named).headers["access-control-allow-origin"]
    assert shared == "https://chat.example"
    refused = serve("k" * 16, origins="https://chat.example/path")
    assert not refused["on"] and refused["trouble"].startswith("A page's origin is such as")
    refused = serve("k" * 15, is_open=True)
    assert not refused["on"] and "at least 16 characters" in refused["trouble"]
    if sys.platform == "linux":  # where each address 127.x.y.z is this machine's
        for is_open in (False, True):
            place = serve("k" * 16, is_open=is_open)
            shown = own_address() if is_open else "127.0.0.1"
            assert place["address"] == f"http://{shown}:{place['port']}/v1"
            url = f"http://127.0.0.2:{place['port']}/health"
            if is_open:
                assert httpx.get(url, timeout=WAIT_S).status_code == 200
            else:
                with pytest.raises(httpx.ConnectError):
                    httpx.get(url, timeout=WAIT_S)


def test_a_model_that_a_program_loads_gives_way_to_the_clients(pipe: Pipe) -> None:
    pipe.ready()
    program = Program(pipe, models={"slow": "slow"})
    answers: list[httpx.Response] = []
    asker = threading.Thread(target=lambda: answers.append(program.ask("slow")))
    asker.start()
    pipe.until(lambda m: m["type"] == "loading")
    pipe.send("load", id=2, path="other", **LOAD)
    assert pipe.reply(2)[-1]["model"]["name"] == "other"
    asker.join(WAIT_S)
    assert answers[0].status_code == 503


def test_a_model_without_work_is_freed_and_loaded_again(pipe: Pipe) -> None:
    pipe.ready()
    program = Program(pipe, unload_after_s=1)
    # A start of the server may take longer than that: its reply says then that none is loaded.
    freed = program.served
    while freed["model"]:
        freed = pipe.until(lambda m: m["type"] == "server")[-1]
    assert freed["on"] and not freed["is_own"]
    assert program.ask("any").json()["model"] == "model"
    # Only the newest news are sent. No model is loaded after an answer: it was freed again.
    pipe.until(
        lambda m: m["type"] == "server" and m["n_request"] and not (m["n_open"] or m["model"])
    )
    pipe.generate(2, "count 3")
    assert pipe.reply(2)[-1]["stats"]["n_token"] == 3


def test_a_model_stays_where_no_server_could_be_started(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text("{}")
    pipe.send("hello", version=VERSION)
    pipe.send("load", id=1, path=str(path), **LOAD)
    assert pipe.reply(1)[-1]["type"] == "loaded"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        pipe.send("serve", id=2, on=True, port=port, key="k", unload_after_s=1)
        assert pipe.reply(2)[-1]["trouble"]
    path.write_text('{"n_slot_left": 5}')  # which the worker sees while it looks after the model
    assert pipe.until(lambda m: m["type"] == "cache_changed")[-1]["cache"]["n_slot"] == 5


def test_a_stop_while_the_clients_model_is_loaded_again(pipe: Pipe, tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"load_s": 1}')
    pipe.send("hello", version=VERSION)
    pipe.send("load", id=1, path=str(tmp_path / "m"), **LOAD)
    assert pipe.reply(1)[-1]["type"] == "loaded"
    program = Program(pipe, models={"other": "other"})
    assert program.ask("other").json()["model"] == "other"
    pipe.generate(2, "hello")
    pipe.until(lambda m: m["type"] == "loading" and m["id"] == 2)
    pipe.send("stop", id=2)
    assert pipe.reply(2)[-1]["reason"] == "cancelled"


def test_files_are_read_while_the_engine_answers(pipe: Pipe, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some words", encoding="utf-8")
    pipe.ready()
    pipe.generate(1, "until it is stopped")
    pipe.send("attach", id=2, path=str(tmp_path / "a.txt"))
    pipe.send("attach", id=3, path=str(tmp_path))
    file = pipe.reply(2)[-1]["file"]
    assert (file["name"], file["kind"], file["text"]) == ("a.txt", "text", "some words")
    assert "is a folder" in pipe.reply(3)[-1]["refusal"]
    pipe.send("stop", id=1)
    pipe.send("count", id=4, text=file["text"])
    assert pipe.reply(4)[-1]["n_token"] == 2
    content = [{"type": "file", "name": "a", "text": "x"}, {"type": "text", "text": "count 3"}]
    pipe.generate(5, "", messages=[{"role": "user", "content": content}])
    assert pipe.reply(5)[-1]["stats"]["n_token"] == 3


def test_a_file_that_is_no_longer_wanted_is_not_read(pipe: Pipe, tmp_path: Path) -> None:
    """This holds without a model, too."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("words", encoding="utf-8")
    pipe.send("hello", version=VERSION)
    for number, name in enumerate(("a.txt", "b.txt"), 1):
        pipe.send("attach", id=number, path=str(tmp_path / name))
    pipe.send("stop", id=2)
    assert pipe.reply(1)[-1]["file"]["name"] == "a.txt"
    assert "was not read to its end" in pipe.reply(2)[-1]["refusal"]


def test_without_a_model_a_deleted_chat_leaves_nothing_and_others_stay(
    pipe: Pipe, states_folder: Path
) -> None:
    for owner in ("chat-1", "chat-2"):
        (states_folder / owner).mkdir(parents=True)
    pipe.send("hello", version=VERSION)
    for owner in ("", ".", "..", "../states", "chat-2/", "/chat-2", "*", "chat-*", "Chat-2"):
        pipe.send("forget", owner=owner)
        assert '"owner"' in pipe.until(lambda m: m["type"] == "error")[-1]["message"]
    pipe.send("forget", owner="chat-1")
    until(lambda: not (states_folder / "chat-1").exists())
    assert (states_folder / "chat-2").exists()
