"""Look up repositories in a thread, and judge the models in them for this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.library.library import Library, Row
from app.widgets.background import Background
from backend.downloads.address import parse
from backend.downloads.errors import DownloadError
from backend.downloads.headers import read_facts, scaled
from backend.downloads.offers import Listing, Offer
from backend.library.facts import Facts
from backend.library.scan import Entry
from backend.protocol.settings import EngineConfig


@dataclass(frozen=True)
class Found:
    """A model that can be downloaded. row: as the library would show it.

    is_exact: its own header was read; otherwise it is judged by another model's, or not yet.
    """

    offer: Offer
    row: Row
    is_exact: bool


class _Superseded(Exception):
    """A newer request has replaced this one."""


class Search(QObject):
    """Has one listing at a time. Contacts no server before `look_up`.

    Signals:
        changed: the listing, or the facts of a model in it, changed.
        refused: (str) one sentence: why nothing was found or could be read.
        busy: (bool) a request to a server began or ended.
    """

    changed = Signal()
    refused = Signal(object)
    busy = Signal(bool)
    _listed = Signal(int, object)
    _read = Signal(int, int, object)
    _failed = Signal(int, object)

    def __init__(self, library: Library, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.listing: Listing | None = None
        self._library = library
        self._known: dict[int, Facts | str] = {}  # by index in the listing
        self._basis: int | None = None  # index of the model by which the others are judged
        self._number = 0  # number of the newest request; older ones stop early
        self._background = Background("search")
        self._listed.connect(self._on_listing)
        self._read.connect(self._on_facts)
        self._failed.connect(self._on_failure)

    @property
    def found(self) -> list[Found]:
        """Return the models of the listing, judged with the memory that is free now."""
        offers = self.listing.offers if self.listing is not None else []
        return [self._judged(i, offer) for i, offer in enumerate(offers)]

    def look_up(self, text: str) -> None:
        """List the models at an address, then read the smallest model's header."""
        self._number += 1
        number = self._number
        self.listing, self._known, self._basis = None, {}, None
        self.changed.emit()
        self.busy.emit(True)
        self._background.later(lambda: self._list(number, text))

    def read(self, i: int) -> None:
        """Read the header of a model of the listing, unless it is known."""
        if self.listing is None or i in self._known or self.listing.offers[i].trouble:
            return
        self._number += 1
        number, offer = self._number, self.listing.offers[i]
        self.busy.emit(True)
        self._background.later(lambda: self._read_header(number, i, offer))

    def shut_down(self) -> None:
        """End the thread."""
        self._number += 1
        self._background.shut_down()

    def _judged(self, i: int, offer: Offer) -> Found:
        own = self._known.get(i)
        facts = own if isinstance(own, Facts) else None
        if own is None and self._basis is not None and self.listing is not None:
            basis = self._known[self._basis]
            if isinstance(basis, Facts):
                facts = scaled(basis, self.listing.offers[self._basis], offer)
        trouble = offer.trouble or (own if isinstance(own, str) else "")
        entry = Entry(Path(offer.files[0].name), len(offer.files), offer.size_bytes, facts, trouble)
        verdict = self._library.verdict(facts) if facts is not None else None
        return Found(offer, Row(entry, verdict, 0.0), own is not None or bool(offer.trouble))

    # In the thread

    def _list(self, number: int, text: str) -> None:
        # Imported late: they load the HTTP client.
        from backend.downloads.hub import look_up
        from backend.downloads.web import new_client

        if number != self._number:
            return
        try:
            with new_client() as client:
                self._listed.emit(number, look_up(parse(text), client))
        except DownloadError as error:
            self._failed.emit(number, str(error))

    def _read_header(self, number: int, i: int, offer: Offer) -> None:
        from backend.downloads.web import new_client  # imported late: it loads the HTTP client

        def check() -> None:
            if number != self._number:
                raise _Superseded

        try:
            check()
            with new_client() as client:
                n_context = EngineConfig().context_length
                self._read.emit(number, i, read_facts(offer, client, n_context, check))
        except _Superseded:
            pass
        except DownloadError as error:
            self._failed.emit(number, str(error))

    # In the window's thread

    def _on_listing(self, number: int, listing: Listing) -> None:
        if number != self._number:
            return
        self.listing = listing
        self.busy.emit(False)
        self.changed.emit()
        usable = [i for i, offer in enumerate(listing.offers) if not offer.trouble]
        if usable:
            self.read(usable[0])

    def _on_facts(self, number: int, i: int, facts: Facts | str) -> None:
        if number != self._number:
            return
        self._known[i] = facts
        if self._basis is None and isinstance(facts, Facts):
            self._basis = i
        self.busy.emit(False)
        self.changed.emit()

    def _on_failure(self, number: int, sentence: str) -> None:
        if number != self._number:
            return
        self.busy.emit(False)
        self.refused.emit(sentence)
