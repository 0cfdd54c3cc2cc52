"""Counts the tokens and times of a server, for /metrics.

Its figures are those of llama.cpp's server.
"""

from __future__ import annotations

import threading
import time

from backend.server.ask import Timings


class Figures:
    """Sums over all answers. Any thread may add."""

    def __init__(self) -> None:
        self.began_s = int(time.time())
        self._lock = threading.Lock()
        self._n_read = self._n_cached = self._n_token = self._n_step = 0
        self._read_s = self._wrote_s = 0.0
        self._n_pass = self._n_busy = self._n_most = 0
        self._n_draft = self._n_drafted = self._n_accepted = 0
        self._last = (0, 0.0, 0, 0.0)  # of the last text: read, its time, steps, their time

    def add(self, timings: Timings, n_context: int) -> None:
        """Add an answer. n_context: the tokens of its prompt and of its text."""
        with self._lock:
            self._n_read += timings.n_read
            self._n_cached += timings.n_cached
            self._read_s += timings.read_s
            self._n_token += timings.n_token
            self._n_step += max(timings.n_token - 1, 0)
            self._wrote_s += timings.wrote_s
            self._n_most = max(self._n_most, n_context)

    def count_pass(self, n_running: int) -> None:
        """Count a pass with tokens of some answers."""
        with self._lock:
            self._n_pass += 1
            self._n_busy += n_running

    def add_drafts(self, n_draft: int, n_drafted: int, n_accepted: int) -> None:
        """Add the passes of an answer with guesses, the tokens guessed, and those accepted."""
        with self._lock:
            self._n_draft += n_draft
            self._n_drafted += n_drafted
            self._n_accepted += n_accepted

    def text(self, n_present: int, n_waiting: int) -> str:
        """Return the figures in Prometheus' form; speeds are those since the last call."""
        with self._lock:
            now = (self._n_read, self._read_s, self._n_step, self._wrote_s)
            n_read, read_s, n_step, wrote_s = (
                new - old for new, old in zip(now, self._last, strict=True)
            )
            self._last = now
            counters = [
                ("prompt_tokens_total", "Prompt tokens that were computed", self._n_read),
                ("prompt_tokens_cached_total", "Prompt tokens of the context", self._n_cached),
                ("prompt_seconds_total", "Time of computing prompts", self._read_s),
                ("tokens_predicted_total", "Tokens of answers", self._n_token),
                ("tokens_predicted_seconds_total", "Time of computing answers", self._wrote_s),
                ("n_decode_total", "Passes with tokens of answers", self._n_pass),
                ("n_tokens_max", "Most tokens of a prompt and its answer", self._n_most),
                ("spec_decode_num_draft_tokens_total", "Tokens that were guessed", self._n_drafted),
                (
                    "spec_decode_num_accepted_tokens_total",
                    "Guessed tokens that were right",
                    self._n_accepted,
                ),
                ("spec_decode_num_drafts_total", "Passes with guesses", self._n_draft),
            ]
            gauges = [
                ("prompt_tokens_seconds", "Prompt tokens per second", _rate(n_read, read_s)),
                ("predicted_tokens_seconds", "Tokens per second", _rate(n_step, wrote_s)),
                ("requests_processing", "Requests that are answered", n_present),
                ("requests_deferred", "Requests that wait", n_waiting),
                (
                    "n_busy_slots_per_decode",
                    "Answers in a pass, in the mean",
                    _rate(self._n_busy, self._n_pass),
                ),
            ]
        return "".join(
            f"# HELP llamacpp:{name} {words}.\n# TYPE llamacpp:{name} {kind}\n"
            f"llamacpp:{name} {value:.12g}\n"
            for kind, metrics in (("counter", counters), ("gauge", gauges))
            for name, words, value in metrics
        )


def _rate(n: float, by: float) -> float:
    return n / by if by else 0.0
