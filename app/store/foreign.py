"""Reads the chats that other programs export, one after the other, so that memory stays small.

ChatGPT, Claude and Open WebUI write a list of chats in JSON, often in an archive with pictures;
LM Studio writes a file for each chat; Jan a folder of threads. Each form becomes nodes of a tree.
"""

from __future__ import annotations

import base64
import bisect
import codecs
import contextlib
import datetime
import functools
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from app.state.conversation import Message
from backend.attachments.reading import FileReading
from backend.protocol.attachments import PICTURE_BYTES_MAX, Attachment, plain_name
from backend.protocol.errors import RequestError

Json = dict[str, Any]
_PIECE_BYTES = 1 << 20
_CHAT_CHARS_MAX = 64 << 20
_N_MESSAGE_MAX = 100_000
_MAGIC = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_FILES = re.compile(
    r"(.*/)?(conversations(-\d+)?\.json|.*\.conversation\.json|.*chat-export.*\.json)"
)
_NAME_ENDS = ("", ".", "-", "_")  # what may follow the key of a picture in its name
_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "tool": "tool"}


@dataclass
class Node:
    """A message of another program. parent: its key; "": none.

    pictures: their names, or addresses with the data. lost: what an export never holds, in words.
    """

    key: str
    parent: str
    role: str
    text: str = ""
    thought: str = ""
    at_s: float = 0.0
    model: str = ""
    pictures: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.text = f"{self.text}\n\n{text}".strip()


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
    did not come. Both are known after `chats`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.n_bad = self.n_lost = 0

    def chats(self) -> Iterator[Foreign]:
        """Yield the chats. Raises OSError, ValueError and zipfile.BadZipFile."""
        if self._path.is_dir():
            names = sorted(p.relative_to(self._path).as_posix() for p in self._path.rglob("*"))
            yield from self._of(names, lambda name: (self._path / name).open("rb"))
        elif zipfile.is_zipfile(self._path):
            with zipfile.ZipFile(self._path) as archive:
                yield from self._of(archive.namelist(), archive.open)
        else:
            names = sorted(p.name for p in self._path.parent.iterdir())
            with open(self._path, "rb") as file:
                pictures = _Pictures(names, lambda name: (self._path.parent / name).open("rb"))
                yield from self._of_list(file, pictures)

    def _of(self, names: list[str], opened: Callable[[str], IO[bytes]]) -> Iterator[Foreign]:
        pictures = _Pictures(names, opened)
        for name in names:
            if _FILES.fullmatch(name):
                with opened(name) as file:
                    yield from self._of_list(file, pictures)
            elif name.endswith("thread.json") and (log := name[:-11] + "messages.jsonl") in names:
                with opened(name) as about, opened(log) as lines:
                    yield from self._read(functools.partial(_jan, about, lines), pictures)

    def _of_list(self, file: IO[bytes], pictures: _Pictures) -> Iterator[Foreign]:
        for item in items(file):
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

    def __init__(self, names: list[str], opened: Callable[[str], IO[bytes]]) -> None:
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
    return isinstance(item, dict) and any(is_it(item) for is_it, _ in _FORMS)


def is_export(path: Path) -> bool:
    """Return whether a file, archive or folder looks like an export, by names and beginning."""
    try:
        if path.is_dir():
            found = (p.relative_to(path).as_posix() for p in path.glob("*"))
            return any(map(_FILES.fullmatch, found)) or any(path.glob("threads/*/thread.json"))
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return any(map(_FILES.fullmatch, archive.namelist()))
        with open(path, "rb") as file:
            return path.suffix.lower() == ".json" and is_known(next(items(file), None))
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _read(item: Any) -> tuple[Json, list[Node], str]:
    """Return what is told of a chat, its nodes, and the key of the last one shown."""
    for is_it, read in _FORMS:
        if isinstance(item, dict) and is_it(item):
            return read(item)
    raise ValueError("it is no chat")


