"""A device with asynchronous copies, pinned memory and limits of its own (fake_device.c)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from factory import make_tiny

from backend.gguf.model_file import read_model

HERE = Path(__file__).parent
RATES = 3
"""How many cache rates are compared."""

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="the fake device is a library, which needs Linux and a C compiler",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("fake") / "fake.so"
    package = Path(llama_cpp.__file__).parent
    ggml = [package / "lib" / f"lib{name}.so.0" for name in ("ggml", "ggml-base", "ggml-cpu")]
    command = ["cc", "-shared", "-fPIC", "-O1", f"-I{package.parent / 'include'}", "-o", built]
    subprocess.run(
        [*command, HERE / "fake_device.c", *ggml, f"-Wl,-rpath,{package / 'lib'}"],
        check=True,
        timeout=60,
    )
    return built


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers of 16 experts, 4 used."""
    return make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("model") / "m.gguf", n_ff_exp=128)


def run(
    library: Path, model: Path, *options: object, method: str = "promoe", **environment: str
) -> Any:
    """What fake_device_run.py prints."""
    command = [HERE / "fake_device_run.py", library, model, method, *options]
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_copies_beside_computation(library: Path, tiny: Path) -> None:
    """Bytes arrive late, and no two threads use a backend at once."""
    all_bytes = read_model(tiny).expert_bytes_total
    sizes = [int(all_bytes * of_all) for of_all in (0, 1, 0.5, 0.025)]
    without, *stored = run(library, tiny, "--compare", *sizes)
    assert without["n_different"] == [0] * RATES
    for found in stored:
        assert found["n_different"] == [0] * RATES
        assert found["n_async"] > without["n_async"] and found["n_shared"] == 0
        assert found["n_backend"] == without["n_backend"] + 2 * RATES  # two for the copies
        assert found["pinned_bytes"] > without["pinned_bytes"]
    assert sum(stored[0]["bytes_from_host"]) > sum(stored[2]["bytes_from_host"])


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss"])
def test_layers_of_the_cpu_stay_the_cpus(arch: str, library: Path, tmp_path: Path) -> None:
    """Their weights are in pinned memory, whose type names the device."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    all_bytes = read_model(path).expert_bytes_total
    (found,) = run(library, path, "--n-gpu-layers", 2, "--compare", all_bytes // 2)
    assert found["n_different"] == [0] * RATES
    slots = run(library, path, "--n-gpu-layers", 2, "--host-bytes", all_bytes // 2)["host_slots"]
    assert not any(slots[:-1]) and slots[-1] > 0


@pytest.mark.parametrize("limit", ["--max-buffer", "--max-tensor"])
def test_slots_larger_than_the_device_allows_are_refused_by_name(
    limit: str, library: Path, tiny: Path
) -> None:
    matrix = read_model(tiny).expert_tensors[0][0]
    one_slot = matrix.n_bytes // 16
    found = run(library, tiny, limit, 2 * one_slot)
    assert found["error"].startswith(f"The slots of {matrix.name} need ")
    assert "more than FAKE0 allows" in found["error"]


def test_a_pass_reads_one_clock(library: Path, tiny: Path) -> None:
    """ggml's clock and the system's may count from different moments."""
    preload = {"LD_PRELOAD": str(library), "FAKE_CLOCK": "1"}
    events = run(library, tiny, "--hybrid", "auto", **preload)["events"]
    waited_us = [float(e.split()[3]) for e in events if e.startswith("caught up after")]
    assert waited_us and max(waited_us) < 3600e6


@pytest.mark.parametrize("method", ["promoe", "outrider"])
def test_waves_use_the_kernels_that_stock_uses(method: str, library: Path, tiny: Path) -> None:
    """A device has kernels of their own for a few tokens, and one for all of a router."""
    prompt = run(library, tiny, "--tokens", 33, 0, method=method)
    assert prompt["n_few"] == 0 < prompt["n_many"] and prompt["n_cut"] == 0
    few = run(library, tiny, "--tokens", 2, 4, method=method)
    assert few["n_many"] == 0 < few["n_few"] and few["n_cut"] == 0
