"""The dialogs that export and import chats."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget

from app.session.chats import Chats
from app.state.engine_state import Notice
from app.store import exchange
from app.store.schema import StoreError
from app.text import units
from app.text.language import translate
from app.widgets import files


class ChatExchange(QObject):
    """Export and import.

    Signals:
        notice: (Notice) the result.
    """

    notice = Signal(object)

    def __init__(self, chats: Chats, window: QWidget) -> None:
        super().__init__(window)
        self._chats = chats
        self._window = window

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
        store = self._chats.store
        ids = [chat_id] if chat_id else sorted(row.id for row in self._chats.rows())
        try:
            if chat_id and path.suffix.lower() in (".md", ".markdown", ".txt"):
                conversation = store.load(chat_id)
                text = exchange.to_markdown(conversation) if conversation else ""
                path.write_text(text, encoding="utf-8", newline="\n")
            else:
                with path.open("w", encoding="utf-8", newline="\n") as file:
                    exchange.write_json(store, ids, file)
        except StoreError as error:
            self.notice.emit(Notice(str(error)))
        except OSError as error:
            sentence = self.tr("{file} could not be written: {reason}.").format(
                file=path.name, reason=error.strerror or error
            )
            self.notice.emit(Notice(sentence))
        else:
            sentence = self.tr("{chats} written to {file}.").format(
                chats=units.count(len(ids), "chat"), file=path.name
            )
            self.notice.emit(Notice(sentence, is_trouble=False))

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
        """Import the chats of a file, an archive or a folder, and show the first."""
        QApplication.setOverrideCursor(Qt.CursorShape.WaitCursor)  # a year of chats takes seconds
        try:
            imported = exchange.import_chats(self._chats.store, path)
        except (exchange.ImportRefused, StoreError) as error:
            self.notice.emit(Notice(str(error)))
            return
        finally:
            QApplication.restoreOverrideCursor()
        ids = imported.ids
        self._chats.reload_list()
        if ids:
            self._chats.open(ids[0])
        words = self.tr("{chats} imported from {file}.").format(
            chats=units.count(len(ids), "chat"), file=path.name
        )
        if imported.n_bad:
            bad = units.count(imported.n_bad, "chat")
            words += " " + self.tr("{chats} could not be read.").format(chats=bad)
        if imported.n_lost:
            words += " " + self.tr(
                "Not in the export: %n picture(s), file(s) or voice(s); the text marks where.",
                "",
                imported.n_lost,
            )
        self.notice.emit(Notice(words, is_trouble=bool(imported.n_bad)))


def file_name(title: str) -> str:
    """Return a title as a file name that every file system accepts."""
    name = re.sub(r'[\x00-\x1f<>:"/\\|?*]+', " ", title)
    return " ".join(name.split())[:80].strip(". ") or translate("chats", "Chat")
