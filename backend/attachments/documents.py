"""The text of office documents, web pages and electronic books, as Markdown."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from xml.parsers import expat

from backend.attachments import office_open, open_document, web_pages
from backend.attachments.document_parts import Archive, DamagedError
from backend.protocol.errors import RequestError
from backend.text import text

_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENDINGS = (".docx", ".docm", ".xlsx", ".xlsm", ".pptx", ".odt", ".ods", ".odp", ".epub")
_OPENDOCUMENT = ("text", "spreadsheet", "presentation")

_BROKEN = (
    DamagedError, zipfile.BadZipFile, zlib.error, expat.ExpatError, LookupError, ValueError,
    EOFError,
)  # fmt: skip


def document_text(data: bytes, name: str) -> str | None:
    """Return the text of a document as Markdown; None if the file is none of the known kinds.

    Raises RequestError with one sentence.
    """
    if data.startswith(_OLD_OFFICE):
        raise RequestError(text("attach.old_office", file=name))
    if not data.startswith(b"PK\x03\x04"):
        return None
    try:
        archive = Archive(data, name)
        read = _reader(archive)
        found = None if read is None else read(archive)
    except RequestError:
        raise
    except _BROKEN as error:
        if not name.lower().endswith(_ENDINGS):
            return None
        raise RequestError(text("attach.damaged_document", file=name)) from error
    except (NotImplementedError, RuntimeError) as error:  # an encrypted or unknown compression
        raise RequestError(text("attach.encrypted", file=name)) from error
    if found is not None and not found.strip():
        raise RequestError(text("attach.no_text_inside", file=name))
    return found


def _reader(archive: Archive) -> Callable[[Archive], str] | None:
    """Return what reads this kind of document, by what is in the archive."""
    if "mimetype" in archive:
        kind = archive.read("mimetype").decode("ascii", "replace").strip()
        if kind == "application/epub+zip":
            return web_pages.epub
        if kind.startswith("application/vnd.oasis.opendocument."):
            is_known = kind.rsplit(".", 1)[1].split("-")[0] in _OPENDOCUMENT
            return open_document.read if is_known else None
    for member, read in (
        ("word/document.xml", office_open.docx), ("xl/workbook.xml", office_open.xlsx),
        ("ppt/presentation.xml", office_open.pptx), ("META-INF/container.xml", web_pages.epub),
    ):  # fmt: skip
        if member in archive:
            return read
    return None
