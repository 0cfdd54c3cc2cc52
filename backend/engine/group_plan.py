"""Decides how many requests a group has (Klotski, section 7: the I/O-compute planner).

A pass of n sequences computes n tokens of attention and gate, and its experts for all tokens at
once, while experts are read. The dense weights stay in memory, so that only experts are read. With
K experts that are fetched ahead of the gate, Q further ones that a layer needs, t_c(n) times of
computing and t_io the time to read one expert, the paper's inequalities for a layer are

    (4)  n (t_A + t_G)                           >= 0
    (5)  n (t_A + t_G)                           >= K t_io
    (6)  n (t_A + t_G) + t_hot(n)                >= (K + 1) t_io
    (7)  n (t_A + t_G) + t_hot(n) + sum_Q t_E(n) >= (K + |Q|) t_io

The smallest n that fulfils them leaves no time in which only the drive works. On a processor a
larger n still gains, because a token of many takes less time to compute than one alone. So the plan
goes on to the smallest n whose predicted speed is within 1 % of the best.

Nothing is computed for a plan. The times come from the passes of earlier groups (GroupWatch). A
first group has as many sequences as memory permits, up to 64, or 63 where _N_TILED binds, and no
more than its number of rounds needs.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from backend.engine.kept_states import n_equal
from backend.engine.runner import Runner
from backend.engine.scheduler import SHARED_TOKENS_MIN
from backend.gguf.tables import CACHE_FOR_EACH, CELL_STEP, ONE_SEQUENCE
from backend.machines import kept
from backend.memory.plan import KvCache, headroom_bytes, kv_bytes
from backend.methods.cost import PassCost
from backend.protocol.settings import EngineConfig
from backend.system.memory import available_bytes
from backend.system.paths import cache_folder
from backend.text import Text, joined, text

if TYPE_CHECKING:
    from backend.engine.engine import Engine

N_MOST = 255
_FILE = "groups.json"
_VERSION = 3  # of the measurements
_N_FIRST_MOST = 64
"""Sequences of a group of which nothing is known: no sweep went further."""
_N_TILED = 64
"""Rows of a pass from which llama.cpp's attention on the processor, with an f16 cache, computes
tiles: every row then computes all cells of the context. Fewer rows pass over those of other
sequences (ggml-cpu/ops.cpp, GGML_FA_TILE_Q). No plan goes so far: 64 rows took 1.28 times the
processor time of 32."""
_N_PASS = 4
"""Passes of a number of sequences that make a row, and passes of each side of a trial."""
_N_SETTLE = 2
"""Passes after a change that do not count: the cache fills."""
_KNOWN = 0.75
"""Share of the possible sequences from which on a plan believes the times of fewer."""
_N_ROW_MOST = 12
_NEAR = 0.99
"""Share of the best predicted speed that ends the search for a larger group."""
_WHOLE = "klotski-layers"
"""The method that reads the next layer whole while one is computed, and keeps leading layers."""
_ADAPTS = ("auto", "klotski")
"""Methods whose group may use that one, if it was measured to be faster."""
_N_MANY = 16
"""Sequences from which on it is tried: fewer need too few of a layer's experts."""
_WORTH = 1.03
_N_STREAM = 8
_N_CELL_MOST = 1 << 24
"""Cells of the longest context (EngineConfig.context_length)."""
_N_MEASURED = 64
"""Attention caches whose size tells that of one: llama.cpp rounds up."""
_KV_SHARE = 0.8
"""Share of the free memory that the attention caches may take."""
_HEADROOM_SHARE = 0.25
"""Most of the free memory that stays free for others, where little is free."""


@dataclass(frozen=True)
class Measured:
    """Decoding with n sequences: seconds and counts of one MoE layer, the mean over all.

    dense_s: attention, gate and all other parts that are no experts. expert_s: all experts.
    n_expert: experts that were needed. wait_s: reading that no computation hid.
    """

    n: int
    dense_s: float
    expert_s: float
    n_expert: float
    wait_s: float = 0.0

    @property
    def layer_s(self) -> float:
        """The seconds of the layer, as they were measured."""
        return self.dense_s + self.expert_s + self.wait_s


