"""The text of a PDF."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable

from backend.protocol.attachments import TEXT_CHARS_MAX
from backend.protocol.errors import RequestError
from backend.text import text

N_PAGE_MAX = 2000
MARK = b"%PDF-"
"""Within the first MARK_BYTES of every PDF."""
MARK_BYTES = 1024


def pdf_text(data: bytes, name: str, on_page: Callable[[int, int], None]) -> tuple[str, int]:
    """Return the text of a PDF and its number of pages. Call on_page(done, total) after each page.

    Raises RequestError, and any error of pypdf for a damaged file.
    """
    # The import takes 0.3 s, and only PDFs need it.
    import pypdf
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of every oddity of a file
    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted:
        try:
            is_open = bool(reader.decrypt(""))
        except DependencyError:
            is_open = False
        if not is_open:
            raise RequestError(text("attach.encrypted", file=name))
    n_page = len(reader.pages)
    if n_page > N_PAGE_MAX:
        raise RequestError(text("attach.too_many_pages", file=name, n=n_page, most=N_PAGE_MAX))
    pages: list[str] = []
    n_char = 0
    for number in range(n_page):
        page = reader.pages[number].extract_text().strip()
        n_char += len(page) + 2
        if n_char > TEXT_CHARS_MAX:
            raise RequestError(text("attach.too_long", file=name, most=TEXT_CHARS_MAX))
        pages.append(page)
        on_page(number + 1, n_page)
    found = "\n\n".join(page for page in pages if page)
    if not found:
        raise RequestError(text("attach.no_text", file=name))
    return found, n_page
