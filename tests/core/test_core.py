"""The core: events in, commands out. Which copies and computations it orders, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_driver import CHUNK_BYTES, EXPERT_BYTES, WHOLE, Driver, chunks_of

from backend._native import Core, LayerLayout, Layout, Phase, PoolLayout, Shape, Spec, Tuning

# A reactive cache.


def test_a_miss_is_copied_at_once_and_computed_after_its_last_chunk() -> None:
    d = Driver(n_slot=4)
    d.begin()
    response = d.routed(0, 5)
    assert response.order == [5]
    assert response.high == [(5, 0), (5, 1), (5, 2)]
    assert response.low == response.compute == []
    assert d.state(5) == "pending"
    assert d.arrive(5, 2).compute == []
    assert d.arrive(5, 0).compute == []
    assert d.arrive(5, 1).compute == [5]
    assert d.state(5) == "ready" and not d.core.idle()
    d.computed(5)
    assert d.core.idle() and d.state(5) == "ready"


def test_a_hit_is_computed_at_once() -> None:
    d = Driver(n_slot=4)
    d.make_resident(0, 1, 2)
    d.begin()
    response = d.routed(0, 2, 1)
    assert response.compute == [2, 1] and not d.flying
    assert (d.counts().hits, d.counts().misses) == (2, 2)


def test_every_token_may_choose_the_same_expert() -> None:
    d = Driver(n_slot=4)
    d.begin()
    response = d.routed(0, 3, 1, 3, 1, 1, 6)
    assert response.order == [3, 1, 6]
    assert sorted(response.high) == chunks_of(1, 3, 6)
    assert d.counts().misses == 3


def test_hits_are_computed_while_misses_fly() -> None:
    d = Driver(n_slot=4)
    d.make_resident(0, 1, 2)
    d.begin()
    response = d.routed(0, 7, 2)
    assert response.order == [2, 7] and response.compute == [2]
    d.computed(2)
    assert d.arrive(7).compute == [7]


def test_copies_come_in_the_computing_order() -> None:
    d = Driver(n_slot=4)
    d.begin()
    assert d.routed(0, 6, 0, 3).high == chunks_of(6, 0, 3)


def test_layers_have_slots_of_their_own() -> None:
    d = Driver(n_slot=[2, 3])
    d.make_resident(0, 1, 2)
    d.make_resident(1, 1, 4, 5)
    assert d.held(0) == {1, 2} and d.held(1) == {1, 4, 5}
    d.begin()
    assert d.routed(1, 2).high == chunks_of(2)


# Prefetching.


def test_a_forecast_is_copied_low_and_becomes_resident_unused() -> None:
    d = Driver(n_slot=4)
    d.begin()
    response = d.predicted(1, 3, 0)
    assert response.low == chunks_of(3, 0) and response.high == [] and response.order is None
    d.settle()
    assert d.state(3, 1) == d.state(0, 1) == "ready" and d.pinned(1) == set()
    c = d.counts(1)
    assert (c.prefetches, c.prefetches_useful, c.hits, c.misses) == (2, 0, 0, 0)
    assert d.routed(1, 3).compute == [3]
    c = d.counts(1)
    assert (c.hits, c.prefetches_useful) == (1, 1)


def test_a_forecast_touches_what_is_resident() -> None:
    d = Driver(n_slot=3)
    d.make_resident(0, 1)
    d.make_resident(0, 2)
    d.make_resident(0, 3)
    d.begin()
    assert d.predicted(0, 1).low == []  # already resident, and now the most recently used
    d.routed(0, 5)
    assert d.held() == {1, 3, 5}


def test_what_was_just_fetched_by_a_forecast_is_not_the_next_to_leave() -> None:
    d = Driver(n_slot=3)
    for e in (1, 2, 3):
        d.make_resident(0, e)
    d.begin()
    for e in (6, 7):
        d.predicted(0, e)
        d.settle()
    assert d.held() == {3, 6, 7}


def test_a_forecast_evicts_nothing_that_it_names() -> None:
    d = Driver(n_slot=2)
    d.make_resident(0, 1, 2)
    d.begin()
    assert d.predicted(0, 1, 2, 3, 4).low == []
    assert d.held() == {1, 2}


def test_a_forecast_never_takes_a_pinned_slot() -> None:
    d = Driver(n_slot=2)
    d.make_resident(0, 1, 2)
    d.begin()
    assert d.routed(0, 1, 2).compute == [1, 2]
    assert d.predicted(0, 3, 4).low == []
    d.computed(2)
    assert d.predicted(0, 3, 4).low == chunks_of(3)
    assert d.held() == {1, 3}


def test_what_was_forecast_and_left_unneeded_is_wasted() -> None:
    d = Driver(n_slot=2)
    d.begin()
    d.predicted(0, 1, 2)
    d.settle()
    d.make_resident(0, 3, 4)
    c = d.counts()
    assert (c.prefetches_wasted, c.prefetches_useful) == (2, 0)
    assert (c.bytes_wasted, c.bytes_useful) == (2 * EXPERT_BYTES, 2 * EXPERT_BYTES)


# Early preemption.


def test_at_the_gate_forecasts_are_dropped_and_needed_ones_come_back_high() -> None:
    d = Driver(n_slot=4)
    d.begin()
    d.predicted(1, 3, 4)
    d.arrive(3, 0)
    response = d.routed(1, 3, 6)
    assert response.cancelled == [(3, 1), (3, 2), *chunks_of(4)]
    assert response.order == [3, 6]  # more chunks of 3 have arrived
    assert sorted(response.high) == [(3, 1), (3, 2), *chunks_of(6)]
    assert d.state(4, 1) == "absent"  # not needed, so its slot is free again
    assert d.n_state("free", 1) == 2
    assert (d.counts(1).late, d.counts(1).misses) == (1, 1)
    d.arrive(3, 1)
    assert d.arrive(3, 2).compute == [3]


def test_forecasts_for_other_layers_stay() -> None:
    d = Driver(n_slot=4, n_layer=3)
    d.begin()
    d.predicted(1, 1)
    d.predicted(2, 2)
    assert d.routed(1, 5).cancelled == chunks_of(1)
    assert d.flights(2) == chunks_of(2)


def test_a_copy_that_has_begun_ends_as_usual() -> None:
    d = Driver(n_slot=4)
    d.begin()
    d.predicted(1, 3)
    d.start(3)
    response = d.routed(1, 3)
    assert response.cancelled == chunks_of(3) and response.high == []
    assert d.arrive(3).compute == [3]


def test_chunks_that_arrived_before_a_cancel_stay() -> None:
    """ProMoE, Algorithm 2: `ready_chunk` of an expert lasts until the expert is evicted."""
    d = Driver(n_slot=2)
    d.begin()
    d.predicted(1, 3)
    d.start(3, 1)
    d.routed(1, 5)
    d.arrive(3, 1)
    d.arrive(5)
    d.computed(5)
    assert d.state(3, 1) == "pending" and not d.flights(1)
    d.begin()
    assert d.predicted(1, 3).low == [(3, 0), (3, 2)]  # the rest, for another forecast
    d.arrive(3, 2)
    assert d.routed(1, 3).high == [(3, 0)]  # and for a need
    assert d.arrive(3).compute == [3]
    assert d.counts(1).bytes_wasted == 0


def test_half_an_expert_is_evicted_like_a_whole_one() -> None:
    d = Driver(n_slot=2)
    d.begin()
    d.predicted(1, 3)
    d.start(3, 1)
    d.routed(1, 5)
    d.settle()
    d.computed(5)
    d.make_resident(1, 5, 6)
    assert d.held(1) == {5, 6}
    assert d.counts(1).bytes_wasted == CHUNK_BYTES[1]


def test_what_a_forecast_displaces_leaves_when_the_copy_starts() -> None:
    """ProMoE, Algorithm 1, lines 3 and 4."""
    d = Driver(n_slot=2)
    d.make_resident(1, 1, 2)
    d.begin()
    assert d.predicted(1, 3, 4).low == chunks_of(3, 4)
    d.start(4, 0)
    response = d.routed(1, 1, 2)
    assert response.cancelled == chunks_of(3, 4)
    hits = d.counts(1).hits
    assert hits == 1 and len(response.compute) == 1  # the other one's slot is being overwritten
    d.settle()
    assert d.counts(1).misses == 2 + 1


def test_a_forecast_takes_back_a_slot_that_an_earlier_one_emptied() -> None:
    d = Driver(n_slot=1)
    d.make_resident(1, 1)
    d.begin()
    d.predicted(1, 3)
    assert d.predicted(1, 1).cancelled == chunks_of(3)
    assert d.state(1, 1) == "ready"


def test_a_displaced_expert_does_not_come_back_twice() -> None:
    d = Driver(n_slot=[2, 2], early_preemption=False)
    d.make_resident(0, 1, 2)
    d.begin()
    d.predicted(0, 3)  # in the place of 1
    d.routed(0, 1, 2)  # in any place but one: 3 is still on its way
    assert d.state(3) == "pending"
    d.settle()


def test_a_displaced_expert_that_has_another_slot_stays_there() -> None:
    d = Driver(n_slot=[3, 3], early_preemption=False)
    for e in (1, 2, 4):
        d.make_resident(0, e)
    d.begin()
    d.predicted(0, 3)  # in the place of 1
    d.routed(0, 1)  # in the place of 2
    assert d.held() == {1, 3, 4}
    d.arrive(1)
    assert len(d.aborted().cancelled) == len(CHUNK_BYTES)  # of 3
    assert sorted(d.slots()) == [("free", -1, False), ("ready", 1, False), ("ready", 4, False)]


def test_an_expert_that_lost_its_forecast_halfway_can_be_needed_again() -> None:
    """The other chunks are ordered again although one copy from before is still in flight."""
    d = Driver(n_slot=4)
    d.begin()
    d.predicted(1, 3)
    d.start(3, 0)
    d.routed(1, 5)
    d.arrive(5)
    d.computed(5)
    d.begin()
    response = d.routed(1, 3)
    assert response.high == [(3, 1), (3, 2)]
    d.arrive(3, 1)
    d.arrive(3, 2)
    assert d.arrive(3, 0).compute == [3]


# Without one of the three steps.


def test_without_chunks_whole_experts_are_copied() -> None:
    d = Driver(n_slot=4, chunks=False)
    d.begin()
    assert d.predicted(1, 3).low == [(3, WHOLE)]
    assert d.routed(0, 5, 6).high == [(5, WHOLE), (6, WHOLE)]
    assert d.arrive(6).compute == [6]
    assert d.counts().bytes_read == EXPERT_BYTES


def test_without_early_preemption_an_expert_is_fetched_when_its_turn_comes() -> None:
    d = Driver(n_slot=4, early_preemption=False)
    d.begin()
    response = d.routed(0, 6, 7)
    assert response.high == chunks_of(6) and response.low == []
    assert d.arrive(6).compute == [6] and d.state(7) == "absent"
    assert d.computed(6).high == chunks_of(7)
    assert d.counts().misses == 2


def test_without_early_preemption_forecasts_are_carried_out() -> None:
    d = Driver(n_slot=4, early_preemption=False)
    d.begin()
    d.predicted(0, 3, 4, 5)
    response = d.routed(0, 4, 3)
    assert response.cancelled == response.high == chunks_of(4)  # it is next, so it overtakes
    assert d.flights() == [*chunks_of(3), *chunks_of(5), *chunks_of(4)]
    d.arrive(5)
    assert d.state(5) == "ready"  # although not needed
    assert d.arrive(4).compute == [4]
    response = d.computed(4)
    assert response.cancelled == response.high == chunks_of(3)
    assert d.arrive(3).compute == [3]


def test_without_reorder_experts_are_computed_by_their_ids() -> None:
    """ProMoE, section 5.3: as frameworks do."""
    d = Driver(n_slot=4, reorder=False)
    d.make_resident(0, 3)
    d.begin()
    response = d.routed(0, 7, 3, 2)
    assert response.order == [2, 3, 7] and response.compute == []
    assert d.arrive(7).compute == []
    assert d.arrive(2).compute == [2, 3, 7]


def test_with_reorder_what_arrives_first_is_computed_first() -> None:
    d = Driver(n_slot=4)
    d.begin()
    d.routed(0, 6, 7)
    assert d.arrive(7).compute == [7]
    assert d.arrive(6).compute == [6]


def test_without_reorder_a_later_expert_gives_way_to_an_earlier_one() -> None:
    d = Driver(n_slot=2, reorder=False)
    d.make_resident(0, 5, 6)
    d.begin()
    response = d.routed(0, 5, 6, 1)
    assert response.high == chunks_of(1) and d.held() == {1, 5}  # 6, the last one, was evicted
    assert (d.counts().hits, d.counts().misses) == (1, 2 + 2)  # and so was no hit
    assert d.arrive(1).compute == [1, 5]
    assert d.computed(1).high == chunks_of(6)
    assert d.arrive(6).compute == [6]
    d.computed(5)
    d.computed(6)
    assert d.core.idle()


def plain_lru(n_slot: int) -> Driver:
    """Return the papers' baseline: by ids, and what is needed later is not spared."""
    return Driver(n_slot, scheduler="reactive", plain=1, eviction=Spec("lru", {"at_access": 1.0}))


