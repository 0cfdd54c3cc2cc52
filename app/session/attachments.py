"""The files that the user is about to send: read by the worker, measured in tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from PySide6.QtCore import QObject, Signal

from app.session.session import Session
from app.text.messages import localized
from backend.protocol.attachments import TEXT_CHARS_MAX, Attachment, plain_name
from backend.text import text

N_FILE_MAX = 20
CHARS_PER_TOKEN = 4  # until the engine has counted
FRAME_TOKENS = 16  # of a file's name and its fence, until then
IMAGE_TOKENS = 256  # of an image, until then
KEPT_CHARS = 12 << 20  # of what was pasted into a draft
COUNTED_SHARE = 0.1  # of the context: a question with more characters is counted
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
    is_pasted: bool = False  # it is nowhere else, so it is kept with the draft
    folder: TemporaryDirectory[str] | None = None  # with a pasted image, until it is read

    def forget_folder(self) -> None:
        """Delete the folder."""
        if self.folder is not None:
            self.folder.cleanup()
            self.folder = None

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
        frame = FRAME_TOKENS if self.name else 0
        return self.n_token or len(self.attachment.text) // CHARS_PER_TOKEN + frame


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
        self._text = DraftFile("")  # the question in the field, counted as a file is
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
            if self._append(file):
                file.reading = self._link.attach(path)
        self.changed.emit()

    def _append(self, file: DraftFile) -> bool:
        """Add a file. Return False if there are too many, which it says."""
        self.files.append(file)
        if len(self.files) > N_FILE_MAX:
            file.refusal = localized(text("attach.too_many", file=file.name, most=N_FILE_MAX))
            file.attachment = None
        return not file.refusal

    def add_text(self, name: str, contents: str) -> DraftFile:
        """Attach a text as a file; of a very long one the beginning."""
        name = self._free_name(name, ".txt")
        whole = contents.encode("utf-8", "replace").decode()  # without half characters
        kept = whole[:TEXT_CHARS_MAX]
        attachment = Attachment(name, "text", kept, n_char_left_out=len(whole) - len(kept))
        file = DraftFile(name, attachment=attachment, is_pasted=True)
        self._append(file)
        self._count()
        self.changed.emit()
        return file

    def add_picture(self, name: str, data: bytes) -> str:
        """Begin to read an image that is in no file. Return "", or a sentence why not."""
        name = self._free_name(name, "")
        try:
            # Until it is read. The process that reads files is given a path.
            folder = TemporaryDirectory(prefix="outrider-", ignore_cleanup_errors=True)
            path = Path(folder.name, name)
            path.write_bytes(data)
        except OSError as error:
            reason = error.strerror or str(error)
            return localized(text("attach.unreadable", file=name, reason=reason))
        file = DraftFile(name, is_pasted=True, folder=folder)
        if self._append(file):
            file.reading = self._link.attach(path)
        else:
            file.forget_folder()
        self.changed.emit()
        return ""

    def _free_name(self, name: str, ending: str) -> str:
        taken = {file.name for file in self.files}
        numbers = (f"{name} {n}{ending}" for n in range(2, len(taken) + 3))
        return next(one for one in (f"{name}{ending}", *numbers) if one not in taken)

    def remove_pasted(self) -> None:
        """Remove what was pasted last."""
        if pasted := [file for file in self.files if file.is_pasted]:
            self.remove(pasted[-1])

    def show_text(self, question: str) -> None:
        """Count the question in the field. A short one is estimated."""
        if question == self.text:
            return
        kept = Attachment("", "text", question) if question else None
        self._text = DraftFile("", attachment=kept)
        self._count()
        self.changed.emit()

    def put_back(self, attachments: list[Attachment]) -> None:
        """Show files again that were not sent."""
        since = [file for file in self.files if file.attachment not in attachments]
        back = [DraftFile(item.name, attachment=item, is_pasted=True) for item in attachments]
        self.files = back + since
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
        file.forget_folder()
        if file.reading:
            self._link.cancel(file.reading)
        self.changed.emit()

    def clear(self) -> None:
        """Remove all files and the question, after they were sent."""
        self.files, self._text = [], DraftFile("")
        self.changed.emit()

    def shorten(self) -> None:
        """Keep as much of the largest files as fits into the context."""
        files = [file for file in self.files if file.attachment is not None]
        images = [file for file in files if file.is_image]
        room = self._room - sum(file.n_token_about for file in (*images, self._text))
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
    def pasted(self) -> list[Attachment]:
        """Return the files that are nowhere else, to keep them with the draft.

        They are written and read at once, so there are at most KEPT_CHARS.
        """
        kept: list[Attachment] = []
        room = KEPT_CHARS
        for file in self.files:
            if file.is_pasted and file.attachment is not None:
                room -= len(file.attachment.text) + len(file.attachment.data)
                if room >= 0:
                    kept.append(file.attachment)
        return kept

    @property
    def text(self) -> str:
        """Return the question in the field, as it was counted last."""
        return self._text.attachment.text if self._text.attachment is not None else ""

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
    def n_token_message(self) -> int:
        """Return the tokens of all files and of the question, perhaps estimated."""
        return self.n_token + self._text.n_token_about

    @property
    def n_context(self) -> int:
        """Return the length of the context in tokens; 0 without a model."""
        return self._engine.n_context if self._engine.model is not None else 0

    @property
    def fits(self) -> bool:
        """Return whether they fit into an empty context, or no model is loaded."""
        return self.n_context == 0 or self.n_token_message < self.n_context

    @property
    def fits_into_chat(self) -> bool:
        """Return whether they fit behind the present chat, or no model is loaded.

        A chat whose middle may be left out makes room for a question.
        """
        if not self.attachments and (not self.text or self._session.conversation.slides):
            return self.fits
        return self.n_context == 0 or self.n_token_message + self.n_used < self.n_context

    @property
    def n_used(self) -> int:
        """Return the tokens of the present chat; 0 if they are not known."""
        last = self._session.conversation.last
        statistics = last.statistics if last is not None else None
        return statistics.n_prompt + statistics.n_token if statistics is not None else 0

    @property
    def _room(self) -> int:
        n_free = self.n_context - round(self.n_context * ANSWER_SHARE)
        return n_free if not self.fits else max(n_free - self.n_used, n_free // 4)

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
                file.forget_folder()
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
        if len(self.text) > self.n_context * COUNTED_SHARE and not self._text.counting:
            self._text.counting = self._link.count({"type": "text", "text": self.text})

    def _on_counted(self, number: int, n_token: int) -> None:
        for file in (*self.files, self._text):
            if file.counting == number:
                file.counting, file.n_token = 0, n_token
                self.changed.emit()

    def _on_model_changed(self) -> None:
        path = self._engine.path if self._engine.model is not None else None
        if path != self._counted_for:
            self._counted_for = path
            for file in (*self.files, self._text):
                file.n_token = file.counting = 0
            self._count()
        self.changed.emit()

    def _on_died(self, sentence: str) -> None:
        """Give up the attachments that the worker was reading.

        It counts again with the next model.
        """
        self._counted_for = None
        self._text.counting = 0
        for file in self.files:
            file.counting = 0
            if file.reading:
                file.reading = 0
                file.forget_folder()
                file.refusal = localized(text("attach.stopped", file=file.name))
        self.changed.emit()


def _beginning(attachment: Attachment, share: float) -> Attachment:
    """Return the beginning of a file, up to the end of a line."""
    whole = attachment.text
    cut = whole[: int(len(whole) * max(share * 0.97, 0))]  # lines differ in tokens per character
    cut = cut[: cut.rfind("\n") + 1] or cut
    n_left_out = attachment.n_char_left_out + len(whole) - len(cut)
    return replace(attachment, text=cut, n_char_left_out=n_left_out)
