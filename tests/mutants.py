"""`make mutants FILES=…`: change a place of the code, run the nearest tests, show what passes.

Each mutant is one small change of meaning in a copy of the tree: a comparison, a constant, a
condition, a statement, a result, an argument. The tests are those of `make fast` (tests/fast.py).
A mutant whose tests pass survives, and is printed as a diff: a test is missing, the change makes no
difference, or the test that fails was not reached within the seconds. The sample depends on SEED
only: it takes a mutant of each room in turn, and a larger sample begins with the smaller one. C++
files are compiled again for each mutant.

VERDICTS=file keeps each verdict in a file, for the mutant, its file and its tests as they are. A
later run, or one that goes on after a stop, reads it there. Without FILES all rooms are tried.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fast

ROOT = fast.ROOT
SLOW = 3
"""How much longer than their processor time tests may last, beside other work."""
HANG_S = 90
"""A test that lasts so much longer than tests may begin counts as a failure."""

BOTH = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
    (r" != ", " == "), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" % ", " + "),
    (r" << ", " >> "), (r" >> ", " << "), (r"(?<![\w.])(\d+)(?![\w.])", r"(\1 + 1)"),
]  # fmt: skip
CHANGES = {
    ".py": [
        *BOTH, (r" // ", " * "), (r" and ", " or "), (r" or ", " and "), (r"\bTrue\b", "False"),
        (r"\bFalse\b", "True"), (r" not in ", " in "), (r"(?<! not) in (?=.*:$)", " not in "),
        (r" is not ", " is "), (r" is (?!not)", " is not "), (r"\bnot (?!in )", ""),
        (r"\b(if|while) (.+):$", r"\1 not (\2):"), (r"^( +)return (?!None).+", r"\1return None"),
        (r"^( +)(?:raise |break|continue|del |yield |[\w.\[\]]+\(|[\w.]+ [-+*|&]= ).*", r"\1pass"),
        (r"^( +)self\.[\w.]+ = .+", r"\1pass"), (r",? \w+=[^,()]+(?=[,)])", ""),
    ],
    ".cc": [
        *BOTH, (r" && ", " || "), (r" \|\| ", " && "), (r"\btrue\b", "false"),
        (r"\bfalse\b", "true"), (r"\bif \((.+)\) \{$", r"if (!(\1)) {"),
        (r"^( +)(?:[\w.>-]+\(.*\)|[\w.>\[\]()-]+ [-+]= .+|[\w.>\[\]-]+_ = .+);$", r"\1;"),
        (r"^( +)(?:continue|break);$", r"\1;"),
    ],
}  # fmt: skip
"""Pairs of an expression and its replacement, within a line, but not in a text or a comment."""
SUFFIXES = (".py", ".cc", ".h")
IS_NO_CODE = {
    ".py": re.compile(r'^\s*(@|from |import |def |class |"""|#)|"""'),
    ".cc": re.compile(r"^\s*(#|//|\*|/\*)"),
}
NO_CODE = {
    ".py": re.compile(r"""[frb]*("[^"]*"|'[^']*')|#.*"""),
    ".cc": re.compile(r'"[^"]*"|//.*'),
}

ROOMS = {
    "server": ("backend/server/",),
    "scheduler": ("backend/engine/scheduler.py", "backend/engine/group_plan.py"),
    "states": ("backend/engine/kept_states.py", "backend/engine/keeping.py"),
    "engine": ("backend/engine/",),
    "store": ("app/store/",),
    "packs": ("backend/packs/",),
    "downloads": ("backend/downloads/",),
    "tools": ("backend/tools/",),
    "core": ("backend/native/core/",),
    "window": ("app/",),
}
"""The rooms of the table. A file is in the first that has it, or in that of its folder."""
UNJUDGED = "fails without the mutant too"
"""The beginning of the verdict where the test file that failed does not pass otherwise."""

# The installed package leads to the files of the checkout: lead each Python to the copy's instead.
# Python loads only the first sitecustomize of its path: load what a test placed behind this one.
LEAD = """
import os, sys
for finder in sys.meta_path:
    for name, place in getattr(finder, "known_source_files", {{}}).items():
        finder.known_source_files[name] = place.replace({root!r}, {copy!r})
    for name, places in getattr(finder, "submodule_search_locations", {{}}).items():
        finder.submodule_search_locations[name] = [p.replace({root!r}, {copy!r}) for p in places]
    if {native!r} and hasattr(finder, "known_wheel_files"):
        finder.known_wheel_files["backend._native"] = {native!r}
for place in sys.path:
    other = os.path.join(place, "sitecustomize.py")
    if not other.startswith({copy!r}) and os.path.exists(other):
        exec(compile(open(other, encoding="utf-8").read(), other, "exec"), {{"__name__": __name__}})
        break
"""


