"""The local server with several clients at once: joint passes, joining, leaving, what is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from reciter import make_reciter
from served import Served, asked
from waiting import WAIT_S, until

from backend.engine.engine import Engine
from backend.protocol.settings import EngineConfig

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
BODY: dict[str, Any] = {"model": "any", "temperature": 0, "max_tokens": 40}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = make_reciter(tmp_path_factory.mktemp("jointly") / "m.gguf", ALPHABET)
    config = EngineConfig.of(cache_rate=0.5, context_length=1024, n_sequence=3)
    server = Served(Engine.open(path, config))
    yield server
    server.close()


class Watch:
    """Counts the sequences of each pass. began: a pass was computed; held: it waits for go."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.began, self.go = threading.Event(), threading.Event()
        compute = engine.passes.compute

        def watched(plan: Any, last_s: float) -> bool:
            self.sizes.append(len(plan.begins))
            self.began.set()
            self.go.wait(WAIT_S)
            return compute(plan, last_s)

        monkeypatch.setattr(engine.passes, "compute", watched)


def text_of(served: Served, prompt: str, **more: Any) -> Any:
    return served.post("/v1/completions", {**BODY, "prompt": prompt + "\n", **more}).json()


def test_a_request_joins_those_that_are_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(served.engine, monkeypatch)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(text_of, served, "x")
        assert watch.began.wait(WAIT_S)
        others = [pool.submit(text_of, served, prompt, max_tokens=9) for prompt in ("yy", "zzz")]
        until(lambda: served.turns.n_open == 3)
        watch.go.set()
        texts = [future.result()["choices"][0]["text"] for future in (first, *others)]
    assert texts == [ALPHABET, "abcdefghi", "abcdefghi"]
    assert watch.sizes[0] == 1 and max(watch.sizes) == 3
    assert len(watch.sizes) < 26 + 9  # they were not answered one after the other


def test_several_choices_are_computed_jointly(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(served.engine, monkeypatch)
    watch.go.set()
    answer = text_of(served, "x", n=3, max_tokens=5)
    assert [c["text"] for c in answer["choices"]] == ["abcde"] * 3
    assert answer["usage"]["completion_tokens"] == 15
    assert len(watch.sizes) <= 7 and max(watch.sizes) == 3


def test_a_new_prompt_with_several_answers_is_not_said_to_be_cached(served: Served) -> None:
    """Its beginning is computed once for all answers, and was not in the context before."""
    prompt, cached = "0123456789 and more than sixteen tokens of words " * 3, []
    for _ in range(2):
        usage = text_of(served, prompt, n=3, max_tokens=5)["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] < 10 < 100 < usage["prompt_tokens"] - 1 == cached[1]


def test_an_end_counts_as_a_token_and_a_limit_does_not(served: Served) -> None:
    for limit, n_token in ((40, 27), (26, 26), (3, 3)):
        usage = text_of(served, "x", max_tokens=limit)["usage"]
        assert usage["completion_tokens"] == n_token
    usage = text_of(served, "x", stop=["de"])["usage"]
    assert usage["completion_tokens"] == 5


def test_who_leaves_does_not_stop_the_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(served.engine, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        stays = pool.submit(text_of, served, "x")
        assert watch.began.wait(WAIT_S)
        with asked(served, "/v1/completions", {**BODY, "prompt": "y\n"}):
            until(lambda: served.turns.n_open == 2)
        until(lambda: served.turns.n_open == 1)
        watch.go.set()
        assert stays.result()["choices"][0]["text"] == ALPHABET
    assert text_of(served, "z", max_tokens=2)["choices"][0]["text"] == "ab"


def test_a_pass_that_fails_twice_is_no_fault_of_its_requests(served: Served) -> None:
    """The client may ask again: 500. The next request is answered."""
    text_of(served, "w")  # the first request gives the engine its context
    context, n_pass = served.engine.loaded.context, 0
    real = context.decode_rows

    def decode_rows(rows: Any) -> int:
        nonlocal n_pass
        n_pass += 1
        return -3 if n_pass in (3, 4) else int(real(rows))

    context.decode_rows = decode_rows
    try:
        failed = served.post("/v1/completions", {**BODY, "prompt": "x\n"})
        assert failed.status_code == 500 and n_pass == 4
        assert "could not compute" in failed.json()["error"]["message"]
        assert text_of(served, "y")["choices"][0]["text"] == ALPHABET
    finally:
        del context.decode_rows


def test_one_that_is_left_while_it_is_written_makes_room(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next tokens are not computed, and the other goes on."""
    compute, sizes = served.engine.passes.compute, []
    both, left = threading.Event(), threading.Event()

    def watched(plan: Any, last_s: float) -> bool:
        sizes.append(len(plan.begins))
        if sizes[-1] == 2 and not both.is_set():
            both.set()
            assert left.wait(WAIT_S)
        elif len(sizes) == 1:
            until(lambda: served.turns.n_open == 2)
        return compute(plan, last_s)

    monkeypatch.setattr(served.engine.passes, "compute", watched)
    with ThreadPoolExecutor(1) as pool:
        stays = pool.submit(text_of, served, "x")
        until(lambda: served.turns.n_open == 1)
        with asked(served, "/v1/completions", {**BODY, "prompt": "y\n"}):
            assert both.wait(WAIT_S)
        until(lambda: served.turns.n_open == 1)
        left.set()
        assert stays.result()["choices"][0]["text"] == ALPHABET
    assert sizes.count(2) == 1


def test_a_conversation_is_kept_beside_others(served: Served) -> None:
    """Two clients take turns; each goes on without computing its prompt again."""
    began = [f"{name} and some words before the question" for name in "pq"]
    lengths = [text_of(served, t, max_tokens=3)["usage"]["prompt_tokens"] for t in began]
    for text, n in zip(began, lengths, strict=True):
        answer = text_of(served, text + "\nabc\nmore", max_tokens=3)
        assert answer["choices"][0]["text"] == "abc"
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= n > 20
