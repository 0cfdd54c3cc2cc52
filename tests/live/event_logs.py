"""Event logs of the core: runs whose live, simulated and kept logs are the same.

A run is a method, a model and a list of passes. Its routing is forced from tables (Tables), and so
are the router's weights and the layers' inputs that the core sees, so that no processor rounds them
in another way. Copies end by a rule that counts events (core/copy_schedule.h), not by time. So the
log of a run is text that is equal on every machine: each event that entered the core, with all its
fields, and indented under it the commands that answered. tests/data/event-logs keeps them. From the
repository's root:

    PYTHONPATH=tests:tests/live python -m live.event_logs record [NAME ...]
    PYTHONPATH=tests:tests/live python -m live.event_logs show NAME
    PYTHONPATH=tests:tests/live python -m live.event_logs compare [NAME ...]

`make event-logs` records all after an intended change; `compare` shows the first difference.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import layouts
import numpy as np
from factory import make_tiny
from gguf import GGUFReader
from numpy.typing import NDArray

from backend import _native
from backend._native import CopyRule, Layout, Phase, Shape, Tuning
from backend.engine.loading import CachedModel
from backend.gguf.model_file import read_model
from backend.llama.api import Context
from backend.llama.row import Row
from backend.memory.placement import ON_CPU, Placement
from backend.methods import compose
from backend.methods.catalogue import CACHED, METHODS
from backend.methods.slots import slots_of

FOLDER = Path(__file__).resolve().parent.parent / "data" / "event-logs"
N_CONTEXT, N_UBATCH, N_SEQUENCE = 256, 32, 4


def hashed(seed: int, *shape: int) -> NDArray[np.uint64]:
    """Return numbers that depend on nothing but the seed and their place (splitmix64)."""
    x = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(seed << 32)
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).reshape(shape)


# ---- what is computed -------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A pass, after settings that change before it."""

    tokens: tuple[int, ...]
    phase: Phase
    places: tuple[int, ...]
    """For each token, its sequence in the context."""
    sequences: tuple[int, ...] = ()
    """As in PassBegan: numbers that are never used again."""
    n_logits: int = 1
    """The last tokens whose logits are wanted: the last layer computes only these."""
    begins: bool = False
    """A request begins: the context is empty."""
    tuning: Tuning | None = None
    stocks: str = ""
    """Fetch "some" or "all" experts into free slots first. A simulator cannot."""


def one_sequence(
    *requests: tuple[Sequence[int], int], tunings: Sequence[Tuning] = ()
) -> list[Step]:
    """Return the passes of requests: the sizes of a prompt's pieces, and tokens to generate."""
    steps: list[Step] = []
    token, tuned = itertools.count(3), iter(tunings)
    for pieces, n_decode in requests:
        for i, n in enumerate(pieces):
            # Some tokens come again.
            tokens = tuple(next(token) * 7 % 23 for _ in range(n))
            steps.append(Step(tokens, Phase.prefill, (0,) * n, begins=i == 0))
        for i in range(n_decode):
            tuning = next(tuned, None) if i % 2 else None
            steps.append(Step((next(token) * 7 % 23,), Phase.decode, (0,), tuning=tuning))
    return steps


