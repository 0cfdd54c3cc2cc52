"""Compares logits with those of stock llama.cpp, bit by bit.

Two computations round differently from stock: experts computed in two parts (MoEpic), and experts
of a device's layer that the processor computes (hybrid misses). Each has its own error bound.

Stock is the same library in another process, without our native part, a callback or a cache
(backend.evaluation.replay). Its context has llama.cpp's defaults. It has the same tensor layout,
because another layout adds in another order. The layout is that of the file, or the repacked one
that the processor computes fastest, which is stock llama.cpp's default. The reference is computed
first, so that memory holds one copy of the model at a time.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend.engine.loading import CachedModel, load_native
from backend.gguf.identity import FileChangedError
from backend.gguf.model_file import ModelFile
from backend.gguf.scales import not_finite_sentence
from backend.llama.api import Context, LlamaError, Model, kernels
from backend.llama.batch_log import BatchLog, runs
from backend.llama.row import Row
from backend.machines.drive import Drive
from backend.memory.devices import modules
from backend.memory.placement import ON_CPU, Placement
from backend.methods.catalogue import METHODS
from backend.methods.compose import (
    NOTHING_LEARNED,
    Learned,
    composition,
    layout,
    predictor_of,
    predictor_text,
    share_of,
    slots_in,
)
from backend.methods.slots import slots_of
from backend.packs.file import Layout, Pack
from backend.protocol.worker_exit import describe_exit
from backend.system import children
from backend.system.memory import available_bytes
from backend.text import from_json

CUT_TOLERANCE = 0.02
"""Largest relative difference of all logits with cut experts. The sum of each expert is right
within 1e-5, but later layers round their inputs to 8 bits. Stock llama.cpp's own two weight layouts
differ by 0.0054 on the embedded model, and so do cut from whole experts."""
HYBRID_NMSE = 1e-6
"""Largest normalised mean square error of all logits with hybrid misses. If stock llama.cpp on the
device and on the CPU differ by more, that is the bound: such a run mixes their kernels."""
HYBRID_PERPLEXITY = 1e-3
"""Largest relative difference of the perplexity of the compared tokens with hybrid misses, as
above."""
_N_UBATCH = 512
_N_FIRST = 8
"""Tokens of the first pass where time is limited. A pass of few tokens reads few experts."""


Bound = Literal["bits", "cut", "hybrid"]


@dataclass(frozen=True)
class Comparison:
    """One way to run a model, compared with stock. n_different of n_value logits differ."""

    method: str
    layout: Layout
    asked_rate: float
    rate: float
    n_slot: int
    n_position: int
    n_value: int
    n_different: int
    first_position: int | None
    """The first position with a difference."""
    largest_difference: float
    relative_difference: float
    """Root mean square of the difference over that of stock's logits."""
    predictor: str
    """The predictor, in words."""
    is_cut: bool
    """Whether experts were computed in two parts, whose sum is rounded differently (MoEpic)."""
    perplexity_difference: float
    """Perplexity of the compared tokens over stock's, minus 1."""
    hits: int
    late: int
    misses: int
    on_host: int
    """Late and missed experts that the processor computed beside the device."""
    n_sequence: int = 1
    """Sequences that were computed at once."""
    bytes_from_host: int = 0
    """Bytes of experts that a device got from RAM."""
    hybrid_nmse: float = HYBRID_NMSE
    """The bound of `nmse` with hybrid misses."""
    hybrid_perplexity: float = HYBRID_PERPLEXITY
    """The bound of `perplexity_difference` with hybrid misses."""

    @property
    def identical(self) -> bool:
        """Whether every bit of every logit is the same."""
        return self.n_different == 0

    @property
    def nmse(self) -> float:
        """Normalised mean square error of all logits."""
        return self.relative_difference**2

    @property
    def bound(self) -> Bound:
        """The bound that applies: "cut" for cut experts, "hybrid" for hybrid misses."""
        return "cut" if self.is_cut else "hybrid" if self.on_host else "bits"

    @property
    def lossless(self) -> bool:
        """Whether the logits are identical, or within the tolerance of `bound`."""
        if self.identical or self.bound == "bits":
            return self.identical
        if self.bound == "cut":
            return self.relative_difference <= CUT_TOLERANCE
        return (
            self.nmse <= self.hybrid_nmse
            and abs(self.perplexity_difference) <= self.hybrid_perplexity
        )


