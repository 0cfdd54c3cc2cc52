"""States of conversations on the drive: the attention cache of their tokens, cut into pieces.

A piece has the keys and values of a few hundred tokens and is found by all tokens up to its end, as
in the prefix trees of servers. Conversations with the same beginning share its pieces. Each owner,
such as a chat, has a folder; a shared piece is one file with a name in several folders. Deleting an
owner's folder therefore deletes what only this owner used. docs/formats.md describes the file.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import struct
import sys
import time
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backend.llama.past import UNKNOWN, Made, steps_of
from backend.system import faults
from backend.system.kept_file import make_folder, sync_folder, write_whole
from backend.system.paths import open_regular

DISK_SHARE = 0.1
"""Greatest share of the free drive that states take, whatever the budget."""
HOUR_BYTES = 2_000_000_000
"""The most bytes that a process writes within any hour: drives wear out."""
_HOUR_S = 3600.0

_SUFFIX = ".state"
_OWN_SUFFIX = ".answers"
_MAGIC = b"OUTRKEPT"
_VERSION = 4
_PREFIX = struct.Struct("<8sII")
_CRC = struct.Struct("<I")
_HEADER_BYTES_MAX = 16 << 20
_KEY_BYTES = 16
_STALE_S = 3600.0  # an unfinished file of this age belongs to no process any more


class DamagedState(ValueError):
    """A file is no state of these tokens."""


@dataclass(frozen=True)
class Piece:
    """A piece of a conversation. n: its tokens that the conversation has, from the first on.

    made: how its tokens were computed. checkpoint: the tokens to which its state can be cut, with
    the checkpoint of n_checkpoint bytes that stands behind the state; 0: there is none. layer: the
    tokens to which the layer for multi-token prediction has computed the text, with its state of
    n_layer bytes at the end; 0: there is none.
    """

    path: Path
    parent: str
    begin: int
    tokens: tuple[int, ...]
    n: int
    made: Made = field(default_factory=dict)
    checkpoint: int = 0
    n_checkpoint: int = 0
    layer: int = 0
    n_layer: int = 0

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return self.begin + len(self.tokens)

    @property
    def key(self) -> str:
        """The end of its name."""
        return key_of(self.parent, self.tokens, self.made)


@dataclass
class _Kept:
    """A piece in the folder. n_bytes: by file; several names may belong to one."""

    used_ns: int
    paths: list[str] = field(default_factory=list)
    n_bytes: dict[int, int] = field(default_factory=dict)


def root_of(identity: Sequence[object]) -> str:
    """Return the parent of the first pieces of a model in a context. identity: JSON values."""
    return _digest(json.dumps([_VERSION, *identity]).encode())


def key_of(parent: str, tokens: Sequence[int], made: Made = UNKNOWN) -> str:
    """Return the key of a piece: it stands for all tokens up to its end, and their passes."""
    passes = json.dumps(made, sort_keys=True).encode() if made else b""
    return _digest(bytes.fromhex(parent) + struct.pack(f"<{len(tokens)}i", *tokens) + passes)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES).hexdigest()


class Hour:
    """Bounds what is written within any hour to HOUR_BYTES.

    Something that alone is larger needs an hour without other writes, and then counts for as many
    hours as the bound takes to write it. clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._written: list[tuple[float, int]] = []  # times and bytes

    def has_room(self, n_bytes: int, *, is_passing: bool = False) -> bool:
        """Return whether so much may be written now.

        is_passing: it is soon written again, with more tokens. Beyond half of the bound it waits
        until less than half as much was written within its share of an hour: such writes are then
        spread over the hour, and leave room for what is new.
        """
        now_s = self._clock()
        hours = [(at_s, n, _HOUR_S * max(1.0, n / HOUR_BYTES)) for at_s, n in self._written]
        self._written = [(at_s, n) for at_s, n, counts_s in hours if now_s - at_s < counts_s]
        n_hour = sum(n for _, n in self._written) + n_bytes
        if n_hour == n_bytes:
            return True
        share_s = _HOUR_S * n_bytes / HOUR_BYTES
        n_recent = sum(n for at_s, n in self._written if now_s - at_s < share_s)
        has_passed = 2 * n_hour <= HOUR_BYTES or 2 * n_recent < n_bytes
        return n_hour <= HOUR_BYTES and (has_passed or not is_passing)

    def add(self, n_bytes: int) -> None:
        """Count bytes that are written now."""
        self._written.append((self._clock(), n_bytes))