def _chatgpt(chat: Json) -> tuple[Json, list[Node], str]:
    nodes = []
    for key, entry in chat["mapping"].items():
        message, parent = entry.get("message") or {}, str(entry.get("parent") or "")
        about, content = message.get("metadata") or {}, message.get("content") or {}
        role = _ROLES.get((message.get("author") or {}).get("role", ""), "")
        kind = content.get("content_type", "text")
        node = Node(str(key), parent, role, at_s=_time(message.get("create_time")))
        node.model = str(about.get("model_slug") or "")
        if about.get("is_visually_hidden_from_conversation") or kind in _NOT_SAID:
            node.role = ""
        for part in content.get("parts") or ():
            if isinstance(part, str):
                node.text += part
            elif isinstance(part, dict):
                _chatgpt_part(node, part)
        if node.text.strip():  # the words of a voice are there
            node.lost = [name for name in node.lost if name not in ("voice", "video")]
        if kind == "thoughts":
            node.thought = "\n\n".join(
                str(thought.get("content") or "") for thought in content.get("thoughts") or ()
            )
        elif not node.text:
            node.text = str(content.get("text") or content.get("result") or "")
        node.text = _cited(node.text, _objects(about.get("content_references")))
        for ran in _objects((about.get("aggregate_result") or {}).get("messages")):
            if ran.get("image_url"):  # a picture that a program drew
                node.pictures.append(str(ran["image_url"]))
        if node.role == "user":  # pictures among them are parts, too
            files = [f for f in _objects(about.get("attachments")) if not _is_picture(f)]
            node.lost += [str(file.get("name") or "file") for file in files]
        recipient = message.get("recipient", "all")
        if node.role == "assistant" and recipient != "all" and node.text:
            node.text = _called(str(recipient), node.text, str(content.get("language") or ""))
        nodes.append(node)
    return chat, nodes, str(chat.get("current_node") or "")


def _chatgpt_part(node: Node, part: Json) -> None:
    """Add a part: a picture, the words of a voice, or what is in no export."""
    kind = str(part.get("content_type") or "")
    if isinstance(part.get("text"), str):
        node.text += part["text"]
    elif "audio" in kind or "video" in kind:
        node.lost.append("voice" if "audio" in kind else "video")
    elif "asset_pointer" in part:
        node.pictures.append(str(part["asset_pointer"]))
    elif kind:
        node.lost.append(kind)


def _called(recipient: str, said: str, language: str) -> str:
    """Return what a model wrote to a tool. A canvas is its document."""
    if recipient.startswith("canmore."):
        with contextlib.suppress(ValueError):
            canvas = json.loads(said)
            if isinstance(canvas, dict) and isinstance(canvas.get("content"), str):
                kind = str(canvas.get("type") or "").partition("code/")[2]
                name = str(canvas.get("name") or "Canvas")
                return f"**{name}**\n\n{_fenced(canvas['content'], kind)}"
    return _fenced(said, "" if language == "unknown" else language)


_CITATION = re.compile("\ue200[^\ue201]*\ue201")


def _cited(text: str, references: list[Json]) -> str:
    """Put the words of citations in the place of their marks, which no font shows."""
    if "\ue200" not in text:
        return text
    for found in references:
        mark, words = found.get("matched_text"), found.get("alt")
        if isinstance(mark, str) and mark.startswith("\ue200"):
            text = text.replace(mark, words if isinstance(words, str) else "")
    return _CITATION.sub("", text)


def _is_picture(file: Json) -> bool:
    kind = file.get("mime_type") or file.get("mimeType") or file.get("type") or ""
    return str(kind).startswith("image")


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_NOT_SAID = ("user_editable_context", "model_editable_context", "reasoning_recap")


def _claude(chat: Json) -> tuple[Json, list[Node], str]:
    nodes: list[Node] = []
    known: set[str] = set()
    for number, message in enumerate(chat["chat_messages"]):
        parent = message.get("parent_message_uuid")
        if parent not in known:  # the first has a parent that is none; old exports name no parents
            parent = "" if parent == _NO_MESSAGE or not nodes else nodes[-1].key
        node = Node(str(message.get("uuid") or number), parent, "")
        known.add(node.key)
        node.role = _ROLES.get(message.get("sender", ""), "")
        node.at_s = _time(message.get("created_at"))
        for part in _objects(message.get("content")):
            _claude_part(node, part)
        node.text = node.text or str(message.get("text") or "")
        for file in _objects(message.get("attachments")):
            name = str(file.get("file_name") or "file")
            if file.get("extracted_content"):
                node.text = f"{name}\n{_fenced(str(file['extracted_content']))}\n\n{node.text}"
            else:
                node.lost.append(name)
        names = [str(file.get("file_name") or "") for file in _objects(message.get("files"))]
        node.pictures += names
        nodes.append(node)
    return chat, nodes, str(chat.get("current_leaf_message_uuid") or "")