def test_the_papers_lru_evicts_what_the_layer_needs_next() -> None:
    """ProMoE, section 5.3: a miss may evict soon-to-be-accessed experts, and a prompt thrashes."""
    d = plain_lru(n_slot=3)
    for _ in range(3):
        d.make_resident(0, 0, 1, 2, 3)
    c = d.counts()
    assert (c.hits, c.misses) == (0, 12) and d.held() == {1, 2, 3}


def test_the_papers_lru_keeps_what_was_computed_last() -> None:
    d = plain_lru(n_slot=3)
    d.make_resident(0, 0, 2, 4)
    d.make_resident(0, 0)
    d.make_resident(0, 5)
    assert d.held() == {0, 4, 5}


def test_the_first_expert_of_the_next_layer_comes_during_attention() -> None:
    """DuoServe-MoE, section 5.2."""
    layout = Layout([PoolLayout(2, True)], [LayerLayout(1.0, [0, -1])] * 2)
    d = Driver(2, layout=layout, scheduler="stream")
    d.begin(Phase.prefill)
    d.routed(0, 3, 1, 2)
    assert d.flights() == [(1, WHOLE), (2, WHOLE)]
    d.arrive(1)
    d.computed(1)
    d.arrive(2)
    assert d.flights() == [(3, WHOLE)] and not d.flights(1)
    d.computed(2)
    assert d.flights(1) == [(0, WHOLE)]  # into the free slot, behind the last one of this layer
    d.arrive(3)
    d.computed(3)
    d.arrive(0)
    assert d.routed(1, 0, 5).compute == [0]


