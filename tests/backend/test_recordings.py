"""Recordings of chats: what is written with consent, what is held out, and which weights stay."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from processes import DATA_HOME
from waiting import WAIT_S

from backend.learning import consent
from backend.learning import recordings as learning
from backend.learning.recordings import Recordings, adopt_if_better, number_of
from backend.learning.supervisor import Learner
from backend.traces.trace import PREFILL, Trace
from backend.weights.file import PredictorWeights, write
from backend.weights.lookup import in_data_folder, sizes_of

N_LAYER, N_EXPERT, N_USED, N_EMBD = 3, 8, 2, 4
MODEL, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the part of a ModelFile that recordings use. Its routers choose experts 2 and 3."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path / "data"))
    router = np.zeros((N_EXPERT, N_EMBD), np.float32)
    router[2:4] = 1
    monkeypatch.setattr(learning, "routers", lambda *_: [router] * N_LAYER)
    return SimpleNamespace(
        path=tmp_path / "m.gguf", fingerprint=MODEL, n_moe_layer=N_LAYER, n_expert=N_EXPERT,
        n_expert_used=N_USED, key=lambda name, default=None: N_EMBD,
    )  # fmt: skip


def routed_to(*experts: int, n: int = 6, model: str = MODEL) -> Trace:
    """Return the trace of an answer of n tokens that used these two experts in every layer."""
    return Trace(
        architecture="test",
        layers=tuple(range(N_LAYER)),
        n_expert=N_EXPERT,
        n_expert_used=N_USED,
        chunk_bytes=((16,),) * N_LAYER,
        phases=np.full(1, PREFILL, np.uint8),
        requests=np.zeros(1, np.int32),
        n_token=np.full(1, n, np.int32),
        n_routed=np.full((1, N_LAYER), n, np.int32),
        tokens=np.arange(n, dtype=np.int32),
        ids=np.tile(np.array(experts, np.uint8), (n, N_LAYER, 1)),
        inputs=np.ones((n, N_LAYER, N_EMBD), np.float16),
        has_inputs=np.ones(N_LAYER, np.uint8),
        n_embd=N_EMBD,
        model=model,
    )


def predicting(*experts: int, about: str = "") -> PredictorWeights:
    """Return weights that always predict these experts, the first one best."""
    bias = np.zeros(N_EXPERT, np.float32)
    for place, expert in enumerate(experts):
        bias[expert] = N_EXPERT - place
    arrays = {f"l{layer}.s1.b2": bias for layer in range(N_LAYER)}
    file = SimpleNamespace(
        n_moe_layer=N_LAYER, n_expert=N_EXPERT, n_expert_used=N_USED, key=lambda *_: N_EMBD
    )
    return PredictorWeights("learned", sizes_of(file), arrays, {}, {"recipe": about})  # type: ignore[arg-type]


@pytest.fixture
def adopt(file: Any, tmp_path: Path) -> Callable[..., bool]:
    """Let new weights compete with present ones. Return whether they have replaced them."""

    def make(
        new: PredictorWeights | bytes,
        present: PredictorWeights | None,
        *held_out: Trace,
        model: str = MODEL,
    ) -> bool:
        place, candidate = in_data_folder(file, "learned"), tmp_path / "candidate"
        place.parent.mkdir(parents=True, exist_ok=True)
        if present is not None:
            write(place, MODEL, present)
        before = place.read_bytes() if place.exists() else b""
        if isinstance(new, bytes):
            candidate.write_bytes(new)
        else:
            write(candidate, model, new)
        given, paths = candidate.read_bytes(), []
        for number, trace in enumerate(held_out):
            paths.append(tmp_path / f"{number}.npz")
            trace.write(paths[-1])
        verdict = adopt_if_better(file, candidate, paths)
        after = place.read_bytes() if place.exists() else b""
        assert not candidate.exists() and after == (given if verdict.is_better else before)
        return verdict.is_better

    return make


def test_equal_weights_do_not_replace_the_present_ones(adopt: Callable[..., bool]) -> None:
    """With as many right predictions, the present ones are known to be good for more chats."""
    trace = routed_to(0, 1)
    assert not adopt(predicting(0, 1, about="new"), predicting(0, 1, about="old"), trace)
    assert not adopt(predicting(0, 5), predicting(1, 6), trace)  # half of them is right
    assert adopt(predicting(0, 1), predicting(1, 6), trace)


def test_what_is_no_better_leaves_the_present_weights(
    adopt: Callable[..., bool], file: Any
) -> None:
    present, trace = predicting(1, 6), routed_to(0, 1)
    assert not adopt(predicting(5, 6), present, trace)
    assert not adopt(predicting(0, 1), present), "nothing was held out"
    assert not adopt(predicting(0, 1), present, routed_to(0, 1, model=OTHER))
    assert not adopt(predicting(0, 1), present, trace, model=OTHER)
    assert not adopt(b"broken", present, trace)


def test_a_long_chat_counts_more_than_a_short_one(adopt: Callable[..., bool]) -> None:
    long, short = routed_to(0, 1, n=20), routed_to(4, 5, n=2)
    assert not adopt(predicting(4, 5), predicting(0, 6), long, short)
    assert adopt(predicting(0, 1), predicting(4, 5), long, short)


def test_the_first_weights_have_to_beat_the_next_router(adopt: Callable[..., bool]) -> None:
    assert not adopt(predicting(2, 3), None, routed_to(2, 3))
    assert adopt(predicting(0, 1), None, routed_to(0, 1))


@pytest.fixture
def recorded(file: Any, tmp_path: Path) -> Recordings:
    """Return the recordings of a model, with consent."""
    consent.allow(tmp_path / "recordings", True)
    return Recordings(file, tmp_path / "recordings")


def numbers(paths: list[Path]) -> list[int]:
    return [number_of(path) for path in paths]


def test_nothing_is_recorded_after_consent_was_withdrawn(
    recorded: Recordings, tmp_path: Path
) -> None:
    """An answer may wait to be written at that moment."""
    assert recorded.add(routed_to(0, 1))
    consent.allow(tmp_path / "recordings", False)
    assert not recorded.add(routed_to(0, 1)) and len(recorded.paths) == 1
    (tmp_path / "recordings" / "consent.json").unlink()
    assert not recorded.add(routed_to(0, 1)) and len(recorded.paths) == 1


@pytest.mark.parametrize("choice", ["false", "0", "null", '"false"', '"no"', "1", '"true"', "{}"])
def test_only_a_plain_yes_is_consent(recorded: Recordings, tmp_path: Path, choice: str) -> None:
    (tmp_path / "recordings" / "consent.json").write_text(f'{{"record": {choice}}}', "utf-8")
    assert not recorded.allowed and not recorded.add(routed_to(0, 1))


def test_held_out_recordings_are_never_trained_on(recorded: Recordings) -> None:
    for _ in range(2 * learning.EVERY + 1):
        recorded.add(routed_to(0, 1))
    train, held_out = recorded.split()
    assert numbers(held_out) == [10, 20]
    assert numbers(train) == [*range(1, 10), *range(11, 20), 21]


def test_training_is_due_once_for_the_same_recordings(
    recorded: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "ENOUGH_TOKENS", 60)
    for number in range(1, 11):
        assert not recorded.is_due
        recorded.add(routed_to(0, 1, n=7))
        if number == 9:
            assert not recorded.is_due, "nothing is held out"
    assert recorded.is_due
    recorded.note_training(10, "done")
    assert not recorded.is_due and recorded.result == "done"
    recorded.add(routed_to(0, 1, n=7))
    recorded.add(routed_to(0, 1, n=7))
    assert not recorded.is_due, "14 of 60 tokens are less than a quarter"
    recorded.add(routed_to(0, 1, n=1))
    assert recorded.is_due


def test_the_oldest_recordings_leave_and_numbers_go_on(
    file: Any, recorded: Recordings, tmp_path: Path
) -> None:
    """Also where the newest one alone is too large: what comes then is new for the training."""
    for _ in range(4):
        recorded.add(routed_to(0, 1))
    recorded.note_training(4, "done")
    one = recorded.n_bytes // 4
    small = Recordings(file, tmp_path / "recordings", most_bytes=2 * one + one // 2)
    small.add(routed_to(0, 1))
    assert numbers(small.paths) == [4, 5]
    none = Recordings(file, tmp_path / "recordings", most_bytes=1)
    none.add(routed_to(0, 1))
    assert none.paths == []
    recorded.add(routed_to(0, 1))
    assert numbers(recorded.paths) == [5], "not 1, which counts as trained on"


def test_a_training_brings_no_deleted_recordings_back(recorded: Recordings, tmp_path: Path) -> None:
    """They were deleted while it went on. The user's choice stays."""
    recorded.add(routed_to(0, 1))
    learning.delete_all(tmp_path / "recordings")
    recorded.note_training(1, "done")
    assert [path.name for path in (tmp_path / "recordings").iterdir()] == ["consent.json"]
    assert recorded.allowed and recorded.result == ""


def test_an_answer_before_a_deletion_is_not_recorded_after_it(
    file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that is being written at that moment, nor one that waits for that."""
    root, add = tmp_path / "recordings", Recordings.add
    is_writing, goes_on, listeners = threading.Event(), threading.Event(), []

    def slowly(recordings: Recordings, trace: Trace) -> bool:
        is_writing.set()
        assert goes_on.wait(WAIT_S)
        return add(recordings, trace)

    monkeypatch.setattr(Recordings, "add", slowly)
    file.is_moe = True
    traces: Any = SimpleNamespace(
        want=lambda listener, **_: listeners.append(listener), unwant=lambda _: listeners.clear()
    )
    learner = Learner(lambda _: None, root)
    learner.act("allow")
    learner.attach(file, traces, lambda: True)
    (listener,) = listeners
    listener(routed_to(0, 1))
    assert is_writing.wait(WAIT_S)
    listener(routed_to(0, 1))
    assert learner.act("delete").n_bytes == 0
    listener(routed_to(0, 1, n=3))  # of a new answer
    goes_on.set()
    learner.close()
    assert [path.name for path in root.rglob("*.npz")] == ["00000001-3.npz"]