def _claude_part(node: Node, part: Json) -> None:
    """Add a block. Artifacts are calls of a tool with their text; results are told."""
    kind = part.get("type")
    if isinstance(part.get("text"), str):
        node.say(part["text"])
    elif part.get("thinking"):
        node.thought = f"{node.thought}\n\n{part['thinking']}".strip()
    elif kind == "tool_use":
        given = part.get("input")
        given = given if isinstance(given, dict) else {}
        name = str(given.get("title") or part.get("name") or "tool")
        said = given.get("content") or given.get("new_str") or given.get("code")
        language = str(given.get("language") or "")
        if not isinstance(said, str):
            said, language = json.dumps(given, ensure_ascii=False, indent=1), "json"
        node.say(f"**{name}**\n\n{_fenced(said, language)}")
    elif kind == "tool_result":
        results = _objects(part.get("content"))
        said = "\n".join(str(r["text"]) for r in results if isinstance(r.get("text"), str))
        if said.strip() and said.strip() != "OK":  # an artifact's result
            node.say(_fenced(said))
        node.lost += [str(r.get("type")) for r in results if r.get("type") in ("image", "file")]
    elif isinstance(part.get("transcript"), str):
        node.say(part["transcript"])
    elif kind and kind != "token_budget":
        node.lost.append(str(kind))


_NO_MESSAGE = "00000000-0000-4000-8000-000000000000"


def _open_webui(item: Json) -> tuple[Json, list[Node], str]:
    chat = item["chat"]
    history = chat["history"]
    nodes = []
    for key, message in history["messages"].items():
        node = Node(str(key), str(message.get("parentId") or ""), "")
        node.role = _ROLES.get(message.get("role", ""), "")
        _add_content(node, message.get("content"))
        for file in _objects(message.get("files")):
            url, name = str(file.get("url") or ""), str(file.get("name") or file.get("id") or "")
            if _is_picture(file) and url.startswith("data:"):
                node.pictures.append(url)
            else:
                node.lost.append(name or str(file.get("type") or "file"))
        node.at_s, node.model = _time(message.get("timestamp")), str(message.get("model") or "")
        found = re.match(r"<details type=\"reasoning\"[^>]*>\n?(.*?)</details>\n*", node.text, re.S)
        if found is not None:
            said = re.sub(r"<summary>.*?</summary>\n?", "", found[1], flags=re.S)
            node.thought = re.sub(r"(?m)^(?:&gt;|>) ?", "", said).strip()
            node.text = node.text[found.end() :]
        nodes.append(node)
    about = {**item, "title": item.get("title") or chat.get("title")}
    return about, nodes, str(history.get("currentId") or "")


def _lm_studio(chat: Json) -> tuple[Json, list[Node], str]:
    nodes: list[Node] = []
    before = ""
    for number, message in enumerate(chat["messages"]):
        chosen = message.get("currentlySelected", 0)
        leaf = before
        for version, said in enumerate(message["versions"]):
            node = Node(f"{number}.{version}", before, _ROLES.get(said.get("role", ""), ""))
            for step in said.get("steps") or [said]:
                into = Node("", "", "")
                _add_content(into, step.get("content"))
                if (step.get("style") or {}).get("type") == "thinking":
                    node.thought += into.text
                elif any("tool" in str(p.get("type")) for p in _objects(step.get("content"))):
                    node.say(into.text)
                else:
                    node.text += into.text
                node.lost += into.lost
                node.pictures += into.pictures
            info = said.get("senderInfo") or {}
            node.model = str(info.get("senderName") or "")
            nodes.append(node)
            if version == chosen:
                leaf = node.key
        before = leaf
    return {"title": chat.get("name"), "create_time": chat.get("createdAt")}, nodes, before


def _jan(about: IO[bytes], lines: IO[bytes]) -> tuple[Json, list[Node], str]:
    thread, nodes = json.loads(about.read()), list[Node]()
    for line in lines:
        message = json.loads(line) if line.strip() else {}
        node = Node(str(message.get("id")), nodes[-1].key if nodes else "", "")
        node.role = _ROLES.get(message.get("role", ""), "")
        _add_content(node, message.get("content"))
        node.at_s = _time(message.get("created_at"))
        found = re.match(r"\s*<think>(.*?)</think>\s*", node.text, re.S)
        if found is not None:
            node.thought, node.text = found[1].strip(), node.text[found.end() :]
        nodes.append(node)
    return thread, nodes, ""


