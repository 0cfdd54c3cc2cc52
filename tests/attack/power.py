"""Losses of power: what was acknowledged is there afterwards, and nothing damaged is accepted.

faults.c records what a run changes below its folder. From the record this module makes what a loss
of power may leave on a drive, by no more than POSIX promises, and the program goes on with that:

- Data that was not synced is lost, kept, or kept in part by blocks. A file may have its new size
  without its data; then it has zeros.
- A name (create, rename, link, delete, new folder) is on the drive once its folder is synced. Of
  the others, those before some moment are kept.

A run is recorded once and judged after many losses of power:

    PYTHONPATH=tests:. python -m attack.power [--states 2000] [--only SCENARIO] [--seed 1]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from attack import ROOT
from attack.area import Finding, build_faults, in_child
from attack.scenarios import (
    ANSWERS,
    CHATS,
    DOWNLOAD,
    NEW_CHATS,
    NO_SUM,
    PACK,
    SETTINGS,
    STATES,
    STRIPES,
    TRACE,
    Scenario,
    perform,
    prepare_hub,
)

__all__ = ["SCENARIOS", "attack", "prepare_hub"]

SCENARIOS = (
    CHATS, NEW_CHATS, SETTINGS, STATES, ANSWERS, DOWNLOAD, NO_SUM, PACK, STRIPES, TRACE
)  # fmt: skip
N_STATE = 20
"""Losses of power in one recorded run."""
_RECORD = struct.Struct("<cxHHxxQqQ")  # as struct record of faults.c
_BLOCKS = (512, 4096)
_PATIENCE_S = 300.0
_LONG_AGO_S = 1_000_000_000.0
_OWN = ("acks", "said", "journal")


@dataclass
class _File:
    """The content of a file at the begin of the record, and its changes until a moment.

    changes: (offset, data), or (size, None). n_synced: those that are on the drive.
    """

    content: bytes = b""
    is_folder: bool = False
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    n_synced: int = 0

    def after_crash(self, chance: random.Random) -> bytes:
        """Return a content that a loss of power may leave."""
        data = bytearray(self.content)
        for change in self.changes[: self.n_synced]:
            _apply(data, change)
        pending = self.changes[self.n_synced :]
        n_sized = chance.choice((0, len(pending), chance.randint(0, len(pending))))
        share = chance.choice((0.0, 1.0, 0.5, 0.9))  # of the blocks that are kept
        block = chance.choice(_BLOCKS)
        for number, (offset, piece) in enumerate(pending):
            is_sized = number < n_sized
            if piece is None:
                if not is_sized:
                    break  # later data may belong behind this change of size
                _apply(data, (offset, None))
                continue
            end = offset + len(piece)
            if is_sized and end > len(data):
                data += bytes(end - len(data))
            for begin in range(offset - offset % block, min(end, len(data)), block):
                if chance.random() < share:
                    first, last = max(begin, offset), min(begin + block, end, len(data))
                    data[first:last] = piece[first - offset : last - offset]
        return bytes(data)


def _apply(data: bytearray, change: tuple[int, bytes | None]) -> None:
    offset, piece = change
    if piece is None:
        del data[offset:]
        data += bytes(offset - len(data))
        return
    data += bytes(max(0, offset - len(data)))
    data[offset : offset + len(piece)] = piece


@dataclass(frozen=True)
class _Change:
    """A record. file: for a name, what it is or was the name of."""

    kind: str
    name: str
    other: str
    file: int
    offset: int
    data: bytes


@dataclass
class _Name:
    """A change of names. Of a rename, `gone` is the name that goes."""

    name: str
    file: _File | None
    gone: str = ""
    is_synced: bool = False


class Record:
    """The record of one run. before: the folder when it began."""

    def __init__(self, folder: Path, before: dict[str, bytes | None], journal: Path) -> None:
        self._folder, self._before = str(folder), before
        self._changes = list(_read(journal.read_bytes()))

    def moment(self, chance: random.Random) -> int:
        """Return the number of changes before a loss of power, often just after acknowledging."""
        said = [n for n, change in enumerate(self._changes, 1) if change.kind == "y"]
        any_moment = chance.randint(0, len(self._changes))
        return chance.choice(said) if said and chance.random() < 0.5 else any_moment

    def after_crash(
        self, moment: int, chance: random.Random
    ) -> tuple[dict[str, bytes | None], list[str]]:
        """Return what may be on the drive if power fails before the change of this number.

        That is contents by path (None: a folder), and what had been acknowledged.
        """
        live = {
            name: _File(data or b"", is_folder=data is None) for name, data in self._before.items()
        }
        drive, numbers = dict(live), dict[int, _File]()
        names, said = list[_Name](), list[str]()
        for change in self._changes[:moment]:
            if change.kind == "y":
                said += change.data.decode().splitlines()
            elif change.kind == "f":
                for each in names:
                    parents = {os.path.dirname(name) for name in (each.name, each.gone) if name}
                    each.is_synced |= change.name in parents
            elif change.kind in "rlum":
                names.append(self._rename(live, change))
            else:
                self._write(live, numbers, names, change)
        pending = sum(not each.is_synced for each in names)
        n_kept = chance.choice((0, pending, chance.randint(0, pending)))
        for each in names:
            if not each.is_synced:
                n_kept -= 1
                if n_kept < 0:
                    continue
            drive.pop(each.gone, None)
            drive.pop(each.name, None)
            if each.file is not None:
                drive[each.name] = each.file
        found: dict[str, bytes | None] = {}
        for name, file in sorted(drive.items()):  # a folder comes before what is in it
            parent = os.path.dirname(name)
            if parent == self._folder or found.get(parent, b"") is None:
                found[name] = None if file.is_folder else file.after_crash(chance)
        return found, said

    @staticmethod
    def _rename(live: dict[str, _File], change: _Change) -> _Name:
        if change.kind == "m":
            live[change.name] = _File(is_folder=True)
            return _Name(change.name, live[change.name])
        if change.kind == "u":
            live.pop(change.name, None)
            return _Name(change.name, None)
        live[change.other] = live[change.name]
        if change.kind == "l":
            return _Name(change.other, live[change.other])
        for name in [name for name in live if name.startswith(change.name + "/")]:
            live[change.other + name.removeprefix(change.name)] = live.pop(name)
        return _Name(change.other, live.pop(change.name), change.name)

    @staticmethod
    def _write(
        live: dict[str, _File], numbers: dict[int, _File], names: list[_Name], change: _Change
    ) -> None:
        if change.kind == "o":
            if change.name not in live:
                live[change.name] = _File()
                names.append(_Name(change.name, live[change.name]))
            numbers[change.file] = live[change.name]
            if change.offset:
                numbers[change.file].changes.append((0, None))
            return
        file = numbers[change.file] if change.file in numbers else live[change.name]
        if change.kind == "s":
            file.n_synced = len(file.changes)
        elif change.kind == "w":
            file.changes.append((change.offset, change.data))
        elif change.kind == "t":
            file.changes.append((change.offset, None))
        else:  # room is reserved: the size at least
            whole = bytearray(file.content)
            for each in file.changes:
                _apply(whole, each)
            if change.offset > len(whole):
                file.changes.append((change.offset, None))


def _read(journal: bytes) -> Iterator[_Change]:
    place = 0
    while place < len(journal):
        kind, n_name, n_other, file, offset, n_data = _RECORD.unpack_from(journal, place)
        place += _RECORD.size
        name = os.fsdecode(journal[place : place + n_name])
        place += n_name
        other = os.fsdecode(journal[place : place + n_other])
        place += n_other
        has_data = kind in b"wy"
        data = journal[place : place + n_data] if has_data else b""
        place += len(data)
        if os.path.basename(name) not in _OWN or kind == b"y":
            yield _Change(kind.decode(), name.removesuffix(" (deleted)"), other, file, offset, data)


def record(scenario: Scenario, folder: Path, chance: random.Random, journal: Path) -> Record:
    """Let a scenario act in a child in an empty folder. Return the record."""
    scenario.prepare(folder)
    before = {str(path): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}
    shim = ctypes.CDLL(None)

    def arm() -> None:
        shim.attack_journal(os.fsencode(folder), os.fsencode(journal))

    end = in_child(lambda: perform(scenario, folder, chance, arm), folder, _PATIENCE_S)
    if (end.kind, end.value) != ("ended", 0):
        raise Finding(f"{scenario.name} was not recorded: {end}")
    return Record(folder, before, journal)


def put_back(folder: Path, found: dict[str, bytes | None]) -> None:
    """Replace what is in a folder. All files are older than the system's start."""
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in found.items():
        path = Path(name)
        if data is None:
            path.mkdir()
        else:
            path.write_bytes(data)
            os.utime(path, (_LONG_AGO_S, _LONG_AGO_S))


