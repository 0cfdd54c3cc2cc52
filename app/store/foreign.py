"""Reads the chats that other programs export, one after the other, so that memory stays small.

ChatGPT, Claude and Open WebUI write a list of chats in JSON, often in an archive with pictures;
LM Studio writes a file for each chat; Jan a folder of threads. Each form becomes nodes of a tree.
"""

from __future__ import annotations

import base64
import bisect
import codecs
import contextlib
import functools
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from app.state.conversation import Message
from app.store.foreign_forms import FORMS, Json, Node, fenced, jan, time_s
from app.store.tagged_thoughts import split
from backend.attachments.reading import FileReading
from backend.protocol.attachments import PICTURE_BYTES_MAX, Attachment, plain_name
from backend.protocol.errors import RequestError

_PIECE_BYTES = 1 << 20
_CHAT_CHARS_MAX = 64 << 20
_N_MESSAGE_MAX = 100_000
_MAGIC = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_FILES = re.compile(
    r"(.*/)?(conversations(-\d+)?\.json|.*\.conversation\.json|.*chats?-export.*\.json)"
)
_NAME_ENDS = ("", ".", "-", "_")  # what may follow the key of a picture in its name


@dataclass
class Foreign:
    """A chat: messages with the index of the one before and the time of each."""

    title: str
    created_s: float
    changed_s: float
    leaf: int | None
    messages: list[tuple[int | None, Message, float]]


