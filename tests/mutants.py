"""`make mutants FILES=…`: change a place of the code, run the nearest tests, show what passes.

Each mutant is one small change of meaning in a copy of the tree: a comparison, a constant, a
condition, a statement, a result, an argument. The tests are those of `make fast` (tests/fast.py).
A mutant whose tests pass survives, and is printed as a diff: a test is missing, the change makes no
difference, or the test that fails was not reached within the seconds. The sample depends on SEED
only. C++ files are compiled again for each mutant.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import itertools
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
"""What is changed into what, in one line, but not within a text or a comment."""
SUFFIXES = (".py", ".cc", ".h")
IS_NO_CODE = {
    ".py": re.compile(r'^\s*(@|from |import |def |class |"""|#)|"""'),
    ".cc": re.compile(r"^\s*(#|//|\*|/\*)"),
}
NO_CODE = {
    ".py": re.compile(r"""[frb]*("[^"]*"|'[^']*')|#.*"""),
    ".cc": re.compile(r'"[^"]*"|//.*'),
}

# The installed package leads to the files of the checkout: lead each Python to the copy's instead.
LEAD = """
import sys
for finder in sys.meta_path:
    for name, place in getattr(finder, "known_source_files", {{}}).items():
        finder.known_source_files[name] = place.replace({root!r}, {copy!r})
    for name, places in getattr(finder, "submodule_search_locations", {{}}).items():
        finder.submodule_search_locations[name] = [p.replace({root!r}, {copy!r}) for p in places]
    if {native!r} and hasattr(finder, "known_wheel_files"):
        finder.known_wheel_files["backend._native"] = {native!r}
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
        self.sound: set[str] = set()  # the files whose tests pass without a mutant
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

        Where the time was over before, the number of test files that ran follows.
        """
        if self._build and subprocess.run(self._build, capture_output=True).returncode != 0:
            return "does not compile"
        until_s = time.time() + limit_s
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.root / "tests"), str(self.root)]),
            "QT_QPA_PLATFORM": "offscreen",
            fast.UNTIL: str(until_s),
        }
        options = ["-x", "-q", "-n", "0", "--tb=no", "-rfE", "-p", "fast", "-p", "no:cacheprovider"]
        for n_begun, test in enumerate(tests):
            if time.time() > until_s:
                return f"lives, after {n_begun} of {len(tests)} test files"
            run = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, test], cwd=self.root, env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, start_new_session=True,
            )  # fmt: skip
            try:
                text, _ = run.communicate(timeout=limit_s + HANG_S)
            except subprocess.TimeoutExpired:
                return f"hangs in {test}"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            if run.returncode not in (0, 5):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.M)
                return failed[1] if failed else text.strip()[-300:]
        return "lives"


def main() -> int:
    """Try mutants of files or folders. Return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="files or folders of the project")
    parser.add_argument("-n", type=int, default=20, help="how many mutants of all of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each mutant")
    args = parser.parse_args()
    found: list[Mutant] = []
    sources: dict[str, str] = {}
    for given in args.files:
        for path in sorted(p for p in [given, *given.rglob("*")] if p.suffix in SUFFIXES):
            name = path.resolve().relative_to(ROOT).as_posix()
            sources[name] = path.read_text(encoding="utf-8")
            found += mutants_of(name, sources[name])
    random.Random(args.seed).shuffle(found)
    valid = (mutant for mutant in found if is_valid(mutant, sources[mutant.file]))
    sample = list(itertools.islice(valid, args.n))
    print(f"{len(found)} mutants of {len(sources)} files are possible; {len(sample)} are tried.")
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        tree = Copy(Path(folder), any(not m.file.endswith(".py") for m in sample))
        n_alive = sum(try_one(tree, mutant, sources, args.seconds) for mutant in sample)
    print(f"{n_alive} of {len(sample)} mutants survive.")
    return int(n_alive > 0)


def try_one(tree: Copy, mutant: Mutant, sources: dict[str, str], limit_s: float) -> bool:
    """Test a mutant, and print what became of it. Return whether it lives."""
    name, before = mutant.file, sources[mutant.file]
    tests = [path.relative_to(ROOT).as_posix() for _, path in fast.near([name])]
    if name not in tree.sound:
        fault = tree.verdict(tests, limit_s)
        if not fault.startswith("lives"):
            sys.exit(f"Without a mutant the tests of {name} do not pass: {fault}")
    tree.sound.add(name)
    after = mutant.of(before)
    tree.write(name, after)
    began_s = time.time()
    verdict = tree.verdict(tests, limit_s)
    tree.write(name, before)
    line = before.count("\n", 0, mutant.begin) + 1
    print(f"{name}:{line}: {verdict} ({time.time() - began_s:.0f} s)", flush=True)
    lives = verdict.startswith("lives")
    if lives:
        pair = before.splitlines(), after.splitlines()
        print(*difflib.unified_diff(*pair, name, name, n=2, lineterm=""), "", sep="\n", flush=True)
    return lives


if __name__ == "__main__":
    sys.exit(main())
