"""The engine's public face: load a model, answer, stop, and say what it cost."""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.config import EngineConfig, Sampling
from backend.facts import CacheFacts, ModelFacts
from backend.gguf_file import ModelFile, read_model
from backend.loaded import EngineError, LoadedModel, Progress, engine_errors
from backend.placement import DevicePlan
from backend.statistics import Decoded, Meter, Statistics
from backend.watch import Watch

__all__ = ["Engine", "EngineError", "Piece", "Progress"]

Message = dict[str, str]


@dataclass(frozen=True)
class Piece:
    """One token and the text that it completes, which may be empty within a character."""

    token_id: int
    text: str


class Engine:
    """One loaded model. Use from one thread; stop(), residency() and statistics() from any."""

    def __init__(self, file: ModelFile, config: EngineConfig, progress: Progress | None) -> None:
        self._file = file
        self._stop = threading.Event()
        self._tokens: list[int] = []  # whose keys and values the context holds
        self._meter = Meter(None)
        self._watch: Watch | None = None
        self._piece = (0, 0, 0)  # tokens of the prompt: before this pass, in it, and all
        self.finish_reason = ""
        self._loaded = LoadedModel(file, config, progress)
        self.model = ModelFacts.of(file, self.n_context)

    @classmethod
    def open(cls, path: Path, config: EngineConfig, progress: Progress | None = None) -> Engine:
        """Check and load a model.

        `progress(fraction, stage)` returns False to give up. Raises ModelFileError when the file
        is not fit, EngineError when it cannot be loaded.
        """
        file = read_model(path)
        with engine_errors():
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
        with engine_errors():
            prompt = self._loaded.template.render(messages)
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
        with engine_errors():
            tokens = model.tokenize(prompt, add_bos=add_bos) or [max(model.bos, 0)]
        n_context = self._context.n_context
        if len(tokens) >= n_context:
            raise EngineError(
                f"The prompt has {len(tokens)} tokens, but the context holds only {n_context}."
            )
        return self._answer(tokens, sampling, max_tokens, on_prefill)

    def compute(self, text: str | Sequence[Message], max_tokens: int) -> int:
        """Compute the first tokens of a text or conversation, answering nothing; returns how many.

        Every layer computes every token, where a prompt's last layer computes only its last one:
        for recordings. Raises EngineError.
        """
        with engine_errors():
            if not isinstance(text, str):
                text = self._loaded.template.render(text)
            tokens = self._llama.tokenize(text, add_bos=self._llama.adds_bos)
        tokens = tokens[: min(max_tokens, self._context.n_context - 1)]
        self._stop.clear()
        self._loaded.stop_flag.clear()
        self._forget_from(0)
        if self._patch is not None:
            self._patch.resume()
            self._patch.request_began()
        if not self._loaded.config.keeps_outputs:
            raise EngineError("This engine was not opened to compute every output.")
        meter = Meter(self._patch)
        n_step = self._context.n_ubatch
        for i in range(0, len(tokens), n_step):
            last_s = time.perf_counter()
            with engine_errors():
                if self._stop.is_set() or not self._pass(
                    tokens[i : i + n_step], meter, last_s, all_layers=True
                ):
                    return i
        return len(tokens)

    def _answer(
        self,
        prompt: list[int],
        sampling: Sampling,
        max_tokens: int,
        on_prefill: Callable[[int, int], None] | None,
    ) -> Iterator[Piece]:
        from backend.llama import Sampler

        self._stop.clear()
        self._loaded.stop_flag.clear()
        if self._patch is not None:
            self._patch.resume()
            self._patch.request_began()
        self._piece = (0, 0, 0)
        self.finish_reason = "cancelled"
        began_s = time.perf_counter()
        self._meter = meter = Meter(self._patch)
        stats = meter.statistics
        stats.n_prompt = len(prompt)
        stats.n_reused = self._reuse_prefix(prompt)
        sampler = Sampler(sampling, self._llama.n_vocab)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            with engine_errors():
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
                with engine_errors():
                    if not self._pass([token], meter, last_s, is_token=True):
                        break
                    last_s = time.perf_counter()  # choosing the next one is part of its time
                    token = sampler.sample(self._context)
                stats.tokens_per_s = stats.n_token / (last_s - first_s)
            if rest := decoder.decode(b"", final=True):
                yield Piece(token, rest)
        finally:
            self._piece = (0, 0, 0)
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
            self._piece = done, min(n_step, len(prompt) - done), len(prompt)
            if self._stop.is_set() or not self._pass(prompt[done : done + n_step], meter, last_s):
                return False
            last_s = time.perf_counter()
        self._piece = (0, 0, 0)
        if on_prefill is not None:
            on_prefill(len(prompt), len(prompt))
        return True

    def _pass(
        self,
        tokens: list[int],
        meter: Meter,
        last_s: float,
        *,
        is_token: bool = False,
        all_layers: bool = False,
    ) -> bool:
        """One llama_decode; False when it was stopped. Raises EngineError."""
        from backend import _native

        self.mind_memory()
        patch = self._patch
        position = len(self._tokens)
        if patch is not None:
            try:
                phase = _native.Phase.decode if is_token else _native.Phase.prefill
                patch.begin_pass(phase, tokens)
            except RuntimeError as error:
                raise EngineError(f"{error}.") from None
        before_s = time.perf_counter()
        status = self._context.decode(tokens, position, all_logits=all_layers)
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
        if self._watch is not None:
            stalls_us = meter.layer_stall_us
            number = meter.n_pass - 1
            self._watch.add(number, meter.token, stalls_us, self.residency(), is_token=is_token)
        if is_token and (line := self._loaded.observe(meter.token, meter.token_wave_s)):
            meter.statistics.decisions.append(line)
        return True

    # Control.

    def stop(self) -> None:
        """End the answer in progress within one token. From any thread."""
        self._stop.set()
        self._loaded.stop_flag.set()
        if (patch := self._patch) is not None:
            patch.stop()

    def set_cache_rate(self, rate: float) -> CacheFacts:
        """Change the cache rate between answers.

        Between two cached rates nothing is loaded again and the conversation's context is kept.
        Crossing 1.0, where llama.cpp runs unpatched, loads the model anew.
        """
        return self.change(replace(self._loaded.config, cache_rate=rate))

    def change(self, config: EngineConfig) -> CacheFacts:
        """Take other settings between answers; see LoadedModel.change. Raises EngineError."""
        context = self._loaded.context
        try:
            self._loaded.change(config)
        finally:
            if self._loaded.context is not context:
                self._tokens.clear()
            if self._loaded.context is not None:
                self.model = ModelFacts.of(self._file, self.n_context)
        return self.cache

    def mind_memory(self) -> None:
        """Between two passes: let the cache shrink where memory is short, or grow back.

        Costs a clock's reading but once a second. Raises EngineError.
        """
        with engine_errors():
            if self._loaded.mind_memory():
                self._meter.cache_made_anew()
                self._loaded.patch.request_began()

    def idle(self) -> None:
        """Use the time between answers: some methods then lay their cache out anew."""
        with engine_errors():
            self._loaded.idle()

    def forget(self) -> None:
        """Forget the conversation: the next prompt is computed whole."""
        self._forget_from(0)

    def record(self, recorder: Any | None) -> None:
        """Tell a backend._native.Recorder what is routed from now on; None: no more.

        Raises EngineError where llama.cpp runs unpatched.
        """
        if self._patch is None:
            raise EngineError("Only a model that runs through the cache can be recorded.")
        self._patch.record(recorder)

    def watch(self, watch: Watch | None) -> None:
        """Tell a Watch of every pass from now on; None: no more. From any thread."""
        self._watch = watch

    def prefilled(self) -> tuple[int, int] | None:
        """Tokens of the prompt that are behind, and all of them, also within a pass.

        None when no prompt is being computed. From any thread.
        """
        done, n_now, total = self._piece
        if total == 0:
            return None
        patch = self._patch
        return done + int(n_now * (patch.progress if patch is not None else 0.0)), total

    def statistics(self) -> Statistics:
        """Of the present or the last answer."""
        return self._meter.statistics

    @property
    def decoded(self) -> Decoded:
        """What the tokens of the present or the last answer cost, without its prompt."""
        return self._meter.decoded

    @property
    def accuracy(self) -> float | None:
        """The share of predicted experts that were used, since the cache was last laid out."""
        if self._patch is None:
            return None
        counts = self._patch.counts()
        n_predicted = sum(c.predicted for c in counts)
        return sum(c.predicted_used for c in counts) / n_predicted if n_predicted else None

    def residency(self) -> bytes:
        """One byte per MoE layer and expert, see Patch.snapshot; all resident without a cache."""
        if (patch := self._patch) is not None:
            return bytes(patch.snapshot())
        return bytes([1]) * (self._file.n_moe_layer * self._file.n_expert)

    def close(self) -> None:
        """Free the model. Twice is fine."""
        self._loaded.close()
        self._tokens.clear()

    @property
    def cache(self) -> CacheFacts:
        """What is in force, beside what was asked for."""
        return self._loaded.cache

    @property
    def file(self) -> ModelFile:
        """The model's file."""
        return self._file

    @property
    def device_plan(self) -> DevicePlan | None:
        """What is where on the devices; None where the CPU computes alone."""
        return self._loaded.on_device.plan

    @property
    def remark(self) -> str:
        """Why weights of a predictor that were found are not used, or ""."""
        return self._loaded.remark

    @property
    def shape(self) -> Any | None:
        """The experts' sizes as a backend._native.Shape; None where llama.cpp runs unpatched."""
        return self._patch.shape if self._patch is not None else None

    @property
    def n_context(self) -> int:
        """Tokens of conversation that are kept."""
        return self._loaded.n_context

    @property
    def _patch(self) -> Any:
        return self._loaded.patch

    @property
    def _context(self) -> Any:
        return self._loaded.context

    @property
    def _llama(self) -> Any:
        return self._loaded.llama
