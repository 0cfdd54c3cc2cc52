"""Writes, checks and deletes packs. backend.packs.file describes the file format."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.gguf.identity import FileChangedError, FileIdentity
from backend.gguf.model_file import ModelFile, ModelFileError
from backend.gguf.scales import bad_value, not_finite
from backend.gguf.tables import TENSOR_TYPES
from backend.packs.file import (
    BLOCK_BYTES,
    LAYOUTS,
    Layout,
    Pack,
    PackedLayer,
    PackError,
    PackPlan,
    beside,
    find,
    in_data_folder,
    plan_of,
    read,
)
from backend.text import text

__all__ = [
    "BLOCK_BYTES",
    "LAYOUTS",
    "Layout",
    "Pack",
    "PackError",
    "beside",
    "best_layout",
    "check",
    "delete",
    "find",
    "in_data_folder",
    "place_for",
    "plan_of",
    "read",
    "space_needed",
    "write",
]

Progress = Callable[[int, int], bool]
"""Called with the bytes done and the bytes in all. Returns False to stop."""

_PART = ".part"


class Stopped(PackError):
    """The user stopped the writing."""


def best_layout(file: ModelFile) -> Layout:
    """Return the layout that computes fastest on this processor."""
    try:
        plan_of(file, "repacked")
    except PackError:
        return "file"
    return "repacked"


def place_for(file: ModelFile) -> Path:
    """Return the path for a new pack: beside the model, or in the data folder if not writable."""
    path = beside(file)
    return path if os.access(path.parent, os.W_OK) else in_data_folder(file)


def write(
    file: ModelFile, layout: Layout, path: Path | None = None, progress: Progress | None = None
) -> Pack:
    """Write the pack of a model completely or not at all. Replaces a file of that name.

    Continues an interrupted pack, as far as its checksums are right. Raises PackError. Nothing is
    left on the disk if the disk was full, the model has values that are not finite, or the model
    was changed during the writing.
    """
    from backend.llama.api import log  # heavy: llama_cpp; keeps ggml's lines off standard error

    log.listen(echo=False)
    path = place_for(file) if path is None else path
    plan = plan_of(file, layout)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            with contextlib.suppress(PackError):
                if (pack := read(path, file)).plan.layout == layout:
                    return pack
        _require_space(path, plan)
        identity = _write_whole(file, plan, path, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PackError(text("file.not_written", file=path.name, reason=reason)) from None
    except (ModelFileError, FileChangedError) as error:
        raise PackError(str(error)) from None
    return Pack(path, plan, identity)


def check(pack: Pack, progress: Progress | None = None) -> None:
    """Read a whole pack and compare its checksums. Raises PackError at the first that differs."""
    plan = pack.plan
    try:
        with pack.path.open("rb", buffering=0) as handle:
            sums = _read_sums(handle.fileno(), plan)
            done = 0
            for row, layer in enumerate(plan.layers):
                for expert in range(plan.n_expert):
                    offset = layer.offset + expert * layer.stride
                    data = _read_at(handle.fileno(), layer.stride, offset)
                    if len(data) != layer.stride or _sum(data) != sums[row, expert]:
                        raise PackError(
                            text(
                                "pack.damaged",
                                file=pack.path.name,
                                expert=expert,
                                layer=layer.layer,
                            )
                        )
                    done += layer.stride
                    _forget(handle.fileno(), offset, layer.stride)
                    _report(progress, done, plan)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PackError(text("kept.not_read", what=pack.path.name, reason=reason)) from None


def delete(path: Path) -> int:
    """Delete a pack and an interrupted one. Return the bytes that this frees."""
    freed = 0
    for each in (path, _part_of(path)):
        with contextlib.suppress(FileNotFoundError):
            size = each.stat().st_size
            each.unlink()
            freed += size
    return freed


def space_needed(path: Path, plan: PackPlan) -> int:
    """Return the bytes of disk that writing a pack still needs, besides an interrupted one."""
    try:
        return max(0, plan.n_bytes - _part_of(path).stat().st_blocks * 512)
    except OSError:
        return plan.n_bytes


def _part_of(path: Path) -> Path:
    return path.with_name(path.name + _PART)


def _require_space(path: Path, plan: PackPlan) -> None:
    needed, free = space_needed(path, plan), shutil.disk_usage(path.parent).free
    if needed > free:
        folder = str(path.parent)
        raise PackError(
            text("pack.no_room", file=path.name, needed=needed, free=free, folder=folder)
        )


def _write_whole(
    file: ModelFile, plan: PackPlan, path: Path, progress: Progress | None
) -> FileIdentity:
    part = _part_of(path)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(part, flags, 0o644)
    try:
        _lock(handle, path)
        try:
            sums = _begin(handle, plan)
            _write_ranges(file, plan, handle, sums, progress)
        except (ModelFileError, FileChangedError):
            part.unlink()
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                part.unlink()
            raise
        os.fsync(handle)
        identity = FileIdentity.of(handle)
    finally:
        os.close(handle)
    os.replace(part, path)
    _sync_folder(path.parent)
    return identity


def _begin(handle: int, plan: PackPlan) -> NDArray[np.uint32]:
    """Reserve space for a pack, or continue an interrupted one. Return its checksums."""
    same_size = os.fstat(handle).st_size == plan.n_bytes
    if same_size and _read_at(handle, len(plan.header), 0) == plan.header:
        return _read_sums(handle, plan)
    os.ftruncate(handle, 0)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, plan.n_bytes)  # fails now if the disk is too full
    else:
        os.ftruncate(handle, plan.n_bytes)
    _write_at(handle, plan.header, 0)
    return np.zeros((len(plan.layers), plan.n_expert), np.uint32)


def _write_ranges(
    file: ModelFile,
    plan: PackPlan,
    handle: int,
    sums: NDArray[np.uint32],
    progress: Progress | None,
) -> None:
    done = 0
    with file.open() as held:
        parts = held.descriptors
        for row, layer in enumerate(plan.layers):
            for expert in range(plan.n_expert):
                offset = layer.offset + expert * layer.stride
                if not _is_there(handle, offset, layer.stride, int(sums[row, expert])):
                    data = _range_of(file, layer, expert, parts)
                    _write_at(handle, data, offset)
                    sums[row, expert] = _sum(data)
                done += layer.stride
                _report(progress, done, plan)
            held.require_unchanged()
            # Write checksums only after their ranges have reached the disk.
            os.fsync(handle)
            _write_at(handle, sums.astype("<u4").tobytes(), len(plan.header))
            _forget(handle, layer.offset, layer.stride * plan.n_expert)
            for t in layer.tensors:
                _forget(parts[t.tensor.part], t.tensor.offset, t.tensor.n_bytes)


def _is_there(handle: int, offset: int, n_bytes: int, checksum: int) -> bool:
    return checksum != 0 and _sum(_read_at(handle, n_bytes, offset)) == checksum


def _range_of(file: ModelFile, layer: PackedLayer, expert: int, parts: list[int]) -> bytes:
    """Return the bytes of one expert as in the pack.

    Raises OSError, and ModelFileError for a value that is not finite.
    """
    whole = bytearray(layer.stride)
    for packed in layer.tensors:
        t = packed.tensor
        matrix = _read_at(parts[t.part], t.matrix_bytes, t.offset + expert * t.matrix_bytes)
        if len(matrix) != t.matrix_bytes:
            raise OSError(errno.EIO, text("pack.model_shorter"))
        blocks = np.frombuffer(matrix, np.uint8).reshape(-1, TENSOR_TYPES[t.type_id].n_bytes)
        if (bad := not_finite(t.type_name, blocks)).any():
            first_block = expert * len(blocks)
            raise bad_value(file.paths[t.part], t.name, first_block + int(np.argmax(bad)))
        if packed.repacked:
            matrix = _native.repack(matrix, t.type_id, t.shape[0], t.shape[1])
        whole[packed.place : packed.place + len(matrix)] = matrix
    return bytes(whole)


def _read_sums(handle: int, plan: PackPlan) -> NDArray[np.uint32]:
    """Return the checksums by layer and expert; 0 where nothing was written yet."""
    shape = len(plan.layers), plan.n_expert
    data = _read_at(handle, 4 * shape[0] * shape[1], len(plan.header))
    return np.frombuffer(data, "<u4").astype(np.uint32).reshape(shape)


def _sum(data: bytes) -> int:
    return zlib.crc32(data) or 1


def _report(progress: Progress | None, done: int, plan: PackPlan) -> None:
    if progress is not None and not progress(done, plan.n_bytes):
        raise Stopped(text("pack.stopped"))


def _read_at(handle: int, n_bytes: int, offset: int) -> bytes:
    """Return the bytes at an offset; fewer only at the end of the file."""
    os.lseek(handle, offset, os.SEEK_SET)
    pieces = []
    while n_bytes > 0 and (piece := os.read(handle, n_bytes)):
        pieces.append(piece)
        n_bytes -= len(piece)
    return b"".join(pieces)


def _write_at(handle: int, data: bytes, offset: int) -> None:
    os.lseek(handle, offset, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _forget(handle: int, offset: int, n_bytes: int) -> None:
    """Have the system drop these pages, which would evict useful ones."""
    if hasattr(os, "posix_fadvise"):
        first = offset // 4096 * 4096
        os.posix_fadvise(handle, first, offset + n_bytes - first, os.POSIX_FADV_DONTNEED)


def _lock(handle: int, path: Path) -> None:
    """Lock the pack against another writer. On a system without locks, the last writer wins."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise PackError(text("pack.locked", file=path.name)) from None


def _sync_folder(folder: Path) -> None:
    """Write the new name to the disk, where folders can be synchronised."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
