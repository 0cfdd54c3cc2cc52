"""`make ci`: the last commit in a fresh clone, and what is said of tests that fail."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
posix = pytest.mark.skipif(os.name == "nt", reason=".ci/run is a script of the shell")

# A set-up as `make test` does it, without its minutes.
CI_RUN = f"""#!/bin/sh
mkdir -p .venv/bin && printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' >.venv/bin/python
chmod +x .venv/bin/python
env > ../seen; test -t 0 && echo terminal >> ../seen
echo '== mypy failed'
.venv/bin/python -m pytest -q
"""
TESTS = """
import os
from pathlib import Path

def test_good(): pass
def test_bad(): assert False
def test_unsteady():
    n_run = Path(os.environ["TMPDIR"]) / "n_run"
    with n_run.open("a") as file: file.write("x")
    assert len(n_run.read_text()) not in (1, 3)
"""


@pytest.fixture
def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return packaging/rehearse.py for a small project."""
    spec = importlib.util.spec_from_file_location("rehearse", ROOT / "packaging" / "rehearse.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    project = tmp_path / "project"
    (project / ".ci").mkdir(parents=True)
    (project / ".ci" / "run").write_text(CI_RUN)
    (project / ".ci" / "run").chmod(0o755)
    (project / "test_all.py").write_text(TESTS)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@e", "-C", str(project)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all of it"]):
        subprocess.run([*git, *words], check=True)
    (project / "test_all.py").write_text("not committed")
    monkeypatch.setattr(made, "ROOT", project)
    monkeypatch.setattr(made, "LOG", tmp_path / "build" / "ci.log")
    return made


@posix
def test_failures_stay_failures_and_their_steadiness_is_said(
    rehearse: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(rehearse, "N_AGAIN", 2)  # each starts pytest
    folder = tmp_path / "clone"
    folder.mkdir()
    assert rehearse.rehearse(folder) == 1
    seen = dict(line.partition("=")[::2] for line in (folder / "seen").read_text().splitlines())
    assert seen["CI"] == "true" and "DISPLAY" not in seen and "terminal" not in seen
    assert (seen["HOME"], seen["TMPDIR"]) == (str(folder / "home"), str(folder / "tmp"))
    said = capsys.readouterr().out
    assert "== mypy failed" in said and "all of it" in said
    assert "test_all.py::test_bad: failed 2 of 2 times again: fails always" in said
    assert "test_all.py::test_unsteady: failed 1 of 2 times again: unsteady" in said
    assert "test_good" not in said and said.endswith("The exit status of .ci/run is 1: failed.\n")


@posix
def test_a_failure_without_a_failed_test_shows_the_log(
    rehearse: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rehearse.ROOT / ".ci" / "run"
    run.write_text("#!/bin/sh\necho no compiler\nexit 3\n")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@e", "-C", str(rehearse.ROOT)]
    subprocess.run([*git, "commit", "-q", "-m", "none", str(run)], check=True)
    assert rehearse.rehearse(tmp_path / "clone") == 3
    assert "no compiler" in capsys.readouterr().out
