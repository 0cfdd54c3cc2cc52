"""`make mutants FILES=…`: change a place of the code, run the nearest tests, show what passes.

Each mutant is one small change of meaning in a copy of the tree: a comparison, a constant, a
condition, a statement, a result, an argument. The tests are those of `make fast` (tests/fast.py).
A mutant whose tests pass survives, and is printed as a diff: a test is missing, or the change makes
no difference. The sample depends on SEED only. C++ files are compiled again for each mutant.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
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

OPPOSITE: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
CXX = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
    (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "), (r" \+ 1\b", " + 2"),
    (r" - 1\b", ""), (r" \+ ", " - "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"\bif \(", "if (!("), (r"(?<=\n)( +)[\w.>-]+\([^;{}]*\);(?=\n)", r"\1;"),
    (r" (\+=|-=) [^;]+;", ";"), (r"\b(continue|break);", ";"),
]  # fmt: skip

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


def python_mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a Python file."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node in meaningful(ast.parse(source)):
        texts = [(node, text) for text in changes(node)]
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            test = node.test
            if not isinstance(test, ast.Compare | ast.Constant | ast.UnaryOp):
                texts.append((test, f"(not ({ast.unparse(test)}))"))
        for changed, text in texts:
            assert changed.end_lineno is not None and changed.end_col_offset is not None
            begin = place(changed.lineno, changed.col_offset)
            end = place(changed.end_lineno, changed.end_col_offset)
            yield Mutant(file, begin, end, text)


def meaningful(node: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    """Yield the statements and expressions that act: no annotation, docstring or decorator."""
    if isinstance(node, ast.stmt | ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            is_typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            # Python 3.11 does not know where the parts of an f-string are.
            if isinstance(child, ast.JoinedStr) or is_text or is_typing:
                continue
            if isinstance(child, ast.AST):
                yield from meaningful(child)


def changes(node: ast.AST) -> Iterator[str]:
    """Yield what may stand in the place of a statement or an expression."""
    match node:
        case ast.Compare(ops=[operator, *_]) | ast.BoolOp(op=operator) | ast.BinOp(op=operator):
            if type(operator) in OPPOSITE:
                other = copy.deepcopy(node)
                replacement = OPPOSITE[type(operator)]()
                if isinstance(other, ast.Compare):
                    other.ops[0] = replacement
                else:
                    other.op = replacement
                yield f"({ast.unparse(other)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield str(value + 1)
        case ast.Call(func=function, args=args, keywords=keywords):
            for left_out in keywords:
                kept = [k for k in keywords if k is not left_out]
                yield ast.unparse(ast.Call(function, args, kept))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return None"
        case (
            ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Break() | ast.Continue() | ast.Delete()
        ):
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"


def cxx_mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a C++ file, by its text."""
    for pattern, text in CXX:
        for found in re.finditer(pattern, source):
            line = source[source.rfind("\n", 0, found.start()) + 1 : found.start()]
            if "//" in line or line.lstrip().startswith(("#", "*")) or line.count('"') % 2:
                continue
            end, new = found.end(), found.expand(text)
            if text.endswith("(!("):  # to the parenthesis that closes the condition
                depth = 1
                while depth:
                    depth += {"(": 1, ")": -1}.get(source[end], 0)
                    end += 1
                new += source[found.end() : end] + ")"
            yield Mutant(file, found.start(), end, new)


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
                "-DOUTRIDER_CHAT=OFF", f"-DPython_EXECUTABLE={sys.executable}",
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
        """Run the nearest tests until one fails. Return "lives", or what killed the mutant."""
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
        for test in tests:
            if time.time() > until_s:
                break
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
    kinds = {".py": python_mutants, ".cc": cxx_mutants, ".h": cxx_mutants}
    found: list[Mutant] = []
    sources: dict[str, str] = {}
    for given in args.files:
        for path in sorted(p for p in [given, *given.rglob("*")] if p.suffix in kinds):
            name = path.resolve().relative_to(ROOT).as_posix()
            sources[name] = path.read_text(encoding="utf-8")
            found += kinds[path.suffix](name, sources[name])
    sample = random.Random(args.seed).sample(found, min(args.n, len(found)))
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
    if name not in tree.sound and (fault := tree.verdict(tests, limit_s)) != "lives":
        sys.exit(f"Without a mutant the tests of {name} do not pass: {fault}")
    tree.sound.add(name)
    after = before[: mutant.begin] + mutant.text + before[mutant.end :]
    tree.write(name, after)
    began_s = time.time()
    verdict = tree.verdict(tests, limit_s)
    tree.write(name, before)
    line = before.count("\n", 0, mutant.begin) + 1
    print(f"{name}:{line}: {verdict} ({time.time() - began_s:.0f} s)", flush=True)
    if verdict == "lives":
        pair = before.splitlines(), after.splitlines()
        print(*difflib.unified_diff(*pair, name, name, n=2, lineterm=""), "", sep="\n", flush=True)
    return verdict == "lives"


if __name__ == "__main__":
    sys.exit(main())
