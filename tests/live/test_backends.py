"""Backends of llama.cpp that are modules: which are loaded, and what is said of the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
#include <stddef.h>
/* The structure is that of ggml/src/ggml-backend-impl.h of the pinned llama.cpp. */
static const char * name(void * reg) { return "Present"; }
static size_t none(void * reg) { return 0; }
static struct { int api_version; void * get_name, * n_device, * device, * proc, * context; } reg =
    {2, name, none, NULL, NULL, NULL};
void * ggml_backend_init(void) { return IS_PRESENT ? &reg : NULL; }
"""
LIST = """
import json
from backend import _native
print(json.dumps([[m.file, m.backend, m.trouble] for m in _native.load_backends()]))
"""

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="the modules are libraries, which need Linux and a C compiler",
)


def build(folder: Path, name: str, *, is_present: bool) -> None:
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-DIS_PRESENT={int(is_present)}", "-x", "c", "-",
         "-o", folder / name],
        input=MODULE.encode(), check=True, timeout=60,
    )  # fmt: skip


def tried(*folders: Path) -> dict[str, tuple[str, str]]:
    """Return backend and trouble of each module in the folders, by its file, as a child sees it."""
    environment = {**os.environ, "OUTRIDER_BACKENDS": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [sys.executable, "-c", LIST], cwd=ROOT, env=environment,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return {
        Path(file).name: (backend, trouble)
        for file, backend, trouble in json.loads(done.stdout)
        if Path(file).parent in folders
    }


def test_modules_of_named_folders_are_loaded_where_they_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "weitere Module ü"
    folder.mkdir()
    build(folder, "libggml-present.so", is_present=True)
    build(folder, "libggml-useless.so", is_present=False)
    build(folder, "libggml-cpu-other.so", is_present=True)  # the processor's is the build's own
    build(folder, "libggml-base.so", is_present=True)
    (folder / "libggml-broken.so").write_bytes(b"no library")
    (folder / "readme.txt").write_text("no module")
    found = tried(tmp_path / "not there", folder)
    assert found.keys() == {"libggml-present.so", "libggml-useless.so", "libggml-broken.so"}
    assert found["libggml-present.so"] == ("Present", "")
    assert found["libggml-useless.so"] == ("", "the module found nothing that it can use")
    backend, trouble = found["libggml-broken.so"]
    assert backend == "" and "libggml-broken.so" in trouble
