"""An answer in the transcript: its text in blocks, its ending and its figures."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat import answer_footer
from app.chat.branch_switch import BranchSwitch
from app.chat.code_card import CodeCard
from app.chat.markdown.blocks import Block, BlockSplitter
from app.chat.text_block import TextBlock
from app.chat.thought_fold import ThoughtFold
from app.state import reasoning
from app.state.conversation import Ending, Message
from app.text.messages import localized

FRAME_MS = 40  # at most 25 repaints a second
SLICE_S = 0.015  # of rendering, then other events are handled
CARET = "\u2009\u258d"


class AnswerView(QWidget):
    """Shows a message of the assistant as it grows.

    New text renders only the last block again, at most every FRAME_MS.

    Signals:
        go_on: the user wants the answer continued.
        regenerate: the user wants another answer.
        stepped: (-1 or 1) the user wants the branch before or after this one.
    """

    go_on = Signal()
    regenerate = Signal()
    stepped = Signal(int)

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._message = message
        self._splitter = BlockSplitter()
        self._taken = 0  # characters of the message given to the splitter
        self._rest = 0  # index of the answer's first character, after the reasoning
        self._dirty = 0  # the first block whose widget is out of date
        self._views: list[TextBlock | CodeCard] = []
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._render)
        self._slices = QTimer(self)
        self._slices.setSingleShot(True)
        self._slices.setInterval(0)
        self._slices.timeout.connect(self._render)
        self.setAccessibleName(self.tr("Answer"))

        self._blocks = QVBoxLayout()
        self._blocks.setSpacing(12)
        self._progress = _small_label("muted")
        self._note = _small_label("warning")
        self._note.setWordWrap(True)
        self._figures = _small_label("small")
        self._figures.setContentsMargins(0, 0, 10, 0)
        self._copy = _quiet_button(self.tr("Copy"), self.tr("Copy this answer"), self._copy_text)
        self._go_on = _quiet_button(
            self.tr("Go on"), self.tr("Continue this answer"), self.go_on.emit
        )
        self._again = _quiet_button(
            self.tr("Retry"), self.tr("Ask for another answer"), self.regenerate.emit
        )
        self._branches = BranchSwitch()
        self._branches.stepped.connect(self.stepped)
        self._thought: ThoughtFold | None = None
        foot = QHBoxLayout()
        foot.setSpacing(4)
        foot.addWidget(self._figures)
        foot.addWidget(self._copy)
        foot.addWidget(self._again)
        foot.addWidget(self._go_on)
        foot.addWidget(self._branches)
        foot.addStretch(1)
        layout = self._column = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(self._blocks)
        layout.addWidget(self._progress)
        layout.addWidget(self._note)
        layout.addLayout(foot)
        self._render()

    @property
    def text(self) -> str:
        """Return the shown text as Markdown."""
        return self._message.content

    def refresh(self, now: bool = False) -> None:
        """Show a changed message: its end at once, its text within FRAME_MS."""
        if now or not self._message.is_live:
            self._timer.stop()
            self._render()
        elif not self._timer.isActive():
            self._timer.start()

    def redress(self) -> None:
        """Render everything again after a change of theme."""
        for block, view in zip(self._splitter.blocks, self._views, strict=False):
            _fill(view, block, caret=False)
            if isinstance(view, CodeCard):
                view.colour_all()

    def show_last(self, is_last: bool) -> None:
        """Offer to continue the answer if it is the last one."""
        self._go_on.setVisible(is_last and self._message.can_go_on)

    def _render(self) -> None:
        message = self._message
        parts = reasoning.find(message.content)
        self._show_thought(parts)
        rest = parts.rest
        # The trailing space was cut, or text that was shown turned out to be reasoning.
        if len(message.content) < self._taken or rest != self._rest:
            self._start_over()
            self._rest = self._taken = rest
        if self._taken == rest:
            rest += len(message.content) - rest - len(message.content[rest:].lstrip())
            self._taken = rest
        self._dirty = min(self._dirty, self._splitter.append(message.content[self._taken :]))
        self._taken = len(message.content)
        live = message.ending is Ending.STREAMING
        if not message.is_live:
            self._dirty = min(self._dirty, self._splitter.finish())
        blocks = self._splitter.blocks
        ends_s = time.perf_counter() + SLICE_S
        for index in range(self._dirty, len(blocks)):
            if index == len(self._views):
                view = CodeCard(blocks[index].language) if blocks[index].is_code else TextBlock()
                self._views.append(view)
                self._blocks.addWidget(view)
            _fill(self._views[index], blocks[index], caret=live and index == len(blocks) - 1)
            self._dirty = index + 1
            if time.perf_counter() > ends_s and index + 1 < len(blocks):
                self._slices.start()  # handle other events first
                break
        waiting = message.ending is Ending.WAITING
        self._progress.setVisible(waiting)
        self._progress.setText(message.progress or self.tr("Thinking\u2026"))
        self._note.setVisible(bool(message.note))
        self._note.setText(localized(message.note))
        _dress(self._note, "warning" if message.ending is Ending.CUT_OFF else "muted")
        statistics = message.statistics
        n_token = message.n_token_before + (statistics.n_token if statistics else 0)
        shown = not message.is_live and n_token > 0
        self._figures.setVisible(shown)
        if shown and statistics is not None:
            figures = answer_footer.footer(statistics, message.n_token_before)
            self._figures.setText(figures)
        self._copy.setVisible(not message.is_live and bool(message.content))
        self._again.setVisible(not message.is_live)
        self._branches.show_branch(message.branch if not message.is_live else (1, 1))

    def _show_thought(self, parts: reasoning.Parts) -> None:
        text = self._message.content[parts.begin : parts.end].strip()
        if not parts.has_thought or not text:
            return
        if self._thought is None:
            self._thought = ThoughtFold()
            self._column.insertWidget(0, self._thought)
        is_open = parts.is_open and self._message.is_live
        self._thought.show_thought(text, is_open, self._message.thought_s)

    def _start_over(self) -> None:
        self._splitter = BlockSplitter()
        self._taken = 0
        self._dirty = 0
        for view in self._views:
            self._blocks.removeWidget(view)
            view.hide()
            view.deleteLater()
        self._views.clear()

    def _copy_text(self) -> None:
        QGuiApplication.clipboard().setText(self._message.content)


def _fill(view: TextBlock | CodeCard, block: Block, caret: bool) -> None:
    if isinstance(view, CodeCard):
        view.show_text(block.text)
    else:
        view.show_markdown(block.text.strip("\n") + (CARET if caret else ""))


def _dress(label: QLabel, role: str) -> None:
    if label.property("role") != role:
        label.setProperty("role", role)
        label.style().unpolish(label)
        label.style().polish(label)


def _small_label(role: str) -> QLabel:
    label = QLabel()
    label.setProperty("role", role)
    label.hide()
    return label


def _quiet_button(text: str, name: str, action: object) -> QPushButton:
    button = QPushButton(text)
    button.setProperty("role", "quiet")
    button.setAccessibleName(name)
    button.clicked.connect(action)
    button.hide()
    return button
