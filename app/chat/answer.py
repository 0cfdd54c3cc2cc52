"""An answer in the transcript: thought, text in blocks, tool calls, ending and figures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QMenu, QVBoxLayout, QWidget

from app.chat import answer_footer
from app.chat.branch_switch import BranchSwitch
from app.chat.code_card import CodeCard
from app.chat.markdown.blocks import Block, BlockSplitter
from app.chat.markdown.meant import definitions, refers
from app.chat.message_editor import MessageEditor, can_change
from app.chat.table_card import TableCard
from app.chat.text_block import BlockOwner, TextBlock
from app.chat.thought_fold import ThoughtFold
from app.chat.tool_card import ToolCard
from app.state.conversation import CallState, Ending, Message
from app.text import units
from app.text.messages import localized
from app.widgets import slices
from app.widgets.elided_label import ElidedLabel
from app.widgets.icon_button import IconButton
from app.widgets.parts import discard, dress, filled, spaced, text_label
from app.widgets.quiet_button import QuietButton

FRAME_MS = 40  # at most 25 repaints a second
MORE_ANSWERS = (2, 3, 4, 6, 8)
CARET = "\u2009\u258d"


_View = TextBlock | CodeCard | TableCard


class AnswerView(BlockOwner):
    """Shows a message of the assistant as it grows.

    New text renders only the last block again, at most every FRAME_MS.

    Signals:
        go_on: the user wants the answer continued.
        regenerate: the user wants another answer.
        more_wanted: (int) the user wants this number of other answers at once.
        stepped: (-1 or 1) the user wants the branch before or after this one.
        inspected: the user wants to see the prompt and the raw text.
        edited: (str) the user wants another version of the answer, with this text.
        forked: the user wants a new chat that begins with the messages up to this one.
        deleted: the user wants it removed from the chat.
        unawaited: the user wants it without the tools that it waits for.
        cards_shown: the cards of the tool calls were shown, or their states have changed.
    """

    go_on = Signal()
    regenerate = Signal()
    more_wanted = Signal(int)
    stepped = Signal(int)
    inspected = Signal()
    edited = Signal(str)
    forked = Signal()
    deleted = Signal()
    unawaited = Signal()
    cards_shown = Signal()

    def __init__(self, message: Message) -> None:
        super().__init__()
        self._message = message
        self._splitter = BlockSplitter()
        self._taken = 0  # characters of the message given to the splitter
        self._dirty = 0  # the first block whose widget is out of date
        self._stale: list[int] = []  # blocks before it with references that are known now
        self._defined: dict[str, str] = {}  # addresses by the labels of references
        self._views: list[_View] = []
        self._timer = QTimer(self, singleShot=True, interval=FRAME_MS)
        self._timer.timeout.connect(self._render)
        self.setAccessibleName(self.tr("Answer"))

        self._blocks = QVBoxLayout()
        self._blocks.setSpacing(12)
        self._progress = _small_label("muted")
        self._without = QuietButton(
            self.tr("Answer without them"), self.tr("Answer without these tools"), self.unawaited
        )
        self._without.hide()
        self._note = _small_label("warning")
        self._note.setWordWrap(True)
        self._figures = ElidedLabel()  # the buttons beside it need their room
        self._figures.setProperty("role", "small")
        self._figures.hide()
        self._figures.setContentsMargins(0, 0, 10, 0)
        self._copy = QuietButton(self.tr("Copy"), self.tr("Copy this answer"), self._copy_text)
        self._go_on = QuietButton(self.tr("Continue"), self.tr("Continue this answer"), self.go_on)
        self._again = QuietButton(
            self.tr("Retry"), self.tr("Ask for another answer"), self.regenerate
        )
        self._more = IconButton("more", self.tr("More about this answer"), side=24)
        self._more.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._more.clicked.connect(self._open_menu)
        self._branches = BranchSwitch()
        self._branches.stepped.connect(self.stepped)
        self.thought: ThoughtFold | None = None
        self._editor: MessageEditor | None = None
        self._below = (
            self._note, self._figures, self._copy, self._again, self._go_on, self._more,
            self._branches,
        )  # fmt: skip
        self._hidden: list[QWidget] = []  # while the answer is changed
        self._cards: list[ToolCard] = []
        self._results: dict[str, Message] = {}  # by the id of the call
        self._calls = QVBoxLayout()
        self._calls.setSpacing(8)
        for button in (self._copy, self._go_on, self._again):
            button.hide()
        foot = spaced(QHBoxLayout(), 4)
        filled(foot, self._figures, self._copy, self._again, self._go_on, self._more)
        filled(foot, self._branches, 1)
        self._column = filled(
            spaced(QVBoxLayout(self), 8), self._blocks, self._calls, self._progress,
            (self._without, Qt.AlignmentFlag.AlignLeft), self._note, foot,
        )  # fmt: skip
        self._render()

    @property
    def text(self) -> str:
        """Return the shown text as Markdown."""
        return self._message.content

    @property
    def message(self) -> Message:
        """Return the message that is shown."""
        return self._message

    @property
    def is_edited(self) -> bool:
        """Return whether the field for another text is open."""
        return self._editor is not None

    @property
    def cards(self) -> list[ToolCard]:
        """Return the cards of the tool calls, in order."""
        return self._cards

    def blocks_in_order(self) -> list[TextBlock]:
        """Return the blocks of text, code and tables, without the thought and calls."""
        found: list[TextBlock] = []
        for view in self._views:
            found += [view] if isinstance(view, TextBlock) else view.findChildren(TextBlock)
        return found

    def take_result(self, result: Message) -> None:
        """Show the result of one of the calls."""
        if result.tool_call_id not in self._results:
            self._results[result.tool_call_id] = result
            self._render()

    def refresh(self, now: bool = False) -> None:
        """Show a changed message: its end at once, its text within FRAME_MS."""
        is_first = bool(self._message.content) and not self._taken  # the user waits for it
        if now or is_first or not self._message.is_live:
            self._timer.stop()
            self._render()
        elif not self._timer.isActive():
            self._timer.start()

    def redress(self) -> Iterator[None]:
        """Render everything again after a change of theme, a part at each step."""
        for block, view in zip(self._splitter.blocks, self._views, strict=False):
            if isinstance(view, CodeCard | TableCard):
                yield from view.redress()
            else:
                _fill(view, block, caret=False)
                yield

    def show_last(self, is_last: bool) -> None:
        """Offer to continue the answer if it is the last one."""
        self._go_on.setVisible(is_last and self._message.can_go_on)

    def _render(self) -> None:
        message = self._message
        self._show_thought()
        self._show_calls()
        if not self._taken:
            self._taken = len(message.content) - len(message.content.lstrip())
        self._dirty = min(self._dirty, self._splitter.append(message.content[self._taken :]))
        self._taken = len(message.content)
        live = message.ending is Ending.STREAMING and not message.tool_calls
        if not message.is_live:
            self._dirty = min(self._dirty, self._splitter.finish())
        blocks = self._splitter.blocks
        self._find_definitions()
        with slices.a_slice() as is_over:
            while self._stale or self._dirty < len(blocks):
                if self._stale:
                    self._fill_again(self._stale.pop())
                else:
                    is_last, index = self._dirty == len(blocks) - 1, self._dirty
                    self._have_view(index)
                    _fill(self._views[index], blocks[index], caret=live and is_last)
                    self._dirty = index + 1
                if is_over() and (self._stale or self._dirty < len(blocks)):
                    slices.later(self, self._render)
                    break
        waiting = message.ending is Ending.WAITING
        self._progress.setVisible(waiting)
        self._progress.setText(message.progress or self.tr("One moment\u2026"))
        self._without.setVisible(message.awaits_tools)
        self._note.setVisible(bool(message.note))
        self._note.setText(localized(message.note))
        dress(self._note, "warning" if message.ending is Ending.CUT_OFF else "muted")
        statistics = message.statistics
        n_token = message.n_token_before + (statistics.n_token if statistics else 0)
        shown = not message.is_live and n_token > 0
        self._figures.setVisible(shown)
        if shown and statistics is not None:
            figures = answer_footer.footer(statistics, message.n_token_before)
            self._figures.setText(figures)
            self._figures.short = answer_footer.footer(
                statistics, message.n_token_before, is_short=True
            )
            self._figures.setToolTip(figures)
        self._copy.setVisible(not message.is_live and bool(message.content))
        # An answer whose calls have results goes on below them.
        self._again.setVisible(not message.is_live and not self._results)
        self._more.setVisible(not message.is_live)
        may_step = message.is_joint or not message.is_live  # others are stopped by a step
        self._branches.show_branch(message.branch if may_step else (1, 1))

    def _find_definitions(self) -> None:
        """Take addresses from complete lines of new text, and show blocks again that refer to them.

        Models write their list of sources last.
        """
        new: dict[str, str] = {}
        for block in self._splitter.blocks[self._dirty :]:
            whole = block.text.rpartition("\n")[0] if self._message.is_live else block.text
            new = new if block.is_code else {**definitions(whole), **new}
        new = {label: address for label, address in new.items() if label not in self._defined}
        self._defined |= new
        for index in range(self._dirty if new else 0):
            block = self._splitter.blocks[index]
            if not block.is_code and index not in self._stale and refers(block.text, new):
                self._stale.append(index)

    def _fill_again(self, index: int) -> None:
        view = self._views[index]
        if isinstance(view, TableCard):
            for _ in view.redress():
                pass
        else:
            _fill(view, self._splitter.blocks[index], caret=False)

    def _have_view(self, index: int) -> None:
        """Have a view of a block's kind. The line below a head, or a fence's end, changes it."""
        block = self._splitter.blocks[index]
        kind = TableCard if block.is_table else TextBlock
        if index < len(self._views):
            before = self._views[index]
            if isinstance(before, CodeCard if block.is_code else kind):
                return
            discard(self._blocks, before)
            del self._views[index]
        view = CodeCard(block.language) if block.is_code else kind()
        if not isinstance(view, CodeCard):
            view.defined = self._defined
        self._views.insert(index, view)
        self._blocks.insertWidget(index, view)
        # Screen readers read in the order of the stack.
        view.stackUnder(self._cards[0] if self._cards else self._progress)

    def _show_thought(self) -> None:
        message = self._message
        if not message.reasoning.strip():
            return
        if self.thought is None:
            self.thought = ThoughtFold()
            self._column.insertWidget(0, self.thought)
            self.thought.lower()
        is_open = message.is_live and not message.content.strip() and not message.tool_calls
        self.thought.show_thought(message.reasoning, is_open, message.thought_s)

    def _show_calls(self) -> None:
        calls = self._message.tool_calls
        while len(self._cards) > len(calls):  # removed before the answer was continued
            discard(self._calls, self._cards.pop())
        for index, call in enumerate(calls):
            if index == len(self._cards):
                self._cards.append(ToolCard())
                self._calls.addWidget(self._cards[-1])
                self._cards[-1].stackUnder(self._progress)
            card, result = self._cards[index], self._results.get(call.id)
            state = CallState.WRITING if self._message.is_live else CallState.NOT_RUN
            if result is not None:
                state = result.call_state
                card.show_result(result.content, result.attachments)
            card.show_call(call, self._message.call_states.get(call.id, state))
        if calls:
            self.cards_shown.emit()

    def menu(self) -> QMenu:
        """Return the menu of rare actions on an answer."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if not self._results:
            several = menu.addMenu(self.tr("More answers at once"))
            for n in MORE_ANSWERS:
                several.addAction(units.number(n), partial(self.more_wanted.emit, n))
        menu.addAction(self.tr("What the model saw\u2026"), self.inspected.emit)
        menu.addSeparator()
        edit = menu.addAction(self.tr("Change the answer"), self.begin_edit)
        edit.setEnabled(can_change(self._message.content))
        menu.addAction(self.tr("New chat from here"), self.forked.emit)
        menu.addAction(self.tr("Delete"), self.deleted.emit)
        return menu

    def begin_edit(self) -> None:
        """Replace the text by a field."""
        if self._editor is not None:
            return
        take = self.tr("Keep"), self.tr("Keep the answer as it is written here (Ctrl+Enter)")
        name = self.tr("The answer, to change")
        self._editor = editor = MessageEditor(self._message.content, name, take, by_enter=False)
        editor.taken.connect(self.edited)
        editor.ended.connect(self._end_edit)
        frame = QFrame()
        frame.setObjectName("bubble")
        inside = QVBoxLayout(frame)
        inside.setContentsMargins(14, 8, 14, 8)
        inside.addWidget(editor)
        self._column.insertWidget(self._column.indexOf(self._blocks), frame)
        frame.stackUnder(self._progress)
        for view in self._views:
            view.hide()
        self._hidden = [widget for widget in self._below if not widget.isHidden()]
        for widget in self._hidden:
            widget.hide()
        frame.show()
        editor.setFocus()

    def _end_edit(self) -> None:
        editor, self._editor = self._editor, None
        if editor is not None and (frame := editor.parentWidget()) is not None:
            discard(None, frame)
        for widget in (*self._views, *self._hidden):
            widget.show()

    def _open_menu(self) -> None:
        self.menu().popup(self._more.mapToGlobal(QPoint(0, self._more.height())))

    def _copy_text(self) -> None:
        QGuiApplication.clipboard().setText(self._message.content)


def _fill(view: _View, block: Block, caret: bool) -> None:
    if isinstance(view, CodeCard | TableCard):
        view.show_text(block.text)
    else:
        view.show_markdown(block.text.strip("\n") + (CARET if caret else ""))


def _small_label(role: str) -> QLabel:
    label = text_label(role)
    label.hide()
    return label
