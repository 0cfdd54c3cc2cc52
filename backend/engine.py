"""The engine's public face: load a model, answer, stop, and say what it cost."""

from __future__ import annotations

import codecs
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.config import EngineConfig, Sampling
from backend.facts import CacheFacts, ModelFacts
from backend.gguf_file import ModelFile, read_model
from backend.methods import METHODS, Method
from backend.plan import plan, slots
from backend.statistics import Meter, Statistics
from backend.system.memory import available_bytes, physical_cores

N_TRANSFER_THREAD = 4
"""Threads that read experts. They wait for the drive nearly all the time."""

Message = dict[str, str]
Progress = Callable[[float, str], bool]


class EngineError(RuntimeError):
    """Something that the user should know; the text is one plain sentence."""


@dataclass(frozen=True)
class Piece:
    """One token and the text that it completes, which may be empty within a character."""

    token_id: int
    text: str


class Engine:
    """One loaded model. Use from one thread; stop(), residency() and statistics() from any."""

    def __init__(self, file: ModelFile, config: EngineConfig, progress: Progress | None) -> None:
        from backend import _native

        self.cache: CacheFacts
        self._file = file
        self._config = config
        self._stop = threading.Event()
        self._stop_flag = _native.StopFlag()
        self._tokens: list[int] = []  # whose keys and values the context holds
        self._cached: Any = None
        self._context: Any = None
        self._llama: Any = None
        # More than the model was trained for is beyond what it can make sense of.
        self._n_context = min(config.context_length, file.context_length or config.context_length)
        self._refused = ""  # why this model cannot be cached at all
        self._n_thread = config.n_thread or physical_cores()
        self.finish_reason = ""
        self._meter = Meter(None)
        try:
            self._load(config.cache_rate, progress)
        except BaseException:
            self.close()
            raise
        self.model = ModelFacts.of(file, self.n_context)

    @classmethod
    def open(cls, path: Path, config: EngineConfig, progress: Progress | None = None) -> Engine:
        """Check and load a model.

        `progress(fraction, stage)` returns False to give up. Raises ModelFileError when the file
        is not fit, EngineError when it cannot be loaded.
        """
        file = read_model(path)
        with _engine_errors():
            return cls(file, config, progress)

    # Answering.

    def generate(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        max_tokens: int = -1,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> Iterator[Piece]:
        """Answer a conversation, or go on with its last message if that is the assistant's.

        max_tokens -1: until the context is full. on_prefill(done, total) counts prompt tokens.
        Raises EngineError, also when the prompt does not fit.
        """
        with _engine_errors():
            prompt = self._template.render(messages)
        return self.generate_text(prompt, sampling, max_tokens, on_prefill)

    def generate_text(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int = -1,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> Iterator[Piece]:
        """Continue a raw prompt; control tokens may be written in it. As generate() otherwise."""
        model = self._llama
        bos = model.special_text(model.bos)
        add_bos = model.adds_bos and not (bos and prompt.startswith(bos))
        with _engine_errors():
            tokens = model.tokenize(prompt, add_bos=add_bos) or [max(model.bos, 0)]
        n_context = self._context.n_context
        if len(tokens) >= n_context:
            raise EngineError(
                f"The prompt has {len(tokens)} tokens, but the context holds only {n_context}."
            )
        return self._answer(tokens, sampling, max_tokens, on_prefill)

    def _answer(
        self,
        prompt: list[int],
        sampling: Sampling,
        max_tokens: int,
        on_prefill: Callable[[int, int], None] | None,
    ) -> Iterator[Piece]:
        from backend.llama import Sampler

        self._stop.clear()
        self._stop_flag.clear()
        if self._patch is not None:
            self._patch.resume()
        self.finish_reason = "cancelled"
        began_s = time.perf_counter()
        self._meter = meter = Meter(self._patch)
        stats = meter.statistics
        stats.n_prompt = len(prompt)
        stats.n_reused = self._reuse_prefix(prompt)
        sampler = Sampler(sampling, self._llama.n_vocab)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            with _engine_errors():
                if not self._prefill(prompt, meter, on_prefill):
                    return
                token = sampler.sample(self._context)
            stats.ttft_s = time.perf_counter() - began_s
            first_s = last_s = time.perf_counter()
            while True:
                if self._llama.ends_answer(token):
                    self.finish_reason = "stop"
                    break
                stats.n_token += 1
                yield Piece(token, decoder.decode(self._llama.piece(token)))
                if max_tokens >= 0 and stats.n_token >= max_tokens:
                    self.finish_reason = "length"
                    break
                if self._stop.is_set():
                    break
                if len(self._tokens) >= self._context.n_context:
                    self.finish_reason = "context"
                    break
                with _engine_errors():
                    if not self._pass([token], meter, last_s, is_token=True):
                        break
                    last_s = time.perf_counter()  # choosing the next one is part of its time
                    token = sampler.sample(self._context)
                stats.tokens_per_s = stats.n_token / (last_s - first_s)
            if rest := decoder.decode(b"", final=True):
                yield Piece(token, rest)
        finally:
            sampler.close()

    def _reuse_prefix(self, prompt: list[int]) -> int:
        """Keep what the context already knows of the prompt; returns how many tokens that is.

        The last token is always computed again: its logits are needed.
        """
        n = 0
        for old, new in zip(self._tokens, prompt[:-1], strict=False):
            if old != new:
                break
            n += 1
        return n if n == len(self._tokens) > 0 else self._forget_from(n)

    def _forget_from(self, n: int) -> int:
        """Drop positions from n on; returns n, or 0 where the model can only forget everything.

        The context may hold positions that are not in _tokens: those of a pass that was stopped.
        """
        n = n if self._context.forget_from(n) else 0
        del self._tokens[n:]
        return n

    def _prefill(
        self, prompt: list[int], meter: Meter, on_prefill: Callable[[int, int], None] | None
    ) -> bool:
        """Compute the prompt; False when stopped."""
        n_step = self._context.n_ubatch
        last_s = time.perf_counter()
        while len(self._tokens) < len(prompt):
            done = len(self._tokens)
            if on_prefill is not None:
                on_prefill(done, len(prompt))
            if self._stop.is_set() or not self._pass(prompt[done : done + n_step], meter, last_s):
                return False
            last_s = time.perf_counter()
        if on_prefill is not None:
            on_prefill(len(prompt), len(prompt))
        return True

    def _pass(
        self, tokens: list[int], meter: Meter, last_s: float, *, is_token: bool = False
    ) -> bool:
        """One llama_decode; False when it was stopped. Raises EngineError."""
        from backend import _native

        patch = self._patch
        position = len(self._tokens)
        if patch is not None:
            try:
                patch.begin_pass(_native.Phase.decode if is_token else _native.Phase.prefill)
            except RuntimeError as error:
                raise EngineError(f"{error}.") from None
        before_s = time.perf_counter()
        status = self._context.decode(tokens, position)
        decode_s = time.perf_counter() - before_s
        whole = patch.end_pass() if patch is not None else True
        if status != 0 or not whole:
            # The context may hold the positions of the pass that came to nothing.
            if not self._context.forget_from(position):
                self._tokens.clear()
            if patch is not None and patch.error:
                raise EngineError(f"{patch.error}.")
            if status not in (0, 2):  # 2: aborted
                raise EngineError(f"llama.cpp could not compute a token (status {status}).")
            return False
        self._tokens += tokens
        meter.add_pass(decode_s, time.perf_counter() - last_s, is_token=is_token)
        return True

    # Control.

    def stop(self) -> None:
        """End the answer in progress within one token. From any thread."""
        self._stop.set()
        self._stop_flag.set()
        if (patch := self._patch) is not None:
            patch.stop()

    def set_cache_rate(self, rate: float) -> CacheFacts:
        """Change the cache rate between answers.

        Between two cached rates nothing is loaded again and the conversation's context is kept.
        Crossing 1.0, where llama.cpp runs unpatched, loads the model anew.
        """
        config = replace(self._config, cache_rate=rate)
        with _engine_errors():
            granted, reason = self._grant(rate)
            if self._cached is not None and not self._is_plain(granted):
                before = self.cache
                try:
                    self._configure(rate, granted, reason)
                except EngineError:
                    self._configure(before.asked_rate, before.rate, before.reason)
                    raise
            elif self._cached is None and (self._refused or self._is_plain(granted)):
                self.cache = replace(self.cache, asked_rate=rate)
            else:
                self._reload(rate)
        self._config = config
        return self.cache

    def _reload(self, rate: float) -> None:
        """Load the model anew; where that fails, as it was before, and raise."""
        before = self.cache.asked_rate
        self.close()
        try:
            self._load(rate, None)
        except Exception:
            self.close()
            self._load(before, None)
            raise

    def statistics(self) -> Statistics:
        """Of the present or the last answer."""
        return self._meter.statistics

    def residency(self) -> bytes:
        """One byte per MoE layer and expert, see Patch.snapshot; all resident without a cache."""
        if (patch := self._patch) is not None:
            return bytes(patch.snapshot())
        return bytes([1]) * (self._file.n_moe_layer * self._file.n_expert)

    def close(self) -> None:
        """Free the model. Twice is fine."""
        if self._context is not None:
            self._context.close()
            self._context = None
        if self._cached is not None:
            self._cached.close()
            self._cached = None
        elif self._llama is not None:
            self._llama.close()
        self._llama = None
        self._tokens.clear()

    @property
    def n_context(self) -> int:
        """Tokens of conversation that are kept."""
        return int(self._context.n_context)

    # Loading.

    @property
    def _patch(self) -> Any:
        cached = self._cached  # another thread may be closing it
        return cached.patch if cached is not None else None

    def _is_plain(self, rate: float) -> bool:
        return not self._file.is_moe or rate >= 1.0

    def _load(self, rate: float, progress: Progress | None) -> None:
        from backend import llama, loading
        from backend.chat_template import ChatTemplate

        def on_progress(fraction: float) -> bool:
            return progress is None or progress(fraction, "Reading the weights")

        llama.log.echo = bool(os.environ.get("OUTRIDER_DEBUG"))
        self._refused = "" if self._file.is_moe else "A dense model has no experts to cache."
        granted, reason = self._grant(rate)
        if not self._is_plain(granted):
            try:
                self._cached = loading.CachedModel(
                    self._file, n_thread=self._n_thread, progress=on_progress
                )
                self._llama = self._cached.model
            except loading.NotCacheable as error:
                self._refused = str(error)
        if self._cached is None:
            # Repacked weights are memory; pages of the file can be dropped and read again.
            fits = self._file.file_size_bytes < available_bytes()
            self._llama = loading.load_plain(self._file, on_progress, repack=fits)
            self.cache = CacheFacts(
                asked_rate=rate,
                rate=1.0,
                min_rate=1.0 if self._refused else self._min_rate(),
                n_slot=self._file.n_expert,
                bytes=self._file.expert_bytes_total,
                mode="plain",
                reason=self._refused,
                method="stock",
            )
        else:
            self._configure(rate, granted, reason)
        self._template = ChatTemplate(self._llama, self._file.chat_template)
        self._context = llama.Context(
            self._llama,
            n_context=self._n_context,
            n_ubatch=min(self._config.n_ubatch, self._n_context),
            n_thread=self._n_thread,
            callback=self._patch.callback if self._cached else None,
            user_data=self._patch.user_data if self._cached else None,
            stop_flag=None if self._cached else self._stop_flag,  # the patch stops by itself
        )

    def _min_rate(self) -> float:
        return self._file.n_expert_used / self._file.n_expert if self._file.n_expert else 1.0

    def _grant(self, rate: float) -> tuple[float, str]:
        """The rate that memory permits, and why it is not the one asked for.

        What this engine holds already is taken as free: it is given back before it is taken.
        """
        context_length = self._n_context
        held_bytes = 0
        if self._llama is not None:
            held = plan(self._file, self.cache.rate, context_length, 0)
            held_bytes = held.total_bytes - held.process_bytes
        free_bytes = available_bytes() + held_bytes
        wanted = plan(self._file, rate, context_length, free_bytes, self._config.n_ubatch)
        if not self._file.is_moe or wanted.fits:
            return rate, ""
        granted = 0.0 if wanted.best_rate is None else wanted.best_rate
        n_slot = slots(self._file, granted)
        return granted, (
            f"{free_bytes / (1 << 30):.1f} GiB of memory are free: {n_slot} of "
            f"{self._file.n_expert} experts of each layer are kept instead of {wanted.n_slot}."
        )

    def _configure(self, rate: float, granted: float, reason: str) -> None:
        from backend import _native

        method = METHODS[self._config.method]
        shape = self._cached.patch.shape
        n_slot = _native.allocate_uniform(shape, granted)
        try:
            self._cached.patch.configure(
                n_slot,
                patch_options(method, n_thread=self._n_thread, max_token=self._config.n_ubatch),
            )
        except RuntimeError as error:
            raise EngineError(f"{error}.") from None
        self.cache = CacheFacts(
            asked_rate=rate,
            rate=n_slot[0] / shape.n_expert,
            min_rate=shape.n_expert_used / shape.n_expert,
            n_slot=n_slot[0],
            bytes=self._cached.patch.slab_bytes,
            mode="cached",
            reason=reason,
            method=method.name,
        )


def patch_options(method: Method, *, n_thread: int, max_token: int) -> Any:
    """A method as backend._native.PatchOptions, for passes of at most `max_token` tokens."""
    from backend import _native

    schedule = method.schedule
    return _native.PatchOptions(
        schedule=_native.OrderedOptions(
            chunks=schedule.chunks,
            early_preemption=schedule.early_preemption,
            reorder=schedule.reorder,
        ),
        next_router=method.predictor == "next_router",
        min_precision=method.min_precision,
        n_thread=n_thread,
        n_transfer_thread=N_TRANSFER_THREAD,
        max_token=max_token,
    )


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    """llama.cpp's errors as the engine's."""
    from backend.llama import LlamaError

    try:
        yield
    except LlamaError as error:
        raise EngineError(str(error)) from None
