"""Titles of new chats, written by the model while it is idle."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer

from app.session import known_models as models
from app.session.chats import Chats
from app.session.session import Session
from app.state.conversation import Ending
from app.state.engine_state import State

IDLE_MS = 8000  # after the last event of an answer
N_TOKEN_MAX = 24
TITLE_CHARS = 60
_ORDER = (
    "Write a title of at most six words for this conversation, in its language. "
    "Answer with the title only."
)
# Signs that models write around a title.
_QUOTES = "\"'“”„«»《》「」『』"
_BEFORE, _BEHIND = f" \t#*_>-{_QUOTES}", f" \t*_.。{_QUOTES}"
_NAMED = re.compile(
    r"(?:title|titel|titre|título|titolo|название|标题|標題|タイトル|제목)[\s*_]*[:：]",
    re.IGNORECASE,
)


class Titles(QObject):
    """Asks for a title of the shown chat if its title is the beginning of the question.

    The request continues the chat's prompt, so that the next question finds its context computed.
    A request of the user stops it at once. The embedded model is not asked: its titles are poor.

    is_wanted: returns whether the user wants it.
    """

    def __init__(
        self, session: Session, chats: Chats, is_wanted: Callable[[], bool], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._session, self._chats, self._is_wanted = session, chats, is_wanted
        self._asked: set[int] = set()  # chats that had their chance
        self._of = 0  # the chat whose title is being written
        self.timer = QTimer(self, singleShot=True, interval=IDLE_MS)
        self.timer.timeout.connect(self.ask)
        session.changed.connect(lambda *_: self.timer.start())
        session.engine.link.aside.connect(self._take)

    def ask(self) -> None:
        """Ask for the title of the shown chat, if it has none and the engine is idle."""
        session, conversation = self._session, self._session.conversation
        chat_id, last, path = conversation.chat_id, conversation.last, session.engine.path
        row = next((row for row in self._chats.rows() if row.id == chat_id), None)
        is_idle = session.engine.state is State.IDLE and not session.growing
        if not is_idle or row is None or row.is_named or chat_id in self._asked:
            return
        if last is None or last.ending is not Ending.FINISHED or last.tool_calls:
            return
        if path is None or models.is_embedded(path) or not self._is_wanted():
            return
        self._asked.add(chat_id)
        self._of = chat_id
        options = session.options_of(conversation)
        if options.thinking is not None or (
            session.engine.model is not None and session.engine.model.chat.thinking == "switch"
        ):
            options = replace(options, thinking=False)
        turns = [*session.turns_of(conversation), {"role": "user", "content": _ORDER}]
        session.engine.link.ask_aside(turns, {"temperature": 0.0}, options, N_TOKEN_MAX)

    def _take(self, text: str) -> None:
        chat_id, self._of = self._of, 0
        title = clean(text)
        row = next((row for row in self._chats.rows() if row.id == chat_id), None)
        if title and row is not None and not row.is_named:
            self._chats.rename(chat_id, title)


def clean(text: str) -> str:
    """Return a title from what a model wrote; "" if that is none."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = line.lstrip(_BEFORE)
    if named := _NAMED.match(line):
        line = line[named.end() :].lstrip(_BEFORE)
    line = line.rstrip(_BEHIND)
    return line if 2 <= len(line) <= TITLE_CHARS else ""
