"""Write a session's messages to the store as they grow, and list the chats."""

from __future__ import annotations

import bisect
import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal

from app.session.session import Session
from app.state.conversation import Conversation, Ending, Message
from app.state.engine_state import Notice
from app.state.preset import Preset
from app.store.chats import ChatRow, ChatStore, title_of
from app.store.schema import StoreError
from backend.protocol.attachments import Attachment
from backend.text import text

ANY_MODEL = ""  # the store's key for the preset of models without their own
SAVE_MS = 250  # between two writes of a growing answer


class _Lengths(NamedTuple):
    """Characters of a message's parts."""

    reasoning: int = 0
    content: int = 0
    raw: int = 0
    calls: int = 0


_NOTHING = _Lengths()


def _lengths(message: Message) -> _Lengths:
    calls = sum(len(call.name) + len(call.arguments) + 1 for call in message.tool_calls)
    return _Lengths(len(message.reasoning), len(message.content), len(message.raw_text), calls)


class Chats(QObject):
    """The bridge between a session and the store.

    Connect it to the session before any widget that shows messages, so that a message is on disk
    before it is shown. `trouble` is emitted once when the store begins to fail. A question that
    cannot be written is not sent, unless the user insists; the missed messages are written with the
    next one that succeeds.

    Signals:
        list_changed: the chats, their names, pins or order changed.
        trouble: (str) one sentence.
    """

    list_changed = Signal()
    trouble = Signal(object)

    def __init__(self, session: Session, store: ChatStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.store = store
        self._saved: dict[int, _Lengths] = {}  # message id -> its contents on disk
        self._is_failing = False
        self._why = ""  # reason of the last failure; "" after a success
        session.why_not_kept = lambda message: "" if message.id else self._why
        session.owner_of = self._owner_of
        self._rows: list[ChatRow] | None = None
        self.plain: Callable[[str], str] = str
        """Return a passage of an answer as it is shown, without the signs of Markdown."""
        self.is_cut = False
        """Whether the last rows() left out chats that may match."""
        self._timer = QTimer(self, singleShot=True, interval=SAVE_MS)
        self._timer.timeout.connect(self._save_growth)
        session.added.connect(self._on_added)
        session.changed.connect(self._on_changed)
        session.withdrawn.connect(self._on_withdrawn)
        session.engine.model_changed.connect(self._on_model_changed)
        session.busy_changed.connect(self.list_changed)
        with contextlib.suppress(StoreError):  # of chats that went without a worker
            known = {self._owner_of(row.id) for row in store.chats()}
            self._delete_states(lambda name: name not in known)

    @property
    def open_id(self) -> int:
        """Return the id of the shown chat; 0 if it is not in the store."""
        return self._session.conversation.chat_id

    @property
    def busy(self) -> set[int]:
        """Return the ids of the chats with an answer in progress or in the queue."""
        return self._session.busy_chats

    def n_saved(self, message: Message) -> int:
        """Return the number of characters of a message's content that are on disk."""
        return self._saved.get(message.id, _NOTHING).content

    # Actions of the user

    def rows(self, search: str = "") -> list[ChatRow]:
        """Return the list, or the chats that contain the words of `search`."""
        self.is_cut = False
        try:
            if self._rows is None:
                self._rows = self.store.chats()
            if not search.strip():
                return self._rows
            by_id = {row.id: row for row in self._rows}
            results = self.store.search(search, self.plain)
            self.is_cut = results.is_cut
            return [
                replace(
                    row, snippet=found.snippet, message_id=found.message_id, marked=found.marked
                )
                for found in results
                if (row := by_id.get(found.chat_id)) is not None
            ]
        except StoreError as error:
            self._report_failure(error)
            return self._rows or []

    def open(self, chat_id: int, message_id: int = 0) -> bool:
        """Show a chat, in the branch of a message. Return False if it no longer exists."""
        shown = self._session.conversation.messages
        if chat_id == self.open_id and (
            not message_id or any(message.id == message_id for message in shown)
        ):
            return True
        conversation = self._session.under_way(chat_id)
        if conversation is None:
            conversation = self._load(chat_id)
            if conversation is not None and message_id:
                if all(message.id != message_id for message in conversation.messages):
                    self._attempt(lambda: self.store.activate(chat_id, message_id))
                    conversation = self._load(chat_id)
        if conversation is not None:
            self._session.show(conversation)
            self._warm()
            self.list_changed.emit()
        return conversation is not None

    def switch(self, index: int, step: int) -> None:
        """Show another branch at a message of the open chat."""
        message = self._session.conversation.messages[index]
        if not message.id or message.branch[1] < 2:
            return
        number, count = message.branch
        target = (number - 1 + step) % count + 1
        beside = self._session.written_jointly(self.open_id, target)
        if beside is not None and len(beside.messages) == index + 1:
            self._attempt(lambda: self.store.switch(self.open_id, message.id, step))
            self._session.show(beside)
            return
        if self._session.written_jointly(self.open_id, 0) is None:  # those go on
            self._session.stop()
        if not self._attempt(lambda: self.store.switch(self.open_id, message.id, step)):
            return
        conversation = self._load(self.open_id)
        if conversation is not None:
            self._session.show(conversation)

    def edit_answer(self, index: int, words: str) -> None:
        """Show another version of an answer, with this text. The present one stays as a branch.

        Its thought and calls stay. What is below it follows in both versions.
        """
        words, conversation = words.strip(), self._session.conversation
        old = conversation.messages[index]
        is_other = words != old.content and bool(words or old.tool_calls)
        if not is_other or not self._may_change(index):
            return
        rest = conversation.messages[index + 1 :]
        new = replace(
            old, content=words, raw=None, ending=Ending.STOPPED, statistics=None, n_token_before=0,
            note=text("chats.edited"), is_joint=False, call_states={},
        )  # fmt: skip
        if self._attempt(lambda: self.store.add_version(conversation.chat_id, old, new, rest)):
            self._saved |= {message.id: _lengths(message) for message in (new, *rest)}
            self._session.splice(index, 1, [new])
            self._number_branches()
            self._move_to_head(conversation)

    def delete_message(self, index: int) -> None:
        """Delete a message, an answer with the results of its calls; show a notice with Undo."""
        if not self._may_change(index):
            return
        conversation = self._session.conversation
        messages = conversation.messages
        end = index + 1
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        gone = messages[index:end]
        if len(gone) == len(messages) and gone[0].branch[1] == 1:
            self.delete(conversation.chat_id)
            return
        try:
            ids = [message.id for message in gone]
            removed = self.store.remove(conversation.chat_id, ids)
        except StoreError as error:
            self._report_failure(error)
            return
        self._splice_to_store(index, len(gone), [])

        def undo() -> None:
            if self._attempt(lambda: self.store.put_back(removed)):
                if self.open_id == removed.chat_id:
                    self._splice_to_store(index, 0, gone)

        sentence = self.tr("The message was deleted.")
        self._session.notice.emit(Notice(sentence, ((self.tr("Undo"), undo),), is_trouble=False))

    def fork(self, index: int) -> None:
        """Open a new chat with copies of the messages up to this one."""
        conversation = self._session.conversation
        titles = {row.title for row in self.rows()}
        numbered = (f"{conversation.title} ({n})" for n in range(2, len(titles) + 3))
        title = next(title for title in numbered if title not in titles)
        if not self._may_change(index, stops=False):
            return
        try:
            chat_id = self.store.copy(title, conversation, index + 1)
        except StoreError as error:
            self._report_failure(error)
            return
        self._list_changed()
        self.open(chat_id)

    def _may_change(self, index: int, stops: bool = True) -> bool:
        """Return whether a message is in the store; stops: end the answer in progress before."""
        messages = self._session.conversation.messages
        message = messages[index]
        if stops:
            self._session.stop()
        if index >= len(messages) or messages[index] is not message:
            return False  # a question without an answer went back into the field
        if not message.id:
            self._session.notice.emit(Notice(self.tr("This message is not kept in a file.")))
        return bool(message.id)

    def _splice_to_store(self, index: int, n: int, new: list[Message]) -> None:
        """Show what the store has after a change of the open chat, in place where possible."""
        shown = list(self._session.conversation.messages)
        shown[index : index + n] = new
        kept = self._load(self.open_id)
        if kept is None:
            return
        if [message.id for message in kept.messages] == [message.id for message in shown]:
            self._session.splice(index, n, new)
            self._number_branches(kept)
        else:
            self._session.show(kept)
        self._list_changed()

    def _number_branches(self, kept: Conversation | None = None) -> None:
        """Take the numbers of the branches over from the store, and show those that changed."""
        kept = kept or self._load(self.open_id)
        shown = self._session.conversation.messages
        for index, (now, then) in enumerate(
            zip(shown, kept.messages if kept else (), strict=False)
        ):
            if now.branch != then.branch:
                now.branch = then.branch
                self._session.message_changed.emit(index)

    def step(self, step: int) -> None:
        """Show the chat below (1) or above (-1) the open one in the list; a new one is on top."""
        ids = [row.id for row in self.rows()]
        place = (ids.index(self.open_id) if self.open_id in ids else -1) + step
        if 0 <= place < len(ids):
            self.open(ids[place])

    def rename(self, chat_id: int, title: str) -> None:
        """Rename a chat."""
        title = " ".join(title.split())
        if title and self._attempt(lambda: self.store.rename(chat_id, title)):
            if chat_id == self.open_id:
                self._session.conversation.title = title
            self._list_changed()

    def pin(self, chat_id: int, is_pinned: bool) -> None:
        """Pin a chat to the head of the list, or unpin it."""
        if self._attempt(lambda: self.store.pin(chat_id, is_pinned)):
            self._list_changed()

    def folders(self) -> list[str]:
        """Return the names of the folders, sorted."""
        return sorted({row.folder for row in self.rows() if row.folder}, key=str.casefold)

    def move(self, chat_id: int, folder: str) -> None:
        """Put a chat into a folder; "": into none."""
        if self._attempt(lambda: self.store.set_folder(chat_id, folder)):
            self._list_changed()

    def rename_folder(self, folder: str, name: str) -> None:
        """Rename a folder; "": its chats leave it."""
        if self._attempt(lambda: self.store.rename_folder(folder, name)):
            self._list_changed()

    def draft(self, chat_id: int) -> tuple[str, list[Attachment]]:
        """Return what was typed and pasted in a chat but not sent; 0: in a new chat."""
        try:
            return self.store.draft(chat_id), self.store.draft_files(chat_id)
        except StoreError as error:
            self._report_failure(error)
            return "", []

    def keep_draft(self, chat_id: int, text: str) -> None:
        """Keep the text typed in a chat but not sent."""
        self._attempt(lambda: self.store.set_draft(chat_id, text))

    def keep_draft_files(self, chat_id: int, pasted: Sequence[Attachment]) -> None:
        """Keep what was pasted in a chat but not sent."""
        self._attempt(lambda: self.store.set_draft_files(chat_id, pasted))

    def delete(self, chat_id: int) -> None:
        """Delete a chat, and show a notice with Undo."""
        row = next((row for row in self.rows() if row.id == chat_id), None)
        was_open = chat_id == self.open_id
        self._session.stop_chat(chat_id)
        self._save_growth()
        if row is None or not self._attempt(lambda: self.store.delete(chat_id)):
            return
        if was_open:
            self._session.show(Conversation())
        self._forget_state(chat_id)
        self._list_changed()

        def undo() -> None:
            if self._attempt(lambda: self.store.restore(chat_id)):
                self._list_changed()
                if was_open:
                    self.open(chat_id)

        sentence = self.tr("\u201c{chat}\u201d was deleted.").format(chat=row.title)
        self._session.notice.emit(Notice(sentence, ((self.tr("Undo"), undo),), is_trouble=False))

    def set_preset(self, preset: Preset | None) -> None:
        """Set the open chat's own system prompt and sampling; None: use the model's."""
        conversation = self._session.conversation
        conversation.preset = preset
        if conversation.chat_id:
            self._attempt(lambda: self.store.set_preset(conversation.chat_id, preset))

    def set_model_preset(self, preset: Preset) -> None:
        """Set the default preset of chats with this model."""
        self._session.model_preset = preset
        model = self._model_name()
        if model:
            self._attempt(lambda: self.store.set_model_preset(model, preset))

    @property
    def any_preset(self) -> Preset:
        """Return the default preset of models without their own."""
        try:
            return self.store.model_preset(ANY_MODEL)
        except StoreError as error:
            self._report_failure(error)
            return Preset()

    def set_any_preset(self, preset: Preset) -> None:
        """Set the default preset of models without their own."""
        self._attempt(lambda: self.store.set_model_preset(ANY_MODEL, preset))
        self._on_model_changed()

    def reload_list(self) -> None:
        """Reload the list after an import."""
        self._list_changed()

    def close(self) -> None:
        """Write the rest and close the file."""
        self._timer.stop()
        self._save_growth()
        self.store.close()

    # Reactions to the session

    def _on_added(self, conversation: Conversation, _: int) -> None:
        """Write a new message, and the messages that were missed, before they are shown."""
        try:
            if not conversation.chat_id:
                first = conversation.messages[0]
                names = ", ".join(file.name for file in first.attachments)
                conversation.title = title_of(first.content or names)
                conversation.chat_id = self.store.new_chat(conversation.title, conversation.preset)
            parent = 0
            for message in conversation.messages:
                if not message.id:
                    self.store.add(conversation.chat_id, parent, message)
                    self._saved[message.id] = _lengths(message)
                parent = message.id
            self._note_success()
        except StoreError as error:
            self._report_failure(error)
        self._move_to_head(conversation)

    def _on_changed(self, conversation: Conversation, message: Message) -> None:
        if message.is_live:
            saved = self._saved.get(message.id, _NOTHING)
            if any(now < before for now, before in zip(_lengths(message), saved, strict=True)):
                self._save(message)  # the parts that cannot be continued were removed
            elif not self._timer.isActive():
                self._timer.start()
            return
        self._save(message)
        if conversation.slides:
            self._attempt(lambda: self.store.set_slides(conversation.chat_id, True))

    def _save_growth(self) -> None:
        for message in self._session.growing:
            saved, now = self._saved.get(message.id, _NOTHING), _lengths(message)
            if message.id and saved != now and self._append(message, saved):
                self._saved[message.id] = now

    def _append(self, message: Message, saved: _Lengths) -> bool:
        if message.tool_calls:  # their arguments are short
            return self._attempt(lambda: self.store.save(message, durable=False))
        grown = (
            message.reasoning[saved.reasoning :],
            message.content[saved.content :],
            message.raw_text[saved.raw :],
        )
        return self._attempt(lambda: self.store.append(message.id, *grown))

    def _save(self, message: Message) -> None:
        if message.id and self._attempt(lambda: self.store.save(message)):
            self._saved[message.id] = _lengths(message)

    def _on_withdrawn(self, messages: list[Message]) -> None:
        conversation = self._session.conversation
        if conversation.chat_id:
            self._attempt(lambda: self.store.withdraw(conversation.chat_id, messages))
            if not conversation.messages:
                conversation.chat_id = 0
            self._list_changed()

    def _on_model_changed(self) -> None:
        model = self._model_name()
        if model and self._session.engine.model is not None:
            self._warm()
            try:
                self._session.model_preset = self._preset_of(model)
            except StoreError as error:
                self._report_failure(error)

    def _preset_of(self, model: str) -> Preset:
        """Return the default preset of a model: its own, or that of all models."""
        own = self.store.model_preset(model)
        return own if own != Preset() else self.store.model_preset(ANY_MODEL)

    def _model_name(self) -> str:
        return self._session.engine.path.name if self._session.engine.path is not None else ""

    # States on the drive (backend.engine.keeping)

    def _owner_of(self, chat_id: int) -> str:
        """Return the owner of a chat's state; "" if the chat itself is not on the drive."""
        return f"chat-{chat_id}" if chat_id and self.store.is_kept else ""

    def _warm(self) -> None:
        """Have the experts fetched that the shown chat used, while the user types."""
        if owner := self._owner_of(self.open_id):
            self._session.engine.link.warm(owner)

    def _forget_state(self, chat_id: int) -> None:
        """Delete the state of a chat, with and without a worker."""
        if owner := self._owner_of(chat_id):
            self._session.engine.link.forget(owner)
            self._delete_states(lambda name: name == owner)

    def _delete_states(self, is_gone: Callable[[str], bool]) -> None:
        if self.store.path is not None:
            for folder in self.store.path.with_name("states").glob("chat-*"):
                if is_gone(folder.name):
                    shutil.rmtree(folder, ignore_errors=True)

    # Helpers

    def _load(self, chat_id: int) -> Conversation | None:
        self._save_growth()
        try:
            conversation = self.store.load(chat_id)
        except StoreError as error:
            self._report_failure(error)
            return None
        growing = {message.id for message in self._session.growing}
        self._saved = {key: n for key, n in self._saved.items() if key in growing}
        if conversation is not None:
            self._saved |= {item.id: _lengths(item) for item in conversation.messages}
        return conversation

    def _attempt(self, action: object) -> bool:
        assert callable(action)
        try:
            action()
        except StoreError as error:
            self._report_failure(error)
            return False
        self._note_success()
        return True

    def _note_success(self) -> None:
        self._is_failing, self._why = False, ""

    def _report_failure(self, error: StoreError) -> None:
        self._why = str(error)
        if not self._is_failing:
            self._is_failing = True
            self.trouble.emit(str(error))

    def _move_to_head(self, conversation: Conversation) -> None:
        """Move a chat to the head of its part of the list, without reading the list."""
        rows = self._rows
        if rows is None or not conversation.chat_id:
            return self._list_changed()
        old = next((row for row in rows if row.id == conversation.chat_id), None)
        new = replace(
            old or ChatRow(conversation.chat_id, conversation.title, False, 0.0, is_named=False),
            changed_s=time.time(),
        )
        rest = [row for row in rows if row is not old]
        bisect.insort(rest, new, key=lambda row: row.order)
        self._rows = rest
        self.list_changed.emit()

    def _list_changed(self) -> None:
        self._rows = None
        self.list_changed.emit()