# Between answers.


def test_a_cache_can_be_stocked() -> None:
    """MoEpic, section 3.4.2: the cache of a new configuration holds the experts of most worth."""
    d = Driver(n_slot=3)
    d.make_resident(0, 1)
    assert d.perform(d.core.stocked(0, [5, 1, 2, 7])).low == chunks_of(5, 2)
    d.settle()
    assert d.held() == {1, 2, 5}


def test_a_full_cache_makes_room_for_what_a_chat_used() -> None:
    d = Driver(n_slot=3)
    for expert in (1, 2, 3):
        d.make_resident(0, expert)
    assert d.perform(d.core.stocked(0, [5, 6])).low == []  # nothing leaves
    assert d.perform(d.core.stocked(0, [5, 6, 7], [5, 6, 7, 2])).low == chunks_of(5, 6)
    d.settle()
    assert d.held() == {2, 5, 6}  # 2 is wanted; 1 and 3 left
    d.make_resident(0, 4)
    assert d.held() == {4, 5, 6}  # what was fetched counts as just used


def test_experts_of_an_earlier_cache_are_there_at_once() -> None:
    """As many as have room. They cost nothing, and leave before what was used since."""
    d = Driver(n_slot=3)
    for expert in (7, 2, 5, 4):
        assert d.perform(d.core.kept(0, expert)).low == []
    assert d.held() == {2, 5, 7}
    assert d.routed(0, 2, 5).compute == [2, 5]
    d.computed(2)
    d.computed(5)
    d.make_resident(0, 4)
    assert d.held() == {2, 4, 5}
    assert (d.counts().hits, d.counts().misses) == (2, 1)
    empty = Driver(n_slot=3)
    empty.make_resident(0, 4)
    assert d.counts().bytes_read == empty.counts().bytes_read


