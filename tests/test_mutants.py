"""`make mutants`: what a mutant of a file is."""

from __future__ import annotations

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
