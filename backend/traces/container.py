"""The file format of traces and predictor weights: numpy arrays and a header.

A container is an .npz file, so numpy.load opens it too: a zip archive of uncompressed .npy members
and one member `header.json`. The header has `kind`, `version`, `model` (ModelFile.fingerprint) and
further fields of its kind. No member is compressed, so no array is larger than the file, and a
small file cannot demand much memory. Pickle is neither written nor read.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import secrets
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from backend.system.kept_file import sync, sync_folder
from backend.system.paths import open_regular
from backend.text import Text, text

HEADER_BYTES_MAX = 16 << 20
N_ARRAY_MAX = 1 << 14
N_DIMENSION_MAX = 8
DTYPES = ("|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8")
"""Array types that are allowed, as numpy names them; all little-endian."""

_HEADER = "header.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_PIECE_BYTES = 1 << 20
_ALIGNMENT = 64  # bytes; arrays are aligned in the file, so that they can be mapped
_LOCAL = struct.Struct("<4s22xHH")  # a member's local header: magic, ..., lengths of name and extra
_PADDING_ID = 0xD935  # id of an extra field that holds only padding, as in Android's zipalign
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: equal contents give equal files

Header = dict[str, Any]
Arrays = dict[str, NDArray[Any]]


class ContainerError(ValueError):
    """A file cannot be used or written. str() is one sentence for the user."""

    def __init__(self, path: Path, reason: str, *, writing: bool = False) -> None:
        name = (path.name or str(path)).encode("utf-8", "replace").decode("utf-8")
        if writing:
            super().__init__(text("file.not_written", file=name, reason=reason))
        else:
            super().__init__(text("model.unusable", file=name, reason=reason))
        self.path = path
        self.reason = reason


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file atomically, replacing an older one of the same name.

    `header` needs `kind` and `model` (strings) and `version` (1 or more). Its other values are any
    JSON. Raises ContainerError if the file cannot be written.
    """
    assert isinstance(header["kind"], str) and isinstance(header["model"], str)
    assert isinstance(header["version"], int) and header["version"] >= 1
    body = json.dumps(dict(header), allow_nan=False, sort_keys=True).encode()
    assert len(body) <= HEADER_BYTES_MAX and len(arrays) <= N_ARRAY_MAX
    path = Path(path)
    temporary: str | None = None
    try:
        target = os.path.realpath(path)  # replace the target of a link, not the link
        if not os.path.isdir(os.path.dirname(target)):
            raise ContainerError(path, text("file.no_folder"), writing=True)
        if os.path.lexists(target) and not os.path.isfile(target):
            raise ContainerError(path, text("file.taken"), writing=True)
        name = f"{target}.{secrets.token_hex(4)}.part"
        with open(name, "xb", opener=_as_open_as_the_folder) as file:
            temporary = name
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(zipfile.ZipInfo(_HEADER, _EPOCH), body)
                for key, array in arrays.items():
                    _write_array(archive, key, array)
            file.flush()
            sync(file.fileno())
        os.replace(name, target)
        temporary = None
        sync_folder(Path(target).parent)
    except OSError as error:
        raise ContainerError(path, _os_reason(error), writing=True) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _as_open_as_the_folder(path: str, flags: int) -> int:
    """Create a file that nobody may read who may not read its folder."""
    return os.open(path, flags, os.stat(os.path.dirname(path)).st_mode & 0o666)


def read(
    path: Path, kind: str, newest_version: int, *, mapped: bool = False
) -> tuple[Header, Arrays]:
    """Read a file of this kind, of version 1 to `newest_version`. Return its header and arrays.

    Check everything, including the checksums of all data. `mapped`: map the arrays read-only from
    the file, which must not be truncated while they are in use. Raises only ContainerError.
    """
    path = Path(path)
    try:
        with open(path, "rb", opener=open_regular) as file:
            return _Reader(path, file).read(kind, newest_version, mapped)
    except OSError as error:
        raise ContainerError(path, text("model.unreadable", reason=_os_reason(error))) from error
    except MemoryError as error:
        raise ContainerError(path, text("file.no_memory")) from error


