"""The batch log: the batches that a model got, and the bits that it computed (docs/formats.md).

The log has two levels. Its passes and memory operations are what llama.cpp was given. Its answers
show the requests: the tokens of the prompt, and each token that was chosen and sent, by the row
whose logits chose it. backend.evaluation.replay computes the passes again with stock llama.cpp, and
compares the two levels with each other: an engine that writes a wrong row is found, too.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from backend import LLAMA_CPP_PYTHON_VERSION
from backend.system.kept_file import make_folder

VARIABLE = "OUTRIDER_BATCH_LOG"
"""The environment variable with the folder in which every engine writes its log; "": none does."""
SUFFIX = ".batches"
VERSION = 4
_READ_VERSIONS = (2, 3, VERSION)
_SUM_BYTES = len(',"00000000"]')
_DIGEST_BYTES = 16
_numbers = itertools.count(1)

Run = tuple[int, int, list[int], int]
"""Rows of a pass that follow each other: sequence, first position, tokens, and whether their logits
are wanted."""


class DamagedLog(ValueError):
    """A file is no batch log; the text is one sentence."""


def digest(data: Any) -> str:
    """Return the hash of bytes that the log has in place of them."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def digest_at(address: int, n_bytes: int) -> str:
    """Return the hash of the bytes at an address."""
    return digest((ctypes.c_char * n_bytes).from_address(address))


def settings_of(params: Any, default: Any) -> dict[str, int | float]:
    """Return the numbers of a structure of llama.cpp that differ from another one, by name."""
    numbers = (int, float)
    found = {name: getattr(params, name) for name, kind in params._fields_ if _is_number(kind)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, numbers) and value != getattr(default, name)
    }


def _is_number(kind: Any) -> bool:
    """Return whether a type of ctypes is a number, not a pointer."""
    return getattr(kind, "_type_", "P") in set("?bBhHiIlLqQfd")


def packed(data: bytes) -> str:
    """Return bytes as text that JSON can hold."""
    return base64.b64encode(zlib.compress(data)).decode()


def unpacked(data: str) -> bytes:
    """Return the bytes that packed() was given."""
    return zlib.decompress(base64.b64decode(data))


class BatchLog:
    """Writes a log. Use from the engine's thread. Raises OSError where the file cannot be made.

    A drive that fails later ends the log, and no answer.
    """

    def __init__(self, path: Path, system: str) -> None:
        self.path = path
        self._n_answer = 0
        self._pictures: set[str] = set()
        self._sum = 0
        make_folder(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._file: Any = os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")
        self.write("log", VERSION, LLAMA_CPP_PYTHON_VERSION, system)

    @classmethod
    def of_environment(cls, name: str, system: str) -> BatchLog | None:
        """Open a new log in the folder that the environment names. Return None if it names none."""
        folder = os.environ.get(VARIABLE, "")
        if not folder:
            return None
        while True:
            try:
                path = Path(folder, f"{name}-{os.getpid()}-{next(_numbers)}{SUFFIX}")
                return cls(path, system)
            except FileExistsError:  # of an earlier process of this number
                continue

    def close(self) -> None:
        """End the log, and say so in it. A second call does nothing."""
        self.write("end")
        self._end()

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the drive is full
                file.close()

    def write(self, kind: str, *values: Any) -> None:
        """Write an entry. The entries are listed in docs/formats.md."""
        if self._file is None:
            return
        line, self._sum = line_of([kind, *values], self._sum)
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            print(f"The batch log {self.path} ends: {error.strerror}.", file=sys.stderr)
            self._end()

    def begin_model(self, how: dict[str, Any]) -> None:
        """Write how stock llama.cpp loads the model that was loaded."""
        self._pictures.clear()  # a model sees no images of another one
        self.write("model", how)

    def begin_answer(self, tokens: Sequence[int], n_prompt: int, *, is_greedy: bool) -> int:
        """Write what an answer continues. Return its number.

        n_prompt: the tokens of the prompt; an answer so far follows them. is_greedy: each token is
        the most probable one.
        """
        self._n_answer += 1
        self.write("answer", self._n_answer, list(tokens), n_prompt, is_greedy)
        return self._n_answer

    def add_picture(self, width: int, height: int, rgb: bytes, chunks: Sequence[Any]) -> None:
        """Write an image that a prompt may have, and the chunks of the prompt that it becomes."""
        name = digest(rgb + json.dumps(chunks).encode())
        if name not in self._pictures:
            self._pictures.add(name)
            self.write("picture", width, height, packed(rgb), chunks)


def runs(rows: Iterable[tuple[int, int, int, bool]]) -> list[Run]:
    """Return rows of (token, position, sequence, has_logits) as runs."""
    found: list[Run] = []
    for token, position, sequence, has_logits in rows:
        if found:
            of, first, tokens, flag = found[-1]
            if (of, first + len(tokens), flag) == (sequence, position, int(has_logits)):
                tokens.append(token)
                continue
        found.append((sequence, position, [token], int(has_logits)))
    return found


def line_of(entry: Sequence[Any], before: int) -> tuple[str, int]:
    """Return an entry as a line, and the checksum of the entries up to it, which the line has.

    before: that of the entries before it.
    """
    body = json.dumps(entry, separators=(",", ":"))
    total = zlib.crc32(body.encode(), before)
    return f'{body[:-1]},"{total:08x}"]\n', total


def read(path: Path) -> Iterator[list[Any]]:
    """Yield the entries of a log. Behind the last one of a process that was killed there is no end.

    A line that is cut, or does not follow those before it, is damaged, and so is all behind it.
    Raises DamagedLog and OSError.
    """
    total, has_sums, number = 0, False, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                raise DamagedLog(f"Line {number} of {path.name} is cut.")
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                raise DamagedLog(f"Line {number} of {path.name} is no entry.") from None
            if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
                raise DamagedLog(f"Line {number} of {path.name} is no entry.")
            if number == 1:
                if entry[:2] not in (["log", version] for version in _READ_VERSIONS):
                    raise DamagedLog(f"{path.name} is no batch log of version {VERSION}.")
                has_sums = entry[1] == VERSION
            if has_sums:
                total = zlib.crc32(line[: -_SUM_BYTES - 1] + b"]", total)
                if entry.pop() != f"{total:08x}":
                    raise DamagedLog(
                        f"Line {number} of {path.name} does not follow the lines before it: "
                        "some were changed, removed or added."
                    )
            yield entry
    if not number:
        raise DamagedLog(f"{path.name} is empty.")