# Eviction.


def test_the_least_recently_used_leaves() -> None:
    d = Driver(n_slot=3)
    for e in (1, 2, 3):
        d.make_resident(0, e)
    d.make_resident(0, 1)
    d.make_resident(0, 4)
    assert d.held() == {1, 3, 4}
    d.make_resident(0, 5)
    assert d.held() == {1, 4, 5}


@pytest.mark.parametrize("reorder", [True, False])
def test_what_this_pass_still_needs_does_not_leave(reorder: bool) -> None:
    d = Driver(n_slot=3, reorder=reorder)
    for e in (1, 2, 3):
        d.make_resident(0, e)
    d.begin()
    d.routed(0, 1, 6)  # 1 is the oldest, but needed
    assert d.held() == {1, 3, 6}


def test_more_experts_than_slots_are_computed_one_slot_at_a_time() -> None:
    d = Driver(n_slot=2)
    d.begin()
    response = d.routed(0, 0, 1, 2, 3)
    assert response.order == [0, 1, 2, 3] and response.high == chunks_of(0, 1)
    assert d.arrive(1).compute == [1]
    assert d.computed(1).high == chunks_of(2)  # into the slot of 1
    assert d.held() == {0, 2}
    d.arrive(0)
    assert d.computed(0).high == chunks_of(3)
    for e in (2, 3):
        assert d.arrive(e).compute == [e]
        d.computed(e)
    assert d.core.idle() and d.counts().misses == 4