def attack(seed: int, folder: Path, n_state: int = N_STATE) -> str:
    """Record a run, and judge what losses of power may leave of it."""
    scenario = SCENARIOS[seed % len(SCENARIOS)]
    for words in judged(scenario, seed, folder, n_state):
        raise Finding(words)
    return f"{scenario.name}: {n_state} losses of power"


def judged(scenario: Scenario, seed: int, folder: Path, n_state: int) -> Iterator[str]:
    """Yield a sentence for each loss of power after which the scenario's promise is broken."""
    chance = random.Random(f"power {seed}")
    inside = folder / "drive"
    inside.mkdir()
    found = record(scenario, inside, chance, folder / "journal")
    for number in range(n_state):
        moment = found.moment(chance)
        state, said = found.after_crash(moment, chance)
        put_back(inside, state)
        try:
            scenario.judge(inside, said)
        except Exception as error:
            what = f"{scenario.name}, power {seed}, loss {number} before change {moment}"
            yield f"{what}: {error!r}"


def main() -> None:
    """Print the findings of each scenario as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=2000, help="in all")
    parser.add_argument("--only", choices=[each.name for each in SCENARIOS])
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--library", type=Path, default=ROOT / "build" / "attack" / "faults.so")
    args = parser.parse_args()
    if not hasattr(ctypes.CDLL(None), "attack_journal"):
        os.environ["LD_PRELOAD"] = build_faults(args.library)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "attack.power", *sys.argv[1:]])
    wanted = [each for each in SCENARIOS if args.only in (None, each.name)]
    told = {}
    with tempfile.TemporaryDirectory(prefix="power-") as name:
        prepare_hub(Path(name))
        for scenario in wanted:
            left, seed, words = -(-args.states // len(wanted)), args.seed, list[str]()
            n_done = 0
            while n_done < left:
                case = Path(name, f"{scenario.name}-{seed}")
                case.mkdir()
                n_state = min(N_STATE, left - n_done)
                words += judged(scenario, seed, case, n_state)
                shutil.rmtree(case)
                n_done, seed = n_done + n_state, seed + 1
            told[scenario.name] = {"states": n_done, "found": words}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
