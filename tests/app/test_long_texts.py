"""Long texts: pasted, typed, kept as drafts, sent and shown, as the user meets them (B34)."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication, QPlainTextEdit
from window_samples import WAIT_MS, Model, Opener

from app.chat.file_fold import FileFold
from app.chat.preset_dialog import PresetDialog
from app.chat.question import UserBubble
from app.chat.seen_dialog import SeenDialog
from app.chat.text_block import TextBlock
from app.chat.tool_card import ToolCard
from app.state.conversation import CallState, question
from app.state.preset import Preset
from app.store.chats import ChatStore
from app.widgets.fields import PARAGRAPH_CHARS, SearchField, TextField
from backend.protocol.chat import ToolCall

CONTROL = Qt.KeyboardModifier.ControlModifier
LONG = "a" * 250_000


def paste(field: QPlainTextEdit, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    field.insertFromMimeData(data)


def files(window: Any) -> list[tuple[str, int, int]]:
    """Return the names, kept and missing characters of the attached files."""
    found = window.chat_page.attachments.attachments
    return [(file.name, len(file.text), file.n_char_left_out) for file in found]


def longest(field: Any) -> int:
    """Return the length of the longest paragraph that a field lays out."""
    block, most = field.document().begin(), 0
    while block.isValid():
        most = max(most, block.length() - 1)
        block = block.next()
    return most


@pytest.mark.parametrize(
    ("text", "n_left_out"),
    [
        ("".join(f"line {n} of the code\n" for n in range(20_000)), 0),
        ("x" * 1_000_000, 0),
        ("\u0645\u0631\u062d\u0628\u0627\U0001f600 " * 143_000, 1_000),
    ],
    ids=["20,000 lines", "one line of 1 MB", "Arabic and emoji"],
)
def test_a_long_paste_is_attached_and_can_be_undone(
    qtbot: Any, open_window: Opener, text: str, n_left_out: int
) -> None:
    window = open_window(None)
    field = window.chat.composer.input
    kept = [("Pasted text.txt", len(text) - n_left_out, n_left_out)]
    for _ in range(2):
        paste(field, text)
        assert files(window) == kept and window.draft == "" and "is " in window.notice
        qtbot.keyClick(field, Qt.Key.Key_Z, CONTROL)
        assert files(window) == [] and window.notice == ""
    paste(field, text)
    qtbot.keyClicks(field, "ten letter")
    qtbot.keyClick(field, Qt.Key.Key_Z, CONTROL)
    assert files(window) == kept and window.draft == ""  # Undo took the letters
    paste(field, "a short one")
    assert window.draft == "a short one" and files(window) == kept


def test_what_was_pasted_is_kept_with_the_draft_and_goes_with_it(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path, pasted = model(), "b" * 11_000
    window = open_window(None)
    paste(window.chat.composer.input, pasted)
    window.chat.composer.input.insertPlainText("What is it?")
    window.close()
    again = open_window(path)
    assert files(again) == [("Pasted text.txt", len(pasted), 0)] and again.draft == "What is it?"
    qtbot.waitUntil(again.chat.composer.button.isEnabled, timeout=WAIT_MS)
    again.press("Send")
    again.wait_end()
    assert [file.text for file in again.session.conversation.messages[0].attachments] == [pasted]
    assert files(again) == [] and again.draft == ""
    again.close()
    assert files(open_window(None)) == []


def test_a_start_reads_a_bounded_draft(
    open_window: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.session.attachments.KEPT_CHARS", 2 * len(LONG) + 10)
    window = open_window(None)
    for _ in range(4):
        paste(window.chat.composer.input, LONG)
    assert len(files(window)) == 4
    window.close()
    assert [name for name, *_ in files(open_window(None))] == [
        "Pasted text.txt", "Pasted text 2.txt",
    ]  # fmt: skip


def test_a_kept_draft_that_is_too_long_comes_back_as_a_file(
    open_window: Opener, tmp_path: Path
) -> None:
    store = ChatStore.open(tmp_path / "chats.db")
    store.set_draft(0, LONG)
    store.close()
    for _ in range(2):
        window = open_window(None)
        assert files(window) == [("Pasted text.txt", len(LONG), 0)] and window.draft == ""
        window.close()


def test_a_field_that_is_full_offers_to_attach_its_text(qtbot: Any, open_window: Opener) -> None:
    window = open_window(None)
    field = window.chat.composer.input
    field.setPlainText("a" * (PARAGRAPH_CHARS - 1))
    field.moveCursor(field.textCursor().MoveOperation.End)
    qtbot.keyClicks(field, "bc")
    event = QInputMethodEvent("", [])
    event.setCommitString("d")
    QApplication.sendEvent(field, event)
    assert window.draft.endswith("ab") and len(window.draft) == PARAGRAPH_CHARS
    assert window.notice == "The field is full: it holds 10,000\u00a0characters."
    assert window.choices == ["Attach the text as a file"]
    window.chat.banner.buttons[0].click()
    assert files(window) == [("Pasted text.txt", PARAGRAPH_CHARS, 0)] and window.draft == ""


def test_the_meter_counts_the_field_and_says_what_does_not_fit(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    composer = window.chat.composer
    composer.input.setPlainText("word " * 300)
    meter = composer.meter
    qtbot.waitUntil(lambda: meter.toolTip().startswith("300 of 4,096 tokens"), timeout=WAIT_MS)
    assert meter.isVisible() and not composer.chips.isVisible()
    composer.input.setPlainText("a " * 4_500)
    said = "This message needs 4,500 tokens; the context holds 4,096."
    qtbot.waitUntil(lambda: composer.chips.words.replace("\u00a0", " ") == said, timeout=WAIT_MS)
    assert not composer.button.isEnabled()
    window.press("Change the context")
    composer.input.setPlainText("short")
    qtbot.waitUntil(lambda: not composer.chips.isVisible(), timeout=WAIT_MS)
    assert composer.button.isEnabled() and not meter.isVisible()


def test_a_long_question_is_folded_in_the_transcript(qtbot: Any) -> None:
    bubble = UserBubble(question("begin " + LONG))
    qtbot.addWidget(bubble)
    bubble.show()
    (fold,) = bubble.findChildren(FileFold)
    assert max(map(longest, bubble.findChildren(TextBlock))) < 1000
    fold.button.click()
    blocks = bubble.findChildren(TextBlock)
    assert max(map(longest, blocks)) <= 4000
    assert "230,006 characters more" in blocks[-1].toPlainText()


def test_no_field_lays_out_a_longer_paragraph(qtbot: Any) -> None:
    seen, preset = SeenDialog(LONG), PresetDialog(Preset(system="b" * 30_000), "m", False)
    card, bubble = ToolCard(), UserBubble(question("a"))
    for widget in (seen, preset, card, bubble):
        qtbot.addWidget(widget)
    assert longest(seen.answer.field) == PARAGRAPH_CHARS
    seen.answer.copy.click()
    assert QApplication.clipboard().text() == LONG
    bubble.begin_edit()
    for field in (*preset.findChildren(TextField), *bubble.findChildren(TextField)):
        assert longest(field) <= PARAGRAPH_CHARS
        before = field.toPlainText()
        paste(field, LONG)
        assert field.toPlainText() == before
        field.selectAll()
        paste(field, "in its place")
        assert field.toPlainText() == "in its place"
    card.show_call(ToolCall("1", "write", f'{{"text": "{LONG}"}}'), CallState.ASKED)
    blocks = card.findChildren(TextBlock)
    assert max(map(longest, blocks)) <= 4000
    assert "characters more" in blocks[-1].toPlainText().replace("\u00a0", " ")
    words = SearchField()
    words.setText(LONG)
    assert len(words.text()) == 500
