"""The pipe to the worker process: requests out, messages in, and a watch on its life."""

from __future__ import annotations

import base64
import binascii
import os
import time
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.engine_choice import EngineChoice
from backend import messages
from backend.client import describe_exit
from backend.facts import (
    Advice,
    Batch,
    CacheFacts,
    Json,
    LearningFacts,
    ModelFacts,
    Residency,
    Statistics,
)

PING_MS = 5_000
PONG_LIMIT_S = 30.0  # without an answer to a ping for so long, the worker hangs
PROGRESS_LIMIT_S = 120.0  # without a token or a step of prefill for so long, say so
STDERR_TAIL_BYTES = 16_384
LAST_WORDS_BYTES = 4096
SHUTDOWN_MS = 500


class EngineLink(QObject):
    """Owns the worker process. Nothing here waits for it, except closing, for half a second.

    Signals:
        hello: the worker is there.
        loading: (fraction, stage) while a model loads.
        loaded: (ModelFacts, CacheFacts).
        configured: (ModelFacts, CacheFacts) after a change of the settings.
        cache_changed: CacheFacts that the engine changed by itself.
        waits: (n) answers of the local server come before this one.
        server: (dict) what the worker says of its local server.
        devices: (list of (name, description)) what may compute beside the processor.
        prefill: (done, total) tokens of the prompt.
        text: a piece of the answer.
        statistics: Statistics, about five times a second while answering.
        residency: Residency.
        moments: Batch of passes, while somebody watches.
        advice: Advice after an answer that was watched.
        done: (reason, Statistics) at the end of an answer.
        failed: (request type, sentence): the request ended without a result.
        died: one sentence; the process is gone and start() makes a new one.
        hangs: one sentence; the process is there but gives no sign of work.
        recovered: it gave one after all.
        learning: LearningFacts, asked for or not.
    """

    hello = Signal()
    loading = Signal(float, str)
    loaded = Signal(object, object)
    configured = Signal(object, object)
    cache_changed = Signal(object)
    waits = Signal(int)
    server = Signal(object)
    devices = Signal(object)
    prefill = Signal(int, int)
    text = Signal(str)
    statistics = Signal(object)
    residency = Signal(object)
    moments = Signal(object)
    advice = Signal(object)
    done = Signal(str, object)
    failed = Signal(str, str)
    died = Signal(str)
    hangs = Signal(str)
    recovered = Signal()
    learning = Signal(object)

    def __init__(self, command: list[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = command
        self._process: QProcess | None = None
        self._decoder = messages.Decoder()
        self._stderr = b""
        self._scope = "nothing"
        self._next_id = 1
        self._open: dict[int, str] = {}  # requests without their final message: id -> type
        self._pings: dict[int, float] = {}  # unanswered: id -> when
        self._progress_at = 0.0
        self._n_token_seen = 0
        self._is_hanging = False
        self._watch = QTimer(self)
        self._watch.setInterval(PING_MS)
        self._watch.timeout.connect(self.check)

    @property
    def is_running(self) -> bool:
        """Whether there is a process to talk to."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The worker's process id, 0 without one."""
        return int(self._process.processId()) if self._process else 0

    def start(self) -> None:
        """Start a worker process; what it says arrives as signals."""
        assert self._process is None
        self._decoder = messages.Decoder()
        self._stderr = b""
        self._open.clear()
        self._pings.clear()
        self._is_hanging = False
        process = QProcess(self)
        process.readyReadStandardOutput.connect(self._read)
        process.readyReadStandardError.connect(self._read_stderr)
        process.finished.connect(self._finished)
        process.errorOccurred.connect(self._error_occurred)
        self._process = process
        process.start(self._command[0], self._command[1:])
        self._send({"type": "hello", "version": messages.VERSION})
        self._send({"type": "watch", "scope": self._scope})

    def load(self, path: Path, choice: EngineChoice) -> None:
        """Load a model in place of the present one."""
        self._request({"type": "load", "path": str(path), **choice.to_json()})

    def generate(
        self, conversation: list[dict[str, str]], sampling: Json, max_tokens: int = -1
    ) -> None:
        """Ask for an answer; a last message of the assistant is continued."""
        self._n_token_seen = 0
        self._request(
            {
                "type": "generate", "messages": conversation, "sampling": sampling,
                "max_tokens": max_tokens,
            }
        )  # fmt: skip

    def configure(self, choice: EngineChoice) -> None:
        """Change the settings of the loaded model; only between answers."""
        self._request({"type": "configure", **choice.to_json()})

    def learn(self, action: str) -> None:
        """Ask for the state of learning from chats; `action`: see backend.learner.ACTIONS."""
        self._send({"type": "learning", "id": self._next_id, "action": action})
        self._next_id += 1

    def serve(self, on: bool, port: int, key: str) -> None:
        """Switch the local server on or off."""
        self._request({"type": "serve", "on": on, "port": port, "key": key})

    def list_devices(self) -> None:
        """Ask what may compute here beside the processor."""
        self._request({"type": "devices"})

    @property
    def last_words(self) -> str:
        """The end of what the worker wrote to standard error."""
        return self._stderr[-LAST_WORDS_BYTES:].decode("utf-8", "replace")

    def watch(self, scope: str) -> None:
        """Say what is wanted beside the text: "nothing", "map" or "all"; also of later workers."""
        if scope != self._scope:
            self._scope = scope
            self._send({"type": "watch", "scope": scope})

    def stop(self) -> None:
        """Cancel the load or the answer that is under way."""
        for request_id, kind in self._open.items():
            if kind in ("load", "generate"):
                self._send({"type": "stop", "id": request_id})

    def shut_down(self) -> None:
        """End the worker: politely, then not. There is nothing in it to lose."""
        process, self._process = self._process, None
        self._watch.stop()
        if process is None:
            return
        process.blockSignals(True)
        if process.state() == QProcess.ProcessState.Running:
            process.write(messages.encode({"type": "shutdown"}))
            process.closeWriteChannel()
            if not process.waitForFinished(SHUTDOWN_MS):
                process.kill()
                process.waitForFinished(SHUTDOWN_MS)
        else:
            process.kill()
            process.waitForFinished(SHUTDOWN_MS)
        process.deleteLater()

    def _request(self, message: Json) -> None:
        message["id"] = self._next_id
        self._open[self._next_id] = message["type"]
        self._next_id += 1
        self._progress_at = time.monotonic()
        self._send(message)
        self._watch.start()

    def _send(self, message: Json) -> None:
        if self._process is not None:
            self._process.write(messages.encode(message))

    # What comes back

    def _read(self) -> None:
        if self._process is None:
            return
        data = self._process.readAllStandardOutput()
        try:
            for message in self._decoder.feed(bytes(data.data())):
                self._take(message)
                if self._process is None:  # a receiver shut the link down
                    return
        except (messages.ProtocolError, KeyError, TypeError, ValueError, AttributeError):
            self._abandon("The engine sent something that could not be understood.")

    def _read_stderr(self) -> None:
        if self._process is not None:
            data = self._process.readAllStandardError().data()
            self._stderr = (self._stderr + data)[-STDERR_TAIL_BYTES:]

    def _take(self, message: Json) -> None:
        kind = message["type"]
        request_id = message.get("id")
        if kind in ("loading", "prefill", "text", "loaded", "configured", "waits", "done"):
            self._note_progress()
        if kind == "text":
            self.text.emit(str(message["text"]))
        elif kind == "stats":
            self.statistics.emit(Statistics.from_json(message["stats"]))
        elif kind == "residency":
            self.residency.emit(_residency(message))
        elif kind == "moments":
            self.moments.emit(Batch.from_json(message))
        elif kind == "advice":
            self.advice.emit(Advice.from_json(message))
        elif kind == "prefill":
            self.prefill.emit(int(message["done"]), int(message["total"]))
        elif kind == "loading":
            self.loading.emit(float(message["fraction"]), str(message["stage"]))
        elif kind == "pong":
            self._take_pong(message)
        elif kind == "hello":
            self.hello.emit()
        elif kind == "learning":
            self.learning.emit(LearningFacts.from_json(message["state"]))
        elif kind == "error":
            request = self._finish(request_id)
            self.failed.emit(request, str(message["message"]))
        elif kind == "loaded":
            self._finish(request_id)
            model = ModelFacts.from_json(message["model"])
            self.loaded.emit(model, CacheFacts.from_json(message["cache"]))
        elif kind == "configured":
            self._finish(request_id)
            model = ModelFacts.from_json(message["model"])
            self.configured.emit(model, CacheFacts.from_json(message["cache"]))
        elif kind == "cache_changed":
            self.cache_changed.emit(CacheFacts.from_json(message["cache"]))
        elif kind == "devices":
            self._finish(request_id)
            found = message["devices"]
            self.devices.emit([(str(d["name"]), str(d["description"])) for d in found])
        elif kind == "server":
            self._finish(request_id)
            self.server.emit(message)
        elif kind == "waits":
            self.waits.emit(int(message["n_before"]))
        elif kind == "done":
            self._finish(request_id)
            self.done.emit(str(message["reason"]), Statistics.from_json(message["stats"]))

    def _finish(self, request_id: Any) -> str:
        request = self._open.pop(request_id, "") if isinstance(request_id, int) else ""
        if not self._open:
            self._watch.stop()
            self._pings.clear()
            self._recover()
        return request

    # The watch

    def check(self) -> None:
        """Ask for a sign of life, and say when none came; run by a timer while there is work."""
        if self._process is None:
            return
        now = time.monotonic()
        if self._pings and now - min(self._pings.values()) > PONG_LIMIT_S:
            self._hang(f"The engine has not answered for {PONG_LIMIT_S:.0f} seconds.")
        elif now - self._progress_at > PROGRESS_LIMIT_S:
            minutes = PROGRESS_LIMIT_S / 60
            self._hang(f"The engine runs but has made no progress for {minutes:.0f} minutes.")
        self._pings[self._next_id] = now
        self._send({"type": "ping", "id": self._next_id})
        self._next_id += 1

    def _take_pong(self, message: Json) -> None:
        self._pings.pop(int(message["id"]), None)
        n_token = int(message.get("n_token") or 0)
        if n_token != self._n_token_seen:
            self._n_token_seen = n_token
            self._note_progress()
        elif time.monotonic() - self._progress_at < PROGRESS_LIMIT_S:
            self._recover()

    def _note_progress(self) -> None:
        self._progress_at = time.monotonic()
        self._recover()

    def _hang(self, sentence: str) -> None:
        if not self._is_hanging:
            self._is_hanging = True
            self.hangs.emit(sentence)

    def _recover(self) -> None:
        if self._is_hanging:
            self._is_hanging = False
            self.recovered.emit()

    # The end

    def _error_occurred(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart and self._process is not None:
            self._abandon("The engine could not be started.")

    def _finished(self, exit_code: int, status: QProcess.ExitStatus) -> None:
        if self._process is None:
            return
        self._read()
        if self._process is None:
            return
        self._read_stderr()
        crashed = status == QProcess.ExitStatus.CrashExit
        # Qt gives the signal's number for a crash on Unix; subprocess and describe_exit negate it.
        returncode = -exit_code if crashed and os.name == "posix" else exit_code
        tail = self._stderr.decode("utf-8", "replace")
        self._abandon(describe_exit(returncode, tail))

    def _abandon(self, sentence: str) -> None:
        """Let go of the process, dead or not, and say why."""
        process, self._process = self._process, None
        self._watch.stop()
        self._open.clear()
        self._pings.clear()
        self._is_hanging = False
        if process is not None:
            process.blockSignals(True)
            process.kill()
            process.deleteLater()
        self.died.emit(sentence)

    def kill(self) -> None:
        """End a worker that hangs; the caller starts another."""
        process, self._process = self._process, None
        self._watch.stop()
        if process is not None:
            process.blockSignals(True)
            process.kill()
            process.waitForFinished(SHUTDOWN_MS)
            process.deleteLater()


def _residency(message: Json) -> Residency:
    layers = tuple(int(layer) for layer in message["moe_layers"])
    n_expert = int(message["n_expert"])
    try:
        data = base64.b64decode(message["data"], validate=True)
    except binascii.Error as error:
        raise ValueError("the residency is not base64") from error
    if len(data) != len(layers) * n_expert:
        raise ValueError("the residency has the wrong length")
    return Residency(layers, n_expert, data)
