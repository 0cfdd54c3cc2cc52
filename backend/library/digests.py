"""The SHA-256 of files: computed past the page cache, and kept by the state of the file.

A digest belongs to a device, an inode, a size and two times (FileIdentity), so that a file which is
written to or replaced has none until it is read again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backend.gguf.identity import FileIdentity
from backend.system import faults
from backend.system.kept_file import alone, read_json, write_json

_PIECE_BYTES = 1 << 20
"""Read at once. A request waits for no more than the drive takes for it."""
_WAIT_S = 0.002
_N_KEPT_MAX = 1000
_FORMAT = 1
_LOW_PRIORITY = 19
_BACKGROUND = 0x10000  # THREAD_MODE_BACKGROUND_BEGIN


class Digests:
    """The digests of files. A thread computes unknown digests while nothing else is done.

    path: the file that keeps them; it may be deleted at any time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _load(path)
        self._failed: set[FileIdentity] = set()
        self._lock = threading.Lock()  # guards the fields above
        self._may_run, self._ends = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def of(self, identity: FileIdentity) -> str:
        """Return the SHA-256 of a file in this state, in hexadecimal; "" if it is unknown."""
        with self._lock:
            return self._known.get(_key(identity), "")

    def note(self, identity: FileIdentity, sha256: str) -> None:
        """Keep the SHA-256 of a file in this state."""
        with self._lock, alone(self._path):
            self._known = {**_load(self._path), **self._known, _key(identity): sha256}
            items = list(self._known.items())[-_N_KEPT_MAX:]
            files = {key: [digest, _check(key, digest)] for key, digest in items}
            with contextlib.suppress(OSError):  # it is computed again then
                write_json(self._path, {"format": _FORMAT, "files": files})

    def compute(self, files: Sequence[tuple[Path, FileIdentity]]) -> bool:
        """Compute the unknown digests of these files in the background, until pause().

        Wait a moment for it, so that a caller who asks in a loop leaves the processor to it. Return
        False when nothing is left that can be computed.
        """
        with self._lock:
            left = [
                (path, one)
                for path, one in files
                if _key(one) not in self._known and one not in self._failed
            ]
        if not left:
            return False
        self._may_run.set()
        if self._thread is None or not self._thread.is_alive():
            # A digest that failed is not asked for again.
            states = {one for _, one in left}
            self._thread = faults.Thread(
                "digests", self._run, left, failed=lambda _: self._give_up(states)
            )
            self._thread.start()
        self._thread.join(_WAIT_S)
        return True

    def pause(self) -> None:
        """Let the thread wait, which may still finish the piece that it reads."""
        self._may_run.clear()

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        self._may_run.set()
        if self._thread is not None:
            self._thread.join()

    def _give_up(self, states: set[FileIdentity]) -> None:
        with self._lock:
            self._failed |= states

    def _run(self, files: Sequence[tuple[Path, FileIdentity]]) -> None:
        _step_back()
        with self._lock:
            self._known = {**_load(self._path), **self._known}  # other processes write, too
        for path, identity in files:
            if self._ends.is_set() or self.of(identity):
                continue
            try:
                sha256 = self._sha256(path, identity)
            except OSError:
                sha256 = ""
            if sha256:
                self.note(identity, sha256)
            elif not self._ends.is_set():
                self._give_up({identity})

    def _sha256(self, path: Path, identity: FileIdentity) -> str:
        """Return the SHA-256 of a file, or "" if it is another one or the thread shall end."""
        whole = hashlib.sha256()
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            if FileIdentity.of(descriptor) != identity:
                return ""
            for piece in pieces(descriptor):
                whole.update(piece)
                self._may_run.wait()
                if self._ends.is_set():
                    return ""
            return whole.hexdigest() if FileIdentity.of(descriptor) == identity else ""
        finally:
            os.close(descriptor)


def pieces(descriptor: int) -> Iterator[memoryview]:
    """Yield an open file in pieces, and leave the page cache to others. Raises OSError.

    A piece is valid until the next one. Drives that cannot read directly are read through the page
    cache, whose pages are then dropped.
    """
    direct = _set_direct(descriptor, on=True)
    n_done = 0
    try:
        with (
            mmap.mmap(-1, _PIECE_BYTES) as buffer,  # begins at a page, as direct reads need it
            memoryview(buffer) as view,
            open(descriptor, "rb", buffering=0, closefd=False) as file,
        ):
            while True:
                try:
                    n = file.readinto(view)
                except OSError as error:  # some drives refuse direct reads, or those of the end
                    if not direct or error.errno != errno.EINVAL:
                        raise
                    direct = _set_direct(descriptor, on=False)
                    continue
                if not n:
                    return
                if not direct and hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptor, n_done, n, os.POSIX_FADV_DONTNEED)
                n_done += n
                with view[:n] as piece:
                    yield piece
    finally:
        _set_direct(descriptor, on=False)


def _set_direct(descriptor: int, *, on: bool) -> bool:
    """Let reads bypass the page cache, or not. Return whether they do."""
    if sys.platform == "win32":
        return False
    import fcntl  # not on Windows

    try:
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_NOCACHE, int(on))
            return False  # it drops nothing else, and asks for no alignment
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | (os.O_DIRECT if on else 0))
    except OSError:
        return False
    return on


def _step_back() -> None:
    """Give this thread the lowest priority, where the system has priorities of threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
    elif sys.platform == "win32":
        import ctypes  # for this only

        kernel32 = ctypes.WinDLL("kernel32")
        kernel32.GetCurrentThread.restype = ctypes.c_void_p
        kernel32.SetThreadPriority.argtypes = [ctypes.c_void_p, ctypes.c_int]
        kernel32.SetThreadPriority(kernel32.GetCurrentThread(), _BACKGROUND)


def _key(identity: FileIdentity) -> str:
    return "-".join(map(str, identity))


def _check(key: str, sha256: str) -> str:
    """Return what tells a damaged entry, or one of another file."""
    return hashlib.sha256(f"{key} {sha256}".encode()).hexdigest()[:16]


def _load(path: Path) -> dict[str, str]:
    """Return the digests of a file, without damaged ones."""
    try:
        return read_json(path, _checked)
    except (OSError, ValueError):
        return {}


def _checked(data: Any) -> dict[str, str]:
    if data["format"] != _FORMAT:
        raise ValueError("another format")
    pairs = {str(key): (str(sha256), check) for key, (sha256, check) in data["files"].items()}
    return {key: sha256 for key, (sha256, check) in pairs.items() if _check(key, sha256) == check}
