"""Connects the session with the chat view: transcript, composer, welcome and notices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog

from app.chat.preset_dialog import PresetDialog, name_of, own_name
from app.chat.seen_dialog import SeenDialog
from app.chat.tool_cards import ToolCards
from app.chat.view import ChatView
from app.session import known_models as models
from app.session.attachments import Attachments, DraftFile
from app.session.chats import Chats
from app.session.pictures import Pictures
from app.session.session import Session
from app.session.tools import ToolCalls
from app.state.engine_state import Notice, State
from app.state.preset import NamedPreset, Preset
from app.text import units
from app.widgets import files
from app.widgets.fields import PARAGRAPH_CHARS
from backend.protocol.attachments import Attachment
from backend.protocol.chat import ChatFacts
from backend.system.memory import trim_heap

DRAFT_MS = 400  # after the last key, a draft is written
SHOWN_SHARE = 0.01  # of the context, from which a new chat's draft is shown as use of it
TRIM_MS = 1000  # after the last change of chat, the memory of the chat before is given back


class ChatPage(QObject):
    """The chat view, `view`, and its connections with the session.

    Signals:
        presets_changed: (list of NamedPreset) the user saved or deleted a preset.
    """

    presets_changed = Signal(object)

    def __init__(
        self, session: Session, chats: Chats, calls: ToolCalls, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._chats, self._servers = session, chats, calls.servers
        self.own_presets: list[NamedPreset] = []
        self.attachments = Attachments(session, self)
        self.view = view = ChatView()
        pictures = Pictures(session.engine.link, self)
        view.transcript.pictures = view.composer.chips.pictures = pictures
        self._seen: SeenDialog | None = None
        self._cards = ToolCards(session, calls, view.transcript, self)
        self._servers.changed.connect(self.show_composer)
        view.composer.tools.clicked.connect(self._set_tools)
        engine = session.engine
        engine.state_changed.connect(self._show_state)
        engine.model_changed.connect(self._show_model)
        engine.loading.connect(view.loading.show_progress)
        session.can_send_changed.connect(self._show_state)
        session.message_added.connect(self._message_added)
        session.message_changed.connect(view.transcript.refresh)
        session.conversation_replaced.connect(self._show_conversation)
        session.branch_begun.connect(view.transcript.cut)
        session.spliced.connect(self._spliced)
        session.left_out_changed.connect(
            lambda: view.transcript.mark_left_out(session.conversation.left_out_before)
        )
        session.notice.connect(view.banner.show_notice)
        session.draft_files.connect(self.attachments.put_back)
        session.draft.connect(self._take_draft)
        session.send_again.connect(lambda: self.send(view.composer.input.toPlainText()))
        view.composer.send.connect(self.send)
        view.composer.stop.connect(session.stop)
        view.composer.clip.clicked.connect(self.choose_files)
        view.composer.files_pasted.connect(self.attach)
        view.composer.long_text.connect(self.attach_text)
        view.composer.input.picture_pasted.connect(self.attach_picture)
        view.composer.input.nothing_pasted.connect(self._say_nothing_pasted)
        view.composer.input.undo_pasted.connect(self._undo_paste)
        view.composer.chips.removed.connect(self._remove_file)
        view.composer.chips.fit_wanted.connect(self.attachments.shorten)
        self.attachments.changed.connect(self.show_composer)
        view.composer.preset.clicked.connect(self.edit_preset)
        view.composer.think.button.clicked.connect(self._set_thinking)
        view.composer.think.effort_chosen.connect(self._set_effort)
        view.transcript.inspected.connect(self.inspect)
        view.transcript.go_on.connect(session.go_on)
        view.transcript.unawaited.connect(self._servers.answer_without)
        view.transcript.regenerate.connect(session.regenerate)
        view.transcript.more_wanted.connect(session.more_answers)
        view.transcript.edited.connect(session.edit)
        view.transcript.stepped.connect(chats.switch)
        view.transcript.answer_edited.connect(chats.edit_answer)
        view.transcript.forked.connect(chats.fork)
        view.transcript.deleted.connect(chats.delete_message)
        view.composer.input.last_wanted.connect(view.transcript.edit_last)
        for acted in (
            view.transcript.go_on, view.transcript.regenerate, view.transcript.forked,
            view.transcript.more_wanted, view.transcript.edited, view.transcript.stepped,
            view.transcript.answer_edited, view.transcript.deleted, view.transcript.unawaited,
        ):  # fmt: skip
            acted.connect(lambda *_: view.composer.setFocus())
        view.loading.cancel.connect(engine.cancel_loading)
        view.welcome.suggested.connect(self.send)
        self._trim_timer = QTimer(self, singleShot=True, interval=TRIM_MS)
        self._trim_timer.timeout.connect(self._trim)
        self._kept_draft: tuple[str, list[Attachment]] = ("", [])
        self._draft_of = 0  # the chat whose draft is in the composer
        self._drafted = session.conversation
        self._draft_files: dict[int, list[DraftFile]] = {}
        self._draft_timer = QTimer(self, singleShot=True, interval=DRAFT_MS)
        self._draft_timer.timeout.connect(self.keep_draft)
        view.composer.input.textChanged.connect(self._draft_timer.start)
        view.composer.input.composed.connect(self._draft_timer.start)
        self.attachments.changed.connect(self._draft_timer.start)
        self._show_draft()
        self._show_state()
        self._show_model()

    # Drafts

    def keep_draft(self) -> None:
        """Keep the text in the composer, and what was pasted, with its chat."""
        self._draft_timer.stop()
        text = self.view.composer.input.whole_text
        kept_text, kept_files = self._kept_draft
        self._kept_draft = text, self.attachments.pasted
        if text != kept_text:
            self._chats.keep_draft(self._draft_of, text)
        if self._kept_draft[1] != kept_files:
            self._chats.keep_draft_files(self._draft_of, self._kept_draft[1])
        self.attachments.show_text(text)

    def _show_draft(self) -> None:
        text, pasted = self._kept_draft = self._chats.draft(self._draft_of)
        of_start = [DraftFile(item.name, attachment=item, is_pasted=True) for item in pasted]
        self.attachments.show(self._draft_files.pop(self._draft_of, of_start))
        if text != self.view.composer.input.toPlainText():
            self.view.composer.put_text(text)
        self.keep_draft()

    def _take_draft(self, text: str) -> None:
        """Put a question back into the field, before what was typed since."""
        composer = self.view.composer
        since = composer.input.toPlainText()
        composer.set_text(f"{text}\n\n{since}" if since not in ("", text) else text)
        self.keep_draft()

    def _switch_draft(self) -> None:
        """Show the draft of the shown chat."""
        shown = self._session.conversation.chat_id
        if self._session.conversation is self._drafted:  # its only question was taken back
            self._draft_of = shown
            self.keep_draft()
            text = "" if shown else self._chats.draft(shown)[0]  # with what a new chat had
            if text not in ("", self.view.composer.input.whole_text):
                self._kept_draft = text, self._kept_draft[1]
                self.view.composer.put_text(text)
        self._drafted = self._session.conversation
        if shown != self._draft_of:
            self.view.composer.input.end_composition()
            self.keep_draft()
            self._draft_files[self._draft_of] = self.attachments.files
            self._draft_of = shown
            self._show_draft()

    def send(self, text: str) -> None:
        """Send a message, if that is possible now."""
        if self._session.send(text, self.attachments.attachments):
            self.view.composer.clear()
            self.attachments.clear()
            self.keep_draft()  # the draft was sent, also that of a new chat
            self._draft_of = self._session.conversation.chat_id
            self.view.composer.setFocus()

    def attach(self, paths: list[Path]) -> None:
        """Attach files to the next message."""
        self.attachments.add(paths)
        self.view.composer.setFocus()

    def attach_picture(self, data: bytes) -> None:
        """Attach an image that was copied or dragged."""
        why_not = self.attachments.add_picture(self.tr("Pasted image"), data)
        if why_not:
            self._session.notice.emit(Notice(why_not))
        self.view.composer.input.note_attached()
        self.view.composer.setFocus()

    def _say_nothing_pasted(self) -> None:
        said = self.tr("The clipboard holds neither text, nor an image, nor files.")
        self._session.notice.emit(Notice(said, is_trouble=False))

    def say_remote(self) -> None:
        """Say that nothing is loaded from the web."""
        said = self.tr(
            "The program gave only an address, and nothing is loaded from it. Copy the image there "
            "and paste it here, or save it and drop the file."
        )
        self._session.notice.emit(Notice(said, is_trouble=False))

    def attach_text(self, text: str) -> None:
        """Attach a text that the field has no room for; "": offer to attach the field's text."""
        composer = self.view.composer
        if not text:
            full = self.tr("The field is full: it holds {characters}.").format(
                characters=units.count(PARAGRAPH_CHARS, "character")
            )
            action = self.tr("Attach the text as a file"), self._attach_field
            self._session.notice.emit(Notice(full, (action,), is_trouble=False))
            return
        file = self.attachments.add_text(self.tr("Pasted text"), text)
        composer.input.note_attached()
        size = units.count(len(text), "character")
        said = self.tr("A text of {characters} is attached as a file.").format(characters=size)
        if file.attachment is not None and file.attachment.n_char_left_out:
            most = units.count(len(file.attachment.text), "character")
            said = self.tr(
                "A text of {characters} is too long: its first {most} are attached as a file."
            ).format(characters=size, most=most)
        undo = self.tr("Undo"), self._undo_paste
        self._session.notice.emit(Notice(said, (undo,), is_trouble=False))

    def _attach_field(self) -> None:
        text = self.view.composer.input.toPlainText()
        self._session.engine.dismiss()
        if text:
            self.view.composer.clear()
            self.attach_text(text)
        self.view.composer.setFocus()

    def _undo_paste(self) -> None:
        self._session.engine.dismiss()
        self.attachments.remove_pasted()
        self.view.composer.setFocus()

    def choose_files(self) -> None:
        """Let the user choose files to attach."""
        names, _ = QFileDialog.getOpenFileNames(
            self.view.window(),
            self.tr("Attach files"),
            files.start("files"),
            self.tr("All files (*)"),
        )
        if names:
            files.remember("files", names[0])
            self.attach([Path(name) for name in names])

    def _remove_file(self, file: DraftFile) -> None:
        self.attachments.remove(file)
        if not self.attachments.files:
            self.view.composer.setFocus()

    def retry(self) -> None:
        """Ask for another answer to the last question."""
        messages = self._session.conversation.messages
        last = len(messages) - 1
        if messages and messages[last].role == "assistant" and not messages[last].is_live:
            self._session.regenerate(last)

    def copy_last(self) -> None:
        """Copy the last answer that has a text."""
        messages = reversed(self._session.conversation.messages)
        text = next((m.content for m in messages if m.role == "assistant" and m.content), "")
        if text:
            QGuiApplication.clipboard().setText(text)
            said = self.tr("The last answer is copied.")
            self._session.notice.emit(Notice(said, is_trouble=False))

    def edit_preset(self) -> None:
        """Let the user edit the system prompt and the sampling."""
        session = self._session
        path = session.engine.path
        model = models.title(path) if path is not None else ""
        for_model = session.conversation.preset is None and not session.conversation.messages
        chat = session.engine.model.chat if session.engine.model else ChatFacts()
        dialog = PresetDialog(
            session.preset, model, for_model, self.view.window(), chat,
            self.own_presets, session.engine.asked,
        )  # fmt: skip
        accepted = dialog.exec()
        if dialog.own != self.own_presets:
            self.own_presets = dialog.own
            self.presets_changed.emit(self.own_presets)
        if accepted:
            self.take_preset(dialog.preset, dialog.for_model)
            if dialog.engine:
                session.engine.choose(replace(session.engine.asked, **dialog.engine))
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

    def inspect(self, index: int) -> None:
        """Show the prompt and the raw text of an answer."""
        message = self._session.conversation.messages[index]
        self._seen = dialog = SeenDialog(message.raw_text, self.view.window())
        dialog.finished.connect(self._close_seen)
        dialog.open()

        def show(prompt: str, why_not: str) -> None:
            if self._seen is dialog:
                dialog.show_prompt(prompt, why_not)

        self._session.ask_prompt(index, show)

    def _close_seen(self) -> None:
        if self._seen is not None:
            self._seen.deleteLater()
            self._seen = None
        self.view.composer.setFocus()

    def _set_thinking(self, thinks: bool) -> None:
        """Switch thinking for the open chat. The model's own choice is not stored."""
        of_model = self._session.model_preset.thinking
        usual = self._thinks(self._session.model_preset)
        self._set_own(
            replace(self._session.preset, thinking=of_model if thinks == usual else thinks)
        )

    def _set_tools(self, are_on: bool) -> None:
        self._set_own(replace(self._session.preset, tools=are_on))
        self._session.tools_changed()

    def _set_effort(self, effort: str) -> None:
        self._set_own(replace(self._session.preset, effort=effort))

    def _set_own(self, preset: Preset) -> None:
        """Set the open chat's preset; one that equals the model's is not the chat's own."""
        self._chats.set_preset(preset if preset != self._session.model_preset else None)
        self.show_composer()

    def _thinks(self, preset: Preset) -> bool:
        model = self._session.engine.model
        usual = model is not None and model.chat.thinks_by_default
        return usual if preset.thinking is None else preset.thinking

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
        if name := own_name(preset, self.own_presets):
            words = name
        elif preset.sampling:
            words += f" \u00b7 {name_of(preset)}"
        composer = self.view.composer
        composer.show_preset(words)
        chat = session.engine.model.chat if session.engine.model else ChatFacts()
        servers = self._servers
        has_servers = any(server.is_on for server in servers.settings.servers)
        n_tool = len(servers.tools()) if has_servers else 0
        composer.tools.show_state(
            has_servers, n_tool, chat.tools, preset.tools, self._servers.awaited()
        )
        composer.think.show_state(chat, self._thinks(preset), preset.effort)
        composer.show_state(session.can_send, session.is_answering, hint, self._context_words())
        composer.show_files(self.attachments)

    def _context_words(self) -> str:
        meter = self.view.composer.meter
        n_context = self.attachments.n_context
        # The last token of a full context was drawn but has no place in it.
        used = min(self.attachments.n_used, n_context)
        n_draft = self.attachments.n_token_message
        if not used and n_draft < n_context * SHOWN_SHARE:  # a new chat
            n_draft = 0
        meter.show_use(used + n_draft, n_context)
        if not used + n_draft:
            return ""
        return self.tr("context {used} of {limit}").format(
            used=units.number(used + n_draft), limit=units.number(n_context)
        )

    def _show_state(self) -> None:
        view, engine = self.view, self._session.engine
        state, path = engine.state, engine.path
        view.loading.setVisible(state is State.LOADING)
        if state is State.LOADING and path is not None:
            view.loading.begin(self.tr("Loading {model}").format(model=models.title(path)))
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
        self._switch_draft()
        self._trim_timer.start()
        conversation = self._session.conversation
        self.view.transcript.show_conversation(conversation)
        self.view.show_messages(bool(conversation.messages))
        self.show_composer()

    def _trim(self) -> None:
        self._chats.store.free_memory()
        trim_heap()

    def _spliced(self, index: int, n: int, n_new: int) -> None:
        new = self._session.conversation.messages[index : index + n_new]
        self.view.transcript.splice(index, n, new)

    def _message_added(self, index: int) -> None:
        self.view.transcript.add(self._session.conversation.messages[index])
        self.view.show_messages(True)
