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
    """Only the last tokens of two prompts, of three tokens and of two, count."""
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


def eam() -> PredictorProbe:
    shape = Shape(16, 2, [CHUNK_BYTES] * 3)
    return PredictorProbe(Spec("eam"), shape, Layout.per_layer([16] * 3), n_predict=2)


A, B = [[0, 1], [2, 3], [4, 5]], [[8, 9], [10, 11], [12, 13]]
"""The experts that two requests choose in each layer."""
Tokens = dict[int, list[list[int]]]
"""By sequence, the experts of each layer."""
Said = list[tuple[int, list[int], list[float]]]


def passed(predictor: PredictorProbe, tokens: Tokens, *, alone: bool = False) -> Said:
    """Play a pass with a token of each sequence. Return its forecasts."""
    predictor.pass_began(Phase.decode, [1] * len(tokens))
    said: Said = []
    for layer in range(3):
        ids = [expert for of in tokens.values() for expert in of[layer]]
        said += predictor.routed(layer, ids, sequences=[] if alone else list(tokens))
    return said


def test_requests_of_a_joint_pass_have_their_own_matrices() -> None:
    """They are known later as if each had been answered alone."""
    jointly, alone = eam(), eam()
    for _ in range(3):
        assert passed(jointly, {1: A, 2: B}) == []
    for tokens in (A, B):
        for _ in range(3):
            passed(alone, {0: tokens}, alone=True)
        alone.request_began()
    jointly.request_began()
    for tokens in (A, B, [A[0], B[1], A[2]]):
        said = passed(jointly, {0: tokens}, alone=True)
        assert said and said == passed(alone, {0: tokens}, alone=True)


def test_each_sequence_of_a_joint_pass_is_forecast() -> None:
    predictor, of_one = eam(), {}
    for tokens in (A, B):
        passed(predictor, {0: tokens}, alone=True)
        predictor.request_began()
    for tokens in (A, B):
        of_one[tokens[0][0]] = passed(predictor, {0: tokens}, alone=True)
    said = passed(predictor, {5: A, 6: B})
    assert [layer for layer, *_ in said] == [1, 2, 2]
    for both, one, other in zip(said, of_one[A[0][0]], of_one[B[0][0]], strict=True):
        assert both[1:] == (one[1] + other[1], one[2] + other[2])


def test_a_request_that_has_ended_is_known_to_the_next_one() -> None:
    """The other goes on: nobody knows its matrix yet, though it misses a pass."""
    predictor, began = eam(), {1, 2}
    for present in ({1: A, 2: B}, {1: A}, {1: A, 2: B}, {2: B}):
        while began:
            predictor.sequence_began(began.pop())
        assert passed(predictor, present) == []
    predictor.sequence_began(3)
    assert {e for _, experts, _ in passed(predictor, {3: A, 2: B}) for e in experts} == {2, 3, 4, 5}


def test_what_an_ended_sequence_used_is_worth_nothing_to_the_others() -> None:
    shape = Shape(16, 2, [CHUNK_BYTES] * 3)
    evictor = _native.Evictor(Spec("eam"), shape, Layout.per_layer([16] * 3))
    for sequences in ([1, 2], [2]):
        evictor.pass_began(Phase.decode)
        evictor.routed(0, [e for s in sequences for e in (A, B)[s - 1][0]], sequences=sequences)
    used, unused = (evictor.keep(0, _native.Part.top, e) for e in (A[0][0], 15))
    assert used > 1e3 * unused
    evictor.sequence_began(3)
    used, present = (evictor.keep(0, _native.Part.top, e) for e in (A[0][0], B[0][0]))
    assert used == unused < present == pytest.approx(0.5, rel=1e-3)
