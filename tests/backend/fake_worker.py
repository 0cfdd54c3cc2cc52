"""A worker around an engine whose faults can be called up: run as a script by the tests.

The last message of a conversation says what the engine does: "count N" makes N tokens,
"forever" makes tokens until it is stopped. After three tokens "hang" computes without end, "crash"
kills the process, "abort" is a failed check, "fail" an EngineError, "odd" an unexpected one.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from backend.worker import main  # noqa: E402


@dataclass
class Piece:
    token_id: int
    text: str


class Facts(SimpleNamespace):
    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class EngineError(RuntimeError):
    pass


EngineError.__module__ = "backend.engine"


class FakeEngine:
    shape = None

    def __init__(self, config: Any) -> None:
        self.model = Facts(name="fake", moe_layers=[1, 2], n_expert=4)
        self.cache = self._cache(config.cache_rate)
        self.finish_reason = ""
        self._stopped = threading.Event()
        self._n_token = 0
        self.closed = False

    def _cache(self, rate: float) -> Facts:
        return Facts(
            asked_rate=rate,
            rate=max(rate, 0.25),
            mode="cached",
            reason="",
            method="fake",
            n_slot=max(1, int(rate * 4)),
            bytes=1 << 20,
        )

    @classmethod
    def open(cls, path: Path, config: Any, progress: Callable[[float, str], bool]) -> "FakeEngine":
        print("a library's print must not disturb the messages", flush=True)
        os.write(1, b"nor must one from native code")
        if path.name == "broken":
            raise EngineError("The file is broken.")
        for step in range(10_000 if path.name == "slow" else 3):
            if not progress(min(1.0, step / 100), "reading"):
                raise EngineError("Loading was aborted.")
            time.sleep(0.001)
        return cls(config)

    def generate(
        self,
        messages: list[dict[str, str]],
        sampling: Any,
        max_tokens: int,
        on_prefill: Any = None,
        on_begin: Any = None,
    ) -> Iterator[Piece]:
        return self.generate_text(messages[-1]["content"], sampling, max_tokens, on_prefill)

    def generate_text(
        self, prompt: str, sampling: Any, max_tokens: int, on_prefill: Any = None
    ) -> Iterator[Piece]:
        self._stopped.clear()
        self._n_token = 0
        word, _, number = prompt.partition(" ")
        on_prefill(1, 2)
        on_prefill(2, 2)
        limit = int(number) if word == "count" else 1 << 60
        while self._n_token < limit:
            if self._stopped.is_set():
                self.finish_reason = "cancelled"
                return
            self._fault(word)
            self._n_token += 1
            yield Piece(self._n_token, f"w{self._n_token} ")
            if word != "count":
                time.sleep(0.001)
        self.finish_reason = "stop"

    def _fault(self, word: str) -> None:
        if self._n_token == 3:
            while word == "hang":
                time.sleep(1)
            if word == "crash":
                time.sleep(0.1)  # the three tokens leave first
                os.kill(os.getpid(), signal.SIGKILL)
            if word == "abort":
                print("ggml.c:12: GGML_ASSERT(a == b) failed", file=sys.stderr, flush=True)
                os.abort()
            if word == "fail":
                raise EngineError("The model's file could not be read any more.")
            if word == "odd":
                raise KeyError("surprise")

    def stop(self) -> None:
        self._stopped.set()

    def set_cache_rate(self, rate: float) -> Facts:
        self.cache = self._cache(rate)
        return self.cache

    def change(self, config: Any) -> Facts:
        return self.set_cache_rate(config.cache_rate)

    def mind_memory(self) -> None:
        pass

    def idle(self) -> None:
        pass

    def prefilled(self) -> tuple[int, int] | None:
        return None

    def statistics(self) -> Facts:
        layers = [{"layer": i, "hits": 3, "late": 1, "misses": 0, "stall_s": 0.1} for i in (1, 2)]
        return Facts(
            n_prompt=2,
            n_reused=0,
            n_token=self._n_token,
            ttft_s=0.25,
            tokens_per_s=10.0,
            hits=6,
            late=2,
            misses=0,
            bytes_read=4096,
            stall_s=0.2,
            compute_s=0.5,
            other_s=0.1,
            peak_rss_bytes=1 << 30,
            layers=layers,
        )

    def watch(self, watch: Any) -> None:
        pass

    def residency(self) -> bytes:
        assert not self.closed
        return bytes(range(8))

    def close(self) -> None:
        self.closed = True


if __name__ == "__main__":
    main(FakeEngine.open)
