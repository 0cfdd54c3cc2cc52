"""The models that the window knows: scanned in a thread, judged again as the memory changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QProcess, QTimer, Signal

from app.widgets.background import Background
from backend.library.estimate import Speed, Verdict, judge, speed
from backend.library.facts import Facts, FactsCache
from backend.library.history import History
from backend.library.machine import is_large, kept_machine, measure_command
from backend.library.places import known_folders
from backend.library.scan import Entry, Scan, scan
from backend.machines import Hardware
from backend.protocol.settings import EngineConfig
from backend.system.memory import available_bytes, is_busy
from backend.system.paths import is_folder

SETTLE_MS = 500  # from the first change in a folder until it is looked through
N_WATCHED_MAX = 1000
N_TOKEN_MIN = 16  # an answer shorter than this says little about the speed


@dataclass(frozen=True)
class Row:
    """A model as the page shows it; verdict is None where it cannot be used."""

    entry: Entry
    verdict: Verdict | None
    used_s: float


class Library(QObject):
    """Folders, models and verdicts.

    Nothing is read before `begin`. Files are only touched in a thread of its own.

    Signals:
        changed: the rows are others, or were judged again.
        busy: (bool) a scan began or ended.
    """

    changed = Signal()
    busy = Signal(bool)
    _scanned = Signal(int, object)
    _recognised = Signal(str, int, float)
    _looked = Signal(object)

    def __init__(self, history_path: Path, cache: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.history = History(history_path)
        self.machine: Hardware | None = None
        self.scan = Scan()
        self.rows: list[Row] = []
        self.loose: list[Path] = []
        """Single files that belong to the list: the embedded model, recent ones."""
        self.rate_for: Callable[[Path | None], float] = lambda _: EngineConfig().cache_rate
        """The cache rate that a model is loaded with."""
        self.returned_bytes = 0
        """What the model in memory gives back when another is loaded."""
        self.may_measure: Callable[[], bool] = lambda: True
        self._machine_path = cache / "machine.json"
        self._facts_path = cache / "library.json"
        self._cache: FactsCache | None = None  # belongs to the thread
        self._background = Background("library")
        self._number = 0  # of the newest scan; older ones end early
        self._is_open = False
        self._begun = False
        self._present: Entry | None = None  # the model that is loaded
        self._process: QProcess | None = None
        self._measure_failed = False
        self._watcher = QFileSystemWatcher(self)
        self._settle = QTimer(self, singleShot=True, interval=SETTLE_MS)
        self._settle.timeout.connect(self.rescan)
        self._watcher.directoryChanged.connect(self._something_changed)
        self._watcher.fileChanged.connect(self._something_changed)
        self._scanned.connect(self._take)
        self._recognised.connect(self.history.remember_speed)
        self._looked.connect(self._take_present)

    def begin(self) -> None:
        """Look through all folders, and keep watching them from now on."""
        if not self._begun:
            self._begun = True
            self.machine = kept_machine(self._machine_path)
        self.rescan()

    @property
    def folders(self) -> list[tuple[str, Path]]:
        """All folders with the program that they are of, empty for those that the user added."""
        own = [("", folder) for folder in self.history.folders]
        return own + [item for item in known_folders() if item[1] not in self.history.folders]

    def add_folder(self, folder: Path) -> None:
        """Add a folder of models."""
        if self.history.add_folder(folder):
            self.rescan()

    def remove_folder(self, folder: Path) -> None:
        """Forget a folder; its files stay."""
        self.history.remove_folder(folder)
        self.rescan()

    def rescan(self) -> None:
        """Look through all folders again, in the thread."""
        if not self._begun:
            return
        self._number += 1
        number = self._number
        folders, files = [folder for _, folder in self.folders], list(self.loose)
        self.busy.emit(True)
        self._background.later(lambda: self._look(number, folders, files))

    def verdict(self, facts: Facts) -> Verdict:
        """Judge a model with the memory that is free now, also one that is not in the list."""
        return self._verdict(facts, None, available_bytes() + self.returned_bytes)

    def judge(self) -> None:
        """Judge all models again: the memory that is free, or the cache rate, may have changed."""
        free_bytes = available_bytes() + self.returned_bytes
        self.rows = [self._row(entry, free_bytes) for entry in self.scan.entries]
        self.changed.emit()

    def remember_answer(self, path: Path, n_slot: int, n_token: int, tokens_per_s: float) -> None:
        """Note how fast an answer of this model was, where it was long enough."""
        if n_token < N_TOKEN_MIN:
            return

        def recognise() -> None:
            for entry in scan([], [path], self._facts_cache()).entries:
                if entry.facts is not None:
                    self._recognised.emit(entry.facts.fingerprint, n_slot, tokens_per_s)

        self._background.later(recognise)

    def look_at(self, path: Path | None) -> None:
        """Learn what `speed` needs about the model that is loaded."""
        self._present = None
        if path is None:
            return
        if self.machine is None:
            self.machine = kept_machine(self._machine_path)

        def look() -> None:
            for entry in scan([], [path], self._facts_cache()).entries:
                self._looked.emit(entry)

        self._background.later(look)

    def speed(self, n_slot: int) -> Speed | None:
        """Return how fast the loaded model would be with so many experts of each layer."""
        if self._present is None or self._present.facts is None:
            return None
        facts = self._present.facts
        return speed(facts, n_slot, self.machine, self.history.measured(facts.fingerprint))

    def _take_present(self, entry: Entry) -> None:
        self._present = entry
        self.changed.emit()

    @property
    def is_measuring(self) -> bool:
        """Whether this machine is being measured."""
        return self._process is not None

    def measure(self, again: bool = False) -> None:
        """Measure this machine where that was never done, and both it and the engine are at rest.

        again: the user wants it, at once.
        """
        known = self.machine is not None or self._measure_failed or is_busy()
        if self._process is not None or (known and not again) or not self.may_measure():
            return
        large = max(self.scan.entries, key=lambda entry: entry.size_bytes, default=None)
        model = large.path if large is not None and is_large(large.path) else None
        command = measure_command(self._machine_path, model)
        self._process = QProcess(self)
        self._process.finished.connect(self._measured)
        self._process.errorOccurred.connect(self._measured)
        self._process.start(command[0], command[1:])
        self.changed.emit()

    def shut_down(self) -> None:
        """End the thread and what measures."""
        self._number += 1
        self._settle.stop()
        if self._process is not None:
            self._process.blockSignals(True)
            self._process.kill()
            self._process.waitForFinished(1000)
        self._background.shut_down()

    # In the thread

    def _facts_cache(self) -> FactsCache:
        if self._cache is None:
            self._cache = FactsCache(self._facts_path, EngineConfig().context_length)
        return self._cache

    def _look(self, number: int, folders: list[Path], files: list[Path]) -> None:
        if number != self._number:
            return
        cache = self._facts_cache()
        found = scan(folders, files, cache, lambda: number == self._number)
        cache.save()
        self._scanned.emit(number, found)

    # In the window's thread again

    def _take(self, number: int, found: Scan) -> None:
        if number != self._number:
            return
        self.scan = found
        self._watch()
        self.busy.emit(False)
        self.judge()
        self.measure()

    def _row(self, entry: Entry, free_bytes: int) -> Row:
        facts = entry.facts
        verdict = self._verdict(facts, entry.path, free_bytes) if facts is not None else None
        return Row(entry, verdict, self.history.used_s(entry.path))

    def _verdict(self, facts: Facts, path: Path | None, free_bytes: int) -> Verdict:
        measured = self.history.measured(facts.fingerprint)
        return judge(facts, self.rate_for(path), free_bytes, self.machine, measured)

    def _something_changed(self, _: str) -> None:
        if not self._settle.isActive():
            self._settle.start()

    def _watch(self) -> None:
        """Watch folders with models, what these folders are in, and files that may yet grow.

        Qt does not tell when a folder itself is moved; the one above it does.
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

    def _measured(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.deleteLater()
        self._process = None
        self.machine = kept_machine(self._machine_path)
        self._measure_failed = self.machine is None
        self.judge()
