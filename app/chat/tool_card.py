"""A tool call in an answer: the tool's name, the arguments, the state, and the folded result."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.chat.file_fold import FileFold
from app.chat.text_block import TextBlock
from app.state.conversation import CallState
from app.text import units
from app.text.language import translate
from app.widgets.elided_label import ElidedLabel
from app.widgets.parts import discard, filled, spaced, text_label
from backend.protocol.attachments import Attachment
from backend.protocol.chat import ToolCall
from backend.tools.plain_text import arguments_shown, clean

N_LINE_SHOWN = 8  # of arguments; longer ones fold, unless the user is asked about them
PIECE_CHARS = 4000  # of one block of text
N_CHAR_SHOWN = 100_000  # of arguments or a result


class _Fold(QWidget):
    """A button, and a long plain text below it when unfolded."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self._label = ""
        self._blocks: list[TextBlock] = []
        self.button = QPushButton()
        self.button.setProperty("role", "quiet")
        self.button.setCheckable(True)
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.button.toggled.connect(self._fill)
        self._body = spaced(QVBoxLayout(), 0)
        left = Qt.AlignmentFlag.AlignLeft
        filled(spaced(QVBoxLayout(self), 4), (self.button, left), self._body)
        self.hide()

    def show_text(self, label: str, text: str) -> None:
        """Show another label and text; keep it folded or unfolded."""
        if (label, text) == (self._label, self._text) and not self.isHidden():
            return
        self._label = label
        if text != self._text:
            discard(self._body, *self._blocks)
            self._blocks.clear()
            self._text = text
        self._fill()
        self.show()

    def _fill(self) -> None:
        is_open = self.button.isChecked()
        self.button.setText(("\u25be " if is_open else "\u25b8 ") + self._label)
        self.button.setAccessibleName(self._label)
        if is_open and not self._blocks:
            shown = self._text[:N_CHAR_SHOWN]
            pieces = [shown[at : at + PIECE_CHARS] for at in range(0, len(shown), PIECE_CHARS)]
            if n_more := len(self._text) - len(shown):
                rest = units.count(n_more, "character")
                pieces.append(self.tr("\u2026 and {rest} more").format(rest=rest))
            for piece in pieces:
                block = TextBlock(is_code=True)
                block.setAccessibleName(self._label)
                block.show_plain(piece)
                self._blocks.append(block)
                self._body.addWidget(block)
        for block in self._blocks:
            block.setVisible(is_open)


class ToolCard(QFrame):
    """Shows a call and its state.

    foot: the layout below the arguments, for what a state needs, such as buttons that approve.
    files: the pictures of its result; unseen: a line where the model sees none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("toolCard")
        self.call = ToolCall("", "", "")
        self.state = CallState.WRITING
        self._shown: tuple[ToolCall, CallState] | None = None
        self._name = ElidedLabel()
        self._name.setProperty("role", "strong")
        self._state = text_label("small")
        self._arguments = TextBlock(is_code=True)
        self._arguments.setAccessibleName(self.tr("Arguments"))
        self._long = _Fold()
        self.result = _Fold()
        head = filled(spaced(QHBoxLayout(), 8), (self._name, 1), self._state)
        self.foot = spaced(QVBoxLayout(), 6)
        self._body = spaced(QVBoxLayout(self), 5, 14, 9, 14, 10)
        filled(self._body, head, self._arguments, self._long, self.foot, self.result)
        self.files: list[FileFold] = []
        self.unseen = text_label(
            "small",
            self.tr("The loaded model cannot see pictures. It is told that you can."),
            wraps=True,
        )
        self.unseen.hide()

    def show_call(self, call: ToolCall, state: CallState) -> None:
        """Show a call as it grows, and its state."""
        if (call, state) == self._shown:
            return
        self._shown = call, state
        if call.arguments != self.call.arguments or state is not self.state:
            self.call, self.state = call, state
            self._show_arguments()
        self.call, self.state = call, state
        words = state_words(state)
        name = clean(call.name)
        server, _, tool = name.partition("__")  # as models see it
        self._name.setText(f"{tool} \u00b7 {server}" if server and tool else name)
        self._state.setText(words)
        self.setAccessibleName(
            self.tr("Tool call: {name}, {state}").format(name=call.name, state=words)
        )

    def show_result(self, text: str, files: Sequence[Attachment] = ()) -> None:
        """Show the tool's output, folded. It is plain text, whatever is in it, and its pictures."""
        if len(files) != len(self.files):  # a result does not change
            self.files = [FileFold(file) for file in files]
            for widget in (*self.files, self.unseen):
                self._body.addWidget(widget)
        label = self.tr("Result: {size}").format(size=units.count(len(text), "character"))
        self.result.show_text(label, text)

    def _show_arguments(self) -> None:
        text = pretty(self.call.arguments)
        is_long = text.count("\n") >= N_LINE_SHOWN or len(text) > 100 * N_LINE_SHOWN
        is_asked = self.state is CallState.ASKED
        folds = len(text) > PIECE_CHARS if is_asked else is_long
        self._arguments.setVisible(bool(text) and not folds)
        self._long.setVisible(folds)
        if folds:
            size = units.count(len(text), "character")
            self._long.button.setChecked(is_asked)  # the user has to see what is asked
            self._long.show_text(self.tr("Arguments: {size}").format(size=size), text)
        else:
            self._arguments.show_plain(text)


def state_words(state: CallState) -> str:
    """Return a state in words."""
    return {
        CallState.WRITING: translate("tools", "being written\u2026"),
        CallState.ASKED: translate("tools", "asks to run"),
        CallState.RUNNING: translate("tools", "running\u2026"),
        CallState.DONE: translate("tools", "done"),
        CallState.FAILED: translate("tools", "failed"),
        CallState.REFUSED: translate("tools", "refused"),
        CallState.NOT_RUN: translate("tools", "not run"),
    }[state]


def pretty(arguments: str) -> str:
    """Return arguments on several lines, with nothing hidden; "" for an empty object."""
    return "" if arguments.strip() in ("", "{}") else arguments_shown(arguments)
