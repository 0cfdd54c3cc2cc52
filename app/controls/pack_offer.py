"""Offers a second file from which a model's experts are read faster, writes it, and uses it."""

from __future__ import annotations

import json
from pathlib import Path

from PySide6.QtCore import QObject, QProcess, Signal

from app.session.engine import EngineSession
from app.state.engine_state import Notice, State
from app.text import units
from backend.library.machine import is_large
from backend.packs.offer import PackOffer, pack_command
from backend.protocol.statistics import Statistics
from backend.protocol.status import Json
from backend.text import from_json

GAIN_MIN = 1.05
"""A forecast below this is not worth a second file."""


class PackDesk(QObject):
    """Asks once per model for the gain of a pack, and writes one when the user wants it.

    Both are done by a process of their own. The expected gain follows from measured speeds of
    reading and computing, and from the shares of the last answer's time.

    Signals:
        changed: another offer, or progress.
        notice: Notice.
    """

    changed = Signal()
    notice = Signal(object)

    def __init__(self, session: EngineSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._path: Path | None = None  # of the model that was asked about
        self._offer: PackOffer | None = None
        self._gain = 1.0
        self._process: QProcess | None = None
        self._is_writing = False
        self._share = 0.0
        self._parts = (0.0, 0.0, 0.0)  # seconds of a token of the last answer
        self._buffer = b""
        self._fault = ""  # why packing failed
        session.model_changed.connect(self._model_changed)

    @property
    def is_writing(self) -> bool:
        """Whether a pack is being written."""
        return self._is_writing

    @property
    def words(self) -> str:
        """The offer, or the progress, in a sentence; empty where there is none."""
        if self._is_writing:
            return self.tr("The experts are being packed: {share}.").format(
                share=units.percent(self._share)
            )
        offer = self._offer
        if offer is None or self._gain < GAIN_MIN:
            return ""
        if not offer.fits:
            return self.tr(
                "Packing the experts would make answers about {gain} times as fast, but needs "
                "{size} of the drive, and {free} are free."
            ).format(
                gain=units.decimal(self._gain, 1), size=units.size(offer.needed_bytes),
                free=units.size(offer.free_bytes),
            )  # fmt: skip
        return self.tr(
            "Packing the experts into a second file of {size} would make answers about {gain} "
            "times as fast, by what was measured here."
        ).format(size=units.size(offer.needed_bytes), gain=units.decimal(self._gain, 1))

    @property
    def can_write(self) -> bool:
        """Whether there is an offer that can be taken, with one drive."""
        return self.can_stripe and bool(self._offer and self._offer.fits)

    @property
    def can_stripe(self) -> bool:
        """Whether there is an offer that can be taken, with a second drive if not with one."""
        return bool(self.words) and not self._is_writing

    def answered(self, statistics: Statistics) -> None:
        """Forecast the gain from an answer; the first one of a large model asks for the offer."""
        session = self._session
        if session.path is None or session.cache is None or session.cache.mode != "cached":
            return
        n = max(statistics.n_token, 1)
        self._parts = (statistics.compute_s / n, statistics.stall_s / n, statistics.other_s / n)
        if self._offer is not None:
            self._gain = self._offer.speed_gain(*self._parts)
            self.changed.emit()
        elif self._path != session.path and not session.cache.pack and is_large(session.path):
            self._path = session.path
            self._start(pack_command(session.path, "--offer"))

    def write(self, second: Path | None = None) -> None:
        """Write the pack that is offered, a part of it into a folder of a `second` drive."""
        if self._path is None or self._offer is None or not self.can_stripe:
            return
        first = Path(self._offer.path).parent
        if second is not None and second.stat().st_dev == first.stat().st_dev:
            words = self.tr("{folder} is on the drive where the pack would lie anyway.")
            self.notice.emit(Notice(words.format(folder=second)))
            return
        to = ["--to", str(first), "--to", str(second)] if second is not None else []
        self.stop()  # the process that made the offer may not have ended yet
        self._is_writing, self._share = True, 0.0
        self._start(pack_command(self._path, *to))
        self.changed.emit()

    def give_up(self) -> None:
        """Stop writing because the user wants it, and say which part of the pack stays."""
        model = self._path
        self.stop()
        if model is None:
            return
        words = self.tr("Packing was stopped. What was written is used when it is wanted again.")
        actions = ((self.tr("Delete it"), lambda: self._delete(model)),)
        self.notice.emit(Notice(words, actions, is_trouble=False))

    def stop(self) -> None:
        """Stop the present step; writing continues from there when the user wants it again."""
        if self._process is not None:
            self._process.blockSignals(True)
            self._process.kill()
            self._process.waitForFinished(1000)
            self._process = None
        if self._is_writing:
            self._is_writing = False
            self.changed.emit()

    # Inside

    def _delete(self, model: Path) -> None:
        if not self._is_writing and self._session.path == model:
            self.stop()
            self._start(pack_command(model, "--delete"))

    def _model_changed(self) -> None:
        if self._session.path != self._path and self._path is not None:
            self.stop()
            self._path, self._offer, self._gain = None, None, 1.0
            self.changed.emit()

    def _start(self, command: list[str]) -> None:
        self._buffer, self._fault = b"", ""
        self._process = process = QProcess(self)
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._finished)
        process.errorOccurred.connect(self._not_started)
        process.start(command[0], command[1:])

    def _read(self) -> None:
        if self._process is None:
            return
        self._buffer += bytes(self._process.readAllStandardOutput().data())
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            try:
                self._take(json.loads(line, object_hook=from_json))
            except (ValueError, TypeError, KeyError):
                continue

    def _take(self, data: Json | None) -> None:
        if data is None:
            return
        if "total_bytes" in data:
            self._share = int(data["done_bytes"]) / max(int(data["total_bytes"]), 1)
        elif "needed_bytes" in data:
            self._offer = PackOffer.from_json(data)
            self._gain = self._offer.speed_gain(*self._parts)
        elif "error" in data:
            self._fault = data["error"]
        self.changed.emit()

    def _not_started(self, error: QProcess.ProcessError) -> None:
        if self._process is not None and error is QProcess.ProcessError.FailedToStart:
            self._fault = self._process.errorString()
            self._finished(1, None)

    def _finished(self, status: int, _: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        words = bytes(process.readAllStandardError().data()).decode("utf-8", "replace").strip()
        process.deleteLater()
        if not self._is_writing:
            return
        self._is_writing = False
        if status != 0:
            self.notice.emit(Notice(self._fault or "".join(words.splitlines()[-1:])))
        else:
            self._offer = None
            if self._session.path is not None and self._session.state is not State.LOADING:
                self._session.open_model(self._session.path)
            words = self.tr("The experts are packed: about {gain} times as fast is to be expected.")
            words = words.format(gain=units.decimal(self._gain, 1))
            self.notice.emit(Notice(words, is_trouble=False))  # loading takes other ones away
        self.changed.emit()