@dataclass(frozen=True)
class GroupTimes:
    """A model's times on this machine. read_s: reading one expert; 0: none is read.

    rows: by number of sequences, ascending. n_layer, n_used: MoE layers, experts of one token.
    read_share: the share of the needed experts that has to be read.
    """

    rows: tuple[Measured, ...]
    n_layer: int
    n_expert: int
    n_used: int
    read_s: float
    read_share: float

    def at(self, n: int) -> Measured:
        """Return a row for any n: linear between measured ones, then along their trend.

        The number of experts grows towards that of all experts.
        """
        sizes = [row.n for row in self.rows]
        dense = _line(sizes, [row.dense_s for row in self.rows], n)
        expert = _line(sizes, [row.expert_s for row in self.rows], n)
        last, wait = self.rows[-1], float(np.interp(n, sizes, [row.wait_s for row in self.rows]))
        if n <= last.n:
            needed = _line(sizes, [row.n_expert for row in self.rows], n)
            return Measured(n, dense, expert, needed, wait)
        # If tokens chose at random, (1 - k/E)^n of the experts would not be needed.
        of = max(float(self.n_expert), last.n_expert, 1.0)
        unused = max(1 - last.n_expert / of, 0.0)
        return Measured(n, dense, expert, of * (1 - unused ** (n / last.n)), wait)

    def layer_s(self, n: int) -> float:
        """Return the seconds of a layer: computing and reading overlap as far as was measured."""
        row = self.at(n)
        reading = row.n_expert * self.read_share * self.read_s
        return max(row.layer_s, reading)

    def speed(self, n: int) -> float:
        """Return tokens per second of all MoE layers, without the rest of a pass."""
        return n / (self.n_layer * self.layer_s(n))

    def lacking(self, n: int) -> int:
        """Return the number of the first of the inequalities 5 to 7 that n does not fulfil, or 0.

        An expert in memory takes no time to read, so the time to read one counts by its share.
        """
        row, reading_s = self.at(n), self.read_share * self.read_s
        n_hot = min(self.n_used, row.n_expert)
        n_further = max(row.n_expert - n_hot, 0.0)
        # A hot expert has more tokens than the mean one: this counts too little for it.
        hot_s = row.expert_s * n_hot / max(row.n_expert, 1.0)
        if row.dense_s < n_hot * reading_s:
            return 5
        if row.dense_s + hot_s < (n_hot + min(n_further, 1.0)) * reading_s:
            return 6
        if row.dense_s + row.expert_s < (n_hot + n_further) * reading_s:
            return 7
        return 0


@dataclass(frozen=True)
class GroupPlan:
    """How a group runs. n: requests at once. config: the engine's settings for it.

    times: the measurements behind the plan; None if there are none.
    """

    n: int
    config: EngineConfig
    sentence: Text | str
    times: GroupTimes | None = None


def choose(times: GroupTimes, n_most: int) -> tuple[int, int, int]:
    """Return (n, n_paper, the inequality that binds).

    n_paper: the smallest n that fulfils all inequalities, 0 if none up to n_most does. The one that
    binds is the last one that a smaller n did not fulfil; 0 if n = 1 fulfils all.
    """
    n_paper, binding = 0, 0
    for n in range(1, n_most + 1):
        lacking = times.lacking(n)
        if not lacking:
            n_paper = n
            break
        binding = lacking
    best = max(times.speed(n) for n in range(1, n_most + 1))
    fast = next(n for n in range(1, n_most + 1) if times.speed(n) >= _NEAR * best)
    return max(n_paper, fast), n_paper, binding


