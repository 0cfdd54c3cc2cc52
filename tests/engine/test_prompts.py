"""Long prompts: their passes, progress within a pass, a smaller cache."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from asking import of_text
from factory import make_tiny

from backend.engine.engine import Engine, EngineError
from backend.protocol.settings import EngineConfig, Sampling

OpenEngine = Callable[..., Engine]
GREEDY = Sampling(temperature=0.0)
PROMPT = "The fox ran over the hill and saw the sea. " * 60


def answer(engine: Engine, n_token: int = 6, n_char: int = 10**6) -> list[int]:
    return [p.token_id for p in engine.answer(of_text(PROMPT[:n_char], GREEDY, n_token))]


def test_progress_is_seen_within_a_pass(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=12, n_ctx=4096)
    engine = open_engine(path, cache_rate=0.25, context_length=4096, n_ubatch=4096)
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            if (prefilled := engine.prefilled()) is not None:
                seen.append(prefilled)
            time.sleep(0.0005)

    looker = threading.Thread(target=look)
    looker.start()
    answer(engine, 1)
    over.set()
    looker.join()
    n_prompt = engine.statistics().n_prompt
    assert {total for _, total in seen} == {n_prompt}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({done for done, _ in seen if 0 < done < n_prompt}) > 1, "more than one step"
    assert engine.prefilled() is None


def test_a_stopped_prompt_is_no_longer_under_way(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, context_length=2048, n_ubatch=16)

    def stop(done: int, _total: int) -> None:
        if done == 32:
            engine.stop()

    assert list(engine.answer(of_text(PROMPT[:400], GREEDY, 4, stop))) == []
    assert engine.prefilled() is None


def test_the_context_outlives_a_change_of_the_rate(open_engine: OpenEngine, tiny: Path) -> None:
    """The context stays although memory would permit another n_ubatch at the other rate."""
    engine = open_engine(tiny, context_length=2048, cache_rate=0.25)
    answer(engine, n_char=400)
    engine.set_cache_rate(0.5)
    answer(engine, n_char=400)
    assert engine.statistics().n_reused > 0


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_a_quantised_attention_cache(
    kv_type: str, rate: float, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """A quantised attention cache is lossy, but the expert cache does not change the result."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", head_dim=32, n_ctx=2048)
    settings = {"context_length": 2048, "kv_type": kv_type, "n_ubatch": 256}
    n_char = 1800  # a prompt of two passes or three
    first = open_engine(path, cache_rate=rate, **settings)
    tokens = answer(first, 6, n_char)
    assert first.statistics().n_token == 6 and first.statistics().n_prompt > 256
    if rate < 1:
        assert tokens == answer(open_engine(path, cache_rate=0.9, **settings), 6, n_char)


def test_heads_that_cannot_be_quantised_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", head_dim=16)
    with pytest.raises(EngineError, match=r"heads of this model are too small .* q8_0\.$"):
        Engine.open(path, EngineConfig(kv_type="q8_0", n_thread=1, context_length=256))


def test_outputs_that_were_not_asked_for_cannot_be_computed(
    open_engine: OpenEngine, tiny: Path
) -> None:
    with pytest.raises(EngineError, match="not opened to compute every output"):
        open_engine(tiny).compute("A text.", 4)
    assert open_engine(tiny, keeps_outputs=True).compute("A text of some words.", 4) == 4
