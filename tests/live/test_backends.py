"""Backends of llama.cpp that are modules: which are loaded, and what is said of the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backend.system.paths import embedded_model

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
#include <stddef.h>
#include <string.h>
/* The structure is that of ggml/src/ggml-backend-impl.h of the pinned llama.cpp. */
static const char * name(void * reg) { return "Present"; }
static size_t none(void * reg) { return 0; }
static struct { const char * name, * value; } features[] = {{"SHINES", "1"}, {NULL, NULL}};
static void * get_features(void * reg) { return features; }
static void * proc(void * reg, const char * name) {
    return strcmp(name, "ggml_backend_get_features") ? NULL : (void *)get_features;
}
static struct { int api_version; void * get_name, * n_device, * device, * proc, * context; } reg =
    {2, name, none, NULL, proc, NULL};
void * ggml_backend_init(void) { return IS_PRESENT ? &reg : NULL; }
"""
KERNELS = "from backend.llama.api import kernels; print(kernels())"
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


def test_stock_loads_the_modules_that_the_engine_has(tmp_path: Path) -> None:
    """Its kernels would be others: where the processor's are a module, it would have none."""
    build(tmp_path, "libggml-present.so", is_present=True)
    environment = {**os.environ, "OUTRIDER_BACKENDS": str(tmp_path)}
    verify = ["-m", "backend.cli", "verify", str(embedded_model()), "--rates", "0.25"]
    said = [
        subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment,
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout
        for command in (["-c", "import backend._native; " + KERNELS], [*verify, "--methods", "lru"])
    ]  # fmt: skip
    assert "SHINES = 1" in said[0] and said[1].rstrip().endswith("identical")
