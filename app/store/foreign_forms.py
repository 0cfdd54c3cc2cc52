"""Reads a chat as another program writes it: nodes of a tree, with all that is in them.

The forms are ChatGPT's, Claude's, Open WebUI's, LM Studio's and Jan's, with the variants over the
years that public importers read, and a plain list of messages with roles, as older programs write.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

Json = dict[str, Any]
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

    def add_line(self, text: str) -> None:
        """Add a part of a text, on a line of its own."""
        self.text = "\n".join(filter(None, (self.text, text)))

    def think(self, text: str) -> None:
        """Add a paragraph to the thought."""
        self.thought = f"{self.thought}\n\n{text}".strip()


def _chatgpt(chat: Json) -> tuple[Json, list[Node], str]:
    nodes = []
    for key, entry in chat["mapping"].items():
        message, parent = entry.get("message") or {}, str(entry.get("parent") or "")
        about, content = message.get("metadata") or {}, message.get("content") or {}
        role = _ROLES.get((message.get("author") or {}).get("role", ""), "")
        kind = content.get("content_type", "text")
        node = Node(str(key), parent, role, at_s=time_s(message.get("create_time")))
        node.model = str(about.get("model_slug") or "")
        if about.get("is_visually_hidden_from_conversation") or kind in _NOT_SAID:
            node.role = ""
        for part in content.get("parts") or ():
            if isinstance(part, str):
                node.add_line(part)
            elif isinstance(part, dict):
                _chatgpt_part(node, part)
        if node.text.strip():  # the words of a voice are there
            node.lost = [name for name in node.lost if name not in ("voice", "video")]
        if kind == "thoughts":
            found = [node.text, *(_first(thought, "content", "summary")
                                  for thought in _objects(content.get("thoughts")))]  # fmt: skip
            node.thought, node.text = "\n\n".join(filter(None, found)), ""
        elif not node.text:
            node.text = _first(content, "text", "result", "output_str")
            about_page = [_first(content, name) for name in ("title", "url")]
            if kind == "tether_quote":
                node.text = "\n".join(filter(None, [*about_page, node.text]))
            _chatgpt_part(node, content.get("screenshot") or {})
            if kind not in _CHATGPT_KINDS and not (node.text or node.pictures or node.lost):
                node.lost.append(str(kind))
        node.text = _cited(node.text, _objects(about.get("content_references")))
        for ran in _objects((about.get("aggregate_result") or {}).get("messages")):
            if ran.get("image_url"):  # a picture that a program drew
                node.pictures.append(str(ran["image_url"]))
        if node.role == "user":  # pictures among them are parts, too
            files = [f for f in _objects(about.get("attachments")) if not _is_picture(f)]
            node.lost += [str(file.get("name") or "file") for file in files]
        recipient = message.get("recipient", "all")
        is_call = recipient not in ("all", None) or kind == "code"
        if node.role == "assistant" and is_call and node.text:
            node.text = _called(str(recipient), node.text, str(content.get("language") or ""))
        nodes.append(node)
    return chat, nodes, str(chat.get("current_node") or "")


def _chatgpt_part(node: Node, part: Json) -> None:
    """Add a part: a picture, the words of a voice, or what is in no export."""
    kind = str(part.get("content_type") or "")
    if isinstance(part.get("text"), str) or isinstance(part.get("result"), str):
        node.add_line(_first(part, "text", "result"))
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
                return f"**{name}**\n\n{fenced(canvas['content'], kind)}"
    return fenced(said, "" if language == "unknown" else language)


_CITATION = re.compile(
    "\ue200[^\ue201]*\ue201|[\ue200-\ue206]|\u3010\\d+(?::\\d+)?\u2020[^\u3011\\n]{0,80}\u3011"
)
"""Marks of citations in private letters, and the older ones in brackets, as in [12\u2020source]."""


def _cited(text: str, references: list[Json]) -> str:
    """Put the words of citations in the place of their marks, which no font shows."""
    if text.isascii() or _CITATION.search(text) is None:
        return text
    for found in references:
        mark, words = found.get("matched_text"), found.get("alt")
        if isinstance(mark, str) and mark.startswith(("\ue200", "\u3010")):
            text = text.replace(mark, words if isinstance(words, str) else "")
    return _CITATION.sub("", text)


def _is_picture(file: Json) -> bool:
    kind = file.get("mime_type") or file.get("mimeType") or file.get("type") or ""
    return str(kind).startswith("image")


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_NOT_SAID = ("user_editable_context", "model_editable_context", "reasoning_recap")
_CHATGPT_KINDS = ("text", "multimodal_text", "code", "execution_output", "system_error",
                  "tether_quote", "tether_browsing_display", "tether_browsing_code")  # fmt: skip
"""Contents of a message that may be empty, beside those that are never shown."""


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
        node.at_s = time_s(message.get("created_at"))
        for part in _objects(message.get("content")):
            _claude_part(node, part)
        node.text = node.text or _NO_BLOCK.sub("", str(message.get("text") or "")).strip()
        for file in _objects(message.get("attachments")):
            name = str(file.get("file_name") or "file")
            if file.get("extracted_content"):
                node.text = f"{name}\n{fenced(str(file['extracted_content']))}\n\n{node.text}"
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
    elif kind == "thinking" or part.get("thinking"):
        summaries = [_first(summary, "summary") for summary in _objects(part.get("summaries"))]
        node.think(str(part.get("thinking") or "\n\n".join(summaries)))
    elif kind == "tool_use":
        given = part.get("input")
        given = given if isinstance(given, dict) else {}
        name = str(given.get("title") or part.get("name") or "tool")
        said = _first(given, "content", "new_str", "file_text", "code")
        if not said and part.get("name") != "artifacts":
            said = _first(given, "command")
        language = str(given.get("language") or "")
        if not said:
            said, language = json.dumps(given, ensure_ascii=False, indent=1), "json"
        node.say(f"**{name}**\n\n{fenced(said, language)}")
    elif kind == "tool_result":
        results = _objects(part.get("content"))
        words = [
            _first(r, "text") or f"{_first(r, 'title')}\n{_first(r, 'url')}".strip()
            for r in results
        ]
        said = "\n".join([*filter(None, words), *_texts(part.get("content"))])
        if said.strip() and said.strip() != "OK":  # an artifact's result
            node.say(fenced(said))
        node.lost += [str(r.get("type")) for r in results if r.get("type") in ("image", "file")]
    elif isinstance(part.get("transcript"), str):
        node.say(part["transcript"])
    elif kind and kind not in ("token_budget", "flag"):
        node.lost.append(str(kind))


def _texts(value: Any) -> list[str]:
    """Return a text, or those of a list."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


