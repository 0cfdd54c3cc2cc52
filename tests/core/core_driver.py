"""Plays the live side of a Core: performs its commands; tests end the copies."""

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
class Response:
    """The core's commands after one event, and after the cancels that followed from it."""

    order: list[int] | None = None
    high: list[tuple[int, int]] = field(default_factory=list)  # (expert, chunk) of copies
    low: list[tuple[int, int]] = field(default_factory=list)
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    compute: list[int] = field(default_factory=list)
    gave_up: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)  # of all commands, in order


def chunks_of(*experts: int) -> list[tuple[int, int]]:
    """Return every chunk of these experts, in order."""
    return [(e, c) for e in experts for c in range(len(CHUNK_BYTES))]


def composition(
    *,
    predictor: str = "",
    eviction: str | Spec = "lru",
    scheduler: str = "ordered",
    n_predict: int = 0,
    depth: int = 100,
    weighs: bool = False,
    **numbers: float,
) -> Composition:
    """Return a method of the usual parts, which prefetches at once. numbers: of the scheduler."""
    spec = Spec(scheduler, {name: float(value) for name, value in numbers.items()})
    return Composition(
        Spec(predictor),
        [eviction if isinstance(eviction, Spec) else Spec(eviction)],
        spec,
        spec,
        n_predict=n_predict,
        depth=depth,
        weighs=weighs,
    )


class Driver:
    """A core and its copies in flight. `check()` follows every event."""

    def __init__(
        self,
        n_slot: int | Sequence[int],
        *,
        n_layer: int = 2,
        n_expert: int = 8,
        n_expert_used: int = 2,
        routers: Sequence[NDArray[np.float32]] = (),
        token_experts: Sequence[NDArray[np.int32]] = (),
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
            token_experts=list(token_experts),
        )
        self.layout = layout or Layout.per_layer(slots)
        self.flying: dict[int, Any] = {}  # ticket -> Copy
        self.begun: set[int] = set()  # tickets whose copy cannot be cancelled any more

    # Events.

    def begin(self, phase: Phase = Phase.decode, tokens: Sequence[int] = ()) -> Response:
        return self.perform(self.core.pass_began(phase, list(tokens)))

    def routed(self, layer: int, *experts: int) -> Response:
        self.layer = layer
        cancelled = self.perform(self.core.reached(layer)).cancelled
        response = self.perform(self.core.routed(layer, list(experts)))
        response.cancelled = cancelled + response.cancelled
        return response

    def predicted(self, layer: int, *experts: int) -> Response:
        return self.perform(self.core.predicted(layer, list(experts)))

    def gate_seen(self, layer: int, rows: NDArray[np.float32]) -> Response:
        return self.perform(self.core.gate_seen(layer, np.ascontiguousarray(rows, np.float32)))

    def computed(self, expert: int, part: Part = Part.top) -> Response:
        return self.perform(self.core.computed(self.layer, expert, part))

    def aborted(self) -> Response:
        return self.perform(self.core.aborted())

    def arrive(self, expert: int, chunk: int = WHOLE, layer: int | None = None) -> Response:
        """End a copy with success. WHOLE: every copy of the expert in flight."""
        return self._end(self.core.copied, expert, chunk, layer)

    def fail(self, expert: int, chunk: int = WHOLE, layer: int | None = None) -> Response:
        return self._end(self.core.failed, expert, chunk, layer)

    def start(self, expert: int, chunk: int = WHOLE, layer: int | None = None) -> None:
        """Begin a copy. It can no longer be cancelled."""
        self.begun.update(self._tickets(expert, chunk, layer))

    def make_resident(self, layer: int, *experts: int) -> None:
        """Run a pass in which the layer needs these experts. All arrive and are computed."""
        self.begin()
        waiting = list(self.routed(layer, *experts).compute)
        while not self.core.idle():
            if waiting:
                waiting += self.computed(waiting.pop(0)).compute
            else:
                waiting += self.end_next()
        self.settle()

    def make_cut_resident(self, layer: int, *experts: int) -> None:
        """As make_resident(), for experts in two parts."""
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
        """End all copies in flight."""
        while self.flying:
            self.end_next()

    def end_next(self) -> list[int]:
        ticket = next(iter(self.flying))
        del self.flying[ticket]
        return self.perform(self.core.copied(ticket)).compute

    # State of the core.

    def slots(self, layer: int = 0) -> list[tuple[str, int, bool]]:
        """Return (state, expert, pinned) of the slots of the layer's pool or share of a pool."""
        part = Part.top if self.layout.layers[layer].pool[0] >= 0 else Part.bottom
        pool = self.layout.layers[layer].pool[0 if part == Part.top else 1]
        return [
            (state, expert, pinned)
            for state, of, _, expert, pinned in self.core.slots(pool)
            if of in (layer, -1)
        ]

    def state(self, expert: int, layer: int = 0) -> str:
        """Return the state of the expert's slot, or "absent"."""
        return next((s for s, e, _ in self.slots(layer) if e == expert), "absent")

    def pinned(self, layer: int = 0) -> set[int]:
        return {e for _, e, pinned in self.slots(layer) if pinned}

    def held(self, layer: int = 0) -> set[int]:
        """Return the experts that are resident or in flight."""
        return {e for _, e, _ in self.slots(layer) if e >= 0}

    def n_state(self, state: str, layer: int = 0) -> int:
        return sum(s == state for s, _, _ in self.slots(layer))

    def counts(self, layer: int = 0) -> Any:
        return self.core.counts(layer)

    def flights(self, layer: int = 0) -> list[tuple[int, int]]:
        return [(c.expert, c.chunk) for c in self.flying.values() if c.layer == layer]

    # Commands.

    def perform(self, commands: list[Any]) -> Response:
        response, todo = Response(), list(commands)
        while todo:
            command = todo.pop(0)
            response.kinds.append(type(command).__name__)
            if isinstance(command, _native.Copy):
                assert command.ticket not in self.flying
                self.flying[command.ticket] = command
                urgent = command.urgency == _native.Urgency.high
                (response.high if urgent else response.low).append((command.expert, command.chunk))
            elif isinstance(command, _native.Cancel):
                copy = self.flying[command.ticket]
                response.cancelled.append((copy.expert, copy.chunk))
                if command.ticket not in self.begun:
                    del self.flying[command.ticket]
                    todo += self.core.cancelled(command.ticket)
            elif isinstance(command, _native.Order):
                response.order = list(command.experts)
            elif isinstance(command, _native.Compute):
                of = self.layout.layers[command.layer]
                pools = {Part.top: of.pool[0], Part.bottom: of.pool[1], Part.staged: of.stage}
                slot = self.core.slots(pools[command.part])[command.slot]
                assert slot == ("ready", command.layer, command.part, command.expert, True)
                response.compute.append(command.expert)
            else:
                assert isinstance(command, _native.GiveUp)
                response.gave_up.append(command.expert)
        self.core.check()
        return response

    def _tickets(self, expert: int, chunk: int, layer: int | None) -> list[int]:
        found = [
            t
            for t, c in self.flying.items()
            if c.expert == expert and chunk in (WHOLE, c.chunk) and layer in (None, c.layer)
        ]
        assert found, f"no copy of expert {expert}, chunk {chunk} flies"
        return found

    def _end(self, event: Any, expert: int, chunk: int, layer: int | None) -> Response:
        response = Response()
        for ticket in self._tickets(expert, chunk, layer):
            del self.flying[ticket]
            more = self.perform(event(ticket))
            for name, value in vars(more).items():
                if isinstance(value, list):
                    getattr(response, name).extend(value)
        return response
