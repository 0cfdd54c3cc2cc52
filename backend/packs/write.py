"""Writes, checks and deletes packs. backend.packs.file describes the file format."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import secrets
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.gguf.identity import FileChangedError, FileIdentity
from backend.gguf.model_file import ModelFile, ModelFileError
from backend.gguf.scales import bad_value, not_finite
from backend.gguf.tables import TENSOR_TYPES
from backend.machines.drive import LEAST_FILE_BYTES, joint_speed
from backend.machines.measure import own_file
from backend.packs.file import (
    SUFFIX,
    Layout,
    Pack,
    PackedLayer,
    PackError,
    PackPlan,
    Stripes,
    beside,
    in_data_folder,
    is_stripe,
    plan_of,
    read,
    stripes_in,
)
from backend.system.kept_file import make_folder, sync, sync_folder
from backend.system.paths import may_write
from backend.text import text

Progress = Callable[[int, int], bool]
"""Called with the bytes done and the bytes in all. Returns False to stop."""

_PART = ".part"
_LOCKED_BYTE = (1 << 31) - 2  # the last one that msvcrt can lock
_READ_S = 0.15
_SHARES = 8
"""Experts of a folder, on average, before the distribution over the folders repeats."""


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
    return path if may_write(path.parent) else in_data_folder(file)


def write(
    file: ModelFile,
    layout: Layout,
    path: Path | None = None,
    progress: Progress | None = None,
    folders: Sequence[Path] = (),
) -> Pack:
    """Write the pack of a model completely or not at all. Replaces a pack of that name.

    folders: distribute the experts over files in these folders, by the measured speeds of their
    drives. `path` is then the head; it has experts itself if its folder is one of them.

    Continues an interrupted pack in the same folders, as far as its checksums are right. Raises
    PackError. Nothing is left on the disk if the disk was full, the model has values that are not
    finite, or the model was changed during the writing.
    """
    from backend.llama.api import log  # heavy: llama_cpp; keeps ggml's lines off standard error

    log.listen(echo=False)
    path = place_for(file) if path is None else path
    plan = plan_of(file, layout)
    try:
        make_folder(path.parent, 0o777)
        folders = _checked(folders)
        if path.is_file():
            with contextlib.suppress(PackError):
                pack = read(path, file)
                if pack.plan.layout == layout and (not folders or _lies_in(pack.sources, folders)):
                    return pack
        if folders:
            plan = plan_of(file, layout, _stripes_for(path, folders, plan))
        _require_space(path, plan)
        identities = _write_whole(file, plan, path, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PackError(text("file.not_written", file=path.name, reason=reason)) from None
    except (ModelFileError, FileChangedError) as error:
        raise PackError(str(error)) from None
    return Pack(path, plan, identities)


def _checked(folders: Sequence[Path]) -> list[Path]:
    """Return the absolute paths of these folders. Raises PackError."""
    found = [Path(os.path.abspath(folder)) for folder in folders]
    for folder in found:
        if not folder.is_dir():
            raise PackError(text("pack.no_folder", folder=str(folder)))
    for one, other in itertools.combinations(found, 2):
        if one.samefile(other):
            raise PackError(text("pack.folder_twice", folder=str(one)))
    return found


def _lies_in(sources: Iterable[Path], folders: Sequence[Path]) -> bool:
    """Return whether files that have experts lie in exactly these folders."""
    return {path.parent.resolve() for path in sources} == {folder.resolve() for folder in folders}


def _stripes_for(path: Path, folders: Sequence[Path], plan: PackPlan) -> Stripes:
    """Return the files of a pack in these folders: those of an interrupted one, or new ones.

    plan: of the pack in one file. Raises PackError and OSError.
    """
    begun = stripes_in(_part_of(path))
    paths = zip([path, *begun.others], begun.shares, strict=True)
    if _lies_in((each for each, share in paths if share), folders) and all(
        is_stripe(begun, number) for number in range(1, len(begun.shares))
    ):
        return begun
    home = path.parent.resolve()
    others = [folder for folder in folders if folder.resolve() != home]
    measured = [path.parent, *others] if len(others) < len(folders) else others
    shares = _shares(measured) if plan.n_bytes >= LEAST_FILE_BYTES else [1] * len(measured)
    name, own = secrets.token_hex(16), len(measured) - len(others)
    return Stripes(
        tuple(shares) if own else (0, *shares),
        name,
        tuple(
            folder / f"{path.stem}.{name[:8]}.{number}{SUFFIX}"
            for number, folder in enumerate(others, start=1)
        ),
    )


def _shares(folders: Sequence[Path]) -> list[int]:
    """Return small numbers in proportion to the speeds of the drives of these folders.

    Raises PackError where a drive is so slow that the pack would be slower with it, and OSError.
    """
    if len(folders) == 1:
        return [1]
    speeds = []
    for folder in folders:
        with own_file(folder) as own:
            rounds = [_native.measure_reads(str(own), 1 << 20, 4, _READ_S) for _ in range(2)]
        speeds.append(max(found.bytes_per_s for found in rounds))
    shares = [round(_SHARES * len(speeds) * speed / sum(speeds)) for speed in speeds]
    if 0 in shares or joint_speed(speeds, shares) < max(speeds):
        slowest = speeds.index(min(speeds))
        raise PackError(
            text(
                "pack.slow_folder",
                folder=str(folders[slowest]),
                speed=round(speeds[slowest]),
                others=round(max(speeds)),
            )
        )
    return [share // math.gcd(*shares) for share in shares]


def check(pack: Pack, progress: Progress | None = None) -> None:
    """Read a whole pack and compare its checksums. Raises PackError at the first that differs."""
    plan = pack.plan
    with contextlib.ExitStack() as stack:
        try:
            handles = [_opened(stack, path, os.O_RDONLY) for path, _ in pack.files]
            sums = _read_sums(handles[0], plan)
            done = 0
            for row, layer in enumerate(plan.layers):
                for expert, (number, offset) in enumerate(layer.ranges):
                    data = _read_at(handles[number], layer.stride, offset)
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
                    _forget(handles[number], offset, layer.stride)
                    _report(progress, done, plan)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PackError(text("kept.not_read", what=pack.path.name, reason=reason)) from None


def delete(path: Path) -> int:
    """Delete all files of a pack and of an interrupted one. Return the bytes that this frees."""
    freed = 0
    for head in (path, _part_of(path)):
        freed += _delete_others(stripes_in(head)) + _delete(head)
    return freed


def _delete_others(stripes: Stripes) -> int:
    """Delete the files beside a head that belong to it. Return the bytes that this frees."""
    others = enumerate(stripes.others, start=1)
    return sum(_delete(path) for number, path in others if is_stripe(stripes, number))


def _delete(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        size = path.stat().st_size
        path.unlink()
        return size
    return 0


def space_needed(path: Path, plan: PackPlan) -> int:
    """Return the bytes of disk that writing a pack still needs, besides an interrupted one."""
    return sum(_needed(each, size) for each, size in _being_written(path, plan))


def _being_written(path: Path, plan: PackPlan) -> list[tuple[Path, int]]:
    """Return the files of a pack and their sizes. The head has another name until all is there."""
    return list(zip(plan.paths(_part_of(path)), plan.sizes, strict=True))


def _needed(path: Path, size: int) -> int:
    try:
        found = path.stat()
        if sys.platform == "win32":  # a file is allocated as large as it is
            return max(0, size - found.st_size)
        return max(0, size - found.st_blocks * 512)
    except OSError:
        return size


def _part_of(path: Path) -> Path:
    return path.with_name(path.name + _PART)


def _require_space(path: Path, plan: PackPlan) -> None:
    needed: dict[int, int] = {}  # by device
    for each, size in _being_written(path, plan):
        folder = each.parent
        device = folder.stat().st_dev
        needed[device] = needed.get(device, 0) + _needed(each, size)
        free = shutil.disk_usage(folder).free
        if needed[device] > free:
            raise PackError(
                text(
                    "pack.no_room",
                    file=path.name,
                    needed=needed[device],
                    free=free,
                    folder=str(folder),
                )
            )


def _write_whole(
    file: ModelFile, plan: PackPlan, path: Path, progress: Progress | None
) -> tuple[FileIdentity, ...]:
    """Write the files of a pack. The head gets its name last; only then are the others found."""
    paths = plan.paths(_part_of(path))
    flags = os.O_RDWR | os.O_CREAT
    with contextlib.ExitStack() as stack:
        handles = [_opened(stack, paths[0], flags)]
        _lock(handles[0], path)
        if (begun := stripes_in(paths[0])) != plan.stripes:
            _delete_others(begun)
        try:
            sums = _begin(handles[0], plan, 0)
            for number, other in enumerate(paths[1:], start=1):
                handles.append(_opened(stack, other, flags))
                _begin(handles[number], plan, number)
            _write_ranges(file, plan, handles, sums, progress)
        except (ModelFileError, FileChangedError):
            _drop(paths, stack)
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                _drop(paths, stack)
            raise
        for handle in handles:
            sync(handle)
        identities = tuple(FileIdentity.of(handle) for handle in handles)
    replaced = stripes_in(path)
    for other in plan.stripes.others:
        sync_folder(other.parent)
    _rename(paths[0], path)
    if (renamed := FileIdentity.of(path)).resembles(identities[0]):
        identities = (renamed, *identities[1:])
    sync_folder(path.parent)
    if replaced != plan.stripes:
        _delete_others(replaced)
    return identities


def _rename(part: Path, path: Path) -> None:
    """Give a complete head its name. Raises PackError where Windows keeps the old one in use."""
    try:
        os.replace(part, path)
    except PermissionError:
        if os.name == "nt" and path.is_file():
            raise PackError(text("pack.in_use", file=path.name)) from None
        raise


def _opened(stack: contextlib.ExitStack, path: Path, flags: int) -> int:
    handle = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o644)
    stack.callback(os.close, handle)
    return handle


def _drop(paths: Sequence[Path], opened: contextlib.ExitStack) -> None:
    """Remove the files that are being written."""
    if os.name == "nt":  # there an open file stays
        opened.close()
    for path in paths:
        path.unlink(missing_ok=True)


def _begin(handle: int, plan: PackPlan, number: int) -> NDArray[np.uint32]:
    """Reserve space for a file of a pack, or continue an interrupted one.

    Return the checksums; they are the head's.
    """
    header, size = plan.headers[number], plan.sizes[number]
    if os.fstat(handle).st_size != size or _read_at(handle, len(header), 0) != header:
        os.ftruncate(handle, 0)
        _write_at(handle, header, 0)
        sync(handle)  # a head must name the other files before they exist
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)  # fails now if the disk is too full
        else:
            os.ftruncate(handle, size)
    return _read_sums(handle, plan)


def _write_ranges(
    file: ModelFile,
    plan: PackPlan,
    handles: Sequence[int],
    sums: NDArray[np.uint32],
    progress: Progress | None,
) -> None:
    done = 0
    with file.open() as held:
        parts = held.descriptors
        for row, layer in enumerate(plan.layers):
            for expert, (number, offset) in enumerate(layer.ranges):
                handle = handles[number]
                if not _is_there(handle, offset, layer.stride, int(sums[row, expert])):
                    data = _range_of(file, layer, expert, parts)
                    _write_at(handle, data, offset)
                    sums[row, expert] = _sum(data)
                done += layer.stride
                _report(progress, done, plan)
            held.require_unchanged()
            # Write checksums only after their ranges have reached the disk.
            for handle in handles:
                sync(handle)
            _write_at(handles[0], sums.astype("<u4").tobytes(), len(plan.headers[0]))
            for number, offset in layer.ranges:
                _forget(handles[number], offset, layer.stride)
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
    data = _read_at(handle, 4 * shape[0] * shape[1], len(plan.headers[0]))
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
    """Lock the pack against another writer, until the handle is closed. Raises PackError."""
    try:
        if sys.platform == "win32":
            import msvcrt

            # Far behind the header, because others cannot read a locked byte.
            os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise PackError(text("pack.locked", file=path.name)) from None
