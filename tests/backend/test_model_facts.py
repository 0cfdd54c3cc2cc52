"""What is told of models before the first answer: of the loaded one, and of one that is named."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from factory import make_mmproj, make_tiny
from served import KEY, Served

from backend.engine.engine import Engine
from backend.gguf.model_file import read_model
from backend.protocol.settings import EngineConfig

HEADERS = {"Authorization": f"Bearer {KEY}"}
N_CONTEXT = 256


def opened(path: Path) -> Engine:
    config = EngineConfig.of(cache_rate=0.5, context_length=N_CONTEXT, n_thread=1, device="cpu")
    return Engine.open(path, config)


def serve(folder: Path) -> Served:
    """Serve a model that cannot see, beside one that can and is not loaded."""
    blind = make_tiny("qwen3moe", "Q8_0", folder / "blind.gguf")
    seer = folder / "seer" / "seer.gguf"
    seer.parent.mkdir()
    shutil.copy(blind, seer)
    make_mmproj(seer.parent / "mmproj.gguf", 64)
    models = {"blind": blind, "seer": seer}
    return Served(opened(blind), open_model=opened, models=models, unload_after_s=3600)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = serve(tmp_path_factory.mktemp("facts"))
    yield made
    made.close()


def get(served: Served, path: str) -> Any:
    return httpx.get(served.url + path, headers=HEADERS, timeout=60).json()


def test_all_is_known_before_the_first_answer(served: Served) -> None:
    file = read_model(served.host.path_of("blind"))  # type: ignore[arg-type]
    (running,) = get(served, "/api/ps")["models"]
    assert running["context_length"] == served.engine.model.context_length >= N_CONTEXT
    assert running["digest"] == file.fingerprint and len(running["digest"]) == 64
    model, cache = served.engine.model, served.engine.cache
    assert running["size"] == model.dense_bytes + cache.bytes and running["size_vram"] == 0
    left_s = datetime.fromisoformat(running["expires_at"]).timestamp() - time.time()
    assert 3000 < left_s < 3601
    (loaded, other) = get(served, "/v1/models")["data"]
    assert loaded["meta"]["n_ctx"] == running["context_length"]
    n_weight = loaded["meta"]["n_params"]
    assert n_weight == other["meta"]["n_params"] > 10_000 and "n_ctx" not in other["meta"]
    assert other["meta"]["size"] > loaded["meta"]["size"], "with the file with which it sees"
    shown = served.post("/api/show", {"model": "blind"}).json()
    assert f"num_ctx {running['context_length']}" in shown["parameters"].splitlines()
    assert shown["model_info"]["general.parameter_count"] == n_weight


def test_capabilities_are_those_of_the_model_and_its_companions(served: Served) -> None:
    can = {
        name: served.post("/api/show", {"model": name}).json()["capabilities"]
        for name in ("blind", "seer:latest")
    }
    assert "vision" not in can["blind"] and "vision" in can["seer:latest"]
    assert {*can["seer:latest"]} == {*can["blind"], "vision"}


def test_properties_are_those_of_the_model_that_is_named(served: Served) -> None:
    own, named = get(served, "/props"), get(served, "/props?model=blind:latest")
    assert own == named and own["modalities"]["vision"] is False
    assert own["default_generation_settings"]["n_ctx"] == served.engine.model.context_length
    other = get(served, "/props?model=seer")
    assert other["modalities"]["vision"] is True and other["is_sleeping"] is True
    assert other["model_path"].endswith("seer.gguf")
    assert other["chat_template"] == own["chat_template"]
    assert get(served, "/props?model=none")["error"]["code"] == 404


def test_facts_are_those_of_the_model_that_was_loaded_last(tmp_path: Path) -> None:
    body = {"model": "seer", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    with closing(serve(tmp_path)) as served:
        assert served.post("/v1/chat/completions", body).status_code == 200
        assert get(served, "/props")["model_alias"] == "seer"
        (running,) = get(served, "/api/ps")["models"]
        assert running["name"] == "seer:latest"
        assert "vision" in served.post("/api/show", {"model": "seer"}).json()["capabilities"]
