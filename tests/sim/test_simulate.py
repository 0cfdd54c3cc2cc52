"""backend.simulation.run and `outrider simulate`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_tools import trace_of

from backend.cli import main
from backend.machines import load
from backend.methods.catalogue import METHODS
from backend.methods.part import part
from backend.simulation.model import learned
from backend.simulation.run import (
    REFERENCES,
    SIMULATED,
    Setting,
    eviction_method,
    eviction_names,
    run,
    with_references,
)

LAPTOP = load("laptop-ssd")


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.trace"
    trace_of().write(path)
    return path


def test_every_method_is_simulated_and_adds_up() -> None:
    trace = trace_of(n_cut=(2, 2))
    setting = Setting(trace, LAPTOP, accuracy=0.7)
    results = list(run(setting, [METHODS[name] for name in SIMULATED], [0.25, 1.0]))
    assert [r.reason for r in results] == [""] * len(results)
    assert [r.method for r in results[::2]] == list(SIMULATED)
    for r in results:
        assert r.total is not None and r.prefill is not None and r.decode is not None
        assert (r.prefill.n_token, r.decode.n_token) == (5, 11)
        assert r.total.requests == r.prefill.requests + r.decode.requests
        assert r.total.hits == r.prefill.hits + r.decode.hits == sum(c.hits for c in r.layers)
        assert r.total.stall_s == pytest.approx(r.prefill.stall_s + r.decode.stall_s)
        assert 0 < r.cache_bytes <= 2 * 8 * 3000
        assert r.rate == pytest.approx(r.cache_bytes / (2 * 8 * 3000))
        json.dumps(r.to_json(layers=True), allow_nan=False)


def test_no_eviction_beats_belady_and_the_oracle_is_the_ceiling() -> None:
    trace = trace_of(n_pass=60, n_expert=16)
    evictions = [eviction_method(name) for name in eviction_names()]
    results = {r.method: r for r in run(Setting(trace), evictions, [0.25])}
    hits = {name: r.total.hits for name, r in results.items() if r.total}
    assert max(hits, key=lambda name: (hits[name], name == "belady")) == "belady"
    names = ("oracle", "lru", "lru-overlapped", "belady")
    times = {
        r.method: r.decode.time_s
        for r in run(Setting(trace, LAPTOP), [METHODS[name] for name in names], [0.25])
        if r.decode
    }
    assert min(times, key=lambda name: times[name]) == "oracle"


def test_the_same_setting_gives_the_same_results() -> None:
    methods = [METHODS["random"], METHODS["promoe"]]

    def results(seed: int) -> list[Any]:
        setting = Setting(trace_of(), LAPTOP, accuracy=0.5, seed=seed)
        return [r.to_json(layers=True) for r in run(setting, methods, [0.3])]

    assert results(1) == results(1)
    assert results(1) != results(2)


def test_what_a_method_lacks_is_said() -> None:
    setting = Setting(trace_of(), LAPTOP)
    (result,) = run(setting, [METHODS["promoe"]], [0.3])
    assert result.reason.endswith(".") and "next_router" in result.reason
    assert "reason" in result.to_json()
    (stock,) = run(setting, [METHODS["unified"]], [0.3])
    assert "stock" in stock.reason


def test_recorded_inputs_and_routers_are_used() -> None:
    """With routers that rank a layer's recorded choice first, next-router is always right."""
    n_embd = 8
    plain = trace_of()
    inputs = np.zeros((len(plain.tokens), 2, n_embd), np.float16)
    for t, ids in enumerate(plain.ids[:, 1]):
        inputs[t, 0, ids] = 1.0  # layer 0's input names layer 1's experts
    trace = trace_of(inputs=inputs, has_inputs=np.array([1, 0], np.uint8), n_embd=n_embd)
    routers = [np.eye(8, dtype=np.float32)] * 2
    (result,) = run(Setting(trace, LAPTOP, routers=routers), [METHODS["promoe-reorder"]], [1.0])
    assert result.reason == ""
    first, second = result.layers
    assert first.predicted == 0  # no input of layer 1, which would predict layer 0
    assert second.predicted > 0
    assert second.accuracy == 1.0