def plan_group(engine: Engine, n_asked: int, n_cell: int, n_request: int) -> GroupPlan:
    """Plan a group of the engine's model. Raises EngineError.

    n_asked: the number of sequences, 0: the best one. n_cell: cells of the context for one request.
    n_request: all requests there are, at least one.
    """
    if engine.file.architecture in ONE_SEQUENCE:
        return GroupPlan(1, _config(engine, 1, n_cell), text("engine.one_sequence"))
    most = min(_memory_most(engine, n_cell), N_MOST, n_request)
    if not n_asked and engine.loaded.plan.devices is None and engine.loaded.config.kv_type == "f16":
        most = min(most, _N_TILED - 1)
    if not n_asked and n_request > 1:  # rounds of equal size: a last one of few would be slow
        most = math.ceil(n_request / math.ceil(n_request / most))
    if n_asked:
        n = max(min(n_asked, most), 1)
        why = text("group.asked", n=n)
        if n < min(n_asked, n_request):
            why = text("group.memory", n=n, asked=n_asked, cells=n_cell)
        return GroupPlan(n, _config(engine, n, n_cell), why)
    if most == 1:
        return GroupPlan(1, _config(engine, 1, n_cell), text("group.one", cells=n_cell))
    known = kept.read(_FILE)
    method = engine.loaded.config.method
    times, whole = (_of_json(known.get(_key(engine, m))) for m in (method, _WHOLE))
    if times is None or times.rows[-1].n < _KNOWN * min(most, _N_FIRST_MOST):
        n = min(most, _N_FIRST_MOST)
        return GroupPlan(n, _config(engine, n, n_cell), text("group.first", n=n))
    n, n_paper, binding = choose(times, most)
    how: Text | str = ""
    if method in _ADAPTS and whole is not None and most >= _N_MANY:
        n_both = min(most, times.rows[-1].n, whole.rows[-1].n)
        if n_both >= _N_MANY and times.layer_s(n_both) > _WORTH * whole.layer_s(n_both):
            method, times, how = _WHOLE, whole, text("group.whole")
            n, n_paper, binding = choose(times, most)
    config = replace(_config(engine, n, n_cell), method=method)
    sentence = joined(_sentence(n, n_paper, binding, most), how)
    return GroupPlan(n, config, sentence, times)


def streams_pay(prompts: Sequence[Sequence[int]], n_answer: int) -> bool:
    """Return whether a group that begins and ends together runs faster with streams.

    prompts: the tokens of all its prompts. n_answer: the shortest limit of an answer.

    With streams, every sequence has an attention cache of its own, so that a token does not pass
    over the others' cells. Measured (docs/log/groups.md): decoding takes 0.87 of the time with 8
    sequences, 0.77 with 16, and no less with fewer; prompts of equal length take 1.04 and 1.56 of
    it, so that a group gains where answers are longer than a third of the prompts. Prompts of other
    lengths need a pass for each length, and a shared beginning is computed for each (up to six
    times as long).
    """
    if len(prompts) < _N_STREAM or {len(prompt) for prompt in prompts} != {len(prompts[0])}:
        return False
    if n_answer < len(prompts[0]):  # most answers end before their limit
        return False
    shared = min(n_equal(prompts[0], prompt) for prompt in prompts[1:])
    return shared < SHARED_TOKENS_MIN


