"""What passes owe their requests, beside computing: stops, moved conversations, limits of images.

No model: tests of the engine show what is computed.
"""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backend.engine.passes import Conversation, Passes
from backend.engine.scheduler import PassPlan, Row
from backend.llama.vision import ImageChunk
from backend.protocol.errors import EngineError
from backend.protocol.request import Handle


def test_a_stop_cancels_those_that_have_joined() -> None:
    passes = Passes(SimpleNamespace(stop_flag=Event(), patches=()))  # type: ignore[arg-type]
    first, second, left = Handle(), Handle(), Handle()
    for handle in (first, second, left):
        passes.join(handle)
    passes.leave(left)
    first.cancel()
    assert not passes.is_stopped
    passes.stop()
    assert passes.is_stopped and second.is_cancelled and not left.is_cancelled


@pytest.mark.parametrize("is_logged", [False, True])
def test_a_conversation_goes_on_in_another_context(is_logged: bool) -> None:
    """With the checkpoint of a state that cannot be cut. One that is too long begins again."""
    held: list[Any] = []
    loaded: list[Any] = []
    log: list[Any] = []
    context = SimpleNamespace(
        n_context=3,
        log=SimpleNamespace(write=lambda *fields: log.append(fields)) if is_logged else None,
        set_state=lambda state, n, *, key: (state, n) == (b"state", 3),
        load=lambda data, n, sequence, *, key: loaded.append((data, n, sequence)),
    )
    scheduler = SimpleNamespace(hold=lambda tokens, **how: held.append((tokens, how)))
    parts = {"context": context, "scheduler": scheduler, "cache": SimpleNamespace(drafts="off")}
    passes = Passes(SimpleNamespace(**parts))  # type: ignore[arg-type]
    passes.go_on_with(Conversation([1, 2, 3, 4], bytearray(b"state")))
    passes.go_on_with(Conversation([1, 2, 3], bytearray()))
    assert not held
    passes.go_on_with(Conversation([1, 2, 3], bytearray(b"state"), (2, b"two"), "chat-1"))
    assert held == [([1, 2, 3], {"owner": "chat-1", "has_moved": True})]
    assert loaded == [(b"two", 2, 0)] and len(log) == is_logged


@pytest.mark.parametrize("n_token", [8, 9])
def test_an_image_that_sees_all_of_itself_fits_into_a_pass(n_token: int) -> None:
    encoded: list[ImageChunk] = []

    def encode(image: ImageChunk) -> Any:
        encoded.append(image)
        return np.zeros((n_token, 4), np.float32)

    class Reached(Exception):
        pass

    def positions(*_: Any) -> Any:
        raise Reached

    vision = SimpleNamespace(is_causal=False, encode=encode, positions=positions)
    loaded: Any = SimpleNamespace(
        weights=SimpleNamespace(vision=vision), context=SimpleNamespace(n_ubatch=8, log=None)
    )
    plan: Any = PassPlan([Row(-1, 0, 0, True)], image=ImageChunk(-1, n_token, n_token, None))
    with pytest.raises(Reached if n_token == 8 else EngineError):
        Passes(loaded).compute(plan, 0.0)
    assert len(encoded) == (n_token == 8)
