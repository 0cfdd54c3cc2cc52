"""Reads the facts of a model before its download, from its headers on the server."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backend.downloads.errors import DownloadError
from backend.downloads.offers import Offer
from backend.gguf.header import Header, parse_header
from backend.gguf.tables import NOT_ESTIMATED
from backend.library.asked import asked
from backend.library.facts import Facts
from backend.text import text

if TYPE_CHECKING:
    import httpx2 as httpx

    from backend.gguf.model_file import ModelFile


class _Stream:
    """The body of an answer as a file that is read sequentially. seen: the bytes that were read."""

    def __init__(self, pieces: Iterator[bytes], go_on: Callable[[], None]) -> None:
        self._pieces = pieces
        self._go_on = go_on
        self.seen: list[bytes] = []

    def read(self, n_bytes: int, /) -> bytes:
        self._go_on()
        piece = next(self._pieces, b"")
        self.seen.append(piece)
        return piece


def read_facts(
    offer: Offer, client: httpx.Client, n_context: int, go_on: Callable[[], None] = lambda: None
) -> Facts | str:
    """Read the headers of all parts. The first is some MB, because it has the vocabulary.

    Returns the facts of the model, or a clause why it is refused. go_on is called between pieces
    and may raise. Raises DownloadError.
    """
    from backend.downloads.web import opened  # network libraries: not at start
    from backend.gguf.model_file import ModelFileError, read_model  # numpy: not at start

    files = {file.name: file for file in offer.files}
    seen: dict[str, list[bytes]] = {}

    def read(path: Path) -> Header:
        file = files.get(path.name)
        if file is None:
            raise ModelFileError(path, text("download.part_missing")) from FileNotFoundError()
        with opened(client, file.url, 0, file.size_bytes) as answer:
            stream = _Stream(answer.iter_raw(), go_on)
            seen[path.name] = stream.seen
            return parse_header(path, stream, file.size_bytes)

    if offer.trouble:
        return offer.trouble
    try:
        model = read_model(Path(offer.files[0].name), read)
        if model.architecture in NOT_ESTIMATED and sys.platform != "win32":
            model = _asked(model, offer, seen, n_context)
        return Facts.of(model, n_context)
    except ModelFileError as error:
        return error.reason
    except DownloadError:
        raise
    except (ValueError, IndexError, ArithmeticError, MemoryError, RecursionError):
        return text("model.no_sense")


def _asked(
    model: ModelFile, offer: Offer, seen: Mapping[str, Sequence[bytes]], n_context: int
) -> ModelFile:
    """Return the model with llama.cpp's sizes, from files with the headers and a hole each.

    On Windows a hole takes room on the drive.
    """
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory() as folder:
        size_of = {file.name: file.size_bytes for file in offer.files}
        for name, pieces in seen.items():
            with Path(folder, name).open("wb") as copy:
                copy.writelines(pieces)
                copy.truncate(size_of[name])
        return asked(model, Path(folder, model.path.name), n_context)
    return model


def scaled(facts: Facts, known: Offer, other: Offer) -> Facts | None:
    """Estimate the facts of another quantisation of a known model. None if it is another model.

    The estimate scales all weights by one ratio, which is nearly right.
    """
    if other.trouble or other.family.casefold() != known.family.casefold():
        return None
    ratio = other.size_bytes / known.size_bytes

    def times(n_byte: int) -> int:
        return round(n_byte * ratio)

    return replace(
        facts,
        fingerprint="",
        quantisation=other.quantisation,
        file_bytes=other.size_bytes,
        expert_bytes_total=times(facts.expert_bytes_total),
        token_dense_bytes=times(facts.token_dense_bytes),
        token_expert_bytes=times(facts.token_expert_bytes),
        needs=replace(
            facts.needs,
            slot_bytes=times(facts.needs.slot_bytes),
            dense_bytes=times(facts.needs.dense_bytes),
        ),
    )
