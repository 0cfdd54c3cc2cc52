"""Experts are in their slots as planned, not in the page cache and not in memory twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import of_text
from factory import make_tiny
from loopback import needs_rpc, server
from oracle import Oracle
from processes import run_script

from backend.gguf.model_file import read_model
from backend.protocol.settings import Sampling

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the facts come from Linux's /proc and mincore"
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with 53 MB of experts: four layers of 32, 4 used, 418 KB each."""
    path = tmp_path_factory.mktemp("models") / "large.gguf"
    return make_tiny(
        "qwen3moe", "Q8_0", path, n_layer=4, n_expert=32, n_embd=256, n_ff_exp=512, head_dim=64
    )


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that injects faults (tests/live/faults.c)."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = HERE.parent / "live" / "faults.c"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def child(*arguments: str, cwd: Path | None = None, **environment: str) -> dict[str, Any]:
    return run_script(HERE / "engine_child.py", *arguments, cwd=cwd, **environment)


def check_residency(found: dict[str, Any]) -> None:
    if found["n_before"] > 0.01 * found["n_page"]:
        pytest.skip("this file system's pages cannot be dropped")
    assert found["n_page"] > 12_000 and found["mode"] == "cached"
    assert found["bytes_read"] > 0.4 * found["expert_bytes"]  # most experts were read
    # The rest was read ahead behind the header, or lies between two experts.
    assert found["n_after"] < 0.05 * found["n_page"]


def test_experts_are_neither_in_the_page_cache_nor_all_in_memory(large: Path) -> None:
    found = child("residency", str(large), "0.125")
    check_residency(found)
    assert found["slab_bytes"] < 0.13 * found["expert_bytes"]
    assert found["grown_bytes"] < found["slab_bytes"] + 0.6 * found["expert_bytes"]


def test_buffered_reads_leave_nothing_in_the_page_cache(large: Path, faults: Path) -> None:
    """This holds also if the file system refuses O_DIRECT."""
    check_residency(
        child(
            "residency", str(large), "0.125", OUTRIDER_FAULT="refuse-open", LD_PRELOAD=str(faults)
        )
    )


def test_without_memory_for_a_higher_rate_the_lower_one_stays(
    large: Path, faults: Path, tmp_path: Path
) -> None:
    found = child(
        "shortage", str(large), cwd=tmp_path, OUTRIDER_FAULT="no-memory", LD_PRELOAD=str(faults)
    )
    assert found["error"] == (
        "There is not enough memory for the expert cache; a lower cache rate needs less."
    )
    assert found["same_facts"] and found["same_tokens"]
    assert found["n_slot_later"] == 31 and found["same_tokens_later"]
    assert found["errors"] == [found["error"], "The expert cache has no memory."]
    assert found["same_tokens_at_last"]


def test_an_answer_can_be_stopped_while_the_drive_hangs(
    tiny: Path, faults: Path, tmp_path: Path
) -> None:
    found = child("hang", str(tiny), cwd=tmp_path, OUTRIDER_FAULT="hang", LD_PRELOAD=str(faults))
    assert found == {
        "n_piece": 0,
        "reason": "cancelled",
        "was_hanging": [True],
        "same_tokens": True,
    }


@pytest.mark.parametrize("arch", ["qwen3moe", "lfm2moe"])
def test_a_drive_that_fails_ends_the_requests_of_its_pass_only(
    arch: str, faults: Path, oracle: Oracle, tmp_path: Path
) -> None:
    """A pass is tried twice. Where a state cannot go back, what was there is computed again."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    found = child("fail", str(path), cwd=tmp_path, OUTRIDER_FAULT="fail", LD_PRELOAD=str(faults))
    usual = found["usual"]
    assert [error for error, _ in usual] == [""] * 4 and {len(t) for _, t in usual} == {6}
    assert found["once"] == usual and found["n_once"] > found["n_usual"]
    sentence = f"The file {path} could not be read: Input/output error."
    assert [error for error, _ in found["twice"]] == [sentence, sentence, "", ""]
    for (_, had), (_, whole) in zip(found["twice"][:2], usual[:2], strict=True):
        assert had == whole[: len(had)] and 0 < len(had) < 6
    assert found["twice"][2:] == usual[2:]
    assert found["alone_once"] and found["alone_twice"] == sentence
    assert found["later"] and found["alone_later"]
    assert oracle.approve()["n_answer"] > 12


@needs_rpc
def test_ram_beside_a_device_is_what_was_planned(large: Path) -> None:
    total_bytes = read_model(large).expert_bytes_total
    for host_bytes in (0, total_bytes // 2, total_bytes):
        with server() as device:
            found = child("ram", str(large), device.option, str(host_bytes))
        assert found["store"] == host_bytes
        filled_bytes = found["planned"] - found["unread"]
        assert found["used"] == pytest.approx(filled_bytes, rel=0.08), host_bytes


def test_experts_larger_than_one_read(tmp_path: Path, open_engine: Any) -> None:
    """Matrices of 9 MB take two reads. The answer equals that of the model in memory."""
    path = make_tiny(
        "llama", "F16", tmp_path / "m.gguf", n_layer=1, n_expert=3, n_expert_used=1, n_ff_exp=2304,
        n_embd=2048, head_dim=64,
    )  # fmt: skip
    answers = []
    for rate in (0.34, 1.0):
        engine = open_engine(path, cache_rate=rate)
        pieces = engine.answer(of_text("of the", Sampling(temperature=0), 6))
        answers.append([p.token_id for p in pieces])
    assert answers[0] == answers[1] and len(answers[0]) >= 6
    path.unlink()  # pytest keeps temporary folders
