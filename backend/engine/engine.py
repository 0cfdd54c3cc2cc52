"""The engine's public interface: load a model, answer, stop, and report the costs."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.engine.error import engine_errors
from backend.engine.experiment import NO_EXPERIMENT, Experiment
from backend.engine.loaded_model import LoadedModel, Progress
from backend.engine.moments import Watch
from backend.engine.passes import Passes
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.api import Sampler
from backend.memory.placement import DevicePlan
from backend.methods.cost import PassCost
from backend.protocol.errors import EngineError
from backend.protocol.settings import EngineConfig, Sampling
from backend.protocol.statistics import Statistics
from backend.protocol.status import CacheFacts, ModelFacts
from backend.text import text

__all__ = ["Engine", "EngineError", "Piece", "Progress"]

Message = dict[str, str]


@dataclass(frozen=True)
class Piece:
    """A token and the text that it completes. The text is empty within a character."""

    token_id: int
    text: str


class Engine:
    """One loaded model. Use from one thread; stop(), residency() and statistics() from any.

    file: the model's file. loaded: the model in llama.cpp. passes: its computations.
    """

    def __init__(
        self,
        file: ModelFile,
        config: EngineConfig,
        progress: Progress | None,
        experiment: Experiment,
    ) -> None:
        self.file = file
        self.finish_reason = ""
        self.loaded = LoadedModel(file, config, progress, experiment)
        self.passes = Passes(self.loaded)
        self.model = ModelFacts.of(file, self.n_context)

    @classmethod
    def open(
        cls,
        path: Path,
        config: EngineConfig,
        progress: Progress | None = None,
        experiment: Experiment = NO_EXPERIMENT,
    ) -> Engine:
        """Check and load a model.

        `progress(fraction, stage)` returns False to give up. `experiment`: changes for an
        experiment. Raises ModelFileError for a bad file, EngineError when loading fails.
        """
        file = read_model(path)
        with engine_errors():
            return cls(file, config, progress, experiment)

    # Answering.

    def generate(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        max_tokens: int = -1,
        on_prefill: Callable[[int, int], None] | None = None,
        on_begin: Callable[[], None] | None = None,
    ) -> Iterator[Piece]:
        """Answer a conversation, or continue its last message if the assistant wrote it.

        max_tokens -1: until the context is full. on_prefill(done, total) counts prompt tokens.
        on_begin() is called before the prompt is rendered. A stop() counts for this answer from
        that call on. Raises EngineError, also when the prompt does not fit.
        """
        self._begin()
        if on_begin is not None:
            on_begin()
        prompt = self._rendered(messages)
        if prompt is None:
            return iter(())
        return self._answer(self._prompt_tokens(prompt), sampling, max_tokens, on_prefill)

    def generate_text(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int = -1,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> Iterator[Piece]:
        """Continue a raw prompt, which may contain control tokens. Otherwise as generate()."""
        self._begin()
        return self._answer(self._prompt_tokens(prompt), sampling, max_tokens, on_prefill)

    def _begin(self) -> None:
        self.passes.begin()
        self.finish_reason = "cancelled"

    def _rendered(self, messages: Sequence[Message]) -> str | None:
        """Return the prompt; None when stopped while rendering."""
        with engine_errors():
            prompt: str | None = self.loaded.template.render(
                messages, lambda: self.passes.is_stopped
            )
        return prompt

    def _prompt_tokens(self, prompt: str) -> list[int]:
        model = self._llama
        bos = model.special_text(model.bos)
        add_bos = model.adds_bos and not (bos and prompt.startswith(bos))
        with engine_errors():
            tokens = model.tokenize(prompt, add_bos=add_bos) or [max(model.bos, 0)]
        n_context = self._context.n_context
        if len(tokens) >= n_context:
            raise EngineError(text("engine.prompt_too_long", n=len(tokens), n_context=n_context))
        return tokens

    def compute(self, text: str | Sequence[Message], max_tokens: int) -> int:
        """Compute the first tokens of a text or conversation. Return the number computed.

        Every layer computes every token, which recordings need; the last layer of an ordinary
        prompt computes only the last token. No answer is generated. Raises EngineError.
        """
        if not self.loaded.config.keeps_outputs:
            raise EngineError("This engine was not opened to compute every output.")
        self._begin()
        prompt = text if isinstance(text, str) else self._rendered(text)
        if prompt is None:
            return 0
        with engine_errors():
            tokens = self._llama.tokenize(prompt, add_bos=self._llama.adds_bos)
        tokens = tokens[: min(max_tokens, self._context.n_context - 1)]
        passes, n_step = self.passes, self._context.n_ubatch
        passes.forget_from(0)
        for i in range(0, len(tokens), n_step):
            last_s = time.perf_counter()
            with engine_errors():
                if passes.is_stopped or not passes.compute(
                    tokens[i : i + n_step], last_s, all_layers=True
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
        passes = self.passes
        began_s = time.perf_counter()
        stats = passes.meter.statistics
        stats.n_prompt = len(prompt)
        stats.n_reused = passes.keep_prefix(prompt)
        sampler = Sampler(sampling, self._llama.n_vocab)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            with engine_errors():
                if not passes.prefill(prompt, on_prefill):
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
                if passes.is_stopped:
                    break
                if len(passes.tokens) >= self._context.n_context:
                    self.finish_reason = "context"
                    break
                with engine_errors():
                    if not passes.compute([token], last_s, is_token=True):
                        break
                    last_s = time.perf_counter()  # a token's time includes sampling it
                    token = sampler.sample(self._context)
                stats.tokens_per_s = stats.n_token / (last_s - first_s)
            if rest := decoder.decode(b"", final=True):
                yield Piece(token, rest)
        finally:
            passes.end_prefill()
            sampler.close()

    # Control.

    def stop(self) -> None:
        """Stop the answer within one token, or while its prompt is rendered. From any thread."""
        self.passes.stop()
        if (template := self.loaded.template) is not None:
            template.stop()

    def set_cache_rate(self, rate: float) -> CacheFacts:
        """Change the cache rate between answers.

        Between two cached rates nothing is loaded again and the conversation's context is kept.
        At 1.0 llama.cpp runs unpatched, so a change from or to 1.0 loads the model again.
        """
        return self.change(replace(self.loaded.config, cache_rate=rate))

    def change(self, config: EngineConfig) -> CacheFacts:
        """Apply other settings between answers; see LoadedModel.change. Raises EngineError."""
        context = self.loaded.context
        try:
            self.loaded.change(config)
        finally:
            if self.loaded.context is not context:
                self.passes.tokens.clear()
            if self.loaded.context is not None:
                self.model = ModelFacts.of(self.file, self.n_context)
        return self.cache

    def mind_memory(self) -> None:
        """Shrink the cache where memory is short, or grow it back, between answers.

        Raises EngineError.
        """
        self.passes.mind_memory()

    def idle(self) -> None:
        """Run idle-time maintenance between answers.

        Starts the process that renders prompts, so that the next answer does not wait for it.
        Some methods change the layout of their cache.
        """
        with engine_errors():
            self.loaded.template.start()
            self.loaded.idle()

    def forget(self) -> None:
        """Forget the conversation. The whole next prompt is then computed."""
        self.passes.forget_from(0)

    def record(self, recorder: Any | None) -> None:
        """Send the routing to a backend._native.Recorder from now on; None ends it.

        Raises EngineError where llama.cpp runs unpatched.
        """
        if self._patch is None:
            raise EngineError("Only a model that runs through the cache can be recorded.")
        self._patch.record(recorder)

    def watch(self, watch: Watch | None) -> None:
        """Send every pass to a Watch from now on; None ends it. From any thread."""
        self.passes.watch = watch

    def prefilled(self) -> tuple[int, int] | None:
        """Return the number of prompt tokens computed so far and in all, also within a pass.

        Return None when no prompt is being computed. From any thread.
        """
        return self.passes.prefilled()

    def statistics(self) -> Statistics:
        """Return the statistics of the present or the last answer."""
        return self.passes.meter.statistics

    @property
    def decoded(self) -> PassCost:
        """The cost of the tokens of the present or the last answer, without its prompt."""
        return self.passes.meter.decoded

    @property
    def accuracy(self) -> float | None:
        """The share of predicted experts that were used, since the cache was last rebuilt."""
        if self._patch is None:
            return None
        counts = self._patch.counts()
        n_predicted = sum(c.predicted for c in counts)
        return sum(c.predicted_used for c in counts) / n_predicted if n_predicted else None

    def residency(self) -> bytes:
        """Return one cell (methods.cells) per MoE layer and expert; all resident if uncached."""
        return self.loaded.residency()

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        self.loaded.close()
        self.passes.tokens.clear()

    @property
    def cache(self) -> CacheFacts:
        """The settings in force and the settings asked for."""
        return self.loaded.cache

    @property
    def device_plan(self) -> DevicePlan | None:
        """The contents of the devices; None where the CPU computes alone."""
        return self.loaded.plan.devices

    @property
    def remark(self) -> str:
        """The reason why predictor weights that were found are not used, or ""."""
        return self.loaded.remark

    @property
    def shape(self) -> Any | None:
        """The experts' sizes as a backend._native.Shape; None where llama.cpp runs unpatched."""
        return self._patch.shape if self._patch is not None else None

    @property
    def n_context(self) -> int:
        """The length of the context in tokens."""
        return int(self._context.n_context)

    @property
    def _patch(self) -> Any:
        return self.loaded.patch

    @property
    def _context(self) -> Any:
        return self.loaded.context

    @property
    def _llama(self) -> Any:
        return self.loaded.llama
