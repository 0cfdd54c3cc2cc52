"""A layer's misses are copied or computed by the host: the rule, then the core."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from core_driver import CHUNK_BYTES

from backend import _native
from backend._native import (
    Composition,
    Core,
    HostSpeeds,
    Hybrid,
    Layout,
    Phase,
    Shape,
    Spec,
    Tuning,
    host_share,
)

AUTO, HOST_ONLY = Hybrid.by_speed, Hybrid.host_only
BYTES = 1000


def n_host(speeds: HostSpeeds, n_missing: int, **queue: float) -> int:
    return sum(host_share(AUTO, speeds, [(BYTES, BYTES, 1)] * n_missing, **queue))


def test_equal_speeds_share_evenly() -> None:
    speeds = HostSpeeds(link_us_per_byte=1.0, host_us_per_byte=1.0)
    assert [n_host(speeds, n) for n in range(9)] == [0, 0, 1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize(("ratio", "slow_link", "slow_host"), [(2, 5, 2), (4, 7, 1), (16, 8, 0)])
def test_the_slower_one_gets_its_share_or_nothing(
    ratio: float, slow_link: int, slow_host: int
) -> None:
    assert n_host(HostSpeeds(link_us_per_byte=ratio, host_us_per_byte=1.0), 8) == slow_link
    assert n_host(HostSpeeds(link_us_per_byte=1.0, host_us_per_byte=ratio), 8) == slow_host


def end_us(
    speeds: HostSpeeds, missing: list[tuple[int, int, int]], on_host: Any, queue: Any
) -> float:
    """Return the time at which device and host end, by definition."""

    def us(first: float, further: float, m: tuple[int, int, int]) -> float:
        return m[0] * (first + further * (m[2] - 1))

    host_us = speeds.host_us if any(on_host) else 0.0
    arrived_us, device_us = queue["copy_us"], queue["compute_us"]
    for m, is_host in zip(missing, on_host, strict=True):
        if is_host:
            host_us += us(speeds.host_us_per_byte, speeds.host_row_us_per_byte, m)
            continue
        arrived_us += m[1] * speeds.link_us_per_byte
        device_us = max(device_us, arrived_us)
        device_us += us(speeds.device_us_per_byte, speeds.device_row_us_per_byte, m)
    return float(max(host_us, device_us))


@pytest.mark.parametrize("n_row", [1, 7])
def test_no_other_number_ends_sooner(n_row: int) -> None:
    """With equal sizes and rows, no other number is better by a tenth."""
    missing = [(BYTES, BYTES, n_row)] * 5
    queue = {"compute_us": 900.0, "copy_us": 300.0}
    for link, host, device in itertools.product((0.25, 1.0, 3.0), repeat=3):
        speeds = HostSpeeds(
            link_us_per_byte=link,
            host_us=100.0,
            host_us_per_byte=host,
            host_row_us_per_byte=host / 4,
            device_us_per_byte=device,
            device_row_us_per_byte=device / 8,
        )
        chosen = host_share(AUTO, speeds, missing, **queue)
        best_us = min(
            end_us(speeds, missing, on_host, queue)
            for on_host in itertools.product((False, True), repeat=len(missing))
        )
        alone_us = min(end_us(speeds, missing, [h] * 5, queue) for h in (False, True))
        expected_us = best_us if best_us < 0.9 * alone_us else alone_us
        assert end_us(speeds, missing, chosen, queue) == pytest.approx(expected_us)


def test_the_host_gets_experts_of_few_rows_and_what_has_not_begun() -> None:
    speeds = HostSpeeds(link_us_per_byte=1.0, host_us_per_byte=1.0, host_row_us_per_byte=0.5)
    rows = [(BYTES, BYTES, n) for n in (9, 1, 30, 2)]
    assert host_share(AUTO, speeds, rows) == [False, True, False, True]
    half_there = [(BYTES, BYTES // 2, 1), (BYTES, BYTES, 1)]
    assert host_share(AUTO, speeds, half_there) == [False, True]


def test_queues_and_the_device_count() -> None:
    speeds = HostSpeeds(link_us_per_byte=1.0, host_us_per_byte=1.0)
    assert n_host(speeds, 4, copy_us=2 * BYTES) == 3
    busy_device = HostSpeeds(link_us_per_byte=0.1, host_us_per_byte=1.0, device_us_per_byte=1.0)
    assert n_host(busy_device, 4) == 2
    assert n_host(busy_device, 4, compute_us=4 * BYTES) == 4
    handing_over = HostSpeeds(link_us_per_byte=1.0, host_us=1500.0, host_us_per_byte=1.0)
    assert [n_host(handing_over, n) for n in (1, 2, 3, 4)] == [0, 0, 1, 1]


def test_what_was_not_measured_is_tried() -> None:
    assert n_host(HostSpeeds(), 6) == 3
    assert n_host(HostSpeeds(link_us_per_byte=1.0), 1) == 1, "the host is to be measured"
    assert n_host(HostSpeeds(host_us_per_byte=1.0), 1) == 0, "the link is to be measured"


def test_off_and_all() -> None:
    missing = [(BYTES, BYTES, 1)] * 3
    speeds = HostSpeeds(link_us_per_byte=9.0, host_us_per_byte=1.0)
    assert host_share(Hybrid.off, speeds, missing) == [False] * 3
    assert host_share(HOST_ONLY, speeds, missing) == [True] * 3
    assert host_share(HOST_ONLY, HostSpeeds(possible=False), missing) == [False] * 3


# The core with this rule.


class Live:
    """A core whose copies and host work end when a test asks."""

    def __init__(
        self,
        hybrid: Hybrid = AUTO,
        n_slot: int = 4,
        speeds: HostSpeeds | None = None,
        *,
        n_used: int = 4,
        start: bool = True,
        eviction: str = "lru",
    ) -> None:
        scheduler = Spec("ordered")
        self.core = Core(
            Shape(8, n_used, [CHUNK_BYTES] * 2),
            Layout.per_layer([n_slot, n_slot]),
            Composition(
                evictions=[Spec(eviction)], prefill=scheduler, decode=scheduler, hybrid=hybrid
            ),
        )
        self.copies: list[Any] = []
        self.withdrawn: list[int] = []
        self.begun: set[int] = set()  # experts that the host has begun
        if speeds is not None:
            self.core.measured([speeds, speeds])
        if start:
            self.core.pass_began(Phase.decode)

    def perform(self, commands: list[Any]) -> tuple[list[int], list[int]]:
        """Perform the commands. Return the experts that device and host compute now."""
        device: list[int] = []
        host: list[int] = []
        for c in commands:
            if isinstance(c, _native.Compute):
                (host if c.slot == -1 else device).append(c.expert)
            elif isinstance(c, _native.Copy):
                self.copies.append(c)
            elif isinstance(c, _native.Withdraw):
                self.withdrawn.append(c.expert)
                if c.expert not in self.begun:
                    device_too, host_too = self.perform(self.core.withdrawn(c.layer, c.expert))
                    device, host = device + device_too, host + host_too
            elif isinstance(c, _native.Cancel):
                self.copies = [copy for copy in self.copies if copy.ticket != c.ticket]
                device_too, host_too = self.perform(self.core.cancelled(c.ticket))
                device, host = device + device_too, host + host_too
        self.core.check()
        return device, host

    def caught_up(self, us: float = 0) -> tuple[list[int], list[int]]:
        return self.perform(self.core.caught_up(us))

    def routed(self, *experts: int, layer: int = 0) -> tuple[list[int], list[int]]:
        self.layer = layer
        self.perform(self.core.reached(layer))
        return self.perform(self.core.routed(layer, list(experts)))

    def arrive(self) -> list[int]:
        """End all copies. Return the experts that the device can compute."""
        ready: list[int] = []
        while self.copies:
            ready += self.perform(self.core.copied(self.copies.pop(0).ticket))[0]
        return ready

    def computed(self, *experts: int) -> None:
        for e in experts:
            self.perform(self.core.computed(self.layer, e))

    def copied(self) -> set[int]:
        return {c.expert for c in self.copies}


EVEN = HostSpeeds(link_us_per_byte=1.0, host_us_per_byte=1.0)


def test_a_layer_shared_evenly() -> None:
    live = Live(speeds=EVEN)
    device, host = live.routed(0, 1, 2, 3)
    assert device == [] and host == [0, 1] and live.copied() == {2, 3}
    live.computed(0, 1)
    assert live.copied() == {2, 3}, "nothing more while the layer's copies are under way"
    live.computed(*live.arrive())
    assert live.core.idle()
    counts = live.core.counts(0)
    assert (counts.misses, counts.on_host, counts.host_rows) == (4, 2, 2)
    used = live.core.snapshot()[:4]
    assert [byte & 32 for byte in used] == [32, 32, 0, 0]
    assert [byte & 12 for byte in used] == [12] * 4


def test_the_host_takes_over_what_would_come_last() -> None:
    live = Live(speeds=EVEN)
    assert live.routed(0, 1, 2, 3) == ([], [0, 1]) and live.copied() == {2, 3}
    live.computed(0)
    assert live.caught_up() == ([], []), "what the host has left lasts as long as the copies"
    live.computed(1)
    assert live.caught_up() == ([], [3]) and live.caught_up() == ([], [])
    urgency = {c.expert: c.urgency for c in live.copies}
    assert urgency == {2: _native.Urgency.high, 3: _native.Urgency.low}, "for the next time"
    live.computed(3, *live.arrive())
    assert live.core.idle() and live.core.counts(0).on_host == 3
    assert [byte & 32 for byte in live.core.snapshot()[:4]] == [32, 32, 0, 32]
    live.core.pass_began(Phase.decode)
    assert live.routed(0, 1, 2, 3) == ([2, 3], [0])


@pytest.mark.parametrize("has_begun", [False, True])
def test_the_link_takes_what_the_host_would_do_last(has_begun: bool) -> None:
    slow_link = HostSpeeds(link_us_per_byte=2.0, host_us_per_byte=1.0, n_copy=1)
    live = Live(n_slot=8, speeds=slow_link, n_used=8)
    assert live.routed(*range(8)) == ([], [0, 1, 2, 3, 4]) and live.copied() == {5, 6, 7}
    live.begun = {4} if has_begun else set()
    assert live.caught_up() == ([], []) and live.withdrawn == []
    live.computed(*live.arrive())
    live.caught_up()
    assert live.withdrawn == [4] and live.copied() == ({4} - live.begun)
    assert live.core.counts(0).on_host == 5 - (not has_begun)
    live.caught_up()
    assert live.withdrawn == ([4, 3] if has_begun else [4]), "one at a time"
    last = 3 if has_begun else 4
    live.computed(*({0, 1, 2, 3, 4} - {last}), *live.arrive())
    assert live.core.idle()
    assert [e for e in range(8) if live.core.snapshot()[e] & 32] == sorted({0, 1, 2, 3, 4} - {last})


def test_a_layer_ends_whatever_happens_first() -> None:
    """Copies, host and device end in any order, and withdrawing succeeds or not."""
    log = _native.EventLog()
    chance = random.Random(1)
    speeds = HostSpeeds(link_us_per_byte=1.0, host_us_per_byte=0.5, device_us_per_byte=0.1)
    live, fresh = (Live(n_slot=5, n_used=8, start=False) for _ in range(2))
    live.core.record(log)
    live.core.measured([speeds] * 2)
    for i in range(150):
        live.core.pass_began(Phase.prefill if i % 3 == 0 else Phase.decode)
        experts = chance.sample(range(8), chance.randint(1, 8))
        device, host = live.routed(*experts, *experts[:1] * (8 - len(experts)), layer=i % 2)
        while not live.core.idle():
            live.begun = set(host[: chance.randint(0, 2)])
            if live.copies and (chance.random() < 0.5 or not (host or device)):
                copy = live.copies.pop(chance.randrange(len(live.copies)))
                response = live.perform(live.core.copied(copy.ticket))
            elif host and (chance.random() < 0.5 or not device):
                response = live.perform(live.core.computed(live.layer, host.pop(0)))
            else:
                response = live.perform(live.core.computed(live.layer, device.pop(0)))
            device, host = device + response[0], host + response[1]
            n_before = len(live.withdrawn)
            response = live.caught_up()
            device, host = device + response[0], host + response[1]
            gone = set(live.withdrawn[n_before:]) - live.begun
            host = [e for e in host if e not in gone]
        assert not host and not device
    assert live.withdrawn and _native.replay(log, fresh.core) == -1


def test_off_until_speeds_are_told() -> None:
    live = Live()
    assert live.routed(0, 1, 2, 3) == ([], []) and live.copied() == {0, 1, 2, 3}


def test_everything_on_the_host_and_kept_for_the_next_time() -> None:
    slow_link = HostSpeeds(link_us_per_byte=100.0, host_us_per_byte=1.0)
    live = Live(speeds=slow_link)
    assert live.routed(0, 1, 2, 3) == ([], [0, 1, 2, 3]) and not live.copies
    live.computed(0, 1)
    assert live.copied() == {0}, "one at a time, while nobody waits for the link"
    assert all(c.urgency == _native.Urgency.low for c in live.copies)
    live.computed(2, 3)
    assert live.core.idle()
    live.arrive()
    live.core.pass_began(Phase.decode)
    assert live.routed(0, 4, 5, 6) == ([0], [4, 5, 6])


def test_what_is_kept_takes_the_place_of_the_least_worthy() -> None:
    cases: list[tuple[Hybrid, float, set[int]]] = [
        (AUTO, 1.2, {4}),
        (AUTO, 100.0, set()),  # too few hits so far
        (HOST_ONLY, 1.2, set()),
    ]
    for hybrid, link, expected in cases:
        live = Live(hybrid, speeds=HostSpeeds(link_us_per_byte=link, host_us_per_byte=1.0))
        for expert in range(4):  # fill the slots
            live.routed(expert, expert, expert, expert)
            live.computed(expert)
            live.arrive()
            live.core.pass_began(Phase.decode)
        assert live.routed(0, 1, 2, 3) == ([0, 1, 2, 3], [])
        live.computed(0, 1, 2, 3)
        live.core.pass_began(Phase.decode)
        assert live.routed(4, 4, 4, 4) == ([], [4])
        live.computed(4)
        assert live.copied() == expected


@pytest.mark.parametrize(
    ("n_round", "n_use", "expected"), [(2, 1, set()), (2, 2, {4}), (4, 2, set())]
)
def test_what_is_kept_is_worth_more_than_what_leaves(
    n_round: int, n_use: int, expected: set[int]
) -> None:
    """A use has four tokens. Each of the slots' experts was used by four, and once per round."""
    live = Live(speeds=HostSpeeds(link_us_per_byte=1.2, host_us_per_byte=1.0), eviction="lfu")
    for expert in range(4):
        live.routed(expert, expert, expert, expert)
        live.computed(expert)
        live.arrive()
        live.core.pass_began(Phase.decode)
    for _ in range(n_round):
        assert live.routed(0, 1, 2, 3) == ([0, 1, 2, 3], [])
        live.computed(0, 1, 2, 3)
        live.core.pass_began(Phase.decode)
    for _ in range(n_use):
        assert not live.copies
        assert live.routed(4, 4, 4, 4) == ([], [4])
        live.computed(4)
        live.core.pass_began(Phase.decode)
    assert live.copied() == expected