def test_moepic_is_configured_anew_between_requests() -> None:
    """It runs after enough tokens and at the end of a request. Before, it is moepic-uniform."""
    n_pass = 80
    requests = np.repeat([0, 1], n_pass // 2).astype(np.int32)
    trace = trace_of(n_pass=n_pass, n_expert=16, n_cut=(4, 4), requests=requests)
    methods = [METHODS["moepic"], METHODS["moepic-uniform"]]

    def simulated(configure_tokens: int) -> list[Any]:
        setting = Setting(trace, LAPTOP, accuracy=0.8, configure_tokens=configure_tokens)
        return [r.total for r in run(setting, methods, [0.4])]

    never, uniform = simulated(5000)
    assert never == uniform
    anew, uniform = simulated(20)
    assert anew != uniform
    assert anew.bytes_read > 0 and anew.requests > 0


def test_auto_decides_while_it_is_simulated() -> None:
    trace = trace_of(n_pass=400, n_expert=16, n_layer=4)
    setting = Setting(trace, load("rtx3060"), accuracy=0.95)
    once, again = (list(run(setting, [METHODS["auto"]], [0.3])) for _ in range(2))
    assert once == again
    assert len(once[0].lines) > 0
    assert "decisions" in once[0].to_json()


def test_references_come_behind() -> None:
    assert with_references(["promoe", "lru", "promoe"]) == [
        "promoe",
        "lru",
        *(name for name in REFERENCES if name != "lru"),
    ]


def test_ram_between_a_drive_and_the_slots() -> None:
    """Experts not in RAM are read from the drive. With RAM for all, each is read once."""
    trace = trace_of(n_pass=60, n_expert=16)
    all_bytes = sum(map(sum, trace.chunk_bytes)) * trace.n_expert
    plain = Setting(trace, load("rtx3060"))
    found = [
        next(run(setting, [METHODS["lru-overlapped"]], [0.25]))
        for setting in (
            plain,
            *(replace(plain, host_rate=rate, drive=LAPTOP) for rate in (1.0, 0.5, 0.0)),
        )
    ]
    assert [r.reason for r in found] == [""] * 4 and found[0].bytes_from_file is None
    read = [r.bytes_from_file or 0 for r in found[1:]]
    assert 0 < read[0] <= all_bytes and read == sorted(read)
    total = found[3].total
    assert total is not None and read[2] == total.bytes_read
    times = [r.decode.time_s for r in found if r.decode is not None]
    assert times == sorted(times) and times[0] < times[1]


# The command


def command(capsys: Any, *args: object) -> tuple[int, str, str]:
    status = main(["simulate", *map(str, args)])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_table_and_curves(capsys: Any, trace_file: Path, tmp_path: Path) -> None:
    plot = tmp_path / "curves.svg"
    status, out, err = command(
        capsys, trace_file, "--methods", "lru-overlapped", "--rates", "25%,0.5", "--plot", plot
    )
    assert (status, err) == (0, "")
    rows = [line.split()[0] for line in out.splitlines() if "%" in line]
    expected = with_references(["lru-overlapped"])
    assert rows == [name for name in expected for _ in range(2)]
    root = ElementTree.fromstring(plot.read_text(encoding="utf-8"))
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {*expected, "hit rate", "tokens per second", "cache rate"} <= texts


def test_json(capsys: Any, trace_file: Path) -> None:
    status, out, _ = command(
        capsys,
        *(trace_file, "--methods", "lru,promoe", "--evictions", "lcp", "--rates", "0.3"),
        *("--no-references", "--layers", "--json", "--machine", "rtx3060"),
    )
    report = json.loads(out)
    assert status == 0
    assert report["machine"]["name"] == "rtx3060"
    by_name = {r["method"]: r for r in report["results"]}
    assert list(by_name) == ["lru", "promoe", "lcp"]
    assert len(by_name["lru"]["layers"]) == 2
    assert "reason" in by_name["promoe"]
    assert by_name["lcp"]["total"]["requests"] == by_name["lru"]["total"]["requests"]


def test_ram_of_the_command(capsys: Any, trace_file: Path) -> None:
    options = ("--machine", "rtx3060", "--methods", "lru", "--rates", "0.3", "--no-references")
    ram = ("--host-memory", "50%", "--drive", "laptop-ssd")
    status, out, _ = command(capsys, trace_file, *options, *ram)
    assert status == 0 and "RAM keeps 4 of 8 experts of each layer, behind it is the drive" in out
    status, out, _ = command(capsys, trace_file, *options, *ram, "--json")
    report = json.loads(out)
    assert report["drive"]["name"] == "laptop-ssd"
    assert report["results"][0]["bytes_from_file"] > 0


def test_instant_copies_have_counts_and_no_speed(capsys: Any, trace_file: Path) -> None:
    status, out, _ = command(
        capsys, trace_file, "--machine", "instant", "--methods", "lru", "--rates", "0.3", "--json"
    )
    assert status == 0
    for result in json.loads(out)["results"]:
        assert result["decode"]["tokens_per_s"] is None
        assert result["total"]["late"] == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--methods", "fastest"], "the method 'fastest' is not known"),
        (["--methods", "unified"], "stock llama.cpp, which is not simulated"),
        (["--evictions", "wisest"], "no eviction called wisest"),
        (["--rates", "1.5"], "from 0 to 1"),
        (["--host-memory", "8G"], "the share that RAM holds must be a number from 0 to 1"),
        (["--host-memory", "0.5", "--drive", "floppy"], "There is no machine file floppy"),
        (["--rates=-0.1,x"], "from 0 to 1"),
        (["--rates", "nan"], "from 0 to 1"),
        (["--accuracy", "2"], "the accuracy must be a number from 0 to 1"),
        (["--machine", "abacus"], "There is no machine file abacus"),
        (["--plot", "x.png"], "must end in .svg"),
        (["--cuts", "0"], "whole number"),
    ],
)
def test_bad_arguments_are_a_sentence(
    capsys: Any, trace_file: Path, args: list[str], words: str
) -> None:
    status, _out, err = command(capsys, trace_file, *args)
    assert status in (1, 2)
    assert words in err
    assert err.count("\n") == 1 and "Traceback" not in err and "unexpected" not in err


