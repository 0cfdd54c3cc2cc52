"""Losses of power: nothing acknowledged is lost, and nothing damaged is accepted.

tests/attack/power.py records what the program writes, and makes from it what a loss of power may
leave. It has a command for more of them than this test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
N_STATE = 200

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the recorder needs LD_PRELOAD")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the number of losses of power and the findings, by what was being written."""
    library = tmp_path_factory.mktemp("power") / "faults.so"
    options = ["--states", str(N_STATE), "--library", str(library)]
    done = subprocess.run(
        [sys.executable, "-m", "attack.power", *options],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "written",
    ["chats", "new-chats", "settings", "states", "answers", "download", "no-sum", "pack",
     "stripes", "trace"],
)  # fmt: skip
def test_a_loss_of_power(judged: dict[str, Any], written: str) -> None:
    assert judged[written] == {"states": N_STATE // len(judged), "found": []}
