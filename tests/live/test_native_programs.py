"""Files, memory, libraries and the simulator, tested in C++ (system_test.cc, sim_test.cc).

`make wine-check` runs the same programs under wine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import native_build

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="builds with a Unix compiler")


@pytest.mark.parametrize("name", ["live/system_test", "sim/sim_test"])
def test_a_native_program_passes_all_its_tests(name: str, tmp_path: Path) -> None:
    found = native_build()
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if found is None or compiler is None:
        pytest.skip("the native part was not built in this checkout")
    native, options, environment = found
    libraries = [str(native / part / f"liboutrider_{part}.a") for part in ("live", "sim", "core")]
    source = ROOT / "tests" / f"{name}.cc"
    program, library = tmp_path / "program", tmp_path / "answer.so"
    build = [compiler, *options, "-O0"]
    subprocess.run(
        [*build, str(source), *libraries, "-pthread", "-ldl", "-o", str(program)],
        check=True, timeout=120, env=environment,
    )  # fmt: skip
    answer = 'extern "C" int answer() { return 42; }'
    subprocess.run(
        [*build, "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)],
        input=answer.encode(), check=True, timeout=60, env=environment,
    )  # fmt: skip
    names = re.findall(r'^    \{"(\w+)", ', source.read_text("utf-8"), re.M)
    assert names
    for one in names:
        done = subprocess.run(
            [str(program), one], cwd=tmp_path, env={**os.environ, "TEST_LIBRARY": str(library)},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, f"{one}: {done.stderr}"
