"""A session of the terminal chat: a worker with one model."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backend.cli.common import Interrupts, say, show_loading, show_progress
from backend.protocol.chat import AnswerText, ChatFacts, ChatOptions, Delta, Json
from backend.protocol.client import Reply, RequestFailed, WorkerClient, WorkerDied
from backend.protocol.messages import MAX_BYTES, ProtocolError
from backend.protocol.status import CacheFacts
from backend.text import text

if TYPE_CHECKING:
    from backend.protocol.settings import EngineConfig, Sampling


_LONG_PROMPT = 256  # tokens


@dataclass(frozen=True)
class Settings:
    """The settings from the command line. model: a path. max_tokens: -1 is no limit."""

    model: str
    config: EngineConfig
    sampling: Sampling
    max_tokens: int
    options: ChatOptions = field(default_factory=ChatOptions)


@dataclass
class Answer:
    """An answer so far. raw: its text with all control tokens.

    fault: one sentence if it failed, or "". died: the worker is gone.
    """

    text: AnswerText = field(default_factory=AnswerText)
    raw: str = ""
    tokens: list[int] = field(default_factory=list)
    reason: str = ""
    stats: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    died: bool = False


def notice(*lines: str) -> None:
    """Write lines for the user to standard error, apart from the answers."""
    say(*lines, error=True)


class Session:
    """A worker with a loaded model. cache: the fields of its CacheFacts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cache: dict[str, Any] = {}
        self.model: dict[str, Any] = {}
        self._client: WorkerClient | None = None
        self._reply: Reply | None = None  # of the load or the answer in progress

    def start(self) -> None:
        """Start a worker, in place of a dead one, and load the model.

        Raises WorkerDied, or RequestFailed with the reason why the model cannot be loaded.
        """
        self.close()
        self._client = WorkerClient()
        config = self.settings.config
        reply = self._client.request("load", path=self.settings.model, **config.to_json())
        self._reply = reply
        shown = False
        for message in reply:
            if message["type"] == "loading" and sys.stderr is not None and sys.stderr.isatty():
                show_loading(message["fraction"], message["stage"])
                shown = True
            elif message["type"] == "loaded":
                self.model, self.cache = message["model"], message["cache"]
            elif message["type"] == "error":
                if shown:
                    notice("")
                raise RequestFailed(message["message"])
        if shown:
            show_progress("")

    def close(self) -> None:
        """End the worker, if there is one."""
        client, self._client = self._client, None
        if client is None:
            return
        before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # takes two seconds at most
        try:
            client.close()
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)

    def stop(self) -> None:
        """Ask the worker to end the load or the answer in progress. Any thread may call it."""
        if self._client is not None and self._reply is not None:
            self._client.stop(self._reply)

    def kill(self) -> None:
        """End the worker at once; a request in progress raises WorkerDied.

        Any thread may call it.
        """
        if self._client is not None:
            self._client.kill()

    def decide(self, **values: Any) -> None:
        """Set some of the engine's settings by hand. Raises RequestFailed or WorkerDied."""
        assert self._client is not None
        config = self.settings.config.decided(**values)
        self.cache = self._client.request("configure", **config.to_json()).final()["cache"]
        self.settings = replace(self.settings, config=config)

    @property
    def chat(self) -> ChatFacts:
        """The abilities of the model's chat template."""
        return ChatFacts.from_json(self.model.get("chat") or {})

    def prompt(self, messages: list[Json], options: ChatOptions) -> str:
        """Return a conversation as the model receives it. Raises RequestFailed or WorkerDied."""
        assert self._client is not None
        reply = self._client.request("format", messages=messages, options=options.to_json())
        return str(reply.final()["prompt"])

    def answer(self, messages: list[Json], show: Callable[[Delta], None] | None) -> Answer:
        """Return the answer to a conversation. `show` gets it piece by piece.

        Ctrl-C stops the answer; a second one raises KeyboardInterrupt. A failed answer keeps its
        text and gets a `fault`.
        """
        assert self._client is not None
        answer = Answer()
        try:
            reply = self._client.request(
                "generate",
                messages=messages,
                sampling=self.settings.sampling.to_json(),
                options=self.settings.options.to_json(),
                max_tokens=self.settings.max_tokens,
            )
            self._reply = reply
            with Interrupts(self.stop):
                progress = _Progress()
                for message in reply:
                    progress.show(message)
                    _take(answer, message, show)
        except ProtocolError:  # many images
            answer.fault = str(text("engine.too_much_sent", most=MAX_BYTES))
        except WorkerDied as error:
            answer.fault, answer.died = str(error), True
        return answer

    def summary(self) -> str:
        """Return one line about the model and its cache."""
        name = self.model.get("name") or self.settings.model
        return f"{name}: {CacheFacts.from_json(self.cache).runs}"


def _take(answer: Answer, message: Json, show: Callable[[Delta], None] | None) -> None:
    """Add one message of the worker to the answer."""
    kind = message["type"]
    if kind == "text":
        delta = Delta.from_json(message)
        answer.text.add(delta)
        answer.raw += message["text"]
        answer.tokens += message["tokens"]
        if show is not None:
            show(delta)
    elif kind == "stats":
        answer.stats = message["stats"]
    elif kind == "done":
        answer.stats, answer.reason = message["stats"], message["reason"]
    elif kind == "error":
        answer.fault = message["message"]


class _Progress:
    """Shows on a terminal how much of a long prompt has been read."""

    def __init__(self) -> None:
        self._is_on = sys.stderr is not None and sys.stderr.isatty()
        self._shown = False

    def show(self, message: dict[str, Any]) -> None:
        """Show a step of the prompt. Clear the line at the first other message."""
        kind = message["type"]
        if not self._is_on or kind not in ("prefill", "text", "done", "error"):
            return
        if kind == "prefill" and message["total"] >= _LONG_PROMPT:
            done, total = message["done"], message["total"]
            show_progress(f"Reading the prompt: {done} of {total} tokens (Ctrl-C stops)")
            self._shown = True
        elif self._shown:
            show_progress("")
            self._shown = False
