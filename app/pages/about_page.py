"""The page about Outrider: its version, and the licences of its parts."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QListWidget

from app.pages.licences import Component, components
from app.text.messages import localized
from app.widgets.background import Errand
from app.widgets.page import Page, small
from app.widgets.parts import filled, report_field, spaced, text_label
from backend import __version__


class AboutPage(Page):
    """A list of parts, and the licence of the selected part. A thread reads them."""

    def __init__(self) -> None:
        super().__init__(self.tr("About Outrider"), scrolls=False)
        self._components: list[Component] = []
        self._is_read = False
        self._errand = Errand("parts", self)
        self._errand.came.connect(self._take)
        version = text_label("strong", self.tr("Version {version}").format(version=__version__))
        self.list = QListWidget()
        self.list.setAccessibleName(self.tr("Parts"))
        self.list.setFixedWidth(280)
        self.text = report_field(self.tr("Licence"))
        self._licence = text_label("muted")
        self._licence.setTextFormat(Qt.TextFormat.PlainText)
        row = filled(spaced(QHBoxLayout(), 14), self.list, (self.text, 1))
        about = small(
            self.tr(
                "Chat with Mixture-of-Experts models that are larger than your memory. Nothing is "
                "sent anywhere. It is made of the parts below."
            )
        )
        filled(self.column, version, about, self._licence, (row, 1))
        self.list.currentRowChanged.connect(self._show)

    def _show(self, row: int) -> None:
        if 0 <= row < len(self._components):
            part = self._components[row]
            self._licence.setText(f"{part.name} {part.version}   {localized(part.licence)}")
            self.text.setPlainText(
                part.text or self.tr("This copy does not contain the text of the licence.")
            )

    def showEvent(self, event: QShowEvent) -> None:  # noqa: D102
        super().showEvent(event)
        if not self._is_read:
            self._is_read = True
            self._errand.start(components)
        self.list.setFocus()

    def _take(self, found: list[Component] | str) -> None:
        if isinstance(found, str):
            found = [Component(self.tr("Parts"), "", "", localized(found))]
        self._components = found
        self.list.addItems([f"{part.name} {part.version}".strip() for part in found])
        self.list.setCurrentRow(0)
