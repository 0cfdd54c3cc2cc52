"""The files that the user is about to send: read by the worker, measured in tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.session.session import Session
from app.text.messages import localized
from backend.protocol.attachments import Attachment, plain_name
from backend.text import text

N_FILE_MAX = 20
CHARS_PER_TOKEN = 4  # until the engine has counted
FRAME_TOKENS = 16  # of a file's name and its fence, until then
IMAGE_TOKENS = 256  # of an image, until then
ANSWER_SHARE = 0.25  # of the context: room for the question and the answer


@dataclass
class DraftFile:
    """One of these files. While it is being read, `reading` is the number of the request."""

    name: str
    reading: int = 0
    counting: int = 0  # number of the request
    n_page_read: int = 0
    n_page: int = 0
    attachment: Attachment | None = None
    refusal: str = ""  # one sentence: why it cannot be attached
    n_token: int = 0  # 0: not counted

    @property
    def is_image(self) -> bool:
        """Return whether it is an image."""
        return self.attachment is not None and self.attachment.kind == "image"

    @property
    def n_token_about(self) -> int:
        """Return the tokens, or an estimate before they are counted."""
        if self.attachment is None:
            return 0
        if self.is_image:
            return self.n_token or IMAGE_TOKENS
        return self.n_token or len(self.attachment.text) // CHARS_PER_TOKEN + FRAME_TOKENS


class Attachments(QObject):
    """The files in the composer.

    Signals:
        changed: a file was added, read, counted or removed, or the context changed.
    """

    changed = Signal()

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.files: list[DraftFile] = []
        self._session, self._engine = session, session.engine
        self._link = link = session.engine.link
        self._counted_for: Path | None = None
        link.attaching.connect(self._on_progress)
        link.attached.connect(self._on_read)
        link.counted.connect(self._on_counted)
        link.died.connect(self._on_died)
        session.engine.model_changed.connect(self._on_model_changed)

    # Actions of the user

    def add(self, paths: list[Path]) -> None:
        """Begin to read files."""
        for path in paths:
            file = DraftFile(plain_name(path.name))
            self.files.append(file)
            if len(self.files) > N_FILE_MAX:
                file.refusal = localized(text("attach.too_many", file=file.name, most=N_FILE_MAX))
            else:
                file.reading = self._link.attach(path)
        self.changed.emit()

    def put_back(self, attachments: list[Attachment]) -> None:
        """Show files again that were not sent."""
        self.files = [DraftFile(item.name, attachment=item) for item in attachments]
        self._count()
        self.changed.emit()

    def show(self, files: list[DraftFile]) -> None:
        """Show the files of another draft."""
        if files or self.files:
            self.files = files
            self._count()
            self.changed.emit()

    def remove(self, file: DraftFile) -> None:
        """Remove a file. Stop reading it."""
        self.files.remove(file)
        if file.reading:
            self._link.cancel(file.reading)
        self.changed.emit()

    def clear(self) -> None:
        """Remove all files, after they were sent."""
        self.files = []
        self.changed.emit()

    def shorten(self) -> None:
        """Keep as much of the largest files as fits into the context."""
        files = [file for file in self.files if file.attachment is not None]
        images = [file for file in files if file.is_image]
        room = self._room - sum(file.n_token_about for file in images)
        files = [file for file in files if not file.is_image]
        files.sort(key=lambda file: file.n_token_about)
        for index, file in enumerate(files):
            share = room // (len(files) - index)
            if file.attachment is not None and file.n_token_about > share:
                file.attachment = _beginning(file.attachment, share / file.n_token_about)
                file.n_token = file.counting = 0
            room -= min(file.n_token_about, share)
        self._count()
        self.changed.emit()

    # State to show

    @property
    def attachments(self) -> list[Attachment]:
        """Return the files to send."""
        return [file.attachment for file in self.files if file.attachment is not None]

    @property
    def is_reading(self) -> bool:
        """Return whether a file is being read."""
        return any(file.reading for file in self.files)

    def is_unseen(self, file: DraftFile) -> bool:
        """Return whether a file is an image and the loaded model cannot see images."""
        model = self._engine.model
        return file.is_image and model is not None and not model.chat.images

    @property
    def has_unseen(self) -> bool:
        """Return whether an image cannot be sent to the loaded model."""
        return any(map(self.is_unseen, self.files))

    @property
    def n_token(self) -> int:
        """Return the tokens of all files, perhaps estimated."""
        return sum(file.n_token_about for file in self.files)

    @property
    def n_context(self) -> int:
        """Return the length of the context in tokens; 0 without a model."""
        return self._engine.n_context if self._engine.model is not None else 0

    @property
    def fits(self) -> bool:
        """Return whether the files fit into an empty context, or no model is loaded."""
        return self.n_context == 0 or self.n_token < self.n_context

    @property
    def fits_into_chat(self) -> bool:
        """Return whether the files fit behind the present chat, or no model is loaded."""
        if not self.attachments:
            return True
        return self.n_context == 0 or self.n_token + self._n_used < self.n_context

    @property
    def _n_used(self) -> int:
        last = self._session.conversation.last
        statistics = last.statistics if last is not None else None
        return statistics.n_prompt + statistics.n_token if statistics is not None else 0

    @property
    def _room(self) -> int:
        n_free = self.n_context - round(self.n_context * ANSWER_SHARE)
        return n_free if not self.fits else max(n_free - self._n_used, n_free // 4)

    # The worker

    def _on_progress(self, number: int, done: int, total: int) -> None:
        for file in self.files:
            if file.reading == number:
                file.n_page_read, file.n_page = done, total
                self.changed.emit()

    def _on_read(self, number: int, attachment: Attachment | None, refusal: str) -> None:
        for file in self.files:
            if file.reading == number:
                file.reading, file.attachment = 0, attachment
                file.refusal = localized(refusal)
                self._count()
                self.changed.emit()

    def _count(self) -> None:
        """Let the engine count the attachments not counted yet. It answers when it is free."""
        if self._engine.model is None:
            return
        for file in self.files:
            if file.attachment is not None and not file.n_token and not file.counting:
                if not self.is_unseen(file):
                    file.counting = self._link.count(file.attachment.to_part())

    def _on_counted(self, number: int, n_token: int) -> None:
        for file in self.files:
            if file.counting == number:
                file.counting, file.n_token = 0, n_token
                self.changed.emit()

    def _on_model_changed(self) -> None:
        path = self._engine.path if self._engine.model is not None else None
        if path != self._counted_for:
            self._counted_for = path
            for file in self.files:
                file.n_token = file.counting = 0
            self._count()
        self.changed.emit()

    def _on_died(self, sentence: str) -> None:
        """Give up the attachments that the worker was reading.

        It counts again with the next model.
        """
        self._counted_for = None
        for file in self.files:
            file.counting = 0
            if file.reading:
                file.reading = 0
                file.refusal = localized(text("attach.stopped", file=file.name))
        self.changed.emit()


def _beginning(attachment: Attachment, share: float) -> Attachment:
    """Return the beginning of a file, up to the end of a line."""
    whole = attachment.text
    cut = whole[: int(len(whole) * max(share * 0.97, 0))]  # lines differ in tokens per character
    cut = cut[: cut.rfind("\n") + 1] or cut
    n_left_out = attachment.n_char_left_out + len(whole) - len(cut)
    return replace(attachment, text=cut, n_char_left_out=n_left_out)