@pytest.mark.parametrize(("n_copy", "n_host"), [(1, 2), (3, 2), (4, 3)])
def test_the_link_first_ends_what_it_has_begun_for_other_layers(n_copy: int, n_host: int) -> None:
    """Three copies bring one expert, the fourth most of another."""
    speeds = HostSpeeds(link_us_per_byte=1.0, host_us_per_byte=1.0, n_copy=n_copy)
    live = Live(speeds=speeds)
    live.perform(live.core.tune(Tuning(depth=2)) or [])
    live.perform(live.core.predicted(1, [0, 1, 2]))
    assert len(live.copies) == 9
    assert len(live.routed(0, 1, 2, 3)[1]) == n_host


def test_a_late_one_may_be_the_hosts() -> None:
    """Its copy is cancelled if it has not begun, and its slot is free again."""
    slow_link = HostSpeeds(link_us_per_byte=100.0, host_us_per_byte=1.0)
    live = Live(speeds=slow_link)
    live.perform(live.core.predicted(0, [0, 1]))
    assert live.copied() == {0, 1}
    assert live.routed(0, 1, 2, 3) == ([], [0, 1, 2, 3])
    assert not live.copies
    live.computed(0, 1, 2, 3)
    assert live.core.counts(0).misses == 4 and live.core.counts(0).on_host == 4