_NO_BLOCK = re.compile(r"```\s*This block is not supported on your current device yet\.\s*```")
_NO_MESSAGE = "00000000-0000-4000-8000-000000000000"


def _open_webui(item: Json) -> tuple[Json, list[Node], str]:
    chat = item["chat"]
    history = chat["history"]
    nodes = []
    for key, message in history["messages"].items():
        node = Node(str(key), str(message.get("parentId") or ""), "")
        node.role = _ROLES.get(message.get("role", ""), "")
        _add_content(node, message.get("content"))
        if not node.text:  # newer versions keep the parts of an answer apart
            for part in _objects(message.get("output")):
                _open_webui_part(node, part)
        if isinstance(said := message.get("reasoning_content"), str):
            node.think(said)
        for file in _objects(message.get("files")):
            url, name = str(file.get("url") or ""), str(file.get("name") or file.get("id") or "")
            inside = _object(file.get("file"))
            data = _object(inside.get("data"))
            if _is_picture(file) and url.startswith("data:"):
                node.pictures.append(url)
            elif said := _first(data, "content"):
                node.text = f"{name}\n{fenced(said)}\n\n{node.text}"
            else:
                node.lost.append(name or str(file.get("type") or "file"))
        node.at_s, node.model = time_s(message.get("timestamp")), str(message.get("model") or "")
        node.text = _DETAILS.sub(functools.partial(_open_webui_details, node), node.text)
        for number, source in enumerate(_objects(message.get("sources")), 1):
            about = _object(source.get("source"))
            if f"[{number}]" in node.text and (name := _first(about, "name", "url")):
                node.text += f"\n\n[{number}]: {name}"
        nodes.append(node)
    about = {**item, "title": item.get("title") or chat.get("title")}
    return about, nodes, str(history.get("currentId") or "")


def _open_webui_part(node: Node, part: Json) -> None:
    """Add an item of an answer in the form of OpenAI's Responses."""
    said = "\n\n".join(_first(one, "text") for one in _objects(part.get("content")))
    if part.get("type") == "reasoning":
        node.think(
            said or "\n\n".join(_first(one, "text") for one in _objects(part.get("summary")))
        )
    elif part.get("type") == "function_call":
        node.say(f"**{part.get('name') or 'tool'}**\n\n{fenced(_first(part, 'arguments'), 'json')}")
    elif part.get("type") == "function_call_output":
        output = part.get("output")
        texts = [*_texts(output), *(_first(one, "text") for one in _objects(output))]
        node.say(fenced("\n".join(texts)))
    elif said:
        node.say(said)


_DETAILS = re.compile(
    r"<details\s+type=\"(reasoning|tool_calls|code_interpreter)\"([^>]*)>\n?(.*?)</details>\n*",
    re.DOTALL,
)
_SUMMARY = re.compile(r"<summary>.*?</summary>\n?", re.DOTALL)


