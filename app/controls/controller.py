"""Joins the session with the controls of the engine: the switch, the slider and the strip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QFileDialog

from app.controls.pack_offer import PackDesk
from app.controls.rate_control import RateState
from app.controls.remote_device import RemoteDialog, remote_parts, warning
from app.controls.strip import ControlsStrip, InForce
from app.controls.top_bar import TopBar
from app.library.library import Library
from app.session.engine import EngineSession
from app.settings.settings import Settings
from app.state.engine_state import Notice, State
from backend.library.estimate import Speed, speed_after
from backend.protocol.statistics import Statistics


class Controls(QObject):
    """The strip, `strip`, and the messages between the session and all of its controls.

    Another machine is used only when its address is one that the user confirmed (`settings`).

    Signals:
        trusted_changed: another address was confirmed.
    """

    trusted_changed = Signal()

    def __init__(
        self, session: EngineSession, bar: TopBar, library: Library, settings: Settings,
        parent: QObject | None = None,
    ) -> None:  # fmt: skip
        super().__init__(parent)
        self._session, self._bar, self._library = session, bar, library
        self._settings = settings
        self._unconfirmed = self._hold_back()
        self.strip = ControlsStrip()
        self.show_trusted()
        self.strip.remote_wanted.connect(self.ask_remote)
        self._asked_devices = False
        self._answer: tuple[Statistics, int] | None = None  # the last one, and its slots
        bar.rate.speed_of = self._speed
        session.link.done.connect(self._note_answer)
        bar.mode.chosen.connect(self.choose_automatic)
        bar.rate.chosen.connect(session.set_rate)
        self.strip.mode.chosen.connect(self.choose_automatic)
        self.strip.chosen.connect(session.choose)
        session.state_changed.connect(self._state_changed)
        session.link.devices.connect(self.strip.show_devices)
        session.link.hello.connect(self._forget_devices)
        session.state_changed.connect(self._forget_answer)
        session.model_changed.connect(self.refresh)
        library.changed.connect(self.refresh)
        self.packs = packs = PackDesk(session, self)
        packs.changed.connect(self._show_offer)
        packs.notice.connect(session.notice)
        session.link.done.connect(lambda _, statistics: packs.answered(statistics))
        self.strip.pack.clicked.connect(lambda: packs.write())
        self.strip.stripe.clicked.connect(self.browse_drive)
        self.strip.unpack.clicked.connect(packs.give_up)
        self.refresh()

    def _note_answer(self, _: str, statistics: Statistics) -> None:
        if self._session.cache is not None and self._session.cache.mode == "cached":
            self._answer = statistics, self._session.cache.n_slot
            self.refresh()

    def _speed(self, n_slot: int) -> Speed | None:
        """Return the speed to expect, as measured or by the last answer; None if unknown."""
        known, slots = self._library.speed(n_slot), self._session.slots
        if known is not None or self._answer is None or slots is None:
            return known
        answer, n_slot_then = self._answer
        return speed_after(answer, n_slot_then, slots.n_expert, n_slot)

    def _forget_devices(self) -> None:
        self._asked_devices = False

    def _state_changed(self, state: State) -> None:
        # An idle worker that has loaded a model knows its devices without further waiting.
        if state is State.IDLE and not self._asked_devices:
            self._asked_devices = True
            self._session.link.list_devices()
        if state is State.IDLE and self._unconfirmed:
            QTimer.singleShot(0, self._ask_unconfirmed)  # behind the sentences about the model
        self.refresh()

    def _forget_answer(self, state: State) -> None:
        if state is State.LOADING:
            self._answer = None

    # Other machines

    def ask_remote(self) -> RemoteDialog:
        """Let the user name another machine. The dialog says what that permits."""
        dialog = RemoteDialog(self.strip.window())
        dialog.accepted.connect(lambda: self.trust(dialog.device))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def browse_drive(self) -> None:
        """Let the user choose a folder on a second drive, for a part of the pack."""
        title = self.tr("Choose a folder on a second drive")
        if name := QFileDialog.getExistingDirectory(self.strip.window(), title):
            self.packs.write(Path(name))

    def trust(self, device: str) -> None:
        """The user has accepted the risk: use these devices, now and later without asking."""
        trusted = self._settings.trusted_devices
        trusted += [part for part in remote_parts(device) if part not in trusted]
        self._unconfirmed = ""
        self.show_trusted()
        self.trusted_changed.emit()
        self._session.choose(replace(self._session.asked, device=device))

    def show_trusted(self) -> None:
        """Offer the machines that were confirmed."""
        self.strip.show_remote(self._settings.trusted_devices)

    def _hold_back(self) -> str:
        """Return the devices of the settings where one of them was never confirmed, unused."""
        session, device = self._session, self._session.asked.device
        if all(part in self._settings.trusted_devices for part in remote_parts(device)):
            return ""
        session.asked = replace(session.asked, device="auto")
        return device

    def _ask_unconfirmed(self) -> None:
        device, self._unconfirmed = self._unconfirmed, ""
        if not device:
            return
        actions = (
            (self.tr("Trust it and use it"), lambda: self.trust(device)),
            (self.tr("Do not use it"), lambda: self._session.notice.emit(None)),
        )
        self._session.notice.emit(Notice(warning(device), actions, is_trouble=False))

    def _show_offer(self) -> None:
        packs = self.packs
        self.strip.show_offer(
            packs.words, can_write=packs.can_write, can_stripe=packs.can_stripe,
            is_writing=packs.is_writing,
        )  # fmt: skip

    def choose_automatic(self, automatic: bool) -> None:
        """Leave the engine's settings to the memory, or take them into one's own hands.

        By hand, begin with the values in force, so that the switch itself changes nothing.
        """
        session = self._session
        choice = replace(session.asked, automatic=automatic, by_hand=())
        cache = session.cache
        if not automatic and session.asked.automatic and cache is not None:
            choice = replace(
                choice, method="auto", cache_rate=cache.rate, context_length=session.n_context
            )
        session.choose(choice)

    def refresh(self) -> None:
        """Show the settings asked for and those in force."""
        session, bar = self._session, self._bar
        automatic = session.asked.automatic
        bar.mode.show_choice(automatic)
        bar.rate.show_state(
            RateState(
                session.slots,
                session.model,
                session.cache,
                session.asked_rate,
                session.change_waits,
                automatic,
                session.is_shown_off,
            )
        )
        self.strip.show_choice(
            session.asked, InForce(session.model, session.cache, session.change_waits)
        )
