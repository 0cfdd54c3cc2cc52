"""`make mutants`: what a mutant of a file is."""

from __future__ import annotations

import ast

import mutants

SOURCE = '''\
"""A text: x == 1."""
from __future__ import annotations


def f(x: int = 3, *, y: bool = True) -> int | None:
    """Another text."""
    "é"; x += 1
    if x < 2 and not y:
        raise ValueError(f"{x + 1}")
    return g(x, key=x)
'''


def test_mutants_of_a_file_differ_each_in_one_place() -> None:
    found = list(mutants.python_mutants("f.py", SOURCE))
    texts = [SOURCE[: m.begin] + m.text + SOURCE[m.end :] for m in found]
    trees = [ast.dump(ast.parse(text)) for text in texts]
    assert ast.dump(ast.parse(SOURCE)) not in trees and len(set(trees)) == len(trees)
    changes = {(SOURCE[m.begin : m.end], m.text) for m in found}
    assert changes == {
        ("3", "4"), ("True", "False"), ("x += 1", "pass"), ("1", "2"), ("2", "3"),
        ("x < 2", "(x <= 2)"), ("x < 2 and not y", "(x < 2 or not y)"), ("not y", "(y)"),
        ("x < 2 and not y", "(not (x < 2 and (not y)))"), ('raise ValueError(f"{x + 1}")', "pass"),
        ("return g(x, key=x)", "return None"), ("g(x, key=x)", "g(x)"),
    }  # fmt: skip


def test_mutants_of_cxx_leave_comments_and_includes() -> None:
    source = '#include <a < b>\n// 1 < 2\nif (a < b) {\n    f(x);\n    s = " < ";\n}\n'
    found = [(source[m.begin : m.end], m.text) for m in mutants.cxx_mutants("f.cc", source)]
    assert found == [(" < ", " <= "), ("if (a < b)", "if (!(a < b))"), ("    f(x);", "    ;")]
