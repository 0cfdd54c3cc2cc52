"""Cut experts, shared pools, buffers, prefetch distance, and the papers' pipelines."""

from __future__ import annotations

import pytest
from core_driver import CHUNK_BYTES, EXPERT_BYTES, Driver, chunks_of, composition

from backend._native import Core, LayerLayout, Layout, Part, Phase, PoolLayout, Shape, Tuning


def cut(n_top: int, n_bottom: int, n_layer: int = 2) -> Layout:
    """Return a layout: half of each expert in slots per layer, half in a common buffer."""
    pools = [PoolLayout(n_top) for _ in range(n_layer)] + [PoolLayout(n_bottom, True)]
    return Layout(pools, [LayerLayout(0.5, [layer, n_layer]) for layer in range(n_layer)])


def shared(n_slot: int, *, buffer: bool = False, n_layer: int = 2) -> Layout:
    """Return a layout with one pool for all layers."""
    return Layout([PoolLayout(n_slot, buffer)], [LayerLayout(1.0, [0, -1])] * n_layer)


def part_of(command: object) -> tuple[int, Part]:
    return command.expert, command.part  # type: ignore[attr-defined]


# Cut experts.


def test_both_parts_are_fetched_and_the_top_is_computed_first() -> None:
    core = Driver(n_slot=0, layout=cut(4, 4), chunks=False).core
    copies = [c for c in core.routed(0, [5]) if hasattr(c, "ticket")]
    assert [part_of(c) for c in copies] == [(5, Part.top), (5, Part.bottom)]
    assert core.copied(copies[1].ticket) == []  # the bottom waits for its top
    (compute,) = core.copied(copies[0].ticket)
    assert part_of(compute) == (5, Part.top)
    (compute,) = core.computed(0, 5, Part.top)
    assert part_of(compute) == (5, Part.bottom)
    assert core.computed(0, 5, Part.bottom) == [] and core.idle()


def test_a_resident_top_computes_while_its_bottom_is_on_its_way() -> None:
    d = Driver(n_slot=0, layout=cut(4, 4), chunks=False)
    copies = [c for c in d.core.routed(0, [5]) if hasattr(c, "ticket")]
    for c in copies:
        d.core.copied(c.ticket)
    d.core.computed(0, 5, Part.top)
    d.core.computed(0, 5, Part.bottom)
    response = d.core.routed(0, [5])
    assert [part_of(c) for c in response if hasattr(c, "part")] == [(5, Part.top), (5, Part.bottom)]
    assert [type(c).__name__ for c in response] == ["Order", "Compute", "Copy"]
    c = d.counts()
    assert (c.hits, c.misses) == (1, 3)  # a bottom is evicted once it is computed


