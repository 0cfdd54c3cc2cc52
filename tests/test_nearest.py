"""`make fast`: which tests are near to a change, and when they stop."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import fast
import pytest


def nearest(*changed: str) -> list[str]:
    """Return the names of the nearest test files."""
    found = fast.near(changed)
    return [path.relative_to(fast.ROOT / "tests").as_posix() for n, path in found]


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("app/store/chats.py", "app/test_store.py"),
        ("app/chat/tool_card.py", "app/test_tool_calls.py"),
        ("backend/server/guard.py", "backend/test_server_guard.py"),
        ("backend/engine/scheduler.py", "engine/test_scheduler.py"),
        ("backend/engine/precedence.py", "engine/test_precedence.py"),
        ("backend/native/core/evict/lru.cc", "core/test_evict.py"),
        ("backend/native/chat/format.cc", "backend/test_chat_format.py"),
        ("app/text/translations/de.ts", "app/test_language.py"),
        ("tests/tool_server.py", "backend/test_tool_host.py"),
        ("tests/sim/test_charts.py", "sim/test_charts.py"),
    ],
)
def test_the_tests_of_what_changed_come_first(changed: str, first: str) -> None:
    assert first in nearest(changed)[:5]


def test_a_process_that_is_started_counts_as_imported() -> None:
    """No test imports the worker's entry; the fake worker and others start it by its name."""
    assert "backend/test_worker.py" in nearest("backend/worker/main.py")


def test_a_change_of_a_document_needs_no_test_of_the_window() -> None:
    assert not [name for name in nearest("docs/papers.md") if name.startswith("app/")]


def test_no_test_begins_when_the_minute_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "test_two.py").write_text("def test_a(): pass\ndef test_b(): assert False\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "fast", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(fast.ROOT / "tests"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "-n", "0", tmp_path], cwd=tmp_path, capture_output=True, text=True,
        env={**environment, fast.UNTIL: str(time.time() - 1)},
    )  # fmt: skip
    assert (done.returncode, done.stdout.count(f"{fast.NO_TIME}: ")) == (0, 2)
    monkeypatch.setenv(fast.UNTIL, str(time.time() + 1000))
    fast.pytest_runtest_setup(request.node)
