"""Where the file dialogs of the window begin, and the one for models."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QStandardPaths, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QHeaderView, QTreeView, QWidget

from app.text.language import translate
from backend.system.paths import models_folder

_last: dict[str, str] = {}  # the folder that was used last, by the kind of file


def start(kind: str, name: str = "", first: str = "") -> str:
    """Return where a dialog for a kind of file begins: where the last one ended.

    kind: "models", "chats" or "files". name: of a file to write. first: the folder for the first
    dialog; by default that of downloads for models, and the user's documents for the others.
    """
    folder = _last.get(kind) or first
    if not folder and kind == "models" and models_folder().is_dir():
        folder = str(models_folder())
    places = QStandardPaths.StandardLocation
    documents = QStandardPaths.writableLocation(places.DocumentsLocation)
    if not folder and documents and Path(documents).is_dir():
        folder = documents
    folder = folder or str(Path.home())
    return str(Path(folder) / name) if name else folder


def remember(kind: str, path: str | Path) -> None:
    """Begin the next dialog where this file is."""
    _last[kind] = str(Path(path).parent)


def show_folder(folder: Path) -> str:
    """Open a folder in the file manager. Return "", or a sentence where there is none."""
    if QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder))):
        return ""
    name = str(folder).encode("utf-8", "replace").decode("utf-8")
    return translate("files", "No program here shows folders. This one is {folder}.").format(
        folder=name
    )


def open_page(address: QUrl) -> str:
    """Open a web page in the browser. Return "", or a sentence where there is none."""
    if QDesktopServices.openUrl(address):
        return ""
    words = translate("files", "No program here opens web pages. This one is {address}.")
    return words.format(address=address.toEncoded().toStdString())


def browse_model(parent: QWidget, title: str, first: str = "") -> str:
    """Let the user choose a model file. Return its path, or "". first: as in start()."""
    kinds = translate("files", "GGUF models (*.gguf);;All files (*)")
    dialog = open_dialog(parent, title, start("models", first=first), kinds)
    if not dialog.exec():
        return ""
    (name,) = dialog.selectedFiles()
    remember("models", name)
    return name


def open_dialog(parent: QWidget | None, title: str, folder: str, kinds: str) -> QFileDialog:
    """Return a dialog for one file that exists. Qt's own, where there is no other, cuts no size."""
    dialog = QFileDialog(parent, title, folder, kinds)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    table = dialog.findChild(QTreeView, "treeView")
    if isinstance(table, QTreeView):
        table.header().setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
    return dialog
