"""The chats of other programs: their branches, times, models, thoughts and pictures."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import make_png
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication
from window_samples import Opener

from app.store import exchange, foreign
from app.store.chats import ChatStore
from app.store.exchange import ImportRefused, Progress, import_chats

PNG = make_png(np.zeros((4, 4, 3), np.uint8))


def gpt(key: str, parent: str, role: str, said: Any, **more: Any) -> dict[str, Any]:
    """Return a node of ChatGPT's tree. said: a text, or a content."""
    content = said if isinstance(said, dict) else {"content_type": "text", "parts": [said]}
    about = {"model_slug": "gpt-9"} if role == "assistant" else {}
    message = {"id": key, "author": {"role": role}, "content": content, "create_time": 1.7e9,
               "metadata": about, "recipient": "all", **more}  # fmt: skip
    return {"id": key, "message": message, "parent": parent, "children": []}


def chatgpt() -> dict[str, Any]:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_abc"}
    asked = {"content_type": "multimodal_text", "parts": [picture, "What is it?"]}
    thought = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "Hm."}]}
    code = {"content_type": "code", "language": "python", "text": "print(1)"}
    ran = {"content_type": "execution_output", "text": "1"}
    nodes = [
        {"id": "root", "message": None, "parent": None, "children": []},
        gpt("sys", "root", "system", "You are."),
        gpt("q", "sys", "user", asked), gpt("t", "q", "assistant", thought),
        gpt("c", "t", "assistant", code, recipient="python"), gpt("r", "c", "tool", ran),
        gpt("a", "r", "assistant", "A cat."), gpt("q2", "a", "user", "And now?"),
        gpt("q3", "a", "user", "Or then?"), gpt("a3", "q3", "assistant", "Later."),
    ]  # fmt: skip
    return {"title": "A cat", "create_time": 1.69e9, "update_time": 1.71e9,
            "mapping": {node["id"]: node for node in nodes}, "current_node": "a3"}  # fmt: skip


CLAUDE = {
    "uuid": "u", "name": "Tea", "created_at": "2024-05-01T10:00:00Z", "chat_messages": [
        {"uuid": "1", "sender": "human", "text": "Hot?", "created_at": "2024-05-01T10:00:00Z",
         "parent_message_uuid": "00000000-0000-4000-8000-000000000000",
         "attachments": [{"file_name": "a.txt", "extracted_content": "leaf"}]},
        {"uuid": "2", "sender": "assistant", "parent_message_uuid": "1", "content": [
            {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}]},
        {"uuid": "3", "sender": "assistant", "parent_message_uuid": "1",
         "content": [{"type": "text", "text": "No."}]},
    ],
}  # fmt: skip
LM_STUDIO = {
    "name": "Tea", "createdAt": 1700000000000, "messages": [
        {"versions": [{"type": "singleStep", "role": "user",
                       "content": [{"type": "text", "text": "Hot?"}]}], "currentlySelected": 0},
        {"currentlySelected": 1, "versions": [
            {"type": "multiStep", "role": "assistant", "senderInfo": {"senderName": "qwen"},
             "steps": [{"type": "contentBlock", "content": [{"type": "text", "text": word}]}]}
            for word in ("No.", "Yes.")]},
    ],
}  # fmt: skip
OPEN_WEBUI = {
    "title": "Tea", "created_at": 1700000000, "chat": {"history": {"currentId": "3", "messages": {
        "1": {"id": "1", "parentId": None, "role": "user", "content": "Hot?", "timestamp": 1.7e9},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": "No.", "model": "m"},
        "3": {"id": "3", "parentId": "1", "role": "assistant", "model": "m", "content":
              '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> Hm.\n'
              "</details>\nYes."},
    }}},
}  # fmt: skip


def shown(store: ChatStore, chat_id: int) -> list[tuple[str, str, str]]:
    conversation = store.load(chat_id)
    assert conversation is not None
    return [(m.role, m.reasoning, m.content) for m in conversation.messages]


@pytest.fixture
def store(tmp_path: Path) -> ChatStore:
    return ChatStore.open(tmp_path / "chats.db")


@pytest.mark.parametrize("kind", ["file", "folder", "archive"])
def test_chatgpt(store: ChatStore, tmp_path: Path, kind: str) -> None:
    """What leads to an answer is one message; hidden and unreadable parts lose no chat."""
    text = json.dumps([chatgpt(), {"mapping": {"x": 3}}, 7])
    files = {"conversations.json": text.encode(), "file_abc-cat.png": PNG, "user.json": b"{}"}
    folder = tmp_path / "export"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    path = folder / "conversations.json" if kind == "file" else folder
    if kind == "archive":
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in files:
                archive.write(folder / name, name)
    assert foreign.is_export(path)
    imported = import_chats(store, path)
    assert (len(imported.ids), imported.n_bad) == (1, 2)
    said = "```python\nprint(1)\n```\n\n```\n1\n```\n\nA cat."
    assert shown(store, imported.ids[0]) == [
        ("user", "", "What is it?"), ("assistant", "Hm.", said), ("user", "", "Or then?"),
        ("assistant", "", "Later."),
    ]  # fmt: skip
    conversation = store.load(imported.ids[0])
    assert conversation is not None and conversation.title == "A cat"
    assert not conversation.slides, "a chat of another program does not slide"
    question, answer, other, _ = conversation.messages
    assert [file.name for file in question.attachments] == ["file_abc-cat.png"]
    assert other.branch == (2, 2) and answer.details["model"] == "gpt-9"
    (row,) = store.connection.execute("SELECT created_s, changed_s FROM chat")
    assert tuple(row) == (1.69e9, 1.71e9)


