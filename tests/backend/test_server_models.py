"""The model that a request names is loaded if allowed. An unused model is freed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from served import KEY, Served
from waiting import until

from backend.gguf.header import ModelFileError
from backend.protocol.errors import EngineError
from backend.server import engine_host

HELLO = [{"role": "user", "content": "hello"}]


class Shelf:
    """Opens fake models and records them."""

    def __init__(self) -> None:
        self.opened: list[FakeEngine] = []

    def open(self, path: Path) -> FakeEngine:
        if path.stem == "broken":
            raise EngineError("The file is damaged.")
        self.opened.append(FakeEngine(name=f"the model of {path.stem}"))
        return self.opened[-1]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def served(shelf: Shelf) -> Iterator[Served]:
    names = ("one", "two", "broken")
    made = Served(
        FakeEngine(name="first"),
        open_model=shelf.open,
        models={name: Path(f"{name}.gguf") for name in names},
    )
    yield made
    made.close()


def ask(served: Served, model: str, **more: Any) -> httpx.Response:
    body = {"messages": HELLO, "model": model, **more}
    return served.post("/v1/chat/completions", body)


def test_a_model_that_is_named_is_loaded_and_the_reply_says_it(
    served: Served, shelf: Shelf
) -> None:
    assert ask(served, "gpt-4o").json()["model"] == "first"  # unknown: the loaded one answers
    assert ask(served, "two").json()["model"] == "two"
    assert served.engine.n_close == 1 and len(shelf.opened) == 1
    assert ask(served, "gpt-4o").json()["model"] == "two"
    assert ask(served, "two").json()["model"] == "two"
    assert len(shelf.opened) == 1
    assert ask(served, "first").json()["model"] == "first"
    assert shelf.opened[0].n_close == 1
    headers = {"Authorization": f"Bearer {KEY}"}
    listed = httpx.get(served.url + "/v1/models", headers=headers).json()
    assert [model["id"] for model in listed["data"]] == ["first", "one", "two", "broken"]
    assert (listed["first_id"], listed["last_id"]) == ("first", "broken")


def test_the_model_that_is_named_counts_the_tokens(served: Served, shelf: Shelf) -> None:
    body = {"model": "two", "messages": HELLO}
    assert served.post("/v1/messages/count_tokens", body).json() == {"input_tokens": 1}
    assert len(shelf.opened) == 1 and served.engine.n_close == 1


def test_a_model_has_one_name(shelf: Shelf) -> None:
    """The first model is also in the folder of models that requests may name."""
    engine = FakeEngine(name="General Name")
    served = Served(engine, open_model=shelf.open, models={"file": Path(engine.model.path)})
    try:
        assert served.turns.model_names == ["file"]
        assert ask(served, "file").json()["model"] == "file"
        assert engine.n_close == 0 and not shelf.opened
    finally:
        served.close()


def test_who_waits_for_a_model_is_told(served: Served) -> None:
    said = ask(served, "one", stream=True).text
    assert said.startswith(": loading the model one\n\n") and said.endswith("data: [DONE]\n\n")


def test_a_model_that_cannot_be_loaded_is_said_so_and_the_next_request_served(
    served: Served,
) -> None:
    refused = ask(served, "broken")
    assert refused.status_code == 503
    assert refused.json()["error"]["message"] == "The file is damaged."
    assert ask(served, "any").json()["model"] == "first"


def test_a_file_that_can_never_be_loaded_is_not_asked_for_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: str) -> None:
        raise ModelFileError(Path("/secret/place/broken.gguf"), "it is cut")

    monkeypatch.setattr(served.host, "load", load)
    refused = ask(served, "one")
    assert refused.status_code == 400 and "retry-after" not in refused.headers
    message = refused.json()["error"]["message"]
    assert "broken.gguf" in message and "/secret" not in message


def test_a_model_that_nobody_uses_is_freed_and_loaded_again(shelf: Shelf) -> None:
    served = Served(FakeEngine(name="first"), open_model=shelf.open, unload_after_s=0.05)
    try:
        until(lambda: served.engine.n_close)
        headers = {"Authorization": f"Bearer {KEY}"}
        asleep = httpx.get(served.url + "/props", headers=headers)  # which wakes nothing
        assert asleep.status_code == 200 and asleep.json()["is_sleeping"] is True
        assert asleep.json()["model_path"] == "first" and not shelf.opened
        assert ask(served, "any").json()["model"] == "first"
        assert len(shelf.opened) == 1
    finally:
        served.close()
    assert shelf.opened[0].n_close == 1


class LateEngine(FakeEngine):
    """Can never write what it keeps."""

    is_late = True
    n_keep = 0

    def keep(self) -> bool:
        self.n_keep += 1
        return False


@pytest.mark.parametrize("unload_after_s", [None, 0.05])
def test_what_waits_to_be_written_is_tried_again_and_keeps_no_model_in_memory(
    unload_after_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_host, "_LATE_S", 0.001)
    engine = LateEngine()
    host = engine_host.EngineThread(engine, unload_after_s=unload_after_s)
    host.submit(lambda _: None)
    until(lambda: engine.n_close if unload_after_s else engine.n_keep > 3)
    host.close()
    assert engine.n_close == 1
