"""A device with asynchronous copies, pinned memory and limits of its own (fake_device.c)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from factory import PUZZLE, make_tiny
from processes import fork_script

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
    """Return a model with three layers of 16 experts, 4 used."""
    return make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("model") / "m.gguf", n_ff_exp=128)


def run(
    library: Path, model: Path, *options: object, method: str = "promoe", **environment: str
) -> Any:
    """Return the output of fake_device_run.py."""
    words = map(str, [library, model, method, *options])
    return fork_script(HERE / "fake_device_run.py", *words, **environment)


def test_copies_beside_computation(library: Path, tiny: Path) -> None:
    """Bytes arrive late, and no two threads use a backend at once."""
    all_bytes = read_model(tiny).expert_bytes_total
    sizes = [int(all_bytes * of_all) for of_all in (0, 1, 0.5, 0.025)]
    without, *stored = run(library, tiny, "--compare", *sizes)
    assert without["n_different"] == [0] * RATES
    for found in stored:
        assert found["n_different"] == [0] * RATES
        assert found["n_async"] > without["n_async"] and found["n_shared"] == 0
        assert found["n_backend"] == without["n_backend"] + 2  # for the copies, at all rates
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
    """A device has special kernels for few tokens, and a fused one for a router."""
    prompt = run(library, tiny, "--tokens", 33, 0, method=method)
    assert prompt["n_few"] == 0 < prompt["n_many"] and prompt["n_cut"] == 0
    few = run(library, tiny, "--tokens", 2, 4, method=method)
    assert few["n_many"] == 0 < few["n_few"] and few["n_cut"] == 0


def test_a_token_computes_cut_experts_in_two_graphs(library: Path, tiny: Path) -> None:
    """One for the tops and one for the bottoms of each layer."""
    found = run(library, tiny, "--tokens", 1, 20, "--slots", 8, method="moepic")
    assert 0 < found["n_graph"] <= 2 * read_model(tiny).n_layer * 21


@pytest.mark.parametrize("method", ["lru", "promoe"])
def test_a_token_costs_one_wait_a_layer(method: str, library: Path, tiny: Path) -> None:
    """For the router's choice; and no blocking upload. Two more, at the token's begin and end.

    This is beyond what stock llama.cpp costs. A token waits for the experts that it lacks, and then
    computes all at once, also if the method copies one expert after the other. The first token of a
    graph is computed by llama.cpp, which waits at each stop; the choice is read after that.

    A model whose experts are all there to stay costs what stock llama.cpp costs. Its recorded graph
    is not replayed once the slots have moved.
    """
    n_layer = read_model(tiny).n_layer
    stock, some, all_there, again = run(library, tiny, "--budget", 14, 16, 16, method=method)
    fixed = stock[-1]
    assert some[0]["n_wait"] - fixed["n_wait"] <= 2 * n_layer + 2
    for token in some[1:]:
        assert token["n_wait"] - fixed["n_wait"] <= n_layer + 2
        assert token["n_view"] - fixed["n_view"] <= n_layer + 1
        assert token["n_fused"] == fixed["n_fused"], "a stop splits no kernel"
    assert {token["n_upload"] for token in some} == {fixed["n_upload"]}
    resident = [token for token in some if token["misses"] == 0 and token["n_async"] <= n_layer]
    assert 0 < len(resident) < len(some)
    assert all(token["n_graph"] == 0 for token in some)
    for found in (some, all_there, again):
        assert [token["logits"] for token in found] == [token["logits"] for token in stock]
    names = ("n_wait", "n_sync", "n_upload", "n_view", "n_async", "n_fused", "n_replayed")
    assert fixed["n_replayed"] > 0
    assert [all_there[-1][name] for name in names] == [fixed[name] for name in names]


@pytest.mark.parametrize("arch", ["gpt-oss", "gemma4", "qwen3next"])
def test_pieces_change_nothing(arch: str, library: Path, tmp_path: Path) -> None:
    """Not the logits and not the context, although most tokens lack experts."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf", n_expert=16, n_expert_used=4)
    stock, found = run(library, path, "--budget", 7, "--n-token", 20, method="lru")
    assert [token["logits"] for token in found] == [token["logits"] for token in stock]
    assert found[-1]["state"] == stock[-1]["state"]
    assert all(token["n_graph"] == 0 for token in found)
    assert sum(token["misses"] for token in found) > len(found)


