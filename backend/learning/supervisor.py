"""Runs the learning from chats in the worker: records answers, trains when idle, reports the state.

It never delays an answer. Its own thread writes traces and starts the training process
(child.py), which is paused while the engine is busy and killed when the worker ends.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from backend.gguf.model_file import ModelFile
from backend.learning import recordings as learning
from backend.learning.consent import allow, allowed, recordings_folder
from backend.learning.recordings import Recordings
from backend.protocol.status import LearningFacts
from backend.system import children, faults
from backend.text import from_json, text
from backend.traces.container import ContainerError

if TYPE_CHECKING:
    from backend.traces.trace import Trace

IDLE_S = 20.0
"""How long the engine must be idle before training begins."""
MINUTES = 10.0
"""Longest time of one training."""
ACTIONS = ("status", "allow", "forbid", "delete")
_STEP_S = 0.5


class Traces(Protocol):
    """The source of answers' traces (backend.worker.answer_recorder.AnswerTraces)."""

    def want(
        self, listener: Callable[[Trace], None], *, inputs: bool = False, scores: bool = False
    ) -> None:
        """Pass each answer's trace to `listener`, from the next answer on."""

    def unwant(self, listener: Callable[[Trace], None]) -> None:
        """Pass no more traces to `listener`."""


class Learner:
    """Belongs to one worker. Call its methods from any thread; none blocks for long.

    The learner's thread calls `tell` with every change of state that no request caused.
    """

    actions = ACTIONS

    def __init__(
        self,
        tell: Callable[[LearningFacts], None],
        root: Path | None = None,
        *,
        idle_s: float = IDLE_S,
        minutes: float = MINUTES,
    ) -> None:
        self._tell = tell
        self._root = root if root is not None else recordings_folder()
        self._idle_s = idle_s
        self._minutes = minutes
        self._lock = threading.RLock()
        self._file: ModelFile | None = None
        self._traces: Traces | None = None
        self._recordings: Recordings | None = None
        self._is_cached: Callable[[], bool] = bool
        self._shows_inputs = True
        # With the number of deletions before: answers from before it are not written after it.
        self._answers: queue.Queue[tuple[Recordings, Trace, int] | None] = queue.Queue(maxsize=4)
        self._n_deletion = 0
        self._child: subprocess.Popen[str] | None = None
        self._progress: float | None = None
        self._is_paused = False
        self._idle_since_s: float | None = time.monotonic()
        self._fault = ""
        self._thread: threading.Thread | None = None

    # Called by the worker.

    def attach(self, file: ModelFile, traces: Traces, is_cached: Callable[[], bool]) -> None:
        """Start with a loaded model. is_cached: whether its routing can be recorded now."""
        with self._lock:
            self.detach()
            self._file, self._traces, self._fault = file, traces, ""
            self._is_cached, self._shows_inputs = is_cached, True
            self._recordings = Recordings(file, self._root) if file.is_moe else None
            self._listen()
            self._publish()

    def detach(self) -> None:
        """Forget the model and kill its training. The next training resumes from the checkpoint."""
        with self._lock:
            if self._traces is not None:
                self._traces.unwant(self._keep)
            self._end_child()
            self._file = self._traces = self._recordings = None

    def set_busy(self, yes: bool) -> None:
        """Note that the engine is busy, or idle."""
        with self._lock:
            self._idle_since_s = None if yes else time.monotonic()

    def act(
        self, action: str, reply: Callable[[LearningFacts], object] = lambda _: None
    ) -> LearningFacts:
        """Do one of ACTIONS and return the state. On failure its sentence gives the reason.

        reply: gets the state, too, before `tell` gets a newer one.
        """
        assert action in ACTIONS, action
        with self._lock:
            why = self._do(action)
            state = self.state()
            if why:
                state = replace(state, sentence=why)
            reply(state)
            return state

    def _do(self, action: str) -> str:
        """Do one of ACTIONS. Return why the choice could not be kept, or ""."""
        if action in ("allow", "forbid"):
            try:
                allow(self._root, action == "allow")
            except OSError as error:
                return text("learning.choice_not_kept", reason=error.strerror or str(error))
            self._fault = ""
            self._listen()
        if action in ("forbid", "delete"):
            self._end_child()
        if action == "delete":
            self._n_deletion += 1
            learning.delete_all(self._root)
            self._fault = ""
        return ""

    def state(self) -> LearningFacts:
        """Return the present state."""
        with self._lock:
            recordings = self._recordings
            tokens = 0
            if recordings is not None:
                tokens = sum(map(learning.n_token, recordings.split()[0]))
            return LearningFacts(
                allowed=allowed(self._root),
                n_bytes=learning.n_bytes(self._root),
                most_bytes=recordings.most_bytes if recordings else 0,
                n_token=tokens,
                enough_tokens=recordings.enough_tokens if recordings else 0,
                share=self._progress,
                can_learn=not self._obstacle(),
                sentence=self._sentence(tokens),
            )

    def _publish(self) -> None:
        """Tell the state, so that no thread's older state follows a newer one."""
        with self._lock:
            self._tell(self.state())

    def close(self) -> None:
        """End the training and the thread."""
        self.detach()
        if self._thread is not None:
            self._answers.put(None)
            self._thread.join(5.0)

    # The state in words.

    def _sentence(self, tokens: int) -> str:
        recordings = self._recordings
        if not allowed(self._root):
            return self._obstacle() or text("learning.off")
        if self._fault:
            return self._fault
        if self._file is None:
            return text("learning.no_model")
        if recordings is None or not self._shows_inputs:
            return self._obstacle()
        if self._progress is not None:
            if self._is_paused:
                return text("learning.paused", share=self._progress)
            return text("learning.background", share=self._progress)
        if recordings.result and not recordings.is_due:
            return recordings.result
        if not recordings.is_due and (obstacle := self._obstacle()):
            return obstacle
        if not recordings.is_due:
            return text("learning.recorded", n=tokens, enough=recordings.enough_tokens)
        return text("learning.idle")

    def _obstacle(self) -> str:
        """Return why nothing can be learnt of the loaded model, a sentence, or ""."""
        if self._file is None:
            return ""
        if self._recordings is None:
            return text("learning.no_experts")
        if not self._shows_inputs:
            return text("learning.no_inputs")
        return "" if self._is_cached() else text("learning.no_cache")

    # Recording.

    def _listen(self) -> None:
        if self._traces is None:
            return
        self._traces.unwant(self._keep)
        if allowed(self._root):
            self._traces.want(self._keep, inputs=True, scores=True)
            if self._thread is None:
                self._thread = faults.Thread("learner", self._run, failed=self._fail)
                self._thread.start()

    def _keep(self, trace: Trace) -> None:
        """Queue an answer's trace, in the engine's thread. Drop it if the queue is full."""
        recordings = self._recordings
        self._shows_inputs &= trace.shows_inputs
        if recordings is not None and self._shows_inputs:
            with contextlib.suppress(queue.Full):
                self._answers.put_nowait((recordings, trace, self._n_deletion))

    # The threads.

    def _fail(self, sentence: str) -> None:
        """Give up after an unexpected error, until another model or choice."""
        with self._lock:
            self._end_child()
            self._fault = sentence
            if self._thread is threading.current_thread():
                self._thread = None
            self._publish()

    def _run(self) -> None:
        while True:
            try:
                answer = self._answers.get(timeout=_STEP_S)
            except queue.Empty:
                self._step()
                continue
            if answer is None:
                return
            recordings, trace, n_deletion = answer
            try:
                if n_deletion == self._n_deletion:
                    recordings.add(trace)
                if n_deletion != self._n_deletion:  # deleted while it was written
                    recordings.delete()
            except (ContainerError, OSError) as error:
                self._fault = text("learning.not_recorded", reason=str(error))
            self._publish()

    def _step(self) -> None:
        """Start a training that is due, or pause or resume the running one."""
        with self._lock:
            idle_s = None if self._idle_since_s is None else time.monotonic() - self._idle_since_s
            if self._child is not None:
                self._pause(idle_s is None)
            elif idle_s is not None and idle_s >= self._idle_s and self._may_train():
                self._start_child()

    def _may_train(self) -> bool:
        recordings = self._recordings
        if recordings is None or self._fault:
            return False
        return recordings.allowed and recordings.is_due

    def _start_child(self) -> None:
        assert self._file is not None
        arguments = [str(self._file.path), str(self._root), str(self._minutes)]
        options: dict[str, Any] = {}
        if sys.platform == "win32":
            options["creationflags"] = subprocess.CREATE_NO_WINDOW | subprocess.IDLE_PRIORITY_CLASS
        try:
            self._child = subprocess.Popen(
                children.command("backend.learning.child", *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=children.environment(),
                **options,
            )
        except OSError as error:
            self._fault = text("learning.not_started", reason=error.strerror or str(error))
            return
        self._progress, self._is_paused = 0.0, False
        faults.Thread("training", self._follow, self._child, failed=self._fail).start()
        self._publish()

    def _pause(self, yes: bool) -> None:
        child = self._child
        if child is None or child.stdin is None or yes == self._is_paused:
            return
        try:
            child.stdin.write("pause\n" if yes else "go on\n")
            child.stdin.flush()
        except OSError:
            return  # the child has just ended
        self._is_paused = yes
        self._publish()

    def _follow(self, child: subprocess.Popen[str]) -> None:
        """Read the child's messages until it ends, in a thread for each child."""
        assert child.stdout is not None
        result = ""
        for line in child.stdout:
            try:
                message = json.loads(line, object_hook=from_json)
            except ValueError:
                continue
            with self._lock:
                if child is not self._child:
                    break
                result = str(message.get("result", ""))
                self._progress = float(message.get("share", self._progress or 0.0))
                self._publish()
        status = child.wait()
        with self._lock:
            if child is not self._child:
                return  # _end_child killed it
            self._child, self._progress, self._is_paused = None, None, False
            if status != 0:
                self._fault = result or faults.of_process(child.pid) or text("learning.ended")
            self._publish()

    def _end_child(self) -> None:
        child, self._child = self._child, None
        self._progress, self._is_paused = None, False
        if child is not None:
            child.kill()
