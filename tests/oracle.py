"""The oracle of tests: stock llama.cpp, in another process, computes what engines have logged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import pytest

from backend.llama.batch_log import SUFFIX, VARIABLE, line_of, read

MODULE = "backend.evaluation.replay"


def replayed(*logs: Path) -> list[dict[str, Any]]:
    """Return the fields of Replayed for each log."""
    done = fork_server.run(["-m", MODULE, *map(str, logs)], (MODULE,), os.environ, 300)
    assert len(done.stdout.splitlines()) == len(logs), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def spoil(log: Path, change: Callable[[list[Any]], Any]) -> None:
    """Change the entries of a log. change: returns what stands in the place of one; []: nothing."""
    total, lines = 0, []
    for entry in [change(entry) for entry in read(log)]:
        if entry:
            line, total = line_of(entry, total)
            lines.append(line)
    log.write_text("".join(lines))


class Oracle:
    """Has every engine that is opened from now on write a log into a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv(VARIABLE, str(folder))

    @property
    def logs(self) -> list[Path]:
        """The logs so far, in the order of their engines."""
        of = self.folder.glob(f"*{SUFFIX}")
        return sorted(of, key=lambda path: int(path.stem.rsplit("-", 1)[1]))

    def difference(self) -> str:
        """Return the first sentence on what differs from stock llama.cpp, or ""."""
        found = [r["difference"] or r["obstacle"] for r in replayed(*self.logs)]
        texts = [t["text"] if isinstance(t, dict) else t for t in found if t]
        return str(texts[0]) if texts else ""

    def approve(self) -> dict[str, int]:
        """Require that every log is what stock llama.cpp computes. Return the sums of counts."""
        found = replayed(*self.logs)
        assert found
        for one in found:
            assert not one["difference"] and not one["obstacle"], one
        names = [name for name, value in found[0].items() if isinstance(value, int)]
        return {name: sum(one[name] for one in found) for name in names}
