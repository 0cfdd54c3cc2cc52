"""Reads attached files for the client, one after the other, while the engine may compute."""

from __future__ import annotations

import base64
import queue
import threading

from backend.attachments.reading import FileReading, PictureReading
from backend.protocol.errors import RequestError
from backend.protocol.messages import Message
from backend.system import faults
from backend.worker.outbox import Outbox

SIDE_MAX = 2048
"""Longest side of a picture that a client asks for, in pixels."""

_Reading = FileReading | PictureReading


class AttachmentDesk:
    """Answers "attach" and "picture" in a thread of its own. Use from any thread."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._lock = threading.Lock()  # guards the next two
        self._open: dict[int, _Reading] = {}
        self._is_running = False
        self._waiting: queue.SimpleQueue[tuple[int, _Reading] | None] = queue.SimpleQueue()

    def serve(self, request: Message) -> None:
        """Read a file when those before are read. Raises RequestError."""
        with self._lock:
            if request["id"] in self._open:
                raise RequestError(f"The id {request['id']} is already in use by another request.")
            reading: _Reading
            if request["type"] == "picture":
                reading = PictureReading(request["data"], min(max(request["side"], 1), SIDE_MAX))
            else:
                reading = FileReading(request["path"])
            self._open[request["id"]] = reading
            self._waiting.put((request["id"], reading))
            if not self._is_running:
                self._is_running = True
                faults.Thread("attachments", self._read_all, failed=self._refuse_all).start()

    def cancel(self, request_id: int) -> None:
        """Stop reading a file. Ignore other requests."""
        with self._lock:
            reading = self._open.get(request_id)
        if reading is not None:
            reading.stop()

    def close(self) -> None:
        """Stop reading all files, and end the thread."""
        with self._lock:
            readings = list(self._open.values())
        for reading in readings:
            reading.stop()
        self._waiting.put(None)

    def _read_all(self) -> None:
        # Until close(): on Linux a child process dies with the thread that started it.
        while (item := self._waiting.get()) is not None:
            self._read(*item)

    def _read(self, request_id: int, reading: _Reading) -> None:
        def progress(done: int, total: int) -> None:
            step = {"type": "attaching", "id": request_id, "done": done, "total": total}
            self._outbox.offer(step)

        answer = _answer(request_id, reading)
        try:
            if isinstance(reading, PictureReading):
                picture = reading.run()
                answer |= {"width": picture.width, "height": picture.height}
                answer["rgb"] = base64.b64encode(picture.rgb).decode()
            else:
                answer["file"] = reading.run(progress).to_json()
        except Exception as error:
            answer["refusal"] = faults.explain("attach", error)
        self._end(answer)

    def _end(self, answer: Message) -> None:
        with self._lock:
            self._open.pop(answer["id"], None)
        self._outbox.send(answer)

    def _refuse_all(self, sentence: str) -> None:
        """Refuse what waits, after the end of the thread. The next file gets another one."""
        with self._lock:
            left, self._is_running = list(self._open.items()), False
            self._waiting = queue.SimpleQueue()
        for request_id, reading in left:
            self._end({**_answer(request_id, reading), "refusal": sentence})


def _answer(request_id: int, reading: _Reading) -> Message:
    is_picture = isinstance(reading, PictureReading)
    return {"type": "picture" if is_picture else "attached", "id": request_id}
