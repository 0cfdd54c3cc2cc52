"""Passes of several sequences: streaming, forecasts from each one's own past, Klotski's slots."""

from __future__ import annotations

import pytest
from core_driver import CHUNK_BYTES, Driver

from backend import _native
from backend._native import Layout, Phase, PredictorProbe, Shape, Spec


def test_a_joint_pass_streams_as_a_prompt_does() -> None:
    """Six experts of four slots: through two of them; one sequence's needs take all four."""
    n_ordered = []
    for sequences in ([1, 2, 3], []):
        driver = Driver(4, chunks=False, n_stream=2)
        driver.core.pass_began(Phase.decode, [5, 6, 7], sequences)
        n_ordered.append(len(driver.routed(0, 0, 1, 2, 3, 4, 5).high))
    assert n_ordered == [2, 4]


def probe(name: str = "correlation") -> PredictorProbe:
    shape = Shape(6, 1, [CHUNK_BYTES] * 2)
    return PredictorProbe(Spec(name), shape, Layout.per_layer([6, 6]), n_predict=2)


def test_each_sequence_is_paired_with_its_own_past() -> None:
    """The last layer's 2 leads to 4 in sequence 1, and its 3 to 5 in sequence 2."""
    predictor = probe()
    for sequences, first, last in (([1, 2], [0, 1], [2, 3]), ([2, 1], [5, 4], [3, 2])):
        predictor.routed(0, first, sequences=sequences)
        predictor.routed(1, last, sequences=sequences)
    predictor.routed(0, [0], sequences=[9])
    [(layer, experts, _)] = predictor.routed(1, [2], sequences=[9])
    assert (layer, experts) == (0, [4])


def test_the_next_tokens_of_all_sequences_are_forecast() -> None:
    """Of a prompt of three tokens and one of two, only the last tokens count."""
    predictor = probe("previous_token")
    [(layer, experts, _)] = predictor.routed(0, [0, 3, 1, 4, 5], sequences=[1, 2, 1, 1, 2])
    assert layer == 0 and set(experts) == {4, 5}


@pytest.mark.parametrize(
    ("n_slot", "n_leading", "n_buffer"), [(0, 0, 8), (4, 0, 16), (5, 1, 12), (8, 2, 16)]
)
def test_klotski_keeps_leading_layers(n_slot: int, n_leading: int, n_buffer: int) -> None:
    """Four layers of eight experts, two used: the buffer has at least a layer and two."""
    made = _native.allocate(Spec("klotski"), Shape(8, 2, [CHUNK_BYTES] * 4), n_slot)
    pools = [made.pools[layer.pool[0]] for layer in made.layers]
    assert [(p.n_slot, p.buffer) for p in pools[:n_leading]] == [(8, False)] * n_leading
    assert {(p.n_slot, p.buffer) for p in pools[n_leading:]} == {(n_buffer, True)}
    assert len({layer.pool[0] for layer in made.layers[n_leading:]}) == 1