def require_model(path: Path, header: Mapping[str, Any], fingerprint: str) -> None:
    """Raise ContainerError unless the header names the model with this ModelFile.fingerprint."""
    if header["model"] != fingerprint:
        raise ContainerError(Path(path), text("file.other_model"))


def _os_reason(error: OSError) -> str:
    return error.strerror or str(error) or "the system did not say why"


def _write_array(archive: zipfile.ZipFile, key: str, array: NDArray[Any]) -> None:
    assert _NAME.fullmatch(key), key
    # ascontiguousarray makes a vector of a scalar; reshape restores the scalar.
    array = np.ascontiguousarray(array).reshape(array.shape)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    assert array.dtype.str in DTYPES, array.dtype
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    info = zipfile.ZipInfo(f"{key}.npy", _EPOCH)
    assert archive.fp is not None
    # 4: the head of the padding field; 20: the zip64 field with the sizes of a large member
    start = archive.fp.tell() + _LOCAL.size + len(info.filename) + 4 + 20 + header.tell()
    info.extra = struct.pack("<HH", _PADDING_ID, -start % _ALIGNMENT) + bytes(-start % _ALIGNMENT)
    with archive.open(info, "w", force_zip64=True) as member:
        member.write(header.getvalue())
        flat = array.reshape(-1).view(np.uint8).data
        for begin in range(0, len(flat), _PIECE_BYTES):
            member.write(flat[begin : begin + _PIECE_BYTES])


