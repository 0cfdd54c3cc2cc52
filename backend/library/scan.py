"""Searches folders for models. A split model is one entry, even if parts are missing."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.gguf.identity import FileIdentity
from backend.library.facts import Facts, FactsCache
from backend.library.places import is_ollama, ollama_models, title_of
from backend.text import Text, text

N_FOLDER_MAX = 5000  # folders searched below one place
DEPTH_MAX = 12
N_PART_MAX = 1024

_FIRST = re.compile(r"\.gguf[-._](?:part|split)?[-._]?(?:0{0,2}1|a|aa)(?:of\d+)?$", re.IGNORECASE)
"""The name of the first piece of a file that was cut. Its row says how to join the pieces."""
PART_NAME = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf", re.IGNORECASE | re.DOTALL)
"""Name of a part of a split model: stem, number of the part, number of parts."""
NO_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)
"""In the name of a file that belongs to a model: its vision part, or calibration data."""


@dataclass(frozen=True)
class Entry:
    """One model. If it cannot be used, `facts` is None and `trouble` is a clause why.

    path: the first part that exists. stamp: of each part that exists (FileIdentity.stamp).
    """

    path: Path
    n_part: int
    size_bytes: int  # of the parts that exist
    facts: Facts | None
    trouble: str = ""
    stamp: tuple[tuple[int, ...], ...] = ()

    @property
    def name(self) -> str:
        """The model's title, or the file's name without suffix and part number; valid Unicode."""
        found = PART_NAME.fullmatch(self.path.name)
        stem = found[1] if found else title_of(self.path)
        return shown(stem)


@dataclass
class Place:
    """A searched folder. trouble: a clause why it was not searched in full, or empty."""

    path: Path
    trouble: str = ""


@dataclass
class Scan:
    """The result: models without duplicates, the places, and all folders that contain models."""

    entries: list[Entry] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def scan(
    folders: Iterable[Path],
    files: Iterable[Path],
    cache: FactsCache,
    go_on: Callable[[], bool] = lambda: True,
) -> Scan:
    """Search `folders`, then add single `files`. Raises nothing.

    A file that is reached twice, for instance through a link, is one entry. go_on is called between
    files; once it returns False, the result so far is returned.
    """
    result = Scan()
    seen: set[tuple[int, int]] = set()
    for root in folders:
        place = Place(root)
        result.places.append(place)
        if is_ollama(root):
            result.folders.append(root / "manifests")
            for _, blob, _ in ollama_models(root):
                _add(result, [blob], 1, cache, seen)
                if not go_on():
                    return result
            continue
        for folder, names in _walk(place, go_on):
            groups = _groups(folder, names)
            if groups or folder == root:
                result.folders.append(folder)
            for paths, n_part in groups:
                _add(result, paths, n_part, cache, seen)
                if not go_on():
                    return result
    for path in files:
        if go_on():
            _add_file(result, path, cache, seen)
    return result


def part_paths(path: Path) -> list[Path]:
    """Return the paths of all parts of a split model, there or not; of another file, its own."""
    found = PART_NAME.fullmatch(path.name)
    if not found or not 1 <= int(found[2]) <= int(found[3]) <= N_PART_MAX:
        return [path]
    numbers = range(1, int(found[3]) + 1)
    return [path.with_name(f"{found[1]}-{i:05d}-of-{found[3]}{path.suffix}") for i in numbers]


def by_name(entries: Iterable[Entry]) -> dict[str, Path]:
    """Return the usable models by name. If two have the same name, the first keeps it."""
    paths: dict[str, Path] = {}
    for entry in entries:
        if entry.facts is not None:
            name = (
                entry.name if entry.name not in paths else f"{entry.path.parent.name}/{entry.name}"
            )
            paths.setdefault(name, entry.path)
    return paths


def _walk(place: Place, go_on: Callable[[], bool]) -> Iterator[tuple[Path, list[str]]]:
    """Yield folders and their GGUF names. Follow links to folders, but visit each target once."""
    todo = [(place.path, 0)]
    visited: set[tuple[int, int]] = set()
    while todo and go_on():
        folder, depth = todo.pop()
        names, below = [], []
        try:
            about = os.stat(folder)
            if (about.st_dev, about.st_ino) in visited:
                continue
            if about.st_ino:
                visited.add((about.st_dev, about.st_ino))
            with os.scandir(folder) as listing:
                for item in listing:
                    is_model = item.name.lower().endswith(".gguf") or _FIRST.search(item.name)
                    if is_model and not _is_folder(item):
                        if not NO_MODEL.search(item.name):
                            names.append(item.name)
                    elif not item.name.startswith(".") and _is_folder(item):
                        below.append(Path(item.path))
        except (OSError, ValueError) as error:
            if folder == place.path:
                place.trouble = _why_not(error)
            elif not place.trouble:
                place.trouble = text(
                    "library.folder_below", folder=shown(folder.name), trouble=_why_not(error)
                )
            continue
        yield folder, sorted(names)
        if depth < DEPTH_MAX:
            todo += [(path, depth + 1) for path in sorted(below, reverse=True)]
        if len(visited) >= N_FOLDER_MAX:
            place.trouble = text("library.too_many_folders", n=N_FOLDER_MAX)
            return


def _is_folder(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_dir()
    except OSError:
        return False


def _why_not(error: Exception) -> Text:
    """Say why a folder cannot be read, in half a sentence."""
    if isinstance(error, FileNotFoundError):
        return text("library.folder_gone")
    if isinstance(error, NotADirectoryError):
        return text("library.no_folder")
    if isinstance(error, PermissionError):
        return text("library.folder_forbidden")
    return text("library.folder_unreadable", reason=_reason(error))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def shown(name: str) -> str:
    """Return a name of a file or folder as text that can be written."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _groups(folder: Path, names: Sequence[str]) -> list[tuple[list[Path], int]]:
    """Join the parts of split models. Return each group with its full number of parts."""
    groups: dict[tuple[str, int], list[Path]] = {}
    for name in names:
        found = PART_NAME.fullmatch(name)
        n_part = int(found[3]) if found else 1
        if found and 1 <= int(found[2]) <= n_part <= N_PART_MAX:
            groups.setdefault((found[1], n_part), []).append(folder / name)
        else:
            groups[(name, 0)] = [folder / name]
    return [(paths, max(key[1], 1)) for key, paths in groups.items()]