def with_streams(engine: Engine, made: GroupPlan, n_cell: int) -> GroupPlan:
    """Return the plan with streams of n_cell cells, or as it is where they do not fit."""
    n_cell = -(-n_cell // CELL_STEP) * CELL_STEP
    if engine.loaded.context.cuts_batches or _memory_most(engine, n_cell) < made.n:
        return made
    config = made.config.changed(streams=True, context_length=made.n * n_cell)
    return replace(made, config=config, sentence=joined(made.sentence, text("group.streams")))


def _sentence(n: int, n_paper: int, binding: int, most: int) -> Text:
    if n_paper == 0:
        return text("group.reading", n=n, binding=binding)
    if n == n_paper:
        return text("group.paper", n=n, binding=binding)
    if n == most:
        return text("group.most", n=n, n_paper=n_paper)
    return text("group.faster", n=n, n_paper=n_paper)


def _config(engine: Engine, n: int, n_cell: int) -> EngineConfig:
    config = engine.loaded.config
    return config.changed(n_sequence=n, context_length=n * n_cell, automatic=False)


def _memory_most(engine: Engine, n_cell: int) -> int:
    """Return how many attention caches of n_cell cells fit beside the model, or on the drive."""
    # Each has a window and states of its own.
    n_sequence = 1 if engine.file.architecture in CACHE_FOR_EACH else _N_MEASURED + 1
    return max(int(_cells_in_memory(engine, n_cell, n_sequence) / n_cell), 1)


def cells_most(engine: Engine) -> int:
    """Return the most cells that a request can use: those that fit, within the trained context."""
    n_fit = int(_cells_in_memory(engine, CELL_STEP))
    trained = engine.model.trained_length or _N_CELL_MOST
    return max(min(n_fit, trained, _N_CELL_MOST), CELL_STEP)


def _cells_in_memory(engine: Engine, n_cell: int, n_sequence: int = 1) -> float:
    """Return how many cells fit in attention caches of n_cell each.

    The size of one is that of _N_MEASURED in a context of n_sequence sequences, divided.
    """
    loaded = engine.loaded
    cache = KvCache(loaded.config.kv_type, n_sequence)
    free_bytes = max(available_bytes() - loaded.untouched_bytes(), 0)
    room_bytes = free_bytes - min(headroom_bytes(free_bytes), _HEADROOM_SHARE * free_bytes)
    if loaded.config.setup.kv_on_drive:
        room_bytes = shutil.disk_usage(cache_folder()).free
    all_bytes = kv_bytes(engine.file, _N_MEASURED * n_cell, cache)
    return n_cell * _KV_SHARE * room_bytes / max(all_bytes / _N_MEASURED, 1)


def _key(engine: Engine, method: str) -> str:
    """Return what the times of a method depend on."""
    cache, config = engine.cache, engine.loaded.config
    model = engine.file.fingerprint, method, f"{cache.rate:.4f}", cache.layout, cache.pack
    how = _VERSION, cache.device, cache.hybrid, engine.loaded.plan.n_thread, config.kv_type
    return "|".join(map(str, (*model, *how)))


def _of_json(data: object) -> GroupTimes | None:
    if not isinstance(data, dict):
        return None
    try:
        rows = tuple(Measured(**row) for row in data["rows"])
        return GroupTimes(**{**data, "rows": rows}) if rows else None
    except (TypeError, KeyError):
        return None


class GroupWatch:
    """Learns the times of a group from its own passes, and tries to read whole layers.

    Create it before the group's settings are in force, let it observe() after each pass, and end()
    after the last one. The trial begins when a group of _N_MANY or more has shown its speed: the
    cache is rebuilt between two passes, experts that fit stay, and the slower method is left again.
    Passes of a trial are those of the answers, so it costs the difference only. It changes no bit.
    """

    def __init__(self, engine: Engine, made: GroupPlan) -> None:
        self._engine = engine
        self._own = self._method = made.config.method
        self._key = {m: _key(engine, m) for m in (self._own, _WHOLE)}
        self._costs: dict[str, dict[int, list[tuple[PassCost, float]]]] = {}
        self._n_settle = _N_SETTLE
        known = _of_json(kept.read(_FILE).get(self._key[_WHOLE]))
        self._may_try = self._own in _ADAPTS and not (known and known.rows[-1].n >= _N_MANY)

    def observe(self, runner: Runner) -> None:
        """Observe the pass that has ended, and change the method where that is faster.

        Raises EngineError.
        """
        n = runner.n_decoded
        if not n:
            return
        if self._n_settle:
            self._n_settle -= 1
            return
        meter = self._engine.passes.meter
        costs = self._costs.setdefault(self._method, {}).setdefault(n, [])
        costs.append((meter.token, meter.token_wave_s))
        del costs[:-_N_ROW_MOST]
        if not self._may_try or n < _N_MANY or self._n_many(self._method) < _N_PASS:
            return
        if self._method == self._own:
            if any(cost.stall_s > 0 for cost, _ in costs):
                self._change(_WHOLE)
            return
        self._may_try = False
        if self._token_s(self._own) <= _WORTH * self._token_s(_WHOLE):
            self._change(self._own)

    def _n_many(self, method: str) -> int:
        """Return the passes with many sequences."""
        return sum(len(of) for n, of in self._costs[method].items() if n >= _N_MANY)

    def _token_s(self, method: str) -> float:
        """Return the median seconds of a token in passes with many sequences."""
        costs = self._costs[method].items()
        return median(cost.wall_s / n for n, of in costs if n >= _N_MANY for cost, _ in of)

    def _change(self, method: str) -> None:
        config = replace(self._engine.loaded.config, method=method)
        if not self._engine.passes.rebuild(config):
            self._may_try = False
            return
        self._method, self._n_settle = method, _N_SETTLE

    def end(self) -> None:
        """Keep the measurements for the next plan."""
        known = kept.read(_FILE)
        for method, costs in self._costs.items():
            if rows := {n: of for n, of in costs.items() if len(of) >= _N_PASS}:
                times = _with_rows(_of_json(known.get(self._key[method])), self._engine, rows)
                known = {**known, self._key[method]: asdict(times)}
        kept.write(_FILE, known)


def _with_rows(
    earlier: GroupTimes | None,
    engine: Engine,
    costs_of: Mapping[int, Sequence[tuple[PassCost, float]]],
) -> GroupTimes:
    """Return the times of these passes, by number of sequences, and of earlier ones."""
    n_moe = max(engine.file.n_moe_layer, 1)
    rows = {row.n: row for row in earlier.rows} if earlier is not None else {}
    read_bytes, busy_s, wanted = 0, 0.0, 0
    for n, costs in costs_of.items():
        one = [cost for cost, _ in costs]
        # Medians, because other programs hold up some passes.
        wave_s = median(wave for _, wave in costs)
        compute_s, wait_s = median(c.compute_s for c in one), median(c.stall_s for c in one)
        needed = sum(c.hits + c.late + c.misses for c in one) / len(one)
        experts = needed / n_moe if needed else float(engine.file.n_expert_used)
        # Layers without a miss are computed in one piece, with the experts.
        dense_s = max(compute_s - wave_s, 0.0)
        rows[n] = Measured(n, dense_s / n_moe, wave_s / n_moe, experts, wait_s / n_moe)
        read_bytes += sum(c.bytes_read for c in one)
        busy_s += sum(c.link_busy_s for c in one)
        wanted += sum(c.hits + c.late + c.misses for c in one)
    expert_bytes = engine.file.expert_bytes_total / max(n_moe * engine.file.n_expert, 1)
    read_s = expert_bytes * busy_s / read_bytes if read_bytes else 0.0
    share = min(read_bytes / expert_bytes / wanted, 1.0) if wanted and expert_bytes else 0.0
    every = tuple(rows[n] for n in sorted(rows))
    return GroupTimes(every, n_moe, engine.file.n_expert, engine.file.n_expert_used, read_s, share)


def _line(sizes: Sequence[int], values: Sequence[float], n: int) -> float:
    """Interpolate between measured values; above the last one, go on as between the last two."""
    if n <= sizes[-1] or len(sizes) == 1:
        at = float(np.interp(n, sizes, values))
        return at if n <= sizes[-1] else at * n / sizes[-1]
    slope = (values[-1] - values[-2]) / (sizes[-1] - sizes[-2])
    return values[-1] + max(slope, 0.0) * (n - sizes[-1])