class _Reader:
    """Reads one file. Trusts no size, offset or name in it."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._file_bytes = os.fstat(file.fileno()).st_size

    def read(self, kind: str, newest_version: int, mapped: bool) -> tuple[Header, Arrays]:
        members = self._members()
        if _HEADER not in members:
            self._refuse("it has no header")
        header = self._header(members.pop(_HEADER), kind, newest_version)
        arrays = {}
        for name, info in members.items():
            key = name.removesuffix(".npy")
            if key == name or not _NAME.fullmatch(key):
                self._refuse("it holds something that is not an array")
            arrays[key] = self._array(key, info, mapped)
        return header, arrays

    def _refuse(self, reason: str, cause: Exception | None = None) -> NoReturn:
        """Raise ContainerError. reason: a Text, or a detail of the damage."""
        if not isinstance(reason, Text):
            reason = text("file.damaged", detail=reason)
        raise ContainerError(self._path, reason) from cause

    def _members(self) -> dict[str, zipfile.ZipInfo]:
        if self._file_bytes == 0:
            self._refuse(text("model.empty"))
        if self._file.read(4) != b"PK\x03\x04":
            self._refuse(text("file.foreign"))
        try:
            with zipfile.ZipFile(self._file) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError) as error:
            self._refuse(text("file.incomplete"), error)
        except (ValueError, struct.error, OverflowError, MemoryError) as error:
            self._refuse("its list of contents is damaged", error)
        if len(infos) > N_ARRAY_MAX + 1:
            self._refuse(f"it claims {len(infos)} arrays, and {N_ARRAY_MAX} are allowed")
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                self._refuse("it was compressed, which Outrider's files never are")
        if sum(info.file_size for info in infos) > self._file_bytes:
            self._refuse("it claims to hold more than its size")
        members = {info.filename: info for info in infos}
        if len(members) != len(infos):
            self._refuse("it holds two arrays of the same name")
        return members

    def _place(self, info: zipfile.ZipInfo) -> int:
        """Return the offset of a member's data in the file."""
        self._file.seek(info.header_offset)
        raw = self._file.read(_LOCAL.size)
        if len(raw) < _LOCAL.size or not raw.startswith(b"PK\x03\x04"):
            self._refuse("its list of contents points to nothing")
        _, n_name, n_extra = _LOCAL.unpack(raw)
        start = info.header_offset + _LOCAL.size + n_name + n_extra
        if start + info.file_size > self._file_bytes:
            self._refuse(text("file.truncated"))
        return int(start)

    def _require_checksum(self, what: str, found: int, info: zipfile.ZipInfo) -> None:
        if found != info.CRC:
            self._refuse(f"the checksum of {what} is wrong")

    def _header(self, info: zipfile.ZipInfo, kind: str, newest_version: int) -> Header:
        if info.file_size > HEADER_BYTES_MAX:
            self._refuse(f"its header has more than {HEADER_BYTES_MAX >> 20} MiB")
        self._file.seek(self._place(info))
        raw = self._file.read(info.file_size)
        self._require_checksum("its header", zlib.crc32(raw), info)
        try:
            header = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            self._refuse("its header is not valid JSON", error)
        if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
            self._refuse("its header does not say what it is")
        if header["kind"] != kind:
            found = ascii(header["kind"][:40])
            self._refuse(text("file.other_kind", kind=kind, found=found))
        version = header.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            self._refuse("its header does not say its version")
        if version > newest_version:
            self._refuse(text("file.newer", version=version, newest=newest_version))
        if not isinstance(header.get("model"), str):
            self._refuse("its header does not say which model it belongs to")
        return header

    def _array(self, key: str, info: zipfile.ZipInfo, mapped: bool) -> NDArray[Any]:
        what = f"the array {key}"
        start = self._place(info)
        self._file.seek(start)
        head = io.BytesIO(self._file.read(min(info.file_size, 1 << 14)))
        try:
            if np.lib.format.read_magic(head) != (1, 0):
                self._refuse(f"{what} is in a format that Outrider does not write")
            shape, by_column, dtype = np.lib.format.read_array_header_1_0(head)
        except ContainerError:
            raise
        except Exception as error:  # numpy's parser may raise anything on hostile bytes
            self._refuse(f"{what} has a damaged header", error)
        if dtype.str not in DTYPES or dtype.fields is not None:
            self._refuse(f"{what} is of a type that is not allowed")
        if len(shape) > N_DIMENSION_MAX or not all(0 <= n < 1 << 48 for n in shape) or by_column:
            self._refuse(f"{what} has a shape that is not allowed")
        n_bytes = math.prod(int(n) for n in shape) * dtype.itemsize
        if head.tell() + n_bytes != info.file_size:
            self._refuse(f"{what} has {info.file_size - head.tell()} bytes instead of {n_bytes}")
        checksum = zlib.crc32(head.getbuffer()[: head.tell()])
        return self._data(what, info, start + head.tell(), (shape, dtype), mapped, checksum)

    def _data(
        self,
        what: str,
        info: zipfile.ZipInfo,
        begin: int,
        form: tuple[tuple[int, ...], np.dtype[Any]],
        mapped: bool,
        checksum: int,
    ) -> NDArray[Any]:
        """Read the data of an array in pieces, and check their checksum."""
        shape, dtype = form
        n_bytes = math.prod(shape) * dtype.itemsize
        array = np.empty(min(n_bytes, _PIECE_BYTES) if mapped else n_bytes, np.uint8)
        whole = array.data
        self._file.seek(begin)
        for at in range(0, n_bytes, _PIECE_BYTES):
            n = min(_PIECE_BYTES, n_bytes - at)
            piece = whole[:n] if mapped else whole[at : at + n]
            if self._file.readinto(piece) != n:  # type: ignore[attr-defined]
                self._refuse(text("file.shorter"))
            checksum = zlib.crc32(piece, checksum)
        self._require_checksum(what, checksum, info)
        if mapped and n_bytes:
            return np.memmap(self._path, dtype, "r", begin, shape)
        return array.view(dtype).reshape(shape)
