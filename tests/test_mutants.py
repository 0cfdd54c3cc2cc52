"""`make mutants`: what a mutant of a file is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mutants
import pytest

PYTHON = '''\
"""A text: x == 1."""
from __future__ import annotations

@cached(size=3)
def f(x: int = 3, *, y: bool = True) -> int | None:
    """Another text, of 2 lines:

    if x < 2."""
    x += 1  # and 1 more
    if x < 2 and not y:
        raise ValueError(f"{x + 1}")
    return g("a == b", x, key=x)
'''
CXX = """\
#include <a < b>
// 1 < 2
if (a < b) {
    f(x);
    s = " < ";
    continue;
}
"""


def changes(file: str, source: str) -> set[tuple[str, str]]:
    found = list(mutants.mutants_of(file, source))
    return {(source[m.begin : m.end], m.text) for m in found if mutants.is_valid(m, source)}


def test_mutants_of_python() -> None:
    """Texts, comments, imports and the head of a function stay as they are."""
    assert changes("f.py", PYTHON) == {
        ("    x += 1  # and 1 more", "    pass"), ("1", "(1 + 1)"), ("2", "(2 + 1)"),
        (" < ", " <= "), (" and ", " or "), ("not ", ""),
        ("if x < 2 and not y:", "if not (x < 2 and not y):"),
        ('        raise ValueError(f"{x + 1}")', "        pass"),
        ('    return g("a == b", x, key=x)', "    return None"), (", key=x", ""),
    }  # fmt: skip


@pytest.mark.parametrize("file", ["f.cc", "f.h"])
def test_mutants_of_cxx(file: str) -> None:
    assert changes(file, CXX) == {
        (" < ", " <= "), ("if (a < b) {", "if (!(a < b)) {"), ("    f(x);", "    ;"),
        ("    continue;", "    ;"),
    }  # fmt: skip


def test_what_is_no_python_is_not_tried() -> None:
    assert not mutants.is_valid(mutants.Mutant("f.py", 0, 1, "("), "f(1)\n")


@pytest.mark.parametrize("file", ["f.py", "f.cc"])
def test_a_mutant_changes_one_place(file: str) -> None:
    (mutant,) = mutants.mutants_of(file, "x = a == b\n")
    assert mutant.of("x = a == b\n") == "x = a != b\n"


def test_a_sample_takes_each_room_in_turn() -> None:
    """A larger sample begins with the smaller one. What Python cannot compile is left out."""
    sources = {"backend/packs/a.py": "a = b + c + d + e\n", "app/store/b.py": "f = g == h\n"}
    sample = mutants.sample_of(sources, 4, seed=1)
    assert [mutants.room_of(m.file) for m in sample[:2]] in (["packs", "store"], ["store", "packs"])
    assert [mutants.room_of(m.file) for m in sample[2:]] == ["packs", "packs"]
    assert mutants.sample_of(sources, 3, seed=1) == sample[:3]


def test_a_verdict_holds_while_mutant_file_and_tests_stay() -> None:
    mutant = mutants.Mutant("f.py", 7, 9, "!=")
    test = "tests/test_mutants.py"
    key = mutants.key_of(mutant, "x = a == b\n", [test], 60)
    assert key == mutants.key_of(mutant, "x = a == b\n", [test], 60)
    others = {
        mutants.key_of(mutants.Mutant("f.py", 7, 9, ">="), "x = a == b\n", [test], 60),
        mutants.key_of(mutant, "x = a == c\n", [test], 60),
        mutants.key_of(mutant, "x = a == b\n", ["tests/test_nearest.py"], 60),
        mutants.key_of(mutant, "x = a == b\n", [test], 30),
    }
    assert len(others - {key}) == 4


def test_the_copy_leaves_room_for_the_sitecustomize_of_a_test(tmp_path: Path) -> None:
    """Python loads only the first on its path, which is the one that leads to the copy."""
    copy, own = tmp_path / "copy", tmp_path / "own"
    lead = mutants.LEAD.format(root="", copy=f"{copy}{os.sep}", native="")
    for folder, text in ((copy, lead), (own, "import sys\nsys.marked = [1]")):
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    path = os.pathsep.join(map(str, (copy, own)))
    program = [sys.executable, "-c", "import sys; print(sys.marked)"]
    assert subprocess.check_output(program, env={**os.environ, "PYTHONPATH": path}) == b"[1]\n"


def test_verdicts_outlast_a_run_that_is_stopped(tmp_path: Path) -> None:
    """A test that fails without a mutant is tried again.

    A line that was cut off spoils no other.
    """
    path = tmp_path / "verdicts"
    first = mutants.Verdicts(path)
    first.add("a", "f.py:1", "lives")
    first.add("b", "f.py:2", f"{mutants.UNJUDGED}: tests/test_f.py")
    with path.open("a") as file:
        file.write('\n{"key": "c", "pla')
    mutants.Verdicts(path).add("d", "f.py:3", "hangs in tests/test_f.py")
    assert mutants.Verdicts(path).known == {"a": "lives", "d": "hangs in tests/test_f.py"}


def test_the_table_counts_by_room() -> None:
    found = [
        ("packs", "lives, after 1 of 9 test files"), ("packs", "tests/test_f.py::test_g"),
        ("core", "does not compile"), ("tools", f"{mutants.UNJUDGED}: tests/test_f.py"),
    ]  # fmt: skip
    rows = [line.split() for line in mutants.table(found).splitlines()]
    assert rows[1:] == [
        ["core", "1", "1", "0", "100%"], ["packs", "2", "1", "1", "50%"],
        ["tools", "0", "0", "0"], ["all", "3", "2", "1", "67%"],
    ]  # fmt: skip