HOUR = Hour()
"""Counts what this process writes, with whatever models."""


class KeptStates:
    """Reads and writes pieces. Use from one thread, except for several processes at once.

    folder: has a folder for each owner. Its list of files is read for every question, because other
    processes write to it. A file's tokens are read once: its name stands for them. hour: counts
    what is written; who writes asks it for room.
    """

    def __init__(self, folder: Path, hour: Hour = HOUR) -> None:
        self._folder = folder
        self.hour = hour
        self._tokens: dict[str, tuple[array[int], int]] = {}  # and Piece.checkpoint, by file name
        self._writer = ThreadPoolExecutor(1, "state writer")
        self._reader = ThreadPoolExecutor(1, "state reader")
        self._pending: Future[bool] | None = None
        self.written_s = 0.0
        """The time that writing the last piece took."""

    def close(self) -> None:
        """Finish the piece that is being written and end the threads."""
        self._writer.shutdown()
        self._reader.shutdown()

    # Reading.

    def find(self, root: str, tokens: Sequence[int], n_piece: int) -> list[Piece]:
        """Return the pieces of the longest known beginning of these tokens, in order.

        n_piece: as in missing(). Only the last piece may have more tokens than are wanted; where
        n_piece is 0 it is then wanted up to its checkpoint.
        """
        known: dict[str, dict[str, str]] = {}
        for owner, name in self._files():
            known.setdefault(_parent_in(name), {})[name] = owner
        if len(self._tokens) > 2 * sum(map(len, known.values())):  # most of the files are gone
            self._tokens = {}
        found: list[Piece] = []
        parent, begin = root, 0
        while best := self._best(known.get(parent, {}), parent, begin, tokens[begin:], n_piece):
            try:
                best = replace(_read_piece(best.path, parent)[0], begin=begin, n=best.n)
            except DamagedState as error:
                _discard(best.path, error)
                break
            except OSError:
                break
            found.append(best)
            if best.n < len(best.tokens):
                break
            parent, begin = best.key, best.end
        return found

    def _best(
        self, owners: dict[str, str], parent: str, begin: int, tokens: Sequence[int], n_piece: int
    ) -> Piece | None:
        """Return the child of `parent` that begins with most of these tokens.

        owners: of the children, by their names.
        """
        best: Piece | None = None
        for name in sorted(owners):
            has, checkpoint = self._tokens_of(owners[name], name)
            n = n_equal(has, tokens)
            if n < len(has) and not n_piece:
                n = checkpoint if checkpoint <= n else 0
            if n > (best.n if best else 0):
                path = self._folder / owners[name] / name
                best = Piece(path, parent, begin, tuple(has), n, checkpoint=checkpoint)
                if n == n_piece:
                    break
        return best

    def _tokens_of(self, owner: str, name: str) -> tuple[Sequence[int], int]:
        """Return the tokens of a piece, and Piece.checkpoint; none where it cannot be read."""
        if (known := self._tokens.get(name)) is not None:
            return known
        path = self._folder / owner / name
        try:
            piece, *_ = _read_piece(path, _parent_in(name))
        except DamagedState as error:
            _discard(path, error)
        except OSError:
            pass
        else:
            return self._tokens.setdefault(name, (array("i", piece.tokens), piece.checkpoint))
        return (), 0

    def learn(self, root: str) -> None:
        """Begin to read, in another thread, what find() needs to know of the first pieces.

        Files of earlier versions, which nobody finds, are deleted and counted on standard error.
        """

        def read() -> None:
            n_old = 0
            for owner, name in self._files():
                if _parent_in(name) == root:
                    self._tokens_of(owner, name)
                else:
                    n_old += _delete_old(self._folder / owner / name)
            if n_old:
                told = f"Chats had {n_old} states of an earlier version; they were deleted."
                print(told, file=sys.stderr)

        self._reader.submit(faults.guarded("states", read, faults.no_place))

    def states(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, bytearray]]:
        """Yield pieces with their states; end before one that cannot be read.

        The next piece is read and compared with its checksum in the meantime.
        """
        if not pieces:
            return
        ahead: Future[bytearray] = self._reader.submit(_read_state, pieces[0])
        for i, piece in enumerate(pieces):
            try:
                state = ahead.result()
            except DamagedState as error:
                _discard(piece.path, error)
                return
            except OSError:
                return
            if i + 1 < len(pieces):
                ahead = self._reader.submit(_read_state, pieces[i + 1])
            yield piece, state

    def discard(self, piece: Piece) -> None:
        """Delete a piece that llama.cpp refuses."""
        _discard(piece.path, DamagedState("llama.cpp refuses it"))

    # Writing.

    def missing(
        self,
        owner: str,
        root: str,
        tokens: Sequence[int],
        n_piece: int,
        made: Callable[[int, int], Made] = lambda _begin, _end: UNKNOWN,
    ) -> tuple[list[Piece], set[str]]:
        """Return the pieces that the owner of a conversation lacks, and the keys of all its pieces.

        n_piece: tokens of a piece; 0: one piece has all tokens. made: returns how the tokens from
        one position to another were computed. A piece that is lacking is (parent, begin, end). The
        owner gets the pieces that others have. Those that exist are used now.
        """
        known = {name: other for other, name in self._files()}
        lacking, keys, parent = [], set(), root
        n_piece = n_piece or max(len(tokens), 1)
        for begin in range(0, len(tokens), n_piece):
            own = tuple(tokens[begin : begin + n_piece])
            how = made(begin, begin + len(own))
            key = key_of(parent, own, how)
            path = self._folder / owner / _name(parent, key)
            other = known.get(path.name)
            if other is not None and _link(self._folder / other / path.name, path):
                _use(path, begin)
            else:
                lacking.append(Piece(path, parent, begin, own, len(own), how))
            keys.add(key)
            parent = key
        return lacking, keys

    @property
    def is_writing(self) -> bool:
        """Whether a piece is being written."""
        return self._pending is not None and not self._pending.done()

    def write(self, piece: Piece, state: bytearray, has_room: Callable[[], bool]) -> None:
        """Begin to write a piece in another thread, if has_room(). REQUIRES: not is_writing.

        piece: one that is missing(). state: with the checkpoint and the layer's state behind it.
        The owner's shorter versions of it, those of other passes, and those with its checkpoint's
        tokens are then deleted.
        """
        self._pending = self._writer.submit(self._write, piece, state, has_room)

    def _write(self, piece: Piece, state: bytearray, has_room: Callable[[], bool]) -> bool:
        began_s = time.monotonic()
        is_written = has_room()
        if is_written:
            self.hour.add(len(state))
            is_written = _write_piece(piece, state)
        self.written_s = time.monotonic() - began_s
        return is_written

    def write_note(self, owner: str, name: str, root: str, data: bytes) -> None:
        """Begin to write what is known of an owner. REQUIRES: not is_writing.

        name: of the file. root: of the model.
        """
        path = self._folder / owner / name
        self.hour.add(len(data))
        self._pending = self._writer.submit(_write_note, path, _packed({"root": root}, data))

    def read_note(self, owner: str, name: str, root: str) -> bytes:
        """Return the bytes of write_note(), or b"" if there are none or they are damaged."""
        path = self._folder / owner / name
        try:
            header, begin, n_bytes = _read_head(path)
            return bytes(_read_rest(path, begin, n_bytes)) if header.get("root") == root else b""
        except DamagedState as error:
            _discard(path, error)
        except OSError:
            pass
        return b""

    def settle(self) -> None:
        """Wait until nothing is being written."""
        if self._pending is not None:
            concurrent.futures.wait([self._pending])

    def wait(self) -> bool:
        """Wait until nothing is being written. Return False if the last piece was not written."""
        pending, self._pending = self._pending, None
        return pending is None or pending.result()

    # Deleting.

    def make_room(self, n_bytes: int, budget_bytes: int, keys: set[str]) -> bool:
        """Delete the files used longest ago until `n_bytes` more fit. Return False if they cannot.

        keys: of pieces that stay. The budget is at most DISK_SHARE of what would be free without
        any states.
        """
        kept: dict[str, _Kept] = {}
        for owner, name in self._files((_SUFFIX, _OWN_SUFFIX)):
            path = f"{self._folder}/{owner}/{name}"
            with contextlib.suppress(OSError):
                status = os.stat(path)
                key = _key_in(name) if name.endswith(_SUFFIX) else path
                one = kept.setdefault(key, _Kept(status.st_mtime_ns))
                one.paths.append(path)
                one.n_bytes[status.st_ino] = status.st_size
        with contextlib.suppress(OSError):
            for rest in self._folder.glob("*/*.part"):  # of a process that was killed
                if time.time() - rest.stat().st_mtime > _STALE_S:
                    rest.unlink()
        total = sum(sum(one.n_bytes.values()) for one in kept.values())
        limit = min(budget_bytes, int((self._free_bytes() + total) * DISK_SHARE)) - n_bytes
        for key, one in sorted(kept.items(), key=lambda item: item[1].used_ns):
            if total <= limit:
                break
            if key not in keys:
                total -= sum(one.n_bytes.values())
                for path in one.paths:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        return total <= limit

    def _free_bytes(self) -> int:
        folder = next(f for f in (self._folder, *self._folder.parents) if f.is_dir())
        return shutil.disk_usage(folder).free

    def forget(self, owner: str) -> None:
        """Delete what only this owner uses. A loss of power does not bring it back."""
        self.wait()
        shutil.rmtree(self._folder / owner, ignore_errors=True)
        with contextlib.suppress(OSError):
            sync_folder(self._folder)

    def forget_all(self) -> None:
        """Delete all states. A loss of power does not bring them back."""
        self.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            sync_folder(self._folder.parent)

    def _files(self, suffixes: tuple[str, ...] = (_SUFFIX,)) -> Iterator[tuple[str, str]]:
        """Yield the owner and the name of every piece, or of files with other ends."""
        with contextlib.suppress(OSError):
            for owner in os.listdir(self._folder):
                with contextlib.suppress(OSError):
                    for name in os.listdir(f"{self._folder}/{owner}"):
                        if name.endswith(suffixes):
                            yield owner, name


