"""Reads and checks the header of one GGUF file. The file is not trusted.

The format is described in the GGUF specification of the ggml project. Every count, length and
offset is compared with the size of the file before it is used, in Python's unbounded integers. No
allocation is proportional to a number that only the file claims. The limits below bound time and
memory, even for a file of many gigabytes that was made to exhaust them.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

from backend.gguf.identity import FileIdentity
from backend.gguf.tables import N_DIMENSION_MAX, TENSOR_NAME_BYTES_MAX, TENSOR_TYPES, TensorType
from backend.text import Text, text

HEADER_BYTES_MAX = 128 << 20
"""Longest accepted header; a vocabulary of 260,000 tokens with merges needs about 15 MB."""
STRING_BYTES_MAX = 16 << 20
N_KEY_MAX = 1 << 16
N_TENSOR_MAX = 1 << 16
ALIGNMENT_MAX = 1 << 16
N_ITEM_KEPT = 4096
"""Longer arrays are only counted, and so are all after the first N_ITEM_KEPT_IN_ALL items."""
N_ITEM_KEPT_IN_ALL = 1 << 16
N_STRING_MAX = 1 << 22
"""Limit for strings in arrays, which are skipped one by one, in about 0.1 us each."""

_CHUNK_BYTES = 1 << 20
_INT64_MAX = (1 << 63) - 1
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, tuple[str, str]] = {  # value type: name, struct format
    0: ("uint8", "<B"),
    1: ("int8", "<b"),
    2: ("uint16", "<H"),
    3: ("int16", "<h"),
    4: ("uint32", "<I"),
    5: ("int32", "<i"),
    6: ("float32", "<f"),
    7: ("bool", "<?"),
    10: ("uint64", "<Q"),
    11: ("int64", "<q"),
    12: ("float64", "<d"),
}

Scalar = bool | int | float | str


@dataclass(frozen=True)
class ArraySummary:
    """Replaces an array of metadata that is too long to keep. start: where its items begin."""

    item_type: str
    count: int
    start: int = field(default=0, compare=False)


Value = Scalar | tuple[Scalar, ...] | ArraySummary
What = Callable[[], Text]
"""Returns what a message calls a part of a header. Called only for a refusal, as it is slow."""


class ModelFileError(ValueError):
    """A model file was refused; str() is one sentence for the user.

    path: the file, or the part of a split model. reason: which field is wrong, and why.
    """

    def __init__(self, path: Path, reason: str) -> None:
        name = (path.name or str(path)).encode("utf-8", "replace").decode("utf-8")
        super().__init__(text("model.unusable", file=name, reason=reason))
        self.path = path
        self.reason = reason


@dataclass(frozen=True)
class RawTensor:
    """One tensor as described by its file. offset: from the start of the file."""

    name: str
    shape: tuple[int, int, int, int]
    n_dimension: int
    type: TensorType
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class Header:
    """The header of one file. digest: the SHA-256 of all bytes before the padding.

    identity: of the file; None where the header does not come from a file.
    """

    path: Path
    file_bytes: int
    version: int
    metadata: dict[str, Value]
    value_types: dict[str, str]
    tensors: tuple[RawTensor, ...]
    digest: bytes
    identity: FileIdentity | None = None


class Readable(Protocol):
    """The source of a header."""

    def read(self, n_bytes: int, /) -> bytes:
        """Return the next bytes, at most n_bytes; b"" at the end."""


def read_header(path: Path) -> Header:
    """Read and check the header of one file. Raises only ModelFileError."""
    try:
        with _open(path) as file:
            identity = FileIdentity.of(file.fileno())
            header = parse_header(path, file, identity.size_bytes)
            if FileIdentity.of(file.fileno()) != identity:
                raise ModelFileError(path, text("gguf.changed"))
            return replace(header, identity=identity)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelFileError(path, text("model.unreadable", reason=reason)) from error


def read_string(path: Path, array: ArraySummary, index: int) -> str:
    """Return one string of a long array of a checked header. Raises OSError and IndexError."""
    if not 0 <= index < array.count:
        raise IndexError(index)
    with open(path, "rb") as file:
        file.seek(array.start)
        for _ in range(index):
            file.seek(_U64.unpack(file.read(8))[0], os.SEEK_CUR)
        return file.read(_U64.unpack(file.read(8))[0]).decode("utf-8", "replace")


def read_strings(path: Path, array: ArraySummary) -> Iterator[bytes]:
    """Yield the strings of a long array of a checked header. Raises OSError."""
    with open(path, "rb") as file:
        file.seek(array.start)
        buffer, at = b"", 0
        for _ in range(array.count):
            while len(buffer) < at + 8 or len(buffer) < at + 8 + _U64.unpack_from(buffer, at)[0]:
                piece = file.read(_CHUNK_BYTES)
                if not piece:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
                buffer, at = buffer[at:] + piece, 0
            end = at + 8 + _U64.unpack_from(buffer, at)[0]
            yield buffer[at + 8 : end]
            at = end


def parse_header(path: Path, file: Readable, file_bytes: int) -> Header:
    """Read and check a header from any source. path: its name in errors.

    Reads at most 1 MiB beyond the header. Raises ModelFileError, and the errors of `file`.
    """
    return _Parser(path, file, file_bytes).parse()


def _open(path: Path) -> BinaryIO:
    """Open a regular file. Refuse a pipe or a device before opening it, as that can block."""
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:  # a zero byte in the name
        raise ModelFileError(path, text("file.bad_name")) from error
    if stat.S_ISDIR(mode):
        raise ModelFileError(path, text("model.folder"))
    if not stat.S_ISREG(mode):
        raise ModelFileError(path, text("file.not_regular"))
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    file = os.fdopen(descriptor, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise ModelFileError(path, text("file.not_regular"))
    return file


class _Parser:
    """Reads the header once, through a buffer, and hashes all bytes that it has passed."""

    def __init__(self, path: Path, file: Readable, file_bytes: int) -> None:
        self._path = path
        self._file = file
        self._file_bytes = file_bytes
        self._buffer = b""
        self._at = 0  # in the buffer
        self._buffer_start = 0  # in the file
        self._hash = hashlib.sha256()
        self._n_item_left = N_ITEM_KEPT_IN_ALL
        self._n_string_left = N_STRING_MAX

    def parse(self) -> Header:
        version = self._preamble()
        n_tensor = self._count(lambda: text("gguf.n_tensor"), N_TENSOR_MAX, 24)
        n_key = self._count(lambda: text("gguf.n_key"), N_KEY_MAX, 13)
        metadata: dict[str, Value] = {}
        value_types: dict[str, str] = {}
        for i in range(n_key):
            key = self._key(i)
            what = functools.partial(_key, key)
            if key in metadata:
                self._refuse(text("gguf.twice", what=what()))
            metadata[key], value_types[key] = self._value(what)
        alignment = self._alignment(metadata, value_types)
        infos = [self._tensor_info(i) for i in range(n_tensor)]
        self._hash.update(self._buffer[: self._at])
        tensors = self._placed(infos, -(-self._tell() // alignment) * alignment, alignment)
        return Header(
            path=self._path,
            file_bytes=self._file_bytes,
            version=version,
            metadata=metadata,
            value_types=value_types,
            tensors=tensors,
            digest=self._hash.digest(),
        )

    # Reading

    def _refuse(self, reason: str) -> NoReturn:
        raise ModelFileError(self._path, reason)

    def _tell(self) -> int:
        return self._buffer_start + self._at

    def _left(self) -> int:
        return self._file_bytes - self._tell()

    def _require(self, n_bytes: int, what: What) -> None:
        """Refuse the file if it ends within the next n_bytes."""
        if n_bytes > self._left():
            detail = text("gguf.ends_inside", what=what())
            self._refuse(text("model.truncated", detail=detail))

    def _fill(self, n_bytes: int, what: What) -> None:
        """Fill the buffer with n_bytes from the current position on, or refuse the file."""
        self._require(n_bytes, what)
        if self._tell() + n_bytes > HEADER_BYTES_MAX:
            self._refuse(text("gguf.long_header", most=HEADER_BYTES_MAX, what=what()))
        if len(self._buffer) - self._at >= n_bytes:
            return
        self._hash.update(self._buffer[: self._at])
        self._buffer_start += self._at
        pieces = [self._buffer[self._at :]]
        n_have = len(pieces[0])
        while n_have < n_bytes:
            piece = self._file.read(max(n_bytes - n_have, _CHUNK_BYTES))
            if not piece:
                self._refuse(text("gguf.became_shorter", what=what()))
            pieces.append(piece)
            n_have += len(piece)
        self._buffer, self._at = b"".join(pieces), 0

    def _take(self, n_bytes: int, what: What) -> bytes:
        self._fill(n_bytes, what)
        taken = self._buffer[self._at : self._at + n_bytes]
        self._at += n_bytes
        return taken

    def _skip(self, n_bytes: int, what: What) -> None:
        self._require(n_bytes, what)
        while n_bytes:
            step = min(n_bytes, _CHUNK_BYTES)
            self._fill(step, what)
            self._at += step
            n_bytes -= step

    def _u32(self, what: What) -> int:
        return int(_U32.unpack(self._take(4, what))[0])

    def _u64(self, what: What) -> int:
        return int(_U64.unpack(self._take(8, what))[0])

    def _count(self, what: What, most: int, n_bytes_each: int) -> int:
        """Read a count of items of at least n_bytes_each, which must fit into the file."""
        count = self._u64(what)
        if count > most:
            self._refuse(text("gguf.implausible", what=what(), n=count, most=most))
        if count * n_bytes_each > self._left():
            detail = text("gguf.too_short", what=what(), n=count)
            self._refuse(text("model.truncated", detail=detail))
        return count

    def _string(self, what: What) -> bytes:
        n_bytes = self._u64(lambda: text("gguf.length", what=what()))
        if n_bytes > self._left():
            self._refuse(text("gguf.claims_left", what=what(), n=n_bytes))
        if n_bytes > STRING_BYTES_MAX:
            most = STRING_BYTES_MAX
            self._refuse(text("gguf.claims_most", what=what(), n=n_bytes, most=most))
        return self._take(n_bytes, what)

    # The parts of a header, in their order

    def _preamble(self) -> int:
        if self._file_bytes == 0:
            self._refuse(text("model.empty"))
        magic = self._take(min(4, self._file_bytes), lambda: text("gguf.magic"))
        if magic != b"GGUF":
            self._refuse(text("model.not_gguf"))
        raw = self._take(4, lambda: text("gguf.version"))
        version = int.from_bytes(raw, "little")
        if version & 0xFFFF == 0 and int.from_bytes(raw, "big") in range(1, 16):
            self._refuse(text("gguf.big_endian"))
        if version not in (2, 3):
            self._refuse(text("gguf.unknown_version", version=version))
        return version

    def _key(self, i: int) -> str:
        def what() -> Text:
            return text("gguf.key_name", n=i + 1)

        raw = self._string(what)
        if not raw:
            self._refuse(text("gguf.empty_name", what=what()))
        return self._utf8(raw, what)

    def _utf8(self, raw: bytes, what: What) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(self._path, text("gguf.not_utf8", what=what())) from error

    def _value(self, what: What) -> tuple[Value, str]:
        kind = self._u32(lambda: text("gguf.type", what=what()))
        if kind == _STRING:
            return self._string(what).decode("utf-8", "replace"), "string"
        if kind == _ARRAY:
            return self._array(what), "array"
        if kind not in _SCALARS:
            self._refuse(text("gguf.value_type", what=what(), type=kind))
        name, layout = _SCALARS[kind]
        value: Scalar = struct.unpack(layout, self._take(struct.calcsize(layout), what))[0]
        return value, name

    def _array(self, what: What) -> Value:
        kind = self._u32(lambda: text("gguf.item_type", what=what()))
        count = self._u64(lambda: text("gguf.length", what=what()))
        if kind == _ARRAY:
            self._refuse(text("gguf.array_of_arrays", what=what()))
        if kind != _STRING and kind not in _SCALARS:
            self._refuse(text("gguf.array_type", what=what(), type=kind))
        n_bytes_each = 8 if kind == _STRING else struct.calcsize(_SCALARS[kind][1])
        if count * n_bytes_each > self._left():
            self._refuse(text("gguf.claims_items", what=what(), n=count))
        keep = count <= min(N_ITEM_KEPT, self._n_item_left)
        self._n_item_left -= count if keep else 0
        if kind == _STRING:
            if keep:
                items = [self._string(functools.partial(_item, i + 1, what)) for i in range(count)]
                return tuple(item.decode("utf-8", "replace") for item in items)
            start = self._tell()
            self._skip_strings(count, what)
            return ArraySummary("string", count, start)
        name, layout = _SCALARS[kind]
        if not keep:
            start = self._tell()
            self._skip(count * n_bytes_each, what)
            return ArraySummary(name, count, start)
        raw = self._take(count * n_bytes_each, what)
        return tuple(item[0] for item in struct.iter_unpack(layout, raw))

    def _skip_strings(self, count: int, what: What) -> None:
        """Skip strings without making objects of them."""
        if count > self._n_string_left:
            self._refuse(text("gguf.many_strings", what=what(), n=count, most=N_STRING_MAX))
        self._n_string_left -= count
        unpack = _U64.unpack_from
        while count:
            buffer, at, end = self._buffer, self._at, len(self._buffer)
            while count and at + 8 <= end:
                following = at + 8 + unpack(buffer, at)[0]
                if following > end:
                    break
                at = following
                count -= 1
            self._at = at
            if count:  # the next string crosses the end of the buffer
                self._string(lambda: text("gguf.some_item", what=what()))
                count -= 1

    def _alignment(self, metadata: dict[str, Value], value_types: dict[str, str]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if "general.alignment" in metadata and value_types["general.alignment"] != "uint32":
            self._refuse(text("gguf.alignment_type"))
        assert isinstance(alignment, int)
        if alignment < 8 or alignment > ALIGNMENT_MAX or alignment & (alignment - 1):
            self._refuse(text("gguf.alignment", n=alignment, most=ALIGNMENT_MAX))
        return alignment

    def _tensor_info(self, i: int) -> tuple[str, tuple[int, ...], TensorType, int]:
        """Return name, dimensions, type, and the offset within the file's data."""

        def named() -> Text:
            return text("gguf.tensor_name", n=i + 1)

        raw = self._string(named)
        if not raw or len(raw) > TENSOR_NAME_BYTES_MAX:
            most = TENSOR_NAME_BYTES_MAX
            self._refuse(text("gguf.name_bytes", what=named(), n=len(raw), most=most))
        name = self._utf8(raw, named)
        what = functools.partial(tensor_words, name)
        n_dimension = self._u32(lambda: text("gguf.n_dimension", what=what()))
        if not 1 <= n_dimension <= N_DIMENSION_MAX:
            most = N_DIMENSION_MAX
            self._refuse(text("gguf.dimensions", what=what(), n=n_dimension, most=most))
        dimensions = tuple(
            self._u64(lambda: text("gguf.dimension", what=what())) for _ in range(n_dimension)
        )
        type_id = self._u32(lambda: text("gguf.type", what=what()))
        if type_id not in TENSOR_TYPES:
            self._refuse(text("gguf.tensor_type", what=what(), type=type_id))
        offset = self._u64(lambda: text("gguf.offset", what=what()))
        return name, dimensions, TENSOR_TYPES[type_id], offset

    def _placed(
        self,
        infos: list[tuple[str, tuple[int, ...], TensorType, int]],
        data_start: int,
        alignment: int,
    ) -> tuple[RawTensor, ...]:
        """Compute every tensor's size and offset. Tensors must follow each other without gaps."""
        tensors: dict[str, RawTensor] = {}
        expected = 0
        for name, dimensions, kind, offset in infos:
            what = functools.partial(tensor_words, name)
            if name in tensors:
                self._refuse(text("gguf.twice", what=what()))
            n_bytes = self._tensor_bytes(what, dimensions, kind)
            end = data_start + offset + n_bytes
            if end > self._file_bytes:
                self._refuse(text("gguf.beyond_end", what=what(), end=end, n=self._file_bytes))
            if offset < expected:
                self._refuse(text("gguf.overlap", what=what(), offset=offset, expected=expected))
            if offset > expected:
                self._refuse(text("gguf.gap", what=what(), offset=offset, expected=expected))
            expected += -(-n_bytes // alignment) * alignment
            padded = dimensions + (1,) * (N_DIMENSION_MAX - len(dimensions))
            shape = (padded[0], padded[1], padded[2], padded[3])
            start = data_start + offset
            tensors[name] = RawTensor(name, shape, len(dimensions), kind, start, n_bytes)
        return tuple(tensors.values())

    def _tensor_bytes(self, what: What, dimensions: tuple[int, ...], kind: TensorType) -> int:
        n_value = 1
        for dimension in dimensions:
            if dimension == 0:
                self._refuse(text("gguf.zero_dimension", what=what()))
            n_value *= dimension
        if n_value * kind.n_bytes > _INT64_MAX:
            self._refuse(text("gguf.overflow", what=what(), n=n_value))
        if dimensions[0] % kind.n_value:
            n, block = dimensions[0], kind.n_value
            self._refuse(text("gguf.rows", what=what(), n=n, type=kind.name, block=block))
        return n_value // kind.n_value * kind.n_bytes


def _key(key: str) -> Text:
    return text("gguf.key", key=quoted(key))


def _item(n: int, what: What) -> Text:
    return text("gguf.item", n=n, what=what())


def tensor_words(name: str) -> Text:
    """Return what a message calls a tensor."""
    return text("gguf.tensor", tensor=quoted(name))


def quoted(name: str) -> str:
    """Return a name from a file for a message: printable, and at most 80 characters long."""
    shown = name if len(name) <= 80 else name[:77] + "..."
    return ascii(shown) if not shown.isprintable() else f"'{shown}'"