def test_resident_ones_are_computed_before_they_are_displaced() -> None:
    d = Driver(n_slot=2)
    d.make_resident(0, 6, 7)
    d.begin()
    response = d.routed(0, 0, 1, 6, 7)
    assert response.order == [6, 7, 0, 1] and response.compute == [6, 7] and response.high == []
    assert d.computed(6).high == chunks_of(0)


def test_what_was_fetched_in_vain_leaves_first() -> None:
    d = Driver(n_slot=3)
    d.make_resident(0, 1)
    d.make_resident(0, 2)
    d.begin()
    d.predicted(0, 7)
    d.settle()
    d.routed(0, 2)
    d.computed(2)
    d.make_resident(0, 3)
    assert d.held() == {1, 2, 3}  # not 1, although it was used before 7 was fetched


# Faults.


def test_a_failed_copy_quarantines_its_slot_and_the_expert_is_ordered_again() -> None:
    d = Driver(n_slot=4)
    d.begin()
    d.routed(0, 5)
    d.arrive(5, 0)
    assert d.fail(5, 1).high == []  # chunk 2 is still in flight to that slot
    response = d.arrive(5, 2)
    assert response.high == chunks_of(5)
    assert d.n_state("quarantined") == 1
    assert d.arrive(5).compute == [5]
    d.computed(5)
    d.begin()
    assert d.n_state("quarantined") == 0 and d.n_state("free") == 3


def test_three_failures_are_the_end() -> None:
    d = Driver(n_slot=4)
    d.begin()
    d.routed(0, 5, 6)
    assert d.fail(5).high == chunks_of(5)
    assert d.fail(5).high == chunks_of(5)
    response = d.fail(5)
    assert response.gave_up == [5] and response.high == []
    d.aborted()
    assert d.core.idle()
    d.settle()
    d.make_resident(0, 5)  # and the next pass tries again
    assert d.state(5) == "ready"


def test_with_every_slot_in_quarantine_one_is_taken_back() -> None:
    d = Driver(n_slot=1)
    d.begin()
    d.routed(0, 5)
    assert d.fail(5).high == chunks_of(5)
    assert d.arrive(5).compute == [5]