def group(n_sequence: int, n_decode: int) -> list[Step]:
    """Return the passes of several answers: prompts mixed, then tokens in common, then fewer."""
    token = itertools.count(5)
    numbers = [11 + s for s in range(n_sequence)]
    steps = []
    for first, second in itertools.pairwise(range(n_sequence)):
        # A piece of one prompt, and the whole of another.
        places = (first,) * 3 + (second,) * 2
        steps.append(
            Step(
                tuple(next(token) * 5 % 29 for _ in places),
                Phase.prefill,
                places,
                tuple(numbers[s] for s in places),
                begins=first == 0,
            )
        )
    for i in range(n_decode):
        # The first answer ends early. Later, the last sequence is another answer.
        places = tuple(range(1 if i > n_decode // 2 else 0, n_sequence))
        if i == n_decode - 2:
            numbers[-1] = 40
        tokens = tuple(next(token) * 5 % 29 for _ in places)
        sequences = tuple(numbers[s] for s in places)
        steps.append(Step(tokens, Phase.decode, places, sequences, n_logits=len(places)))
    return steps


SOLO = one_sequence(((6, 3), 7), ((5,), 4))
GROUP = group(3, 8)
LONG = one_sequence(((14, 12), 2), ((10, 10, 8), 2), ((12,), 2))


@dataclass(frozen=True)
class Segment:
    """Passes of one configuration."""

    steps: Sequence[Step]
    rate: float = 0.4
    n_stage: int = 0
    layout: Callable[[Shape], Layout] | None = None
    """In place of the method's."""


@dataclass(frozen=True)
class Run:
    """A run of one model. Each segment has a core of its own."""

    name: str
    method: str
    segments: Sequence[Segment] = (Segment(SOLO),)
    model: str = "qwen3moe"
    n_event: int = 12
    failing: float = 0.0
    stops: Sequence[int] = ()
    host_share: float = 0.0
    """Of all experts, what a store in RAM holds; above 0, a device computes."""
    hybrid: str = "off"
    machine: dict[str, float] = field(default_factory=dict)
    is_live: bool = True
    """Whether a live engine can do this run. It cannot know the future, nor measure these times."""
    is_simulated: bool = True
    is_forced: bool = True
    """Whether the routing is. Without it, no layer's choice may be read."""

    @property
    def rule(self) -> CopyRule:
        seed = sum(ord(c) * 31**i for i, c in enumerate(self.name)) % 2**31
        return CopyRule(seed, self.n_event, self.failing, list(self.stops))

    @property
    def steps(self) -> list[Step]:
        return [step for segment in self.segments for step in segment.steps]


def _resized(method: str) -> tuple[Segment, ...]:
    parts = (SOLO[:6], SOLO[6:10], SOLO[10:])
    return tuple(Segment(steps, rate) for steps, rate in zip(parts, (0.3, 0.8, 0.25), strict=True))


def _other_cuts(shape: Shape) -> Layout:
    return layouts.cut(shape, {0: 0.25, 1: 0.75}, n_top=8, n_bottom=5, n_whole=6)


_TUNINGS = [
    Tuning(prefetch=True, depth=2, copy_cost=0.0, eviction=0),
    Tuning(prefetch=False, depth=1, copy_cost=0.5, eviction=0),
    Tuning(prefetch=True, depth=1, copy_cost=0.5, eviction=1),
]
_HOST = {"host_us": 8, "host_expert_us": 64, "host_expert_token_us": 16, "expert_us": 16}
_HOST |= {"expert_token_us": 4, "dense_us": 32}
_LINK = {"link_bytes_per_us": 256.0, "link_latency_us": 4.0}

RUNS: tuple[Run, ...] = (
    *(Run(name, name) for name in CACHED if name != "auto"),
    # A clock decides what "auto" does, so its settings come from here.
    Run("auto", "auto", (Segment(one_sequence(((6, 3), 7), ((5,), 4), tunings=_TUNINGS)),)),
    *(
        Run(f"{name}-group", name, (Segment(GROUP),), n_event=20)
        for name in ("outrider", "moepic", "moe-infinity", "klotski", "klotski-order", "duoserve")
    ),
    Run("gpt-oss", "promoe", model="gpt-oss"),
    Run("gpt-oss-group", "lru-overlapped", (Segment(GROUP),), model="gpt-oss"),
    Run("deepseek2", "outrider", model="deepseek2"),
    Run("deepseek2-group", "klotski", (Segment(GROUP, 0.3),), model="deepseek2"),
    Run("late", "outrider-recall", n_event=60),
    Run("instant", "promoe", n_event=0),
    Run("failing", "outrider", failing=0.2),
    Run("unreadable", "lru-overlapped", failing=0.75),
    Run("stopped", "outrider", stops=(40, 130, 200, 330)),
    Run("stopped-cut", "moepic", stops=(60, 150, 300)),
    Run("stopped-group", "klotski", (Segment(GROUP),), stops=(52, 173, 303)),
    Run("resized", "outrider", _resized("outrider")),
    Run("resized-cut", "moepic", (Segment(SOLO[:8]), Segment(SOLO[8:], layout=_other_cuts))),
    Run("staged", "outrider", (Segment(SOLO, 0.3, n_stage=4),)),
    Run(
        "staged-forecasts",
        "promoe-reorder",
        (Segment(one_sequence(((2, 2, 2), 3), ((3, 3), 3)), 0.3, n_stage=8),),
        n_event=0,
    ),
    Run("full", "lru-overlapped", (Segment(SOLO, 1.0),)),
    # Prompts that need more experts than a layer has slots, and long answers.
    Run("long-prompts", "outrider", (Segment(LONG, 0.6),), n_event=8),
    Run("long-prompts-staged", "promoe", (Segment(LONG, 0.4, n_stage=6),), n_event=8),
    Run("long-answer", "outrider", (Segment(one_sequence(((4,), 40)), 0.5),), n_event=30),
    Run(
        "stocked",
        "outrider",
        (
            Segment(
                [replace(s, stocks="some") if i in (0, 5, 9) else s for i, s in enumerate(SOLO)]
            ),
        ),
        is_simulated=False,
    ),
    Run(
        "unasked",
        "lru-overlapped",
        (Segment([replace(SOLO[0], stocks="all"), *SOLO[1:]], 1.0),),
        n_event=0,
        is_simulated=False,
        is_forced=False,
    ),
    Run("bound-belady", "belady", is_live=False),
    Run("bound-oracle", "oracle", is_live=False),
    Run("hybrid", "outrider", hybrid="auto", machine=_HOST | _LINK, is_live=False),
    Run(
        "hybrid-group",
        "klotski",
        (Segment(GROUP, 0.3),),
        hybrid="auto",
        machine=_HOST | _LINK | {"host_us": 160, "host_expert_token_us": 4, "dense_us": 0},
        is_live=False,
    ),
    Run(
        "hybrid-long",
        "lru-overlapped",
        (Segment(one_sequence(((4,), 24)), 0.5),),
        hybrid="auto",
        machine=_HOST,
        is_live=False,
    ),
    Run("host-only", "lru-overlapped", hybrid="cpu-only", machine=_HOST, is_live=False),
    Run("store", "outrider", host_share=0.5),
    Run("store-equal", "promoe", (Segment(SOLO, 0.375),), host_share=0.4),
    Run("store-small", "lru-overlapped", host_share=0.1),
    Run("store-cut", "moepic", host_share=0.4),
    Run("store-group", "klotski", (Segment(GROUP),), host_share=0.7),
)

BY_NAME = {run.name: run for run in RUNS}


# ---- routing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """Routing of all tokens of a run, of values that floats hold exactly in any order of adding.

    ids, weights: [n_token][layer][n_expert_used]. inputs: [n_token][layer][n_embd]; they tell a
    router of `routers` what a later layer chooses, mostly right.
    """

    ids: NDArray[np.int32]
    weights: NDArray[np.float32]
    inputs: NDArray[np.float32]

    @classmethod
    def of(cls, steps: Sequence[Step], shape: Shape, n_embd: int) -> Tables:
        n_layer, n_expert, n_used = shape.n_layer, shape.n_expert, shape.n_expert_used
        tokens = [token for step in steps for token in step.tokens]
        n = len(tokens)
        own = (hashed(1, 64, n_layer, n_expert) % np.uint64(64)).astype(np.int64)[tokens]
        usual = (hashed(2, n_layer, n_expert) % np.uint64(48)).astype(np.int64)
        noise = (hashed(3, n, n_layer, n_expert) % np.uint64(32)).astype(np.int64)
        scores = own + usual + noise
        ids = np.argsort(-scores, axis=2, kind="stable")[:, :, :n_used]
        weights = np.take_along_axis(scores, ids, axis=2) / 256
        # A layer's input knows the scores of its later layers, and of the next token's first ones.
        following = np.concatenate([scores[1:], scores[:1]])
        inputs = np.zeros((n, n_layer, n_embd))
        for layer, target in itertools.product(range(n_layer), range(n_layer)):
            known = (scores if target > layer else following)[:, target]
            wrong = (hashed(4 + layer * n_layer + target, n, n_expert) % np.uint64(40)).astype(int)
            inputs[:, layer, columns(target, shape, n_embd)] += (known + wrong) / 16
        return cls(ids.astype(np.int32), weights.astype(np.float32), inputs.astype(np.float32))


def columns(layer: int, shape: Shape, n_embd: int) -> NDArray[np.int64]:
    """Return where a layer's input holds the scores of the experts of `layer`."""
    return (layer * shape.n_expert + np.arange(shape.n_expert)) % n_embd


def learned(shape: Shape, n_embd: int) -> compose.Learned:
    """Return weights of the predictors that are trained, of exact values."""
    n_layer, n_expert = shape.n_layer, shape.n_expert
    arrays: dict[str, Any] = {}
    for layer in range(n_layer):
        for stride in (1, 2):
            wanted = np.zeros((n_expert, n_embd), np.float32)
            places = columns((layer + stride) % n_layer, shape, n_embd)
            wanted[np.arange(n_expert), places] = 1
            arrays[f"l{layer}.s{stride}.w1"] = np.eye(n_embd, dtype=np.float32)
            arrays[f"l{layer}.s{stride}.w2"] = wanted
            before = hashed(50 + layer, n_expert, n_expert) % np.uint64(16)
            arrays[f"l{layer}.s{stride}.before"] = before.astype(np.float32) / 16
    n_in = (n_layer - 1) * shape.n_expert_used + 2 * n_expert
    network = {
        "w0": ((hashed(60, n_expert, n_in) % np.uint64(16)).astype(np.float32) - 8) / 8,
        "b0": (hashed(61, n_expert) % np.uint64(8)).astype(np.float32) / 8,
        "popularity": (hashed(62, n_layer, n_expert) % np.uint64(16)).astype(np.float32) / 128,
        "affinity": (hashed(63, n_layer, n_expert, n_expert) % np.uint64(8)).astype(np.float32) / 8,
    }
    return compose.Learned({"learned": arrays, "expert_mlp": network})


# ---- the models -------------------------------------------------------------------------------

_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3moe": ("Q8_0", {"n_layer": 3, "n_expert": 16, "n_expert_used": 4, "n_ff_exp": 128}),
    "gpt-oss": ("MXFP4", {"n_layer": 3, "n_expert": 12, "n_expert_used": 3}),
    "deepseek2": ("Q8_0", {"n_layer": 4, "n_expert": 16, "n_expert_used": 4}),
}
_ALL_ROWS = {"gpt-oss"}
"""Models whose last layer llama.cpp computes for all tokens of a prompt."""


def make_model(folder: Path, name: str) -> Path:
    """Write a model whose routers read what Tables put into a layer's input."""
    quant, sizes = _SIZES[name]
    path = make_tiny(name, quant, folder / f"{name}.gguf", **sizes)
    routers = [t for t in GGUFReader(path, "r+").tensors if t.name.endswith("ffn_gate_inp.weight")]
    for layer, router in enumerate(sorted(routers, key=lambda t: int(t.name.split(".")[1]))):
        n_expert, n_embd = router.data.shape
        router.data[:] = 0
        at = (layer * n_expert + np.arange(n_expert)) % n_embd
        router.data[np.arange(n_expert), at] = 1
        router.data.flush()
    return path


class Model:
    """A cached model that runs are computed with."""

    def __init__(self, path: Path, placement: Placement = ON_CPU) -> None:
        self.file = read_model(path)
        self.is_on_device = placement is not ON_CPU
        self.cached = CachedModel(self.file, n_thread=1, placement=placement)
        self.patch = self.cached.patch
        self.shape: Shape = self.patch.shape
        self.n_embd: int = self.patch.n_embd
        self._context: Context | None = None
        self._learned = learned(self.shape, self.n_embd)

    def composition(self, run: Run) -> _native.Composition:
        return compose.composition(
            METHODS[run.method],
            self.shape,
            self._learned,
            hybrid=run.hybrid,
            on_device=self.is_on_device,
        )

    def layout(self, run: Run, segment: Segment) -> Layout:
        if segment.layout is not None:
            return segment.layout(self.shape)
        n_slot = slots_of(segment.rate, self.shape.n_expert)
        return compose.layout(METHODS[run.method], self.shape, n_slot, segment.n_stage)

    def tables(self, run: Run) -> Tables:
        return Tables.of(run.steps, self.shape, self.n_embd)

    def core(self, run: Run, layout: Layout, future: Any = None) -> _native.Core:
        """Return a new core like the patch's."""
        return _native.Core(
            self.shape,
            layout,
            self.composition(run),
            n_embd=self.n_embd,
            routers=self.patch.routers,
            biases=self.patch.router_biases,
            host_slots=self.patch.host_slots if run.host_share else [],
            future=future,
        )

    def live(self, run: Run, *, by_rule: bool = True) -> list[_native.EventLog]:
        """Return the log of each segment. by_rule: copies end by the run's rule, not by time."""
        tables, patch = self.tables(run), self.patch
        forced = _native.ForcedRouting(
            list(patch.layers), self.shape.n_expert, tables.ids, tables.weights, tables.inputs
        )
        options = {"copy_rule": run.rule} if by_rule else {"n_transfer_thread": 2}
        options["host_bytes"] = int(self.file.expert_bytes_total * run.host_share)
        patch.force(forced if run.is_forced else None)
        patch.record_events(True)
        logs, first = [], 0
        lengths = dict.fromkeys(range(N_SEQUENCE), 0)
        for segment in run.segments:
            patch.configure(
                self.layout(run, segment),
                self.composition(run),
                _native.PatchOptions(n_thread=1, max_token=N_UBATCH, **options),
            )
            context = self._open()
            for step in segment.steps:
                forced.begin_pass(first, len(step.tokens))
                self._pass(context, step, lengths)
                first += len(step.tokens)
            logs.append(patch.take_events())
        patch.record_events(False)
        patch.force(None)
        return logs

    def _open(self) -> Context:
        """Return the context. The first configuration comes before it."""
        if self._context is None:
            self._context = Context(
                self.cached.model,
                n_context=N_CONTEXT,
                n_ubatch=N_UBATCH,
                n_thread=1,
                n_sequence=N_SEQUENCE,
                callback=self.patch.callback,
                user_data=self.patch.user_data,
            )
        return self._context

    def _pass(self, context: Context, step: Step, lengths: dict[int, int]) -> None:
        patch = self.patch
        if step.tuning is not None:
            patch.tune(step.tuning)
        if step.begins:
            for sequence in lengths:
                context.forget_from(0, sequence)
                lengths[sequence] = 0
            patch.request_began()
        if step.stocks:
            every = 1 if step.stocks == "all" else 2
            experts = [list(range(0, self.shape.n_expert, every))] * self.shape.n_layer
            patch.stock(experts, [] if step.begins else [e[:3] for e in experts])
        before = dict(lengths)
        rows = []
        for i, (token, place) in enumerate(zip(step.tokens, step.places, strict=True)):
            has_logits = i >= len(step.tokens) - step.n_logits
            rows.append(Row(token, lengths[place], place, has_logits))
            lengths[place] += 1
        patch.begin_pass(step.phase, step.tokens, step.sequences)
        status = context.decode_rows(rows)
        if not patch.end_pass() or status != 0:
            for place in set(step.places):
                context.forget_from(before[place], place)
            lengths.update(before)

    def simulated(self, run: Run) -> list[_native.EventLog]:
        """Return the log of each segment in a simulator."""
        tables, logs, first = self.tables(run), [], 0
        whole_file = self.is_on_device
        for segment in run.segments:
            n_token = sum(len(step.tokens) for step in segment.steps)
            rows = slice(first, first + n_token)
            future = _future(segment.steps, tables.ids[rows], self.shape, run.model)
            if run.host_share:  # the division of the store is the patch's
                self._divide_store(run, segment)
            core = self.core(run, self.layout(run, segment), future)
            log = _native.EventLog()

            def tune(
                _: object, of: Iterator[Step] = iter(segment.steps[1:]), to: Any = core
            ) -> None:
                step = next(of, None)
                if step is not None and step.tuning is not None:
                    to.tune(step.tuning)

            _native.simulate(
                core,
                future,
                _native.Machine(**run.machine, stop_us=1.0 if whole_file else 0.0),
                tables.inputs[rows],
                tables.weights[rows],
                log,
                after_pass=tune,
                copy_rule=None if "link_bytes_per_us" in run.machine else run.rule,
            )
            logs.append(log)
            first += n_token
        return logs

    def _divide_store(self, run: Run, segment: Segment) -> None:
        n_byte = int(self.file.expert_bytes_total * run.host_share)
        self.patch.configure(
            self.layout(run, segment),
            self.composition(run),
            _native.PatchOptions(n_thread=1, max_token=N_UBATCH, host_bytes=n_byte),
        )

    def close(self) -> None:
        if self._context is not None:
            self._context.close()
        self.patch = None
        self.cached.close()


def _future(
    steps: Sequence[Step], ids: NDArray[np.int32], shape: Shape, model: str
) -> _native.Future:
    future, first = _native.Future(), 0
    for step in steps:
        n = len(step.tokens)
        of_step = np.ascontiguousarray(ids[first : first + n].transpose(1, 0, 2))
        n_last = n if model in _ALL_ROWS else step.n_logits
        n_routed = [n] * (shape.n_layer - 1) + [n_last]
        future.append(
            step.phase, list(step.tokens), step.begins, of_step, n_routed, list(step.sequences)
        )
        first += n
    return future


# ---- logs as text -----------------------------------------------------------------------------


def lines_of(logs: Sequence[_native.EventLog]) -> list[str]:
    """Return the lines of a run's log."""
    lines = []
    for log in logs:
        lines.append("configured")
        lines += [line for i in range(len(log)) for line in log.describe(i)]
    return lines


def kept(name: str) -> list[str]:
    """Return the kept log of a run."""
    return lzma.decompress((FOLDER / f"{name}.txt.xz").read_bytes()).decode().splitlines()


def keep(name: str, lines: Sequence[str]) -> None:
    """Keep the log of a run."""
    FOLDER.mkdir(exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    options = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    packed = lzma.compress(text, check=lzma.CHECK_CRC32, filters=options)
    (FOLDER / f"{name}.txt.xz").write_bytes(packed)


def difference(name: str, wanted: Sequence[str], found: Sequence[str]) -> str:
    """Return the first difference of two logs, with the lines around it, or ""."""
    pairs = itertools.zip_longest(wanted, found)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        return ""
    # The event comes before its commands; "configured" has none.
    head = max((i for i in range(min(at, len(found))) if not found[i].startswith(" ")), default=0)
    begin = min(max(at - 8, 0), head)
    text = [f"{name}: line {at + 1} of {len(wanted)} differs; {len(found)} were found."]
    text += [f"  {line}" for line in wanted[begin:at]]
    text += [f"- {line}" for line in wanted[at : at + 5]] or ["- (the end)"]
    text += [f"+ {line}" for line in found[at : at + 5]] or ["+ (the end)"]
    return "\n".join(text)


@contextmanager
def models() -> Iterator[Callable[[Run], Model]]:
    """Yield a function that returns the open model of a run."""
    from loopback import server

    from backend.memory import devices

    opened: dict[tuple[str, bool], Model] = {}
    running = None
    with tempfile.TemporaryDirectory() as folder:

        def model_of(run: Run) -> Model:
            nonlocal running
            key = run.model, run.host_share > 0
            if key not in opened:
                placement = ON_CPU
                if run.host_share > 0:
                    running = running or server()
                    pointers = (d.pointer for d in devices.resolve(running.__enter__().option))
                    placement = Placement(tuple(pointers), 999)
                opened[key] = Model(make_model(Path(folder), run.model), placement)
            return opened[key]

        try:
            yield model_of
        finally:
            for model in opened.values():
                model.close()
            if running is not None:
                running.__exit__(None, None, None)


def log_of(model: Model, run: Run) -> list[str]:
    return lines_of(model.live(run) if run.is_live else model.simulated(run))


def main() -> int:
    """Record, show or compare logs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("act", choices=("record", "show", "compare"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    names = arguments.names or list(BY_NAME)
    if arguments.act == "show":
        print("\n".join(line for name in names for line in kept(name)))
        return 0
    # The runs on a device come last: llama.cpp keeps a device until the process ends.
    runs = sorted((BY_NAME[name] for name in names), key=lambda run: run.host_share > 0)
    n_different = 0
    with models() as model_of:
        for run in runs:
            lines = log_of(model_of(run), run)
            known = (FOLDER / f"{run.name}.txt.xz").exists()
            changed = difference(run.name, kept(run.name) if known else [], lines)
            n_different += bool(changed)
            if changed:
                print(changed, flush=True)
            if changed and arguments.act == "record":
                keep(run.name, lines)
    if arguments.act == "record":
        for path in FOLDER.glob("*.txt.xz"):
            if path.name.removesuffix(".txt.xz") not in BY_NAME:
                path.unlink()
    print(f"{n_different} of {len(runs)} logs differ")
    return int(arguments.act == "compare" and n_different > 0)


if __name__ == "__main__":
    sys.exit(main())