def test_pieces_of_layers_that_use_different_numbers_of_experts(
    library: Path, tmp_path: Path
) -> None:
    path = make_tiny("nemotron_h_moe", "F16", tmp_path / "m.gguf", **PUZZLE)
    stock, found = run(library, path, "--budget", 7, "--n-token", 20, method="lru")
    assert [token["logits"] for token in found] == [token["logits"] for token in stock]
    assert sum(token["misses"] for token in found) > len(found)


def test_a_device_stops_once_in_each_layer(library: Path, tiny: Path) -> None:
    n_layer = read_model(tiny).n_layer
    found = run(library, tiny, "--budget", 14, "--n-token", 20)[1]
    tokens = [token for token in found[1:] if not token["misses"]]
    assert {token["n_drained"] for token in tokens} == {n_layer + 1}, "and for the logits"
    assert len({token["n_fused"] for token in tokens}) == 1


def test_prompts_beside_layers_of_the_cpu(library: Path, tiny: Path) -> None:
    all_bytes = read_model(tiny).expert_bytes_total
    options = ("--n-gpu-layers", 3, "--compare", all_bytes)
    (found,) = run(library, tiny, *options, method="outrider")
    assert found["n_different"] == [0] * RATES


def test_the_hosts_rows_arrive_in_order(library: Path, tiny: Path) -> None:
    """The fake device's kernels are the host's, so the bits are the same."""
    all_bytes = read_model(tiny).expert_bytes_total
    options = ("--compare", all_bytes, "--hybrid", "cpu-only")
    (found,) = run(library, tiny, *options, method="lru")
    assert found["n_different"] == [0] * RATES and found["on_host"][0] > 100


