"""The engine's process: messages in, messages out (backend/protocol/messages.py).

Run as `python -m backend.worker.main`; standard input and output are the pipe. There are three
threads. The reader never computes and never waits, so that it sees stop, ping and the end of the
pipe while the engine works. The engine runs in the main thread. The outbox writes. Requests wait
for the engine in order of arrival; an answer may be computed beside those to programs.

When standard input ends, the client is gone: the reader thread then ends the process at once.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from backend import LLAMA_CPP_PYTHON_VERSION, __version__
from backend.memory import devices
from backend.protocol.chat import ChatOptions
from backend.protocol.errors import RequestError
from backend.protocol.messages import (
    EXIT_PROTOCOL,
    VERSION,
    Decoder,
    Message,
    ProtocolError,
    check_request,
    request_id,
)
from backend.protocol.settings import EngineConfig
from backend.protocol.statistics import Statistics
from backend.system import faults
from backend.system.memory import offer_first, trim_heap
from backend.system.paths import states_folder
from backend.system.pipes import die_with_parent, private_pipes
from backend.text import text
from backend.worker.advisor import Advisor
from backend.worker.answer_recorder import AnswerTraces
from backend.worker.attachments import AttachmentDesk
from backend.worker.generation import Answer, WatchScope, residency
from backend.worker.learning import LearningDesk
from backend.worker.local_server import ServerDesk
from backend.worker.outbox import Outbox
from backend.worker.request_queue import Job, RequestLine, Work, WorkQueue

if TYPE_CHECKING:
    from backend.engine.engine import Engine

Progress = Callable[[float, str], bool]
EngineFactory = Callable[[Path, "EngineConfig", Progress], "Engine"]

_READ_BYTES = 1 << 16
LEAVE_S = 1.0
"""Longest wait for the last messages to be written."""
KEEP_S = 0.01
"""Time between two pieces of the state that is written while no request runs."""
MIND_MEMORY_S = 2.0
"""Time between two looks at the memory while no request runs."""


def open_engine(path: Path, config: EngineConfig, progress: Progress) -> Engine:
    """Open the real engine."""
    from backend.engine.engine import Engine  # heavy: the worker must answer before llama.cpp loads

    return Engine.open(path, config, progress)


class Worker:
    """Serves one client over two file descriptors.

    check: refuses a file that cannot be a model, with the same exceptions as engine_factory; the
    loaded model then stays. leave: ends the process with a status. Called from any thread;
    if it returns, the reader goes on to the end of the pipe.
    """

    def __init__(
        self,
        engine_factory: EngineFactory,
        check: Callable[[Path], object],
        in_fd: int,
        out_fd: int,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._engine_factory, self._check = engine_factory, check
        self._in_fd = in_fd
        self._leave = leave
        self._engine: Engine | None = None
        self._path: Path | None = None  # of the engine's model
        self._own: tuple[Path, EngineConfig] | None = None  # the model that the client has loaded
        self._used_s = time.monotonic()
        self._is_trimmed = True  # the heap, since the last job
        self._keeps = False  # something of the conversation may not be on the drive
        self._advisor: Advisor | None = None
        self._traces: AnswerTraces | None = None
        self._scope = WatchScope()
        self._jobs = WorkQueue()
        self._sent_cache: object = None  # the CacheFacts that the client knows
        self._sent_map: Message = {}  # after the client's last request
        self._lock = threading.Lock()  # guards the engine together with the watch scope
        self._line = RequestLine()
        self._joint: Answer | None = None  # the client's answer beside those to programs
        self._greeted = False
        self._finished = threading.Event()
        self._outbox = Outbox(out_fd, on_end=leave)
        self._learning = LearningDesk(self._outbox.send)
        self._attachments = AttachmentDesk(self._outbox)
        self._server = ServerDesk(
            self._jobs.put,
            self._outbox.offer,
            lambda: len(self._line) - (self._joint is not None),
            lambda: self._path,
            self._open_named,
            self._next_own,
        )

    def run(self) -> int:
        """Serve until shutdown and return the exit status. Call from the main thread."""
        self._outbox.send(
            {
                "type": "hello",
                "version": VERSION,
                "pid": os.getpid(),
                "engine": __version__,
                "llama_cpp": LLAMA_CPP_PYTHON_VERSION,
            }
        )
        # The client learns of a fault by the end of this process, and reads the last words.
        faults.Thread("reader", self._read_all, failed=lambda _: self._leave(1)).start()
        while (job := self._next()) is not None:
            if isinstance(job, Job):
                self._do(job)
            else:
                self._learning.set_busy(True)
                # An answer for the local server, which tells its client of errors itself.
                faults.guarded("work", job, faults.no_place)(self._engine)
                self._learning.set_busy(len(self._line) > 0)
            self._used_s, self._is_trimmed = time.monotonic(), False
            if self._jobs.is_empty and self._engine is not None:
                self._upkeep(self._engine, self._engine.idle)
                self._keeps = True
        self._server.close()
        self._close_engine()
        self._learning.close()
        self._attachments.close()
        self._outbox.close(LEAVE_S)
        self._finished.set()
        return 0

    def _next(self) -> Job | Work | None:
        """Wait for a job; look after the memory in the meantime."""
        while True:
            try:
                wait_s = min(MIND_MEMORY_S, self._server.unload_after_s or MIND_MEMORY_S)
                return self._jobs.get(KEEP_S if self._keeps else wait_s)
            except queue.Empty:
                idle_s = time.monotonic() - self._used_s
                if not self._is_trimmed:  # of the memory that loads and answers have used
                    self._is_trimmed = True
                    trim_heap()
                if self._engine is None:
                    continue
                if self._keeps:
                    self._keeps = self._upkeep(self._engine, self._engine.keep)
                elif self._server.may_free(idle_s):
                    self._close_engine()
                    self._server.tell()
                else:
                    self._upkeep(self._engine, self._engine.mind_memory)
                    self._keeps = self._engine.is_late

    def _upkeep(self, engine: Engine, work: Callable[[], bool | None]) -> bool:
        """Do idle work. Return whether more is left; False after a fault."""
        # The next request reports the fault.
        goes_on = bool(faults.guarded("upkeep", work, faults.no_place)())
        self._send_cache(engine)
        if self._is_own and self._sent_map and engine.residency():  # b"" after some faults
            self._send_map(self._sent_map["id"], engine)
        return goes_on

    def _send_cache(self, engine: Engine) -> None:
        """Tell the client if the cache of its model has changed by itself."""
        if self._is_own and engine.cache is not self._sent_cache:
            self._sent_cache = engine.cache
            self._outbox.send({"type": "cache_changed", "cache": engine.cache.to_json()})

    def _send_map(self, request_id: int, engine: Engine) -> None:
        """Send the map of the experts, unless it was sent for the same request."""
        found = residency(request_id, engine)
        if found != self._sent_map:
            self._sent_map = found
            self._outbox.send(found)

    @property
    def _is_own(self) -> bool:
        """Whether the engine has the client's model, and not one that a program named."""
        return self._own is not None and self._path == self._own[0]

    # The reader thread.

    def _read_all(self) -> None:
        decoder = Decoder()
        try:
            while data := os.read(self._in_fd, _READ_BYTES):
                try:
                    messages, fault = decoder.feed(data), None
                except ProtocolError as error:
                    messages, fault = error.messages, str(error)
                for message in messages:
                    self._receive(message)
                if fault is not None:
                    self._give_up(fault)
        except OSError:
            pass
        self._leave(0)

    def _give_up(self, sentence: str) -> None:
        """Send the reason and end the process."""
        self._outbox.send({"type": "error", "id": None, "message": sentence})
        self._outbox.drain(LEAVE_S)
        self._leave(EXIT_PROTOCOL)

    def _receive(self, message: Message) -> None:
        try:
            check_request(message)
            kind = message["type"]
            if kind == "hello":
                self._greet(message)
            elif kind == "shutdown":
                self._shut_down()
            elif not self._greeted:
                raise RequestError('The first message must be "hello".')
            elif kind == "ping":
                self._outbox.send(
                    {"type": "pong", "id": message["id"], "n_token": self._outbox.n_token}
                )
            elif kind == "stop":
                self._attachments.cancel(message["id"])
                self._line.cancel(message["id"])
            elif kind == "learning":
                self._learning.serve(message)
            elif kind == "watch":
                with self._lock:
                    self._scope.set(message["scope"], self._engine)
            elif kind == "forget":
                self._jobs.put(lambda engine: _forget(message["owner"], engine))
            elif kind == "warm":
                self._jobs.put(lambda engine: engine and engine.warm(message["owner"]))
            elif kind in ("attach", "picture"):
                self._attachments.serve(message)
            elif kind == "serve":
                self._server.serve(message, self._outbox.send)
            else:
                is_answer = kind == "generate"
                answer = Answer(message, self._outbox, self._scope) if is_answer else None
                self._enqueue(Job(message, answer))
        except RequestError as error:
            sent_id = request_id(message)
            self._outbox.send({"type": "error", "id": sent_id, "message": str(error)})

    def _greet(self, message: Message) -> None:
        if message["version"] != VERSION:
            self._give_up(
                f"This engine speaks version {VERSION} of the messages, "
                f"the other side version {message['version']}."
            )
        self._greeted = True

    def _enqueue(self, job: Job) -> None:
        self._line.add(job)
        if job.kind in ("load", "unload"):
            self._server.pause()
        elif (
            job.kind == "generate"
            and not (self._server.may_join and self._may_join(job))
            and (n_before := self._server.n_open)
        ):
            self._outbox.send({"type": "waits", "id": job.id, "n_before": n_before})
        self._jobs.put(job)

    def _shut_down(self) -> None:
        """Let the engine's thread finish. End the process if that takes too long."""
        self._line.cancel_all()
        self._server.stop_answers()
        self._jobs.put(None)
        self._finished.wait(LEAVE_S)
        self._leave(0)

    # The engine's thread.

    def _do(self, job: Job) -> None:
        """Serve one request. Send exactly one final message."""
        try:
            self._begin(job)
            final = self._perform(job)
        except Exception as error:
            final = self._failure(job, error)
        if final is not None:
            self._end(job, final)

    def _begin(self, job: Job) -> None:
        self._learning.set_busy(True)
        if self._advisor is not None and job.answer is not None and job.answer.is_asked:
            self._advisor.cancel()

    def _end(self, job: Job, final: Message) -> None:
        """Send the final message of a request."""
        self._line.end(job)
        if job.kind in ("load", "unload"):
            self._server.resume()
        self._learning.set_busy(len(self._line) > 0 or self._server.may_join)
        if "cache" in final and self._engine is not None and self._is_own:
            self._sent_cache = self._engine.cache
        self._outbox.send(final)
        with_map = final["type"] != "error" and job.kind not in ("count", "unload")
        if with_map and self._engine is not None and self._is_own:
            self._send_map(job.id, self._engine)

    def _may_join(self, job: Job) -> bool:
        """Whether an answer can be computed beside those to programs. From any thread."""
        engine = self._engine
        if job.answer is None or engine is None or not self._is_own:
            return False
        return engine.n_sequence > 1

    def _next_own(self, engine: Engine) -> Answer | None:
        """Return the client's next answer, if it can be computed beside those to programs.

        Short questions before it are answered, and settings of the cache applied.
        """
        self._on_step(engine)

        def fits(job: Job) -> bool:
            is_short = job.kind == "format" or (job.kind == "count" and not job.message.get("data"))
            return (is_short and self._is_own) or (self._joint is None and self._may_join(job))

        while (job := self._jobs.take(fits)) is not None:
            if job.kind != "generate":
                self._do(job)
                continue
            self._begin(job)
            try:
                self._joint = self._joined(job, engine)
                return self._joint
            except Exception as error:
                self._end(job, self._failure(job, error))
        return None

    def _joined(self, job: Job, engine: Engine, *, is_first: bool = False) -> Answer:
        """Return an answer to be computed, which ends by itself.

        is_first: no other request is being answered yet.
        """
        answer = job.answer
        assert answer is not None

        def end(final: Message | Exception) -> None:
            self._joint = None
            if is_recorded:
                self._unrecord(job, is_wanted=not answer.is_shared)
            self._end(job, self._failure(job, final) if isinstance(final, Exception) else final)

        # Advice is about one answer in a chat.
        is_recorded = is_first and answer.is_asked and len(answer.requests) == 1
        answer.join(engine, end)
        if is_recorded:
            self._record()
        return answer

    def _perform(self, job: Job) -> Message | None:
        if job.kind == "load":
            return self._load(job)
        if job.kind == "unload":
            self._forget_own()
            return {"type": "unloaded", "id": job.id}
        if job.kind == "devices":
            return _devices(job.id, details=job.message.get("details", False))
        try:
            engine = self._own_engine(job)
        except Exception:
            if job.kind == "generate" and job.handle.is_cancelled:
                stats = Statistics().to_json()
                return {"type": "done", "id": job.id, "reason": "cancelled", "stats": stats}
            raise
        if job.answer is not None:
            self._answer(job, engine)
            return None
        if job.kind in ("count", "format"):
            with engine.prompts.serves(job.handle):
                return _asked(job, engine)
        if self._advisor is not None:
            self._advisor.forget()
        assert job.kind == "configure", job.kind
        config = EngineConfig.from_message(job.message)
        engine.change(self._with_embeddings(config))
        return self._configured(job, config, engine)

    def _configured(self, job: Job, config: EngineConfig, engine: Engine) -> Message:
        """Return the final message of a request whose settings are in force."""
        assert self._own is not None
        self._own = self._own[0], config  # to load the client's model again
        return {"type": "configured", "id": job.id, **_in_force(engine)}

    def _on_step(self, engine: Engine) -> None:
        """Tell of a changed cache between two passes of an answer, and apply settings that wait.

        Those that change more than the cache wait for the end.
        """
        self._send_cache(engine)

        def fits(job: Job) -> bool:
            return job.kind == "configure" and self._is_own and not job.waits_for_end

        while (job := self._jobs.take(fits)) is not None:
            try:
                config = EngineConfig.from_message(job.message)
                if not engine.change_now(self._with_embeddings(config)):
                    job.waits_for_end = True
                    self._jobs.put_back(job)
                    return
                self._end(job, self._configured(job, config, engine))
            except Exception as error:
                self._end(job, self._failure(job, error))

    def _answer(self, job: Job, engine: Engine) -> None:
        """Answer a request, beside those to programs if they may join it."""
        self._on_step(engine)
        answer, turns = self._joined(job, engine, is_first=True), self._server.turns
        if turns is not None and self._may_join(job):
            self._joint = answer
            turns.answer_jointly(engine, answer)
        else:
            answer.run(partial(self._on_step, engine))

    def _record(self) -> None:
        """Record the routing of an answer, for advice and for learning."""
        traces, advisor = self._traces, self._advisor
        assert traces is not None and advisor is not None
        if self._scope.all:
            traces.want(advisor.add, inputs=advisor.wants_inputs)
        else:
            traces.unwant(advisor.add)
            advisor.forget()
        traces.begin()

    def _unrecord(self, job: Job, *, is_wanted: bool) -> None:
        """End recording. is_wanted: the routing is that of one conversation."""
        traces, advisor = self._traces, self._advisor
        assert traces is not None and advisor is not None
        traces.end(is_wanted=is_wanted)
        if self._scope.all:
            head = {"type": "advice", "id": job.id}
            advisor.advise(lambda advice: self._outbox.send({**head, **advice}))

    def _load(self, job: Job) -> Message:
        path, config = Path(job.message["path"]), EngineConfig.from_message(job.message)
        if self._engine is not None:
            self._check(path)
        self._forget_own()
        if job.handle.is_cancelled:
            raise RequestError(text("engine.cancelled"))
        engine = self._open_own(path, config, job.id, lambda: not job.handle.is_cancelled)
        self._server.note_own(engine.model.name, path)
        self._server.tell()
        return {"type": "loaded", "id": job.id, **_in_force(engine)}

    def _open(
        self, path: Path, config: EngineConfig, job_id: int, go_on: Callable[[], bool]
    ) -> Engine:
        """Load a model in place of the present one. Stop when `go_on()` is false."""

        def progress(fraction: float, stage: str) -> bool:
            message = {"type": "loading", "id": job_id, "fraction": fraction, "stage": stage}
            self._outbox.offer(message)
            return go_on()

        self._close_engine()
        engine = self._engine_factory(path, self._with_embeddings(config), progress)
        engine.keep_in(states_folder())
        with self._lock:
            self._engine, self._path = engine, path
        return engine

    def _with_embeddings(self, config: EngineConfig) -> EngineConfig:
        """Return the settings with room for the model for embeddings."""
        return config.changed(embedding_model=self._server.embedding_file)

    def _open_own(
        self, path: Path, config: EngineConfig, job_id: int, go_on: Callable[[], bool]
    ) -> Engine:
        """Load the client's model, which the client may watch."""
        engine = self._open(path, config, job_id, go_on)
        self._own = path, config
        with self._lock:
            self._scope.attach(engine)
        self._advisor, self._traces = Advisor(engine), AnswerTraces(engine)
        self._learning.attach(engine, self._traces)
        return engine

    def _open_named(
        self, path: Path, config: EngineConfig | None, go_on: Callable[[], bool]
    ) -> Engine:
        """Load a model that a program named. config: None for that of the client's model."""
        if self._own is not None and path == self._own[0]:
            return self._reopen_own(self._own[1], 0, go_on)
        config = config or (self._own[1] if self._own is not None else EngineConfig())
        engine = self._open(path, config, 0, go_on)
        self._server.tell()
        return engine

    def _reopen_own(self, config: EngineConfig, job_id: int, go_on: Callable[[], bool]) -> Engine:
        assert self._own is not None
        engine = self._open_own(self._own[0], config, job_id, go_on)
        self._sent_cache = engine.cache
        self._outbox.send({"type": "reloaded", "id": job_id, **_in_force(engine)})
        self._server.tell()
        return engine

    def _own_engine(self, job: Job) -> Engine:
        """Return the engine with the client's model. Load it if it was freed or replaced."""
        if self._own is None:
            raise RequestError(text("engine.no_model"))
        if self._engine is not None and self._is_own:
            return self._engine
        _, config = self._own
        if job.kind == "configure":
            config = EngineConfig.from_message(job.message)
        return self._reopen_own(config, job.id, lambda: not job.handle.is_cancelled)

    def _forget_own(self) -> None:
        self._own = None
        self._server.note_own("", None)
        self._close_engine()

    def _close_engine(self) -> None:
        with self._lock:
            engine, self._engine, self._path = self._engine, None, None
        if self._advisor is not None:
            self._advisor.close()
        self._learning.detach()
        self._advisor = self._traces = None
        if engine is not None:
            engine.close()

    def _failure(self, job: Job, error: Exception) -> Message:
        """Return the final message of a request that failed."""
        if job.kind == "load" and job.handle.is_cancelled:
            sentence: str = text("engine.cancelled")
        else:
            sentence = faults.explain(job.kind, error)
        failed: Message = {"type": "error", "id": job.id, "message": sentence}
        if job.kind == "load" and self._engine is not None:
            failed["kept"] = True  # the model before is still loaded
        return failed


