"""What the program imports is what people get: pyproject.toml and packaging/requirements.lock."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_imports import Import, below, imports, module_name

from app.pages.licences import component, packages

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "backend", "predictors")
STARTERS = ("packaging/bundled.py", "packaging/launch.py")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "win32": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
    "darwin": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
}
LOCKS = {
    "linux": ["requirements.lock"],
    "win32": ["windows/wine/requirements.lock", "requirements.lock"],
}

# These import a package of an extra, or a module that needs one, inside a function. The reason why
# they need not catch its absence there:
GUARDED = {
    "predictors.embedded.__main__": "main() says what is missing",
    "predictors.fit": "`outrider train` offers ExpertMLP only where torch is",
}
INSTALLED = {re.sub(r"[-_.]+", "-", one.name).lower() for one in metadata.distributions()}
PROVIDED = metadata.packages_distributions()
UNCAUGHT = "does not catch the absence of the extra"
BUILDERS = set(
    "altgraph cmake nanobind ninja pathspec pyinstaller pyinstaller-hooks-contrib"
    " scikit-build-core setuptools".split()
)
"""What requirements.lock has to build a bundle, which does not hold it."""
ONLY_ON_SOME = set("curses fcntl grp msvcrt pwd readline resource termios tty winreg".split())
"""Modules of the standard library that not every system has."""


@functools.cache
def modules(root: Path) -> dict[str, list[Import]]:
    """Return the imports of each module of the product."""
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    paths += [root / name for name in STARTERS if (root / name).is_file()]
    return {
        module_name(path.relative_to(root)): [*imports(path), *imports_by_call(path)]
        for path in paths
    }


def imports_by_call(path: Path) -> Iterator[Import]:
    """Yield the imports with import_module(), if their names are constant."""
    calls = r"""(?:import_module|__import__)\(\s*["']([\w.]+)"""
    return (Import(name, False, False) for name in re.findall(calls, path.read_text("utf-8")))


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(texts: list[str], system: str, extra: str = "") -> list[Requirement]:
    """Return the requirements that hold on a system."""
    found = map(Requirement, texts)
    where = {**SYSTEMS[system], "extra": extra}
    return [one for one in found if one.marker is None or one.marker.evaluate(where)]


def names(texts: list[str], system: str) -> set[str]:
    return {plain(one.name) for one in required(texts, system)}


def needing(found: dict[str, list[Import]], packages: set[str]) -> set[str]:
    """Return the modules that cannot be imported without one of these packages."""
    needy: set[str] = set()
    while True:
        more = {
            module
            for module, its in found.items()
            if any(i.is_at_start and (i.top in packages or below(i.name, needy)) for i in its)
        }
        if more == needy:
            return needy
        needy = more


def faults(found: dict[str, list[Import]]) -> list[str]:
    """Return a sentence for each import that fails for people, also those of GUARDED."""
    said = set()
    declared = {system: names(PROJECT["dependencies"], system) for system in SYSTEMS}
    optional = PROJECT["optional-dependencies"]
    extras = {e: {s: names(optional[e], s) for s in SYSTEMS} for e in optional if e != "dev"}
    tops: dict[str, set[str]] = {extra: set() for extra in extras}
    for module, its in found.items():
        for i in its:
            if i.top in sys.stdlib_module_names and i.top in ONLY_ON_SOME and i.is_at_start:
                said.add(f"{module} imports {i.name}, which not every system has")
            if i.top in sys.stdlib_module_names or i.top in FOLDERS:
                continue
            theirs = {plain(name) for name in PROVIDED.get(i.top, [i.top])}
            absent = [s for s in SYSTEMS if not theirs & declared[s]]
            of = [e for e in extras if absent and all(theirs & extras[e][s] for s in absent)]
            if absent and not of:
                said.add(f"{module} imports {i.top}, not declared for {', '.join(absent)}")
            for extra in of:
                tops[extra].add(i.top)
    for extra in extras:
        needy = needing(found, tops[extra])
        for module, its in found.items():
            if module in needy:
                if not below(module, ("predictors",)) or module.endswith("__main__"):
                    said.add(f"{module} cannot be imported without the extra {extra}")
            elif any(
                not i.is_caught and (i.top in tops[extra] or below(i.name, needy)) for i in its
            ):
                said.add(f"{module} {UNCAUGHT} {extra}")
    return sorted(said)


def test_what_is_imported_is_declared() -> None:
    found = faults(modules(ROOT))
    uncaught = [fault for fault in found if UNCAUGHT in fault]
    assert [fault for fault in found if fault not in uncaught] == []
    assert {fault.split()[0] for fault in uncaught} == set(GUARDED)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import yaml", "backend.x imports yaml, not declared for linux, win32, darwin"),
        ("def f(): import yaml.a", "backend.x imports yaml, not declared for linux, win32, darwin"),
        ("importlib.import_module('yaml.a')", "backend.x imports yaml, not declared for linux"),
        ("from mcp_types import A", "backend.x imports mcp_types, not declared"),
        ("import torch", "backend.x cannot be imported without the extra predictors"),
        ("from predictors.y import z", "backend.x cannot be imported without"),
        ("def f(): import torch", "backend.x does not catch the absence of the extra"),
        ("def f(): import predictors.y", "backend.x does not catch"),
        ("try: import torch\nexcept ValueError: pass", "backend.x cannot be imported without"),
        ("try:\n  def f(): import torch\nexcept ImportError: pass", "backend.x does not catch"),
        ("import fcntl", "backend.x imports fcntl, which not every system has"),
        ("try: import torch\nexcept ImportError: torch = None", ""),
        ("def f():\n  try: import predictors.y\n  except ImportError: pass", ""),
        ("import psutil, numpy.linalg, PySide6.QtCore", ""),
        ("if sys.platform != 'win32': import fcntl", ""),
    ],
)
def test_what_people_lack_is_found(tmp_path: Path, text: str, fault: str) -> None:
    for name, its in (("backend/x.py", text), ("predictors/y.py", "import torch\nz = 1")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(its)
    found = faults(modules(tmp_path))
    assert len(found) == bool(fault) and all(one.startswith(fault) for one in found), found


@pytest.mark.parametrize("system", LOCKS)
def test_what_is_declared_is_locked(system: str) -> None:
    """In a version that pyproject.toml admits, and with everything that it needs in turn."""
    locked: dict[str, str] = {}
    for name in LOCKS[system]:
        text = (ROOT / "packaging" / name).read_text("ascii")
        locked |= dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.M))
    todo, seen = required(PROJECT["dependencies"], system), set()
    assert [
        f"{r}: {locked.get(plain(r.name))}"
        for r in todo
        if not r.specifier.contains(locked.get(plain(r.name), "0"))
    ] == []
    for one in todo:  # grows; what is only of the other system is not installed here
        for extra in {"", *one.extras}:
            if (one.name, extra) not in seen and plain(one.name) in INSTALLED:
                seen.add((one.name, extra))
                todo += required(metadata.requires(one.name) or [], system, extra)
    assert {plain(one.name) for one in todo} - {*locked} == set()