def compare(
    file: ModelFile,
    rates: Sequence[float],
    methods: Sequence[str],
    *,
    n_token: int,
    n_thread: int,
    sequences: Sequence[int] = (1,),
    streams: bool = False,
    learned: Learned = NOTHING_LEARNED,
    in_layout: Layout = "file",
    pack: Pack | None = None,
    placement: Placement = ON_CPU,
    hybrid: str = "off",
    n_stage: int = 0,
    host_bytes: int = 0,
    limit_s: float = math.inf,
) -> Iterator[Comparison]:
    """Compute `n_token` tokens with each method and rate, and compare the logits with stock's.

    Three quarters of the tokens are a prompt; the rest are decoded one by one. Yields a Comparison
    for each method, rate and number of sequences. Methods that cut experts compute them in the
    file's layout.

    sequences: numbers of sequences that share the tokens. Stock llama.cpp computes the same passes.
    streams: each has an attention cache of its own, as in a group whose prompts are equally long.
    learned: the weights that backend.weights.lookup.load found, as the engine uses them.
    in_layout: the layout of the experts, here and in stock. pack: read the experts from this pack,
    in any layout. placement: with a device, stock llama.cpp computes on it too, with all experts
    there. hybrid: how experts that the device lacks are computed (HYBRID). n_stage: slots of the
    staging buffer for prompts. host_bytes: bytes of experts that RAM keeps for the device. limit_s:
    stock computes no longer, and neither does each method; the passes until then are compared. The
    prompt then comes in passes that begin short, and double.

    Raises LlamaError if the model cannot be loaded or computed, NotCacheable if it cannot be run
    with a cache.
    """
    in_memory = file.file_size_bytes * 1.1 < available_bytes()
    if in_layout == "repacked" and not in_memory:
        raise LlamaError("To compare this layout the whole model must find room in memory.")
    cached = CachedModel(file, n_thread=n_thread, repack=in_memory, pack=pack, placement=placement)
    n_vocab = cached.model.n_vocab
    cached.close()  # raises NotCacheable before the slow part
    tokens = _tokens(n_vocab, n_token)
    n_first = _N_UBATCH if limit_s == math.inf else _N_FIRST
    batches = {n: _passes(tokens, n, streams, n_first) for n in sequences}
    if placement.on_device:
        expected = _by_device(file, placement, batches, n_thread, streams, limit_s)
    else:
        expected = {
            n: _by_stock(file, b, n, n_thread, in_layout, in_memory, streams, n_vocab, limit_s)
            for n, b in batches.items()
        }
    hybrid_nmse, hybrid_perplexity = HYBRID_NMSE, HYBRID_PERPLEXITY
    if hybrid != "off" and placement.on_device and in_memory:
        n = sequences[0]
        by_cpu = _by_stock(
            file, batches[n], n, n_thread, in_layout, in_memory, streams, n_vocab, limit_s
        )
        both = min(len(by_cpu), len(expected[n]))
        of_device, by_cpu = expected[n][:both], by_cpu[:both]
        hybrid_nmse = max(hybrid_nmse, _relative_difference(of_device, by_cpu) ** 2)
        scored = tokens[:both] if n == 1 else []
        of_cpu = _perplexity(by_cpu, scored) / _perplexity(of_device, scored) - 1
        hybrid_perplexity = max(hybrid_perplexity, abs(of_cpu))

    cached = CachedModel(file, n_thread=n_thread, repack=in_memory, pack=pack, placement=placement)
    try:
        shape = cached.patch.shape
        for method in methods:
            for rate, (n_sequence, reference) in product(rates, expected.items()):
                slots = layout(METHODS[method], shape, slots_of(rate, shape.n_expert), n_stage)
                options = _native.PatchOptions(
                    n_thread=n_thread,
                    n_transfer_thread=Drive().n_read,
                    max_token=_N_UBATCH,
                    repack=in_layout == "repacked",
                    host_bytes=host_bytes,
                )
                has_routers = cached.patch.n_embd > 0
                parts = composition(
                    METHODS[method],
                    shape,
                    learned,
                    has_routers=has_routers,
                    hybrid=hybrid,
                    on_device=placement.on_device,
                )
                cached.patch.configure(slots, parts, options)
                cached.patch.request_began()
                logits = _logits(
                    file, cached.model, batches[n_sequence], n_sequence, n_thread, cached, streams,
                    limit_s, len(reference),
                )  # fmt: skip
                reference = reference[: len(logits)]
                # A perplexity needs the logits of every token.
                scored = tokens[: len(logits)] if n_sequence == 1 else []
                counts = cached.patch.counts()
                different = reference.view(np.uint32) != logits.view(np.uint32)
                rows = np.flatnonzero(different.any(axis=1))
                yield Comparison(
                    method=method,
                    layout=in_layout,
                    asked_rate=rate,
                    rate=share_of(slots, shape),
                    n_slot=round(slots_in(slots, shape)),
                    n_position=len(reference),
                    n_sequence=n_sequence,
                    n_value=reference.size,
                    n_different=int(different.sum()),
                    first_position=int(rows[0]) if rows.size else None,
                    largest_difference=_largest_difference(reference, logits),
                    relative_difference=_relative_difference(reference, logits),
                    predictor=predictor_text(
                        predictor_of(METHODS[method], learned, has_routers=has_routers)
                    ),
                    is_cut=slots.any_cut(),
                    perplexity_difference=_perplexity(logits, scored)
                    / _perplexity(reference, scored)
                    - 1,
                    hits=sum(c.hits for c in counts),
                    late=sum(c.late for c in counts),
                    misses=sum(c.misses for c in counts),
                    on_host=sum(c.on_host for c in counts),
                    bytes_from_host=sum(h.bytes_found for h in cached.patch.host_counts()),
                    hybrid_nmse=hybrid_nmse,
                    hybrid_perplexity=hybrid_perplexity,
                )
    finally:
        cached.close()