def test_a_failed_forecast_is_forgotten() -> None:
    d = Driver(n_slot=2)
    d.begin()
    d.predicted(0, 5)
    assert d.fail(5).low == []
    assert d.state(5) == "absent" and d.n_state("quarantined") == 1
    assert d.routed(0, 5).high == chunks_of(5)


def test_a_forecast_that_fails_after_the_gate_is_ordered_again() -> None:
    d = Driver(n_slot=2)
    d.begin()
    d.predicted(0, 5)
    d.start(5)
    assert d.routed(0, 5).high == []
    assert d.fail(5).high == chunks_of(5)
    assert d.arrive(5).compute == [5]


def test_no_copy_goes_into_a_slot_that_has_failed() -> None:
    """Chunk 1 has failed, chunk 0 is in flight, chunk 2 is cancelled: all are copied again."""
    d = Driver(n_slot=2)
    d.begin()
    d.predicted(0, 5)
    d.start(5, 0)
    d.fail(5, 1)
    response = d.routed(0, 5)
    assert (5, 2) in response.cancelled and response.high == []
    assert d.arrive(5, 0).high == chunks_of(5)
    assert d.arrive(5).compute == [5]


# A pass that is aborted.


def test_after_an_abort_nothing_is_pinned_and_whole_experts_stay() -> None:
    d = Driver(n_slot=4)
    d.make_resident(0, 1)
    d.begin()
    d.routed(0, 1, 5, 6, 7)
    d.arrive(5)
    d.start(6, 0)
    response = d.aborted()
    assert response.cancelled == chunks_of(6, 7) and response.high == response.low == []
    assert d.core.idle() and d.pinned() == set()
    assert d.flights() == [(6, 0)] and d.held() == {1, 5, 6}
    d.settle()
    assert d.held() == {1, 5, 6} and d.n_state("ready") == 2  # a part of 6 stays too
    d.begin()
    assert d.routed(0, 5).compute == [5]


def test_copies_that_outlive_an_aborted_pass_are_late_for_the_next() -> None:
    d = Driver(n_slot=2)
    d.begin()
    d.routed(0, 5, 6)
    d.start(6)
    d.aborted()
    d.begin()
    response = d.routed(0, 6)
    assert response.high == [] and d.counts().late == 1
    assert d.arrive(6).compute == [6]


@pytest.mark.parametrize("early_preemption", [True, False])
def test_half_an_expert_that_an_abort_left_behind_does_not_block_its_slot(
    early_preemption: bool,
) -> None:
    d = Driver(n_slot=1, early_preemption=early_preemption)
    d.make_resident(0, 7)
    d.begin()
    d.predicted(0, 4)
    d.start(4, 0)
    d.aborted()
    assert d.flights() == [(4, 0)]
    d.begin()
    d.routed(0, 0, 4)
    waiting = d.arrive(4).compute  # all chunks have arrived, so the slot holds it
    assert waiting == [4]
    d.computed(4)
    assert d.arrive(0).compute == [0]


def test_an_abort_without_a_layer_is_harmless() -> None:
    d = Driver(n_slot=2)
    d.begin()
    assert d.aborted().kinds == []
    d.make_resident(0, 1)


# Accounting.


def test_every_request_is_a_hit_late_or_a_miss() -> None:
    d = Driver(n_slot=4)
    d.make_resident(0, 1)
    d.begin()
    d.predicted(0, 2)
    d.start(2)
    d.routed(0, 1, 2, 3)
    c = d.counts()
    assert (c.hits, c.late, c.misses) == (1, 1, 2)


def test_bytes_read_are_useful_wasted_or_undecided() -> None:
    d = Driver(n_slot=2)
    d.begin()
    d.predicted(0, 1, 2)
    d.settle()
    c = d.counts()
    assert (c.bytes_read, c.bytes_useful, c.bytes_wasted) == (2 * EXPERT_BYTES, 0, 0)
    d.make_resident(0, 1)
    assert d.counts().bytes_useful == EXPERT_BYTES
    d.make_resident(0, 3)  # 2 is evicted unused
    c = d.counts()
    assert (c.bytes_read, c.bytes_useful, c.bytes_wasted) == (
        3 * EXPERT_BYTES,
        2 * EXPERT_BYTES,
        EXPERT_BYTES,
    )


