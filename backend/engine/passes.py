"""Computes passes with llama.cpp, and counts their costs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.engine.drafts import Width
from backend.engine.error import engine_errors, native_sentence
from backend.engine.keeping import Keeping
from backend.engine.kept_states import key_of
from backend.engine.meter import Meter
from backend.engine.moments import Watch
from backend.engine.scheduler import PassPlan, n_before_image
from backend.gguf.identity import FileChangedError
from backend.gguf.scales import not_finite_sentence
from backend.llama import api as llama
from backend.llama.past import UNKNOWN
from backend.llama.vision import ImageChunk, without_mask
from backend.memory.plan import KvCache, headroom_bytes, kv_bytes
from backend.memory.pressure import PERIOD_S
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import Handle
from backend.protocol.settings import DRAFTED_MAX, EngineConfig
from backend.system.memory import available_bytes
from backend.text import text

if TYPE_CHECKING:
    from backend.engine.loaded_model import LoadedModel
    from backend.engine.prediction_layer import PredictionLayer


N_COMPARED = 2
"""Resident experts that are compared with the file after each answer."""

_N_CHECK = 8
"""Tokens that are computed again where the first bad layer is looked for without a patch."""


@dataclass(frozen=True)
class Conversation:
    """A conversation, and its state as llama.cpp writes it; empty if there is none.

    checkpoint: of Context.checkpoint(). owner: of Scheduler.owners. of_layer: of
    PredictionLayer.state().
    """

    tokens: list[int]
    state: bytearray
    checkpoint: tuple[int, bytes] = (0, b"")
    owner: str = ""
    of_layer: bytearray = field(default_factory=bytearray)


class Passes:
    """Computes tokens with a loaded model. Use from one thread; stop() and prefilled() from any.

    is_recorded: the routing is recorded, which a
    draft would add to. meter: the cost of the present or the last request. watch: receives every
    pass, or None. loaded: the model. keeping: keeps the context on the drive, or None. on_cancel:
    called from any thread when a request was cancelled that has joined; calls heed().
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.width = Width(DRAFTED_MAX)
        self.is_recorded = False
        self.meter = Meter(None)
        self.watch: Watch | None = None
        self.loaded = loaded
        self.keeping: Keeping | None = None
        self.on_cancel: Callable[[], None] = self.heed
        self._lock = threading.RLock()  # guards the next two; a signal handler may cancel
        self._handles: list[Handle] = []  # of the requests that are being answered
        self._is_stopped = False
        self._minded_s = 0.0
        self._encoded: dict[int, NDArray[np.float32]] = {}  # images of several prompts
        self._n_compared = 0
        self._distrust: UntrustedError | None = None  # the next request fails with it
        self._piece = (0, 0, 0)  # tokens of the prompt: before this pass, in it, in all

    def begin(self, *handles: Handle) -> None:
        """Begin a request, or a group whose requests join() later. Those before have left.

        Raises UntrustedError where the model's files have changed since they were loaded, or where
        compare_experts() has found a wrong expert since the last request.
        """
        for handle in list(self._handles):
            self.leave(handle)
        if self.keeping is not None:
            self.keeping.pause()
        with engine_errors():
            self.loaded.llama.files.require_unchanged()
        distrust, self._distrust = self._distrust, None
        if distrust is not None:
            self._drop_all()
            raise distrust
        self.request_began()
        self.begin_costs()
        self.end_prefill()
        for handle in handles:
            self.join(handle)

    def request_began(self) -> None:
        """Tell the methods that sequence 0 starts again."""
        for patch in self.loaded.patches:
            patch.request_began()

    def join(self, handle: Handle) -> None:
        """Compute for a request, too, until it leaves."""
        with self._lock:
            self._handles.append(handle)
        handle.attach(self.on_cancel)
        self.heed()

    def leave(self, handle: Handle) -> None:
        """Compute no more for a request. Its handle stops nothing from now on."""
        with self._lock:
            if handle in self._handles:
                self._handles.remove(handle)
            if handle not in self._handles:
                handle.attach(None)
        self.heed()

    def heed(self) -> None:
        """End the pass if all requests are cancelled that have joined. From any thread."""
        with self._lock:
            is_heeded = False
            while not is_heeded:  # a signal may come in between
                self._is_stopped = self._are_all_cancelled
                if self._is_stopped:
                    self.loaded.stop_flag.set()
                else:
                    self.loaded.stop_flag.clear()
                for patch in self.loaded.patches:
                    if self._is_stopped:
                        patch.stop()
                    else:
                        patch.resume()
                is_heeded = self._is_stopped == self._are_all_cancelled

    @property
    def _are_all_cancelled(self) -> bool:
        return bool(self._handles) and all(handle.is_cancelled for handle in self._handles)

    def begin_costs(self) -> None:
        """Count the costs of another answer from now on."""
        self.meter = Meter(self.loaded.patch)

    def compare_experts(self) -> None:
        """Compare a few resident experts with the file, each time others. Call between requests."""
        for _ in range(N_COMPARED):
            # A step that shares no factor with usual numbers of slots reaches all of them.
            self._n_compared += 1_000_003
            try:
                self.loaded.require_right_experts(self._n_compared)
            except UntrustedError as error:
                self._distrust = error
                return
            except EngineError:
                return  # the next pass reports a drive that fails

    def stop(self) -> None:
        """Cancel the requests that are being answered. From any thread."""
        for handle in list(self._handles):
            handle.cancel()

    @property
    def is_stopped(self) -> bool:
        """Whether every request that is being answered was cancelled."""
        return self._is_stopped

    @property
    def tokens(self) -> list[int]:
        """The tokens of the conversation that was computed last, as of Scheduler.tokens_of()."""
        scheduler = self.loaded.scheduler
        return scheduler.tokens_of(scheduler.last)

    def begin_prefill(self, done: int, n: int, total: int) -> None:
        """Show that a pass begins: tokens of the prompt before it, in it and in all."""
        self._piece = done, n, total

    def end_prefill(self) -> None:
        """End the progress of the prompt."""
        self._piece = (0, 0, 0)

    def prefilled(self) -> tuple[int, int] | None:
        """Return the number of prompt tokens computed so far and in all, also within a pass.

        Return None when no prompt is being computed. From any thread.
        """
        done, n_now, total = self._piece
        if total == 0:
            return None
        patch = self.loaded.patch
        return done + int(n_now * (patch.progress if patch is not None else 0.0)), total

    @property
    def may_draft(self) -> bool:
        """Whether answers may have drafts."""
        return self.loaded.cache.drafts != "off" and not self.is_recorded

    @property
    def width(self) -> Width:
        """How many guessed tokens are worth a pass. Assigning one drops all measurements."""
        return self._widths[1]

    @width.setter
    def width(self, width: Width) -> None:
        self._widths = {1: width}

    def width_beside(self, n_running: int) -> Width:
        """Return how many guessed tokens are worth a pass with n_running answers."""
        return self._widths.setdefault(n_running, Width(self.width.n_most))

    @property
    def layer(self) -> PredictionLayer | None:
        """The layer that guesses tokens of one answer where its text does not repeat, or None."""
        return self.loaded.weights.draft if self.may_draft else None

    def _drop_all(self) -> None:
        """Forget all positions, also those on the drive: they may be wrong."""
        self.loaded.scheduler.clear()
        if self.keeping is not None:
            self.keeping.drop()

    def conversation(self) -> Conversation:
        """Return the conversation with its state, to go on with in another context.

        It ends before an image. Its state is empty where memory is short.
        """
        loaded, scheduler = self.loaded, self.loaded.scheduler
        tokens = self.tokens[: n_before_image(self.tokens)]
        n_byte = kv_bytes(loaded.file, len(tokens), KvCache(loaded.config.kv_type))
        free_bytes = available_bytes()
        if not tokens or n_byte > free_bytes - headroom_bytes(free_bytes):
            return Conversation([], bytearray())
        context, sequence = loaded.context, scheduler.last
        state, checkpoint = context.state(0, len(tokens), sequence), context.checkpoint(sequence)
        of_layer = self.layer.state(tokens, 0, sequence) if self.layer is not None else bytearray()
        owner = scheduler.owners.get(sequence, "")
        return Conversation(tokens, state, checkpoint, owner, of_layer)

    def go_on_with(self, moved: Conversation) -> None:
        """Take a conversation, if the context can hold it. REQUIRES: the context is empty."""
        n, context = len(moved.tokens), self.loaded.context
        if not moved.state or n > context.n_context:
            return
        key = key_of("", moved.tokens)
        if context.log is not None:
            context.log.write("kept", key, "", 0, moved.tokens, UNKNOWN)
        if context.set_state(moved.state, n, key=key):
            self.loaded.scheduler.hold(moved.tokens, owner=moved.owner, has_moved=True)
            if n_checkpoint := moved.checkpoint[0]:
                context.load(moved.checkpoint[1], n_checkpoint, 0, key=key)
            if self.layer is not None:
                self.layer.restore(moved.of_layer, moved.tokens, 0, 0)

    def compute(self, plan: PassPlan[Any], last_s: float) -> bool:
        """Compute a pass; an image may take several. Return False when it was stopped.

        last_s: when the pass before has ended. On failure the context is as before, or empty.
        Raises EngineError.
        """
        if (log := self.loaded.context.log) is not None:
            log.write("plan", *plan.logged)
        if plan.image is not None:
            return self._compute_image(plan, last_s)
        assert plan.rows[-1].has_logits
        if plan.n_learning:
            self.loaded.begin_pass(plan.n_learning)
        decode_s = self._pass(plan, lambda: self.loaded.context.decode_rows(plan.rows))
        if decode_s is None:
            return False
        self._count(plan, decode_s, time.perf_counter() - last_s)
        return True

    def keep_encoded(self, images: Set[int]) -> None:
        """Forget what is known of images but these, which more prompts have."""
        self._encoded = {token: of for token, of in self._encoded.items() if token in images}

    def _encode(self, image: ImageChunk) -> NDArray[np.float32]:
        """Return the embeddings of an image, shape (n_token, n_embd). Raises EngineError."""
        if (known := self._encoded.get(image.token)) is not None:
            return known
        vision, n_most = self.loaded.weights.vision, self.loaded.context.n_ubatch
        assert vision is not None
        if not vision.is_causal and image.n_token > n_most:
            raise EngineError(text("vision.too_many_tokens", n=image.n_token, most=n_most))
        self._encoded[image.token] = embeddings = vision.encode(image)
        return embeddings

    def _compute_image(self, plan: PassPlan[Any], last_s: float) -> bool:
        image, row = cast("ImageChunk", plan.image), plan.rows[0]
        embeddings = self._encode(image)
        vision, context = self.loaded.weights.vision, self.loaded.context
        assert vision is not None
        n_step = context.n_ubatch
        positions = vision.positions(image, row.position)
        for begin in range(0, image.n_token, n_step):
            piece = embeddings[begin : begin + n_step], positions[:, begin : begin + n_step]
            with without_mask(context, vision.is_causal):
                part = image.token, begin
                decode = partial(context.decode_embeddings, *piece, part, row.sequence)
                decode_s = self._pass(plan, decode)
            if decode_s is None:
                return False
            now_s = time.perf_counter()
            self._count(plan, decode_s, now_s - last_s)
            last_s = now_s
        return True

    def _pass(self, plan: PassPlan[Any], decode: Callable[[], int]) -> float | None:
        """Run llama_decode once. Return its seconds, or None when stopped. Raises EngineError.

        Afterwards the logits are finite and come from the files that were loaded. On failure the
        context is as before the pass, or before the image that it belongs to; where llama.cpp
        cannot go back, it is empty.
        """
        loaded, now_s = self.loaded, time.monotonic()
        patch = loaded.patch
        try:
            # Asking a device for its free memory may send a message to another machine.
            if loaded.plan.devices is None or now_s - self._minded_s >= PERIOD_S:
                self._minded_s = now_s
                self.mind_memory()
            if patch is not None:
                phase = _native.Phase.decode if plan.is_token else _native.Phase.prefill
                patch.begin_pass(phase, _tokens(plan), plan.numbers)
        except EngineError:
            loaded.scheduler.take_back(plan)
            raise
        except RuntimeError as error:
            loaded.scheduler.take_back(plan)
            raise EngineError(native_sentence(error)) from None
        before_s = time.perf_counter()
        status = decode()
        decode_s = time.perf_counter() - before_s
        whole = patch.end_pass() if patch is not None else True
        self._require_same_files()
        if status != 0 or not whole:
            loaded.context.void()
            loaded.scheduler.take_back(plan)
            if patch is not None and patch.error:
                raise EngineError(native_sentence(patch.error))
            if status not in (0, 2):  # 2: aborted
                raise EngineError(text("engine.pass_failed", status=status))
            return None
        for i, row in enumerate(plan.rows):
            if not row.has_logits:
                continue
            address = loaded.context.logits_address(i if plan.image is None else -1)
            if not _native.all_finite(address, loaded.llama.n_vocab):
                layer = self._first_bad_layer(plan, decode)
                self._drop_all()  # earlier keys and values may be bad, too
                raise UntrustedError(not_finite_sentence(loaded.file, layer))
        return decode_s

    def _first_bad_layer(self, plan: PassPlan[Any], decode: Callable[[], int]) -> int | None:
        """Repeat a pass whose logits were not finite, with a stop at the output of every layer.

        Return the first layer with a value that is not finite, or None if none was found.
        """
        check, patch, tokens = _native.LayerCheck(), self.loaded.patch, _tokens(plan)
        if patch is None:
            self._check_plain(check, tokens[-_N_CHECK:])
            return check.layer
        for sequence, position in plan.begins.items():
            self.loaded.context.forget_from(position, sequence)
        patch.check(check)
        with contextlib.suppress(RuntimeError):
            patch.begin_pass(_native.Phase.prefill, tokens)
            decode()
            self.loaded.context.void()
            patch.end_pass()
        patch.check(None)
        return check.layer

    def _check_plain(self, check: _native.LayerCheck, tokens: Sequence[int]) -> None:
        """Compute some tokens with plain llama.cpp, in a small context."""
        with contextlib.suppress(llama.LlamaError):
            context = llama.Context(
                self.loaded.llama,
                n_context=_N_CHECK,
                n_ubatch=_N_CHECK,
                n_thread=self.loaded.plan.n_thread,
                callback=check.callback,
                user_data=check.user_data,
            )
            if tokens:
                context.decode(tokens, 0)
            context.close()

    def _require_same_files(self) -> None:
        """Forget all and raise UntrustedError where the model's files were written to."""
        try:
            self.loaded.llama.files.require_unwritten()
        except FileChangedError as error:
            self.loaded.scheduler.clear()
            raise UntrustedError(str(error)) from None

    def _count(self, plan: PassPlan[Any], decode_s: float, wall_s: float) -> None:
        """Tell the meter, the watch and the tuner of the cost of a pass."""
        meter, is_token = self.meter, plan.is_token
        meter.add_pass(decode_s, wall_s, is_token=is_token)
        if self.watch is not None:
            stalls_us = meter.layer_stall_us
            number, map_now = meter.n_pass - 1, self.loaded.residency()
            self.watch.add(number, meter.token, stalls_us, map_now, is_token=is_token)
        if plan.n_learning and (line := self.loaded.observe(meter.token, meter.token_wave_s)):
            meter.statistics.decisions.append(line)

    def mind_memory(self) -> None:
        """Shrink the cache where memory is short, or grow it back, between two passes.

        Looks once a second; other calls only read a clock. Raises EngineError.
        """
        with engine_errors():
            if self.loaded.mind_memory():
                self._follow_cache()

    def rebuild(self, config: EngineConfig) -> bool:
        """Apply settings of the cache; see LoadedModel.rebuild(). Raises EngineError."""
        with engine_errors():
            is_rebuilt = self.loaded.rebuild(config)
            if is_rebuilt:
                self._follow_cache()
        return is_rebuilt

    def _follow_cache(self) -> None:
        self.meter.cache_rebuilt()
        assert self.loaded.patch is not None
        self.loaded.patch.request_began()


def _tokens(plan: PassPlan[Any]) -> list[int]:
    """Return what predictors may know of a pass; nothing of an image."""
    return [row.token for row in plan.rows] if plan.image is None else []