def _asked(job: Job, engine: Engine) -> Message:
    """Return the final message of a question about a prompt or a part of one."""
    if job.kind == "format":
        options = ChatOptions.from_message(job.message.get("options") or {})
        prompt = engine.prompts.format(job.message["messages"], options)
        return {"type": "formatted", "id": job.id, "prompt": prompt}
    if data := job.message.get("data"):
        n_token = engine.prompts.count_image(data)
    else:
        n_token = len(engine.prompts.tokenize(job.message["text"], special=False))
    return {"type": "counted", "id": job.id, "n_token": n_token}


def _in_force(engine: Engine) -> Message:
    return {"model": engine.model.to_json(), "cache": engine.cache.to_json()}


def _forget(owner: str, engine: Engine | None) -> None:
    """Delete the states that only this owner uses."""
    if engine is not None:
        engine.forget_kept(owner)
    shutil.rmtree(states_folder() / owner, ignore_errors=True)


def _devices(job_id: int, *, details: bool) -> Message:
    """Return the message with this machine's devices and backends. Uses no network.

    details: also their memory, and what llama.cpp says of its build and of the processor.
    """
    found: list[Message] = []
    for d in devices.available():
        found.append({"name": d.name, "description": d.description})
        if details:
            found[-1] |= {"free_bytes": d.free_bytes, "total_bytes": d.total_bytes}
    modules = [asdict(module) for module in devices.modules()]
    message = {"type": "devices", "id": job_id, "devices": found, "modules": modules}
    if details:
        from backend.llama.api import kernels  # heavy

        message["kernels"] = kernels()
    return message


def check_file(path: Path) -> None:
    """Read the header of a model file. Raises ModelFileError and OSError."""
    from backend.gguf.model_file import read_model  # imports numpy

    read_model(path)


def main(
    engine_factory: EngineFactory = open_engine, check: Callable[[Path], object] = check_file
) -> NoReturn:
    """Serve standard input and output, and end the process."""
    in_fd, out_fd = private_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client handles Ctrl-C
    faulthandler.enable()
    offer_first()  # the window and its chats stay
    if "--die-with-parent" in sys.argv:
        die_with_parent()
    # Without this a failed check of ggml starts a debugger, which buries the message.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    status = Worker(engine_factory, check, in_fd, out_fd).run()
    sys.stderr.flush()
    os._exit(status)  # everything is closed; the interpreter's shutdown would only take time


if __name__ == "__main__":
    main()