def test_the_licences_of_what_is_declared_and_shipped_are_shown() -> None:
    """Also of what a package needs for an extra of another, such as cryptography."""
    shown = {plain(name) for name in packages()}
    assert names(PROJECT["dependencies"], "linux") <= shown
    lock = (ROOT / "packaging" / "requirements.lock").read_text("ascii")
    assert set(re.findall(r"^([a-z0-9-]+)==", lock, re.M)) - shown == BUILDERS


def excluded() -> list[str]:
    """Return the modules that a bundle leaves out."""
    spec = ast.parse((ROOT / "packaging" / "outrider.spec").read_text("utf-8"))
    return next(
        [item.value for item in ast.walk(node) if isinstance(item, ast.Constant)]
        for node in spec.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXCLUDED"
    )


def wanted() -> list[str]:
    """Return what is imported of packages that a bundle has."""
    own = sys.stdlib_module_names | {*FOLDERS, "torch", "gguf", "tokenizers", "matplotlib"}
    return sorted({i.name for its in modules(ROOT).values() for i in its if i.top not in own})


def test_a_bundle_excludes_nothing_that_is_imported() -> None:
    assert {"torch", "matplotlib"} < set(excluded())
    assert [name for name in wanted() if below(name, tuple(excluded()))] == []


@pytest.mark.night
def test_a_bundle_has_what_is_imported() -> None:
    """In a process without what outrider.spec excludes, each package gives what is imported.

    It changes with another version of a package only.
    """
    code = f"""if True:
        import pkgutil, sys
        class Excluded:
            def find_spec(self, name, path=None, target=None):
                if any(f"{{name}}.".startswith(f"{{one}}.") for one in {excluded()}):
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Excluded())
        for name in {wanted()}:
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError) as error:
                print(name, "-", error)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_a_licence_that_a_package_only_names_has_its_text() -> None:
    part = component("latex2mathml")
    assert part is not None and part.licence == "MIT"
    assert "Ronie Martinez" in part.text and "Permission is hereby granted" in part.text
