"""What becomes of a cache whose slots cannot be rebuilt, and of one that is idle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import of_text

from backend import _native
from backend.engine.engine import Engine
from backend.methods.compose import layout
from backend.protocol.errors import EngineError
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]


def said(engine: Engine) -> list[int]:
    """Return the tokens of a short answer."""
    asked = of_text("it was one of the words", Sampling(temperature=0), 4)
    return [piece.token_id for piece in engine.answer(asked)]


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_slots_that_cannot_be_rebuilt_are_said_and_those_before_stay(
    error: type[Exception], open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(tiny, cache_rate=0.25)
    before, cache = said(engine), engine.cache
    configure = _native.Patch.configure

    def fail(*_: Any) -> None:
        monkeypatch.setattr(_native.Patch, "configure", configure)
        raise error("There is no room for slots.")

    monkeypatch.setattr(_native.Patch, "configure", fail)
    with pytest.raises(EngineError, match="no room for slots"):
        engine.change_now(engine.loaded.config.decided(cache_rate=0.5))
    assert engine.cache == cache and said(engine) == before


def test_an_idle_cache_takes_the_layout_that_its_method_wants(
    open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(tiny, cache_rate=0.5)
    before, patch = said(engine), engine.loaded.patch
    assert patch is not None
    wanted = [None, layout(engine.loaded.plan.method, patch.shape, 4)]
    tuner = "backend.engine.expert_cache.Tuner"
    monkeypatch.setattr(f"{tuner}.new_layout", lambda *_: wanted.pop(0))
    n_bytes = []
    for _ in range(2):
        engine.idle()
        n_bytes.append(patch.layout.bytes(patch.shape))
    assert n_bytes[0] > n_bytes[1] > 0 and not wanted
    assert said(engine) == before
