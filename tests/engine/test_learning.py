"""Learning from chats: recorded with consent only, trained while idle, kept only if better."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import of_text
from factory import make_tiny
from processes import DATA_HOME
from waiting import until

from backend.engine.engine import Engine
from backend.engine.recording import Recording
from backend.gguf.model_file import read_model
from backend.learning import consent
from backend.learning import recordings as learning
from backend.learning.supervisor import Learner
from backend.protocol.settings import Sampling
from backend.protocol.status import LearningFacts
from backend.text import text
from backend.weights import lookup as learned
from backend.worker.answer_recorder import AnswerTraces

WAIT_S = 900  # a child of the lowest priority trains


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder of the test's own. Child processes use it too."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path))
    return consent.recordings_folder()


@pytest.fixture
def engine(tiny: Path, open_engine: Callable[..., Engine]) -> Engine:
    return open_engine(tiny, cache_rate=0.5)


@pytest.fixture
def make_learner(root: Path) -> Iterator[Callable[..., Learner]]:
    made: list[Learner] = []

    def make(told: Callable[[LearningFacts], Any] = lambda _: None, **options: Any) -> Learner:
        made.append(Learner(told, root, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def answer(engine: Engine, traces: AnswerTraces, text: str = "Some words.") -> list[int]:
    traces.begin()
    engine.forget()
    pieces = list(engine.answer(of_text(text, Sampling(temperature=0), 6)))
    traces.end()
    return [piece.token_id for piece in pieces]


def attach(one: Learner, engine: Engine) -> AnswerTraces:
    traces = AnswerTraces(engine)
    one.attach(engine.file, traces, lambda: engine.shape is not None)
    return traces


def wait(condition: Callable[[], Any]) -> None:
    until(condition, WAIT_S)


def test_nothing_is_recorded_unasked(engine: Engine, root: Path, make_learner: Any) -> None:
    one = make_learner()
    traces = attach(one, engine)
    answer(engine, traces)
    assert not root.exists()
    state = one.act("status")
    assert (state.allowed, state.n_bytes, state.sentence) == (False, 0, "Nothing is recorded.")


def test_recorded_counted_and_deleted(engine: Engine, root: Path, make_learner: Any) -> None:
    one = make_learner()
    traces = attach(one, engine)
    unrecorded = answer(engine, traces)
    assert one.act("allow").allowed
    assert answer(engine, traces) == unrecorded
    wait(lambda: one.state().n_bytes)
    state = one.state()
    assert state.n_bytes == sum(path.stat().st_size for path in root.glob("*/*.npz"))
    assert state.sentence == text("learning.recorded", n=state.n_token, enough=state.enough_tokens)
    (path,) = root.glob("*/*.npz")
    trace = learning.read_trace(path, engine.file.fingerprint)
    assert trace.inputs is not None and trace.scores is not None
    assert len(trace.tokens) == learning.n_token(path)

    assert one.act("delete").n_bytes == 0 and list(root.glob("*/*")) == []
    one.act("forbid")
    answer(engine, traces)
    time.sleep(0.1)
    assert one.state().n_bytes == 0 and not Learner(lambda _: None, root).state().allowed


def test_an_answer_beside_others_is_recorded_for_nobody(engine: Engine) -> None:
    found: list[Any] = []
    traces = AnswerTraces(engine)
    traces.want(found.append)
    traces.begin()
    list(engine.answer(of_text("Some words.", Sampling(temperature=0), 6)))
    traces.end(is_wanted=False)
    assert not found
    answer(engine, traces)
    assert len(found) == 1


def test_a_drive_that_cannot_be_written_is_told(
    engine: Engine, root: Path, make_learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make_learner()
    traces = attach(one, engine)
    one.act("allow")
    (root / engine.file.fingerprint[:32]).write_bytes(b"in the way")
    answer(engine, traces)
    wait(lambda: one.state().sentence.startswith("An answer could not be recorded: "))


class Answers:
    """Stands in for the traces of an engine's answers."""

    def want(self, listener: Any, **_: bool) -> None:
        self.listener = listener

    def unwant(self, listener: Any) -> None: ...


@pytest.mark.parametrize("is_allowed", [False, True])
@pytest.mark.parametrize("what", ["experts", "cache", "inputs"])
def test_what_cannot_be_learnt_is_said_and_not_recorded(
    what: str, is_allowed: bool, tiny: Path, tmp_path: Path, root: Path, make_learner: Any
) -> None:
    path = make_tiny("dense", "F16", tmp_path / "m.gguf") if what == "experts" else tiny
    one, traces = make_learner(), Answers()
    one.act("allow")
    one.attach(read_model(path), traces, lambda: what != "cache")
    if what == "inputs":
        assert one.state().can_learn
        traces.listener(SimpleNamespace(shows_inputs=False, tokens=[1]))
        assert one._answers.empty()
    if not is_allowed:
        one.act("forbid")
    state = one.state()
    assert (state.can_learn, state.sentence) == (False, text(f"learning.no_{what}"))
    one.detach()
    assert one.state().can_learn  # nothing is known of the next model


def test_trains_while_nobody_waits(
    engine: Engine, root: Path, make_learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "ENOUGH_TOKENS", 100)
    told: list[LearningFacts] = []
    one = make_learner(told.append, idle_s=0.0, minutes=0.02)
    one.set_busy(True)
    traces = attach(one, engine)
    one.act("allow")
    for number in range(30):
        text = " ".join(f"word {number} {i}" for i in range(12))
        answer(engine, traces, text)
        wait(lambda: one._answers.empty())
    assert one.state().share is None and not any(state.share is not None for state in told)
    one.set_busy(False)
    wait(lambda: one.state().share is not None)
    one.set_busy(True)
    wait(lambda: one.state().sentence.startswith("Training waits for the engine ("))
    one.set_busy(False)
    wait(lambda: one.state().share is None)
    final = one.state().sentence
    assert " % right instead of " in final, final
    adopted = learned.in_data_folder(engine.file, "learned")
    assert adopted.is_file() == final.startswith("A better predictor was found")
    assert not list(adopted.parent.glob("*.candidate"))
    assert not one._recordings.is_due  # nothing is new


def test_what_does_not_fit_leaves(engine: Engine, root: Path) -> None:
    consent.allow(root, True)
    recording = Recording(engine, engine.file, scores=True, inputs=True)
    list(engine.answer(of_text("Some words.", Sampling(temperature=0), 4)))
    trace = recording.trace({})
    first = learning.Recordings(engine.file)
    first.add(trace)
    small = learning.Recordings(engine.file, most_bytes=3 * first.n_bytes)
    for _ in range(20):
        small.add(trace)
    assert [learning.number_of(path) for path in small.paths] == [19, 20, 21]
