"""The bodies of requests: how much of them is taken, alone and together, and how one is parsed.

A body is measured while it arrives: its bytes, values and levels. So a body that would take much
time or memory to parse is never parsed. Large bodies are parsed in a thread, one after the other,
while other clients are served.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeVar

from backend.server.ask import Mended, RequestRefused, shown
from backend.system.kept_file import parse_json

MAX_BODY_BYTES = 32 << 20
"""Size of one body: two images of the largest size, or dozens of usual ones, as data URLs."""
MAX_DEPTH = 128
"""Maximum of levels of a request's objects and lists. Schemas of tools have a few."""
MAX_VALUES = 1 << 18
"""Maximum of values of a request; the tokens of the longest contexts, or the biases of a whole
vocabulary, are fewer."""
MAX_HELD_BYTES = 96 << 20
"""Size of all bodies together that arrive, wait or are answered."""
FREE_BYTES = 256 << 10
"""So much of each body is not counted, so that large ones do not keep out small ones."""
MAX_ARRIVING = 128
"""Maximum of bodies that arrive at once."""
BODY_S = 30.0
"""Time for a request's body to arrive."""
RETRY_S = 5
_REST_S = 5.0  # time in which the rest of a refused body is dropped
_REST_BYTES = 2 * MAX_BODY_BYTES
_SMALL_BYTES = 64 << 10  # parsed at once: that takes less time than a thread
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b"[]{},")
_NO_JSON = "The request is not valid JSON in UTF-8 with numbers of at most 64 bits."

T = TypeVar("T")


class Measure:
    """Counts the values and levels of JSON that arrives in pieces, without parsing it."""

    def __init__(self) -> None:
        self._n_value = self._n_level = 0
        self._is_text = False  # the next byte is inside of a string
        self._is_escaped = False  # a backslash came before it

    def add(self, piece: bytes) -> None:
        """Take the next piece. Raises RequestRefused as soon as there are too many."""
        if self._is_escaped and piece:
            piece = piece[1:]
            self._is_escaped = False
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = piece[:-1]
            self._is_escaped = True
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        plain = b"".join(parts[1 if self._is_text else 0 :: 2])
        self._is_text ^= len(parts) % 2 == 0
        structure = plain.translate(None, _NO_STRUCTURE)
        self._n_value += len(structure) - structure.count(b"]") - structure.count(b"}")
        if self._n_value > MAX_VALUES:
            raise RequestRefused(f"The request has more than {MAX_VALUES:,} values.", status=413)
        for byte in structure.translate(None, b","):
            self._n_level += 1 if byte in b"[{" else -1
            if self._n_level > MAX_DEPTH:
                raise RequestRefused(f"The request is nested more than {MAX_DEPTH} levels deep.")
            if self._n_level < 0:
                raise RequestRefused(_NO_JSON)


def parse(data: bytes | bytearray) -> Any:
    """Parse a body that was measured. Raises RequestRefused."""
    try:
        body = parse_json(data.removeprefix(codecs.BOM_UTF8))
    except (ValueError, RecursionError):
        raise RequestRefused(_NO_JSON) from None
    if not _SURROGATE.search(data) or (whole := _whole(body)) == body:
        return body
    return Mended(whole) if isinstance(whole, dict) else whole


def _whole(value: Any) -> Any:
    """Return a value with U+FFFD for each half of a character that stands alone.

    A program that cuts a text between the halves keeps the cut in its history.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(name): _whole(inner) for name, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list) else value


def parse_measured(data: bytes) -> Any:
    """Parse a body that is there whole. Raises RequestRefused."""
    Measure().add(data)
    return parse(data)


class Bodies:
    """The bodies of all requests of a server. Use from one event loop."""

    def __init__(self) -> None:
        self.n_arriving = self.n_held = 0
        self.parsing = asyncio.Lock()

    @contextlib.contextmanager
    def room(self) -> Iterator[Room]:
        """Yield the room of one request's body, until the request is answered."""
        room = Room(self)
        try:
            yield room
        finally:
            self.n_held -= room.n_held


class Room:
    """The room of one request's body. n_held: its bytes that count."""

    def __init__(self, bodies: Bodies) -> None:
        self.n_held = 0
        self._bodies = bodies

    async def read(
        self, pieces: AsyncIterator[bytes], headers: Mapping[str, str], read: Callable[[Any], T]
    ) -> T:
        """Return `read` of the parsed body. Raises RequestRefused and the errors of `read`."""
        data = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                await self._receive(pieces, headers, data)
        except TimeoutError:
            raise RequestRefused("The request's body did not arrive in time.", status=408) from None
        except RequestRefused:
            data.clear()
            self._bodies.n_held -= self.n_held
            self.n_held = 0
            await _drop(pieces)
            raise
        if len(data) <= _SMALL_BYTES:
            return read(parse(data))

        def parsed() -> T:
            body = parse(data)
            data.clear()
            return read(body)

        async with self._bodies.parsing:
            return await asyncio.to_thread(parsed)

    async def _receive(
        self, pieces: AsyncIterator[bytes], headers: Mapping[str, str], data: bytearray
    ) -> None:
        bodies, measure = self._bodies, Measure()
        length, encoding = headers.get("content-length", ""), headers.get("content-encoding", "")
        if encoding.lower() not in ("", "identity"):
            words = f"The body is encoded as {shown(encoding)}; send it without Content-Encoding."
            raise RequestRefused(words, status=415)
        if length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
            raise _too_large()
        if bodies.n_arriving >= MAX_ARRIVING:
            raise _busy("Too many requests arrive at once; ask again.")
        bodies.n_arriving += 1
        try:
            async for piece in pieces:
                if len(data) + len(piece) > MAX_BODY_BYTES:
                    raise _too_large()
                n_held = max(len(data) + len(piece) - FREE_BYTES, 0)
                if bodies.n_held + n_held - self.n_held > MAX_HELD_BYTES:
                    raise _busy("Other requests hold as much as the server takes; ask again.")
                bodies.n_held += n_held - self.n_held
                self.n_held = n_held
                measure.add(piece)
                data += piece
        finally:
            bodies.n_arriving -= 1


async def _drop(pieces: AsyncIterator[bytes]) -> None:
    """Drop the rest of a refused body. Else its client would be cut off before the answer."""
    n_byte = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REST_S):
            async for piece in pieces:
                n_byte += len(piece)
                if n_byte > _REST_BYTES:
                    return


def _too_large() -> RequestRefused:
    limit = f"{MAX_BODY_BYTES >> 20} MiB"
    return RequestRefused(f"The request is larger than {limit}, the most of one.", status=413)


def _busy(sentence: str) -> RequestRefused:
    return RequestRefused(sentence, status=503, retry_s=RETRY_S)
