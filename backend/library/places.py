"""Finds the models of other programs, so that no model is downloaded twice.

LM Studio, Jan, llama.cpp and Hugging Face keep files with names of their own. Ollama keeps blobs:
their names are checksums, and manifests say which blob is which model.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from backend.system.kept_file import read_object
from backend.system.paths import is_file, is_folder, open_regular

_MODEL = "application/vnd.ollama.image.model"
_VISION = "application/vnd.ollama.image.projector"
_DIGEST_CHARS = 71  # "sha256:" and 64 digits
_N_MANIFEST_MAX = 2000
_POINTER_MAX = 4096


def known_folders(
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
    system: str = sys.platform,
) -> list[tuple[str, Path]]:
    """Return (program, folder) for each existing folder of models of another program.

    system: as sys.platform; the folders differ between systems.
    """
    environment = os.environ if environment is None else environment
    home = home or Path.home()

    def base(variable: str, *otherwise: str) -> Path:
        return Path(environment.get(variable) or home.joinpath(*otherwise))

    if system == "darwin":
        config = data = home / "Library" / "Application Support"
        caches = home / "Library" / "Caches"
    elif system == "win32":
        config = data = base("APPDATA", "AppData", "Roaming")
        caches = base("LOCALAPPDATA", "AppData", "Local")
    else:
        config, data = base("XDG_CONFIG_HOME", ".config"), base("XDG_DATA_HOME", ".local", "share")
        caches = base("XDG_CACHE_HOME", ".cache")
    hub = base("XDG_CACHE_HOME", ".cache") / "huggingface"
    candidates = [("LM Studio", folder) for folder in _lm_studio(home, config)]
    candidates += [("Ollama", base("OLLAMA_MODELS", ".ollama", "models"))]
    if system not in ("darwin", "win32"):  # the folders of its service
        candidates += [
            ("Ollama", Path("/usr/share/ollama/.ollama/models")),
            ("Ollama", Path("/var/lib/ollama/models")),
        ]
    for root in _jan(home, config, data):
        candidates += [("Jan", root / "llamacpp" / "models"), ("Jan", root / "models")]
    candidates += [
        (
            "Hugging Face",
            Path(
                environment.get("HF_HUB_CACHE")
                or environment.get("HUGGINGFACE_HUB_CACHE")
                or Path(environment.get("HF_HOME") or hub) / "hub"
            ),
        ),
        ("llama.cpp", Path(environment.get("LLAMA_CACHE") or caches / "llama.cpp")),
    ]
    found: dict[Path, str] = {}
    for program, folder in candidates:
        if is_folder(folder):
            found.setdefault(folder, program)
    return [(program, folder) for folder, program in found.items()]


def _lm_studio(home: Path, config: Path) -> list[Path]:
    """Return LM Studio's folders: the one that its settings name, then the usual ones."""
    roots = [home / ".lmstudio", home / ".cache" / "lm-studio"]
    try:
        with open(home / ".lmstudio-home-pointer", encoding="utf-8", opener=open_regular) as file:
            pointer = file.read(_POINTER_MAX).strip()
    except (OSError, ValueError):
        pointer = ""
    if pointer:
        roots.insert(0, Path(pointer.splitlines()[0]))
    chosen = [
        read_object(place / "settings.json").get("downloadsFolder")
        for place in (*roots, config / "LM Studio")
    ]
    named = [Path(folder) for folder in chosen if isinstance(folder, str) and folder]
    return named + [root / "models" for root in roots]


def _jan(home: Path, config: Path, data: Path) -> list[Path]:
    """Return Jan's data folders: the one that its settings name, then the usual ones."""
    named = [
        read_object(base / "Jan" / "settings.json").get("data_folder") for base in (config, data)
    ]
    chosen = [Path(folder) for folder in named if isinstance(folder, str) and folder]
    return [*chosen, config / "Jan" / "data", data / "Jan" / "data", home / "jan"]


# Ollama


def is_ollama(folder: Path) -> bool:
    """Return whether a folder is a store of Ollama."""
    return is_folder(folder / "manifests") and is_folder(folder / "blobs")


def ollama_models(folder: Path) -> list[tuple[str, Path, Path | None]]:
    """Return (name, blob of the model, blob of its mmproj file or None) for each manifest.

    The names are Ollama's: "gpt-oss:20b", or with the owner "someone/model:tag". Manifests that
    cannot be read are left out.
    """
    manifests, found = folder / "manifests", []
    try:
        paths = sorted(path for path in manifests.rglob("*") if is_file(path))
    except OSError:
        return []
    for path in paths[:_N_MANIFEST_MAX]:
        if path.parent == manifests:
            continue
        layers = read_object(path).get("layers")
        blobs: dict[str, Path] = {}
        for layer in layers if isinstance(layers, list) else []:
            kind = layer.get("mediaType") if isinstance(layer, dict) else None
            digest = layer.get("digest") if isinstance(layer, dict) else None
            if kind in (_MODEL, _VISION) and isinstance(digest, str):
                if len(digest) == _DIGEST_CHARS and digest[7:].isalnum():
                    blobs.setdefault(kind, folder / "blobs" / digest.replace(":", "-"))
        if _MODEL in blobs:
            *above, model, tag = ("", *path.relative_to(manifests).parts)[-3:]
            owner = "".join(f"{name}/" for name in above if name not in ("", "library"))
            found.append((f"{owner}{model}:{tag}", blobs[_MODEL], blobs.get(_VISION)))
    return found


@functools.cache
def _ollama_names(folder: Path) -> dict[str, tuple[str, Path | None]]:
    models = reversed(ollama_models(folder))  # the first of several names counts
    return {blob.name: (name, vision) for name, blob, vision in models}


def _ollama_entry(path: Path) -> tuple[str, Path | None] | None:
    """Return the name and the mmproj file of a blob of Ollama; None for another file."""
    if not path.name.startswith("sha256-") or path.parent.name != "blobs":
        return None
    folder = path.parent.parent
    if path.name not in _ollama_names(folder):
        _ollama_names.cache_clear()  # it was pulled since
    return _ollama_names(folder).get(path.name)


def ollama_vision(path: Path) -> Path | None:
    """Return the mmproj file that belongs to a blob of Ollama, or None."""
    entry = _ollama_entry(path)
    return entry[1] if entry is not None else None


def title_of(path: Path) -> str:
    """Return a model's title: the name of its file, or its name in the program that keeps it.

    Jan names every file model.gguf, so the folder's name is the title.
    """
    if entry := _ollama_entry(path):
        return entry[0]
    if path.name.lower() == "model.gguf" and path.parent.name:
        return path.parent.name
    return path.stem
