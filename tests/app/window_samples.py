"""Facts and limits for several tests."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import WAIT_S

from backend.protocol.statistics import Statistics
from backend.protocol.status import CacheFacts, ModelFacts

FAKE_WORKER = [sys.executable, str(Path(__file__).parents[1] / "fake_worker.py")]
WAIT_MS = 1000 * WAIT_S

Model = Callable[..., Path]
Opener = Callable[..., Any]  # opens a window_page.WindowPage

ENDLESS = "Once there was a tin soldier. " * 2000
"""An answer that goes on until it is stopped: with token_s=0.02 for minutes."""


def let_go(path: Path, number: int = 1) -> None:
    """Let answer `number` of a worker go on: with holds=n, answers wait after n tokens."""
    path.with_suffix(f".go{number}").touch()


GIB = 2**30
MODEL = ModelFacts(
    name="m", path="/m.gguf", architecture="qwen3moe", n_layer=48, moe_layers=tuple(range(48)),
    n_expert=128, n_expert_used=8, expert_bytes=2_654_208, expert_bytes_total=48 * 128 * 2_654_208,
    dense_bytes=GIB, file_bytes=17 * GIB, context_length=4096, is_moe=True,
)  # fmt: skip
CACHE = CacheFacts(
    asked_rate=0.25, rate=0.25, min_rate=0.0625, n_slot=32, bytes=48 * 32 * 2_654_208,
    mode="cached", reason="", method="promoe",
)  # fmt: skip
ANSWER = Statistics(
    n_prompt=20, n_token=212, ttft_s=0.8, tokens_per_s=19.4, hits=900, late=30, misses=70,
    bytes_read=1000, stall_s=2.1, compute_s=7.4, other_s=0.5,
)  # fmt: skip
