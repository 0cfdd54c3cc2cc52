"""Compare the installed packages with requirements.lock: versions, and licences that permit it.

`make bundle` runs it before it bundles. The exit status is 1 if a package that would be shipped has
another version, is not in the lock, or has a licence that is not in LICENCES.

    python packaging/locked.py --audit [NAME ...]   ask PyPI for known vulnerabilities (make audit)

The audit covers packages of PyPI, not llama.cpp or Qt inside them. Its exit status is 1 if there is
a vulnerability that is not in ACCEPTED, or if PyPI does not say.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "packaging" / "requirements.lock"
LICENCES = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python-2\.0|Python Software Foundation|MPL-2\.0|Mozilla Public|Zlib|"
    r"0BSD|LGPL-3\.0|CC0-1\.0|Unlicense|HPND",
)
"""Licences whose terms the bundle meets: it has their texts (app/pages/licences.py)."""
API = "https://pypi.org/pypi"
ACCEPTED = {
    "CVE-2025-69872": "diskcache unpickles what it cached; llama_cpp imports it, and no such cache "
    "is ever opened here. No version mends it.",
}
"""Vulnerabilities that do not concern a bundle, each with the reason."""
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


def vulnerabilities(name: str, version: str) -> set[str] | None:
    """Return the vulnerabilities of a version that PyPI knows; None if it lacks the version.

    Raises OSError and ValueError if PyPI cannot be asked.
    """
    for page in (f"{name}/{version}", name):
        try:
            with urllib.request.urlopen(f"{API}/{page}/json", timeout=30) as answer:
                about = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            continue  # mirrors lack the pages of versions; the other page is of the newest version
        if about["info"]["version"] == version:
            known = [item for item in about["vulnerabilities"] if not item.get("withdrawn")]
            names = [[item["id"], *item.get("aliases", ())] for item in known]
            return {min(ids, key=lambda one: not one.startswith("CVE-")) for ids in names}
    return None


def audit(names: list[str]) -> list[str]:
    """Return a sentence for each vulnerability, and for packages that PyPI says nothing about."""
    silent, versions = [], locked()
    found = [f"requirements.lock has no {name}." for name in names if name not in versions]
    names = [name for name in names or versions if name in versions]
    for i, name in enumerate(names):
        try:
            known = vulnerabilities(name, versions[name])
        except (OSError, ValueError, LookupError, TypeError) as error:
            rest = ", ".join(names[i:])
            found.append(f"PyPI cannot be asked ({error}). Nothing is known about {rest}.")
            break
        if known is None:
            silent.append(f"{name} {versions[name]}")
        for one in sorted(known or ()):
            if one in ACCEPTED:
                print(f"{name} has {one}, which is accepted: {ACCEPTED[one]}")
            else:
                found.append(f"{name} {versions[name]} has {one}: https://osv.dev/{one}")
    if silent:
        found.append(f"PyPI says nothing about {', '.join(silent)}.")
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--audit"]:
        sentences = audit(sys.argv[2:])
        print("\n".join(sentences) or "PyPI knows no other vulnerability of what was asked.")
        sys.exit(1 if sentences else 0)
    sentences = faults()
    print("\n".join(sentences) or "All packages are as in requirements.lock.")
    sys.exit(1 if sentences else 0)
