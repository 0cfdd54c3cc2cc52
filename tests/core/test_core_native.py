"""Parts of the core without bindings, tested in C++ (core_test.cc)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import native_build

from backend import _native
from backend.methods import cells

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="builds with a Unix compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build core_test with the library of the last build of the native part."""
    found = native_build()
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if found is None or compiler is None:
        pytest.skip("the native part was not built in this checkout")
    native, options, environment = found
    built = tmp_path_factory.mktemp("core") / "core_test"
    command = [
        compiler, *options, "-O0", "-Wall", "-Wextra", "-Wno-missing-field-initializers",
        str(HERE / "core_test.cc"), str(native / "core" / "liboutrider_core.a"), "-o", str(built),
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=120, env=environment)
    return built


def run(program: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, name], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "name",
    [
        "need_list_counts",
        "log_keeps_memory",
        "walk_gathers",
        "walk_obeys_when_it_is_told",
        "walk_ends_with_its_pass",
        "invariants_of_staged_layers",
        "invariants_of_cut_experts",
    ],
)
def test_the_core_keeps_its_invariants(program: Path, name: str) -> None:
    result = run(program, name)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("uncounted_open", "needs are counted"),
        ("uncounted_fetched", "needs are counted"),
        ("uncounted_staged", "needs are counted"),
        ("uncounted_host", "needs are counted"),
        ("not_pinned", "what is computed is ready and pinned"),
    ],
)
def test_a_need_list_notices_a_wrong_count(program: Path, name: str, invariant: str) -> None:
    result = run(program, name)
    assert result.returncode == -signal.SIGABRT
    assert invariant in result.stderr


def test_python_knows_the_cells_of_the_core() -> None:
    for cell in _native.Cell:
        assert getattr(cells, cell.name) == cell.value
    assert cells.WHERE == cells.RESIDENT | cells.ARRIVING
    assert cells.FOUND == cells.HIT | cells.LATE | cells.MISS
