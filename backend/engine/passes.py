"""The passes that llama.cpp computes: what its context holds of a conversation, what each cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backend import _native
from backend.engine.error import engine_errors
from backend.engine.meter import Meter
from backend.engine.moments import Watch
from backend.gguf.scales import not_finite_sentence
from backend.memory.pressure import PERIOD_S
from backend.protocol.errors import EngineError, UntrustedError

if TYPE_CHECKING:
    from backend.engine.loaded_model import LoadedModel


class Passes:
    """Computes tokens with what is loaded. Use from one thread; stop() and prefilled() from any.

    tokens: whose keys and values the context holds. meter: what the present or the last request
    cost. watch: hears of every pass, if there is one.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.tokens: list[int] = []
        self.meter = Meter(None)
        self.watch: Watch | None = None
        self._loaded = loaded
        self._stop = threading.Event()
        self._minded_s = 0.0
        self._piece = (0, 0, 0)  # tokens of the prompt: before this pass, in it, and all

    def begin(self) -> None:
        """Begin a request: a stop that came before is not for it.

        Raises UntrustedError where the model's files are not those that were loaded.
        """
        self._stop.clear()
        self._loaded.stop_flag.clear()
        with engine_errors():
            self._loaded.llama.files.require_unchanged()
        patch = self._loaded.patch
        if patch is not None:
            patch.resume()
            patch.request_began()
        self.meter = Meter(patch)
        self.end_prefill()

    def stop(self) -> None:
        """End the request in progress within one pass. From any thread."""
        self._stop.set()
        self._loaded.stop_flag.set()
        if (patch := self._loaded.patch) is not None:
            patch.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether the request is to end."""
        return self._stop.is_set()

    def keep_prefix(self, prompt: Sequence[int]) -> int:
        """Keep what the context already knows of the prompt; returns how many tokens that is.

        The last token is always computed again: its logits are needed.
        """
        n = 0
        for old, new in zip(self.tokens, prompt[:-1], strict=False):
            if old != new:
                break
            n += 1
        return n if n == len(self.tokens) > 0 else self.forget_from(n)

    def forget_from(self, n: int) -> int:
        """Drop positions from n on; returns n, or 0 where the model can only forget everything.

        The context may hold positions that are not in `tokens`: those of a pass that was stopped.
        """
        n = n if self._loaded.context.forget_from(n) else 0
        del self.tokens[n:]
        return n

    def prefill(self, prompt: Sequence[int], on_prefill: Callable[[int, int], None] | None) -> bool:
        """Compute the rest of the prompt; False when stopped. Raises EngineError."""
        n_step = self._loaded.context.n_ubatch
        last_s = time.perf_counter()
        while len(self.tokens) < len(prompt):
            done = len(self.tokens)
            if on_prefill is not None:
                on_prefill(done, len(prompt))
            piece = prompt[done : done + n_step]
            self._piece = done, len(piece), len(prompt)
            if self.is_stopped or not self.compute(piece, last_s):
                return False
            last_s = time.perf_counter()
        self.end_prefill()
        if on_prefill is not None:
            on_prefill(len(prompt), len(prompt))
        return True

    def end_prefill(self) -> None:
        """No prompt is being computed any more."""
        self._piece = (0, 0, 0)

    def prefilled(self) -> tuple[int, int] | None:
        """Tokens of the prompt that are behind, and all of them, also within a pass.

        None when no prompt is being computed. From any thread.
        """
        done, n_now, total = self._piece
        if total == 0:
            return None
        patch = self._loaded.patch
        return done + int(n_now * (patch.progress if patch is not None else 0.0)), total

    def compute(
        self,
        tokens: Sequence[int],
        last_s: float,
        *,
        is_token: bool = False,
        all_layers: bool = False,
    ) -> bool:
        """One llama_decode; False when it was stopped. Raises EngineError.

        The last token's logits are finite, and came from the files that were loaded.

        last_s: the clock when the pass before ended. is_token: of an answer, not of a prompt.
        all_layers: every layer computes every token, where otherwise the last computes the last.
        """
        loaded, now_s = self._loaded, time.monotonic()
        # Asking a device how much is free may be a message to another machine.
        if loaded.plan.devices is None or now_s - self._minded_s >= PERIOD_S:
            self._minded_s = now_s
            self.mind_memory()
        patch = loaded.patch
        position = len(self.tokens)
        if patch is not None:
            try:
                phase = _native.Phase.decode if is_token else _native.Phase.prefill
                patch.begin_pass(phase, tokens)
            except RuntimeError as error:
                raise EngineError(f"{error}.") from None
        before_s = time.perf_counter()
        status = loaded.context.decode(tokens, position, all_logits=all_layers)
        decode_s = time.perf_counter() - before_s
        whole = patch.end_pass() if patch is not None else True
        self._require_same_files()
        if status != 0 or not whole:
            # The context may hold the positions of the pass that came to nothing.
            if not loaded.context.forget_from(position):
                self.tokens.clear()
            if patch is not None and patch.error:
                raise EngineError(f"{patch.error}.")
            if status not in (0, 2):  # 2: aborted
                raise EngineError(f"llama.cpp could not compute a token (status {status}).")
            return False
        if not loaded.context.is_finite():
            self.forget_from(0)  # earlier keys and values may be bad as well
            raise UntrustedError(not_finite_sentence(loaded.file))
        self.tokens += tokens
        self._count(decode_s, time.perf_counter() - last_s, is_token=is_token)
        return True

    def _require_same_files(self) -> None:
        """Raise UntrustedError, and forget all, where the model's files were written to."""
        try:
            with engine_errors():
                self._loaded.llama.files.require_unwritten()
        except UntrustedError:
            self.forget_from(0)
            raise

    def _count(self, decode_s: float, wall_s: float, *, is_token: bool) -> None:
        """Tell everybody who wants to know what the last pass cost."""
        meter = self.meter
        meter.add_pass(decode_s, wall_s, is_token=is_token)
        if self.watch is not None:
            stalls_us = meter.layer_stall_us
            number, map_now = meter.n_pass - 1, self._loaded.residency()
            self.watch.add(number, meter.token, stalls_us, map_now, is_token=is_token)
        if is_token and (line := self._loaded.observe(meter.token, meter.token_wave_s)):
            meter.statistics.decisions.append(line)

    def mind_memory(self) -> None:
        """Between two passes: let the cache shrink where memory is short, or grow back.

        Costs a clock's reading but once a second. Raises EngineError.
        """
        with engine_errors():
            if self._loaded.mind_memory():
                self.meter.cache_rebuilt()
                self._loaded.patch.request_began()
