"""The files that belong to a model beside its own: mmproj files, with which it sees images."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from backend.gguf.header import ModelFileError, Value, read_header
from backend.gguf.model_file import ModelFile

_MARK = re.compile(r"mmproj", re.IGNORECASE)
_NOT_OF_NAME = re.compile(
    r"mmproj|\.gguf|-\d{5}-of-\d{5}|[-_.](?:bf16|f16|f32|q\d\w*|iq\d\w*|mxfp4\w*|ud)(?![a-z])",
    re.IGNORECASE,
)
"""Parts of the names of files that say nothing on the model."""
_SAME = ("general.name", "general.basename", "general.base_model.0.name")
"""Keys that the converter writes with the same value into a model and its mmproj file."""
_N_FOLDER = 64  # folders below a model's that are looked into


def vision_files(file: ModelFile) -> list[Path]:
    """Return the mmproj files that fit a model, the best first.

    They are found by "mmproj" anywhere in the name, beside the model, in a folder below with such a
    name, and in the folder above if they are named like the model. They must see, and project to
    the model's width. The names in the files and of the files order them. Where the best are of
    several models and none is named like this one, there is none: the alphabet does not choose.
    """
    found: list[tuple[int, str, Path, str]] = []
    own = file.path.parent
    for path in _candidates(own):
        metadata = _metadata(path)
        if metadata is None or metadata.get("clip.vision.projection_dim") != file.key(
            "embedding_length"
        ):
            continue
        likeness = _likeness(file, path, metadata)
        if likeness > 0 or own in (path.parent, path.parent.parent):
            found.append((-likeness, path.name.lower(), path, str(metadata.get("general.name"))))
    found.sort()
    best = [entry for entry in found if entry[0] == found[0][0]]
    if found and found[0][0] >= 0 and len({name for *_, name in best}) > 1:
        return []
    return [path for *_, path, _ in found]


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield the files that are called mmproj, in and about a folder."""
    below = [entry for entry in _entries(folder) if _MARK.search(entry.name)]
    folders = [Path(entry.path) for entry in below if entry.is_dir()][:_N_FOLDER]
    for place in (folder, *folders, folder.parent):
        for entry in _entries(place):
            is_called = _MARK.search(entry.name) or place in folders
            if is_called and entry.name.lower().endswith(".gguf") and entry.is_file():
                yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return []


def _metadata(path: Path) -> Mapping[str, Value] | None:
    """Return the header of an mmproj file for images, or None."""
    try:
        metadata = read_header(path).metadata
    except ModelFileError:
        return None
    is_eye = metadata.get("clip.has_vision_encoder") is not False
    return metadata if is_eye and metadata.get("general.architecture") == "clip" else None


def _likeness(file: ModelFile, path: Path, metadata: Mapping[str, Value]) -> int:
    """Return how surely an mmproj file is of a model; negative: it is named like another one."""
    same = sum(bool(value := metadata.get(k)) and value == file.metadata.get(k) for k in _SAME)
    mine, other = _plain(file.path.name), _plain(path.name)
    if not other:
        return 2 * same
    is_like = mine.startswith(other) or other.startswith(mine)
    return 2 * same + (1 if is_like else -1)


def _plain(name: str) -> str:
    """Return what a file's name says of its model, in small letters and digits."""
    return re.sub(r"[^a-z0-9]", "", _NOT_OF_NAME.sub("", name).lower())
