"""Connects the cards of tool calls in the transcript with the calls."""

from __future__ import annotations

import functools

from PySide6.QtCore import QObject

from app.chat.answer import AnswerView
from app.chat.call_foot import CallFoot
from app.chat.tool_card import ToolCard
from app.chat.transcript import Transcript
from app.session.session import Session
from app.session.tools import ToolCalls
from app.state.conversation import Conversation, Message
from app.state.tool_approval import Choice


class ToolCards(QObject):
    """Puts a foot below each card of a call, and passes on what the user decides there.

    Only these buttons decide. A tool's output reaches nothing here but plain text.
    """

    def __init__(
        self, session: Session, calls: ToolCalls, transcript: Transcript, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._session, self._calls, self._transcript = session, calls, transcript
        self._feet: dict[ToolCard, CallFoot] = {}
        transcript.cards_shown.connect(self._show)
        calls.changed.connect(self._changed)
        calls.servers.changed.connect(self._show_last)

    def _changed(self, conversation: Conversation, answer: Message) -> None:
        if conversation is self._session.conversation:
            for view in self._transcript.findChildren(AnswerView):
                if view.message is answer:
                    self._show(view)

    def _show_last(self) -> None:
        last = self._session.conversation.last
        if last is not None and last.tool_calls:
            self._changed(self._session.conversation, last)

    def _show(self, view: AnswerView) -> None:
        answer = view.message
        calls = self._calls.of(answer)
        is_left = self._calls.can_ask_again(self._session.conversation, answer)
        model = self._session.engine.model
        for index, card in enumerate(view.cards):
            is_blind = model is not None and not model.chat.images
            card.unseen.setVisible(bool(card.files) and is_blind)
            foot = self._foot(card, answer, index)
            if calls is not None and index < len(calls.calls):
                limit = self._calls.servers.settings.max_rounds
                foot.show_call(calls.calls[index], calls.is_held, limit)
            else:
                foot.show_nothing(can_ask_again=is_left and index == 0)

    def _foot(self, card: ToolCard, answer: Message, index: int) -> CallFoot:
        if card not in self._feet:
            self._feet[card] = foot = CallFoot()
            card.foot.addWidget(foot)
            card.destroyed.connect(lambda: self._feet.pop(card, None))
            foot.decided.connect(functools.partial(self._decide, answer, index))
            foot.stopped.connect(functools.partial(self._stop, answer, index))
            foot.again.connect(lambda: self._calls.ask_again(self._session.conversation))
        return self._feet[card]

    def _decide(self, answer: Message, index: int, choice: Choice) -> None:
        calls = self._calls.of(answer)
        if calls is not None and index < len(calls.calls):
            self._calls.decide(calls, calls.calls[index], choice)

    def _stop(self, answer: Message, index: int) -> None:
        calls = self._calls.of(answer)
        if calls is not None and index < len(calls.calls):
            self._calls.stop_call(calls.calls[index])
