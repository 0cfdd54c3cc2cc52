"""The dialogs that export and import chats."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.session.chats import Chats
from app.state.engine_state import Notice
from app.store import exchange
from app.store.chats import ChatStore
from app.store.schema import StoreError
from app.text import units
from app.text.language import translate
from app.widgets import files
from app.widgets.background import Background
from backend.text import text

PROGRESS_MS = 200


class ChatExchange(QObject):
    """Export and import, one after the other, in a thread.

    Signals:
        notice: (Notice) the result.
        begun: (str) what has begun, in words.
        progressed: (share, words) of the present work.
        ended: nothing is left to do.
    """

    notice = Signal(object)
    begun = Signal(str)
    progressed = Signal(float, str)
    ended = Signal()
    _came = Signal(object, object)  # from the thread: what has ended, and what to tell

    def __init__(self, chats: Chats, is_at_leisure: Callable[[], bool], window: QWidget) -> None:
        super().__init__(window)
        self._chats, self._is_at_leisure = chats, is_at_leisure
        self._window = window
        self._background = Background("exchange")
        self._under_way: dict[exchange.Progress, str] = {}  # with what it is, in words
        self._shown: exchange.Progress | None = None
        self._timer = QTimer(self, interval=PROGRESS_MS)
        self._timer.timeout.connect(self._show_progress)
        self._came.connect(self._end)
        with contextlib.suppress(StoreError):
            if chats.store.arriving():  # the window of an import was killed
                self._background.later(self._clear, lambda _: None)

    def ask_export(self, chat_id: int, kind: str) -> None:
        """Ask for a file name and write one chat, or all for the id 0; `kind`: "md" or "json"."""
        every = self.tr("All chats")
        title = next((row.title for row in self._chats.rows() if row.id == chat_id), every)
        label = self.tr("Markdown (*.md)") if kind == "md" else self.tr("JSON (*.json)")
        name, _ = QFileDialog.getSaveFileName(
            self._window,
            self.tr("Export the chat"),
            files.start("chats", f"{file_name(title)}.{kind}"),
            label,
        )
        if name:
            files.remember("chats", name)
            self.export(chat_id, Path(name))

    def export(self, chat_id: int, path: Path) -> None:
        """Write one chat, as Markdown if the name ends in .md, else as JSON; for the id 0 all."""
        is_text = bool(chat_id) and path.suffix.lower() in (".md", ".markdown", ".txt")

        def work(store: ChatStore, progress: exchange.Progress) -> int:
            if is_text:
                conversation = store.load(chat_id)
                said = exchange.to_markdown(conversation) if conversation else ""
                path.write_text(said, encoding="utf-8", newline="\n")
                return 1
            ids = [chat_id] if chat_id else sorted(row.id for row in store.chats())
            part = path.with_name(f"{path.name}.part")
            try:
                with part.open("w", encoding="utf-8", newline="\n") as file:
                    exchange.write_json(store, ids, file, progress)
                if not progress.is_stopped:
                    os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)
            return len(ids)

        def done(progress: exchange.Progress, n: int) -> None:
            if progress.is_stopped:
                return
            sentence = self.tr("{chats} written to {file}.").format(
                chats=units.count(n, "chat"), file=path.name
            )
            self.notice.emit(Notice(sentence, is_trouble=False))

        self._begin(self.tr("Writing {file}").format(file=path.name), path, work, done)

    def ask_import(self) -> None:
        """Ask for a file and import its chats."""
        name, _ = QFileDialog.getOpenFileName(
            self._window,
            self.tr("Import chats"),
            files.start("chats"),
            self.tr("Chats (*.json *.md *.zip);;All files (*)"),
        )
        if name:
            files.remember("chats", name)
            self.import_file(Path(name))

    def import_file(self, path: Path) -> None:
        """Import the chats of a file, an archive or a folder.

        Show the first, unless the user has begun something else meanwhile.
        """
        shown = self._chats.open_id

        def work(store: ChatStore, progress: exchange.Progress) -> exchange.Imported:
            return exchange.import_chats(store, path, progress)

        def done(progress: exchange.Progress, imported: exchange.Imported) -> None:
            self._chats.reload_list()
            may_open = self._chats.open_id == shown and self._is_at_leisure()
            if imported.ids and may_open and not progress.is_stopped:
                self._chats.open(imported.ids[0])
            self.notice.emit(self._told(path, imported, progress.is_stopped))

        self._begin(self.tr("Importing {file}").format(file=path.name), path, work, done)

    def _told(self, path: Path, imported: exchange.Imported, is_stopped: bool) -> Notice:
        words = self.tr("{chats} imported from {file}.").format(
            chats=units.count(len(imported.ids), "chat"), file=path.name
        )
        if is_stopped:
            words += " " + self.tr("The others were left out, because you stopped it.")
        if imported.n_bad:
            bad = units.count(imported.n_bad, "chat")
            words += " " + self.tr("{chats} could not be read.").format(chats=bad)
        if imported.n_lost:
            words += " " + self.tr(
                "Not in the export: %n picture(s), file(s) or voice(s); the text marks where.",
                "",
                imported.n_lost,
            )
        return Notice(words, is_trouble=bool(imported.n_bad))

    def stop(self) -> None:
        """End the present work and what waits: an import after a chat, an export without a file."""
        for progress in self._under_way:
            progress.is_stopped = True

    def shut_down(self) -> None:
        """Stop, and wait for the thread for a moment."""
        self.stop()
        self._background.shut_down()

    def _begin(
        self,
        words: str,
        path: Path,
        work: Callable[[ChatStore, exchange.Progress], Any],
        done: Callable[[exchange.Progress, Any], None],
    ) -> None:
        """Do `work` in the thread, then `done` with its result, or say why it failed."""
        progress = exchange.Progress()
        self._under_way[progress] = words
        if not self._timer.isActive():
            self._timer.start()  # work that ends before the first look is not shown

        def job() -> None:
            try:
                with self._chats.store.for_thread() as store:
                    result = work(store, progress)
            except (exchange.ImportRefused, StoreError) as error:
                failed(str(error))
            except OSError as error:
                reason = error.strerror or str(error)
                failed(text("file.not_written", file=path.name, reason=reason))
            else:
                self._came.emit(progress, functools.partial(done, progress, result))

        def failed(sentence: str) -> None:
            self._came.emit(progress, lambda: self.notice.emit(Notice(sentence)))

        self._background.later(job, failed)

    def _clear(self) -> None:
        with self._chats.store.for_thread() as store:
            store.remove_arriving()

    def _end(self, progress: exchange.Progress, tell: Callable[[], None]) -> None:
        """Tell the result. REQUIRES: the window's thread."""
        del self._under_way[progress]
        if not self._under_way:
            self._timer.stop()
            self.ended.emit()
        tell()

    def _show_progress(self) -> None:
        progress, words = next(iter(self._under_way.items()))
        if progress is not self._shown:
            self._shown = progress
            self.begun.emit(words)
        self.progressed.emit(progress.share, units.count(progress.n_chat, "chat"))


def file_name(title: str) -> str:
    """Return a title as a file name that every file system accepts."""
    name = re.sub(r'[\x00-\x1f<>:"/\\|?*]+', " ", title)
    return " ".join(name.split())[:80].strip(". ") or translate("chats", "Chat")
