"""Simulate the real methods' cores deterministically: random routings, forecasts, faults and stops.

`simulate(seed)` builds a core of a method of the catalogue and plays the live side at random: the
order in which copies begin, end or fail, in which experts are computed, cancelled passes, tunings,
measured speeds, and experts that can never be read. A model of the memory (test_core_properties)
requires that every command is legal, that nothing is computed on bytes that have not arrived, that
every slot is accounted for, and that every layer ends.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
from core_driver import CHUNK_BYTES, WHOLE
from test_core_properties import Memory, own

from backend import _native
from backend._native import Core, HostSpeeds, Part, Phase, Route, Shape, Tuning
from backend.methods import compose
from backend.methods.catalogue import CACHED, METHODS

N_EMBD = 4
_ALL_CHUNKS = range(len(CHUNK_BYTES))
_N_STEP_MAX = 20_000


class Simulation:
    """A core, the model of its memory, and passes through its layers."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(f"core {seed}")
        self.method = METHODS[CACHED[seed % len(CACHED)]]
        self.n_layer = chance.randint(1, 4)
        self.n_expert = chance.choice((4, 6, 8, 12))
        self.n_used = chance.randint(1, min(4, self.n_expert - 1))
        self.shape = Shape(
            self.n_expert, self.n_used, [CHUNK_BYTES] * self.n_layer, n_cut=[4] * self.n_layer
        )
        n_slot = chance.randint(self.n_used, self.n_expert)
        n_stage = chance.choice((0, 0, self.n_used, self.n_expert))
        self.layout = compose.layout(self.method, self.shape, n_slot, n_stage)
        self.parts = [
            [p for p, pool in zip((Part.top, Part.bottom), of.pool, strict=True) if pool >= 0]
            for of in self.layout.layers
        ]
        cut = self.layout.any_cut()
        hybrid = "off" if cut else chance.choice(("off", "off", "auto", "cpu-only"))
        self.has_host = not cut and chance.random() < 0.3
        n_host = chance.randint(self.n_used, self.n_expert)
        rng = np.random.default_rng(seed)
        routers = rng.standard_normal((self.n_layer, self.n_expert, N_EMBD)).astype(np.float32)
        self.core = Core(
            self.shape,
            self.layout,
            compose.composition(self.method, self.shape, hybrid=hybrid),
            n_embd=N_EMBD,
            routers=list(routers),
            host_slots=[n_host] * self.n_layer if self.has_host else [],
        )
        self.is_hybrid = hybrid != "off"
        self.memory = Memory(self.layout)
        self.host: dict[tuple[int, int], list[int | None]] = {}  # by layer and slot of the store
        self.flights: dict[int, Any] = {}
        self.begun: set[int] = set()
        self.cancelled: set[int] = set()
        self.ended: list[tuple[int, bool]] = []  # copies that the core has not heard of: failed?
        self.unreadable: set[tuple[int, int]] = set()  # layer and expert
        self.layer = -1
        self.todo: set[tuple[int, Part]] = set()
        self.ready: list[Any] = []  # Compute of the device
        self.on_host: list[Any] = []  # Compute of the host, in order
        self.host_begun: set[int] = set()
        self.slot_of: dict[tuple[int, Part], Any] = {}
        self.n_request = [0] * self.n_layer
        self.gave_up = False
        self.n_aborted = 0
        self.log: list[str] = []

    def run(self, n_pass: int) -> None:
        """Run passes; at the end, let all copies end."""
        for _ in range(n_pass):
            self._between()
            self._pass()
        for ticket in list(self.flights):
            if ticket in self.flights:
                self._settle(ticket)
        assert self.core.idle() and not self.flights

    # The live side.

    def _between(self) -> None:
        chance = self.chance
        if chance.random() < 0.3:
            self.core.request_began()
        if chance.random() < 0.2:
            self.core.tune(
                Tuning(
                    prefetch=chance.random() < 0.7,
                    depth=chance.randint(1, 4),
                    copy_cost=chance.choice((0.0, 0.5, 0.9)),
                    eviction=chance.randrange(len(self.method.evictions)),
                )
            )
        if self.is_hybrid and chance.random() < 0.4:
            self.core.measured([self._speeds() for _ in range(self.n_layer)])
        if chance.random() < 0.1:
            self.unreadable = {(chance.randrange(self.n_layer), chance.randrange(self.n_expert))}
        elif chance.random() < 0.3:
            self.unreadable = set()

    def _speeds(self) -> HostSpeeds:
        chance = self.chance
        return HostSpeeds(
            possible=chance.random() < 0.9,
            link_us_per_byte=chance.choice((0.0, 0.5, 1.0, 100.0)),
            host_us_per_byte=chance.choice((0.0, 0.5, 1.0, 100.0)),
            device_us_per_byte=chance.choice((0.0, 0.1)),
        )

    def _pass(self) -> None:
        chance = self.chance
        decodes = chance.random() < 0.7
        n_token = 1 if decodes else chance.randint(1, 6)
        tokens = [chance.randrange(50) for _ in range(n_token)] if chance.random() < 0.8 else []
        self.layer, self.gave_up = -1, False
        self._perform(
            self.core.pass_began(Phase.decode if decodes else Phase.prefill, tokens) or []
        )
        for layer in range(self.n_layer):
            self.layer = layer
            if self.core.may_skip(layer) and chance.random() < 0.5:
                self._perform(self.core.unasked(layer, n_token) or [])
                self.n_request[layer] += min(self.n_expert, n_token * self.n_used)
                self._check()
                continue
            self._route(layer, n_token)
            if not self._finish_layer() or chance.random() < 0.02:
                self._abort()
                return
            if chance.random() < 0.2:
                n = chance.randint(1, self.n_expert)
                forecast = chance.sample(range(self.n_expert), n)
                self._perform(self.core.predicted(chance.randrange(self.n_layer), forecast))

    def _route(self, layer: int, n_token: int) -> None:
        chance = self.chance
        popular = chance.sample(range(self.n_expert), min(self.n_expert, self.n_used + 2))
        ids: list[int] = []
        for _ in range(n_token):
            some = range(self.n_expert) if chance.random() < 0.4 else popular
            ids += chance.sample(some, self.n_used)
        self.todo = {(e, p) for e in ids for p in self.parts[layer]}
        self.n_request[layer] += len(self.todo)
        weights = [chance.random() for _ in ids]
        self._perform(self.core.reached(layer))
        self._perform(self.core.routed(layer, ids, weights))
        if self.core.wants_gate_input():
            rows = np.array(
                [[chance.gauss(0, 1) for _ in range(N_EMBD)] for _ in range(n_token)], np.float32
            )
            self._perform(self.core.gate_seen(layer, rows))
        self._check()

    def _finish_layer(self) -> bool:
        """Let random things happen until the layer is computed. Return False if it will not be."""
        for _ in range(_N_STEP_MAX):
            if self.gave_up:
                return False
            if not self.todo:
                return True
            if self.chance.random() < 0.003:
                return False  # the user stops
            self._step()
            self._check()
        raise AssertionError("the layer never ends")

    def _step(self) -> None:
        chance = self.chance
        can_end = [t for t, c in self.flights.items() if self._can_end(c)]
        acts: list[Any] = []
        if can_end:
            acts += [lambda: self._settle(chance.choice(can_end))] * 3
            acts.append(lambda: self._start(chance.choice(can_end)))
        if self.ready:
            acts += [lambda: self._computed(chance.randrange(len(self.ready)))] * 2
        if self.on_host:
            acts += [self._host_computed] * 2
            acts.append(lambda: self.host_begun.add(self.on_host[0].expert))
        assert acts, "nothing can happen any more"
        if self.is_hybrid:
            acts.append(lambda: self._perform(self.core.caught_up(chance.uniform(0, 500))))
        chance.choice(acts)()

    def _start(self, ticket: int) -> None:
        self.begun.add(ticket)
        if self.flights[ticket].route != Route.file_to_host:
            self.memory.start(self.flights[ticket])

    def _can_end(self, copy: Any) -> bool:
        """Return whether the bytes are there that a copy from the host store needs."""
        if copy.route != Route.host_to_slot:
            return True
        content = self.host.get((copy.layer, copy.from_slot), [None] * len(CHUNK_BYTES))
        return all(content[c] == copy.expert for c in _chunks(copy))

    def _settle(self, ticket: int) -> None:
        """End a copy. What waits for a failed read into the store fails, too."""
        copy = self.flights[ticket]
        bad = (copy.layer, copy.expert) in self.unreadable and copy.route != Route.host_to_slot
        failed = bad or self.chance.random() < 0.02
        self._end(copy, failed=failed)
        if failed and copy.route == Route.file_to_host:
            for c in list(self.flights.values()):
                waits = c.route == Route.host_to_slot and c.layer == copy.layer
                if waits and c.from_slot == copy.slot and set(_chunks(c)) & set(_chunks(copy)):
                    self._end(c, failed=True)
        while self.ended:
            told, failed = self.ended.pop(0)
            self._perform(self.core.failed(told) if failed else self.core.copied(told))

    def _end(self, copy: Any, *, failed: bool) -> None:
        """Move a copy to those that have ended."""
        del self.flights[copy.ticket]
        self.begun.discard(copy.ticket)
        self.ended.append((copy.ticket, failed))
        self._note(copy, whole=not failed, failed=failed)

    def _note(self, copy: Any, *, whole: bool, failed: bool = False) -> None:
        """Change the model for the end of a copy."""
        if copy.route == Route.file_to_host:
            for c in _chunks(copy):
                content = self.host[copy.layer, copy.slot]
                content[c] = copy.expert if whole else None
        else:
            self.memory.end(copy, whole=whole, failed=failed)

    def _computed(self, index: int) -> None:
        command = self.ready.pop(index)
        unit = (command.expert, own(command.part))
        self.todo.remove(unit)
        self.slot_of.pop(unit).computing = False
        self._perform(self.core.computed(self.layer, command.expert, command.part))

    def _host_computed(self) -> None:
        command = self.on_host.pop(0)
        self.host_begun.discard(command.expert)
        self.todo.remove((command.expert, own(command.part)))
        self._perform(self.core.computed(self.layer, command.expert, command.part))

    def _abort(self) -> None:
        for slot in itertools.chain(*self.memory.pools):
            slot.computing = False
        self.todo, self.ready, self.on_host, self.slot_of = set(), [], [], {}
        self.host_begun = set()
        self.n_aborted += 1
        self._perform(self.core.aborted())
        self.layer = -1

    def _perform(self, commands: list[Any]) -> None:
        queue = list(commands)
        while queue:
            command = queue.pop(0)
            self.log.append(f"{type(command).__name__} {getattr(command, 'expert', '')}")
            if isinstance(command, _native.Copy):
                self._begin_copy(command)
            elif isinstance(command, _native.Cancel):
                # Each of several cancelled copies may call back the same read into the store.
                gone = command.ticket in self.cancelled | {ticket for ticket, _ in self.ended}
                assert gone or command.ticket in self.flights, "cancels what is not in flight"
                if not gone and command.ticket not in self.begun:
                    self.cancelled.add(command.ticket)
                    copy = self.flights.pop(command.ticket)
                    if copy.route == Route.file_to_host:
                        self._note(copy, whole=False)
                    else:
                        self.memory.cancel(copy)
                    queue += self.core.cancelled(command.ticket)
            elif isinstance(command, _native.Order):
                assert command.layer == self.layer
                assert len(set(command.experts)) == len(command.experts)
                assert set(command.experts) <= {e for e, _ in self.todo}
            elif isinstance(command, _native.Compute):
                self._begin_compute(command)
            elif isinstance(command, _native.Withdraw):
                (withdrawn,) = [c for c in self.on_host if c.expert == command.expert]
                assert command.layer == self.layer
                if command.expert not in self.host_begun:
                    self.on_host.remove(withdrawn)
                    queue += self.core.withdrawn(command.layer, command.expert)
            else:
                assert isinstance(command, _native.GiveUp)
                assert command.expert in {e for e, _ in self.todo}
                self.gave_up = True

    def _begin_copy(self, copy: Any) -> None:
        assert copy.ticket not in self.flights and 0 <= copy.expert < self.n_expert
        self.flights[copy.ticket] = copy
        if copy.route != Route.file_to_host:
            assert copy.route == Route.file_to_slot or self.has_host
            self.memory.copy(copy)
            return
        content = self.host.setdefault((copy.layer, copy.slot), [None] * len(CHUNK_BYTES))
        for other in self.flights.values():
            if other is copy or other.layer != copy.layer:
                continue
            if not set(_chunks(other)) & set(_chunks(copy)):
                continue
            into = other.route == Route.file_to_host and other.slot == copy.slot
            assert not into, "two reads into the same place of the store"
            out = other.route == Route.host_to_slot and other.from_slot == copy.slot
            assert not out or other.expert == copy.expert, "what is being sent is overwritten"
        for c in _chunks(copy):
            content[c] = None

    def _begin_compute(self, command: Any) -> None:
        unit = (command.expert, own(command.part))
        assert command.layer == self.layer and unit in self.todo
        if command.slot < 0:
            assert self.is_hybrid and command.expert not in {c.expert for c in self.on_host}
            self.on_host.append(command)
            return
        assert unit not in self.slot_of
        if command.part == Part.bottom:
            assert (command.expert, Part.top) not in self.todo, "a bottom before its top"
        self.ready.append(command)
        self.slot_of[unit] = self.memory.compute(command)

    def _check(self) -> None:
        self.core.check()
        assert self.gave_up or self.core.idle() == (not self.todo)
        for pool, memory in enumerate(self.memory.pools):
            slots = self.core.slots(pool)
            held = set()
            for (state, layer, part, expert, pinned), real in zip(slots, memory, strict=True):
                assert (expert < 0) == (state in ("free", "quarantined"))
                assert expert < 0 or (layer, part, expert) not in held, "held twice"
                held.add((layer, part, expert))
                assert state == "pending" or not real.flying
                assert state != "ready" or set(real.content) == {(layer, (expert, part))}
                assert not real.computing or (state == "ready" and pinned)
                assert not pinned or layer == self.layer
        for layer in range(self.n_layer):
            c = self.core.counts(layer)
            assert c.hits + c.late + c.misses == self.n_request[layer]
            assert c.bytes_useful + c.bytes_wasted <= c.bytes_read


def _chunks(copy: Any) -> range:
    return _ALL_CHUNKS if copy.chunk == WHOLE else range(copy.chunk, copy.chunk + 1)


def simulate(seed: int, n_pass: int = 12) -> str:
    """Simulate one core. Return its method, for a count."""
    simulation = Simulation(seed)
    simulation.run(n_pass)
    kind = "with a store, " if simulation.has_host else ""
    kind += "hybrid, " if simulation.is_hybrid else ""
    return f"{kind}{'passes given up' if simulation.n_aborted else 'all passes whole'}"
