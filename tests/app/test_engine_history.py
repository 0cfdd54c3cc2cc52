"""The history of an answer: the worker's batches, and the maps of any pass."""

import base64
import random
from typing import Any

import pytest

from app.panel.moment import Moments
from app.session import history as history_module
from app.session.history import History
from backend.engine.moments import Watch
from backend.methods.cost import PassCost
from backend.protocol.statistics import Batch

N_LAYER, N_EXPERT, N_PROMPT = 3, 11, 2


class Answer:
    """A made-up answer: its maps, and the batches that a worker would send for it."""

    def __init__(self, n_pass: int, n_each: int = 5, seed: int = 1) -> None:
        chance = random.Random(seed)
        watch = Watch()
        self.maps: list[bytes] = []
        self.batches: list[dict[str, Any]] = []
        for number in range(n_pass):
            states = [chance.choice((0, 1, 2)) for _ in range(N_LAYER * N_EXPERT)]
            found = [chance.choice((0, 0, 4, 8, 12, 40, 44)) for _ in states]
            residency = bytes(s | f for s, f in zip(states, found, strict=True))
            cost = PassCost(1, 0.01, 0.004, 0.005, 0.003, hits=number, misses=2, bytes_read=100)
            stalls_us = (number, 2, 3_000_000)
            watch.add(number, cost, stalls_us, residency, is_token=number >= N_PROMPT)
            self.maps.append(residency)
            if number % n_each == n_each - 1 or number == n_pass - 1:
                while (batch := watch.take()) is not None:
                    self.batches.append(batch)

    def uses(self, n_pass: int) -> list[int]:
        """Return the number of tokens that used each expert in the first passes."""
        decoded = self.maps[N_PROMPT:n_pass]
        return [sum(bool(m[i] & 12) for m in decoded) for i in range(N_LAYER * N_EXPERT)]


def read(answer: Answer) -> History:
    history = History(N_LAYER, N_EXPERT)
    for batch in answer.batches:
        history.add(Batch.from_json(batch))
    return history


@pytest.mark.parametrize("n_each", [1, 4, 300])
def test_every_moment_comes_back(n_each: int) -> None:
    answer = Answer(300, n_each)
    history = read(answer)
    assert len(history) == 300 and history.tokens == list(range(N_PROMPT, 300))
    for index in (*range(0, 300, 7), 299):
        assert history.residency(index) == answer.maps[index]
        stalls_us = history.layer_stall_us(index)
        assert stalls_us is not None and list(stalls_us) == [index, 2, 3_000_000]
        assert list(history.uses(index)) == answer.uses(index + 1)
    assert list(history.uses()) == answer.uses(300)
    figures = history.figures[9]
    assert (figures.n_token, figures.wall_us, figures.other_us) == (1, 10_000, 1_000)
    assert (figures.hits, figures.requests, figures.bytes_read) == (9, 11, 100)


def test_another_answer_replaces_the_first() -> None:
    history = read(Answer(20))
    second = Answer(7, seed=2)
    for batch in second.batches:
        history.add(Batch.from_json(batch))
    assert len(history) == 7 and history.residency(3) == second.maps[3]
    assert list(history.uses()) == second.uses(7)


def test_a_history_is_bounded_and_forgets_the_oldest_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer(400)
    size = len(base64.b64decode(answer.batches[0]["data"]))
    monkeypatch.setattr(history_module, "KEPT_BYTES", 10 * size)
    history = read(answer)
    assert len(history.figures) == 400
    assert history.residency(0) is None and history.layer_stall_us(0) is None
    assert history.residency(399) == answer.maps[399]
    assert list(history.uses()) == answer.uses(400)


def test_passes_that_nobody_took_are_told_from_where_they_are_known() -> None:
    watch = Watch()
    for number in (5, 6, 9):
        watch.add(number, PassCost(1, 0.01), (), bytes(4), is_token=True)
    first, second = watch.take(), watch.take()
    assert first is not None and second is not None and watch.take() is None
    assert (first["first"], len(first["figures"])) == (5, 2)
    assert (second["first"], len(second["figures"])) == (9, 1)


@pytest.mark.parametrize("change", ["cut", "long", "expert", "figures", "base64", "none"])
def test_batches_that_make_no_sense_are_refused(change: str) -> None:
    batch = Answer(4, 4).batches[0]
    data = bytearray(base64.b64decode(batch["data"]))
    if change == "cut":
        del data[-1]
    elif change == "long":
        data += b"x"
    elif change == "expert":
        first = 2 * ((N_LAYER * N_EXPERT + 7) // 8) + 2 * 4 * 4
        data[first : first + 4] = (N_LAYER * N_EXPERT).to_bytes(4, "little")
    elif change == "figures":
        batch["figures"] = [row[:-1] for row in batch["figures"]]
    elif change == "none":
        batch["figures"] = []
    batch["data"] = "?" if change == "base64" else base64.b64encode(data).decode()
    history = History(N_LAYER, N_EXPERT)
    with pytest.raises((ValueError, TypeError)):
        history.add(Batch.from_json(batch))
    assert len(history) == 0


def test_a_moment_is_a_token_with_its_map_its_waiting_and_its_neighbours() -> None:
    answer = Answer(60)
    moments = Moments((4, 5, 6), N_EXPERT)
    for batch in answer.batches:
        moments.add(Batch.from_json(batch))
    assert moments.n_token == 58 and moments.residency is None
    assert moments.shown(20)[0] == 38
    moments.choose(10)
    assert moments.index == 12
    assert moments.residency is not None and moments.residency.data == answer.maps[12]
    assert moments.layer_stall_s == {4: 12e-6, 5: 2e-6, 6: 3.0}
    first, times = moments.shown(20)
    assert first == 0 and len(times) == 20
    moments.choose(1000)
    assert moments.token == 57
    moments.clear()
    assert moments.token is None and moments.index is None
