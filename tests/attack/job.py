"""A process of the attack: runs the cases that its standard input asks for."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from attack.area import build_faults
from attack.areas import AREAS

BLOCK = 10_000
"""Seeds that a job may use of an area before it asks for more."""


def run(
    area_name: str, first: int, seconds: float, folder: Path, seed_file: int
) -> dict[str, object]:
    """Run cases for some time. Return the next seed, the ends and the findings by seed."""
    area = AREAS[area_name]
    ends: Counter[str] = Counter()
    findings: dict[str, str] = {}
    area.prepare(_common(folder))
    seed, end_s = first, time.monotonic() + seconds
    while seed == first or (time.monotonic() < end_s and seed < first + BLOCK):
        os.pwrite(seed_file, f"{seed:<20}".encode(), 0)
        faulthandler.dump_traceback_later(area.limit_s, exit=True)
        case = folder / "case"
        shutil.rmtree(case, ignore_errors=True)  # of a process that died
        case.mkdir()
        try:
            ends[area.attack(seed, case)] += 1
        except Exception:
            findings[str(seed)] = traceback.format_exc()
        finally:
            faulthandler.cancel_dump_traceback_later()
            shutil.rmtree(case, ignore_errors=True)
        seed += 1
    return {"next": seed, "ends": ends, "findings": findings}


def _common(folder: Path) -> Path:
    path = folder / "common"
    path.mkdir(exist_ok=True)
    return path


def replay(area_name: str, seed: int, shim: Path) -> int:
    """Run one case here, in a process with faults.c, and show how it ends."""
    if str(shim) not in os.environ.get("LD_PRELOAD", ""):
        os.environ["LD_PRELOAD"] = build_faults(shim)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "attack", *sys.argv[1:]])
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        folder = Path(name)
        AREAS[area_name].prepare(_common(folder))
        (folder / "case").mkdir()
        print(AREAS[area_name].attack(seed, folder / "case"))
    return 0


def main() -> None:
    """Read lines "AREA FIRST SECONDS" and answer each with a line of JSON."""
    folder = Path(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what cases print goes to the errors
    faulthandler.enable()
    seed_file = os.open(folder / "seed", os.O_RDWR | os.O_CREAT, 0o600)
    for line in sys.stdin:
        area, first, seconds = line.split()
        found = run(area, int(first), float(seconds), folder, seed_file)
        out.write(json.dumps(found) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
