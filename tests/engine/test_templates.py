"""Chat templates: their prompts, and templates that fail, loop or exhaust memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from asking import of_chat, of_text
from reciter import with_template
from waiting import WAIT_S

from backend.engine.engine import Engine, EngineError
from backend.llama import chat_format
from backend.protocol.client import RequestFailed, WorkerClient
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling

pytestmark = pytest.mark.usefixtures("started_children")

OpenEngine = Callable[..., Engine]

ROOT = Path(__file__).resolve().parents[2]
GREEDY = Sampling(temperature=0)
SOON_S = 0.5
"""Endless templates run for this processor time. The others fail in less than half of it."""
KEY = "a-key"
GREETING = "Good morning"
HELLO = [{"role": "user", "content": GREETING}]
LOAD = {"cache_rate": 0.5, "method": "lru", "context_length": 512, "n_thread": 1}
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")

# Each hangs or grows within llama.cpp's template engine, which checks no signal.
HOSTILE = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "nests": "{% set n = namespace(a=[1]) %}{% for i in range(64) %}"
    "{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
}
NASTY = {
    **HOSTILE,
    "calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "raises": "{{ raise_exception('No system role.\nOr else.') }}",
    "is not a template": "{% for %}",
    "has no end": "{% if true %}",
    "unknown filter": "{{ messages | elephant }}",
    "breaks out": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "is a huge list": "{{ range(99999999999) | list }}",
    "is deeply nested": "{{ " + "(" * 99999 + "1" + ")" * 99999 + " }}",
    "has deep blocks": "{% if true %}" * 50000 + "x" + "{% endif %}" * 50000,
    "prints itself": "{% set a = namespace(x=1) %}{% set a.x = a %}{{ a | tojson }}",
    "replaces": "{% set x = 'x' * 99999 %}{{ x.replace('x', x) }}",
    "doubles": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
}


def turns(n: int) -> list[dict[str, str]]:
    """Return n messages; the first and the last are the user's."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": "it was one of the words"} for i in range(n)]


def rendered(engine: Engine, messages: list[dict[str, str]]) -> str:
    assert engine.loaded.weights.chat_format is not None
    rendered = engine.loaded.weights.chat_format.render(messages)
    assert rendered is not None
    return rendered.prompt


def hostile(tiny: Path, folder: Path, name: str = "loops") -> Path:
    """Write a model whose template fails for HELLO, and not when it is asked for its facts."""
    template = f"{{% if '{GREETING}' in messages[0].content %}}{HOSTILE[name]}{{% endif %}}"
    return with_template(tiny, folder / "hostile.gguf", template)


def soon(module: str, arguments: str = "") -> list[str]:
    """Return the command of a process whose templates may take half a second only.

    arguments: of its main(). The command line has no child process of its own if it is given some.
    """
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from backend.llama import chat_format\n"
        f"from {module} import main\n"
        f"chat_format.RENDER_LIMIT_S = {SOON_S}\n"
        f"sys.exit(main({arguments}))"
    )
    return [sys.executable, "-P", "-c", code]


SOON_CLI = soon("backend.cli", "sys.argv[1:]")