@dataclass(frozen=True)
class Mutant:
    """One change: the text of a file between two places, and what is there instead."""

    file: str
    begin: int
    end: int
    text: str

    def of(self, source: str) -> str:
        """Return the file with the change."""
        return source[: self.begin] + self.text + source[self.end :]


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a file, line by line."""
    kind, begin, within_text = file[file.rindex(".") :].replace(".h", ".cc"), 0, False
    for line in source.splitlines(keepends=True):
        odd = kind == ".py" and line.count('"""') % 2 == 1
        if not (within_text or odd or IS_NO_CODE[kind].search(line)):
            texts = [found.span() for found in NO_CODE[kind].finditer(line)]
            for pattern, text in CHANGES[kind]:
                for found in re.finditer(pattern, line.rstrip("\n")):
                    at, end = found.span()
                    if all(b <= at or end <= a or at <= a < b <= end for a, b in texts):
                        yield Mutant(file, begin + at, begin + end, found.expand(text))
        within_text ^= odd
        begin += len(line)


def is_valid(mutant: Mutant, source: str) -> bool:
    """Return whether Python can compile a mutant. A compiler judges C++ when it is tried."""
    try:
        return not mutant.file.endswith(".py") or bool(ast.parse(mutant.of(source)))
    except SyntaxError:
        return False


def spent_s() -> float:
    """Return the processor time of this process's children that have ended, in seconds."""
    times = os.times()
    return times.children_user + times.children_system


