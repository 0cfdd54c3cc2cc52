"""The models on this machine: scanned in a thread, judged again when the memory changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QProcess, QTimer, Signal

from app.widgets.background import Background
from backend.library.checksum import Checksum, ChecksumError, checksum
from backend.library.estimate import Speed, Verdict, judge, speed
from backend.library.facts import Facts, FactsCache
from backend.library.history import History
from backend.library.machine import is_large, kept_machine, measure_command
from backend.library.places import known_folders
from backend.library.scan import Entry, Scan, scan
from backend.machines import Hardware
from backend.protocol.settings import EngineConfig
from backend.system import faults
from backend.system.memory import available_bytes, is_busy
from backend.system.paths import is_folder

SETTLE_MS = 500  # delay from the first change in a folder to the scan
N_WATCHED_MAX = 1000
N_TOKEN_MIN = 16  # tokens of an answer that is long enough to measure the speed


@dataclass(frozen=True)
class Row:
    """A model as the page shows it. `verdict` is None if the model cannot be used.

    checksum: the result of the last check of its file, if the file is unchanged since.
    """

    entry: Entry
    verdict: Verdict | None
    used_s: float
    checksum: Checksum | None = None


@dataclass(frozen=True)
class FileCheck:
    """The last check of a model's file. share: of the file that was read; None at the end.

    trouble: one sentence if the check did not reach the end of the file.
    """

    path: Path
    share: float | None
    trouble: str = ""


class Library(QObject):
    """Folders, models and verdicts.

    Nothing is read before `begin`. A thread of its own reads the files.

    Signals:
        changed: the rows changed or were judged again.
        busy: (bool) a scan began or ended.
        check_moved: the check of a file went on.
        failed: (str) one sentence: what could not be done, unexpectedly.
    """

    changed = Signal()
    busy = Signal(bool)
    check_moved = Signal()
    failed = Signal(object)
    _scan_failed = Signal(int, object)
    _read = Signal(float)
    _checked = Signal(object)
    _scanned = Signal(int, object)
    _speed_measured = Signal(str, int, float)
    _loaded_read = Signal(object)

    def __init__(self, history_path: Path, cache: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.history = History(history_path)
        self.machine: Hardware | None = None
        self.scan = Scan()
        self.rows: list[Row] = []
        self.loose: list[Path] = []
        """Single files in the list: the embedded model and recent ones."""
        self.rate_for: Callable[[Path | None], float] = lambda _: EngineConfig().cache_rate
        """Return the cache rate that a model would be loaded with."""
        self.returned_bytes = 0
        """Bytes that the loaded model frees when another one is loaded."""
        self.may_measure: Callable[[], bool] = lambda: True
        self._machine_path = cache / "machine.json"
        self._facts_path = cache / "library.json"
        self._cache: FactsCache | None = None  # used by the thread only
        self._background = Background("library")
        self.check: FileCheck | None = None
        """The last check of a file; None before the first."""
        self._checks = Background("checksum")
        self._stop_check = threading.Event()
        self._number = 0  # number of the newest scan; older ones stop early
        self._is_open = False
        self._begun = False
        self._loaded: Entry | None = None  # the loaded model
        self._process: QProcess | None = None
        self._measure_failed = False
        self._pid = 0  # of the last measurement
        self._watcher = QFileSystemWatcher(self)
        self._settle = QTimer(self, singleShot=True, interval=SETTLE_MS)
        self._settle.timeout.connect(self.rescan)
        self._watcher.directoryChanged.connect(self._on_change)
        self._watcher.fileChanged.connect(self._on_change)
        self._read.connect(self._on_read)
        self._checked.connect(self._on_checked)
        self._scanned.connect(self._on_scanned)
        self._scan_failed.connect(self._on_scan_failed)
        self._speed_measured.connect(self.history.remember_speed)
        self._loaded_read.connect(self._on_loaded_read)

    def begin(self) -> None:
        """Scan all folders, and watch them from now on."""
        if not self._begun:
            self._begun = True
            self.machine = kept_machine(self._machine_path)
        self.rescan()

    def begin_once(self) -> None:
        """Scan all folders if that has not begun yet."""
        if not self._begun:
            self.begin()

    @property
    def folders(self) -> list[tuple[str, Path]]:
        """Return all folders, each with the program that owns it; "" for the user's own."""
        own = [("", folder) for folder in self.history.folders]
        return own + [item for item in known_folders() if item[1] not in self.history.folders]

    def add_folder(self, folder: Path) -> None:
        """Add a folder of models."""
        if self.history.add_folder(folder):
            self.rescan()

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder from the list; its files stay."""
        self.history.remove_folder(folder)
        self.rescan()

    def rescan(self) -> None:
        """Scan all folders again, in the thread."""
        if not self._begun:
            return
        self._number += 1
        number = self._number
        folders, files = [folder for _, folder in self.folders], list(self.loose)
        self.busy.emit(True)
        self._background.later(
            lambda: self._scan_folders(number, folders, files),
            lambda sentence: self._scan_failed.emit(number, sentence),
        )

    @property
    def free_bytes(self) -> int:
        """The memory that is free once the present model is unloaded.

        Read it once for all models of a list: it takes some milliseconds.
        """
        return available_bytes() + self.returned_bytes

    def verdict(self, facts: Facts, free_bytes: int) -> Verdict:
        """Judge a model that is not in the list."""
        return self._verdict(facts, None, free_bytes)

    def judge(self) -> None:
        """Judge all models again, because the free memory or the cache rate may have changed."""
        free_bytes = self.free_bytes
        self.rows = [self._row(entry, free_bytes) for entry in self.scan.entries]
        self.changed.emit()

    def remember_answer(self, path: Path, n_slot: int, n_token: int, tokens_per_s: float) -> None:
        """Record the speed of an answer with N_TOKEN_MIN tokens or more."""
        if n_token < N_TOKEN_MIN:
            return

        def recognise() -> None:
            for entry in scan([], [path], self._facts_cache()).entries:
                if entry.facts is not None:
                    self._speed_measured.emit(entry.facts.fingerprint, n_slot, tokens_per_s)

        self._background.later(recognise, self.failed.emit)

    def look_at(self, path: Path | None) -> None:
        """Read the facts of the loaded model, for `speed`."""
        self._loaded = None
        if path is None:
            return
        if self.machine is None:
            self.machine = kept_machine(self._machine_path)

        def look() -> None:
            for entry in scan([], [path], self._facts_cache()).entries:
                self._loaded_read.emit(entry)

        self._background.later(look, self.failed.emit)

    def speed(self, n_slot: int) -> Speed | None:
        """Return the speed of the loaded model with `n_slot` slots per layer; None if unknown."""
        if self._loaded is None or self._loaded.facts is None:
            return None
        facts = self._loaded.facts
        return speed(facts, n_slot, self.machine, self.history.measured(facts.fingerprint))

    def _on_loaded_read(self, entry: Entry) -> None:
        self._loaded = entry
        self.changed.emit()

    @property
    def is_checking(self) -> bool:
        """Return whether the file of a model is being checked."""
        return self.check is not None and self.check.share is not None

    def check_file(self, path: Path) -> None:
        """Compare a file's SHA-256 with the stated one, in a thread, if no check runs."""
        if self.is_checking:
            return
        self.check = FileCheck(path, 0.0)
        self._stop_check = stop = threading.Event()

        def work() -> None:
            shown = 0.0

            def heard(share: float) -> None:
                nonlocal shown
                if share >= shown + 0.005:
                    shown = share
                    self._read.emit(share)

            try:
                self._checked.emit(checksum(path, heard, lambda: not stop.is_set()))
            except ChecksumError as error:
                self._checked.emit(str(error))

        self._checks.later(work, self._checked.emit)
        self.check_moved.emit()

    def stop_check(self) -> None:
        """End the check of a file."""
        self._stop_check.set()

    def _on_read(self, share: float) -> None:
        if self.check is not None:
            self.check = FileCheck(self.check.path, share)
            self.check_moved.emit()

    def _on_checked(self, found: Checksum | str) -> None:
        assert self.check is not None
        path = self.check.path
        self.check = FileCheck(path, None, found if isinstance(found, str) else "")
        if isinstance(found, Checksum):
            self.history.remember_checksum(path, found)
        self.judge()
        if not any(row.entry.path == path and row.checksum is found for row in self.rows):
            self.rescan()  # the file has changed since the scan, or was not read to its end

    @property
    def is_measuring(self) -> bool:
        """Return whether this machine is being measured."""
        return self._process is not None

    def measure(self, again: bool = False) -> None:
        """Measure this machine once, when the machine and the engine are idle.

        again: measure again, even if the machine is busy.
        """
        known = self.machine is not None or self._measure_failed or is_busy()
        if self._process is not None or (known and not again) or not self.may_measure():
            return
        large = max(self.scan.entries, key=lambda entry: entry.size_bytes, default=None)
        model = large.path if large is not None and is_large(large.path) else None
        command = measure_command(self._machine_path, model)
        self._process = QProcess(self)
        self._process.started.connect(self._note_pid)
        self._process.finished.connect(self._measured)
        self._process.errorOccurred.connect(self._measured)
        self._process.start(command[0], command[1:])
        self.changed.emit()

    def shut_down(self) -> None:
        """End the thread and a running measurement."""
        self._number += 1
        self._settle.stop()
        if self._process is not None:
            self._process.blockSignals(True)
            self._process.kill()
            self._process.waitForFinished(1000)
        self.stop_check()
        self._checks.shut_down()
        self._background.shut_down()

    # In the thread

    def _facts_cache(self) -> FactsCache:
        if self._cache is None:
            self._cache = FactsCache(self._facts_path, EngineConfig().context_length)
        return self._cache

    def _scan_folders(self, number: int, folders: list[Path], files: list[Path]) -> None:
        if number != self._number:
            return
        cache = self._facts_cache()
        found = scan(folders, files, cache, lambda: number == self._number)
        cache.save()
        self._scanned.emit(number, found)

    # In the window's thread

    def _on_scanned(self, number: int, found: Scan) -> None:
        if number != self._number:
            return
        self.scan = found
        self._watch()
        self.busy.emit(False)
        self.judge()
        self.measure()

    def _on_scan_failed(self, number: int, sentence: str) -> None:
        if number == self._number:
            self.busy.emit(False)
            self.failed.emit(sentence)

    def _row(self, entry: Entry, free_bytes: int) -> Row:
        facts = entry.facts
        verdict = self._verdict(facts, entry.path, free_bytes) if facts is not None else None
        found = self.history.checksum(entry.path, entry.stamp)
        return Row(entry, verdict, self.history.used_s(entry.path), found)

    def _verdict(self, facts: Facts, path: Path | None, free_bytes: int) -> Verdict:
        measured = self.history.measured(facts.fingerprint)
        return judge(facts, self.rate_for(path), free_bytes, self.machine, measured)

    def _on_change(self, _: str) -> None:
        if not self._settle.isActive():
            self._settle.start()

    def _watch(self) -> None:
        """Watch folders with models, their parents, and files that may still grow.

        Qt does not report that a watched folder is moved; its parent changes then.
        """
        wanted = {str(folder) for folder in self.scan.folders[:N_WATCHED_MAX]}
        for place in self.scan.places:
            above = next((path for path in place.path.parents if is_folder(path)), None)
            wanted |= {str(above)} if above is not None else set()
        for entry in self.scan.entries[:N_WATCHED_MAX]:
            if entry.facts is None and entry.size_bytes:
                wanted.add(str(entry.path))
        present = set(self._watcher.files() + self._watcher.directories())
        if gone := present - wanted:
            self._watcher.removePaths(sorted(gone))
        if new := wanted - present:
            self._watcher.addPaths(sorted(new))

    def _note_pid(self) -> None:
        if self._process is not None:
            self._pid = self._process.processId()

    def _measured(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.deleteLater()
        self._process = None
        self.machine = kept_machine(self._machine_path)
        self._measure_failed = self.machine is None
        if fault := faults.of_process(self._pid):
            self.failed.emit(fault)
        self.judge()
