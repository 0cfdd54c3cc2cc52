"""Renders a model's chat template in a process that can be killed (template_child.py).

A template comes from a model file and may hang, even within one operation in C. So it never runs
in the engine's process. A deadline or Stop kills its process; the next rendering starts another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from backend.gguf.model_file import ModelFile
from backend.llama.api import LlamaError, Model
from backend.protocol.messages import Decoder, Message, ProtocolError, encode
from backend.system import children
from backend.text import text

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_START_S = 15.0  # added to the deadline, for starting the process on a busy machine
_MARK = "\ue000outrider-end-of-answer\ue001"  # private-use characters, which no text has
_NAME_CHARS_MAX = 80
_READ_BYTES = 1 << 16


class ChatTemplate:
    """A model's template, or ChatML where the model has none.

    Use from one thread; stop() from any, also from a signal handler. The process starts at the
    first rendering or at start(), and is kept.
    """

    def __init__(self, model: Model, file: ModelFile) -> None:
        self._name = " ".join(file.name.split())[:_NAME_CHARS_MAX]
        self._source = {
            "template": file.chat_template or CHATML,
            "bos": model.special_text(model.bos),
            "eos": model.special_text(model.eos),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._knows_source = False  # the process has received the template
        self._is_rendering = False

    def render(
        self, messages: Sequence[Message], is_stopped: Callable[[], bool] = bool
    ) -> str | None:
        """Return the prompt for an answer, or for the rest of a last message of the assistant.

        Return None when stopped: by stop() while it renders, or where is_stopped() is true when
        it begins. Raises LlamaError when the template fails, or takes too much time or memory.
        """
        self._is_rendering = True  # set before is_stopped() is called, so that no stop is lost
        try:
            if not messages or messages[-1]["role"] != "assistant":
                return self._render(messages, is_stopped, add_generation_prompt=True)
            # The mark shows where the answer ends. The template's text behind it is cut off.
            marked = [*messages[:-1], {**messages[-1], "content": _MARK}]
            rendered = self._render(marked, is_stopped, add_generation_prompt=False)
        finally:
            self._is_rendering = False
        if rendered is None:
            return None
        before, found, _ = rendered.partition(_MARK)
        if not found:
            raise LlamaError(text("template.cannot_go_on", model=self._name))
        return before + str(messages[-1]["content"])

    def start(self) -> None:
        """Start the process, unless it runs, without waiting for it. Raises LlamaError."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._knows_source = False
        options: dict[str, Any] = {}
        if sys.platform == "win32":
            options["creationflags"] = subprocess.CREATE_NO_WINDOW
        else:
            options["start_new_session"] = True  # Ctrl-C in the terminal must not reach it
        try:
            self._process = subprocess.Popen(
                children.command("backend.llama.template_child"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("OUTRIDER_DEBUG") else subprocess.DEVNULL,
                bufsize=0,
                **options,
            )
        except OSError as error:
            raise self._refusal(f"its process could not be started: {error.strerror}") from None

    def stop(self) -> None:
        """End the rendering in progress, if any."""
        process = self._process
        if self._is_rendering and process is not None:
            process.kill()

    def close(self) -> None:
        """End the process. A later rendering starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _render(
        self, messages: Sequence[Message], is_stopped: Callable[[], bool], **request: Any
    ) -> str | None:
        self.start()
        process = self._process
        assert process is not None
        if is_stopped():
            return None
        limit_s = _limit_s(len(messages))
        try:
            frames = b"" if self._knows_source else encode(self._source)
            frames += encode({"messages": list(messages), "limit_s": limit_s, **request})
        except ProtocolError:
            raise self._refusal("the conversation is too long for it") from None
        self._knows_source = True
        reply, status, is_late = None, 0, threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()

        deadline = threading.Timer(limit_s + _START_S, end)
        deadline.daemon = True
        deadline.start()
        try:
            reply = _exchange(process, frames)
        finally:
            deadline.cancel()
            if reply is None:  # the process ended, or KeyboardInterrupt left a reply in the pipe
                process.kill()
                status = process.wait()
                self.close()
        if reply is not None:
            return self._prompt(reply)
        if is_stopped():
            return None
        if is_late.is_set() or (sys.platform != "win32" and status == -signal.SIGPROF):
            raise LlamaError(text("template.too_slow", model=self._name))
        raise self._refusal(f"its process ended unexpectedly (status {status})")

    def _prompt(self, reply: Message) -> str:
        prompt = reply.get("prompt")
        if isinstance(prompt, str):
            return prompt
        raise self._refusal(str(reply.get("error")))

    def _refusal(self, reason: str) -> LlamaError:
        return LlamaError(text("template.failed", model=self._name, reason=reason))


def _limit_s(n_message: int) -> float:
    """Return the processor time that a rendering may take, in seconds.

    Gemma 4's template compares every message with all earlier ones: 1.2 s for 801 messages.
    """
    return min(1 + n_message / 100, 10.0)


def _exchange(process: subprocess.Popen[bytes], frames: bytes) -> Message | None:
    """Send frames and return the reply; None if the process ended or sent an invalid reply."""
    assert process.stdin is not None and process.stdout is not None
    decoder = Decoder()
    try:
        rest = memoryview(frames)
        while rest:
            rest = rest[process.stdin.write(rest) :]
        while data := process.stdout.read(_READ_BYTES):
            if replies := decoder.feed(data):
                return replies[0]
    except (OSError, ProtocolError):
        pass
    return None
