"""The download of one model: the places of its files, and the checks before and after."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.downloads.address import safe_name
from backend.downloads.errors import DownloadError, of_writing
from backend.downloads.offers import Offer, RemoteFile
from backend.gguf.identity import FileIdentity
from backend.library.checksum import note_origin
from backend.library.digests import Digests
from backend.system.kept_file import sync_folder
from backend.system.paths import digests_file, exists
from backend.text import text

if TYPE_CHECKING:
    import httpx2 as httpx

INCOMPLETE = ".incomplete"
"""Folder of incomplete files. The library does not look into folders that begin with a dot."""
_COMMIT = re.compile(r"/resolve/([0-9a-f]{40})/")
MARGIN_BYTES = 512 << 20  # a download leaves these bytes of the drive free


@dataclass(frozen=True)
class Job:
    """A model to fetch into `folder`. source: the repository, or the address."""

    source: str
    name: str
    folder: Path
    files: tuple[RemoteFile, ...]

    @classmethod
    def of(cls, offer: Offer, source: str, models: Path) -> Job:
        """Plan the download of an offer into models/owner/repository, or models for an address.

        Its mmproj file comes with it.
        """
        folder = models if "://" in source else models.joinpath(*source.split("/"))
        vision = (offer.vision,) if offer.vision is not None else ()
        return cls(source, offer.name, folder, (*offer.files, *vision))

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def target(self) -> Path:
        """The path of the model's first file after the download."""
        return self.folder / self.files[0].name

    @property
    def paths(self) -> frozenset[Path]:
        """The paths of all files after the download."""
        return frozenset(self.folder / file.name for file in self.files)

    @property
    def is_there(self) -> bool:
        """Whether all files are at their paths, with the right sizes."""
        return all(_size(self.folder / file.name) == file.size_bytes for file in self.files)

    @property
    def kept_bytes(self) -> int:
        """Bytes received so far."""
        return sum(self._kept(file) for file in self.files)

    def check_room(self, promised_bytes: int = 0) -> None:
        """Raise DownloadError if the drive lacks room for this and promised_bytes of others."""
        self._check_names()
        place = next(path for path in (self.folder, *self.folder.parents) if exists(path))
        try:
            free_bytes = shutil.disk_usage(place).free
        except OSError as error:
            raise of_writing(error, self.folder) from error
        needed_bytes = self.size_bytes - self.kept_bytes + promised_bytes
        if free_bytes < needed_bytes + MARGIN_BYTES:
            raise DownloadError(
                text(
                    "download.no_room",
                    folder=str(self.folder),
                    needed=needed_bytes,
                    margin=MARGIN_BYTES,
                    free=free_bytes,
                )
            )

    def run(
        self,
        client: httpx.Client,
        stop: threading.Event,
        heard: Callable[[int], None],
        waits: Callable[[str, float], None] = lambda _sentence, _wait_s: None,
    ) -> None:
        """Fetch the missing files. Move all to their paths when all are complete.

        heard: called with the bytes received of all files. waits: called with a sentence and
        seconds before a wait, and with "" and 0 after it. Raises Stopped and DownloadError.
        """
        from backend.downloads.transfer import Transfer  # network libraries: not at start

        self._check_names()
        n_before = 0
        for file in self.files:
            part, done = self._part(file), self._done(file)
            if not done.exists() and _size(self.folder / file.name) != file.size_bytes:

                def heard_of_one(n_byte: int, before: int = n_before) -> None:
                    heard(before + n_byte)

                Transfer(client, file, part, stop, heard_of_one, waits).fetch()
                self._move(part, done)
            n_before += file.size_bytes
            heard(n_before)
        for file in self.files:
            if self._done(file).exists():
                self._move(self._done(file), self.folder / file.name)
                self._note_digest(file)
            commit = _COMMIT.search(file.url)
            if file.sha256:
                with contextlib.suppress(OSError):  # the model can be used without
                    target = self.folder / file.name
                    note_origin(target, file.sha256, self.source, commit[1] if commit else "")
        try:
            sync_folder(self.folder)
        except OSError as error:
            raise of_writing(error, self.folder) from error
        self.forget()

    def forget(self) -> None:
        """Delete the incomplete files, as far as the system permits.

        Windows refuses while somebody has one open. The library does not show what stays.
        """
        for file in self.files:
            for path in (self._part(file), self._done(file)):
                for each in (path, path.with_name(path.name + ".lock")):
                    with contextlib.suppress(OSError):
                        each.unlink()
        with contextlib.suppress(OSError):  # it has other files, or does not exist
            (self.folder / INCOMPLETE).rmdir()

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON, for from_json."""
        return {
            "source": self.source,
            "name": self.name,
            "folder": str(self.folder),
            "files": [asdict(file) for file in self.files],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Job:
        """Undo to_json. Raises ValueError, KeyError or TypeError for invalid data."""
        files = tuple(RemoteFile(**item) for item in data["files"])
        for file in files:
            if safe_name(file.name) != file.name or not file.url.startswith(("http:", "https:")):
                raise ValueError("a file has no proper name or address")
            if type(file.size_bytes) is not int or file.size_bytes <= 0:
                raise ValueError("a size is not positive")
            if type(file.sha256) is not str or type(file.tag) is not str:
                raise ValueError("a checksum is not a text")
        if not files or type(data["name"]) is not str or type(data["source"]) is not str:
            raise ValueError("a download is incomplete")
        return cls(data["source"], data["name"], Path(data["folder"]), files)

    def _check_names(self) -> None:
        for file in self.files:
            there = _size(self.folder / file.name)
            if there not in (None, file.size_bytes):
                exists_already = text(
                    "download.file_exists", file=file.name, folder=str(self.folder)
                )
                raise DownloadError(exists_already)

    def _part(self, file: RemoteFile) -> Path:
        """Return the path of a partial file. A key of its contents in the name prevents mix-ups."""
        known = file.sha256 or f"{file.url} {file.size_bytes} {file.tag}"
        key = hashlib.sha256(known.encode("utf-8", "replace")).hexdigest()[:12]
        return self.folder / INCOMPLETE / f"{file.name}.{key}.part"

    def _done(self, file: RemoteFile) -> Path:
        return self._part(file).with_suffix(".done")

    def _kept(self, file: RemoteFile) -> int:
        complete = _size(self._done(file)) or _size(self.folder / file.name)
        return min(complete or _size(self._part(file)) or 0, file.size_bytes)

    def _note_digest(self, file: RemoteFile) -> None:
        """Keep the digest of a file that has just been compared, so that no one reads it again."""
        if file.sha256:
            with contextlib.suppress(OSError):
                identity = FileIdentity.of(self.folder / file.name)
                Digests(digests_file()).note(identity, file.sha256)

    def _move(self, source: Path, target: Path) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise of_writing(error, self.folder) from error


def _size(path: Path) -> int | None:
    """Return the bytes of a file, or None if it does not exist."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None
