"""`make fast`: the lint of what changed and the nearest tests, in less than a minute on two cores.

A test file is near to a changed file when few imports lie between them. The helpers of the tests
count nothing, and names in texts count as imports: `-m backend.worker` starts a process. Tests
begin in this order until the time is over. What was left out is named: `make test` runs all.

Each file has a process of its own, so that only what begins is collected, two at a time. This file
is also the plugin of pytest that begins no test when the time is over.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from test_imports import imported, module_name

ROOT = Path(__file__).resolve().parent.parent
LAST_FILE_S, LAST_TEST_S, STOP_S = 44, 50, 56
"""When the last file and the last test may begin, and when what still runs is stopped."""
REACH = 2

UNTIL = "OUTRIDER_FAST_UNTIL"
NO_TIME = "the minute is over"
NAMES = re.compile(r"\b(?:app|backend|predictors)(?:\.\w+)+|\b\w+(?=\.py\b)")
NATIVE = {
    "bindings": ("core/", "sim/", "live/"),
    "chat": ("backend/test_chat_format", "engine/test_templates"),
    "core": ("core/", "sim/"),
    "live": ("live/",),
    "sampling": ("engine/test_sampling", "engine/test_schemas"),
    "sim": ("sim/",),
}
"""The tests of each folder of backend/native."""


@functools.cache
def modules() -> dict[str, Path]:
    """Return the files of all modules. A helper of the tests may have its name alone."""
    found = {}
    for folder in ("app", "backend", "predictors", "packaging"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found[module_name(path.relative_to(ROOT))] = path
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found.setdefault(module_name(path.relative_to(ROOT / "tests")), path)
        found.setdefault(path.stem, path)
    return found


def known(name: str) -> Path | None:
    """Return the file of the longest part of a dotted name that is a module."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return modules()[name] if name else None


@functools.cache
def used(path: Path) -> set[Path | str]:
    """Return the modules that a file imports or names, and the native modules as names."""
    text = path.read_text(encoding="utf-8")
    names = {*imported(path), *NAMES.findall(text)}
    found: set[Path | str] = {n for n in ("backend._native", "backend._chat") if n in names}
    if is_test(path):
        words = set(re.findall(r"\w+", text))
        above = (c for c in conftests() if path.is_relative_to(c.parent))
        found |= {other for other in above if words & fixtures(other)}
    return (found | {file for name in names if (file := known(name))}) - {path}


@functools.cache
def users() -> dict[Path | str, set[Path]]:
    """Return the files that use a module."""
    found: dict[Path | str, set[Path]] = {}
    for path in set(modules().values()):
        for other in used(path):
            found.setdefault(other, set()).add(path)
    return found


@functools.cache
def conftests() -> list[Path]:
    """Return the files of fixtures."""
    return sorted((ROOT / "tests").rglob("conftest.py"))


@functools.cache
def fixtures(path: Path) -> set[str]:
    """Return the names of the fixtures of a file."""
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"@pytest\.fixture.*\ndef (\w+)", text))


def is_test(path: Path | str) -> bool:
    """Return whether pytest collects this file."""
    return isinstance(path, Path) and path.name.startswith("test_")


def near(changed: Iterable[str]) -> list[tuple[int, Path]]:
    """Return the test files that depend on changed files, with the number of imports between.

    The nearest come first, and none that is REACH imports farther. In one distance those come first
    that are called like what changed, then those that say most of the names that it defines, then
    those that use little else. A rare name counts more, and each counts twice in the tests' folder
    of the same area. Names are relative to the root.
    """
    tests = sorted(path for path in set(modules().values()) if is_test(path))
    distance: dict[Path | str, int] = {}
    queue: deque[tuple[int, Path | str]] = deque()
    words: set[str] = set()
    areas: set[str] = set()
    defined: set[str] = set()
    for name in changed:
        path = ROOT / name
        areas |= set(path.relative_to(ROOT).parts)
        called = path.stem
        if not (ROOT / "tests" / path.parent.name).is_dir():  # its tests have names of their own
            called += f"_{path.parent.name}"
        words |= set(re.findall(r"[a-z]{4,}", called))
        if path.suffix == ".py" and path.is_file():
            text = path.read_text(encoding="utf-8")
            defined |= set(re.findall(r"^ *(?:def|class) ([a-z]\w+)", text, re.M | re.I))
        queue.append((0, path))
        if native := re.match(r"backend/native/(\w+)/", name):
            queue.append((1, "backend._chat" if native[1] == "chat" else "backend._native"))
            own = tuple(f"tests/{start}" for start in NATIVE.get(native[1], ()))
            queue += ((0, t) for t in tests if t.relative_to(ROOT).as_posix().startswith(own))
        elif path.name == "conftest.py":
            queue += ((1, t) for t in tests if t.is_relative_to(path.parent))
        elif path.suffix != ".py":
            word = re.compile(rf"(?<!\w){re.escape(path.name)}\b")
            queue += ((1, t) for t in tests if word.search(t.read_text(encoding="utf-8")))
    while queue:
        steps, here = queue.popleft()
        if steps >= distance.get(here, sys.maxsize):
            continue
        distance[here] = steps
        is_helper = isinstance(here, Path) and here.is_relative_to(ROOT / "tests")
        if is_test(here):
            continue
        for user in users().get(here, ()):
            if is_helper:
                queue.appendleft((steps, user))
            else:
                queue.append((steps + 1, user))

    near_ones = [test for test in tests if test in distance]
    said = {t: defined & set(re.findall(r"\w+", t.read_text(encoding="utf-8"))) for t in near_ones}
    n_saying = Counter(name for names in said.values() for name in names)

    def rank(test: Path) -> tuple[int, int, float, int, Path]:
        n_alike = len(words & set(test.stem.replace("_", " ").split()))
        share = sum(1 / n_saying[name] for name in sorted(said[test]))
        share *= 2 if test.parent.name in areas else 1
        return distance[test], -n_alike, -share, len(used(test)), test

    found = sorted(near_ones, key=rank)
    return [(distance[t], t) for t in found if distance[t] <= distance[found[0]] + REACH]


