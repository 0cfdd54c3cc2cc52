"""What the exports of other programs hold beside plain text: it comes, or its place is marked.

The forms are those that public importers read, among them ChatGPT's of 2026 and Claude's blocks.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import make_png
from PySide6.QtCore import QBuffer, QByteArray
from PySide6.QtGui import QImage

from app.store.chats import ChatStore
from app.store.exchange import import_chats

PNG = make_png(np.zeros((4, 4, 3), np.uint8))
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
CITE = "\ue200cite\ue202turn0search1\ue201"


def webp() -> bytes:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    assert QImage.fromData(PNG).save(buffer, "WEBP")  # type: ignore[call-overload]
    return data.data()


def chatgpt(role: str, content: Any, about: Any = None, recipient: str = "all") -> Any:
    """Return a chat with one message before the one in question."""
    messages = {"u": ("user", {"content_type": "text", "parts": ["Q"]}, {}, "all"),
                "m": (role, content, about or {}, recipient)}  # fmt: skip
    mapping = {
        key: {"id": key, "parent": "u" if key == "m" else None, "children": [], "message": {
            "author": {"role": of}, "content": said, "metadata": of_it, "recipient": to}}
        for key, (of, said, of_it, to) in messages.items()
    }  # fmt: skip
    return [{"title": "T", "mapping": mapping, "current_node": "m", "atlas_mode_enabled": None}]


def claude(*parts: Any, **more: Any) -> Any:
    said = {"uuid": "m", "sender": "assistant", "text": "", "content": list(parts), **more}
    asked = {"uuid": "u", "sender": "human", "text": "Q", "content": [], "attachments": []}
    return [{"uuid": "c", "name": "T", "chat_messages": [asked, said], "summary": ""}]


def lm_studio(*parts: Any) -> Any:
    steps = [{"type": "contentBlock", "content": [part]} for part in parts]
    steps.append({"type": "debugInfoBlock", "debugInfo": "x"})
    asked = {"role": "user", "content": [{"type": "text", "text": "Q"}]}
    versions = [asked, {"role": "assistant", "type": "multiStep", "steps": steps}]
    messages = [{"versions": [version], "currentlySelected": 0} for version in versions]
    return {"name": "T", "messages": messages, "plugins": [], "usePerChatPredictionConfig": True}


def open_webui(content: Any, *files: Any) -> Any:
    messages = {"u": {"id": "u", "parentId": None, "role": "user", "content": "Q"},
                "m": {"id": "m", "parentId": "u", "role": "assistant", "content": content,
                      "files": list(files), "statusHistory": []}}  # fmt: skip
    return [{"title": "T", "chat": {"history": {"messages": messages, "currentId": "m"}}}]


def parts(*said: Any) -> Any:
    return {"content_type": "multimodal_text", "parts": list(said)}


VOICE = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file_v"}
LIVE = {"content_type": "real_time_user_audio_video_asset_pointer", "audio_asset_pointer": VOICE}
WORDS = {"content_type": "audio_transcription", "text": "Hello", "direction": "in"}
PICTURE = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_a", "dalle": {}}
CANVAS = json.dumps({"name": "Plan", "type": "code/python", "content": "x = 1"})
FILES = {"attachments": [{"name": "a.pdf", "mime_type": "application/pdf"},
                         {"name": "b.png", "mime_type": "image/png"}]}  # fmt: skip
CITED = {"content_references": [{"matched_text": CITE, "alt": " ([S](https://s))"}]}
DRAWN = {"aggregate_result": {"messages": [{"image_url": "file-service://file-b"}]}}
RAN = {"content_type": "execution_output", "text": "1"}

CASES: dict[str, tuple[Any, str, int, int]] = {
    "voice": (chatgpt("user", parts(WORDS, VOICE)), "Hello", 0, 0),
    "voice without words": (chatgpt("user", parts(LIVE)), "[voice]", 0, 1),
    "picture": (chatgpt("user", parts(PICTURE, "Look")), "Look", 1, 0),
    "no picture": (chatgpt("user", parts({"asset_pointer": "x://gone"})), "[x://gone]", 0, 1),
    "file": (chatgpt("user", parts("Read"), FILES), "[a.pdf]\n\nRead", 0, 1),
    "canvas": (chatgpt("assistant", parts(CANVAS), {}, "canmore.create_textdoc"),
               "**Plan**\n\n```python\nx = 1\n```", 0, 0),
    "code": (chatgpt("assistant", {"content_type": "code", "language": "unknown", "text": "q()"},
                     {}, "web"), "```\nq()\n```", 0, 0),
    "citation": (chatgpt("assistant", parts(f"So{CITE}.\ue200navlist\ue202x\ue201"), CITED),
                 "So ([S](https://s)).", 0, 0),
    "drawn": (chatgpt("tool", RAN, DRAWN), "```\n1\n```", 1, 0),
    "unknown": (chatgpt("user", parts("A", {"content_type": "hologram"})), "[hologram]\n\nA", 0, 1),
    "artifact": (claude({"type": "text", "text": "Here:"},
                        {"type": "tool_use", "name": "artifacts", "input": {
                            "title": "Plan", "language": "python", "content": "x = 1"}},
                        {"type": "tool_result", "content": [{"type": "text", "text": "OK"}]},
                        {"type": "token_budget"}, {"type": "text", "text": "Done."}),
                 "Here:\n\n**Plan**\n\n```python\nx = 1\n```\n\nDone.", 0, 0),
    "search": (claude({"type": "tool_use", "name": "web_search", "input": {"query": "x"}},
                      {"type": "tool_result", "content": [{"type": "text", "text": "y"},
                                                          {"type": "image"}]}),
               '[image]\n\n**web_search**\n\n```json\n{\n "query": "x"\n}\n```\n\n```\ny\n```',
               0, 1),
    "block": (claude({"type": "hologram", "x": 1}, text="A"), "[hologram]\n\nA", 0, 1),
    "empty attachment": (claude(text="A", attachments=[{"file_name": "a.bin"}]), "[a.bin]\n\nA",
                         0, 1),
    "named picture": (claude(text="A", files=[{"file_name": "w.webp"}]), "A", 1, 0),
    "call": (lm_studio({"type": "text", "text": "I look."},
                       {"type": "toolCallRequest", "name": "look", "parameters": {"a": 1}},
                       {"type": "toolCallResult", "content": "[]"}),
             'I look.\n\n**look**\n\n```json\n{\n "a": 1\n}\n```\n\n```\n[]\n```', 0, 0),
    "identifier": (lm_studio({"type": "file", "fileIdentifier": "1 - a.png"}), "[1 - a.png]", 0, 1),
    "data": (open_webui("A", {"type": "image", "url": URL}), "A", 1, 0),
    "collection": (open_webui("A", {"type": "collection", "name": "Docs"}), "[Docs]\n\nA", 0, 1),
    "parts": (open_webui([{"type": "text", "text": "A"},
                          {"type": "image_url", "image_url": {"url": URL}}]), "A", 1, 0),
}  # fmt: skip


OLD_CITE = "\u301012\u2020source\u3011"
OLD_CITED = {"content_references": [{"matched_text": OLD_CITE, "alt": " (S)"}]}
QUOTE = {"content_type": "tether_quote", "title": "T", "url": "https://t", "text": "So."}
SHOT = {"content_type": "computer_output", "screenshot": {"asset_pointer": "x://file_a"}}
FOLD = (
    '<details type="reasoning" done="true" duration="2">\n<summary>Thought</summary>\n'
    '&gt; Hm &amp; so\n</details>\nI look.\n<details type="tool_calls" done="true" name="look" '
    'arguments="{&quot;a&quot;: 1}" result="[2]">\n<summary>Tool</summary>\n</details>\n'
    '<details type="reasoning">\nMore.\n</details>\nDone.'
)
LOOK = '**look**\n\n```json\n{"a": 1}\n```\n\n```\n[2]\n```'
OUTPUT = [
    {"type": "reasoning", "summary": [], "content": [{"type": "output_text", "text": "Hm."}]},
    {"type": "function_call", "name": "look", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "output": [{"type": "input_text", "text": "[2]"}]},
    {"type": "message", "content": [{"type": "output_text", "text": "Done."}]},
]
DOCUMENT = {"type": "file", "name": "a.md", "file": {"data": {"content": "leaf"}}}


def plain(**said: Any) -> Any:
    return {"title": "T", "messages": [{"role": "user", "content": "Q"},
                                       {"role": "assistant", **said}]}  # fmt: skip


def sourced(text: str) -> Any:
    data = open_webui(text)
    message = data[0]["chat"]["history"]["messages"]["m"]
    message["sources"] = [{"source": {"name": "Tea.pdf"}}, {"source": None}]
    return data


def with_output() -> Any:
    data = open_webui("")
    data[0]["chat"]["history"]["messages"]["m"]["output"] = OUTPUT
    return data


VARIANTS: dict[str, tuple[Any, str, str]] = {
    "texts": (chatgpt("assistant", parts("A", "B")), "", "A\nB"),
    "code for all": (chatgpt("assistant", {"content_type": "code", "text": "x"}), "",
                     "```\nx\n```"),
    "thoughts": (chatgpt("assistant", {"content_type": "thoughts", "parts": ["Hm."]}), "Hm.", ""),
    "summaries": (chatgpt("assistant", {"content_type": "thoughts", "thoughts": [
        {"summary": "Hm.", "content": ""}]}), "Hm.", ""),
    "quotation": (chatgpt("tool", QUOTE), "", "```\nT\nhttps://t\nSo.\n```"),
    "screen": (chatgpt("tool", SHOT), "", ""),
    "app": (chatgpt("assistant", {"content_type": "hologram"}), "", "[hologram]"),
    "old citation": (chatgpt("assistant", parts(f"So{OLD_CITE}, \u30103:1\u2020L1-L2\u3011."),
                             OLD_CITED), "", "So (S), ."),
    "marked words": (chatgpt("assistant", parts("\ue203So\ue204.")), "", "So."),
    "page": (chatgpt("tool", parts({"content_type": "tether_browsing_display", "result": "R"})),
             "", "```\nR\n```"),
    "result text": (claude({"type": "tool_result", "content": "y"}), "", "```\ny\n```"),
    "knowledge": (claude({"type": "tool_result", "content": [
        {"type": "knowledge", "title": "T", "url": "https://t"}]}), "",
        "```\nT\nhttps://t\n```"),
    "written file": (claude({"type": "tool_use", "name": "create_file", "input": {
        "path": "a.py", "file_text": "x = 1"}}), "", "**create_file**\n\n```\nx = 1\n```"),
    "short thought": (claude({"type": "thinking", "thinking": "", "summaries": [
        {"summary": "Hm."}]}, {"type": "flag"}, {"type": "text", "text": "A"}), "Hm.", "A"),
    "block of an app": (claude(text="A\n```\nThis block is not supported on your current device "
                                    "yet.\n```"), "", "A"),
    "folds": (open_webui(FOLD), "Hm & so\n\nMore.", f"I look.\n{LOOK}\n\nDone."),
    "program": (open_webui('<details type="code_interpreter" output="1">\n<summary>x</summary>\n'
                           "```python\nx\n```\n</details>\nA"), "",
                "```python\nx\n```\n\n```\n1\n```\n\nA"),
    "output": (with_output(), "Hm.", f"{LOOK}\n\nDone."),
    "sources": (sourced("So [1]."), "", "So [1].\n\n[1]: Tea.pdf"),
    "document": (open_webui("A", DOCUMENT), "", "a.md\n```\nleaf\n```\n\nA"),
    "tags": (lm_studio({"type": "text", "text": "<think>\nHm.\n</think>\n\nA"}), "Hm.", "A"),
    "closing tag": (open_webui("Hm.</think>A"), "Hm.", "A"),
    "plain": (plain(content="<think>Hm.</think>A"), "Hm.", "A"),
    "plain thought": (plain(content="A", reasoning_content="Hm."), "Hm.", "A"),
    "reasoning": (plain(content=[{"type": "reasoning", "text": {"value": "Hm."}},
                                 {"type": "text", "text": {"value": "A"}}]), "Hm.", "A"),
    "tool call": (plain(content=[{"type": "tool_call", "tool_name": "look", "input": [],
                                  "output": "y"}]), "",
                  "**look**\n\n```json\n{}\n```\n\n```\ny\n```"),
    "calls": (plain(content="A", tool_calls=[{"function": {
        "name": "look", "arguments": '{"a": 1}'}}]), "",
        'A\n\n**look**\n\n```json\n{"a": 1}\n```'),
}  # fmt: skip
"""What importers of each form handle, with the thought and the text that come of it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("export")
    for name, data in (("file_a.dat", PNG), ("file-b-plot.png", PNG), ("w.webp", webp()),
                       ("file_ab.png", b"no picture")):  # fmt: skip
        (made / name).write_bytes(data)
    return made


