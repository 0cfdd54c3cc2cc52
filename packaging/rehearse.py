"""`make ci`: check the last commit as CI does it, in a fresh clone in a new folder.

The clone has its own HOME and TMPDIR, no display and no standard input. `.ci/run` decides. pip's
downloads are used again. If tests failed, they run five times more in the clone, to say which of
them are unsteady. The exit status is that of `.ci/run` whatever they say then.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
N_AGAIN = 5
LOG = ROOT / "build" / "ci.log"
NOT_OF_CI = {
    "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS",
    "MAKELEVEL", "MFLAGS",
}  # fmt: skip
"""Variables of a person's session and of the make that started this."""


def main() -> int:
    """Rehearse the last commit. Return the exit status of `.ci/run`."""
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        print("What is not committed is not checked.", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="outrider-ci-"))
    try:
        return rehearse(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rehearse(folder: Path) -> int:
    """Clone into a folder, check, and say what failed. Return the exit status of `.ci/run`."""
    clone = folder / "checkout"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, clone], check=True)
    if (shared := ROOT.parent / "shared").is_dir():
        shutil.copytree(shared, folder / "shared", symlinks=True)
    commit = subprocess.check_output(["git", "log", "-1", "--format=%h %s"], cwd=clone, text=True)
    print(f"Checking {commit.strip()} in {clone}; the log is {LOG}", flush=True)
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        status = subprocess.run(
            [".ci/run"], cwd=clone, env=environment(folder), stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip
    lines = LOG.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(line for line in lines if line.startswith("== ") and line.endswith(" failed")))
    failed = failures(clone / ".pytest_cache")
    if status != 0 and failed:
        try_again(clone, folder, sorted(failed))
    elif status != 0:
        print("No test failed. The log ends:", *lines[-15:], sep="\n")
    print(f"The exit status of .ci/run is {status}: {'failed' if status else 'passed'}.")
    return status


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of the clone: an own HOME and TMPDIR, and the downloads of pip."""
    ask = [sys.executable, "-m", "pip", "cache", "dir"]
    cache = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
    kept = {name: value for name, value in os.environ.items() if name not in NOT_OF_CI}
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    kept |= {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "CI": "true"}
    return kept | ({"PIP_CACHE_DIR": cache} if cache else {})


def failures(cache: Path) -> set[str]:
    """Return the tests that failed when pytest ran last with this cache."""
    try:
        return set(json.loads((cache / "v" / "cache" / "lastfailed").read_text("utf-8")))
    except FileNotFoundError:
        return set()


def try_again(clone: Path, folder: Path, tests: list[str]) -> None:
    """Run failed tests N_AGAIN times and say how often each of them failed."""
    print(f"{len(tests)} tests failed. They run {N_AGAIN} times more.", flush=True)
    env = {**environment(folder), "QT_QPA_PLATFORM": "offscreen"}
    n_failed: Counter[str] = Counter()
    for number in range(N_AGAIN):
        cache = folder / f"again-{number}"
        command = [".venv/bin/python", "-m", "pytest", "-q", "-o", f"cache_dir={cache}", *tests]
        with LOG.open("ab") as log:
            subprocess.run(
                command, cwd=clone, env=env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        n_failed.update(failures(cache))
    for test in tests:
        n = n_failed[test]
        kind = "fails always" if n == N_AGAIN else "unsteady, or depends on the tests before it"
        print(f"{test}: failed {n} of {N_AGAIN} times again: {kind}")


if __name__ == "__main__":
    sys.exit(main())
