"""Reads a model's whole file and compares its SHA-256 with what its repository states.

No network is asked. The statement lies beside the file since its download: note_origin() keeps it
where `hf download --local-dir` does, in its format. The Hugging Face cache and Ollama name a file
by its SHA-256. This finds damage. Somebody who changes the file can change the statement too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.gguf.identity import FileChangedError, FileIdentity, OpenFiles
from backend.library.digests import Digests, pieces
from backend.library.scan import part_paths, shown
from backend.system.kept_file import write_whole
from backend.system.paths import digests_file, is_file, open_regular
from backend.text import joined, text

SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(r"(sha256-)?([0-9a-f]{64})")  # with Ollama's prefix, or as Hugging Face's cache
_NOTES = Path(".cache", "huggingface", "download")
_N_FOLDER = 4  # folders above a file in which its note may be
_NOTE_BYTES_MAX = 4096


class ChecksumError(RuntimeError):
    """A file could not be read to its end; the text is one sentence for the user."""


@dataclass(frozen=True)
class PartSum:
    """The SHA-256 of one file, and the one that `source` states; "" if none is known."""

    file: str
    sha256: str
    stated: str
    source: str


@dataclass(frozen=True)
class Checksum:
    """The result of a check. stamp: of each part then (FileIdentity.stamp)."""

    parts: tuple[PartSum, ...]
    stamp: tuple[tuple[int, ...], ...]
    at_s: float

    @property
    def is_wrong(self) -> bool:
        """Whether a part differs from its stated checksum."""
        return any(part.stated not in ("", part.sha256) for part in self.parts)

    @property
    def sentence(self) -> str:
        """The result in sentences."""
        wrong = [part for part in self.parts if part.stated not in ("", part.sha256)]
        unknown = [part for part in self.parts if not part.stated]
        if wrong:
            return joined(
                *(text("checksum.differs", file=p.file, source=p.source) for p in wrong),
                text("checksum.get_again"),
            )
        if unknown:
            return text("checksum.unknown", file=unknown[0].file)
        first = self.parts[0]
        if len(self.parts) > 1:
            return text("checksum.equal_parts", n=len(self.parts), source=first.source)
        return text("checksum.equal", file=first.file, source=first.source)


def checksum(
    path: Path,
    heard: Callable[[float], None] = lambda _: None,
    go_on: Callable[[], bool] = lambda: True,
) -> Checksum:
    """Read all parts of a model and return their checksums. The files need not be valid models.

    heard: called with the share that was read. go_on: called between pieces; once it returns False,
    the check ends. Raises ChecksumError.
    """
    paths = part_paths(path)
    at = paths[0]
    try:
        for at in paths:
            if not is_file(at):
                at.stat()  # says why, if it is not there
                raise _not_read(at, text("file.not_regular"))
        with OpenFiles((path, None) for path in paths) as files:
            identities = [FileIdentity.of(descriptor) for descriptor in files.descriptors]
            all_bytes = sum(identity.size_bytes for identity in identities)
            n_byte, sums = 0, []
            for at, descriptor in zip(paths, files.descriptors, strict=True):
                digest = hashlib.sha256()
                for piece in pieces(descriptor):
                    digest.update(piece)
                    n_byte += len(piece)
                    if not go_on():
                        raise ChecksumError(text("checksum.stopped"))
                    if n_byte > all_bytes:
                        raise FileChangedError(at)
                    heard(n_byte / all_bytes)
                sums.append(PartSum(shown(at.name), digest.hexdigest(), *stated(at)))
            files.require_unchanged()
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if error.filename else at
        raise _not_read(named, error.strerror or str(error)) from error
    except ValueError as error:  # a path that no system has
        raise _not_read(at, str(error)) from error
    except FileChangedError as error:
        raise ChecksumError(text("checksum.changed", file=shown(error.path.name))) from None
    known = Digests(digests_file())
    for identity, part in zip(identities, sums, strict=True):
        known.note(identity, part.sha256)
    stamp = tuple(identity.stamp for identity in identities)
    return Checksum(tuple(sums), stamp, time.time())


def stated(path: Path) -> tuple[str, str]:
    """Return the SHA-256 that is stated for a file, and who states it; "" and "" if unknown."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # RuntimeError: a loop of links
        real = path.resolve()
        found, owner = _BLOB.fullmatch(real.name), real.parent.parent.name
        if found and real.parent.name == "blobs" and found[1]:
            return found[2], "Ollama"
        if found and real.parent.name == "blobs" and owner.startswith("models--"):
            return found[2], shown(owner.removeprefix("models--").replace("--", "/"))
    for folder in path.absolute().parents[:_N_FOLDER]:
        with (
            contextlib.suppress(OSError, ValueError),
            open(_note(folder, path), "rb", opener=open_regular) as file,
        ):
            lines = file.read(_NOTE_BYTES_MAX).decode("utf-8").splitlines()
            if len(lines) >= 3 and SHA256.fullmatch(lines[1].strip()):
                source = lines[3].strip() if len(lines) > 3 else ""
                return lines[1].strip(), source or text("checksum.repository")
    return "", ""


def note_origin(path: Path, sha256: str, source: str, commit: str) -> None:
    """Keep what the server stated about a downloaded file. Raises OSError.

    The first three lines are those of huggingface_hub: commit, checksum, and the time. source is
    our own fourth line; huggingface_hub ignores it.
    """
    lines = (commit, sha256, str(time.time()), source)
    write_whole(_note(path.parent, path), "".join(f"{line}\n" for line in lines).encode("utf-8"))


def _note(folder: Path, path: Path) -> Path:
    below = path.absolute().relative_to(folder)
    return folder / _NOTES / below.with_name(f"{below.name}.metadata")


def _not_read(path: Path, reason: str) -> ChecksumError:
    return ChecksumError(text("file.not_read", file=shown(path.name), reason=reason))
