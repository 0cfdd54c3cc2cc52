"""Random answers, stops and cache rates: every completed pass equals stock llama.cpp's."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from asking import of_text
from beside import WORDS, Beside
from factory import make_tiny
from oracle import Oracle

from backend.engine.engine import Engine
from backend.protocol.settings import Sampling

pytestmark = pytest.mark.usefixtures("known_pictures")
OpenEngine = Callable[..., Engine]
BESIDE = ("qwen3moe", "gpt-oss", "qwen35moe", "qwen3vlmoe")


@pytest.mark.parametrize(
    ("arch", "method"),
    [
        ("qwen3moe", "promoe"),
        ("gpt-oss", "lru"),
        ("deepseek2", "moe-infinity"),
        ("gemma4", "promoe-preempt"),
        ("qwen3next", "klotski"),
        ("llama4", "duoserve"),
        ("lfm2moe", "lru-overlapped"),
    ],
)
def test_every_pass_equals_stock(
    arch: str, method: str, open_engine: Callable[..., Engine], oracle: Oracle, tmp_path: Path
) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf")
    rng = random.Random(f"{arch} {method}")
    engine = open_engine(path, method=method, context_length=1024, n_ubatch=64)
    prompts = [" ".join(rng.choices(WORDS, k=k)) for k in (1, 5, 40, 150, 300, 300)]
    prompts += [prompt + " and so" for prompt in prompts]
    for _ in range(25):
        action, prompt = rng.random(), rng.choice(prompts)
        sampling = Sampling(temperature=1.5, seed=rng.randrange(1000))
        answer = engine.answer(of_text(prompt, sampling, 30))
        if action < 0.2:
            engine.set_cache_rate(rng.choice([0, 0.125, 0.25, 0.5, 0.75, 0.99]))
        elif action < 0.6:
            stopper = threading.Timer(rng.random() * 0.02, engine.stop)
            stopper.start()
            list(answer)
            stopper.join()
        elif action < 0.7:
            for _ in range(rng.randrange(5)):
                next(answer, None)
            answer.close()  # type: ignore[attr-defined]
        else:
            list(answer)
            assert engine.finish_reason in ("stop", "length")
    assert oracle.approve()["n_pass"] > 50


def test_everything_beside_two_programs(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """`make attack` has all architectures and further seeds."""
    happened: Counter[str] = Counter()
    for seed, arch in enumerate(BESIDE):
        beside = Beside(arch, seed, tmp_path / arch, open_engine)
        beside.run()
        beside.engine.close()
        happened += beside.happened
    counts = oracle.approve()
    assert counts["n_taken"] == 0 and counts["n_void"] >= len(BESIDE)
    assert min(happened.values()) > 0 and len(happened) == 5, happened