def _add_file(result: Scan, path: Path, cache: FactsCache, seen: set[tuple[int, int]]) -> None:
    """Add a file that the user chose. Add the other parts of a split model with it."""
    names = [part.name for part in part_paths(path) if os.path.exists(part)] or [path.name]
    for paths, n_part in _groups(path.parent, names):
        _add(result, paths, n_part, cache, seen)


def _add(
    result: Scan,
    paths: list[Path],
    n_part: int,
    cache: FactsCache,
    seen: set[tuple[int, int]],
) -> None:
    stats, stamps = [], []
    trouble: str = ""
    for path in paths:
        try:
            stats.append(os.stat(path))
            stamps.append(FileIdentity.of(path).stamp)
        except FileNotFoundError:
            is_link = os.path.islink(path)
            trouble = text("library.link_broken") if is_link else text("library.file_gone")
        except PermissionError:
            trouble = text("library.file_forbidden")
        except (OSError, ValueError) as error:
            trouble = text("model.unreadable", reason=_reason(error))
    if stats:
        one = (stats[0].st_dev, stats[0].st_ino)
        if one in seen:
            return
        if stats[0].st_ino:
            seen.add(one)
    size_bytes = sum(s.st_size for s in stats if stat.S_ISREG(s.st_mode))
    facts: Facts | None = None
    if not trouble and len(paths) < n_part:
        trouble = _missing(paths, n_part)
    if not trouble:
        found = cache.facts(paths, stamps)
        if isinstance(found, Facts):
            facts = found
        else:
            trouble = found
    stamp = tuple(stamps)
    result.entries.append(Entry(paths[0], n_part, size_bytes, facts, trouble, stamp))


def _missing(paths: Sequence[Path], n_part: int) -> Text:
    have = {int(found[2]) for path in paths if (found := PART_NAME.fullmatch(path.name))}
    gone = [str(i) for i in range(1, n_part + 1) if i not in have]
    if len(gone) == 1:
        return text("library.part_missing", part=gone[0], n=n_part)
    if len(gone) <= 4:
        return text("library.parts_missing", parts=", ".join(gone), n=n_part)
    return text("library.parts_missing_many", parts=", ".join(gone[:4]), n=n_part)
