"""Where models come from: the one that ships with the application, and the user's files."""

import functools
from pathlib import Path

from app.text.language import translate
from backend.library.places import title_of
from backend.system import paths
from backend.system.paths import is_folder


@functools.cache
def embedded_model() -> Path | None:
    """Return the model that ships with the application, or None if it is missing."""
    try:
        return paths.embedded_model()
    except FileNotFoundError:
        return None


def is_embedded(path: Path) -> bool:
    """Return whether a path is the embedded model."""
    embedded = embedded_model()
    return embedded is not None and path == embedded


def title(path: Path) -> str:
    """Return the title of a model in the window, before its own name is known."""
    return translate("library", "Embedded model") if is_embedded(path) else title_of(path)


def model_in_drop(paths: list[Path]) -> Path | None:
    """Return the first GGUF file among dropped ones, also one that cannot be read."""
    for path in paths:
        if path.suffix.lower() == ".gguf" and not is_folder(path):
            return path
    return None