def test_the_bytes_of_both_parts_are_the_experts() -> None:
    layout, shape = cut(4, 4), Shape(8, 2, [CHUNK_BYTES] * 2, n_cut=[2, 2])
    layout.validate(shape)
    d = Driver(n_slot=0, layout=layout)
    d.make_cut_resident(0, 5)
    assert d.counts().bytes_read == EXPERT_BYTES


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (Layout([], []), "another number of layers"),
        (Layout([PoolLayout(4)], [LayerLayout(0.5, [0, -1])] * 2), "if and only if"),
        (Layout([PoolLayout(4)], [LayerLayout(1.0, [-1, -1])] * 2), "no slots"),
        (Layout([PoolLayout(0)], [LayerLayout(1.0, [0, -1])] * 2), "no slots"),
        (Layout([PoolLayout(4)], [LayerLayout(1.0, [3, -1])] * 2), "do not exist"),
        (Layout([PoolLayout(4)] * 2, [LayerLayout(0.3, [0, 1])] * 2), "within a block"),
        (Layout([PoolLayout(4)] * 2, [LayerLayout(1.5, [0, -1])] * 2), "0 to 1"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(layout: Layout, sentence: str) -> None:
    shape = Shape(8, 2, [CHUNK_BYTES] * 2, n_cut=[2, 2])
    with pytest.raises(ValueError, match=sentence):
        Core(shape, layout)


def test_layers_of_different_kinds_do_not_share_slots() -> None:
    with pytest.raises(ValueError, match="different kinds"):
        Core(Shape(8, 2, [[10], [20]]), shared(4))


# Pools that layers share, and buffers.


def test_one_layer_may_take_anothers_slots() -> None:
    d = Driver(n_slot=0, layout=shared(3))
    d.make_resident(0, 1, 2, 3)
    assert d.held(0) == {1, 2, 3}
    d.make_resident(1, 1, 2)
    assert d.held(1) == {1, 2} and len(d.held(0)) == 1


def test_the_same_expert_of_two_layers_is_two() -> None:
    d = Driver(n_slot=0, layout=shared(4))
    d.make_resident(0, 1)
    d.begin()
    assert d.routed(1, 1).high == chunks_of(1)


def test_a_need_waits_for_a_slot_that_another_layers_forecast_fills() -> None:
    d = Driver(n_slot=0, layout=shared(1))
    d.begin()
    d.predicted(1, 3)
    assert d.routed(0, 5).high == []
    assert d.arrive(3, layer=1).high == chunks_of(5)
    assert d.arrive(5).compute == [5]


def test_a_buffer_lets_go_what_was_computed() -> None:
    d = Driver(n_slot=0, layout=shared(3, buffer=True))
    d.make_resident(0, 1, 2)
    assert d.held(0) == set()
    assert d.counts().bytes_useful == d.counts().bytes_read == 2 * EXPERT_BYTES


def test_a_forecast_never_displaces_what_waits_in_a_buffer() -> None:
    d = Driver(n_slot=0, layout=shared(2, buffer=True))
    d.begin()
    d.predicted(0, 1, 2)
    d.settle()
    assert d.predicted(1, 3).low == []
    assert d.held(0) == {1, 2}


# Pipelines of the papers.


def test_through_k_slots_at_most_k_missing_experts_are_open() -> None:
    d = Driver(n_slot=8, scheduler="stream", k_slots=2)
    d.begin()
    response = d.routed(0, 4, 1, 6)
    assert [e for e, _ in response.high] == [1, 4]
    assert d.arrive(4).compute == []  # one after the other
    assert d.arrive(1).compute == [1, 4]
    assert [e for e, _ in d.computed(1).high] == [6]


def test_hits_do_not_count_among_the_k() -> None:
    d = Driver(n_slot=8, scheduler="stream", k_slots=1)
    d.make_resident(0, 1)
    d.make_resident(0, 2)
    d.begin()
    response = d.routed(0, 5, 1, 2)
    assert [e for e, _ in response.high] == [5] and response.compute == [1, 2]
    assert d.arrive(5).compute == [5]


def test_hot_experts_come_first() -> None:
    d = Driver(n_slot=8, n_expert_used=1, scheduler="expert_major")
    d.begin()
    assert d.routed(0, 4, 1, 1, 6, 6, 6).order == [6, 1, 4]


def test_the_next_layers_copies_wait_for_the_first_expert() -> None:
    d = Driver(n_slot=8, prefetch_after_first=True, chunks=False)
    d.begin()
    d.routed(0, 4, 1)
    assert d.predicted(1, 3).low == []
    response = d.arrive(4)
    assert response.compute == [4] and [e for e, _ in response.low] == [3]


# Forecasts.


def test_a_forecast_waits_until_its_layer_is_near() -> None:
    d = Driver(n_slot=4, n_layer=4, depth=1)
    d.begin()
    d.routed(0, 5)
    assert d.predicted(3, 2).low == []
    d.settle()
    d.computed(5)
    d.routed(1, 5)
    d.settle()
    d.computed(5)
    assert d.state(2, 3) == "absent"
    assert d.routed(2, 5).low == chunks_of(2)
    d.settle()
    d.computed(5)
    assert d.flights(3) == [] and d.state(2, 3) == "ready"


def test_after_the_last_layer_comes_the_next_passes_first() -> None:
    d = Driver(n_slot=4, n_layer=2, depth=1)
    d.begin()
    d.routed(1, 5)
    assert d.predicted(0, 2).low == chunks_of(2)
    d.settle()
    d.computed(5)
    d.begin()
    assert d.routed(0, 2).compute == [2]


def test_tuning_turns_prefetching_off_and_on() -> None:
    d = Driver(n_slot=4)
    d.begin()
    d.core.tune(Tuning(prefetch=False))
    assert d.predicted(0, 2).low == []
    d.core.tune(Tuning(prefetch=True, depth=2))
    assert d.predicted(0, 2).low == chunks_of(2)


def test_prompts_read_ahead_whatever_is_tuned_for_tokens() -> None:
    """A layout that pays for one token may not pay for a prompt, which needs nearly all experts."""
    d = Driver(n_slot=4)
    d.core.tune(Tuning(prefetch=False))
    d.begin(Phase.prefill)
    assert d.predicted(0, 2).low == chunks_of(2)


@pytest.mark.parametrize(
    "tuning", [Tuning(eviction=1), Tuning(eviction=-1), Tuning(depth=-1), Tuning(copy_cost=2)]
)
def test_tuning_that_makes_no_sense_is_refused(tuning: Tuning) -> None:
    with pytest.raises(ValueError, match=r"eviction|depth"):
        Driver(n_slot=4).core.tune(tuning)


def test_a_forecast_is_judged_by_what_was_used_and_what_had_come() -> None:
    d = Driver(n_slot=8)
    d.begin()
    d.predicted(0, 1, 2, 3)
    d.arrive(1)
    d.start(2)
    d.routed(0, 1, 2)
    c = d.counts()
    assert (c.predicted, c.predicted_used, c.predicted_ready) == (3, 2, 1)
    d.settle()
    d.computed(1)
    d.computed(2)
    d.routed(0, 1, 2)
    assert d.counts().predicted == 3, "a forecast is judged once"


def test_a_forecast_that_was_never_near_is_dropped_at_its_gate() -> None:
    d = Driver(n_slot=4, depth=0)
    d.make_resident(0, 5)
    d.make_resident(1, 5)
    d.begin()
    assert d.predicted(1, 2).low == []
    for layer in range(2):
        d.routed(layer, 5)
        d.computed(5)
    d.core.tune(Tuning(depth=1))
    d.begin()
    assert d.routed(0, 5).low == [], "it was for the pass before"


@pytest.mark.parametrize("unknown", ["predictor", "eviction", "scheduler"])
def test_an_unknown_part_is_refused_by_name(unknown: str) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Core(
            Shape(8, 2, [CHUNK_BYTES]),
            Layout.per_layer([4]),
            composition(**{unknown: "nonsense"}),  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    "numbers", [{"chunks": 2}, {"k_slots": -1}, {"k_slots": 1.5}, {"k_slots": float("nan")}]
)
def test_a_schedulers_numbers_are_checked(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="scheduler"):
        Core(Shape(8, 2, [CHUNK_BYTES]), Layout.per_layer([4]), composition(**numbers))
