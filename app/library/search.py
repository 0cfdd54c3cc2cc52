"""Models to download: the curated list, a search by words, and the files of one repository."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.library.library import Library, Row
from app.widgets.background import Background
from backend.downloads.address import Address, parse
from backend.downloads.cards import Card, read_card
from backend.downloads.curated import Curated, curated
from backend.downloads.errors import WAIT_LONGEST_S, DownloadError
from backend.downloads.headers import read_facts, scaled
from backend.downloads.offers import Listing, Offer, RemoteFile, Repository
from backend.library.estimate import Kind
from backend.library.facts import Facts
from backend.library.scan import Entry
from backend.protocol.settings import EngineConfig

USABLE_TOKENS_PER_S = 8.0  # somewhat faster than people read


class Shown(Enum):
    """The kind of rows that the page lists."""

    CURATED = "curated"
    REPOSITORIES = "repositories"
    FILES = "files"


@dataclass(frozen=True)
class Found:
    """A model that can be downloaded. row: as the library would show it.

    is_exact: its own header was read; otherwise it is judged by another model's, or not yet.
    curated: its entry in the curated list, or None. there: its file on this computer, or None.
    """

    offer: Offer
    row: Row
    is_exact: bool
    curated: Curated | None = None
    there: Path | None = None


class _Superseded(Exception):
    """A newer request has replaced this one."""


class Search(QObject):
    """Shows the curated list, repositories or files. Contacts no server before it is asked to.

    Signals: changed: the rows, or the facts of a model in them, changed.
        refused: (str) one sentence: why nothing was found or could be read.
        busy: (bool) a request to a server began or ended.
        offered: (Offer, source) the files of a curated model, for its download.
        described: `cards` has another card.
    """

    changed = Signal()
    refused = Signal(object)
    busy = Signal(bool)
    offered = Signal(object, str)
    described = Signal()
    _card_read = Signal(str, object)
    _answered = Signal(int, object)
    _read = Signal(int, int, object)
    _failed = Signal(int, object)  # a sentence, or a DownloadError

    def __init__(self, library: Library, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.shown = Shown.CURATED
        self.listing: Listing | None = None
        self.repositories: list[Repository] = []
        self.words = ""  # that the repositories, or the models of the curated list, have to have
        self.library = library
        self._known: dict[int, Facts | str] = {}  # by index in the listing
        self._basis: int | None = None  # index of the model by which the others are judged
        self._number = 0  # number of the newest request; older ones stop early
        self.cards: dict[str, Card] = {}
        """The cards of models, by repository."""
        self._asked_about = ""  # the repository whose card is wanted now
        self._again: Callable[[], None] | None = None  # repeats the newest request
        self._wait = QTimer(self, singleShot=True)  # that a server asked for
        self._wait.timeout.connect(self._ask_again)
        self._background = Background("search")
        self._card_read.connect(self._on_card)
        self._answered.connect(self._on_answer)
        self._read.connect(self._on_facts)
        self._failed.connect(self._on_failure)

    @property
    def goes_on(self) -> bool:
        """Return whether the refused request is repeated once the wait of the server is over."""
        return self._wait.isActive()

    @property
    def found(self) -> list[Found]:
        """Return the models that are shown, judged with the memory that is free now."""
        if self.shown is Shown.CURATED:
            suggested = self.suggested()
            return sorted(self.curated(), key=lambda item: _rank(item, suggested))
        offers = self.listing.offers if self.listing is not None else []
        free_bytes = self.library.free_bytes
        return [self._judged(i, offer, free_bytes) for i, offer in enumerate(offers)]

    def curated(self) -> list[Found]:
        """Return the models of the curated list that have all words, the smallest first."""
        there = {row.entry.path.name.casefold(): row.entry.path for row in self.library.rows}
        found, free_bytes = [], self.library.free_bytes
        for model in curated()[1]:
            text = f"{model.title} {model.repository} {model.file}".casefold()
            if all(word in text for word in self.words.casefold().split()):
                facts = model.facts
                file = RemoteFile("", model.file, facts.file_bytes)
                entry = Entry(Path(model.file), 1, facts.file_bytes, facts)
                row = Row(entry, self.library.verdict(facts, free_bytes), 0.0)
                path = there.get(model.file.casefold())
                found.append(Found(Offer(model.title, (file,)), row, False, model, path))
        return found

    def why_suggested(self) -> str:
        """Return "usable", "fits" or "fastest": what the suggested model is of all."""
        speeds = [_tokens_per_s(item) for item in self.curated()]
        if max(speeds, default=0.0) >= USABLE_TOKENS_PER_S:
            return "usable"
        return "fastest" if any(speeds) else "fits"

    def suggested(self) -> Found | None:
        """Return the curated model to begin with: the largest that runs at a usable speed here."""
        every = [item for item in self.curated() if item.row.verdict is not None]
        whole = [item for item in every if item.row.verdict.kind is Kind.FITS]  # type: ignore[union-attr]
        usable = [item for item in every if _tokens_per_s(item) >= USABLE_TOKENS_PER_S]
        fast = sorted(
            (item for item in every if _runs(item)), key=lambda item: -_tokens_per_s(item)
        )
        known = any(_tokens_per_s(item) for item in every)
        # Where every model is slow, the fastest; before the measurement, the largest that fits.
        return next(iter([*_largest(usable), *([] if known else _largest(whole)), *fast]), None)

    def filter(self, words: str) -> None:
        """Show the models of the curated list that have all words."""
        self._show(Shown.CURATED, words)

    def look_up(self, text: str) -> None:
        """List the models at an address, or the repositories whose names have the words."""
        try:
            address = parse(text)
        except DownloadError as error:
            if "://" in text:
                self._show(Shown.FILES, "")
                self.refused.emit(str(error))
                return
            self._ask(lambda: self._search(text))
            self._show(Shown.REPOSITORIES, text)
            return
        self._ask(lambda: self._list(address))
        self._show(Shown.FILES, "")

    def fetch(self, model: Curated) -> None:
        """Ask for the files of a curated model, and emit `offered`."""
        self._ask(lambda: self._offer(model))

    def read(self, i: int) -> None:
        """Read the header of a model of the listing, unless it is known."""
        if self.listing is None or i in self._known or self.listing.offers[i].trouble:
            return
        number, offer = self._begin(functools.partial(self.read, i)), self.listing.offers[i]
        self._background.later(
            lambda: self._read_header(number, i, offer),
            lambda sentence: self._failed.emit(number, sentence),
        )

    def describe(self, repository: str) -> None:
        """Ask for a model's card, unless it is known; `cards` has it then. Forget older wishes."""
        self._asked_about = repository
        known = self.cards.get(repository)
        if repository and (known is None or not known.is_read):
            job = functools.partial(self._read_card, repository)
            self._background.later(job, lambda _: None)

    def shut_down(self) -> None:
        """End the thread."""
        self._number += 1
        self._wait.stop()
        self._background.shut_down()

    def _show(self, shown: Shown, words: str) -> None:
        self.shown, self.words = shown, words
        if shown is Shown.CURATED:
            self._wait.stop()
        if shown is not Shown.CURATED:
            self.listing, self._known, self._basis = None, {}, None
            self.repositories = []
        self.changed.emit()

    def _judged(self, i: int, offer: Offer, free_bytes: int) -> Found:
        own = self._known.get(i)
        facts = own if isinstance(own, Facts) else None
        if own is None and self._basis is not None and self.listing is not None:
            basis = self._known[self._basis]
            if isinstance(basis, Facts):
                facts = scaled(basis, self.listing.offers[self._basis], offer)
        trouble = offer.trouble or (own if isinstance(own, str) else "")
        entry = Entry(Path(offer.files[0].name), len(offer.files), offer.size_bytes, facts, trouble)
        verdict = self.library.verdict(facts, free_bytes) if facts is not None else None
        is_exact = own is not None or bool(offer.trouble)
        return Found(offer, Row(entry, verdict, 0.0), is_exact, there=self._there(entry))

    def _there(self, wanted: Entry) -> Path | None:
        """Return the file of this computer with the name and the size of one of the hub."""
        for row in self.library.rows:
            found = row.entry
            same = found.path.name.casefold() == wanted.path.name.casefold()
            if same and (found.size_bytes, found.n_part) == (wanted.size_bytes, wanted.n_part):
                return found.path
        return None

    def _begin(self, again: Callable[[], None]) -> int:
        """Replace the request before. again: repeats the new one. Return its number."""
        self._number += 1
        self._again = again
        self._wait.stop()
        self.busy.emit(True)
        return self._number

    def _ask_again(self) -> None:
        if self._again is not None:
            self._again()

    # In the thread

    def _ask(self, ask: Callable[[], object]) -> None:
        """Call `ask` in the thread, and take its answer unless a newer request replaced it."""
        number = self._begin(functools.partial(self._ask, ask))

        def run() -> None:
            if number != self._number:
                return
            try:
                self._answered.emit(number, ask())
            except DownloadError as error:
                self._failed.emit(number, error)

        self._background.later(run, lambda sentence: self._failed.emit(number, sentence))

    def _list(self, address: Address) -> Listing:
        from backend.downloads.hub import look_up  # imported late: it loads the HTTP client

        with _new_client() as client:
            return look_up(address, client)

    def _search(self, words: str) -> list[Repository]:
        from backend.downloads.hub import search  # imported late: it loads the HTTP client

        with _new_client() as client:
            return search(words, client)

    def _offer(self, model: Curated) -> tuple[Offer, str]:
        listing = self._list(parse(model.repository))
        return model.offer_of(listing), listing.source

    def _read_card(self, repository: str) -> None:
        if repository != self._asked_about:
            return
        # A failure is not told: the model can be had without its card.
        with contextlib.suppress(DownloadError), _new_client() as client:
            self._card_read.emit(repository, read_card(repository, client))

    def _read_header(self, number: int, i: int, offer: Offer) -> None:
        def check() -> None:
            if number != self._number:
                raise _Superseded

        try:
            check()
            with _new_client() as client:
                n_context = EngineConfig().context_length
                self._read.emit(number, i, read_facts(offer, client, n_context, check))
        except _Superseded:
            pass
        except DownloadError as error:
            self._failed.emit(number, error)

    # In the window's thread

    def _on_answer(self, number: int, answer: object) -> None:
        if number != self._number:
            return
        self.busy.emit(False)
        if isinstance(answer, tuple):
            self.offered.emit(*answer)
            return
        if isinstance(answer, Listing):
            self.listing = answer
        elif isinstance(answer, list):
            self.repositories = answer
        self.changed.emit()
        offers = self.listing.offers if self.listing is not None else []
        usable = [i for i, offer in enumerate(offers) if not offer.trouble]
        if usable:
            self.read(usable[0])

    def _on_card(self, repository: str, card: Card) -> None:
        self.cards[repository] = card
        self.described.emit()

    def _on_facts(self, number: int, i: int, facts: Facts | str) -> None:
        if number != self._number:
            return
        self._known[i] = facts
        if self._basis is None and isinstance(facts, Facts):
            self._basis = i
        self.busy.emit(False)
        self.changed.emit()

    def _on_failure(self, number: int, failure: str | DownloadError) -> None:
        if number != self._number:
            return
        wait_s = failure.wait_s if isinstance(failure, DownloadError) else 0.0
        if 0 < wait_s <= WAIT_LONGEST_S:
            self._wait.start(math.ceil(1000 * wait_s))
        self.busy.emit(False)
        self.refused.emit(str(failure))


