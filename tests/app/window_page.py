"""The window as a user has it: what can be asked, pressed and read, without the widgets' tree."""

from typing import Any

from PySide6.QtWidgets import QAbstractButton
from window_samples import WAIT_MS

from app.chat.answer import AnswerView
from app.chat.text_block import TextBlock
from app.state.conversation import Message
from app.state.engine_state import State
from app.window.main_window import MainWindow


class WindowPage(MainWindow):
    """`qtbot` is the test's. Waiting ends in a failed test after WAIT_MS."""

    qtbot: Any

    def ask(self, text: str = "Tell me a story.") -> None:
        """Type a question and press the composer's button."""
        self.chat.composer.input.setPlainText(text)
        self.chat.composer.button.click()

    def press(self, name: str) -> None:
        """Click the visible button whose text, or name for screen readers, begins so."""
        found = [
            button
            for button in self.findChildren(QAbstractButton)
            if button.isVisible() and (button.text() or button.accessibleName()).startswith(name)
        ]
        assert found, f"no button {name!r}"
        assert found[0].isEnabled(), name
        found[0].click()

    def move_rate(self, n_slot: int) -> None:
        """Move the slider of the cache rate and let go of it."""
        slider = self.top_bar.rate.slider
        slider.setSliderDown(True)
        slider.setValue(n_slot)
        slider.setSliderDown(False)

    def open_chat(self, chat_id: int) -> None:
        """Choose a chat in the sidebar."""
        self.sidebar.list.opened.emit(chat_id)

    @property
    def state(self) -> State:
        return self.engine.state

    @property
    def answer(self) -> Message:
        """The last answer as the session has it."""
        last = self.session.conversation.last
        assert last is not None and last.role == "assistant"
        return last

    def answer_texts(self) -> list[str]:
        """The prose of the answers as it is shown, from the first to the last."""
        views = [view for view in self.chat.findChildren(AnswerView) if view.isVisible()]
        blocks = [view.findChildren(TextBlock) for view in sorted(views, key=lambda v: v.y())]
        return ["\n".join(block.toPlainText() for block in prose) for prose in blocks]

    @property
    def notice(self) -> str:
        """The sentence above the composer; empty where none is shown."""
        return self.chat.banner.sentence if self.chat.banner.isVisible() else ""

    @property
    def choices(self) -> list[str]:
        """The buttons below that sentence."""
        return [button.text() for button in self.chat.banner.buttons]

    @property
    def draft(self) -> str:
        return self.chat.composer.input.toPlainText()

    def wait_state(self, state: State) -> None:
        self.qtbot.waitUntil(lambda: self.engine.state is state, timeout=WAIT_MS)

    def wait_text(self, n_char: int = 1) -> None:
        """Wait until the last answer has so many characters."""
        self.qtbot.waitUntil(lambda: len(self.answer.content) >= n_char, timeout=WAIT_MS)

    def wait_notice(self, words: str) -> None:
        self.qtbot.waitUntil(lambda: words in self.notice, timeout=WAIT_MS)
