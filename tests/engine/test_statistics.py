"""The figures of an answer add up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from asking import of_text
from factory import make_tiny, routed_experts

from backend.engine.engine import Engine
from backend.methods.catalogue import CACHED, METHODS, REACTIVE
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
PROMPT = "from all of these words one can be said to each other " * 3


def answer(engine: Engine, prompt: str = PROMPT, n: int = 12) -> int:
    """Return the tokens of an answer."""
    list(engine.answer(of_text(prompt, GREEDY, n)))
    return engine.statistics().n_token


@pytest.mark.parametrize("method", CACHED)
@pytest.mark.parametrize("rate", [0.0, 0.5, 0.99])
def test_requests_and_bytes_add_up(
    method: str, rate: float, open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, method=method, cache_rate=rate)
    if METHODS[method].adaptive and engine.cache.mode == "plain":
        assert "unpatched" in engine.cache.reason  # too small a model for a cache
        return
    for prompt in (PROMPT, PROMPT + "and so on", "quite another one"):
        n_token = answer(engine, prompt)
        s, model = engine.statistics(), engine.model
        assert n_token > 1 and tuple(x.layer for x in s.layers) == model.moe_layers
        for name in ("hits", "late", "misses", "bytes_read"):
            assert sum(getattr(x, name) for x in s.layers) == getattr(s, name)
        is_cut = engine.loaded.patch.layout.any_cut()
        n_used = model.n_expert_used * len(model.moe_layers) * (2 if is_cut else 1)
        assert len(s.tokens) == n_token - 1  # the first token comes from the prompt's pass
        assert {t.hits + t.late + t.misses for t in s.tokens} == {n_used}
        if METHODS[method].predictor is None:
            # In the router's order an expert may be evicted before its turn and read again.
            assert s.bytes_read == s.bytes_useful >= s.misses * model.expert_bytes
            if METHODS[method].decode != REACTIVE:
                assert s.bytes_read == s.misses * model.expert_bytes
            assert s.bytes_wasted == s.prefetches_useful == s.prefetches_wasted == s.late == 0
        else:
            # Other methods learn first, or have slots for one layer only.
            knows = method.startswith("promoe")
            assert s.prefetches_useful + s.prefetches_wasted > 0 or rate == 0.99 or not knows


def test_over_a_cache_life_every_byte_is_useful_wasted_or_undecided(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, method="promoe-prefetch", cache_rate=0.25)
    read = useful = wasted = 0
    for seed in range(4):
        list(engine.answer(of_text(PROMPT, Sampling(temperature=2.0, seed=seed), 20)))
        s = engine.statistics()
        read, useful, wasted = read + s.bytes_read, useful + s.bytes_useful, wasted + s.bytes_wasted
        n_resident = sum(byte & 3 == 1 for byte in engine.residency())
        assert 0 <= read - useful - wasted <= n_resident * engine.model.expert_bytes
    assert wasted > 0


def test_a_prompt_requests_what_its_tokens_choose(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, method="lru", cache_rate=0.25)
    ids = engine.loaded.llama.tokenize(PROMPT)
    assert answer(engine, n=1) == 1
    s = engine.statistics()
    assert (s.n_prompt, s.n_reused, len(s.tokens)) == (len(ids), 0, 0)
    chosen = routed_experts(tiny, ids)
    n_request = [x.hits + x.late + x.misses for x in s.layers]
    expected = [len(np.unique(chosen[x.layer])) for x in s.layers]
    expected[-1] = engine.model.n_expert_used  # the last layer computes only the last token
    assert n_request == expected


def test_the_cache_is_warm_for_the_next_answer(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, method="lru", cache_rate=0.99)  # all but one expert of a layer
    answer(engine)
    n_cold = engine.statistics().misses
    answer(engine)
    s = engine.statistics()
    assert 0 <= s.misses < n_cold and s.hits > 0


def test_times_are_those_between_tokens(open_engine: OpenEngine, tiny: Path) -> None:
    """They include the time of the answer's reader and of sampling."""
    engine = open_engine(tiny, cache_rate=0.25)
    pause_s = 0.02
    began_s = time.perf_counter()
    n = sum(time.sleep(pause_s) is None for _ in engine.answer(of_text(PROMPT, GREEDY, 6)))
    wall_s = time.perf_counter() - began_s
    s = engine.statistics()
    assert n >= 6
    for t in s.tokens:
        assert t.other_s >= pause_s and t.compute_s > 0 and t.stall_s >= 0
    assert s.compute_s + s.stall_s + s.other_s <= wall_s
    assert s.compute_s + s.stall_s + s.other_s >= len(s.tokens) * pause_s
    assert abs(s.stall_s - sum(x.stall_s for x in s.layers)) < 1e-5
    assert 0 < s.ttft_s < wall_s and 0 < s.tokens_per_s < 1 / pause_s
    assert s.peak_rss_bytes > 10 << 20


def test_choosing_a_token_is_counted(
    open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backend.llama.api import Context
    from backend.llama.sampler import Sampler

    engine, sample, pause_s = open_engine(tiny), Sampler.sample, 0.02

    def slow(self: Sampler, context: Context, *row: int) -> int:
        time.sleep(pause_s)
        return sample(self, context, *row)

    monkeypatch.setattr(Sampler, "sample", slow)
    answer(engine, n=6)
    s = engine.statistics()
    assert s.ttft_s >= pause_s
    assert all(t.other_s >= pause_s for t in list(s.tokens)[1:])


@pytest.mark.parametrize("arch", ["dense", "qwen3moe"])
def test_without_a_cache_there_is_only_computing(
    arch: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    engine = open_engine(make_tiny(arch, "Q8_0", tmp_path / "m.gguf"), cache_rate=1.0)
    answer(engine)
    s = engine.statistics()
    assert s.hits == s.late == s.misses == s.bytes_read == s.stall_s == 0
    assert s.compute_s > 0 and s.tokens_per_s > 0 and s.layers == []


def test_figures_and_facts_are_plain_data(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    answer(engine, n=100)
    figures = json.loads(json.dumps(engine.statistics().to_json()))
    assert set(figures["layers"][0]) == {
        "layer", "hits", "late", "misses", "bytes_read", "stall_s", "on_host", "host_rows",
    }  # fmt: skip
    assert len(figures["tokens"]) == min(engine.statistics().n_token - 1, 64)
    facts = json.loads(json.dumps(engine.model.to_json()))
    assert facts["moe_layers"] == [0, 1, 2] and facts["architecture"] == "qwen3moe"
    assert json.loads(json.dumps(engine.cache.to_json()))["mode"] == "cached"


def test_the_map_tells_how_the_last_token_found_its_experts(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, cache_rate=0.25)
    n_layer, n_expert = len(engine.model.moe_layers), engine.model.n_expert
    assert engine.residency() == bytes(n_layer * n_expert)
    assert answer(engine) > 1
    last = engine.statistics().tokens[-1]
    found = [byte >> 2 for byte in engine.residency()]
    assert [found.count(k) for k in (1, 2, 3)] == [last.hits, last.late, last.misses]
    for i in range(n_layer):
        row = engine.residency()[i * n_expert : (i + 1) * n_expert]
        assert sum(byte & 3 == 1 for byte in row) <= engine.cache.n_slot
        assert sum(byte >> 2 > 0 for byte in row) == engine.model.n_expert_used
