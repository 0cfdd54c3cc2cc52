"""Compare the installed packages with requirements.lock: versions, and licences that permit it.

`make bundle` runs it before it bundles. The exit status is 1 if a package that would be shipped has
another version, is not in the lock, or has a licence that is not in LICENCES.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "packaging" / "requirements.lock"
LICENCES = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python-2\.0|Python Software Foundation|MPL-2\.0|Mozilla Public|Zlib|"
    r"0BSD|LGPL-3\.0|CC0-1\.0|Unlicense|HPND",
)
"""Licences whose terms the bundle meets: it has their texts (app/pages/licences.py)."""
_LINE = re.compile(r"([a-z0-9-]+)==(\S+) --hash=sha256:([0-9a-f]{64})")


def locked() -> dict[str, str]:
    """Return the versions in the lock by name. Raises ValueError for a line that is none."""
    found = {}
    for line in LOCK.read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise ValueError(f"requirements.lock has the line {line!r}.")
        found[parts[1]] = parts[2]
    return found


def shipped(name: str = "outrider") -> set[str]:
    """Return the names of the packages that a package needs here, without itself."""
    from packaging.requirements import Requirement  # a dependency of pip's users

    found: set[str] = set()
    todo = [(name, "")]
    while todo:
        package, extra = todo.pop()
        for text in metadata.requires(package) or ():
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            needed = re.sub(r"[-_.]+", "-", wanted.name).lower()
            todo += [(needed, one) for one in wanted.extras]
            if needed not in found:
                found.add(needed)
                todo.append((needed, ""))
    return found


def faults() -> list[str]:
    """Return a sentence for each package that differs from the lock."""
    versions, found = locked(), []
    for name in sorted(shipped()):
        about = metadata.metadata(name)
        version = metadata.version(name)
        if versions.get(name) != version:
            found.append(f"{name} {version} is installed, and the lock has {versions.get(name)}.")
        said = [
            value
            for field in ("License-Expression", "License", "Classifier")
            for value in about.get_all(field) or ()
            if field != "Classifier" or value.startswith("License")
        ]
        if not any(LICENCES.search(licence) for licence in said):
            found.append(f"{name} has a licence that was not looked at: {said}.")
    return found


if __name__ == "__main__":
    sentences = faults()
    print("\n".join(sentences) or "All packages are as in requirements.lock.")
    sys.exit(1 if sentences else 0)