def test_snapshot_says_what_is_where_and_how_it_was_found() -> None:
    d = Driver(n_slot=4, n_layer=1)
    d.make_resident(0, 1)
    d.begin()
    d.predicted(0, 2, 4)
    d.start(2)
    d.start(4)
    d.routed(0, 1, 2, 3)
    pinned = 16
    assert list(d.core.snapshot()) == [
        0, pinned + 1 + 4, pinned + 2 + 8, pinned + 2 + 12, 2, 0, 0, 0
    ]  # fmt: skip
    d.settle()
    assert list(d.core.snapshot()) == [
        0, pinned + 1 + 4, pinned + 1 + 8, pinned + 1 + 12, 1, 0, 0, 0
    ]  # fmt: skip
    for e in (1, 2, 3):
        d.computed(e)
    assert list(d.core.snapshot()) == [0, 1 + 4, 1 + 8, 1 + 12, 1, 0, 0, 0]
    d.begin()
    d.routed(0, 4)
    assert list(d.core.snapshot()) == [0, 1, 1, 1, pinned + 1 + 4, 0, 0, 0]


def test_layers_may_differ_in_their_chunks() -> None:
    core = Core(Shape(4, 1, [[10, 20], [1, 2, 3]]), Layout.per_layer([2, 2]))
    n_copy = [sum(type(c).__name__ == "Copy" for c in core.routed(0, [1]))]
    core.aborted()
    n_copy.append(sum(type(c).__name__ == "Copy" for c in core.routed(1, [1])))
    assert n_copy == [2, 3]


# Layers whose experts are known from the token.

BY_TOKEN = np.array([[0, 1], [2, 3], [4, 5]], np.int32)
"""The experts of the token ids 0 to 2."""
BY_ROUTER = np.zeros((0, 2), np.int32)


def knowing(n_slot: int = 2, **options: Any) -> Driver:
    """Return a driver of three layers; the first two choose by the token."""
    tables = [BY_TOKEN, BY_TOKEN, BY_ROUTER]
    return Driver(n_slot, n_layer=3, token_experts=tables, **options)


def test_known_experts_are_fetched_when_the_token_is_known_and_are_no_misses() -> None:
    d = knowing()
    for token, experts, n_layer in ((1, (2, 3), 2), (1, (2, 3), 0), (2, (4, 5), 2)):
        began = d.begin(tokens=[token])
        assert (began.high, began.low) == (chunks_of(*experts) * n_layer, [])
        for layer in (0, 1):
            response = d.routed(layer, *experts)
            assert response.high == response.low == response.cancelled == []
            d.settle()
            for expert in experts:
                d.computed(expert)
    for layer in (0, 1):
        counts = d.counts(layer)
        assert (counts.hits + counts.late, counts.misses) == (6, 0)
        assert counts.bytes_read == 4 * EXPERT_BYTES


def test_known_experts_are_fetched_without_prefetching_too() -> None:
    d = knowing()
    d.core.tune(Tuning(prefetch=False, depth=0))
    assert d.begin(tokens=[0]).high == chunks_of(0, 1) * 2


def test_a_prompt_s_known_experts_come_by_the_number_of_their_tokens() -> None:
    d = knowing(n_slot=8)
    response = d.begin(Phase.prefill, tokens=[2, 1, 1])
    assert response.low == chunks_of(2, 3, 4, 5) * 2 and not response.high


@pytest.mark.parametrize("tokens", [[], [3], [-1], [1, 99]])
def test_nothing_is_fetched_for_an_unknown_token(tokens: list[int]) -> None:
    assert knowing().begin(tokens=tokens).kinds == []


def test_a_guess_does_not_compete_with_what_is_known() -> None:
    d = knowing()
    d.begin(tokens=[1])
    assert d.predicted(1, 6).kinds == []
    assert d.predicted(2, 6).low == chunks_of(6)


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="for every layer or for none"):
        Driver(2, n_layer=3, token_experts=[BY_TOKEN])
    with pytest.raises(ValueError, match="a row for every token"):
        Driver(2, n_layer=1, n_expert_used=4, token_experts=[BY_TOKEN])