def test_a_prompt_asks_for_little(library: Path, tmp_path: Path) -> None:
    """As many waits as it has waves and copies of whole experts, and each expert once.

    Stock llama.cpp has as much of the model on the device and copies the rest (op_offload).
    """
    n_layer, n_expert, n_stage = 8, 32, 40
    path = make_tiny(
        "qwen3moe", "F16", tmp_path / "m.gguf", n_layer=n_layer, n_expert=n_expert, n_expert_used=4
    )
    stock, ours = run(library, path, "--prompts", 28, 512, "--n-stage", n_stage)
    for theirs, found in zip(stock, ours, strict=True):
        assert found["logits"] == theirs["logits"]
        n_small = found["n_graph"] + n_layer  # rows of waves, and slots
        assert found["n_async"] <= 3 * n_layer * n_expert + n_small, "no expert is copied twice"
        assert 0 < found["n_graph"] <= 4 * n_layer, "two waves, with own slots and with the stage's"
        assert found["n_upload"] <= theirs["n_upload"]
        assert found["n_wait"] <= theirs["n_wait"] + found["n_graph"] + 3 * n_layer
    assert [cost["n_async"] for cost in stock] == [0, 3 * n_layer // 2]  # from 32 tokens on
    assert 2 * ours[1]["n_alone"] < ours[1]["n_many"], "one expert may have most rows of a wave"


def test_the_store_stays_where_its_size_stays(library: Path, tiny: Path) -> None:
    """Pinning memory again takes seconds."""
    all_bytes = read_model(tiny).expert_bytes_total
    once, twice = (
        run(library, tiny, "--host-bytes", all_bytes, "--slots", *slots) for slots in ((4,), (5, 4))
    )
    assert twice["pinned_in_all"] - once["pinned_in_all"] < all_bytes // 2
    assert once["pinned_in_all"] > all_bytes // 2


@pytest.mark.parametrize("method", ["lru", "moepic-uniform"])
def test_slots_of_another_number_keep_the_experts(method: str, library: Path, tiny: Path) -> None:
    """The device has room for the slots of one layer more, not for all old and all new ones."""
    one_layer = read_model(tiny).expert_bytes_total // 3 // 2
    moves = ("--move", 8, 5, 8, "--room", one_layer)
    first, *others = run(library, tiny, *moves, method=method)
    for found in others:
        layers = zip(found["before"], found["after"], found["n_slot"], strict=True)
        for before, after, n_slot in layers:
            assert set(after) <= set(before) and len(after) == min(len(before), n_slot) > 0
        assert found["wrong"] == [] and found["logits"] == first["logits"]


@pytest.mark.parametrize("n_failing", [1, 2])
def test_a_device_without_room_for_the_old_slots(n_failing: int, library: Path, tiny: Path) -> None:
    """The last layers lose their experts, as few as possible, and nothing fails."""
    first, again = run(library, tiny, "--move", 8, 8, "--fail", n_failing, method="lru")
    kept = [len(after) for after in again["after"]]
    assert kept == [8] * (3 - n_failing) + [0] * n_failing
    assert again["wrong"] == [] and again["logits"] == first["logits"]


def test_a_store_that_stays_keeps_its_experts(library: Path, tiny: Path) -> None:
    all_bytes = read_model(tiny).expert_bytes_total
    first, *others = run(library, tiny, "--move", 8, 5, 8, "--host-bytes", all_bytes, method="lru")
    assert first["from_file"] > 0 and [found["from_file"] for found in others] == [0, 0]
    assert {found["logits"] for found in others} == {first["logits"]}


def test_memory_that_could_not_be_pinned_is_told(library: Path, tiny: Path, tmp_path: Path) -> None:
    all_bytes = read_model(tiny).expert_bytes_total
    store = ("--host-bytes", all_bytes)
    assert not run(library, tiny, *store)["lacks_pinned"]
    assert run(library, tiny, *store, "--max-pinned", all_bytes // 2)["lacks_pinned"]
    found = run(library, tiny, "--engine", "--max-pinned", 0, XDG_DATA_HOME=str(tmp_path))
    assert "could not be pinned" in found[0]["remark"]


def test_another_order_of_a_prompts_nodes_ends_the_pass(library: Path, tmp_path: Path) -> None:
    """It is learned from few tokens; some devices reorder the graphs of many."""
    path = make_tiny("deepseek2", "Q8_0", tmp_path / "m.gguf", n_expert=16)
    found = run(library, path, FAKE_REORDER="shared")
    assert found["error"] == "llama.cpp computed a layer in another order than before"


@pytest.mark.parametrize("arch", ["deepseek2", "qwen3moe"])
def test_any_legal_order_of_nodes(arch: str, library: Path, tmp_path: Path) -> None:
    """If the order depends on the number of tokens, the pass ends with a sentence."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    (found,) = run(library, path, "--compare", 0, FAKE_REORDER="2")
    assert found["n_different"] == [0] * RATES
    (found,) = run(library, path, "--compare", 0, FAKE_REORDER="4+")
    assert found["error"] == "llama.cpp computed a layer in another order than before."


@pytest.mark.parametrize("fault", ["FAKE_NO_WAIT", "FAKE_NO_EVENT"])
def test_whoever_does_not_wait_is_found(fault: str, library: Path, tiny: Path) -> None:
    """A test of the fake device itself."""
    with pytest.raises(AssertionError, match="use the same bytes without order"):
        run(library, tiny, "--budget", 6, "--n-token", 20, method="lru", **{fault: "1"})


def test_a_device_waits_for_copies_by_itself(library: Path, tiny: Path) -> None:
    """The host enqueues the next layer while copies are on their way."""
    stock, found = run(library, tiny, "--budget", 6, "--n-token", 30, method="lru")
    assert [token["logits"] for token in found] == [token["logits"] for token in stock]
    assert sum(token["n_awaited"] for token in stock) == 0
    assert sum(token["n_awaited"] for token in found if token["misses"]) > 0
    assert sum(token["n_awaited"] for token in found if not token["misses"]) == 0


def test_memory_that_a_device_refuses_ends_in_a_sentence(library: Path, tiny: Path) -> None:
    """Whichever allocation fails; the next configuration works."""
    found = run(library, tiny, "--refuse")
    assert len(found["said"]) > 3
    assert all("memory" in sentence for sentence in found["said"])
    assert found["logits"][0] == found["logits"][1]


def test_a_routers_input_is_read_before_its_memory_is_reused(library: Path, tmp_path: Path) -> None:
    """The router then still is computed in one piece."""
    path = make_tiny("gemma4", "F16", tmp_path / "m.gguf")
    assert run(library, path, method="outrider")["n_cut"] == 0


def test_what_kernels_take_is_measured_before_slots_are_made(
    library: Path, tiny: Path, tmp_path: Path
) -> None:
    """The fake device takes 300 MiB when it first computes a prompt."""
    found = run(library, tiny, "--engine", XDG_DATA_HOME=str(tmp_path))
    for once in found:
        assert once["headroom"] == pytest.approx(300 << 20, rel=0.001)
        assert once["n_slot"] == 8
