"""Each command of `outrider`, as a person calls it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub

from journeys import models
from journeys.desktop import until
from journeys.fixtures import END_S, Home
from journeys.models import Line

SAID = "It is a fox."
RATE = ("--cache-rate", 0.5)


@pytest.fixture
def model(home: Home) -> Path:
    """Return a model that answers any question with SAID."""
    data = models.scripted([Line("\n", ("It ", "is ", "a ", "fox."))])
    return home.write("models/fox.gguf", data)


def journey_download_inspect_chat(home: Home, hub: FakeHub) -> None:
    """A model comes from the hub, is looked into, compared with its sum, and answers."""
    of_hub = models.small("Of the hub")
    hub.repositories["acme/Small-GGUF"] = {"small.gguf": of_hub, "other.gguf": of_hub}
    assert "other" in home.run("download", "acme/Small-GGUF")
    path = home.path(home.run("download", "acme/Small-GGUF", "small.gguf").splitlines()[-1])
    assert path.read_bytes() == of_hub
    assert "Of the hub" in home.run("inspect", path)
    assert "acme/Small-GGUF" in home.run("inspect", "--sha256", path)
    said = home.run("chat", path, "--json", "-p", "Anna has a white dog called Max. Who is Max?")
    assert json.loads(said.splitlines()[-1])["reason"] == "stop"


def journey_a_chat_in_a_terminal(home: Home) -> None:
    """The second turn knows the first one."""
    with terminal(home, "chat", "--temperature", "0") as chat:
        chat.wait(r"/help lists the commands\.\s+>\s*$")
        chat.say("Anna has a white dog called Max.")
        chat.wait(r"token/s\)\s+>\s*$")
        chat.say("What is the name of the dog?")
        assert "Max" in chat.wait(r"token/s\)\s+>\s*$").partition("dog?")[2]
        chat.say("/quit")
        assert chat.process.wait(END_S) == 0


CONTROL = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]|\x1b\][^\a]*\a")


class Terminal:
    """A program in a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int, log: Path) -> None:
        self.process = process
        self._screen, self._log = screen, log
        self._seen = 0

    def say(self, line: str) -> None:
        """Type a line."""
        os.write(self._screen, f"{line}\r".encode())

    def wait(self, pattern: str) -> str:
        """Wait until the program has written this. Return what it wrote since the last time."""

        def found() -> str:
            with contextlib.suppress(OSError):  # it has ended
                while select.select([self._screen], [], [], 0)[0]:
                    with self._log.open("ab") as log:
                        log.write(os.read(self._screen, 1 << 16))
            written = self._log.read_text("utf-8", "replace")[self._seen :].replace("\r", "")
            written = CONTROL.sub("", written)  # wine draws the screen itself
            return written if re.search(pattern, written) else ""

        written = until(found, f"the terminal shows {pattern!r}")
        self._seen = len(self._log.read_text("utf-8", "replace"))
        return written


@contextlib.contextmanager
def terminal(home: Home, *arguments: str) -> Iterator[Terminal]:
    """Run `outrider` in a terminal, whose screen a failure keeps."""
    screen, keyboard = pty.openpty()
    log = home.folder.parent / f"{len(home.logs) + 1}-terminal.log"
    log.touch()
    home.logs.append(log)
    process = subprocess.Popen(
        home.command("outrider", arguments), env={**home.variables, "TERM": "dumb"},
        cwd=home.folder, start_new_session=True, stdin=keyboard, stdout=keyboard, stderr=keyboard,
    )  # fmt: skip
    os.close(keyboard)
    try:
        yield Terminal(process, screen, log)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def journey_batch(home: Home, model: Path) -> None:
    """All requests of a file are answered once, also when the command is given again."""
    prompts = home.write("prompts.txt", b"Who?\nWhat?\nWhere?\n")
    for _ in range(2):
        home.run("batch", model, "--prompts", prompts, "--out", "answers.jsonl", *RATE)
        lines = (home.folder / "answers.jsonl").read_text("utf-8").splitlines()
        assert [SAID in line for line in lines] == [True, True, True]


