"""Files attached to a question: their form in messages, and as text for a model."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Json = dict[str, Any]

PARTS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data",),  # Base64
    "file": ("name", "text"),
}
"""The parts of a message's content by their type, with their fields. All fields are text."""

KINDS = ("text", "markdown", "code", "pdf", "document", "image")
NAME_CHARS_MAX = 120
TEXT_CHARS_MAX = 1_000_000
"""Longest text of one attachment, in characters."""
PICTURE_BYTES_MAX = 8 << 20
"""Size of one image file."""
PICTURE_PIXELS_MAX = 40_000_000

_FENCE = re.compile(r"`{3,}")


@dataclass(frozen=True)
class Picture:
    """A decoded image. rgb: three bytes per pixel, in rows from the top."""

    width: int
    height: int
    rgb: bytes


def images_of(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the images of a conversation, in Base64."""
    return [
        part["data"]
        for message in messages
        if not isinstance(content := message.get("content"), str | None)
        for part in content
        if part["type"] == "image"
    ]


UNSEEN_IMAGE = "[An image was here. The loaded model cannot see images.]"
UNREAD_IMAGE = "[An image was here. It is damaged or of a kind that cannot be read.]"


def in_words(
    message: Mapping[str, Any], words: str, images: Container[str] | None = None
) -> dict[str, Any]:
    """Return a message with words in place of these images, or of all of them."""
    if not images_of([message]):
        return dict(message)
    parts = [
        {"type": "text", "text": words}
        if part["type"] == "image" and (images is None or part["data"] in images)
        else part
        for part in message["content"]
    ]
    is_text = all(part["type"] == "text" for part in parts)
    content = "\n".join(part["text"] for part in parts) if is_text else parts
    return {**message, "content": content}


@dataclass(frozen=True)
class Attachment:
    """An attached file. kind: of KINDS. text: its contents. n_page: of a PDF, else 0.

    n_char_left_out: characters at the end of the file that are not in `text`. data: the file of an
    image in Base64, else "". was_scaled: that image is smaller than the file's.
    """

    name: str
    kind: str
    text: str
    n_page: int = 0
    n_char_left_out: int = 0
    data: str = ""
    was_scaled: bool = False

    def to_json(self) -> Json:
        """Return a plain dict; see from_json."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read an attachment. Raises KeyError, TypeError or ValueError."""
        kind = data["kind"]
        if kind not in KINDS:
            raise ValueError("an attachment is of an unknown kind")
        name, text, picture = data["name"], data["text"], data.get("data", "")
        n_page, n_left_out = data.get("n_page", 0), data.get("n_char_left_out", 0)
        if not all(isinstance(value, str) for value in (name, text, picture)):
            raise TypeError("a field of an attachment is no text")
        if type(n_page) is not int or type(n_left_out) is not int or min(n_page, n_left_out) < 0:
            raise TypeError("a field of an attachment is no count")
        if (kind == "image") != bool(picture) or not picture.isascii():
            raise ValueError("an attached image has no data")
        if len(text) > TEXT_CHARS_MAX or len(picture) > 2 * PICTURE_BYTES_MAX:
            raise ValueError("an attachment is too long")
        text = text.encode("utf-8", "replace").decode()  # without half characters
        was_scaled = data.get("was_scaled") is True
        return cls(plain_name(name), kind, text, n_page, n_left_out, picture, was_scaled)

    def to_part(self) -> Json:
        """Return the part of a message's content."""
        if self.kind == "image":
            return {"type": "image", "data": self.data}
        name = f"{self.name} (only its beginning)" if self.n_char_left_out else self.name
        return {"type": "file", "name": name, "text": self.text}


def plain_name(name: str) -> str:
    """Return a file's name in one line, without control characters, and not too long."""
    name = name.encode("utf-8", "replace").decode()
    name = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    if len(name) > NAME_CHARS_MAX:
        half = NAME_CHARS_MAX // 2
        name = f"{name[:half]}\u2026{name[-half + 1 :]}"
    return name or "file"


def content_parts(text: str, attachments: Iterable[Attachment]) -> str | list[Json]:
    """Return the content of a message: the attachments, then the text."""
    parts = [attachment.to_part() for attachment in attachments]
    if not parts:
        return text
    return [*parts, {"type": "text", "text": text}] if text else parts


def as_text(content: str | Sequence[Json]) -> str:
    """Return a message's content as one text, in which every file is a fenced block.

    The fence is longer than any in the file, so that the file cannot end its block.
    """
    if isinstance(content, str):
        return content
    blocks = []
    for part in content:
        if part["type"] == "text":
            blocks.append(part["text"])
            continue
        text = part["text"]
        fence = "`" * max((len(run) + 1 for run in _FENCE.findall(text)), default=3)
        name = plain_name(part["name"])
        blocks.append(f"File: {name}\n{fence}\n{text}\n{fence}")
    return "\n\n".join(blocks)
