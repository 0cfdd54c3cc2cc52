"""The way to read a drive: measured once, kept, and measured again if the kept file is invalid."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import DATA_HOME

from backend.machines import drive, threads
from backend.machines.drive import Drive, choose, drive_of
from backend.system.processor import OtherPrograms

MIB = 1 << 20
BUSY = drive.is_busy


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a sparse file that is large enough to measure."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path / "data"))
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    return path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that gets, for each measurement, whether it used the kernel's queue."""
    calls: list[bool] = []

    def measure(path: Path, *, ring: bool) -> drive.Speeds:
        calls.append(ring)
        return {(MIB, 2): 1e9, (MIB, 4): 2e9}

    monkeypatch.setattr(drive, "measure", measure)
    monkeypatch.setattr(drive, "is_busy", lambda: False)
    return calls


def test_the_least_that_is_nearly_as_good_as_the_most_is_chosen() -> None:
    speeds = {(s, n): s / (s + 2**18) * n / (n + 0.1) for s in drive.READ_BYTES for n in (1, 2, 4)}
    assert choose(speeds) == Drive(2, MIB, speeds[MIB, 2])
    same = dict.fromkeys(speeds, 1e9)
    assert choose(same) == Drive(1, drive.READ_BYTES[0], 1e9)


def test_a_slower_moment_does_not_decide() -> None:
    speeds = {(s, n): 1e9 * min(n, 4) for s in drive.READ_BYTES for n in drive.N_READ}
    speeds[MIB, 4] = 3.4e9
    assert choose(speeds).n_read == 4


def test_a_drive_is_measured_once(large: Path, measured: list[bool]) -> None:
    expected = Drive(4, MIB, 2e9)
    assert [drive_of(large, ring=r) for r in (True, True, False, False)] == [expected] * 4
    assert measured == [True, False]


@pytest.mark.parametrize("kept", ["", "[", "[]", '{"x": 1}'])
def test_what_was_kept_and_makes_no_sense(large: Path, measured: list[bool], kept: str) -> None:
    drive_of(large, ring=True)
    path = next(large.parent.rglob("drives.json"))
    path.write_text(kept or path.read_text().replace('"n_read": 4', '"n_read": 4000'))
    assert drive_of(large, ring=True) == Drive(4, MIB, 2e9)
    assert measured == [True, True]


def test_small_files_tell_nothing(large: Path, measured: list[bool]) -> None:
    small = large.with_name("small")
    small.write_bytes(bytes(MIB))
    assert drive_of(small, ring=True) == drive_of(small.with_name("none"), ring=True) == Drive()
    assert measured == []


def test_a_busy_machine_tells_nothing(
    large: Path, measured: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Windows has no such function.
    monkeypatch.setattr("os.getloadavg", lambda: (1e6, 0.0, 0.0), raising=False)
    monkeypatch.setattr(drive, "is_busy", BUSY)
    assert drive_of(large, ring=True) == Drive() and measured == []
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    assert drive_of(large, ring=True) == Drive(4, MIB, 2e9)


def test_reads_are_measured(large: Path) -> None:
    speeds = drive.measure(large, (4096, MIB), (1, 3), ring=True)
    assert len(speeds) == 4 and min(speeds.values()) > 0


def test_the_fewest_threads_that_are_nearly_as_fast() -> None:
    assert threads.choose({1: 200.0, 2: 100.0, 3: 98.0}) == 2
    assert threads.choose({1: 100.0, 2: 300.0}) == 1


def test_threads_are_counted_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(path: Path, how: Drive, n_threads: range, *, ring: bool) -> dict[int, float]:
        asked.append(list(n_threads))
        return {4: 150.0, 3: 100.0, 2: 180.0}

    monkeypatch.setattr(threads, "measure", measure)
    monkeypatch.setattr(threads, "is_busy", lambda: False)
    monkeypatch.setattr(threads, "physical_cores", lambda: 4)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    shares = iter([None, 0.1, None, 0.01])  # 0.8 processors, then 0.08
    monkeypatch.setattr(OtherPrograms, "share", lambda _, pids: next(shares))
    # Others slow what is measured.
    assert threads.compute_threads(large, Drive(), ring=True) == 4
    asked.clear()
    assert [threads.compute_threads(large, Drive(), ring=True) for _ in range(2)] == [3, 3]
    assert asked == [[4, 3, 2]]
    monkeypatch.setattr(threads, "physical_cores", lambda: 1)
    assert threads.compute_threads(large, Drive(), ring=True) == 1
    monkeypatch.setattr(threads, "physical_cores", lambda: 2)
    monkeypatch.setattr(threads, "is_busy", lambda: True)
    assert threads.compute_threads(large, Drive(), ring=True) == 2 and len(asked) == 1


def test_a_small_model_has_no_work_for_many_threads() -> None:
    assert [threads.useful_threads(n << 20, 6) for n in (0, 4, 15, 16, 40, 4000)] == [
        1,
        1,
        1,
        2,
        5,
        6,
    ]


def test_threads_can_be_measured(large: Path) -> None:
    times = threads.measure(large, Drive(), range(2, 0, -1), ring=True)
    assert set(times) == {1, 2} and min(times.values()) > 0
