"""The text of Markdown without its signs, as a transcript shows it, for a line elsewhere."""

from __future__ import annotations

import re

from PySide6.QtGui import QTextDocument

from app.chat.markdown import meant
from app.chat.markdown.latex import replace_math
from app.chat.text_block import FEATURES
from app.chat.text_looks import resolve_marks

_SIGNS = re.compile(r"[*_`\[#<>|\\$&~]|^[ \t]*[-+=]|^[ \t]*\d+[.)]", re.M)
_ROW = re.compile(r"[ \t]*\|.*")  # of a table, in which these signs are lines


def plain_text(markdown: str) -> str:
    """Return a passage of Markdown as plain text. Formulas are as those that are not drawn."""
    if not _SIGNS.search(markdown):
        return markdown
    if _ROW.fullmatch(markdown):
        markdown = " ".join(markdown.replace("|", " ").split())
    document = QTextDocument()
    document.setMarkdown(meant.as_meant(replace_math(meant.without_marks(markdown))), FEATURES)
    resolve_marks(document)
    return document.toPlainText()