def test_bad_traces_are_a_sentence(capsys: Any, trace_file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.trace"
    cut.write_bytes(trace_file.read_bytes()[:-40])
    foreign = tmp_path / "foreign.trace"
    foreign.write_bytes(b"GGUF" + bytes(100))
    empty = tmp_path / "empty.trace"
    trace_of().passes(0, 0).write(empty)
    table = tmp_path / "table.csv"
    table.write_text("# route_trace v1\n# model=x\n", encoding="utf-8")
    for path in (cut, foreign, empty, table, tmp_path / "none", tmp_path):
        status, _, err = command(capsys, path)
        assert status == 1, path
        assert err.count("\n") == 1 and "unexpected" not in err, err


def test_learned_predictors_are_used_and_those_of_other_models_refused(
    capsys: Any, tmp_path: Path
) -> None:
    from backend.weights.file import PredictorSizes, PredictorWeights, write

    path, weights = tmp_path / "t.trace", tmp_path / "popularity.predictor"
    model = "a" * 64
    trace_of(model=model).write(path)
    counts = np.zeros((2, 8), np.float32)
    counts[:, 7] = 1.0  # the experts that the trace uses least
    sizes = PredictorSizes(n_layer=2, n_expert=8, n_expert_used=2, n_embd=0)
    write(weights, model, PredictorWeights("popularity", sizes, {"counts": counts}))

    # It forecasts from its array until it has counted more.
    trace = trace_of(model=model)
    popular = replace(METHODS["promoe-reorder"], predictor=part("popularity", online=0))
    (of_file,) = run(Setting(trace, learned=learned([weights], trace)), [popular], [0.5])
    assert of_file.total is not None
    used = sum(
        7 in trace.ids[trace.rows(number, layer), layer]
        for number in range(trace.n_pass)
        for layer in range(2)
    )
    assert (of_file.total.predicted, of_file.total.predicted_used) == (2 * trace.n_pass, used)
    assert used > 0

    args = ("--methods", "lru", "--no-references", "--rates", "0.3", "--predictor", weights)
    status, _, err = command(capsys, path, *args)
    assert (status, err) == (0, "")
    trace_of(model="b" * 64).write(tmp_path / "other.trace")
    status, _, err = command(capsys, tmp_path / "other.trace", *args)
    assert status == 1
    assert "another model" in err and err.count("\n") == 1


def test_a_trace_of_another_model_is_refused(capsys: Any, tmp_path: Path, trace_file: Path) -> None:
    from backend.system.paths import embedded_model

    other = tmp_path / "other.trace"
    trace_of(model="0" * 64).write(other)
    status, _, err = command(capsys, other, "--model", embedded_model())
    assert status == 1
    assert "model" in err and "unexpected" not in err