def _add_content(node: Node, content: Any) -> None:
    """Add a content: a text, or parts as OpenAI, Jan and LM Studio write them."""
    if isinstance(content, str):
        node.text += content
    for part in _objects(content):
        kind, said = str(part.get("type") or ""), part.get("text")
        if isinstance(said, dict):
            said = said.get("value")
        if isinstance(said, str):
            node.text += said
        elif "image_url" in part:
            url = part["image_url"]
            node.pictures.append(str(url.get("url") if isinstance(url, dict) else url))
        elif kind == "toolCallRequest":
            given = json.dumps(part.get("parameters") or {}, ensure_ascii=False, indent=1)
            node.say(f"**{part.get('name') or 'tool'}**\n\n{_fenced(given, 'json')}")
        elif kind == "toolCallResult":
            node.say(_fenced(str(part.get("content") or "")))
        elif kind:
            node.lost.append(str(part.get("fileIdentifier") or part.get("name") or kind))


_Reader = Callable[[Json], tuple[Json, list[Node], str]]
_FORMS: tuple[tuple[Callable[[Json], bool], _Reader], ...] = (
    (lambda item: isinstance(item.get("mapping"), dict), _chatgpt),
    (lambda item: isinstance(item.get("chat_messages"), list), _claude),
    (lambda item: isinstance(item.get("chat"), dict) and "history" in item["chat"], _open_webui),
    (
        lambda item: (
            isinstance(item.get("messages"), list)
            and all(isinstance(m, dict) and "versions" in m for m in item["messages"])
        ),
        _lm_studio,
    ),
)


def _made(about: Json, nodes: list[Node], leaf: str, pictures: _Pictures) -> Foreign:
    """Join the nodes to messages of users and answers, which keep their branches.

    An answer's steps, such as calls of tools and their results, are parts of one message.
    """
    if len(nodes) > _N_MESSAGE_MAX:
        raise ValueError("a chat has too many messages")
    known = {node.key: node for node in nodes}
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
        text = "\n\n".join([*names, node.text.strip()]).strip()
        if node.role == "tool" and text:
            text = _fenced(text)
        if node.role and (text or node.thought or any(files)):
            role = "user" if node.role == "user" else "assistant"
            is_step = role == "assistant" and len(children.get(node.parent, ())) == 1
            last = messages[above][1] if above is not None else None
            if is_step and last is not None and last.role == "assistant":
                last.content = f"{last.content}\n\n{text}".strip()
                last.reasoning = f"{last.reasoning}\n\n{node.thought}".strip()
            else:
                kept = [file.to_json() for file in files if file is not None]
                details: Json = {"attachments": kept} if kept else {}
                if node.model:
                    details["model"] = node.model
                made = Message(role, text, reasoning=node.thought, details=details)
                messages.append((above, made, node.at_s))
                index[node.key] = len(messages) - 1
        waiting += reversed(children.get(node.key, ()))
    times = [at_s for _, _, at_s in messages if at_s]
    created = _time(about.get("create_time") or about.get("created_at") or about.get("created"))
    changed = _time(about.get("update_time") or about.get("updated_at") or about.get("updated"))
    created = created or min(times, default=0.0)
    title = str(about.get("title") or about.get("name") or "")
    end = index.get(leaf) if leaf in known else len(messages) - 1
    return Foreign(" ".join(title.split())[:200], created, changed or max(times, default=created),
                   end, messages)  # fmt: skip


def _short(name: str) -> str:
    return f"[{'picture' if name.startswith('data:') else ' '.join(name.split())[:200] or 'file'}]"


def _fenced(text: str, language: str = "") -> str:
    runs = re.findall(r"`{3,}", text)
    fence = "`" * max((len(run) + 1 for run in runs), default=3)
    return f"{fence}{language if language.isalnum() else ''}\n{text}\n{fence}"


def _time(value: Any) -> float:
    """Return seconds since 1970 of a number, also of milliseconds, or a date; 0.0 of another."""
    if isinstance(value, str):
        try:
            return datetime.datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return 0.0
    return value / 1000 if value > 1e11 else float(value)
