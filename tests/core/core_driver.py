"""Plays the live side for a Core: performs its commands, and ends copies when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import _native
from backend._native import Composition, Core, Layout, Part, Phase, Shape, Spec

CHUNK_BYTES = [100, 20, 3]
"""Sums of these tell which chunks they are of."""
EXPERT_BYTES = sum(CHUNK_BYTES)
WHOLE = _native.WHOLE_EXPERT


@dataclass
class Said:
    """What the core answered to one event, with what followed from cancels that were honoured."""

    order: list[int] | None = None
    high: list[tuple[int, int]] = field(default_factory=list)  # (expert, chunk) of copies
    low: list[tuple[int, int]] = field(default_factory=list)
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    compute: list[int] = field(default_factory=list)
    gave_up: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)  # of all commands, in order


def chunks_of(*experts: int) -> list[tuple[int, int]]:
    """Every chunk of these experts, in order."""
    return [(e, c) for e in experts for c in range(len(CHUNK_BYTES))]


def composition(
    *,
    predictor: str = "",
    eviction: str = "lru",
    scheduler: str = "ordered",
    n_predict: int = 0,
    depth: int = 100,
    **numbers: float,
) -> Composition:
    """A method of the usual parts; numbers are the scheduler's; forecasts are fetched at once."""
    spec = Spec(scheduler, {name: float(value) for name, value in numbers.items()})
    return Composition(
        Spec(predictor), [Spec(eviction)], spec, spec, n_predict=n_predict, depth=depth
    )