class Copy:
    """A copy of the tree in which mutants live."""

    def __init__(self, folder: Path, with_native: bool) -> None:
        self.root = folder / ROOT.name
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
            if name and (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        if (shared := ROOT.parent / "shared").is_dir():
            (folder / "shared").symlink_to(shared)
        self.sound: dict[str, bool] = {}  # whether a test file passes without a mutant
        self._build: list[str] = []
        native = ""
        if with_native:
            cmake, build = Path(sys.executable).parent / "cmake", self.root / "build" / "mutants"
            options = [
                "-S", self.root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                f"-DCMAKE_MAKE_PROGRAM={cmake.with_name('ninja')}", "-DOUTRIDER_CHAT=OFF",
                f"-DPython_EXECUTABLE={sys.executable}",
            ]  # fmt: skip
            subprocess.run([cmake, *options], check=True, stdout=subprocess.DEVNULL)
            self._build = [str(cmake), "--build", str(build)]
            done = subprocess.run(self._build, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"The copy cannot be built:\n{done.stdout[-4000:]}")
            native = str(next((build / "backend" / "native").glob("_native.*")))
        elif (ROOT / "build").is_dir():
            (self.root / "build").symlink_to(ROOT / "build")
        lead = LEAD.format(root=f"{ROOT}{os.sep}", copy=f"{self.root}{os.sep}", native=native)
        for place in (self.root, self.root / "tests"):  # the tests' children use one of the two
            (place / "sitecustomize.py").write_text(lead, encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Write a file. Its bytecode goes: it would count as new for a change within a second."""
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        for old in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            old.unlink()

    def verdict(self, tests: list[str], limit_s: float) -> str:
        """Run the nearest tests until one fails. Return what killed the mutant, or "lives" first.

        limit_s: of processor time, which other work on the machine changes little. Where it was
        over before, the number of test files that ran follows.
        """
        if self._build and subprocess.run(self._build, capture_output=True).returncode != 0:
            return "does not compile"
        until_s = spent_s() + limit_s
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.root / "tests"), str(self.root)]),
            "QT_QPA_PLATFORM": "offscreen",
        }
        options = ["-x", "-q", "-n", "0", "--tb=no", "-rfE", "-p", "fast", "-p", "no:cacheprovider"]
        for n_begun, test in enumerate(tests):
            left_s = SLOW * (until_s - spent_s())
            if left_s <= 0:
                return f"lives, after {n_begun} of {len(tests)} test files"
            environment[fast.UNTIL] = str(time.time() + left_s)
            run = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, test], cwd=self.root, env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, start_new_session=True,
            )  # fmt: skip
            try:
                text, _ = run.communicate(timeout=left_s + HANG_S)
            except subprocess.TimeoutExpired:
                return f"hangs in {test}"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            if run.returncode not in (0, 5):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.M)
                return failed[1] if failed else text.strip()[-300:]
            if fast.NO_TIME in text:
                return f"lives, after a part of {test}"
        return "lives"


def room_of(file: str) -> str:
    """Return the name of the room that a file is in."""
    named = (room for room, places in ROOMS.items() if file.startswith(places))
    return next(named, file.rpartition("/")[0])


def sample_of(sources: dict[str, str], n: int, seed: int) -> list[Mutant]:
    """Return n mutants of files that Python can compile, of each room in turn."""
    found = [mutant for file, text in sources.items() for mutant in mutants_of(file, text)]
    print(f"{len(found)} mutants of {len(sources)} files are possible.")
    random.Random(seed).shuffle(found)
    rooms: dict[str, list[Mutant]] = {}
    for mutant in found:
        rooms.setdefault(room_of(mutant.file), []).append(mutant)
    valid = ((m for m in of_room if is_valid(m, sources[m.file])) for of_room in rooms.values())
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*valid))
    return list(itertools.islice(filter(None, in_turn), n))


def key_of(mutant: Mutant, source: str, tests: list[str], limit_s: float) -> str:
    """Return a digest of a mutant, its file, its tests, and the helpers that these use."""
    files: set[Path] = set()
    left = {ROOT / test for test in tests}
    while left:
        files.add(path := left.pop())
        helpers = {other for other in fast.used(path) if isinstance(other, Path)}
        left |= {other for other in helpers if other.is_relative_to(ROOT / "tests")} - files
    digest = hashlib.sha256(repr((mutant, source, tests, limit_s)).encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Verdicts:
    """The verdicts in a file of JSON lines, or of this run only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        self.known: dict[str, str] = {}
        for line in lines:
            with contextlib.suppress(ValueError):  # the last line of a run that was stopped
                entry = json.loads(line)
                self.known[entry["key"]] = entry["verdict"]

    def add(self, key: str, place: str, verdict: str) -> None:
        """Keep a verdict, except of a mutant whose tests fail without it: they are tried again."""
        if self.path is not None and not verdict.startswith(UNJUDGED):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps({'key': key, 'place': place, 'verdict': verdict})}")
        self.known[key] = verdict


def table(verdicts: list[tuple[str, str]]) -> str:
    """Return the verdicts by room, as lines. verdicts: the room of each mutant, and its verdict."""
    lines = [f"{'room':20} {'tried':>8} {'noticed':>8} {'survived':>8} {'share':>8}"]
    of_rooms = [(room, [v for r, v in verdicts if r == room]) for room in dict(verdicts)]
    for room, found in [*sorted(of_rooms), ("all", [verdict for _, verdict in verdicts])]:
        n = sum(not verdict.startswith(UNJUDGED) for verdict in found)
        n_alive = sum(verdict.startswith("lives") for verdict in found)
        share = f"{(n - n_alive) / n:.0%}" if n else ""
        lines.append(f"{room:20} {n:8} {n - n_alive:8} {n_alive:8} {share:>8}")
    return "\n".join(lines)


def main() -> int:
    """Try mutants of files or folders. Return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="files or folders of the project")
    parser.add_argument("-n", type=int, default=20, help="how many mutants of all of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=60, help="of processor time for each mutant"
    )
    parser.add_argument("--verdicts", type=Path, help="a file that keeps the verdicts")
    args = parser.parse_args()
    sources: dict[str, str] = {}
    for given in args.files or [ROOT / place for places in ROOMS.values() for place in places]:
        for path in sorted(p for p in [given, *given.rglob("*")] if p.suffix in SUFFIXES):
            sources[path.resolve().relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    sample = sample_of(sources, args.n, args.seed)
    kept, keys, news = Verdicts(args.verdicts), [], []
    for mutant in sample:
        tests = [path.relative_to(ROOT).as_posix() for _, path in fast.near([mutant.file])]
        keys.append(key_of(mutant, sources[mutant.file], tests, args.seconds))
        if keys[-1] not in kept.known:
            news.append((keys[-1], mutant, tests))
    print(f"{len(news)} of {len(sample)} are tried.", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        with_native = any(not mutant.file.endswith(".py") for _, mutant, _ in news)
        tree = Copy(Path(folder), with_native) if news else None
        for key, mutant, tests in news:
            kept.add(key, *try_one(tree, mutant, sources[mutant.file], tests, args.seconds))
    found = [(room_of(m.file), kept.known[key]) for m, key in zip(sample, keys, strict=True)]
    print(table(found))
    n_alive = sum(verdict.startswith("lives") for _, verdict in found)
    print(f"{n_alive} of {len(sample)} mutants survive.")
    return int(n_alive > 0)


def try_one(
    tree: Copy, mutant: Mutant, before: str, tests: list[str], limit_s: float
) -> tuple[str, str]:
    """Test a mutant, and print what became of it. Return its place and its verdict."""
    name, after = mutant.file, mutant.of(before)
    tree.write(name, after)
    began_s = time.time()
    verdict = tree.verdict(tests, limit_s)
    tree.write(name, before)
    if (killer := next((test for test in tests if test in verdict), None)) is not None:
        if killer not in tree.sound:
            tree.sound[killer] = tree.verdict([killer], limit_s).startswith("lives")
        if not tree.sound[killer]:
            verdict = f"{UNJUDGED}: {killer}"
    place = f"{name}:{before.count(chr(10), 0, mutant.begin) + 1}"
    print(f"{place}: {verdict} ({time.time() - began_s:.0f} s)", flush=True)
    if verdict.startswith("lives"):
        pair = before.splitlines(), after.splitlines()
        print(*difflib.unified_diff(*pair, name, name, n=2, lineterm=""), "", sep="\n", flush=True)
    return place, verdict


if __name__ == "__main__":
    sys.exit(main())
