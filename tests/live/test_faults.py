"""Faulty reads: the logits stay right, or the pass ends with a sentence."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from equality import Cached, stock_logits
from factory import make_tiny
from processes import NO_FILE, fork_script, preload

from backend import _native
from backend.engine import loading
from backend.gguf.model_file import read_model
from backend.llama.api import LlamaError
from backend.packs import write as pack
from backend.packs.file import find

HERE = Path(__file__).parent
needs_preload = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="faults are made by a preloaded library, which needs Linux and a C compiler",
)


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library that injects faults."""
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "faults.c", "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with experts of 8704 bytes, which neither begin nor end at a block."""
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    return make_tiny("qwen3moe", "Q8_0", path, n_embd=128, n_ff_exp=64, n_layer=2)


@functools.cache
def run(model: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """Return the output of faulty_run.py. Equal runs are run once."""
    return fork_script(HERE / "faulty_run.py", str(model), *arguments, **environment)


@needs_preload
@pytest.mark.parametrize(
    "fault",
    ["none", "refuse-open", "refuse-read", "short", "ragged", "eintr", "error-once", "slow"],
)
def test_what_can_be_overcome_is(fault: str, faults: Path, model: Path) -> None:
    found = run(model, OUTRIDER_FAULT=fault, LD_PRELOAD=str(faults))
    assert found["errors"] == [] and found["misses"] > 0
    assert found["n_different"] == [0] * 5


def test_a_load_is_tried_again_without_direct_reads(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that llama.cpp always writes stands for the one that it gave up direct reads.

    Each try has its own buffers: those of the first know tensors that were freed, whose addresses
    the second's may have or not.
    """
    file = read_model(model)
    expected = stock_logits(file, (33,), n_thread=1)
    load, modes = llama_cpp.llama_model_load_from_file, []
    buffers, of_tries = _native.ExpertBuffers, list[list[object]]()
    made: list[object] = []

    def noting(path: bytes, params: loading.Params) -> object:
        modes.append(params.load_mode)
        of_tries.append(made.copy())
        made.clear()
        return load(path, params)

    def making(*, unread: bool) -> _native.ExpertBuffers:
        made.append(buffers(unread=unread))
        return made[-1]  # type: ignore[return-value]

    monkeypatch.setattr(_native, "ExpertBuffers", making)
    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", noting)
    monkeypatch.setattr(loading, "_GAVE_UP_DIRECT", "loaded meta data")
    cached = Cached(file, n_thread=1)
    assert modes == [llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO, llama_cpp.LLAMA_LOAD_MODE_NONE]
    assert of_tries[0] and of_tries[1]
    outcomes = cached.compare(0.25, "promoe", expected)
    cached.close()
    assert outcomes[0].n_different == 0 and outcomes[0].misses > 0


@needs_preload
def test_a_pack_is_whole_where_reads_are_short(
    faults: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with short reads writes the same pack as this one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = Path(shutil.copy(model, tmp_path / "m.gguf"))
    short = {"OUTRIDER_FAULT": "short", "LD_PRELOAD": preload(faults)}
    done = subprocess.run(
        [sys.executable, "-m", "backend.cli", "pack", str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | short,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    file = read_model(path)
    found, remark = find(file)
    assert found is not None, remark
    written = found.path.read_bytes()
    pack.delete(found.path)
    assert pack.write(file, found.plan.layout).path.read_bytes() == written


@needs_preload
def test_waiting_for_a_slow_drive_is_counted_as_stall(faults: Path, model: Path) -> None:
    """The last method copies an expert's three matrices one after another, 5 ms each."""
    found = run(model, OUTRIDER_FAULT="slow", LD_PRELOAD=str(faults))
    assert found["stall_us"] > found["misses"] * 5000
    assert found["stall_us"] == found["stall_us_by_layer"] <= found["callback_us"]


@needs_preload
def test_a_persistent_error_ends_the_pass_with_a_sentence(faults: Path, model: Path) -> None:
    found = run(model, OUTRIDER_FAULT="error-always", LD_PRELOAD=str(faults))
    assert found["n_different"] == []
    assert len(found["errors"]) == 3
    for error in found["errors"]:
        assert error == f"The file {model} could not be read: Input/output error"


@pytest.mark.parametrize(("beyond", "only"), [(1, ()), (5000, ("lru",)), (8192, ("lru",))])
def test_a_file_that_becomes_shorter(
    beyond: int, only: tuple[str, ...], model: Path, tmp_path: Path
) -> None:
    """Cut the file `beyond` bytes after the start of the last layer's last experts.

    Every read that fails is tried again for half a second, so not every setting is run each time.
    """
    path = shutil.copy(model, tmp_path / "m.gguf")
    tensor = read_model(path).expert_tensors[1][-1]
    size = tensor.offset + tensor.matrix_bytes + beyond
    found = run(path, "--truncate", str(size), *(f"--only={name}" for name in only))
    assert found["n_different"] == []
    for error in found["errors"]:
        assert error == f"The file {path} could not be read: Input/output error"
    assert len(found["errors"]) == (len(only) or 3)
    assert found["n_different_after"] == [0] * 3  # the same patch, with the file restored


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """Return a folder in a file system without a drive."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_a_file_system_in_memory(memory_folder: Path) -> None:
    file = read_model(make_tiny("qwen3moe", "Q4_0", memory_folder / "m.gguf"))
    cached = Cached(file, n_thread=1)
    outcomes = cached.compare(0.25, "promoe", stock_logits(file, (33,), n_thread=1))
    cached.close()
    assert outcomes[0].n_different == 0 and outcomes[0].misses > 0


def test_a_file_that_vanishes_before_it_is_loaded(tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf")
    file = read_model(path)
    path.unlink()
    with pytest.raises(LlamaError, match=f"could not be opened: {NO_FILE}"):
        loading.CachedModel(file, n_thread=1)


def test_a_file_that_vanishes_while_it_is_open_can_still_be_read(tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf")
    file = read_model(path)
    expected = stock_logits(file, (33,), n_thread=1)
    cached = Cached(file, n_thread=1)
    path.unlink()
    assert cached.compare(0.25, "promoe", expected)[0].n_different == 0
    cached.close()


def test_a_patch_lets_go_of_the_model_while_others_still_hold_it(tmp_path: Path) -> None:
    file = read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf"))
    cached = Cached(file, n_thread=1)
    patch = cached.patch
    cached.compare(0.25, "promoe", stock_logits(file, (33,), n_thread=1))
    assert patch.slab_bytes > 0 and sum(c.misses for c in patch.counts()) > 0
    cached.close()
    assert patch.slab_bytes == 0 and patch.snapshot() == b""
    assert sum(c.misses for c in patch.counts()) == 0
