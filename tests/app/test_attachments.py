"""Files attached to a question: dropped, pasted or picked, shown, sent and kept."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import make_png
from PySide6.QtCore import QMimeData, QPoint, QPointF, QSize, Qt, QUrl
from PySide6.QtGui import QColor, QDragEnterEvent, QDropEvent, QImage
from PySide6.QtWidgets import QApplication, QFileDialog
from window_page import WindowPage
from window_samples import WAIT_MS, Model, Opener

from app.chat.file_fold import FileFold
from app.chat.picture_view import PictureButton, PictureDialog
from app.chat.text_block import TextBlock
from app.state.conversation import Conversation, question
from app.state.engine_state import State
from app.store import exchange
from app.store.chats import ChatStore
from backend.attachments import child
from backend.protocol.attachments import Attachment


def mime(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def drop(window: WindowPage, *paths: Path) -> None:
    drop_data(window, mime(*paths))


def drop_data(window: WindowPage, data: QMimeData) -> None:
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(window, QDragEnterEvent(QPoint(200, 200), copy, data, left, none))
    QApplication.sendEvent(window, QDropEvent(QPointF(200, 200), copy, data, left, none))


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def chips(window: WindowPage) -> list[str]:
    return [name.replace("\u00a0", " ") for name in window.chat.composer.chips.names]


def wait_chips(window: WindowPage, *names: str) -> None:
    window.qtbot.waitUntil(lambda: chips(window) == list(names), timeout=WAIT_MS)


def words(window: WindowPage) -> str:
    text: str = window.chat.composer.chips.words
    return text.replace("\u00a0", " ")


def sent(window: WindowPage) -> Any:
    """Return the messages that the fake engine received last."""
    window.wait_state(State.IDLE)
    return json.loads(window.answer.content)[-1]["content"]


def test_a_dropped_file_is_sent_before_the_question(
    open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(echo=True))
    drop(window, written(tmp_path / "notes.md", "one two three"))
    wait_chips(window, "notes.md, 7 tokens \u00b7 <\u202f1 %".replace("\u202f", " "))
    window.ask("What is it?")
    assert chips(window) == []
    file = {"type": "file", "name": "notes.md", "text": "one two three"}
    assert sent(window) == [file, {"type": "text", "text": "What is it?"}]


def test_files_can_be_pasted_and_picked(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window(model(echo=True))
    first, second = (written(tmp_path / name, "x") for name in ("a.py", "b.txt"))
    QApplication.clipboard().setMimeData(mime(first))
    qtbot.keyClick(window.chat.composer.input, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([str(second)], ""))
    window.press("Attach files")
    qtbot.waitUntil(lambda: "Reading" not in str(chips(window)), timeout=WAIT_MS)
    assert [chip.split(",")[0] for chip in chips(window)] == ["a.py", "b.txt"]
    assert window.draft == ""
    # A question may consist of files only.
    window.ask("")
    assert [part["name"] for part in sent(window)] == ["a.py", "b.txt"]
    assert window.chats.rows()[0].title == "a.py, b.txt"
    QApplication.clipboard().setText("words")
    qtbot.keyClick(window.chat.composer.input, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    assert window.draft == "words" and chips(window) == []


def test_what_cannot_be_attached_says_why(
    open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(echo=True))
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)))
    drop(window, tmp_path / "picture.bin", written(tmp_path / "good.txt", "good"))
    sentence = (
        "picture.bin is neither text, a PDF, an image nor a document that can be read. Save it as "
        "PDF or text."
    )
    window.qtbot.waitUntil(lambda: words(window) == sentence, timeout=WAIT_MS)
    window.qtbot.waitUntil(lambda: "token" in chips(window)[1], timeout=WAIT_MS)
    assert chips(window)[0] == f"picture.bin, {sentence}"
    window.ask("Go.")
    assert [part["type"] for part in sent(window)] == ["file", "text"]


def test_what_does_not_fit_is_said_before_sending(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(echo=True))
    drop(
        window, written(tmp_path / "long.txt", "some words\n" * 4000), written(tmp_path / "b", "b")
    )
    window.chat.composer.input.setPlainText("What is it?")
    said = "The files need 8,009 tokens; the context holds 4,096."
    qtbot.waitUntil(lambda: words(window) == said, timeout=WAIT_MS)
    assert not window.chat.composer.button.isEnabled()
    qtbot.keyClick(window.chat.composer.input, Qt.Key.Key_Return)
    assert window.session.conversation.messages == []
    window.press("Attach only what fits")
    qtbot.waitUntil(lambda: "tokens" in chips(window)[0] and not words(window), timeout=WAIT_MS)
    assert "beginning only" in chips(window)[0] and "beginning" not in chips(window)[1]
    window.press("Send")
    parts = sent(window)
    assert parts[0]["name"] == "long.txt (only its beginning)"
    assert 2000 < len(parts[0]["text"].split()) < 4096
    assert parts[0]["text"].endswith("words\n")
    # The chat has filled most of the context.
    drop(window, written(tmp_path / "more.txt", "some words\n" * 2000))
    said = "With this chat and 4,004 tokens of the file, the context of 4,096 is full."
    qtbot.waitUntil(lambda: words(window) == said, timeout=WAIT_MS)
    window.press("Change the context")
    assert window.controls.strip.isVisible()


def test_without_a_model_a_file_counts_characters(
    open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window()
    drop(window, written(tmp_path / "a.txt", "one two three"))
    wait_chips(window, "a.txt, 13 characters")
    assert not window.chat.composer.button.isEnabled()
    window.open_model(model())
    wait_chips(window, "a.txt, 7 tokens \u00b7 < 1 %")


def test_chips_work_with_the_keyboard(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    drop(window, *(written(tmp_path / name, "x") for name in ("a.txt", "b.txt")))
    qtbot.waitUntil(lambda: "Reading" not in str(chips(window)), timeout=WAIT_MS)
    window.activateWindow()
    window.chat.composer.input.setFocus()

    def focused() -> str:
        return QApplication.focusWidget().accessibleName()

    qtbot.keyClick(window.chat.composer.input, Qt.Key.Key_Tab)
    assert focused() == "Remove a.txt"
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
    assert focused() == "Remove b.txt"
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Backtab)
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Delete)
    assert [chip.split(",")[0] for chip in chips(window)] == ["b.txt"]
    assert focused() == "Remove b.txt"
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Space)
    assert chips(window) == [] and focused() == "Message"


def test_a_sent_file_is_folded_in_its_question_and_kept(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    path = model(echo=True)
    window = open_window(path)
    drop(window, written(tmp_path / "a & b.txt", "inside the file"))
    qtbot.waitUntil(lambda: "token" in str(chips(window)), timeout=WAIT_MS)
    window.ask("What is it?")
    window.wait_state(State.IDLE)
    window.session.edit(0, "What else?")
    assert [part.get("text") for part in sent(window)] == ["inside the file", "What else?"]
    window.session.regenerate(1)
    assert len(sent(window)) == 2
    chat_id = window.chats.open_id
    window.close()
    again = open_window(path)
    again.open_chat(chat_id)
    qtbot.waitUntil(lambda: again.chat.transcript.is_whole, timeout=WAIT_MS)
    (fold,) = again.chat.transcript.findChildren(FileFold)
    assert fold.button.text() == "\u25b8 a && b.txt \u00b7 15\u00a0characters"
    qtbot.waitUntil(fold.isVisible)
    shown = [b for b in fold.findChildren(TextBlock) if b.isVisible()]
    assert shown == []
    fold.button.click()
    (block,) = fold.findChildren(TextBlock)
    assert block.isVisible() and block.toPlainText() == "inside the file"
    fold.button.click()
    assert not block.isVisible()


def test_a_long_name_is_cut_in_a_narrow_window(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    drop(window, written(tmp_path / ("many words " * 18 + ".txt"), "inside"))
    qtbot.waitUntil(lambda: "token" in str(chips(window)), timeout=WAIT_MS)
    window.ask("What is it?")
    window.wait_state(State.IDLE)
    window.resize(520, 700)
    transcript = window.chat.transcript
    (fold,) = transcript.findChildren(FileFold)
    qtbot.waitUntil(lambda: transcript.widget().width() <= transcript.viewport().width())
    assert "\u2026" in fold.button.text() and fold.button.text().endswith("6\u00a0characters")


def test_a_full_chat_does_not_blame_a_file_that_is_still_read(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    window.ask("word " * 5000)
    window.wait_state(State.IDLE)
    seen: list[str] = []
    window.chat_page.attachments.changed.connect(lambda: seen.append(words(window)))
    drop(window, written(tmp_path / "a.txt", "x"))
    qtbot.waitUntil(lambda: "token" in str(chips(window)), timeout=WAIT_MS)
    assert "0 tokens of the file" not in str(seen) and "tokens of the file" in seen[-1]


def test_a_question_that_fails_comes_back_with_its_files(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(context_error="The engine failed."))
    drop(window, written(tmp_path / "a.txt", "x"))
    qtbot.waitUntil(lambda: "token" in str(chips(window)), timeout=WAIT_MS)
    window.ask("What is it?")
    window.wait_notice("The engine failed.")
    assert window.draft == "What is it?"
    assert [chip.split(",")[0] for chip in chips(window)] == ["a.txt"]


def test_a_picture_is_sent_to_a_model_that_sees(
    open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(echo=True, chat={"images": True}))
    data = make_png(np.zeros((2, 3, 3), np.uint8))
    (tmp_path / "a.png").write_bytes(data)
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(9))
    (tmp_path / "c.webp").write_bytes(b"RIFF\0\0\0\0WEBPVP8 ")
    (tmp_path / "d.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(9))
    drop(window, *(tmp_path / name for name in ("a.png", "b.jpg", "c.webp", "d.heic")))
    said = (
        "b.jpg is a damaged image.\nc.webp is a damaged image.\nd.heic is a HEIC image, which "
        "cannot be read here. Save it as PNG or JPEG, and attach that."
    )
    window.qtbot.waitUntil(lambda: words(window) == said, timeout=WAIT_MS)
    window.qtbot.waitUntil(lambda: "16 tokens" in chips(window)[0], timeout=WAIT_MS)
    window.ask("What is it?")
    image = {"type": "image", "data": base64.b64encode(data).decode()}
    assert sent(window) == [image, {"type": "text", "text": "What is it?"}]
    fold = window.chat.transcript.findChildren(FileFold)[0]
    assert "a.png \u00b7 image" in fold.button.text() and not fold.button.isCheckable()


def copied(**contents: Any) -> QMimeData:
    """Return what a program copies: text, html, png (bytes), or an image of Qt."""
    data = QMimeData()
    if "text" in contents:
        data.setText(contents["text"])
    if "html" in contents:
        data.setHtml(contents["html"])
    if "png" in contents:
        data.setData("image/png", contents["png"])
    if "image" in contents:
        data.setImageData(contents["image"])
    return data


def test_a_picture_that_was_copied_or_dragged_is_attached(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    pixels = np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8)
    png, image = make_png(pixels), QImage(2, 1, QImage.Format.Format_RGB32)
    image.setPixelColor(0, 0, QColor(255, 0, 0))
    image.setPixelColor(1, 0, QColor(0, 0, 255))
    window = open_window(model(echo=True, chat={"images": True}))
    field, page = window.chat.composer.input, window.chat_page
    of_browser = {"html": '<img src="https://e.invalid/a.png">', "text": "https://e.invalid/a.png"}
    for contents in ({"png": png}, {"image": image}, {"png": png, **of_browser}):
        field.insertFromMimeData(copied(**contents))
    drop_data(window, copied(png=png))
    qtbot.waitUntil(lambda: len(page.attachments.attachments) == 4, timeout=WAIT_MS)
    names = ["Pasted image", "Pasted image 2", "Pasted image 3", "Pasted image 4"]
    assert [file.name for file in page.attachments.attachments] == names
    for file in page.attachments.attachments:
        shown = child.pictures.decoded(base64.b64decode(file.data), "a")
        assert shown.rgb == pixels.tobytes() and file.data.startswith("iVBOR")
    qtbot.keyClick(field, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert len(page.attachments.files) == 3 and window.draft == ""


def test_a_picture_has_a_preview_and_is_shown_large(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path, png = model(chat={"images": True}), make_png(np.full((600, 900, 3), 200, np.uint8))
    window = open_window(path)
    window.chat.composer.input.insertFromMimeData(copied(png=png))

    def previews(inside: Any) -> list[PictureButton]:
        found = [b for b in inside.findChildren(PictureButton) if b.isVisible() and b.is_shown]
        return found if len(found) == 1 else []

    chips = window.chat.composer.chips
    qtbot.waitUntil(lambda: bool(previews(chips)), timeout=WAIT_MS)
    (button,) = previews(chips)
    assert button.height() == 40 and button.accessibleName() == "Show Pasted image large"
    window.ask("What is it?")
    window.wait_end()
    chat_id = window.chats.open_id
    window.close()
    again = open_window(path)
    again.open_chat(chat_id)
    qtbot.waitUntil(lambda: bool(previews(again.chat.transcript)), timeout=WAIT_MS)
    (button,) = previews(again.chat.transcript)
    assert (button.width(), button.height()) == (300, 200)
    qtbot.waitUntil(lambda: button.parentWidget().width() >= button.width())
    qtbot.keyClick(button, Qt.Key.Key_Space)
    (dialog,) = again.findChildren(PictureDialog)
    qtbot.waitUntil(lambda: dialog.canvas.pixmap.size() == QSize(900, 600), timeout=WAIT_MS)
    assert dialog.isVisible() and abs(dialog.width() * 2 - dialog.height() * 3) < 5
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_what_is_no_picture_is_pasted_as_text_or_named(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(None)
    field, image = window.chat.composer.input, QImage(2, 2, QImage.Format.Format_RGB32)
    image.fill(QColor("red"))
    for contents, shown in (
        ({"image": image, "text": "a\tb\n1\t2", "html": "<table></table>"}, "a\tb\n1\t2"),
        ({"text": "https://e.invalid/a.png"}, "https://e.invalid/a.png"),
        ({"html": "<p>only <b>HTML</b></p>"}, "only HTML"),
    ):
        field.clear()
        field.insertFromMimeData(copied(**contents))
        assert window.draft == shown and window.chat_page.attachments.files == []
    assert window.notice == ""
    sound = QMimeData()
    sound.setData("audio/wav", b"RIFF")
    field.insertFromMimeData(sound)
    assert window.notice == "The clipboard holds neither text, nor an image, nor files."
    remote = QMimeData()
    remote.setUrls([QUrl("https://e.invalid/a.png")])
    drop_data(window, remote)
    assert "Copy the image there" in window.notice


def test_a_model_that_cannot_see_is_sent_no_picture(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model(echo=True))
    (tmp_path / "a.png").write_bytes(make_png(np.zeros((2, 3, 3), np.uint8)))
    drop(window, tmp_path / "a.png")
    wait_chips(window, "a.png, cannot be seen")
    assert words(window) == "The loaded model cannot see images."
    window.chat.composer.input.setPlainText("What is it?")
    assert not window.chat.composer.button.isEnabled()
    qtbot.keyClick(window.chat.composer.input, Qt.Key.Key_Return)
    assert window.session.conversation.messages == []
    window.press("Remove a.png")
    window.press("Send")
    assert sent(window) == "What is it?"


def test_more_pictures_than_fit_into_one_message_are_one_sentence(
    open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window(model(echo=True, chat={"images": True}))
    monkeypatch.setattr("backend.protocol.messages.MAX_BYTES", 10_000)
    pictures = [Attachment(name, "image", "", data="A" * 6_000) for name in ("a.png", "b.png")]
    window.session.send("What is it?", pictures)
    window.wait_notice("The chat and its images are larger than")
    assert window.session.engine.state is State.IDLE
    assert window.draft == "What is it?" and chips(window)[0].startswith("a.png")


@pytest.mark.parametrize("form", ["json", "md"])
def test_files_are_exported_and_imported(tmp_path: Path, form: str) -> None:
    files = [
        Attachment("a</summary>.md", "markdown", "# A\n</details>\n\n```\ncode\n```", 0, 7),
        Attachment("b.pdf", "pdf", "  pages ", 3),
        Attachment("c.png", "image", "", data="AAAA"),
    ]
    asked = question("What is it?", files)
    store = ChatStore.open(tmp_path / "chats.db")
    chat_id = store.new_chat("A chat")
    store.add(chat_id, 0, asked)
    text = (
        exchange.to_json(store, [chat_id])
        if form == "json"
        else exchange.to_markdown(Conversation([asked], title="A chat"))
    )
    (found,) = exchange.import_file(store, written(tmp_path / "chat", text))
    loaded = store.load(found)
    assert loaded is not None and loaded.messages[0].attachments == files
    assert loaded.messages[0].content == "What is it?"
    store.close()