class Place:
    """A file, an archive or a folder.

    n_bad: chats that could not be read. n_lost: pictures, files and voices that chats name and that
    did not come. Both are known after `chats`. share: the part that was read, 0 to 1.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.n_bad = self.n_lost = 0
        self.share = 0.0

    def chats(self) -> Iterator[Foreign]:
        """Yield the chats. Raises OSError, ValueError and zipfile.BadZipFile."""
        if self._path.is_dir():
            names = sorted(p.relative_to(self._path).as_posix() for p in self._path.rglob("*"))
            sizes = {name: (self._path / name).stat().st_size for name in names}
            yield from self._of(sizes, lambda name: (self._path / name).open("rb"))
        elif zipfile.is_zipfile(self._path):
            with zipfile.ZipFile(self._path) as archive:
                sizes = {info.filename: info.file_size for info in archive.infolist()}
                yield from self._of(sizes, archive.open)
        else:
            names = sorted(p.name for p in self._path.parent.iterdir())
            with open(self._path, "rb") as file:
                pictures = _Pictures(names, lambda name: (self._path.parent / name).open("rb"))
                yield from self._of_list(file, pictures, 0, self._path.stat().st_size)

    def _of(self, names: dict[str, int], opened: Callable[[str], IO[bytes]]) -> Iterator[Foreign]:
        """Yield the chats of the files with these names and sizes."""
        pictures = _Pictures(names, opened)
        n_byte, n_read = sum(size for name, size in names.items() if _FILES.fullmatch(name)), 0
        for name in names:
            if _FILES.fullmatch(name):
                with opened(name) as file:
                    yield from self._of_list(file, pictures, n_read, n_byte)
                n_read += names[name]
            elif name.endswith("thread.json") and (log := name[:-11] + "messages.jsonl") in names:
                with opened(name) as about, opened(log) as lines:
                    yield from self._read(functools.partial(jan, about, lines), pictures)

    def _of_list(
        self, file: IO[bytes], pictures: _Pictures, n_read: int, n_byte: int
    ) -> Iterator[Foreign]:
        """Yield the chats of one file. n_read: bytes of those before, n_byte: of all."""
        for item in items(file):
            self.share = (n_read + file.tell()) / max(n_byte, 1)
            yield from self._read(functools.partial(_read, item), pictures)

    def _read(
        self, read: Callable[[], tuple[Json, list[Node], str]], pictures: _Pictures
    ) -> Iterator[Foreign]:
        try:
            about, nodes, leaf = read()
            pictures.n_lost = 0
            made = _made(about, nodes, leaf, pictures)
            self.n_lost += pictures.n_lost
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            self.n_bad += 1
        else:
            if made.messages:
                yield made


class _Pictures:
    """The pictures of an export, found by the beginning or an end of their names.

    n_lost: files that a chat names and the export lacks, or that are no pictures.
    """

    def __init__(self, names: Iterable[str], opened: Callable[[str], IO[bytes]]) -> None:
        self._opened = opened
        self._names = sorted((name.rpartition("/")[2], name) for name in names)
        self.n_lost = 0

    def attachment(self, wanted: str) -> Attachment | None:
        """Return a picture; None if it is not there, or cannot be seen."""
        found = self._of_text(wanted) if wanted.startswith("data:") else self._of_file(wanted)
        self.n_lost += found is None
        return found

    def _of_file(self, wanted: str) -> Attachment | None:
        key = re.split(r"[/\\]", wanted)[-1].partition("?")[0].partition("#")[0]
        place = bisect.bisect_left(self._names, (key, ""))
        name, path = self._names[place] if place < len(self._names) else ("", "")
        if not key or not name.startswith(key) or name[len(key) : len(key) + 1] not in _NAME_ENDS:
            return None
        with contextlib.suppress(OSError, KeyError), self._opened(path) as file:
            return _picture(name, file.read(PICTURE_BYTES_MAX + 1))
        return None

    def _of_text(self, url: str) -> Attachment | None:
        head, _, data = url.partition(",")
        if not head.endswith(";base64"):
            return None
        with contextlib.suppress(ValueError):
            return _picture("picture", base64.b64decode(data))
        return None


def _picture(name: str, data: bytes) -> Attachment | None:
    """Return the data of a file as an attached picture; None if it is no picture, or too large."""
    if len(data) > PICTURE_BYTES_MAX:
        return None
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":  # read as a file that a person attaches
        with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
            path = Path(folder, plain_name(Path(name).stem + ".webp"))
            path.write_bytes(data)
            with contextlib.suppress(RequestError):
                file = FileReading(str(path)).run()
                return file if file.kind == "image" else None
        return None
    if not data.startswith(_MAGIC):
        return None
    if Path(name).suffix.lower() not in (".png", ".jpg", ".jpeg"):  # newer exports call them .dat
        name = f"{Path(name).stem}.{'png' if data.startswith(_MAGIC[0]) else 'jpg'}"
    return Attachment(plain_name(name), "image", "", data=base64.b64encode(data).decode())


def items(file: IO[bytes]) -> Iterator[Any]:
    """Yield the items of a JSON list, or the one object, without reading the file whole.

    Raises ValueError where it is no JSON, or one item is too long.
    """
    decoder, utf8 = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8-sig")("replace")
    text, n_more, is_list = "", _PIECE_BYTES, False
    gap = re.compile(r"[\s,]*")
    while True:
        data = file.read(n_more)
        text += utf8.decode(data, not data)
        place = 0
        while True:
            place += len(gap.match(text, place)[0])  # type: ignore[index]
            if place == len(text):
                break
            if text[place] == "[" and not is_list:
                place, is_list = place + 1, True
                continue
            if text[place] == "]":
                return
            try:
                item, place = decoder.raw_decode(text, place)
            except ValueError:
                break  # it goes on in the next piece
            yield item
            if not is_list:
                return
        text = text[place:]
        if not data:
            raise ValueError("it is not JSON, or its end is missing")
        if len(text) > _CHAT_CHARS_MAX:
            raise ValueError("a chat is too long")
        n_more = max(_PIECE_BYTES, len(text))  # so that a long item is not read too often


def is_known(item: Any) -> bool:
    """Return whether an item is a chat of another program."""
    return isinstance(item, dict) and any(is_it(item) for is_it, _ in FORMS)


def is_export(path: Path) -> bool:
    """Return whether a file, archive or folder looks like an export, by names and beginning."""
    try:
        if path.is_dir():
            found = (p.relative_to(path).as_posix() for p in path.glob("*"))
            threads = ("thread.json", "*/thread.json", "*/*/thread.json", "*/*/*/thread.json")
            return any(map(_FILES.fullmatch, found)) or any(any(path.glob(t)) for t in threads)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return any(map(_FILES.fullmatch, archive.namelist()))
        with open(path, "rb") as file:
            return path.suffix.lower() == ".json" and is_known(next(items(file), None))
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _read(item: Any) -> tuple[Json, list[Node], str]:
    """Return what is told of a chat, its nodes, and the key of the last one shown."""
    for is_it, read in FORMS:
        if isinstance(item, dict) and is_it(item):
            return read(item)
    raise ValueError("it is no chat")


def _made(about: Json, nodes: list[Node], leaf: str, pictures: _Pictures) -> Foreign:
    """Join the nodes to messages of users and answers, which keep their branches.

    An answer's steps, such as calls of tools and their results, are parts of one message.
    """
    if len(nodes) > _N_MESSAGE_MAX:
        raise ValueError("a chat has too many messages")
    known = {node.key: node for node in nodes}
    is_tagged = not ("mapping" in about or "chat_messages" in about)  # thoughts within the text
    children: dict[str, list[Node]] = {}
    for node in nodes:
        parent = node.parent if node.parent in known and node.parent != node.key else ""
        children.setdefault(parent, []).append(node)
    messages: list[tuple[int | None, Message, float]] = []
    index: dict[str, int | None] = {"": None}
    waiting = list(reversed(children.get("", ())))
    while waiting:
        node = waiting.pop()
        above = index[node.parent if node.parent in index else ""]
        index[node.key] = above
        files = [pictures.attachment(name) for name in node.pictures]
        lost = [name for name, file in zip(node.pictures, files, strict=True) if file is None]
        names = [*map(_short, lost), *map(_short, node.lost)] if node.role else []
        pictures.n_lost += len(node.lost) if node.role else -len(lost)
        if node.role == "assistant" and not node.thought and is_tagged:
            node.thought, node.text = split(node.text)
        text = "\n\n".join([*names, node.text.strip()]).strip()
        if node.role == "tool" and text:
            text = fenced(text)
        if node.role and (text or node.thought or any(files)):
            role = "user" if node.role == "user" else "assistant"
            kept = [file.to_json() for file in files if file is not None]
            is_step = role == "assistant" and len(children.get(node.parent, ())) == 1
            last = messages[above][1] if above is not None else None
            if is_step and last is not None and last.role == "assistant":
                last.content = f"{last.content}\n\n{text}".strip()
                last.reasoning = f"{last.reasoning}\n\n{node.thought}".strip()
                if kept:
                    last.details["attachments"] = [*last.details.get("attachments", []), *kept]
            else:
                details: Json = {"attachments": kept} if kept else {}
                if node.model:
                    details["model"] = node.model
                made = Message(role, text, reasoning=node.thought, details=details)
                messages.append((above, made, node.at_s))
                index[node.key] = len(messages) - 1
        waiting += reversed(children.get(node.key, ()))
    times = [at_s for _, _, at_s in messages if at_s]
    created = time_s(about.get("create_time") or about.get("created_at") or about.get("created"))
    changed = time_s(about.get("update_time") or about.get("updated_at") or about.get("updated"))
    created = created or min(times, default=0.0)
    title = str(about.get("title") or about.get("name") or "")
    end = index.get(leaf) if leaf in known else len(messages) - 1
    return Foreign(" ".join(title.split())[:200], created, changed or max(times, default=created),
                   end, messages)  # fmt: skip


def _short(name: str) -> str:
    return f"[{'picture' if name.startswith('data:') else ' '.join(name.split())[:200] or 'file'}]"
