"""Logs of the core are whole: live, simulated and kept ones are one (event_logs.py).

test_host_store.py has the runs with a store in RAM, which need a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from event_logs import FOLDER, RUNS, Model, Run, difference, kept, lines_of, models

from backend import _native
from backend.methods.catalogue import METHODS

HERE = [run for run in RUNS if run.host_share == 0]
RECORD = "Was the change intended? Then `make event-logs` records the logs again."


@pytest.fixture(scope="module")
def model_of() -> Iterator[Callable[[Run], Model]]:
    with models() as opened:
        yield opened


def of(runs: list[Run]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("run", runs, ids=[run.name for run in runs])


@of([run for run in HERE if run.is_live])
def test_a_live_engines_log_is_the_kept_one(run: Run, model_of: Callable[[Run], Model]) -> None:
    changed = difference(run.name, kept(run.name), lines_of(model_of(run).live(run)))
    assert changed == "", f"{changed}\n{RECORD}"


@of([run for run in HERE if run.is_simulated])
def test_a_simulators_log_is_the_kept_one(run: Run, model_of: Callable[[Run], Model]) -> None:
    changed = difference(run.name, kept(run.name), lines_of(model_of(run).simulated(run)))
    assert changed == "", f"{changed}\n{RECORD}"


@of([run for run in HERE if run.is_live])
def test_with_threads_a_new_core_answers_the_same(
    run: Run, model_of: Callable[[Run], Model]
) -> None:
    model = model_of(run)
    for segment, log in zip(run.segments, model.live(run, by_rule=False), strict=True):
        core = model.core(run, model.layout(run, segment))
        at = _native.replay(log, core)
        assert at == -1, "\n".join(log.describe(at))
        core.check()
        assert len(log) > 20


def test_every_method_has_a_kept_log_and_no_log_is_left_over() -> None:
    assert {run.method for run in RUNS} == {m.name for m in METHODS.values() if m.kind != "stock"}
    files = {path.name.removesuffix(".txt.xz") for path in FOLDER.iterdir()}
    assert files == {run.name for run in RUNS}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 300_000


def test_the_kept_logs_have_every_event_and_command() -> None:
    lines = [line for run in RUNS for line in kept(run.name)]
    for begin in (
        "request began", "request began, sequence", "tuned", "measured", "pass began, prefill",
        "pass began, decode",
        "reached the gate", "routed", "gate seen", "stocked", "copied", "cancelled", "failed",
        "computed", "withdrawn", "caught up", "aborted", "not asked",
        "  copy", "  cancel", "  order", "  compute", "  withdraw", "  give up",
    ):  # fmt: skip
        assert any(line.startswith(begin) for line in lines), begin
    for words in ("(bottom)", "(staged)", "from host slot", "into host slot", "on the host"):
        assert any(words in line for line in lines), words


def test_the_first_difference_is_shown_with_its_event() -> None:
    log = ["configured", "copied 1", "  copy 2", "  copy 3", "copied 2", "copied 3"]
    assert difference("a", log, list(log)) == ""
    lost = [*log[:4], *log[5:]]
    assert difference("a", log, lost).splitlines() == [
        "a: line 5 of 6 differs; 5 were found.",
        *[f"  {line}" for line in log[:4]],
        "- copied 2",
        "- copied 3",
        "+ copied 3",
    ]
    twice = [*log[:5], "copied 2", *log[5:]]
    swapped = [*log[:2], log[3], log[2], *log[4:]]
    assert "line 6" in difference("a", log, twice) and "line 3" in difference("a", log, swapped)
    assert "+ (the end)" in difference("a", log, log[:5])
