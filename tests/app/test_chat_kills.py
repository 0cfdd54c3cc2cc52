"""A killed window loses nothing that it had acknowledged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "chat_kills.py"


@pytest.mark.night
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is needed")
def test_nothing_acknowledged_is_lost_when_the_window_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--rounds", "4", "--seed", "7"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "4 rounds" in done.stdout and done.stdout.rstrip().endswith(" 0 lost or wrong")
    assert int(done.stdout.split(" rounds, ")[1].split(" ")[0].replace(",", "")) > 0