def _open_webui_details(node: Node, found: re.Match[str]) -> str:
    """Return what stands in the place of a fold; a thought goes to its own field."""
    kind, facts, inside = found.groups()
    said = html.unescape(_SUMMARY.sub("", inside)).strip()
    if kind == "reasoning":
        node.think(re.sub(r"(?m)^> ?", "", said))
        return ""
    about = {name: html.unescape(text) for name, text in re.findall(r'(\w+)="([^"]*)"', facts)}
    if kind == "tool_calls":
        said = f"**{about.get('name') or 'tool'}**\n\n{fenced(about.get('arguments', ''), 'json')}"
    result = about.get("result") or about.get("output") or ""
    return "\n\n".join(filter(None, (said, fenced(result) if result else ""))) + "\n\n"


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
                node.think(into.thought)
                node.lost += into.lost
                node.pictures += into.pictures
            info = said.get("senderInfo") or {}
            node.model = str(info.get("senderName") or "")
            nodes.append(node)
            if version == chosen:
                leaf = node.key
        before = leaf
    return {"title": chat.get("name"), "create_time": chat.get("createdAt")}, nodes, before


def jan(about: IO[bytes], lines: IO[bytes]) -> tuple[Json, list[Node], str]:
    """Read a thread of Jan: thread.json and messages.jsonl."""
    thread, found = json.loads(about.read()), list[Json]()
    for line in filter(bytes.strip, lines):
        try:
            found.append(dict(json.loads(line)))
        except (ValueError, TypeError):  # the others are whole
            found.append({"role": "assistant", "content": [{"type": "message"}]})
    return _of_messages(thread, found)


def _of_messages(about: Json, messages: list[Any]) -> tuple[Json, list[Node], str]:
    """Read messages in OpenAI's form, one after the other, in the order of their times."""
    nodes: list[Node] = []
    times = [time_s(message.get("created_at") or message.get("timestamp")) for message in messages]
    for number, before in enumerate(times[:-1], 1):
        times[number] = times[number] or before
    for number in sorted(range(len(messages)), key=times.__getitem__):
        message = messages[number]
        node = Node(str(number), nodes[-1].key if nodes else "", "")
        node.role = _ROLES.get(message.get("role", ""), "")
        _add_content(node, message.get("content"))
        node.think(_first(message, "reasoning_content", "reasoning"))
        more = _object(message.get("metadata"))
        for call in _objects(message.get("tool_calls") or more.get("tool_calls")):
            tool = _object(call.get("tool")) or call
            function = _object(tool.get("function"))
            given = fenced(_first(function, "arguments"), "json")
            node.say(f"**{function.get('name') or 'tool'}**\n\n{given}")
            response = _object(call.get("response"))
            for result in _objects(response.get("content")):
                node.say(fenced(_first(result, "text")))
        node.at_s = times[number]
        nodes.append(node)
    more = _object(about.get("metadata"))
    return {"title": more.get("title"), **about}, nodes, ""


def _add_content(node: Node, content: Any) -> None:
    """Add a content: a text, or parts as OpenAI, Jan and LM Studio write them."""
    if isinstance(content, str):
        node.text += content
    for part in _objects(content):
        kind, said = str(part.get("type") or ""), part.get("text")
        if isinstance(said, dict):
            said = said.get("value")
        if isinstance(said, str) and kind in ("reasoning", "thinking"):
            node.think(said)
        elif isinstance(said, str):
            node.text += said
        elif "image_url" in part:
            url = part["image_url"]
            node.pictures.append(str(url.get("url") if isinstance(url, dict) else url))
        elif kind == "toolCallRequest":
            given = json.dumps(part.get("parameters") or {}, ensure_ascii=False, indent=1)
            node.say(f"**{part.get('name') or 'tool'}**\n\n{fenced(given, 'json')}")
        elif kind == "tool_call":
            given = json.dumps(part.get("input") or {}, ensure_ascii=False, indent=1)
            node.say(f"**{part.get('tool_name') or 'tool'}**\n\n{fenced(given, 'json')}")
            for result in _texts(part.get("output")):
                node.say(fenced(result))
        elif kind == "toolCallResult":
            node.say(fenced(str(part.get("content") or "")))
        elif kind:
            node.lost.append(str(part.get("fileIdentifier") or part.get("name") or kind))


_Reader = Callable[[Json], tuple[Json, list[Node], str]]
FORMS: tuple[tuple[Callable[[Json], bool], _Reader], ...] = (
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
    (
        lambda item: (
            isinstance(item.get("messages"), list)
            and all(isinstance(m, dict) and "role" in m for m in item["messages"])
        ),
        lambda item: _of_messages(item, item["messages"]),
    ),
)


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _first(found: Json, *names: str) -> str:
    """Return the first of these fields that is a text with letters; "" if none is."""
    return next((v for name in names if isinstance(v := found.get(name), str) and v.strip()), "")


def fenced(text: str, language: str = "") -> str:
    """Return a text as a code block of Markdown, which nothing in it ends."""
    runs = re.findall(r"`{3,}", text)
    fence = "`" * max((len(run) + 1 for run in runs), default=3)
    return f"{fence}{language if language.isalnum() else ''}\n{text}\n{fence}"


def time_s(value: Any) -> float:
    """Return seconds since 1970 of a number, also of milliseconds, or a date; 0.0 of another."""
    if isinstance(value, str):
        try:
            return datetime.datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return 0.0
    return value / 1000 if value > 1e11 else float(value)