@pytest.mark.parametrize(
    ("name", "data"),
    [("conversations.json", [CLAUDE]), ("tea.conversation.json", LM_STUDIO),
     ("chat-export-17.json", [OPEN_WEBUI])],
    ids=["Claude", "LM Studio", "Open WebUI"],
)  # fmt: skip
def test_other_programs(store: ChatStore, tmp_path: Path, name: str, data: Any) -> None:
    (tmp_path / name).write_text(json.dumps(data))
    assert foreign.is_export(tmp_path / name)
    (chat_id,) = import_chats(store, tmp_path / name).ids
    conversation = store.load(chat_id)
    assert conversation is not None and conversation.title == "Tea"
    question, answer = conversation.messages
    assert question.content.endswith("Hot?") and answer.branch == (2, 2)
    wanted = ("No.", "") if name == "conversations.json" else ("Yes.", "")
    assert (answer.content, "") == wanted
    store.switch(chat_id, answer.id, -1)
    conversation = store.load(chat_id)
    assert conversation is not None
    thoughts = {answer.reasoning, conversation.messages[1].reasoning}
    assert thoughts == ({""} if data is LM_STUDIO else {"", "Hm."})


def test_jan(store: ChatStore, tmp_path: Path) -> None:
    folder = tmp_path / "threads" / "1"
    folder.mkdir(parents=True)
    (folder / "thread.json").write_text(json.dumps({"id": "1", "title": "Tea", "created": 1.7e9}))
    lines = [
        {"id": str(n), "role": role, "created_at": 1.7e12, "content": [
            {"type": "text", "text": {"value": said}}]}
        for n, (role, said) in enumerate(
            (("user", "Hot?"), ("assistant", "<think>Hm.</think>Yes."))
        )
    ]  # fmt: skip
    (folder / "messages.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert foreign.is_export(tmp_path)
    (chat_id,) = import_chats(store, tmp_path).ids
    assert shown(store, chat_id) == [("user", "", "Hot?"), ("assistant", "Hm.", "Yes.")]


def test_a_long_list_is_read_in_pieces() -> None:
    """Items of all lengths around the size of a piece, in letters of several bytes."""
    chats = [{"mapping": {}, "title": "\u00e4\u20ac" * n} for n in (1, 0, 400_000, 3, 700_000)]
    text = json.dumps(chats, ensure_ascii=False).encode()
    assert list(foreign.items(io.BytesIO(b"\xef\xbb\xbf\n" + text + b"\n"))) == chats
    assert list(foreign.items(io.BytesIO(b"[]"))) == []
    for cut in (text[:-2], b"[1, 2", b'{"a": '):
        with pytest.raises(ValueError, match="JSON"):
            list(foreign.items(io.BytesIO(cut)))


def test_an_export_that_breaks_off_leaves_nothing(store: ChatStore, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt(), chatgpt()])[:-40])
    with pytest.raises(ImportRefused, match="it is damaged, or a part is missing"):
        import_chats(store, path)
    assert store.chats() == []


def test_an_export_is_dropped_on_the_window(open_window: Opener, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt(), {"mapping": {"x": 3}}]))
    window = open_window()
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(window, QDragEnterEvent(QPoint(9, 9), copy, data, left, none))
    QApplication.sendEvent(window, QDropEvent(QPointF(9, 9), copy, data, left, none))
    sentence = "1\u00a0chat imported from conversations.json. 1\u00a0chat could not be read."
    sentence += " Not in the export: 1 picture, file or voice; the text marks where."
    window.wait_notice(sentence)
    shown = window.session.conversation
    assert shown.title == "A cat"
    window.chat.composer.input.setPlainText("While I write,")
    window.exchange.import_file(path)
    window.exchange.export(0, tmp_path / "all.json")  # all chats, one thing after the other
    window.wait_notice("2\u00a0chats written to all.json.")
    assert window.session.conversation is shown and window.draft == "While I write,"
    assert len(import_chats(window.chats.store, tmp_path / "all.json").ids) == 2


def test_an_import_leaves_the_window_its_turns_and_stops_after_a_chat(
    store: ChatStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PIECE_CHARS", 5)
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt()] * 9))

    class Writing(Progress):
        """A person writes after each chat, and stops the import after the third."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "n_chat" and value:
                assert {row.title for row in store.chats()} <= {"Mine"}, "none is shown yet"
                store.new_chat("Mine")
                self.is_stopped = value == 3

    progress = Writing()
    with store.for_thread() as own:
        imported = import_chats(own, path, progress)
    assert 0 < progress.share <= 1
    titles = [row.title for row in store.chats()]
    assert sorted(titles) == ["A cat"] * 3 + ["Mine"] * 3
    assert all([said for *_, said in shown(store, i)][-1] == "Later." for i in imported.ids)
    assert len(store.search("later")) == 3

    class Broken(Progress):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if value == 3:
                raise OSError("the drive is gone")

    with pytest.raises(ImportRefused):
        import_chats(store, path, Broken())
    assert len(store.chats()) == 6 and len(store.arriving()) == 2
    store.remove_arriving()
    assert len(store.chats()) == 6 and store.arriving() == []
