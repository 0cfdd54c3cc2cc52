"""Runs the process that reads an attached file (child.py)."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Callable

from backend.protocol.attachments import PICTURE_PIXELS_MAX, Attachment, Picture, plain_name
from backend.protocol.errors import RequestError
from backend.protocol.messages import Decoder, Message, ProtocolError, encode
from backend.system import children, faults
from backend.text import text

CPU_LIMIT_S = 60.0
"""Processor time for one file."""
DEADLINE_S = 90.0
"""Longest time for one file, on a busy machine or a slow drive."""
_READ_BYTES = 1 << 16


class _Reading:
    """Runs the child once. stop() may be called from any thread at any time."""

    def __init__(self, name: str, request: Message, cpu_limit_s: float) -> None:
        self._name = name
        self._request: Message = {**request, "name": name, "limit_s": cpu_limit_s}
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = threading.Event()
        self._lock = threading.Lock()  # guards the process against stop()

    def _run(self, take: Callable[[Message], bool]) -> None:
        """Call take(reply) until it returns True.

        Raises RequestError with one sentence: why the file is refused, or that it was stopped.
        """
        deadline: threading.Timer | None = None
        try:
            process = self._start()
            deadline = faults.timer("reading deadline", DEADLINE_S, self._kill, faults.no_place)
            self._exchange(process, encode(self._request), take)
        except (OSError, ProtocolError, KeyError, TypeError, ValueError) as error:
            if self._is_stopped.is_set():
                raise RequestError(text("attach.stopped", file=self._name)) from None
            if isinstance(error, RequestError):
                raise
            raise RequestError(text("attach.too_complex", file=self._name)) from None
        finally:
            if deadline is not None:
                deadline.cancel()
            self._close()

    def stop(self) -> None:
        """End the reading."""
        self._is_stopped.set()
        self._kill()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_stopped.is_set():
                raise OSError
            self._process = children.start("backend.attachments.child")
            return self._process

    def _exchange(
        self,
        process: subprocess.Popen[bytes],
        frame: bytes,
        take: Callable[[Message], bool],
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(frame)
        decoder = Decoder()
        while data := process.stdout.read(_READ_BYTES):
            for reply in decoder.feed(data):
                if "refusal" in reply:
                    raise RequestError(reply["refusal"])
                if take(reply):
                    return
        process.wait()
        if fault := faults.of_process(process.pid):
            raise RequestError(fault)
        raise OSError

    def _kill(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class FileReading(_Reading):
    """Reads one file. Call run() once."""

    def __init__(self, path: str, cpu_limit_s: float = CPU_LIMIT_S) -> None:
        name = plain_name(os.path.basename(os.path.normpath(path)))
        super().__init__(name, {"path": path}, cpu_limit_s)

    def run(self, on_progress: Callable[[int, int], None] = lambda *_: None) -> Attachment:
        """Return the attachment. on_progress(done, total) counts pages.

        Raises RequestError with one sentence: why the file is refused, or that it was stopped.
        """
        found: list[Attachment] = []

        def take(reply: Message) -> bool:
            if "file" in reply:
                found.append(Attachment.from_json(reply["file"]))
                return True
            on_progress(int(reply["done"]), int(reply["total"]))
            return False

        self._run(take)
        return found[0]


class PictureReading(_Reading):
    """Decodes one image. data: its file in Base64. Call run() once.

    side: longest side of the decoded image in pixels; 0: as the file has it.
    """

    def __init__(self, data: str, side: int = 0, cpu_limit_s: float = CPU_LIMIT_S) -> None:
        request: Message = {"data": data, "side": side}
        super().__init__(str(text("attach.picture")), request, cpu_limit_s)

    def run(self) -> Picture:
        """Return the image. Raises RequestError with one sentence, as FileReading.run()."""
        sizes: list[int] = []
        rgb = bytearray()

        def take(reply: Message) -> bool:
            if not sizes:
                sizes.extend((int(reply["width"]), int(reply["height"])))
            rgb.extend(base64.b64decode(reply["rgb"]))
            n_byte = sizes[0] * sizes[1] * 3
            if len(rgb) > n_byte or n_byte > PICTURE_PIXELS_MAX * 3:
                raise ValueError
            return len(rgb) == n_byte

        self._run(take)
        return Picture(sizes[0], sizes[1], bytes(rgb))
