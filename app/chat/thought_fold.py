"""A model's reasoning, folded to one line with its duration. While it grows, its last line too."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.chat.text_block import TextBlock
from app.text import units
from app.widgets.elided_label import ElidedLabel
from app.widgets.parts import discard, filled, spaced

PIECE_CHARS = 4000  # of one block; only the last block is laid out again
LINE_CHARS = 200  # of the last line; more is never visible


class ThoughtFold(QWidget):
    """A button with the duration, and the text below it when unfolded."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self._n_shown = 0
        self._blocks: list[TextBlock] = []
        self.button = QPushButton()
        self.button.setProperty("role", "quiet")
        self.button.setCheckable(True)
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click leaves the focus where it is
        self.button.toggled.connect(self._toggle)
        self._body = spaced(QVBoxLayout(), 0, 20)
        self.last_line = ElidedLabel(Qt.TextElideMode.ElideLeft)
        self.last_line.setProperty("role", "thought")
        self.last_line.setContentsMargins(20, 0, 0, 0)
        self.last_line.hide()
        filled(spaced(QVBoxLayout(self), 6), self.button, self.last_line, self._body)
        self.button.setSizePolicy(
            self.button.sizePolicy().Policy.Maximum, self.button.sizePolicy().Policy.Fixed
        )
        self.label = ""
        self._is_open = False

    def show_thought(self, text: str, is_open: bool, duration_s: float) -> None:
        """Show the reasoning so far."""
        text = text.strip()
        if not text.startswith(self._text[: self._n_shown]):
            self._clear()
        self._text = text
        label = self.tr("Thinking\u2026 {time}") if is_open else self.tr("Thought for {time}")
        if duration_s > 0:
            self.label = label.format(time=units.whole_seconds(duration_s))
        else:
            self.label = self.tr("Thinking\u2026") if is_open else self.tr("Thought")
        self._is_open = is_open
        self.last_line.setText(text[-LINE_CHARS:].rpartition("\n")[2].strip())
        self._show_head()
        if self.button.isChecked():
            self._fill()

    def _toggle(self, unfolded: bool) -> None:
        self._show_head()
        if unfolded:
            self._fill()
        for block in self._blocks:
            block.setVisible(unfolded)

    def _show_head(self) -> None:
        self.last_line.setVisible(self._is_open and not self.button.isChecked())
        arrow = "\u25be" if self.button.isChecked() else "\u25b8"
        self.button.setText(f"{arrow} {self.label}")
        self.button.setAccessibleName(self.tr("Reasoning: {label}").format(label=self.label))

    def _fill(self) -> None:
        """Append missing text to the last block, or to new blocks if that is long."""
        while self._n_shown < len(self._text):
            piece = self._text[self._n_shown : self._n_shown + PIECE_CHARS]
            last = self._blocks[-1] if self._blocks else None
            if last is None or last.document().characterCount() > PIECE_CHARS:
                last = TextBlock()
                last.setAccessibleName(self.tr("Reasoning"))
                last.setProperty("role", "thought")
                self._blocks.append(last)
                self._body.addWidget(last)
            last.append_plain(piece)
            self._n_shown += len(piece)

    def _clear(self) -> None:
        discard(self._body, *self._blocks)
        self._blocks.clear()
        self._n_shown = 0
