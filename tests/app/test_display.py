"""Without a display the application ends with a sentence, not a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import WAIT_S

from app import display

ROOT = Path(__file__).resolve().parents[2]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can lack a display")


def run_app(**changes: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    environment.pop("QT_QPA_PLATFORM", None)
    return subprocess.run(
        [sys.executable, "-m", "app"], cwd=ROOT, env=environment | changes, timeout=WAIT_S,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@linux_only
def test_without_a_display_it_says_so() -> None:
    result = run_app()
    assert result.returncode == 1
    assert result.stderr == "There is no display to open a window on.\n"


@linux_only
def test_a_display_that_is_not_there_is_named() -> None:
    result = run_app(DISPLAY=":4711")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert ":4711 cannot be reached" in result.stderr or "apt install" in result.stderr


@linux_only
def test_missing_libraries_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "QT_LIBRARIES", {"libc.so.6": "libc6", "libno.so.7": "libno7"})
    sentence = display.why_no_window()
    assert sentence is not None and sentence.endswith("apt install libno7")
    assert "libno.so.7" in sentence and "libc.so.6" not in sentence


def test_here_a_window_can_be_opened() -> None:
    assert display.why_no_window() is None
