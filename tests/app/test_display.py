"""Without a display the application ends with a sentence, not a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import WAIT_S

from app import display
from backend import __version__

ROOT = Path(__file__).resolve().parents[2]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can lack a display")


def run_app(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    environment.pop("QT_QPA_PLATFORM", None)
    return subprocess.run(
        [sys.executable, "-m", "app", *words], cwd=ROOT, env=environment | changes, timeout=WAIT_S,
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


@linux_only
def test_on_wayland_alone_its_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.setattr(display, "QT_LIBRARIES", {})
    monkeypatch.setattr(display, "WAYLAND_LIBRARIES", {"libno.so.7": "libno7"})
    sentence = display.why_no_window()
    assert sentence is not None and "libno7" in sentence and "xcb" not in sentence
    monkeypatch.setenv("DISPLAY", ":4711")  # Qt goes on with X11, which is asked for next
    monkeypatch.setattr(display, "XCB_LIBRARIES", {"libnoxcb.so.1": "libnoxcb1"})
    sentence = display.why_no_window()
    assert sentence is not None and "libnoxcb1" in sentence and "libno7" not in sentence


@linux_only
@pytest.mark.parametrize("platform", ["WAYLAND_DISPLAY", "DISPLAY"])
def test_missing_layouts_and_fonts_are_named(platform: str, tmp_path: Path) -> None:
    """Qt would abort without layouts, and draw boxes without fonts."""
    (tmp_path / "fonts.conf").write_text("<fontconfig></fontconfig>")
    result = run_app(
        FONTCONFIG_FILE=str(tmp_path / "fonts.conf"), XKB_CONFIG_ROOT=str(tmp_path),
        **{platform: "wayland-4711"},
    )  # fmt: skip
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "xkb-data" in result.stderr and "fonts-dejavu-core" in result.stderr


@linux_only
def test_a_session_that_has_ended_is_named(tmp_path: Path) -> None:
    """A terminal multiplexer keeps WAYLAND_DISPLAY of a session that is over. Qt would abort."""
    result = run_app(WAYLAND_DISPLAY="wayland-4711", XDG_RUNTIME_DIR=str(tmp_path))
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "wayland-4711 cannot be reached" in result.stderr or "apt install" in result.stderr


@pytest.mark.parametrize(
    ("asked", "used"),
    [("wayland", "wayland;xcb"), ("xcb", "xcb;wayland"), ("wayland-egl", "wayland-egl;xcb"),
     ("xcb:font=1", "xcb:font=1;wayland"), ("wayland;xcb", "wayland;xcb"),
     ("offscreen", "offscreen"), ("", None)],
)  # fmt: skip
def test_a_platform_that_is_not_running_leaves_the_other(asked: str, used: str | None) -> None:
    environment = {"QT_QPA_PLATFORM": asked} if asked else {}
    display.admit_both(environment)
    assert environment.get("QT_QPA_PLATFORM") == used


def test_the_window_explains_its_command_line() -> None:
    """No window opens, and no display is needed."""
    shown = run_app("--help")
    assert shown.returncode == 0 and "MODEL.gguf" in shown.stdout
    assert run_app("--version").stdout == f"outrider {__version__}\n"
    wrong = run_app("--no-such-option")
    assert wrong.returncode == 2 and "--no-such-option" in wrong.stderr


def test_here_a_window_can_be_opened() -> None:
    assert display.why_no_window() is None