def _tokens_per_s(item: Found) -> float:
    speed = item.row.verdict.best_speed if item.row.verdict is not None else None
    return speed.tokens_per_s if speed is not None else 0.0


def _largest(items: list[Found]) -> list[Found]:
    """Return the last, which is the largest; of about its size one that is good for everything."""
    near = [item for item in items if 1.05 * item.offer.size_bytes >= items[-1].offer.size_bytes]
    general = [item for item in near if item.curated and item.curated.good_for == "general"]
    return (general or items)[-1:]


def _rank(item: Found, suggested: Found | None) -> tuple[int, float]:
    """Order models by what they are good for here: those of a usable speed first."""
    size = float(item.offer.size_bytes)
    if suggested is not None and item.offer.name == suggested.offer.name:
        return 0, 0.0
    if not _runs(item):
        return 3, size
    speed = _tokens_per_s(item)
    is_usable = speed >= USABLE_TOKENS_PER_S or (
        not speed and item.row.verdict is not None and item.row.verdict.kind is Kind.FITS
    )
    return (1, -size) if is_usable else (2, -speed or size)


def _runs(item: Found) -> bool:
    return item.row.verdict is not None and item.row.verdict.kind in (Kind.FITS, Kind.CACHE)


def _new_client() -> Any:
    from backend.downloads.web import new_client  # imported late: it loads the HTTP client

    return new_client()
