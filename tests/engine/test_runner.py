"""What the guesses of a pass teach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from asking import of_text
from factory import make_tiny

from backend.engine.drafts import BY_MODEL, Trial, Width
from backend.engine.engine import Engine
from backend.engine.prediction_layer import PredictionLayer
from backend.protocol.settings import Sampling


class Eager(Width):
    """Asks for one token, whatever it costs."""

    def choose(self, n_equal: int) -> int:
        return 1


def test_a_layer_that_is_too_unsure_to_guess_counts_as_wrong(
    open_engine: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took time. A width that did not know would ask it for ever."""
    trials: list[Trial] = []

    def noted(*facts: object) -> Trial:
        trials.append(Trial(*facts))  # type: ignore[arg-type]
        return trials[-1]

    monkeypatch.setattr("backend.engine.runner.Trial", noted)
    monkeypatch.setattr(PredictionLayer, "guess", lambda *_: [])
    path = make_tiny("glm4moe", "Q8_0", tmp_path / "m.gguf", n_nextn=1)
    engine = open_engine(path, cache_rate=0.5, drafts="auto", device="cpu")
    engine.passes.width = Eager(1)
    list(engine.answer(of_text("the of and\n", Sampling(temperature=0), 4)))
    found = [(trial.n_equal, trial.n_guessed, trial.n_right) for trial in trials]
    assert found == [(BY_MODEL, 1, 0), (BY_MODEL, 1, 0), (0, 0, 0)]  # the last has no room
