"""Reads what the hub says of a model: its licence, what it can do, and the beginning of its README.

A README is a text of a stranger. What is shown of it is plain, short, and fetches nothing.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from backend.downloads.address import endpoint
from backend.downloads.errors import DownloadError
from backend.tools.plain_text import clean

if TYPE_CHECKING:
    import httpx2 as httpx

TEXT_CHARS_MAX = 420
_README_BYTES_MAX = 32 << 10  # of a README; its beginning says what the model is
_WORD_CHARS_MAX = 80  # of a licence, or of the name of a model
_FRONT = re.compile(r"\A\s*---\n.*?\n---\s*(?:\n|\Z)", re.DOTALL)
_BLOCKS = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(style|script|svg|table|details|summary|pre|iframe)\b.*?(?:</\1\s*>|\Z)"
    r"|^[ ]{0,3}(```|~~~).*?(?:^[ ]{0,3}\2|\Z)",  # code
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r"!\[[^\]\n]{0,200}\](?:\([^)\n]{0,500}\)|\[[^\]\n]{0,200}\])"  # pictures
    r"|^[ ]*\|.*$"  # rows of tables
    r"|^[ ]{0,3}\[[^\]\n]{1,200}\]:.*$"  # targets of links
    r"|^[ ]*#.*$|^[ ]*(?:[-=*_][ ]*){3,}$",  # headings, lines
    re.MULTILINE,
)
_LINK = re.compile(r"\[([^\]\n]{0,300})\](?:\([^)\n]{0,500}\)|\[[^\]\n]{0,200}\])")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,2000}>")
_MARKS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|`+|^[ ]*(?:[-*+>]|\d+[.)])[ ]+",
                    re.MULTILINE)  # fmt: skip
_THINKS = re.compile(r"<think|enable_thinking|reasoning_content|thinking_budget|<\|channel")
_CALLS = re.compile(r"\btools\b")


@dataclass(frozen=True)
class Card:
    """A repository's words on its model; "" if it has none. base: the model it was made of.

    is_read: the hub let the README be read, or there is none.
    """

    text: str = ""
    licence: str = ""
    base: str = ""
    sees: bool = False
    thinks: bool = False
    calls_tools: bool = False
    is_read: bool = True


def read_card(repository: str, client: httpx.Client) -> Card:
    """Ask the hub for a model's card: two small answers. Raises DownloadError.

    A repository without a README has a card without a text.
    """
    from backend.downloads.hub import bounded, json_of  # network libraries: not at start

    about = json_of(client, f"{endpoint()}/api/models/{repository}", missing="RepoNotFound")
    try:
        page = f"{endpoint()}/{repository}/resolve/{quote(_revision(about), safe='')}/README.md"
        readme = bounded(client, page, _README_BYTES_MAX)
    except DownloadError as error:
        is_absent = getattr(error.args[0], "id", "") == "download.no_file"
        return replace(card_of(about, ""), is_read=is_absent)
    return card_of(about, readme.decode("utf-8", "replace"))


def card_of(about: Any, readme: str) -> Card:
    """Return the card of an answer of the hub's API and a README. Both may be anything."""
    about = about if isinstance(about, dict) else {}
    data, model = (_object(about.get(name)) for name in ("cardData", "gguf"))
    tags = [tag for tag in _list(about.get("tags")) if isinstance(tag, str)]
    template = model.get("chat_template")
    template = template if isinstance(template, str) else ""
    licences = [tag.removeprefix("license:") for tag in tags if tag.startswith("license:")]
    licence = _word(data.get("license_name")) or _word(data.get("license"))
    base = data.get("base_model")
    return Card(
        plain(readme), licence or _word(next(iter(licences), "")),
        _word(base[0] if isinstance(base, list) and base else base),
        any("image-text-to-text" in (about.get("pipeline_tag"), data.get("pipeline_tag"), tag)
            for tag in ["", *tags]),
        bool(_THINKS.search(template)), bool(_CALLS.search(template)),
    )  # fmt: skip


def plain(readme: str) -> str:
    """Return the first sentences of a README as one short line of plain text."""
    text = readme[:_README_BYTES_MAX].replace("\r\n", "\n").removeprefix("\ufeff")
    text = _LEFT_OUT.sub(" ", _BLOCKS.sub(" ", _FRONT.sub("", text)))
    text = html.unescape(_TAG.sub("", _LINK.sub(r"\1", text)))
    text = _TAG.sub("", _MARKS.sub("", text))  # tags that were written with entities, too
    shown = ""
    for paragraph in re.split(r"\n\s*\n", clean(text)):
        line = " ".join(paragraph.split())
        if sum(letter.isalpha() for letter in line) < 20:  # a heading, a badge, a remark
            continue
        shown = f"{shown} {line}".strip()
        if len(shown) > TEXT_CHARS_MAX:
            cut = shown[:TEXT_CHARS_MAX]
            return (cut.rpartition(" ")[0] or cut).rstrip(" .,;:") + "\u2026"
    return shown


def _revision(about: Any) -> str:
    found = about.get("sha") if isinstance(about, dict) else None
    return found if isinstance(found, str) and found else "main"


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _word(value: Any) -> str:
    """Return a short text of one line; "" of anything else."""
    return " ".join(clean(value).split())[:_WORD_CHARS_MAX] if isinstance(value, str) else ""
