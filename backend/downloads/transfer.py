"""Fetches one file: resumes a partial one, tries again after errors, and checks the result."""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import httpx2 as httpx
import psutil
from filelock import FileLock, Timeout

from backend.downloads.errors import (
    WAIT_LONGEST_S,
    DownloadError,
    Stopped,
    changed,
    host_of,
    of_writing,
)
from backend.downloads.offers import RemoteFile
from backend.downloads.web import opened
from backend.system.kept_file import make_folder, sync
from backend.text import text

N_TRY_MAX = 6  # successive tries without a new byte, and without a wait that the server asked for
WAIT_S = 1.0  # before the second try; doubled before each further try
WAIT_MAX_S = 60.0


class Transfer:
    """The download of one file into a partial file, `part`, which only `fetch` touches.

    stop: an event that ends the download. heard: called with the bytes received, after each piece.
    waits: called with a sentence and seconds before a wait, and with "" and 0 after it.
    """

    def __init__(
        self,
        client: httpx.Client,
        file: RemoteFile,
        part: Path,
        stop: threading.Event,
        heard: Callable[[int], None],
        waits: Callable[[str, float], None] = lambda _sentence, _wait_s: None,
    ) -> None:
        self._client = client
        self._file = file
        self._part = part
        self._stop = stop
        self._heard = heard
        self._waits = waits
        self._digest = hashlib.sha256()
        self._n_byte = 0
        self._n_no_rest = 0  # successive answers without the rest that was asked for

    def fetch(self) -> None:
        """Fetch the missing bytes and check the whole file.

        Raises Stopped and DownloadError. The valid bytes are kept for the next call.
        """
        lock = FileLock(self._part.with_name(self._part.name + ".lock"))
        try:
            make_folder(self._part.parent, 0o777)
            with lock.acquire(timeout=0), open(self._part, "a+b", buffering=0) as out:
                self._take_up(out)
                n_kept = self._n_byte
                self._fetch_rest(out)
                if n_kept and not self._is_right:  # a loss of power may have damaged the kept part
                    self._restart(out)
                    self._fetch_rest(out)
                self._check(out)
                sync(out.fileno())
        except Timeout:
            raise DownloadError(text("download.locked")) from None
        except OSError as error:
            raise of_writing(error, self._part.parent.parent) from error

    def _take_up(self, out: BinaryIO) -> None:
        """Add the bytes of an earlier call to the checksum.

        Start over without a checksum or ETag: the server's file may have changed since. Without a
        checksum, start over after a start of the system: a loss of power may have damaged the file.
        """
        is_of_now = os.fstat(out.fileno()).st_mtime > _started_s()
        is_known = bool(self._file.sha256 or (self._file.tag and is_of_now))
        if out.seek(0, os.SEEK_END) > self._file.size_bytes or not is_known:
            self._restart(out)
        out.seek(0)
        while piece := out.read(1 << 20):
            self._took(piece)
        self._heard(self._n_byte)

    def _fetch_rest(self, out: BinaryIO) -> None:
        n_try, before, asked_s, said = 1, self._n_byte, 0.0, ""
        while self._n_byte < self._file.size_bytes:
            try:
                self._stream(out)
            except DownloadError as error:
                if self._n_byte > before:
                    n_try, before, asked_s, said = 0, self._n_byte, 0.0, ""
                own_s = min(WAIT_S * 2 ** max(n_try - 1, 0), WAIT_MAX_S)
                asked_s += error.wait_s
                n_try += error.wait_s < own_s
                is_no_rest = getattr(error.args[0], "id", "") in _NO_REST
                self._n_no_rest = self._n_no_rest + 1 if is_no_rest else 0
                is_long = n_try > N_TRY_MAX or asked_s > WAIT_LONGEST_S
                stays = error.is_once and str(error) == said  # also with a new signature
                if not error.is_passing or is_long or stays:
                    raise
                said = str(error)
                self._waits(str(error), max(own_s, error.wait_s))
                if self._stop.wait(max(own_s, error.wait_s)):
                    raise Stopped from None
                self._waits("", 0.0)

    def _stream(self, out: BinaryIO) -> None:
        """Append the bytes of one answer. Raises DownloadError if the file is still incomplete.

        Of an answer that begins at byte 0 in spite of the range, pass over what is here.
        """
        file = self._file
        start = 0 if self._n_no_rest >= _N_NO_REST_MAX else self._n_byte
        with opened(self._client, file.url, start, None, file.tag) as answer:
            host = host_of(str(answer.url))
            if answer.headers.get("content-encoding", "").strip().lower() not in _PLAIN:
                raise DownloadError(text("download.encoded", host=host))
            n_over = 0 if answer.status_code == 206 else self._n_byte
            if answer.status_code == 206:
                _check_range(answer.headers.get("content-range", ""), start, file, host)
                n_over = self._n_byte - start
            else:  # the whole file: the server ignores ranges, or the request had none
                length = answer.headers.get("content-length", "")
                if length.isdecimal() and int(length) != file.size_bytes:
                    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
                    if kind in _ERRORS:
                        raise DownloadError(text("download.bad_answer", host=host, status=200))
                    raise changed(host)
            tag = answer.headers.get("etag", file.tag)
            if file.tag and tag.removeprefix("W/") != file.tag.removeprefix("W/"):
                raise changed(host)
            for piece in answer.iter_raw():
                if self._stop.is_set():
                    raise Stopped
                piece, n_over = piece[n_over:], max(n_over - len(piece), 0)
                if self._n_byte + len(piece) > file.size_bytes:
                    raise changed(host)
                _write_all(out, piece)
                self._took(piece)
                self._heard(self._n_byte)
        if self._n_byte < file.size_bytes:
            raise DownloadError(text("download.broke", host=host), is_passing=True)

    @property
    def _is_right(self) -> bool:
        return not self._file.sha256 or self._digest.hexdigest() == self._file.sha256

    def _check(self, out: BinaryIO) -> None:
        if not self._is_right:
            self._restart(out)
            host = host_of(self._file.url)
            raise DownloadError(text("download.damaged", file=self._file.name, host=host))

    def _took(self, piece: bytes) -> None:
        if self._stop.is_set():
            raise Stopped
        self._digest.update(piece)
        self._n_byte += len(piece)

    def _restart(self, out: BinaryIO) -> None:
        out.truncate(0)
        self._digest = hashlib.sha256()
        self._n_byte = 0
        self._heard(0)


_N_NO_REST_MAX = 3  # then the whole file is asked for
_NO_REST = ("download.no_range", "download.other_range")
_PLAIN = ("", "identity", "aws-chunked")  # the last is what storages keep from an upload
_ERRORS = ("application/json", "application/problem+json", "application/xml", "text/xml")
"""Types of answers that tell of an error, also where their status is 200."""
_RANGE = re.compile(r"bytes\s+(\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.IGNORECASE)


def _check_range(given: str, start: int, file: RemoteFile, host: str) -> None:
    """Raise DownloadError unless a Content-Range begins at `start` of this file.

    It may end early: the rest is asked for next.
    """
    found = _RANGE.fullmatch(given.strip())
    if found and found[2] not in ("*", str(file.size_bytes)):
        raise changed(host)
    if not found or int(found[1]) != start:
        raise DownloadError(text("download.other_range", host=host), is_passing=True)


def _started_s() -> float:
    """Return when the system started, in seconds since 1970; infinity where it does not say.

    Some sandboxes hide it. In a container it is the start of the machine or of the container; both
    are later than the last loss of power.
    """
    try:
        return psutil.boot_time()
    except (OSError, RuntimeError):
        return math.inf


def _write_all(out: BinaryIO, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[out.write(left) :]