def journey_pack_and_verify(home: Home, model: Path) -> None:
    """A pack is written, checked, used with equal logits, and deleted."""
    home.run("pack", model, "--layout", "file")
    home.run("pack", model, "--check")
    (packed,) = [path for path in home.folder.rglob("*") if path.suffix == ".pack"]
    asked = "--rates", 0.5, "--methods", "promoe", "--tokens", 16, "--json"
    report = json.loads(home.run("verify", model, *asked).splitlines()[-1])
    assert report["identical"] is True
    home.run("pack", model, "--delete")
    assert not packed.exists()
    assert SAID in home.run("chat", model, "-p", "Who?", *RATE)


def journey_bench(home: Home, model: Path) -> None:
    """The table has a row for the method and one for stock llama.cpp."""
    said = home.run(
        "bench", model, "--rates", 0.5, "--methods", "lru", "--rounds", 2, "--tokens", 4,
        "--prompt", 8, "--json", "bench.json",
    )  # fmt: skip
    assert "lru" in said and "stock" in said
    assert "lru" in home.run("bench", home.folder / "bench.json")


def recorded(home: Home, model: Path) -> Path:
    """Record the routing of a few answers. Return the trace."""
    prompts = home.write("prompts.txt", b"Who sleeps?\nWhat is white?\nWhere is the dog?\nWhen?\n")
    asked = "--prompts", prompts, "--inputs", "--scores", "--out", "routing.npz", *RATE
    home.run("trace", model, *asked)
    return home.folder / "routing.npz"


def journey_routing(home: Home, model: Path) -> None:
    """A trace is recorded, simulated, and forecast by the predictors that need no training."""
    trace = recorded(home, model)
    said = home.run("simulate", trace, "--model", model, "--rates", 0.5, "--methods", "promoe")
    assert "promoe" in said and "belady" in said
    assert "next_router" in home.run("evaluate", model, "--trace", trace)


def journey_training(home: Home, model: Path) -> None:
    """A predictor learns, is compared with the others, and is used."""
    trace = recorded(home, model)
    home.run("train", model, "--trace", trace, "--minutes", 0.1, "--epochs", 2)
    assert "learned" in home.run("evaluate", model, "--trace", trace, "--predictors", "learned")
    asked = "--json", "-p", "Who?", "--method", "promoe", *RATE
    assert "learned" in json.loads(home.run("chat", model, *asked))["predictor"]


def journey_report(home: Home, model: Path) -> None:
    """The report is complete, and names no folder of the person."""
    home.run("report", model, "--out", "report.txt")
    report = (home.folder / "report.txt").read_text("utf-8")
    assert "complete: yes" in report and "logits: identical in" in report
    assert home.shown(home.folder) not in report and "fox" not in report


QUESTION = [{"role": "user", "content": "Who?"}]
PROTOCOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "OpenAI, chat": ("/v1/chat/completions", {"messages": QUESTION}),
    "OpenAI, responses": ("/v1/responses", {"input": "Who?"}),
    "Anthropic": ("/v1/messages", {"messages": QUESTION, "max_tokens": 32}),
    "Ollama": ("/api/chat", {"messages": QUESTION, "stream": False}),
    "llama.cpp": ("/completion", {"prompt": "<|im_start|>assistant\n", "n_predict": 32}),
}


def journey_serve(home: Home, model: Path, is_windows: bool) -> None:
    """Each protocol gives the same answer, whole and in pieces; without the key there is none."""
    server = home.start("outrider", "serve", model, "--port", 0, *RATE)
    shown = re.compile(r"at (http://\S+)/v1\nKey: (\S+)\n")
    found = until(lambda: shown.search(home.logs[-1].read_text()), "the server tells its key")
    url, key = found.groups()
    for about, (path, fields) in PROTOCOLS.items():
        asked = {"model": "fox", **fields}
        assert SAID in post(url + path, key, asked), about
        assert "fox" in post(url + path, key, {**asked, "stream": True}), about
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(url + path, "another key", asked)
    if not is_windows:  # wine hands on no Ctrl-C
        server.send_signal(signal.SIGINT)
        assert home.ended(server) == 130


def post(url: str, key: str, fields: dict[str, Any]) -> str:
    """Return the answer to a request."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=END_S) as answer:
        return str(answer.read().decode())
