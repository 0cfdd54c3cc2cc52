"""The group "Learning from your chats" of the settings: consent, recordings and results.

Nothing is recorded before the user consents. The worker stores the consent and all else
(backend/learning/supervisor.py); this group shows the state and passes on the user's choices.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QGroupBox,
    QPushButton,
    QVBoxLayout,
)

from app.session.worker_link import EngineLink
from app.text import units
from app.text.messages import localized
from app.widgets.fields import Tick
from app.widgets.parts import filled, progress_bar, spaced, text_label
from backend.protocol.status import LearningFacts

REFRESH_MS = 5_000


class LearningGroup(QGroupBox):
    """A switch, the size on disk, the state in a sentence, and a button to delete."""

    def __init__(self, link: EngineLink) -> None:
        super().__init__()
        self._link = link
        self._facts: LearningFacts | None = None
        self.setTitle(self.tr("Learning from your chats"))
        self.switch = Tick(self.tr("Record which experts my chats use, and learn from it"))
        self.switch.setAccessibleName(self.switch.text())
        self._explanation = text_label(
            "small",
            self.tr(
                "The recordings stay on this computer. They hold a number in place of each word, "
                "which the model can turn back, so they are as private as your chats. While you "
                "do not use the model, this computer learns from them which experts will be needed "
                "next. Answers stay the same, but may come faster."
            ),
            wraps=True,
        )
        self._state, self.amount = (text_label("small", wraps=True) for _ in range(2))
        self.bar = progress_bar(self.tr("Progress of training"))
        self.bar.hide()
        self.delete = QPushButton(self.tr("Delete all recordings"))
        self.delete.setAccessibleName(self.delete.text())
        filled(
            spaced(QVBoxLayout(self), 8), self.switch, self._explanation, self._state, self.bar,
            self.amount, (self.delete, Qt.AlignmentFlag.AlignLeft),
        )  # fmt: skip
        self.switch.clicked.connect(lambda yes: link.learn("allow" if yes else "forbid"))
        self.delete.clicked.connect(lambda: link.learn("delete"))
        link.learning.connect(self.show_facts)
        link.hello.connect(self._ask)
        link.died.connect(lambda _: self.show_facts(None))
        self._timer = QTimer(self, interval=REFRESH_MS)
        self._timer.timeout.connect(self._ask)
        self.show_facts(None)

    @property
    def sentence(self) -> str:
        """Return the sentence on the state."""
        return self._state.text()

    def show_facts(self, facts: LearningFacts | None) -> None:
        """Show the worker's state; None: there is no worker."""
        self._facts = facts
        # Consent can always be withdrawn.
        self.switch.setEnabled(facts is not None and (facts.can_learn or facts.allowed))
        self.switch.setChecked(facts is not None and facts.allowed)
        self.delete.setEnabled(facts is not None and facts.n_bytes > 0)
        self.bar.setVisible(facts is not None and facts.share is not None)
        if facts is None:
            self._state.setText(self.tr("The engine is not running."))
            self.amount.clear()
            return
        self.bar.setValue(int(1000 * (facts.share or 0.0)))
        self._state.setText(localized(facts.sentence))
        self.amount.setText(self._words_of_size(facts))

    def _words_of_size(self, facts: LearningFacts) -> str:
        size = units.size(facts.n_bytes)
        if not facts.n_bytes:
            return self.tr("There are no recordings.")
        if not facts.most_bytes:
            return self.tr("The recordings take {size} on this computer.").format(size=size)
        return self.tr(
            "The recordings take {size} on this computer. Of each model at most {most} are kept."
        ).format(size=size, most=units.size(facts.most_bytes))

    def _ask(self) -> None:
        if self.isVisible():
            self._link.learn("status")

    def showEvent(self, event: QShowEvent) -> None:
        """Request the state, now and repeatedly while the group is visible."""
        super().showEvent(event)
        self._ask()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Stop the requests."""
        super().hideEvent(event)
        self._timer.stop()
