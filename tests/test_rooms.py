"""Modules import each other in no circle. `tests/rooms.py` shows what imports what."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooms import arrows, circles
from test_imports import ROOT


def test_no_circle() -> None:
    graph = arrows(ROOT)
    assert sum(map(len, graph.values())) > 1000
    assert circles(graph) == []


@pytest.mark.parametrize(
    "line",
    [
        "from backend import a",
        "def f():\n    import backend.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from backend.a import x",
    ],
)
def test_a_circle_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "backend").mkdir()
    for name, source in (("a", "import backend.b"), ("b", "import backend.c"), ("c", line)):
        (tmp_path / f"backend/{name}.py").write_text(source, encoding="utf-8")
    (circle,) = circles(arrows(tmp_path))
    assert set(circle) == {"backend.a", "backend.b", "backend.c"} and circle[0] == circle[-1]
