"""The client's side of the pipe: replies, deaths and their sentences."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fork_server
import httpx
import pytest
from endless import make_endless
from factory import make_tiny
from processes import DATA_HOME, kill_parent, wait_until_gone
from waiting import WAIT_S, until

from backend.learning.recordings import n_token
from backend.protocol.client import RequestFailed, WorkerClient, WorkerDied, worker_command
from backend.protocol.worker_exit import describe_exit, has_crashed, was_told
from backend.system.paths import embedded_model

FAKE = [str(Path(__file__).parents[1] / "fake_worker.py")]
LOAD = {"cache_rate": 0.5, "method": "promoe", "context_length": 512, "n_thread": 1}
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@pytest.fixture
def client() -> Iterator[WorkerClient]:
    with WorkerClient(fork_server.command(FAKE, ("fake_worker",))) as client:
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
        ("print('hello')", "could not be understood"),
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
        "from backend.protocol.messages import encode\n"
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
    process.communicate(timeout=WAIT_S)
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
        (-6, "ggml-rpc.cpp:9: Remote RPC server crashed or so", "device no longer answers"),
        (-6, "CUDA error: out of memory\n  current device: 0", "(CUDA: out of memory)"),
        (-200, "", "signal 200"),
        (0, "", "without an error"),
        (7, "", "status 7"),
        (1, "MemoryError", "memory ran out"),
        (0xC0000005, "", "access violation"),
        (0xC0000017, "", "memory ran out"),
        (0xC0000005 - (1 << 32), "", "access violation"),
        (0xC000013A, "", "told to end"),
        (None, "", "closed its pipe"),
    ],
)
def test_every_exit_is_one_plain_sentence(
    returncode: int | None, stderr_tail: str, words: str
) -> None:
    sentence = describe_exit(returncode, stderr_tail)
    assert words in sentence
    assert sentence.endswith(".") and "\n" not in sentence


@pytest.mark.parametrize(
    ("returncode", "crashed", "told"),
    [
        (0, False, False), (1, False, False), (130, False, False), (-6, True, False),
        (-9, True, True), (-15, True, True), (3, True, False), (0xC0000409, True, False),
        (0xC000013A, True, True),
    ],
)  # fmt: skip
def test_a_crash_is_known_by_its_exit_status(returncode: int, crashed: bool, told: bool) -> None:
    assert has_crashed(returncode) == crashed
    assert was_told(returncode, had_memory=True) == told


# The real engine on a tiny model.


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_endless(tmp_path_factory.mktemp("client") / "tiny.gguf")


@pytest.fixture(scope="module")
def real(tiny: Path) -> Iterator[WorkerClient]:
    with WorkerClient() as client:
        loaded = client.request("load", path=str(tiny), **LOAD).final()
        assert loaded["model"]["moe_layers"] == [0, 1, 2]
        assert loaded["cache"]["n_slot"] == 4
        yield client


GREEDY = {"temperature": 0.0}


def answer(client: WorkerClient, n_token: int, **fields: Any) -> list[dict[str, Any]]:
    request = {"prompt": "the and of to", "sampling": GREEDY, "max_tokens": n_token, **fields}
    return list(client.request("generate", **request))


def tokens(messages: list[dict[str, Any]]) -> list[int]:
    return [token for m in messages if m["type"] == "text" for token in m["tokens"]]


def test_real_answer_and_its_figures(real: WorkerClient) -> None:
    messages = answer(real, 24)
    done = messages[-1]
    assert (done["type"], done["reason"]) == ("done", "length")
    stats = done["stats"]
    assert stats["n_token"] == len(tokens(messages)) == 24
    assert [layer["layer"] for layer in stats["layers"]] == [0, 1, 2]
    for name in ("hits", "late", "misses", "bytes_read"):
        assert stats[name] == sum(layer[name] for layer in stats["layers"])
    used = stats["hits"] + stats["late"] + stats["misses"]
    assert used >= 2 * 3 * (stats["n_token"] - 1)
    started = next(m for m in messages if m["type"] == "started")
    assert started["n_prompt"] == stats["n_prompt"] > 0


def test_real_map_has_a_byte_for_each_expert(real: WorkerClient) -> None:
    reply = real.request("generate", prompt="the", sampling=GREEDY, max_tokens=-1)
    snapshots = [m for m in reply if m["type"] == "residency"]
    assert snapshots
    for message in snapshots:
        data = base64.b64decode(message["data"])
        assert len(data) == len(message["moe_layers"]) * message["n_expert"] == 3 * 8
        for row in range(3):
            states = [byte & 3 for byte in data[8 * row : 8 * row + 8]]
            assert all(state in (0, 1, 2) for state in states)
            assert sum(state != 0 for state in states) <= 4


def test_real_answer_is_the_same_at_every_rate(real: WorkerClient) -> None:
    said = {}
    for rate in (0.0, 0.5, 0.75, 1.0):
        cache = real.request("configure", **{**LOAD, "cache_rate": rate}).final()["cache"]
        assert cache["asked_rate"] == rate and cache["rate"] >= max(rate, 0.25)
        assert cache["mode"] == ("plain" if rate == 1.0 else "cached")
        said[rate] = tokens(answer(real, 16))
    real.request("configure", **{**LOAD, "cache_rate": 0.5}).final()
    assert said[0.0] == said[0.5] == said[0.75]
    # At 1.0 stock llama.cpp may use a faster weight layout, whose rounding differs.
    assert len(said[1.0]) == 16


def test_real_stop_ends_within_a_token_or_two(real: WorkerClient) -> None:
    reply = real.request("generate", prompt="the", sampling=GREEDY, max_tokens=-1)
    n_before = 0
    for message in reply:
        if message["type"] == "text":
            n_before = message["n_token"]
            real.stop(reply)
            break
    rest = list(reply)
    assert rest[-1]["type"] == "done"
    assert rest[-1]["reason"] in ("cancelled", "context")
    assert rest[-1]["stats"]["n_token"] >= n_before


def test_real_answer_after_a_stop_is_whole(real: WorkerClient) -> None:
    expected = tokens(answer(real, 4))
    turns = [{"role": "user", "content": "the and of"}]
    request: dict[str, Any] = {"sampling": GREEDY, "max_tokens": -1}
    for _ in range(20):
        reply = real.request("generate", messages=turns, **request)
        text = ""
        for message in reply:
            if message["type"] == "text":
                if not text:
                    real.stop(reply)
                text += message["text"]
        # To go on with the answer reuses all tokens up to the stop.
        said = [*turns, {"role": "assistant", "content": text}]
        more = list(real.request("generate", messages=said, **{**request, "max_tokens": 2}))
        assert more[-1]["reason"] == "length" and len(tokens(more)) == 2
    assert tokens(answer(real, 4)) == expected


def test_real_rate_of_one_and_back_again(real: WorkerClient) -> None:
    expected = tokens(answer(real, 4))
    for _ in range(3):
        real.request("configure", **{**LOAD, "cache_rate": 1.0}).final()
        assert len(tokens(answer(real, 4))) == 4
        real.request("configure", **{**LOAD, "cache_rate": 0.5}).final()
        assert tokens(answer(real, 4)) == expected


def test_real_models_one_after_the_other(real: WorkerClient, tiny: Path) -> None:
    for rate in (0.25, 1.0, 0.5):
        load = {**LOAD, "cache_rate": rate, "path": str(tiny)}
        assert real.request("load", **load).final()["cache"]["asked_rate"] == rate
        assert len(tokens(answer(real, 4))) == 4


def test_real_prompt_longer_than_the_context_names_both_counts(real: WorkerClient) -> None:
    with pytest.raises(RequestFailed) as caught:
        real.request("generate", prompt="the " * 3000, sampling=GREEDY, max_tokens=1).final()
    assert "512" in str(caught.value)
    assert len(re.findall(r"\d+", str(caught.value))) >= 2


KEY = {"Authorization": "Bearer secret"}
TURNS = [{"role": "user", "content": "the and of"}]


@pytest.fixture(scope="module")
def data_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent of the data folder of the worker that serves programs."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def served(data_home: Path) -> Iterator[tuple[WorkerClient, httpx.Client]]:
    """A client, and the server for other programs of its worker, with room for long answers."""
    model = make_endless(data_home / "long.gguf", n_context=4096)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DATA_HOME, str(data_home))
        client = WorkerClient()
    with client:
        client.request("load", path=str(model), **{**LOAD, "context_length": 4096}).final()
        on = client.request("serve", on=True, port=0, key="secret").final()
        with httpx.Client(base_url=on["address"], headers=KEY, timeout=WAIT_S) as program:
            yield client, program


def ask_program(program: httpx.Client, n_token: int, **more: Any) -> Any:
    body = {"messages": TURNS, "temperature": 0, "max_tokens": n_token, **more}
    return program.stream("POST", "chat/completions", json={**body, "stream": True})


def own(client: WorkerClient, n_token: int, **more: Any) -> Any:
    return client.request("generate", messages=TURNS, sampling=GREEDY, max_tokens=n_token, **more)


def test_real_answer_joins_those_to_programs(served: tuple[WorkerClient, httpx.Client]) -> None:
    """It does not wait for them, and stopping it stops nothing else."""
    client, program = served
    expected = tokens(list(own(client, 12)))
    with ask_program(program, 3000) as reply:
        lines = reply.iter_lines()
        while "content" not in next(lines):
            pass
        assert client.request("count", text="the and of").final()["n_token"] > 0
        messages = list(own(client, 12))
        assert messages[-1]["reason"] == "length" and tokens(messages) == expected
        assert "waits" not in [m["type"] for m in messages]
        stats = messages[-1]["stats"]
        started = next(m for m in messages if m["type"] == "started")
        assert stats["n_token"] == 12 and stats["n_prompt"] == started["n_prompt"] > 0
        stopped = own(client, -1)
        next(m for m in stopped if m["type"] == "text")
        assert client.request("count", text="the and of").final()["n_token"] > 0
        client.stop(stopped)
        assert list(stopped)[-1]["reason"] == "cancelled"
        assert sum("content" in next(lines) for _ in range(40)) > 0  # the program's goes on
    assert list(own(client, 3))[-1]["reason"] == "length"


def test_real_answers_to_programs_join_it(served: tuple[WorkerClient, httpx.Client]) -> None:
    client, program = served

    def said() -> str:
        with ask_program(program, 4) as reply:
            data = [json.loads(line[6:]) for line in reply.iter_lines() if line[:7] == "data: {"]
        return "".join(d["choices"][0]["delta"].get("content") or "" for d in data)

    expected = said()
    reply = own(client, -1)
    next(m for m in reply if m["type"] == "text")
    assert said() == expected
    client.stop(reply)
    assert list(reply)[-1]["reason"] == "cancelled"  # it was still being written


def test_real_answers_beside_programs_are_not_learnt_from(
    served: tuple[WorkerClient, httpx.Client], data_home: Path
) -> None:
    """Their routing is mixed with that of the programs' answers. One alone is recorded."""
    client, program = served
    with ask_program(program, 1) as before:  # a server answers its first request late
        before.read()
    assert client.request("learning", action="allow").final()["state"]["allowed"]
    reply = own(client, -1)
    next(m for m in reply if m["type"] == "text")
    with ask_program(program, 4) as beside:
        beside.read()
    client.stop(reply)
    assert list(reply)[-1]["reason"] == "cancelled"  # the program's was written beside it
    client.request("devices").final()  # which waits for the end of the joint passes
    stats = own(client, 3).final()["stats"]
    until(lambda: list(data_home.rglob("*.npz")))  # written in the order of the answers
    first = min(data_home.rglob("*.npz"))
    assert n_token(first) <= stats["n_prompt"] - stats["n_reused"] + 3 < stats["n_prompt"]
    client.request("learning", action="forbid").final()


