"""The process that reads one attached file. The file is not trusted.

The parent (backend/attachments/reading.py) writes a request to standard input, framed as in
backend/protocol/messages.py, and reads replies from standard output:

    {"path", "name", "limit_s"}   the request; with "data", Base64 of an image, in place of "path";
                                  with "side", its longest side in pixels, if it is larger
    {"done", "total"}             progress, in pages
    {"file"}                      an Attachment, or {"refusal"} with one sentence; then it ends
    {"width", "height", "rgb"}    for an image in the request: Base64 of the first rows of pixels
    {"rgb"}                       the next rows, until there are as many as pixels

The process ends when its input ends, or after limit_s of processor time.
"""

from __future__ import annotations

import base64
import os
import signal
import stat
import sys
from collections.abc import Callable

from backend.attachments import pictures
from backend.attachments.documents import document_text
from backend.attachments.pdf import MARK, MARK_BYTES, pdf_text
from backend.attachments.text_files import decoded, kind_of
from backend.attachments.web_pages import HTML_SOURCE_CHARS, page_text
from backend.protocol.attachments import TEXT_CHARS_MAX, Attachment, Picture
from backend.protocol.errors import RequestError
from backend.protocol.messages import Decoder, Message, encode
from backend.system import faults
from backend.system.limits import limit_memory, time_limit
from backend.system.pipes import die_with_parent, private_pipes
from backend.text import text

FILE_BYTES_MAX = 64 << 20
_MEMORY_LIMIT_BYTES = 1 << 30
_READ_BYTES = 1 << 16
_RGB_BYTES = 6 << 20  # of one message


def main() -> int:
    """Read the file that the request names."""
    in_fd, out_fd = private_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    die_with_parent()
    limit_memory(_MEMORY_LIMIT_BYTES)
    request = _request(in_fd)
    if request is None:
        return 0
    faults.Thread("input", _end_with_input, in_fd, failed=lambda _: os._exit(1)).start()
    with os.fdopen(out_fd, "wb") as out:

        def say(message: Message) -> None:
            out.write(encode(message))
            out.flush()

        with time_limit(request["limit_s"]):
            say(answer(request, say))
    return 0


def _request(in_fd: int) -> Message | None:
    decoder = Decoder()
    while data := os.read(in_fd, _READ_BYTES):
        if requests := decoder.feed(data):
            return requests[0]
    return None


def _end_with_input(in_fd: int) -> None:
    while os.read(in_fd, _READ_BYTES):
        pass
    os._exit(0)


def answer(request: Message, say: Callable[[Message], None]) -> Message:
    """Return the last reply to a request: the file, or one sentence why it is refused."""
    name = request["name"]
    try:
        if "data" in request:
            data = base64.b64decode(request["data"], validate=True)
            side = request.get("side", 0)
            found = pictures.preview(data, name, side) if side else pictures.decoded(data, name)
            return _show_picture(found, say)
        return {"file": _read(request["path"], name, say).to_json()}
    except RequestError as error:
        return {"refusal": error.args[0]}
    except (MemoryError, RecursionError):
        return {"refusal": text("attach.too_complex", file=name)}
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return {"refusal": text("attach.unreadable", file=name, reason=reason)}
    except ImportError:  # the file is right, and this program is not
        raise
    except Exception:  # pypdf raises nearly anything for a damaged file
        if "data" in request:
            return {"refusal": text("attach.damaged_picture", file=name)}
        return {"refusal": text("attach.damaged", file=name)}


def _show_picture(picture: Picture, say: Callable[[Message], None]) -> Message:
    """Send the pixels of an image. Return the last message."""
    parts = [
        base64.b64encode(picture.rgb[begin : begin + _RGB_BYTES]).decode()
        for begin in range(0, len(picture.rgb), _RGB_BYTES)
    ]
    messages: list[Message] = [{"rgb": part} for part in parts]
    messages[0] |= {"width": picture.width, "height": picture.height}
    for message in messages[:-1]:
        say(message)
    return messages[-1]


def _read(path: str, name: str, say: Callable[[Message], None]) -> Attachment:
    """Read a file. Raises RequestError, OSError, and what pypdf raises for a damaged PDF."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise RequestError(text("attach.folder", file=name))
    if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
        raise RequestError(text("attach.no_file", file=name))
    with open(path, "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        n_bytes = os.stat(path).st_size
        raise RequestError(text("attach.too_large", file=name, n=n_bytes, most=FILE_BYTES_MAX))
    if pictures.kind_of(data):
        kept, was_scaled = pictures.attached(data, name)
        in_base64 = base64.b64encode(kept).decode()
        return Attachment(name, "image", "", data=in_base64, was_scaled=was_scaled)
    if MARK in data[:MARK_BYTES]:
        found, n_page = pdf_text(data, name, lambda done, n: say({"done": done, "total": n}))
        found = found.encode("utf-8", "replace").decode()
        return Attachment(name, "pdf", found, n_page)
    if (document := document_text(data, name)) is not None:
        return Attachment(name, "document", document.encode("utf-8", "replace").decode())
    # Four bytes are the longest character. Only the beginning of a longer file is decoded.
    is_page = name.lower().endswith((".html", ".htm", ".xhtml"))
    n_read = FILE_BYTES_MAX if is_page else 4 * TEXT_CHARS_MAX + 4
    found = decoded(data[:n_read], name).strip("\n")
    if is_page and len(found) > HTML_SOURCE_CHARS and (words := page_text(found, name)):
        return Attachment(name, "document", words)
    if not found.strip():
        raise RequestError(text("attach.empty", file=name))
    if len(found) > TEXT_CHARS_MAX:
        raise RequestError(text("attach.too_long", file=name, most=TEXT_CHARS_MAX))
    return Attachment(name, kind_of(name), found)


if __name__ == "__main__":
    sys.exit(main())