@pytest.fixture(scope="module")
def store(folder: Path) -> ChatStore:
    return ChatStore.open(folder / "chats.db")


@pytest.mark.parametrize("case", CASES)
def test_what_comes_and_what_does_not(store: ChatStore, folder: Path, case: str) -> None:
    data, text, n_picture, n_lost = CASES[case]
    path = folder / "chat.json"
    path.write_text(json.dumps(data))
    imported = import_chats(store, path)
    (chat_id,) = imported.ids
    conversation = store.load(chat_id)
    assert conversation is not None and imported.n_bad == 0
    _, message = conversation.messages
    assert (message.content, len(message.attachments), imported.n_lost) == (text, n_picture, n_lost)
    assert all(file.name.endswith((".png", ".webp")) or file.data for file in message.attachments)


@pytest.mark.parametrize("case", VARIANTS)
def test_variants_over_the_years(store: ChatStore, folder: Path, case: str) -> None:
    data, thought, said = VARIANTS[case]
    path = folder / "chat.json"
    path.write_text(json.dumps(data))
    imported = import_chats(store, path)
    conversation = store.load(imported.ids[0])
    assert conversation is not None and imported.n_bad == 0
    message = conversation.messages[1]
    assert (message.reasoning, message.content) == (thought, said)
    assert bool(message.attachments) == (case == "screen")