def changed_since(base: str) -> list[str]:
    """Return the files that differ from a commit, and those that git does not know yet."""
    git = functools.partial(subprocess.check_output, cwd=ROOT, text=True)
    told = git(["git", "diff", "--name-only", "-z", base, "--"])
    told += git(["git", "ls-files", "--others", "--exclude-standard", "-z"])
    return sorted({name for name in told.split("\0") if name})


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test when the time is over."""
    if time.time() > float(os.environ[UNTIL]):
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the tests that were left out, each on a line."""
    for report in terminalreporter.stats.get("skipped", ()):
        if NO_TIME in str(report.longrepr):
            terminalreporter.write_line(f"{NO_TIME}: {report.nodeid}")


def lint(changed: list[str]) -> list[tuple[str, list[str]]]:
    """Return the checks of the form of what changed, with their commands."""
    there = [name for name in changed if (ROOT / name).is_file()]
    python = [name for name in there if name.endswith((".py", ".toml"))]
    cxx = [n for n in there if n.startswith("backend/native/") and n.endswith((".cc", ".h"))]
    checks = []
    if python:
        checks += [("ruff check", [sys.executable, "-m", "ruff", "check", "--quiet"])]
        checks += [("ruff format", [sys.executable, "-m", "ruff", "format", "--check", "--quiet"])]
    if cxx:
        tool = Path(sys.executable).parent / "clang-format"
        checks += [("clang-format", [str(tool), "--dry-run", "--Werror", *cxx])]
    for stub in ("_native", "_chat"):
        path = ROOT / "backend" / f"{stub}.pyi"
        if not path.is_file() or any(n.startswith("backend/native/bindings/") for n in cxx):
            make = ["-m", "nanobind.stubgen", "-q", "-m", f"backend.{stub}", "-o", str(path)]
            checks += [(path.name, [sys.executable, *make])]
    return checks


def main() -> int:
    """Check what changed. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with")
    parser.add_argument("--began", type=float, default=time.time(), help="when the minute began")
    args = parser.parse_args()
    changed = changed_since(args.base)
    if not changed:
        print(f"Nothing has changed since {args.base}.")
        return 0
    print(f"Changed since {args.base}: {' '.join(changed)}", flush=True)
    failed = []
    for name, command in lint(changed):
        print(f"== {name}", flush=True)
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            failed.append(name)
    # mypy tells most, so it runs beside the tests: its cache makes it quick.
    checks = [([sys.executable, "-m", "mypy"], "mypy")] if any(map(is_typed, changed)) else []
    files = [path.relative_to(ROOT).as_posix() for _, path in near(changed)]
    options = ["-m", "pytest", "-p", "fast", "-q", "--no-header", "-rfE", "-n", "0"]
    checks += [([sys.executable, *options, file], file) for file in files]
    print(f"== {', '.join(name for _, name in checks[:1])} and {len(files)} files of tests")
    left: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        for name, fails in pool.map(lambda check: run(*check, args.began, left), checks):
            failed += [name] * fails
    if left:
        print(f"Left out, because {NO_TIME}: {' '.join(sorted(left))}")
    print(f"Left out without looking: tests more than {REACH} imports farther than the nearest.")
    took_s = time.time() - args.began
    print(f"{took_s:.0f} s. {'Failed: ' + ', '.join(failed) if failed else 'Nothing failed.'}")
    return bool(failed)


def is_typed(name: str) -> bool:
    """Return whether mypy looks at a file."""
    return name.endswith((".py", ".pyi", ".toml")) and not name.startswith("tests/")


def run(command: list[str], name: str, began_s: float, left: list[str]) -> tuple[str, bool]:
    """Run a check while there is time, and print what it says. Return its name and if it failed."""
    if time.time() > began_s + LAST_FILE_S:
        left.append(name)
        return name, False
    environment = {**os.environ, UNTIL: str(began_s + LAST_TEST_S)}
    if name != "mypy":  # it would take the tests for installed packages without types
        environment["PYTHONPATH"] = os.pathsep.join(["tests", os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        told, _ = process.communicate(timeout=max(1.0, began_s + STOP_S - time.time()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        left.append(f"{name} (stopped)")
        return name, False
    lines = told.strip().splitlines() or [""]
    if late := [line for line in lines if NO_TIME in line]:
        left.append(f"{name} ({len(late)} of its tests)")
    # pytest's status 5: no test was collected on this system.
    fails = process.returncode not in ((0, 5) if name != "mypy" else (0,))
    print(f"{name}: {told.strip() if fails else lines[-1]}", flush=True)
    return name, fails


if __name__ == "__main__":
    sys.exit(main())
