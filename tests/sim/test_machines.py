"""Machine files: presets, refusals, and the times that follow from the figures."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from waiting import WAIT_S

from backend.machines import DENSE_STEPS, FIGURES, WAVE_STEPS, MachineError, load, parse, presets
from backend.machines.measure import N_READER, measure, read_s


def content() -> dict[str, Any]:
    values = {
        "link_gb_per_s": 2.0,
        "link_latency_us": 10.0,
        "n_link": 4,
        "memory_gb_per_s": 20.0,
        "tflop_per_s": 0.5,
        "step_us": 3.0,
    }
    return {
        "format": "outrider-machine",
        "version": 1,
        "name": "mine",
        "sentence": "A machine.",
        "figures": {k: {"value": v, "source": "measured"} for k, v in values.items()},
    }


def test_presets_say_a_source_for_every_figure() -> None:
    assert set(presets()) == {"laptop-ssd", "rtx3060", "rtx4090-pcie4x16"}
    for name in presets():
        hardware = load(name)
        assert hardware.name == name
        assert set(hardware.sources) == set(FIGURES)
        assert all(len(source) > 10 for source in hardware.sources.values())


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content()), encoding="utf-8")
    assert load(path).to_json() == content()
    assert parse(load(path).to_json(), "again") == load(path)


def test_figures_become_times() -> None:
    m = parse(content(), "mine").machine(
        expert_bytes=40_000, dense_bytes=100_000, output_bytes=2_000_000, bits_per_weight=4
    )
    assert (m.link_bytes_per_us, m.link_latency_us, m.n_link) == (2000, 10, 4)
    # 20,000 bytes per microsecond. 40,000 bytes are 80,000 weights: 160,000 operations.
    assert m.expert_us == pytest.approx(2)
    assert m.expert_token_us == pytest.approx(160_000 / 0.5e6)
    assert m.dense_us == pytest.approx(5 + DENSE_STEPS * 3)
    assert m.dense_token_us == pytest.approx(400_000 / 0.5e6)
    assert m.wave_us == pytest.approx(WAVE_STEPS * 3)
    assert m.pass_us == pytest.approx(100)


def test_where_operations_take_longer_than_reading_they_count() -> None:
    slow = content()
    slow["figures"]["tflop_per_s"]["value"] = 0.01
    m = parse(slow, "slow").machine(40_000, 0, 0, bits_per_weight=4)
    assert m.expert_us == m.expert_token_us == pytest.approx(16)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "x"}, "is not a machine file"),
        ({"version": 2}, "is of a newer version"),
        ({"version": 0}, "has no version"),
        ({"version": True}, "has no version"),
        ({"version": "1"}, "has no version"),
        ({"name": ""}, "has no name"),
        ({"sentence": 7}, "has no sentence"),
        ({"figures": []}, "has no figures"),
    ],
)
def test_a_bad_file_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(MachineError, match=words):
        parse({**content(), **change}, "x.json")


@pytest.mark.parametrize("key", FIGURES)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "which must be positive"),
        (math.nan, "what is not a number"),
        (math.inf, "what is not a number"),
        pytest.param(10**400, "what is not a number", id="huge"),
        ("3", "what is not a number"),
        (None, "what is not a number"),
        (True, "what is not a number"),
        (1e12, "which is more than"),
    ],
)
def test_a_bad_figure_is_refused(key: str, value: Any, words: str) -> None:
    bad = content()
    bad["figures"][key]["value"] = value
    with pytest.raises(MachineError, match=f"{words}|{key}"):
        parse(bad, "x.json")


def test_missing_and_unknown_figures_are_refused() -> None:
    for key in FIGURES:
        lacking = content()
        del lacking["figures"][key]
        with pytest.raises(MachineError, match=f"lacks the figure {key}"):
            parse(lacking, "x.json")
    unknown = content()
    unknown["figures"]["colour"] = {"value": 1, "source": "x"}
    with pytest.raises(MachineError, match="unknown figure, 'colour'"):
        parse(unknown, "x.json")
    sourceless = content()
    sourceless["figures"]["n_link"] = {"value": 1}
    with pytest.raises(MachineError, match="a value and a source of n_link"):
        parse(sourceless, "x.json")
    for key, value in (("link_gb_per_s", 0), ("n_link", 1.5), ("n_link", 0)):
        bad = content()
        bad["figures"][key]["value"] = value
        with pytest.raises(MachineError):
            parse(bad, "x.json")


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="There is no machine file mine, and the presets are"):
        load("mine")
    with pytest.raises(MachineError, match="could not be read"):
        load(tmp_path)
    for data in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 5000):
        (tmp_path / "x.json").write_bytes(data)
        with pytest.raises(MachineError):
            load(tmp_path / "x.json")


def test_this_machine_can_be_measured(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(16 << 20))
    here = measure(file)
    assert parse(here.to_json(), "here") == here
    assert here.n_link == 4
    (tmp_path / "small").write_bytes(b"x")
    with pytest.raises(MachineError, match="too small"):
        measure(tmp_path / "small")
    with pytest.raises(MachineError, match="could not be measured: "):
        measure(tmp_path / "none")


def test_each_reader_has_a_position_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without preadv(), as on Windows, a read begins at the position of the handle."""
    file = tmp_path / "large"
    file.write_bytes(bytes(16 << 20))
    seen: set[tuple[int, int]] = set()
    all_began = threading.Barrier(N_READER)  # so that no handle is closed and given out again
    seek = os.lseek

    def note(handle: int, offset: int, how: int) -> int:
        if (me := (handle, threading.get_ident())) not in seen:
            seen.add(me)
            all_began.wait(WAIT_S)
        return seek(handle, offset, how)

    monkeypatch.delattr(os, "preadv", raising=False)
    monkeypatch.setattr(os, "lseek", note)
    assert read_s(file, [(0, 16 << 20)]) > 0
    assert len({handle for handle, _ in seen}) == len(seen) == N_READER
    with pytest.raises(OSError):
        read_s(tmp_path / "none", [(0, 1)])