def test_real_answers_at_once_beside_a_program(
    served: tuple[WorkerClient, httpx.Client],
) -> None:
    client, program = served
    with ask_program(program, 3000) as reply:
        lines = reply.iter_lines()
        while "content" not in next(lines):
            pass
        messages = list(own(client, 5, n_answer=3))
        ends = {m["answer"]: m["stats"]["n_token"] for m in messages if m["type"] == "other_done"}
        assert ends == {0: 5, 1: 5, 2: 5} and messages[-1]["reason"] == "length"
        assert sum("content" in next(lines) for _ in range(10)) > 0
    with pytest.raises(RequestFailed, match="n_answer"):
        own(client, 5, n_answer=1000).final()


def test_real_conversation_reuses_its_beginning(real: WorkerClient) -> None:
    turns = [{"role": "user", "content": "the and of"}]
    request = {"sampling": GREEDY, "max_tokens": 4}
    first = list(real.request("generate", messages=turns, **request))
    text = "".join(m["text"] for m in first if m["type"] == "text")
    turns += [{"role": "assistant", "content": text}, {"role": "user", "content": "to be"}]
    second = list(real.request("generate", messages=turns, **request))
    assert second[-1]["stats"]["n_reused"] > 0


def test_real_load_errors_are_one_sentence(tiny: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(tiny.read_bytes()[:5000])
    with WorkerClient() as client:
        for path in (short, tmp_path, tmp_path / "none.gguf"):
            with pytest.raises(RequestFailed) as caught:
                client.request("load", path=str(path), **LOAD).final()
            assert path.name in str(caught.value) and "\n" not in str(caught.value)
        assert client.request("load", path=str(tiny), **LOAD).final()["type"] == "loaded"


def test_real_dense_model_runs_without_a_cache(tmp_path: Path) -> None:
    path = make_tiny("dense", "Q8_0", tmp_path / "dense.gguf")
    with WorkerClient() as client:
        loaded = client.request("load", path=str(path), **LOAD).final()
        assert loaded["cache"]["mode"] == "plain" and loaded["cache"]["reason"]
        assert tokens(answer(client, 4))


@posix
@pytest.mark.parametrize("state", ["loaded", "answering"])
def test_real_worker_is_gone_soon_after_its_client_was_killed(tiny: Path, state: str) -> None:
    code = (
        "import time\n"
        "from backend.protocol.client import WorkerClient\n"
        "client = WorkerClient()\n"
        f"client.request('load', path={str(tiny)!r}, **{LOAD!r}).final()\n"
        f"if {state!r} == 'answering':\n"
        "    client.request('generate', prompt='the', sampling={}, max_tokens=-1)\n"
        "print(client.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    wait_until_gone(kill_parent(code))


def test_real_conversation_goes_on_after_stops() -> None:
    with WorkerClient() as client:
        load = {**LOAD, "path": str(embedded_model()), "context_length": 2048}
        client.request("load", **load).final()
        turns: list[dict[str, str]] = []
        for _ in range(10):
            turns.append({"role": "user", "content": "And then?"})
            reply = client.request("generate", messages=turns, sampling=GREEDY, max_tokens=40)
            text = ""
            for message in reply:
                if message["type"] == "text":
                    text += message["text"]
                    client.stop(reply)
                elif message["type"] == "error":
                    pytest.fail(message["message"])
            turns.append({"role": "assistant", "content": text})