class Driver:
    """One core and what is on its way to it. `check()` follows every event."""

    def __init__(
        self,
        n_slot: int | Sequence[int],
        *,
        n_layer: int = 2,
        n_expert: int = 8,
        n_expert_used: int = 2,
        routers: Sequence[NDArray[np.float32]] = (),
        n_predict: int = 0,
        chunks: bool = True,
        early_preemption: bool = True,
        reorder: bool = True,
        layout: Layout | None = None,
        **scheduler: Any,
    ) -> None:
        switches = {"chunks": chunks, "early_preemption": early_preemption, "reorder": reorder}
        slots = [n_slot] * n_layer if isinstance(n_slot, int) else list(n_slot)
        self.core = Core(
            Shape(n_expert, n_expert_used, [CHUNK_BYTES] * n_layer, n_cut=[2] * n_layer),
            layout or Layout.per_layer(slots),
            composition(
                n_predict=n_predict,
                predictor="next_router" if routers else "",
                **(scheduler if "scheduler" in scheduler else switches | scheduler),
            ),
            routers=list(routers),
        )
        self.layout = layout or Layout.per_layer(slots)
        self.flying: dict[int, Any] = {}  # ticket -> Copy
        self.begun: set[int] = set()  # tickets whose copy cannot be cancelled any more

    # Events.

    def begin(self, phase: Phase = Phase.decode) -> None:
        self.core.pass_began(phase)
        self.core.check()

    def routed(self, layer: int, *experts: int) -> Said:
        self.layer = layer
        return self.obey(self.core.routed(layer, list(experts)))

    def predicted(self, layer: int, *experts: int) -> Said:
        return self.obey(self.core.predicted(layer, list(experts)))

    def gate_seen(self, layer: int, rows: NDArray[np.float32]) -> Said:
        return self.obey(self.core.gate_seen(layer, np.ascontiguousarray(rows, np.float32)))

    def computed(self, expert: int, part: Part = Part.top) -> Said:
        return self.obey(self.core.computed(self.layer, expert, part))

    def aborted(self) -> Said:
        return self.obey(self.core.aborted())

    def arrive(self, expert: int, chunk: int = WHOLE, layer: int | None = None) -> Said:
        """A copy ends well; WHOLE: every copy of the expert that flies at this moment."""
        return self._end(self.core.copied, expert, chunk, layer)

    def fail(self, expert: int, chunk: int = WHOLE, layer: int | None = None) -> Said:
        return self._end(self.core.failed, expert, chunk, layer)

    def start(self, expert: int, chunk: int = WHOLE, layer: int | None = None) -> None:
        """A copy has begun: a cancel comes too late for it."""
        self.begun.update(self._tickets(expert, chunk, layer))

    def bring(self, layer: int, *experts: int) -> None:
        """One pass in which the layer needs these; all arrive and are computed."""
        self.begin()
        waiting = list(self.routed(layer, *experts).compute)
        while not self.core.idle():
            if waiting:
                waiting += self.computed(waiting.pop(0)).compute
            else:
                waiting += self.end_next()
        self.settle()

    def bring_cut(self, layer: int, *experts: int) -> None:
        """As bring(), for experts in two parts."""
        self.begin()
        todo = self.core.routed(layer, list(experts))
        while todo:
            command = todo.pop(0)
            if isinstance(command, _native.Copy):
                todo += self.core.copied(command.ticket)
            elif isinstance(command, _native.Compute):
                todo += self.core.computed(layer, command.expert, command.part)
            self.core.check()
        assert self.core.idle()

    def settle(self) -> None:
        """Everything that flies arrives."""
        while self.flying:
            self.end_next()

    def end_next(self) -> list[int]:
        ticket = next(iter(self.flying))
        del self.flying[ticket]
        return self.obey(self.core.copied(ticket)).compute

    # What the core knows.

    def slots(self, layer: int = 0) -> list[tuple[str, int, bool]]:
        """(state, expert, pinned) of the slots of the layer's own pool, or of its share of one."""
        part = Part.top if self.layout.layers[layer].pool[0] >= 0 else Part.bottom
        pool = self.layout.layers[layer].pool[0 if part == Part.top else 1]
        return [
            (state, expert, pinned)
            for state, of, _, expert, pinned in self.core.slots(pool)
            if of in (layer, -1)
        ]

    def state(self, expert: int, layer: int = 0) -> str:
        """The state of the slot that holds or awaits the expert; "absent" without one."""
        return next((s for s, e, _ in self.slots(layer) if e == expert), "absent")

    def pinned(self, layer: int = 0) -> set[int]:
        return {e for _, e, pinned in self.slots(layer) if pinned}

    def held(self, layer: int = 0) -> set[int]:
        """The experts that are resident or arriving."""
        return {e for _, e, _ in self.slots(layer) if e >= 0}

    def n_state(self, state: str, layer: int = 0) -> int:
        return sum(s == state for s, _, _ in self.slots(layer))

    def counts(self, layer: int = 0) -> Any:
        return self.core.counts(layer)

    def flights(self, layer: int = 0) -> list[tuple[int, int]]:
        return [(c.expert, c.chunk) for c in self.flying.values() if c.layer == layer]

    # Commands.

    def obey(self, commands: list[Any]) -> Said:
        said, todo = Said(), list(commands)
        while todo:
            command = todo.pop(0)
            said.kinds.append(type(command).__name__)
            if isinstance(command, _native.Copy):
                assert command.ticket not in self.flying
                self.flying[command.ticket] = command
                urgent = command.urgency == _native.Urgency.high
                (said.high if urgent else said.low).append((command.expert, command.chunk))
            elif isinstance(command, _native.Cancel):
                copy = self.flying[command.ticket]
                said.cancelled.append((copy.expert, copy.chunk))
                if command.ticket not in self.begun:
                    del self.flying[command.ticket]
                    todo += self.core.cancelled(command.ticket)
            elif isinstance(command, _native.Order):
                said.order = list(command.experts)
            elif isinstance(command, _native.Compute):
                of = self.layout.layers[command.layer]
                pools = {Part.top: of.pool[0], Part.bottom: of.pool[1], Part.staged: of.stage}
                slot = self.core.slots(pools[command.part])[command.slot]
                assert slot == ("ready", command.layer, command.part, command.expert, True)
                said.compute.append(command.expert)
            else:
                assert isinstance(command, _native.GiveUp)
                said.gave_up.append(command.expert)
        self.core.check()
        return said

    def _tickets(self, expert: int, chunk: int, layer: int | None) -> list[int]:
        found = [
            t
            for t, c in self.flying.items()
            if c.expert == expert and chunk in (WHOLE, c.chunk) and layer in (None, c.layer)
        ]
        assert found, f"no copy of expert {expert}, chunk {chunk} flies"
        return found

    def _end(self, event: Any, expert: int, chunk: int, layer: int | None) -> Said:
        said = Said()
        for ticket in self._tickets(expert, chunk, layer):
            del self.flying[ticket]
            more = self.obey(event(ticket))
            for name, value in vars(more).items():
                if isinstance(value, list):
                    getattr(said, name).extend(value)
        return said
