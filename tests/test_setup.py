"""The set-up behind `make`: what is done is not done again, and what `make run` starts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = """
[build-system]
requires = ["builder", "engine==1"]
[project]
dependencies = ["engine==1"]
[project.optional-dependencies]
dev = ["tester"]
"""


class Checkout:
    """A checkout whose pip writes down what it is asked for."""

    def __init__(self, root: Path, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.calls: list[tuple[str, ...]] = []
        self.module = prepare
        monkeypatch.setattr(prepare, "ROOT", root)
        monkeypatch.setattr(prepare, "VENV", root / ".venv")
        monkeypatch.setattr(prepare, "STAMPS", root / ".venv" / "stamps")
        monkeypatch.setattr(prepare, "_works", lambda _: True)
        monkeypatch.setattr(prepare, "_install_system_packages", lambda **_: None)
        monkeypatch.setattr(prepare, "_pip", lambda *arguments: self.calls.append(arguments))
        self.write("pyproject.toml", PYPROJECT)
        self.write("CMakeLists.txt", "")
        self.write("backend/native/core.cc", "int x;")
        self.write(".venv/pyvenv.cfg", "version = 3.11.2")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def prepare(self, *, with_tests: bool = False) -> list[tuple[str, ...]]:
        """Prepare; returns what pip was asked for."""
        self.calls = []
        self.module.prepare(with_tests=with_tests)
        return self.calls


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "packaging" / "prepare.py")
    assert spec is not None and spec.loader is not None
    prepare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prepare)
    return Checkout(tmp_path, prepare, monkeypatch)


def installs_itself(call: tuple[str, ...]) -> bool:
    return "--editable" in call and "--no-build-isolation" in call


def test_the_second_time_nothing_is_done(checkout: Checkout) -> None:
    dependencies, itself = checkout.prepare()
    assert {"engine==1", "builder"} < set(dependencies)
    assert "tester" not in dependencies
    assert installs_itself(itself)
    assert checkout.prepare() == []


def test_the_tests_add_only_what_they_need(checkout: Checkout) -> None:
    checkout.prepare()
    (dependencies,) = checkout.prepare(with_tests=True)
    assert "tester" in dependencies
    assert checkout.prepare(with_tests=True) == []
    assert checkout.prepare() == []


def test_a_changed_source_builds_only_the_native_part(checkout: Checkout) -> None:
    checkout.prepare()
    checkout.write("backend/native/core.cc", "int y;")
    (call,) = checkout.prepare()
    assert installs_itself(call)
    checkout.write("backend/native/more.h", "")
    assert len(checkout.prepare()) == 1
    assert checkout.prepare() == []


def test_a_changed_dependency_is_installed(checkout: Checkout) -> None:
    checkout.prepare()
    checkout.write("pyproject.toml", PYPROJECT.replace("engine==1", "engine==2"))
    dependencies, itself = checkout.prepare()
    assert "engine==2" in dependencies
    assert installs_itself(itself)


def test_another_python_or_place_begins_anew(checkout: Checkout) -> None:
    checkout.prepare()
    checkout.write(".venv/pyvenv.cfg", "version = 3.12.1")
    assert len(checkout.prepare()) == 2


def test_a_failed_step_is_done_again(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = checkout.module

    def fail(*arguments: str) -> None:
        if installs_itself(arguments):
            raise prepare.SetupError("No.")

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_pip", fail)
        assert prepare.main(["run"]) == 1
    (call,) = checkout.prepare()
    assert installs_itself(call)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can lack a display")
def test_without_a_display_the_terminal_chat_answers() -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    }
    done = subprocess.run(
        [sys.executable, "packaging/launch.py"],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    reason, prompt, answer = done.stdout.split("\n", 2)
    assert "no display" in reason and "terminal" in reason
    assert prompt.startswith("> ")
    assert answer.strip()