def n_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens at the beginning are equal."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(a), len(b)))


def _name(parent: str, key: str) -> str:
    return f"{parent}-{key}{_SUFFIX}"


def _parent_in(name: str) -> str:
    return name[: 2 * _KEY_BYTES]


def _key_in(name: str) -> str:
    return name[2 * _KEY_BYTES + 1 : -len(_SUFFIX)]


def _link(existing: Path, path: Path) -> bool:
    """Give a file a second name. Return False where that fails."""
    try:
        make_folder(path.parent)
        os.link(existing, path)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _use(path: Path, begin: int) -> None:
    """Note that a piece is used now. The end of a conversation is deleted before its beginning."""
    now_ns = time.time_ns()
    with contextlib.suppress(OSError):
        os.utime(path, ns=(now_ns, now_ns - begin * 1000))


def _packed(header: dict[str, Any], state: bytes | bytearray) -> bytes:
    """Return a file's content."""
    written = json.dumps({**header, "n_bytes": len(state)}, separators=(",", ":")).encode()
    head = _PREFIX.pack(_MAGIC, _VERSION, len(written)) + written
    return b"".join((head, _CRC.pack(zlib.crc32(head)), state, _CRC.pack(zlib.crc32(state))))


def _read_head(path: Path) -> tuple[dict[str, Any], int, int]:
    """Return the header of a file, the place of what follows, and its bytes.

    Raises OSError, and DamagedState unless the header is right and the file has its length.
    """
    with open(path, "rb", opener=open_regular) as file:
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise DamagedState("it is too short")
        magic, version, n_header = _PREFIX.unpack(prefix)
        if (magic, version) != (_MAGIC, _VERSION) or n_header > _HEADER_BYTES_MAX:
            raise DamagedState("its format is unknown")
        written, crc = file.read(n_header), file.read(_CRC.size)
        n_file = os.fstat(file.fileno()).st_size
    begin = len(prefix) + n_header + _CRC.size
    if crc != _CRC.pack(zlib.crc32(prefix + written)):
        raise DamagedState("its header is damaged")
    try:
        header = json.loads(written)
        n_bytes = int(header["n_bytes"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise DamagedState("its header is damaged") from None
    if n_file != begin + n_bytes + _CRC.size:
        raise DamagedState("its end is missing")
    return header, begin, n_bytes


def _read_rest(path: Path, begin: int, n_bytes: int) -> bytearray:
    """Return what follows the header. Raises OSError and DamagedState."""
    state = bytearray(n_bytes)
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        file.seek(begin)
        n = 0
        while n < n_bytes and (got := file.readinto(memoryview(state)[n:])):
            n += got
        crc = file.read(_CRC.size)
        if hasattr(os, "posix_fadvise"):  # the page cache is for the model
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if crc != _CRC.pack(zlib.crc32(state)):
        raise DamagedState("it is damaged")
    return state


def _read_piece(path: Path, parent: str) -> tuple[Piece, int, int]:
    """Return a piece without its place, and the place of its state in the file, and its bytes.

    Raises as _read_head().
    """
    header, begin, n_bytes = _read_head(path)
    try:
        tokens, made = tuple(header["tokens"]), header["made"]
        checkpoint, n_checkpoint = map(int, header["checkpoint"])
        layer, n_layer = map(int, header["layer"])
        piece = Piece(path, parent, 0, tokens, 0, made, checkpoint, n_checkpoint, layer, n_layer)
        steps_of(made, 0)
        if (header["parent"], piece.key) == (parent, _key_in(path.name)):
            if min(n_checkpoint, n_layer) >= 0 and n_checkpoint + n_layer <= n_bytes:
                return piece, begin, n_bytes
    except (KeyError, TypeError, ValueError, struct.error):
        pass
    raise DamagedState("it is not what its name says")


def _read_state(piece: Piece) -> bytearray:
    """Return the state of a piece. Raises OSError and DamagedState."""
    found, begin, n_bytes = _read_piece(piece.path, piece.parent)
    if found.tokens != piece.tokens:
        raise DamagedState("it was replaced")
    state = _read_rest(piece.path, begin, n_bytes)
    _use(piece.path, piece.begin)
    return state


def _write_piece(piece: Piece, state: bytearray) -> bool:
    """Write a piece, and delete those that it takes the place of. Return False if that fails."""
    header = {
        "parent": piece.parent,
        "tokens": piece.tokens,
        "made": piece.made,
        "checkpoint": [piece.checkpoint, piece.n_checkpoint],
        "layer": [piece.layer, piece.n_layer],
    }
    try:
        write_whole(piece.path, _packed(header, state), durable=True)
        _use(piece.path, piece.begin)
    except OSError as error:
        print(f"The state of a chat was not kept: {error.strerror}.", file=sys.stderr)
        return False
    for other in piece.path.parent.glob(_name(piece.parent, "*")):
        with contextlib.suppress(OSError, DamagedState):
            found, *_ = _read_piece(other, piece.parent)
            has = found.tokens[: found.checkpoint or None]
            if other != piece.path and has == piece.tokens[: len(has)]:
                other.unlink()
    return True


def answers_name(root: str) -> str:
    """Return the name of an owner's file with the answers of a model. root: of the model."""
    return _digest(root.encode()) + _OWN_SUFFIX


def _write_note(path: Path, data: bytes) -> bool:
    with contextlib.suppress(OSError):
        write_whole(path, data, durable=True)
    return True


def _delete_old(path: Path) -> bool:
    """Delete a file of an earlier version. Return whether it was one."""
    with contextlib.suppress(OSError, struct.error):
        with open(path, "rb", opener=open_regular) as file:
            magic, version, _ = _PREFIX.unpack(file.read(_PREFIX.size))
        if magic == _MAGIC and version < _VERSION:
            path.unlink()
            return True
    return False


def _discard(path: Path, error: DamagedState) -> None:
    """Delete a file that is no state, and say so on standard error."""
    print(f"The state {path.name} is read no more: {error}.", file=sys.stderr)
    with contextlib.suppress(OSError):
        path.unlink()
