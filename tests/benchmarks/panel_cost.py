"""Measure the cost of the engine panel: answers with and without it, in turn.

    python tests/benchmarks/panel_cost.py [--rounds 6] [--threads 2] [--model MODEL] [--tokens N]

The window (which paints into memory) and the real worker share this machine, as on a user's. Each
round is on, off, off, on, with the same question and seed, so that all four answers have the same
tokens: first of usual length, then filling the context. Print the ratio of decoding speeds, and the
share of a core that each of the two processes used.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app.session.worker_link import EngineLink
from app.state.engine_choice import EngineChoice
from app.state.engine_state import State
from app.state.preset import Preset
from app.window.main_window import MainWindow
from backend.protocol.client import worker_command
from backend.system.paths import embedded_model

QUESTION = "Tell me a long story about a soldier and the sea."
KINDS = {
    "usual": {"temperature": 0.7, "seed": 3},
    # So high a temperature that only the end of the context ends it.
    "long": {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 3},
}
CONTEXT = 1024


@dataclass(frozen=True)
class Run:
    """One answer. CPU times are seconds of a core for the whole answer."""

    n_token: int
    tokens_per_s: float
    wall_s: float
    window_s: float
    worker_s: float


def main() -> int:
    """Run all rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.25)
    parser.add_argument("--tokens", type=int, help="longest answer, in place of the two lengths")
    parser.add_argument("--model", type=Path, default=embedded_model())
    arguments = parser.parse_args()
    app = QApplication([])
    app.setStyle("Fusion")
    with tempfile.TemporaryDirectory() as folder:
        window = MainWindow(EngineLink(worker_command()), Path(folder) / "settings.json")
        window.library.library.may_measure = lambda: False
        window.resize(1440, 900)
        window.show()
        window.engine.asked = EngineChoice(
            automatic=False, cache_rate=arguments.rate, method="promoe", context_length=CONTEXT,
            n_thread=arguments.threads,
        )  # fmt: skip
        window.open_model(arguments.model)
        wait_for(lambda: window.engine.state is State.IDLE)
        kinds = {name: Preset(sampling=sampling) for name, sampling in KINDS.items()}
        if n := arguments.tokens:
            kinds = {"limited": Preset(sampling={"temperature": 0.0}, max_tokens=n)}
        for name, preset in kinds.items():
            answer(window, preset, shown=True)  # fills the cache
            rounds = [
                [answer(window, preset, shown=shown) for shown in (True, False, False, True)]
                for _ in range(arguments.rounds)
            ]
            report(name, rounds)
        window.close()
    return 0


def answer(window: MainWindow, preset: Preset, *, shown: bool) -> Run:
    """Ask once, with or without the panel."""
    window.panel.setVisible(shown)
    window.session.new_chat()
    window.session.conversation.preset = preset
    pause(1500)  # the advice for the answer before is finished
    worker = psutil.Process(window.link.pid)
    before = worker.cpu_times(), time.process_time(), time.perf_counter()
    window.session.send(QUESTION)
    wait_for(lambda: window.engine.state is State.ANSWERING)
    wait_for(lambda: window.engine.state is State.IDLE)
    after = worker.cpu_times(), time.process_time(), time.perf_counter()
    last = window.session.conversation.last
    assert last is not None and last.statistics is not None
    spent = [cpu.user + cpu.system for cpu in (before[0], after[0])]
    return Run(
        last.statistics.n_token, last.statistics.tokens_per_s, after[2] - before[2],
        after[1] - before[1], spent[1] - spent[0],
    )  # fmt: skip


def report(name: str, rounds: list[list[Run]]) -> None:
    """Print the cost of the panel, by round and by process."""
    changes = [
        (math.log(a.tokens_per_s * d.tokens_per_s) - math.log(b.tokens_per_s * c.tokens_per_s)) / 2
        for a, b, c, d in rounds
    ]
    shown = [run for a, _, _, d in rounds for run in (a, d)]
    hidden = [run for _, b, c, _ in rounds for run in (b, c)]
    middle = statistics.median(changes)
    spread = statistics.stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else 0.0
    print(f"{name}: {shown[0].n_token} tokens")
    for what, runs in (("with the panel", shown), ("without", hidden)):
        speed = statistics.median(run.tokens_per_s for run in runs)
        window = statistics.median(run.window_s / run.wall_s for run in runs)
        worker = statistics.median(run.worker_s / run.wall_s for run in runs)
        print(
            f"  {what:15} {speed:7.1f} token/s, window {100 * window:5.1f} % of a core, "
            f"worker {100 * worker:5.1f} %"
        )
    print(
        f"  the panel costs {-100 * math.expm1(middle):.1f} % of the speed "
        f"(+- {100 * spread:.1f}, {len(rounds)} rounds)"
    )


def wait_for(condition: object, limit_s: float = 300.0) -> None:
    """Run the event loop until a condition is met."""
    end_s = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end_s:
            raise SystemExit("The window did not get so far.")
        pause(5)


def pause(time_ms: int) -> None:
    """Run the event loop for a while."""
    loop = QEventLoop()
    QTimer.singleShot(time_ms, loop.quit)
    loop.exec()


if __name__ == "__main__":
    sys.exit(main())