def test_an_aborted_pass_forgets_the_hosts_share() -> None:
    live = Live(speeds=EVEN)
    live.routed(0, 1, 2, 3)
    live.perform(live.core.aborted())
    assert live.core.idle()
    live.arrive()
    live.core.pass_began(Phase.decode)
    _, host = live.routed(4, 5, 6, 7, layer=1)
    assert len(host) == 2


def test_a_prompt_that_streams() -> None:
    """There are more experts than slots. Experts of the host need no slot."""
    live = Live(n_slot=2, speeds=EVEN)
    live.core.pass_began(Phase.prefill)
    live.layer = 0
    device, host = live.perform(live.core.routed(0, [0, 1, 2, 3, 4, 5, 6, 7]))
    assert device == [] and len(host) == 4
    live.computed(*host)
    while not live.core.idle():
        ready = live.arrive()
        assert ready
        live.computed(*ready)


def test_speeds_that_make_no_sense() -> None:
    live = Live()
    with pytest.raises(ValueError, match="every layer"):
        live.core.measured([EVEN])
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="number of at least 0"):
            live.core.measured([EVEN, HostSpeeds(link_us_per_byte=wrong)])


def test_replay_with_speeds() -> None:
    """The log has the measured speeds, so the same events give the same commands."""
    log = _native.EventLog()
    live, fresh = Live(start=False), Live(start=False)
    live.core.record(log)
    live.core.measured([EVEN, EVEN])
    live.core.pass_began(Phase.decode)
    _, host = live.routed(0, 1, 2, 3)
    live.computed(*host)
    live.computed(*live.arrive())
    assert host and _native.replay(log, fresh.core) == -1
    assert any("measured" in line for i in range(len(log)) for line in log.describe(i))
    assert any("on the host" in line for i in range(len(log)) for line in log.describe(i))