def test_a_picture_of_a_step_comes_with_the_answer(store: ChatStore, folder: Path) -> None:
    """A picture that a tool draws lies between two messages of one answer."""
    (chat,) = chatgpt("assistant", parts('{"prompt": "a cat"}'), {}, "dalle.text2im")
    for key, before, role, said in (("d", "m", "tool", parts(PICTURE)),
                                    ("e", "d", "assistant", parts("Here."))):  # fmt: skip
        message = {"author": {"role": role}, "content": said, "recipient": "all"}
        chat["mapping"][key] = {"parent": before, "message": message}
    (folder / "chat.json").write_text(json.dumps([chat | {"current_node": "e"}]))
    (chat_id,) = import_chats(store, folder / "chat.json").ids
    conversation = store.load(chat_id)
    assert conversation is not None
    answer = conversation.messages[1]
    assert answer.content.endswith("Here.") and [f.kind for f in answer.attachments] == ["image"]


@pytest.mark.parametrize("place", ["", "t", "threads/t", "data/threads/t"])
def test_threads_of_jan(store: ChatStore, tmp_path: Path, place: str) -> None:
    """The folder of all, or of one; a damaged line loses one message; times give the order."""
    thread = tmp_path / place
    thread.mkdir(parents=True, exist_ok=True)
    (thread / "thread.json").write_text(json.dumps({"id": "t", "metadata": {"title": "Tea"}}))
    lines = [{"role": "assistant", "content": "Yes.", "created_at": 1700000002000},
             {"role": "user", "content": "Hot?", "created_at": 1700000001000}]  # fmt: skip
    written = "\n".join(map(json.dumps, lines))
    (thread / "messages.jsonl").write_text(f"{written}\n\n" + ("{" if place == "t" else ""))
    imported = import_chats(store, tmp_path)
    conversation = store.load(imported.ids[0])
    assert conversation is not None and conversation.title == "Tea"
    said = [m.content for m in conversation.messages]
    assert said == ["Hot?", "[message]\n\nYes." if place == "t" else "Yes."]
    assert imported.n_lost == (place == "t")
