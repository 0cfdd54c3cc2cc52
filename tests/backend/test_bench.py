"""`outrider bench`: forced routing, the bound, the command on a small model, refusals."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import make_tiny

from backend.bench import cap
from backend.bench.figures import figures
from backend.bench.tables import BEGIN, END, chart, rewrite, terminal
from backend.bench.workload import Request, forced_rows, passes
from backend.cli import main
from backend.gguf.model_file import read_model
from backend.traces.trace import Trace

EMBEDDED = Path(__file__).resolve().parents[2] / "assets" / "embedded" / "outrider-tiny.gguf"


def trace_of(n_layer: int, n_expert: int = 32, n_used: int = 3) -> Trace:
    """Return a trace of 4 prompt tokens and 6 decoded ones. The last layer computes 1 of the 4."""
    chance = np.random.default_rng(1)
    n_token = np.array([4, *[1] * 6], np.int32)
    n = int(n_token.sum())
    ids = np.stack([chance.permutation(n_expert)[:n_used] for _ in range(n * n_layer)])
    ids = ids.reshape(n, n_layer, n_used).astype(np.uint8)
    n_routed = np.repeat(n_token[:, None], n_layer, axis=1)
    n_routed[0, -1] = 1
    ids[:3, -1] = 0
    return Trace(
        architecture="qwen3moe",
        layers=tuple(range(n_layer)),
        n_expert=n_expert,
        n_expert_used=n_used,
        chunk_bytes=((100, 100, 100),) * n_layer,
        phases=np.array([0, *[1] * 6], np.uint8),
        requests=np.zeros(7, np.int32),
        n_token=n_token,
        n_routed=n_routed,
        tokens=np.full(n, -1, np.int32),
        ids=ids,
    )


def test_layers_are_spread_and_long_texts_go_through_the_trace_again() -> None:
    file = read_model(EMBEDDED)  # 8 layers
    trace = trace_of(n_layer=17)
    rows = forced_rows(trace, file, [Request(6, 8), Request(12, 0)])
    assert rows.shape == (26, 8, 3)
    even, odd = trace.ids[:, 0:16:2], trace.ids[:, 1:17:2]
    assert np.array_equal(rows[:4], even[:4])  # the prompt as it was recorded
    assert np.array_equal(rows[4:6], odd[:2])  # again, with other layers
    assert np.array_equal(rows[6:12], even[4:])  # decoded
    assert np.array_equal(rows[12:14], odd[4:6])
    assert np.array_equal(rows[14:24], even) and np.array_equal(rows[24:26], odd[:2])


def test_a_token_that_a_layer_left_out_is_given_the_next_ones_choice() -> None:
    trace = trace_of(n_layer=8)
    rows = forced_rows(trace, read_model(EMBEDDED), [Request(4, 6)])
    assert (rows[:3, -1] == trace.ids[3, -1]).all()
    assert np.array_equal(rows[:, :-1], trace.ids[:, :-1])


def test_rounds_go_on_where_the_one_before_ended() -> None:
    trace = trace_of(n_layer=8)
    rows = forced_rows(trace, read_model(EMBEDDED), [Request(4, 4), Request(2, 0)], 2)
    first, second = rows[:10], rows[10:]
    assert np.array_equal(second[:4], first[:4]) and np.array_equal(second[8:], first[8:])
    assert np.array_equal(first[4:8], trace.ids[4:8])
    assert np.array_equal(second[4:6], trace.ids[8:10])
    assert np.array_equal(second[6:8], trace.ids[4:6])  # the trace's beginning again


def test_passes() -> None:
    steps = [(p.position, p.n_token, p.is_decode) for p in passes(Request(10, 2), 4)]
    assert steps == [
        (0, 4, False),
        (4, 4, False),
        (8, 2, False),
        (10, 1, True),
        (11, 1, True),
    ]


# Figures, from results made up so that they can be computed by hand.


def cost(position: int, is_decode: bool, wall_s: float, **counts: float) -> dict[str, Any]:
    zero = dict.fromkeys(("hits", "late", "misses", "bytes_read", "bytes_useful"), 0)
    rest = {"bytes_wasted": 0, "stall_s": 0.0, "compute_s": wall_s}
    rest |= {"link_busy_s": 0.0, "link_idle_s": 0.0}
    n_token = 1 if is_decode else 4
    return {
        **{"position": position, "n_token": n_token, "is_decode": is_decode, "wall_s": wall_s},
        **zero,
        **rest,
        **counts,
    }


def turn(prompt: dict[str, Any], tokens: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    request = {"n_prompt": 4, "n_decode": len(tokens), "passes": [prompt, *tokens]}
    start = {"requests": [request], "first_token_s": 0.5, "peak_rss_bytes": 900, "group": {}}
    return start | more


@pytest.fixture
def result() -> dict[str, Any]:
    """Return a result: experts of 100 bytes, a link of 1000 bytes/s, 0.1 s to compute a token."""
    alone = {"whole_bytes_per_s": 900.0, "chunk_bytes_per_s": 1000.0, "token_s": 0.1}
    read = {"hits": 2, "misses": 2, "bytes_read": 250, "bytes_useful": 200, "bytes_wasted": 50}
    read["link_idle_s"] = 0.035
    kept = {"hits": 4}
    prompt = cost(0, False, 1.0, misses=8, bytes_read=800, bytes_useful=800)
    turns = [
        turn(prompt, [cost(4, True, s, **read), cost(5, True, 0.2, **kept)], bounds=[alone, alone])
        for s in (2.0, 0.4, 0.6)  # cold, and two warm ones
    ]
    stock = turn(cost(0, False, 8.0), [cost(4, True, 5.0), cost(5, True, 5.0)])
    resident = turn(cost(0, False, 0.5), [cost(4, True, 0.3), cost(5, True, 0.3)])
    rows = {"link": [{"dense_read_s": 0.3}] * 3, "resident": [resident] * 3, "stock": [stock] * 3}
    ways = [{"name": k, "kind": k, "facts": {}, "turns": v} for k, v in rows.items()]
    facts = {"rate": 0.25, "n_slot": 8, "mode": "cached", "plan_bytes": 1000, "load_s": 0.4}
    ways.append({"name": "lru", "kind": "outrider", "facts": facts, "turns": turns})
    return {
        "format": "outrider-bench",
        "version": 1,
        "date": "2026-11-21",
        "model": {
            **{"name": "m", "bytes": 9000, "dense_bytes": 800, "expert_bytes": 100.0},
            **{"n_moe_layer": 1, "n_expert": 32, "n_expert_used": 4},
        },
        "machine": {"processor": "x", "n_core": 2, "memory_bytes": 1 << 34},
        **{"cap_bytes": 5000, "n_ubatch": 4, "n_round": 3, "accuracy": None},
        **{"link_bytes_per_s": 0.0, "is_forced": False, "remarks": []},
        "ways": [{"asked_rate": 0.25, "error": ""} | way for way in ways],
    }


def test_the_bound_is_the_larger_of_computing_and_reading(result: dict[str, Any]) -> None:
    found = figures(result)
    row = found.row("outrider")
    assert row is not None and row.decode is not None
    # Useful are 200 of 250 bytes: 0.2 s for the first token, 0.1 s of computing for the second.
    assert row.decode.bound_share == pytest.approx((0.3 + 0.3) / (0.6 + 0.8))
    assert row.decode.bound_tokens_per_s == pytest.approx(4 / 0.6)
    speeds = row.decode.tokens_per_s
    assert (speeds.low, speeds.high) == pytest.approx((2 / 0.8, 2 / 0.6))
    assert speeds.cold == pytest.approx(2 / 2.2)
    assert row.decode.wasted_share == pytest.approx(0.2)
    assert row.decode.idle_share == pytest.approx(0.05)  # 2 of 0.035 s in 1.4 s
    # 1.4 s of computing, where 4 tokens alone take 0.4; 0.2 s of waiting were due, and none was.
    lost = row.decode.lost
    assert lost is not None and lost.computing == pytest.approx(1.0 / 1.4)
    assert lost.waiting == pytest.approx(-0.2 / 1.4)
    assert row.decode.bound_share is not None
    assert row.decode.bound_share + lost.computing + lost.waiting + lost.other == pytest.approx(1)
    assert row.prefill[4].bound_share == pytest.approx(0.8)
    assert row.prefill[4].read_to_needed == pytest.approx(1.0)
    assert found.bandwidth_bytes_per_s is not None
    assert found.bandwidth_bytes_per_s.median == 1000
    text = terminal(result)
    assert "14.6" in text  # times stock: 2.92 to 0.2 token/s
    assert "-10.0%" in text  # of the plan


def test_without_a_resident_run_what_was_computed_stands_in(result: dict[str, Any]) -> None:
    result["ways"][1] |= {"error": "It needs 9 GB of memory; there are 1 GB.", "turns": []}
    for one in result["ways"][-1]["turns"]:
        one["bounds"] = [{k: v for k, v in b.items() if k != "token_s"} for b in one["bounds"]]
    found = figures(result)
    row = found.row("outrider")
    assert not found.has_compute and row is not None and row.decode is not None
    assert row.decode.bound_share == pytest.approx(1.0)
    assert row.decode.lost is not None and row.decode.lost.computing is None
    text = terminal(result)
    assert "could not be measured" in text and "It needs 9 GB" in text


def test_tables_and_a_chart_are_put_between_the_marks(
    result: dict[str, Any], tmp_path: Path
) -> None:
    assert chart([result]) is None  # one rate is no line
    other = copy.deepcopy(result["ways"][-1])
    other["facts"]["rate"] = 0.5
    result["ways"].append(other)
    document = tmp_path / "benchmarks.md"
    document.write_text(f"# Benchmarks\n\nBefore.\n\n{BEGIN}\nstale\n{END}\n\nAfter.\n")
    for _ in range(2):  # the second time replaces the first
        rewrite(document, [result])
    text = document.read_text()
    assert text.count("| lru 25.0% |") == 2 and text.count(BEGIN) == 1
    assert "| all | lru" not in text and "| 5e-06 GB | lru 25.0% | 2.92" in text
    assert "| 5e-06 GB | lru 25.0% | 43 % | 71 % | -14 % | 0 % | 5 % | 20 % |" in text
    assert "stale" not in text and text.startswith("# Benchmarks\n\nBefore.")
    assert text.endswith("After.\n")
    picture = (tmp_path / "images" / "benchmarks.svg").read_text()
    ElementTree.fromstring(picture)
    assert "bound of lru" in picture


# The command.


def run_small(tmp_path: Path, *more: str) -> dict[str, Any]:
    out = tmp_path / "result.json"
    few = ["--tokens", "3", "--prompt", "5", "--rounds", "2", "--threads", "1", "--ubatch", "8"]
    assert main(["bench", str(EMBEDDED), *few, "--json", str(out), *more]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_a_small_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "routing.trace"
    trace_of(n_layer=8).write(trace)
    ways = ["--methods", "promoe", "--baseline", "stock,fastest", "--rates", "0.25"]
    forced = ["--forced-routing", str(trace), "--accuracy", "0.9", "--prefill", "12"]
    result = run_small(tmp_path, *ways, *forced, "--memory-cap", "2GB")
    text = capsys.readouterr().out
    assert [way["error"] for way in result["ways"]] == [""] * 5
    assert "3 experts for each token, the model 4: 3 are used" in text
    assert ("So the comparison is uncapped" in text) == (result["cap_bytes"] == 0)
    row = figures(result).row("outrider")
    assert row is not None and row.decode is not None and row.decode.bound_share is not None
    assert row.decode.hits + row.decode.late + row.decode.misses == pytest.approx(8 * 3)
    assert set(row.prefill) == {5, 12} and row.peak_rss_bytes > 0 and row.first_token_s > 0
    assert (row.rate, row.n_slot) == (0.25, 8)
    # The result can be shown again.
    assert main(["bench", str(tmp_path / "result.json")]) == 0
    assert capsys.readouterr().out == text


def test_a_system_without_control_groups_is_said_to_be_uncapped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: str) -> Iterator[Path]:
        return iter(())

    monkeypatch.setattr(cap, "control_groups", none)
    result = run_small(tmp_path, "--methods", "lru", "--baseline", "none", "--memory-cap", "1GB")
    assert result["cap_bytes"] == 0
    assert "So the comparison is uncapped." in capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = main(["bench", *arguments])
    assert status in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("outrider: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("n_layer", "n_expert", "n_used", "why"),
    [
        (4, 32, 3, "has 4 MoE layers, but outrider-tiny.gguf has 8"),
        (8, 16, 3, "is of a model with 16 experts, but outrider-tiny.gguf has 32"),
    ],
)
def test_a_trace_that_does_not_fit(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    n_layer: int,
    n_expert: int,
    n_used: int,
    why: str,
) -> None:
    path = tmp_path / "other.trace"
    trace_of(n_layer, n_expert, n_used).write(path)
    assert why in refusal(capsys, str(EMBEDDED), "--forced-routing", str(path))


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(EMBEDDED)
    dense = make_tiny("dense", "Q8_0", tmp_path / "dense.gguf")
    assert "no experts to cache" in refusal(capsys, str(dense))
    assert "needs --forced-routing" in refusal(capsys, model, "--accuracy", "0.9")
    assert "a size such as" in refusal(capsys, model, "--memory-cap", "lots")
    assert "no baseline 'x'" in refusal(capsys, model, "--baseline", "x")
    assert "no method 'x'" in refusal(capsys, model, "--methods", "x")
    assert "1024 tokens, not for 2000" in refusal(capsys, model, "--prefill", "2000")
    assert "whole number" in refusal(capsys, model, "--prefill", "12,x")
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert "not a result" in refusal(capsys, str(other))
    other.write_text("{")
    assert "not JSON" in refusal(capsys, str(other))
    assert "no-such.gguf" in refusal(capsys, str(tmp_path / "no-such.gguf"))
