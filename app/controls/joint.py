"""Joins the session with the controls of the engine: the switch, the slider and the strip."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject

from app.controls.pack_offer import PackDesk
from app.controls.strip import ControlsStrip, InForce
from app.engine_session import EngineSession
from app.library.library import Library
from app.rate_control import RateState
from app.state import State
from app.top_bar import TopBar


class Controls(QObject):
    """The strip, `strip`, and what passes between the session and everything that controls it."""

    def __init__(
        self, session: EngineSession, bar: TopBar, library: Library, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._bar, self._library = session, bar, library
        self.strip = ControlsStrip()
        self._asked_devices = False
        bar.rate.speed_of = library.speed
        bar.mode.chosen.connect(self.choose_automatic)
        bar.rate.chosen.connect(session.set_rate)
        self.strip.mode.chosen.connect(self.choose_automatic)
        self.strip.chosen.connect(session.choose)
        session.state_changed.connect(self._state_changed)
        session.link.devices.connect(self.strip.show_devices)
        session.link.hello.connect(self._forget_devices)
        session.model_changed.connect(self.refresh)
        library.changed.connect(self.refresh)
        self.packs = packs = PackDesk(session, self)
        packs.changed.connect(self._show_offer)
        packs.notice.connect(session.notice)
        session.link.done.connect(lambda _, statistics: packs.answered(statistics))
        self.strip.pack.clicked.connect(packs.write)
        self.strip.unpack.clicked.connect(packs.stop)
        self.refresh()

    def _forget_devices(self) -> None:
        self._asked_devices = False

    def _state_changed(self, state: State) -> None:
        # An idle worker that has loaded a model knows its devices without further waiting.
        if state is State.IDLE and not self._asked_devices:
            self._asked_devices = True
            self._session.link.list_devices()
        self.refresh()

    def _show_offer(self) -> None:
        packs = self.packs
        self.strip.show_offer(packs.words, packs.can_write, packs.is_writing)

    def choose_automatic(self, automatic: bool) -> None:
        """Leave the engine's settings to the memory, or take them into one's own hands.

        By hand it goes on with what is in force, so that the change by itself changes nothing.
        """
        session = self._session
        choice = replace(session.asked, automatic=automatic)
        cache, model = session.cache, session.model
        if not automatic and session.asked.automatic and cache is not None and model is not None:
            choice = replace(
                choice, method="auto", cache_rate=cache.rate, context_length=model.context_length
            )
        session.choose(choice)

    def refresh(self) -> None:
        """Show what is asked for, and what is in force."""
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
