"""The window as tests use it: ask, press and read, without knowledge of the widget tree."""

from typing import Any

from PySide6.QtWidgets import QAbstractButton
from window_samples import WAIT_MS

from app.chat.answer import AnswerView
from app.chat.text_block import TextBlock
from app.state.conversation import Conversation, Ending, Message
from app.state.engine_state import State
from app.window.main_window import MainWindow


class WindowPage(MainWindow):
    """`qtbot` is the test's. A wait longer than WAIT_MS fails the test."""

    qtbot: Any

    def ask(self, text: str = "Tell me a story.") -> None:
        """Type a question and press the composer's button."""
        self.chat.composer.input.setPlainText(text)
        self.chat.composer.button.click()

    def ask_and_leave(self, n_char: int = 1) -> Conversation:
        """Ask, wait for `n_char` characters and open a new chat. Return the chat that was left."""
        self.ask()
        self.wait_text(n_char)
        left = self.session.conversation
        self.press("New chat")
        return left

    def press(self, name: str) -> None:
        """Click the visible button whose text or accessible name begins with `name`."""
        found = [
            button
            for button in self.findChildren(QAbstractButton)
            if button.isVisible() and (button.text() or button.accessibleName()).startswith(name)
        ]
        assert found, f"no button {name!r}"
        assert found[0].isEnabled(), name
        found[0].click()

    def move_rate(self, n_slot: int) -> None:
        """Move the slider of the cache rate and release it."""
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
        """Return the session's last answer."""
        last = self.session.conversation.last
        assert last is not None and last.role == "assistant"
        return last

    def answer_texts(self) -> list[str]:
        """Return the visible prose of the answers, from the first to the last."""
        views = [view for view in self.chat.findChildren(AnswerView) if view.isVisible()]
        blocks = [view.findChildren(TextBlock) for view in sorted(views, key=lambda v: v.y())]
        return ["\n".join(block.toPlainText() for block in prose) for prose in blocks]

    @property
    def notice(self) -> str:
        """Return the sentence above the composer, or "" if none is shown."""
        return self.chat.banner.sentence if self.chat.banner.isVisible() else ""

    @property
    def choices(self) -> list[str]:
        """Return the texts of the notice's buttons."""
        return [button.text() for button in self.chat.banner.buttons]

    @property
    def draft(self) -> str:
        return self.chat.composer.input.toPlainText()

    def wait_state(self, state: State) -> None:
        self.qtbot.waitUntil(lambda: self.engine.state is state, timeout=WAIT_MS)

    def wait_end(self) -> None:
        """Wait until the last answer is whole. Its state may be over before anybody looks."""
        self.qtbot.waitUntil(lambda: self.answer.ending is Ending.FINISHED, timeout=WAIT_MS)
        self.wait_state(State.IDLE)

    def wait_text(self, n_char: int = 1) -> None:
        """Wait until the last answer has at least `n_char` characters."""
        self.qtbot.waitUntil(lambda: len(self.answer.content) >= n_char, timeout=WAIT_MS)

    def wait_notice(self, words: str) -> None:
        self.qtbot.waitUntil(lambda: words in self.notice, timeout=WAIT_MS)