def _tokens(n_vocab: int, n_token: int) -> list[int]:
    """Return the same random tokens every time. They span the vocabulary to reach many experts."""
    random = Random(1)
    return [random.randrange(n_vocab) for _ in range(n_token)]


@dataclass(frozen=True)
class _Pass:
    """Tokens that are computed at once. numbers: of their sequences, for the core; or empty."""

    rows: list[Row]
    numbers: list[int]
    is_token: bool


def _passes(
    tokens: list[int], n_sequence: int, streams: bool = False, n_first: int = _N_UBATCH
) -> list[_Pass]:
    """Return the passes that compute a prompt, and then the rest of the tokens one by one.

    n_first: tokens of the first pass of a single sequence. Each further pass has twice as many as
    the one before, up to _N_UBATCH.

    If there are several sequences, those that run are decoded at once. Their prompts differ in
    length. The last one joins later, in a pass that decodes the others: as in a group of requests.
    In streams the prompts have the same length, and begin and end together.
    """
    if n_sequence == 1:
        n_prompt = max(1, len(tokens) * 3 // 4)
        rows = [Row(token, i, 0, has_logits=True) for i, token in enumerate(tokens)]
        steps, begin = [], 0
        while begin < n_prompt:
            steps.append(rows[begin : min(begin + n_first, n_prompt)])
            begin, n_first = begin + len(steps[-1]), min(2 * n_first, _N_UBATCH)
        ones = [[row] for row in rows[n_prompt:]]
        return [_Pass(s, [], False) for s in steps] + [_Pass(s, [], True) for s in ones]
    n_mean = max(len(tokens) * 3 // 4 // n_sequence, 2)
    lengths = [n_mean + (0 if streams else s % 3) for s in range(n_sequence)]
    draw = Random(2)

    def row(sequence: int, position: int, has_logits: bool) -> Row:
        return Row(draw.choice(tokens), position, sequence, has_logits)

    passes = []

    def add(rows: list[Row], is_token: bool = False) -> None:
        for begin in range(0, len(rows), _N_UBATCH):
            part = rows[begin : begin + _N_UBATCH]
            part[-1] = replace(part[-1], has_logits=True)  # a pass has logits
            passes.append(_Pass(part, [1 + r.sequence for r in part], is_token))

    if streams:
        n_each = _N_UBATCH // n_sequence
        for begin in range(0, n_mean - 1, n_each):
            part = range(begin, min(begin + n_each, n_mean - 1))
            add([row(s, i, False) for s in range(n_sequence) for i in part])
        for i in range(n_mean - 1, n_mean + max(len(tokens) // 4 // n_sequence, 3)):
            add([row(s, i, True) for s in range(n_sequence)], is_token=i >= n_mean)
        return passes

    def prompts(sequences: range) -> list[Row]:
        """Return the tokens of the prompts, the last one of each at the end, with logits."""
        begin = [row(s, i, False) for s in sequences for i in range(lengths[s] - 1)]
        return begin + [row(s, lengths[s] - 1, True) for s in sequences]

    first, late = range(n_sequence - 1), range(n_sequence - 1, n_sequence)
    add(prompts(first))
    add(prompts(late) + [row(s, lengths[s], True) for s in first])
    n_done = [length + 1 for length in lengths[:-1]] + [lengths[-1]]
    for i in range(max(len(tokens) // 4 // n_sequence, 3)):
        add([row(s, n_done[s] + i, True) for s in range(n_sequence)], is_token=True)
    return passes


def _within(passes: list[_Pass], n_row: int) -> list[_Pass]:
    """Return the first passes whose rows with logits are n_row at most."""
    kept = []
    for each in passes:
        n_row -= sum(row.has_logits for row in each.rows)
        if n_row < 0:
            break
        kept.append(each)
    return kept


def _n_context(passes: list[_Pass], n_sequence: int, streams: bool) -> int:
    """Return the cells of a context that these passes fill."""
    return (sum(len(each.rows) for each in passes) + 8) * (n_sequence if streams else 1)


def _by_stock(
    file: ModelFile,
    passes: list[_Pass],
    n_sequence: int,
    n_thread: int,
    in_layout: Layout,
    in_memory: bool,
    streams: bool,
    n_vocab: int,
    limit_s: float,
) -> NDArray[np.float32]:
    """Have stock llama.cpp compute the passes in another process. Return all logits, [n, n_vocab].

    It is ended after limit_s; the logits are those of the passes that it has completed by then.
    Model and context are made with llama.cpp's defaults, but for the context's size, the length of
    a pass, the threads, the sequences and the layout of the experts. Raises LlamaError, also if a
    logit is not finite.
    """
    model = {
        "path": str(file.path.absolute()),
        "fingerprint": file.fingerprint,
        # Where the model does not fit, all weights stay pages of the file, as in CachedModel.
        "settings": {"n_gpu_layers": 0} | ({} if in_memory else {"use_extra_bufts": 0}),
        "experts_as_in_file": in_layout == "file" and in_memory,
        "n_expert_used": file.n_expert_used_instead,
        "device": "cpu",
        "backends": [m.file for m in modules() if m.backend],
        "devices": [],
        "n_cpu_layer": file.n_layer,
        "shares": [],
        "mmproj": "",
        "n_thread": n_thread,
    }
    settings = dict.fromkeys(("n_batch", "n_ubatch"), _N_UBATCH)
    settings |= dict.fromkeys(("n_threads", "n_threads_batch"), n_thread)
    settings["n_ctx"] = _n_context(passes, n_sequence, streams)
    if n_sequence > 1:
        settings |= {"n_seq_max": n_sequence, "kv_unified": int(not streams)}
    with tempfile.TemporaryDirectory() as folder, file.open() as files:
        log, logits = Path(folder, "passes"), Path(folder, "logits")
        asked = BatchLog(log, kernels())
        asked.begin_model(model)
        asked.write("context", settings)
        for each in passes:
            rows = ((r.token, r.position, r.sequence, r.has_logits) for r in each.rows)
            asked.write("pass", runs(rows), 0, None)
        asked.close()
        command = children.command("backend.evaluation.replay", "--logits", str(logits), str(log))
        timeout = None if limit_s == math.inf else limit_s
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout
            )
            said = json.loads(done.stdout, object_hook=from_json)
        except ValueError:
            tail = done.stderr.decode(errors="replace")
            raise LlamaError(describe_exit(done.returncode, tail)) from None
        except subprocess.TimeoutExpired:
            said = {"difference": "", "obstacle": ""}
        if fault := said["difference"] or said["obstacle"]:
            raise LlamaError(str(fault))
        try:
            files.require_unchanged()
        except FileChangedError as error:
            raise LlamaError(str(error)) from None
        found = np.fromfile(logits, np.float32) if logits.exists() else np.empty(0, np.float32)
    passes = _within(passes, found.size // n_vocab)
    if not passes:
        raise LlamaError(f"Stock llama.cpp computed no pass within {limit_s:.3g} s.")
    n_row = sum(row.has_logits for each in passes for row in each.rows)
    found = found[: n_row * n_vocab]
    if not np.isfinite(found).all():
        raise LlamaError(not_finite_sentence(file))
    return found.reshape(n_row, n_vocab)


def _by_device(
    file: ModelFile,
    placement: Placement,
    batches: dict[int, list[_Pass]],
    n_thread: int,
    streams: bool,
    limit_s: float,
) -> dict[int, NDArray[np.float32]]:
    """Return stock's logits by numbers of sequences, from a device with all experts.

    In this process: a device of another machine serves one process at a time.
    """
    stock = load_native(file, placement)
    try:
        return {
            n: _logits(file, stock, passes, n, n_thread, None, streams, limit_s)
            for n, passes in batches.items()
        }
    finally:
        stock.close()


def _logits(
    file: ModelFile,
    model: Model,
    passes: list[_Pass],
    n_sequence: int,
    n_thread: int,
    cached: CachedModel | None,
    streams: bool = False,
    limit_s: float = math.inf,
    n_row: int = sys.maxsize,
) -> NDArray[np.float32]:
    """Compute the passes. Return all logits that they ask for, [n, n_vocab].

    None begins after limit_s, nor after n_row rows of logits. The context has room for all.
    Raises LlamaError, also if a logit is not finite or the model's files were changed.
    """
    patch = cached.patch if cached else None
    context = Context(
        model,
        n_context=_n_context(passes, n_sequence, streams),
        n_sequence=n_sequence,
        n_ubatch=_N_UBATCH,
        n_thread=n_thread,
        callback=patch.callback if patch else None,
        user_data=patch.user_data if patch else None,
        streams=streams and n_sequence > 1,
    )
    found: list[NDArray[np.float32]] = []
    end_s = time.monotonic() + limit_s
    try:
        if cached is not None:
            cached.computes_in(context)
        for each in _within(passes, n_row):
            if found and time.monotonic() > end_s:
                break
            if patch is not None:
                phase = _native.Phase.decode if each.is_token else _native.Phase.prefill
                patch.begin_pass(phase, [row.token for row in each.rows], each.numbers)
            status = context.decode_rows(each.rows)
            if patch is not None and not patch.end_pass():
                raise LlamaError(f"{patch.error}.")
            if status != 0:
                raise LlamaError(f"llama.cpp could not compute a token (status {status}).")
            found.append(context.logits(sum(row.has_logits for row in each.rows)))
            if not np.isfinite(found[-1]).all():
                raise LlamaError(not_finite_sentence(file))
        model.files.require_unchanged()
    except FileChangedError as error:
        raise LlamaError(str(error)) from None
    finally:
        if cached is not None:
            cached.computes_in(None)
        context.close()
    return np.concatenate(found)


def _largest_difference(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(np.nan_to_num(np.abs(a - b), nan=np.inf).max()) if not _same(a, b) else 0.0


def _relative_difference(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    if _same(a, b):
        return 0.0
    of = np.square(a, dtype=np.float64).mean()
    return float(np.nan_to_num(np.sqrt(np.square(a - b, dtype=np.float64).mean() / of), nan=np.inf))


def _perplexity(logits: NDArray[np.float32], tokens: list[int]) -> float:
    """Return the perplexity of all tokens but the first, each given those before it; or 1."""
    if not tokens:
        return 1.0
    scores = logits[:-1].astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    chosen = np.take_along_axis(scores, np.array(tokens[1:])[:, None], axis=1)[:, 0]
    return float(np.exp(np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen)))


def _same(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))
