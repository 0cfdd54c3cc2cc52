"""Connects the session with the chat view: transcript, composer, welcome and notices."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.chat.preset_dialog import PresetDialog, name_of
from app.chat.view import ChatView
from app.session import known_models as models
from app.session.chats import Chats
from app.session.session import Session
from app.state.engine_state import State
from app.state.preset import Preset
from app.text import units


class ChatPage(QObject):
    """The chat view, `view`, and its connections with the session."""

    def __init__(self, session: Session, chats: Chats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._chats = session, chats
        self.view = view = ChatView()
        engine = session.engine
        engine.state_changed.connect(self._show_state)
        engine.model_changed.connect(self._show_model)
        engine.loading.connect(view.loading.show_progress)
        session.can_send_changed.connect(self._show_state)
        session.message_added.connect(self._message_added)
        session.message_changed.connect(view.transcript.refresh)
        session.conversation_replaced.connect(self._show_conversation)
        session.branch_begun.connect(view.transcript.cut)
        session.notice.connect(view.banner.show_notice)
        session.draft.connect(view.composer.set_text)
        session.send_again.connect(lambda: self.send(view.composer.input.toPlainText()))
        view.composer.send.connect(self.send)
        view.composer.stop.connect(session.stop)
        view.composer.preset.clicked.connect(self.edit_preset)
        view.transcript.go_on.connect(session.go_on)
        view.transcript.regenerate.connect(session.regenerate)
        view.transcript.edited.connect(session.edit)
        view.transcript.stepped.connect(chats.switch)
        for acted in (
            view.transcript.go_on, view.transcript.regenerate,
            view.transcript.edited, view.transcript.stepped,
        ):  # fmt: skip
            acted.connect(lambda *_: view.composer.setFocus())
        view.loading.cancel.connect(engine.cancel_loading)
        view.welcome.suggested.connect(self.send)
        self._show_state()
        self._show_model()

    def send(self, text: str) -> None:
        """Send a message, if that is possible now."""
        if self._session.send(text):
            self.view.composer.clear()
            self.view.composer.setFocus()

    def edit_preset(self) -> None:
        """Let the user edit the system prompt and the sampling."""
        session = self._session
        path = session.engine.path
        model = models.title(path) if path is not None else ""
        for_model = session.conversation.preset is None and not session.conversation.messages
        dialog = PresetDialog(session.preset, model, for_model, self.view.window())
        if dialog.exec():
            self.take_preset(dialog.preset, dialog.for_model)
        dialog.deleteLater()
        self.view.composer.setFocus()

    def edit_any_preset(self) -> None:
        """Let the user edit the default preset of models without their own."""
        dialog = PresetDialog(self._chats.any_preset, "", False, self.view.window())
        dialog.hide_choice()
        if dialog.exec():
            self._chats.set_any_preset(dialog.preset)
            self.show_composer()
        dialog.deleteLater()

    def take_preset(self, preset: Preset, for_model: bool) -> None:
        """Set a preset for the open chat, or for all chats with the model."""
        if for_model:
            self._chats.set_model_preset(preset)
            self._chats.set_preset(None)
        else:
            self._chats.set_preset(preset)
        self.show_composer()

    def show_composer(self) -> None:
        """Show whether a message can be sent, and how full the context is."""
        session = self._session
        hints = {
            State.EMPTY: self.tr("No model is loaded"),
            State.LOADING: self.tr("The model is loading"),
            State.CHANGING: self.tr("The engine is changing its settings"),
            State.STOPPING: self.tr("Stopping"),
            State.DEAD: self.tr("The engine is not running"),
        }
        hint = hints.get(session.engine.state, "")
        preset = session.preset
        words = self.tr("System prompt set") if preset.system else self.tr("System prompt")
        if preset.sampling:
            words += f" \u00b7 {name_of(preset)}"
        composer = self.view.composer
        composer.show_preset(words)
        composer.show_state(session.can_send, session.is_answering, hint or self._context_words())

    def _context_words(self) -> str:
        session, meter = self._session, self.view.composer.meter
        last = session.conversation.last
        if last is None or last.statistics is None or session.engine.model is None:
            meter.show_use(0, 0)
            return ""
        used = last.statistics.n_prompt + last.statistics.n_token
        meter.show_use(used, session.engine.n_context)
        return self.tr("context {used} of {limit}").format(
            used=units.number(used), limit=units.count(session.engine.n_context, "token")
        )

    def _show_state(self) -> None:
        view, engine = self.view, self._session.engine
        state, path = engine.state, engine.path
        view.loading.setVisible(state is State.LOADING)
        if state is State.LOADING and path is not None:
            view.loading.begin(models.title(path))
        self.show_composer()
        self._show_welcome()

    def _show_model(self) -> None:
        self._show_welcome()
        self.show_composer()

    def _show_welcome(self) -> None:
        engine = self._session.engine
        embedded = engine.path is not None and models.is_embedded(engine.path)
        self.view.welcome.show_model(engine.model, engine.state is State.LOADING, embedded)

    def _show_conversation(self) -> None:
        conversation = self._session.conversation
        self.view.transcript.show_conversation(conversation)
        self.view.show_messages(bool(conversation.messages))
        self.show_composer()

    def _message_added(self, index: int) -> None:
        self.view.transcript.add(self._session.conversation.messages[index])
        self.view.show_messages(True)