def start(*words: object, command: list[str] | None = None) -> subprocess.Popen[str]:
    """Start the command line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OUTRIDER_API_KEY": KEY}
    return subprocess.Popen(
        [*(command or [sys.executable, "-m", "backend.cli"]), *map(str, words)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rendering(process: int) -> psutil.Process:
    """Wait until a descendant process renders, and return it."""
    for _ in range(1200):
        for child in psutil.Process(process).children(recursive=True):
            try:
                if "format_child" in " ".join(child.cmdline()):
                    times = child.cpu_times()
                    if times.user + times.system > 0.3:  # the start takes less
                        return child
            except psutil.Error:
                continue
        time.sleep(0.1)  # a look at all processes takes milliseconds
    raise AssertionError("no template is rendered")


class Server:
    """`outrider serve` with a model."""

    def __init__(self, model: Path, command: list[str] | None = None) -> None:
        words = ("serve", model, "--port", 0, "--cache-rate", 0.5, "--context", 256)
        self.process = start(*words, command=command)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.post(f"{self.url}/{path}", json=body, headers=headers, timeout=WAIT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def serve_one(model: Path, command: list[str] | None = None) -> Server:
        servers.append(Server(model, command))
        return servers[-1]

    yield serve_one
    for server in servers:
        server.close()


@pytest.fixture
def client() -> Iterator[WorkerClient]:
    with WorkerClient() as client:
        yield client


# Prompts of conversations.


def test_without_a_template_it_is_chatml(open_engine: OpenEngine, tiny: Path) -> None:
    own = open_engine(tiny)  # the factory's template is ChatML
    none = open_engine(with_template(tiny, tiny.with_name("none.gguf"), None))
    assert rendered(own, turns(3)) == rendered(none, turns(3))


def test_what_transformers_gives_a_template_is_there(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    template = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}\n"
        "    {% generation %}{{ m | tojson }}{% endgeneration %}\n"
        "{% endfor %}{{ tools is defined }}{{ strftime_now('%Y') | length }}{{ '<é>' | tojson }}"
    )
    engine = open_engine(with_template(tiny, tmp_path / "m.gguf", template))
    first = json.dumps(turns(1)[0])
    assert rendered(engine, turns(3)) == f'{first}False4"<é>"'


def test_a_template_that_hides_answers_continues_one(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    engine = open_engine(with_template(tiny, tmp_path / "m.gguf", "Hello, whoever you are."))
    assert rendered(engine, turns(1)) == "Hello, whoever you are."
    assert rendered(engine, turns(2)) == "Hello, whoever you are.it was one of the words"


def test_rendering_goes_on_in_another_process_when_one_was_killed(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny)
    prompt = rendered(engine, turns(3))
    for child in psutil.Process().children():
        words = " ".join(child.cmdline())
        if "format_child" in words and "fork_server" not in words:  # which other tests need
            child.kill()
            child.wait(WAIT_S)
    assert rendered(engine, turns(3)) == prompt


# Templates that fail, loop or explode.


@pytest.mark.parametrize("name", NASTY)
def test_a_nasty_template_is_refused(
    name: str,
    open_engine: OpenEngine,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_format, "RENDER_LIMIT_S", SOON_S)
    engine = open_engine(with_template(tiny, tmp_path / "nasty.gguf", NASTY[name]))
    with pytest.raises(EngineError, match=r"^The chat template of random qwen3moe [^\n]+\.$"):
        engine.answer(of_chat(HELLO, GREEDY, 3))
    assert list(engine.answer(of_text("Hello", GREEDY, 3)))  # without it the model can be used


def test_the_worker_survives_it(tiny: Path, tmp_path: Path) -> None:
    with WorkerClient(soon("backend.worker.main")) as client:
        client.request("load", path=str(hostile(tiny, tmp_path)), **LOAD).final()
        with pytest.raises(
            RequestFailed, match="^The chat template of random qwen3moe takes too long"
        ):
            client.request("generate", messages=HELLO, sampling={}, max_tokens=3).final()
        greedy = {"temperature": 0}  # a sampled token may end the answer
        done = client.request("generate", prompt="Hello", sampling=greedy, max_tokens=3).final()
        assert done["type"] == "done" and done["stats"]["n_token"] > 0


def test_the_terminal_says_it(tiny: Path, tmp_path: Path) -> None:
    raises = with_template(tiny, tmp_path / "m.gguf", NASTY["raises"])
    process = start("chat", raises, "-p", "Hello")
    out, said = process.communicate(timeout=WAIT_S)
    sentence = "outrider: The chat template of random qwen3moe failed: No system role."
    assert (process.returncode, out, said.splitlines()[-1]) == (1, "", sentence)


def test_the_server_answers_others_afterwards(
    serve: Callable[..., Server], tiny: Path, tmp_path: Path
) -> None:
    server = serve(hostile(tiny, tmp_path, "nests"), SOON_CLI)
    refused = server.post("chat/completions", {"messages": HELLO})
    assert refused.status_code == 400 and "takes too long" in refused.json()["error"]["message"]
    assert server.post("completions", {"prompt": "Hello"}).status_code == 200


def test_training_says_it(tiny: Path, tmp_path: Path) -> None:
    """The model's own questions have no end, so that none may be left out."""
    from backend.evaluation.collect import Limits, collect
    from backend.gguf.model_file import read_model

    file = read_model(with_template(tiny, tmp_path / "m.gguf", "{{ messages | elephant }}"))
    config = EngineConfig(cache_rate=0.5, context_length=512, n_thread=1)
    n_asked = 0

    def progress(_share: float, _text: str) -> bool:
        nonlocal n_asked
        n_asked += 1
        return n_asked < 100

    with pytest.raises(EngineError, match="chat template"):
        collect(file, [], tmp_path / "traces", Limits(1000), config, progress)
    assert n_asked < 100


# Stop and shutdown.


def test_a_stop_before_the_rendering(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    request = Request(None, GREEDY, 3, HELLO)
    request.handle.cancel()
    assert list(engine.answer(request)) == []
    assert engine.finish_reason == "cancelled" and engine.statistics().n_token == 0
    assert list(engine.answer(of_chat(HELLO, GREEDY, 3)))


def test_a_stop_while_the_worker_renders(client: WorkerClient, tiny: Path, tmp_path: Path) -> None:
    client.request("load", path=str(hostile(tiny, tmp_path)), **LOAD).final()
    reply = client.request("generate", messages=HELLO, sampling={}, max_tokens=3)
    rendering(os.getpid())
    client.stop(reply)
    assert reply.final()["reason"] == "cancelled"
    again = client.request("generate", prompt="Hello", sampling={"temperature": 0}, max_tokens=3)
    assert again.final()["type"] == "done"


@posix
def test_ctrl_c_while_the_terminal_renders(tiny: Path, tmp_path: Path) -> None:
    """The template is asked for its facts, before a word is said."""
    loops = with_template(tiny, tmp_path / "m.gguf", HOSTILE["loops"])
    process = start("chat", loops, "-p", GREETING)
    rendering(process.pid)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out, said) == (130, "", "")


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_while_it_renders(
    number: signal.Signals, serve: Callable[..., Server], tiny: Path, tmp_path: Path
) -> None:
    server = serve(hostile(tiny, tmp_path))
    body = json.dumps({"messages": HELLO})
    request = [sys.executable, "-c", "import httpx, sys; httpx.post(*sys.argv[1:2], "]
    request[-1] += f"content={body!r}, headers={{'Authorization': 'Bearer {KEY}'}}, timeout=60)"
    asker = subprocess.Popen(
        [*request, f"{server.url}/chat/completions"], stderr=subprocess.DEVNULL
    )
    child = rendering(server.process.pid)
    server.process.send_signal(number)
    assert server.process.wait(WAIT_S) in (-number, 128 + number)
    assert psutil.wait_procs([child], timeout=WAIT_S)[1] == []
    asker.wait(WAIT_S)


@posix
def test_no_process_outlives_the_terminal(tiny: Path, tmp_path: Path) -> None:
    process = start("chat", hostile(tiny, tmp_path), "-p", GREETING)
    rendering(process.pid)
    below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    assert psutil.wait_procs(below, timeout=WAIT_S)[1] == []
