"""Stopping, changing the cache rate, faults, and the ends of an engine's life."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from asking import Calls, keep_all, of_chat, of_text
from factory import make_tiny
from waiting import WAIT_S

from backend.engine.dry_run import DryRun
from backend.engine.engine import Engine, EngineError
from backend.engine.experiment import NO_EXPERIMENT
from backend.engine.learned_settings import LearnedSettings, key_of
from backend.gguf.model_file import ModelFileError, read_model
from backend.llama.api import LlamaError
from backend.memory.plan import plan
from backend.memory.pressure import MemoryWatch, Reading
from backend.methods import cells
from backend.methods.auto import Learned, Setting
from backend.methods.catalogue import CACHED, METHODS
from backend.methods.cost import PassCost
from backend.packs.write import write
from backend.protocol.errors import GivenUp
from backend.protocol.request import Handle, Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.system.paths import learned_settings_file

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
RATES = (0.0, 0.125, 0.25, 0.5, 1.0)
PROMPT = "it was one of the words that they had not said " * 8  # some 100 tokens


def tokens(engine: Engine, prompt: str = PROMPT, n: int = 12) -> list[int]:
    """Return the tokens of an answer, after the engine has forgotten the prompt.

    How a text is cut into passes shows in the last bits of the logits, in stock llama.cpp too.
    """
    engine.forget()
    return tokens_with_reuse(engine, prompt, n)


def tokens_with_reuse(engine: Engine, prompt: str = PROMPT, n: int = 12) -> list[int]:
    pieces = list(engine.answer(of_text(prompt, GREEDY, n)))
    return [p.token_id for p in pieces[: engine.statistics().n_token]]


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model whose answers do not end."""
    from reciter import make_reciter

    path = tmp_path_factory.mktemp("models") / "endless.gguf"
    return make_reciter(path, "abcdefgh", ends=False)


# Stop.


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("n_before", [0, 1, 7])
def test_a_stop_between_two_tokens(
    n_before: int, rate: float, open_engine: OpenEngine, endless: Path
) -> None:
    engine = open_engine(endless, cache_rate=rate)
    answer = engine.answer(of_text("\n", GREEDY))
    text = "".join(next(answer).text for _ in range(n_before + 1))
    engine.stop()
    assert list(answer) == []
    assert engine.finish_reason == "cancelled"
    assert text == "abcdefgh"[: n_before + 1]
    # and the next answer is not affected
    pieces = list(engine.answer(of_text("\n", GREEDY, 4)))
    assert "".join(p.text for p in pieces) == "abcd" and engine.finish_reason == "length"


@pytest.mark.parametrize("stops", [(5, 9), pytest.param(range(5, 30), marks=pytest.mark.night)])
@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_stop_from_another_thread(
    rate: float, stops: Sequence[int], open_engine: OpenEngine, endless: Path
) -> None:
    engine = open_engine(endless, cache_rate=rate, context_length=1024)
    for n_before in stops:
        seen: list[int] = []
        reached, stopped = threading.Event(), []

        def stop(seen: list[int] = seen, reached: Any = reached, stopped: Any = stopped) -> None:
            reached.wait(WAIT_S)
            engine.stop()
            stopped.append(len(seen))

        stopper = threading.Thread(target=stop)
        stopper.start()
        for piece in engine.answer(of_text("\n", GREEDY, 900)):
            seen.append(piece.token_id)
            if len(seen) == n_before:
                reached.set()
        stopper.join()
        assert engine.finish_reason == "cancelled"
        assert len(seen) <= stopped[0] + 1
        # The leftovers of a stopped pass do not change the next answer.
        assert "".join(p.text for p in engine.answer(of_text("\n", GREEDY, 9))) == "abcdefgh\n"


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_stop_during_a_long_prompt(rate: float, open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, cache_rate=rate, n_ubatch=16)
    expected = tokens(open_engine(tiny, cache_rate=rate, n_ubatch=16))
    progress: list[tuple[int, int]] = []

    def on_prefill(done: int, total: int) -> None:
        progress.append((done, total))
        if done == 48:
            engine.stop()

    assert list(engine.answer(of_text(PROMPT, GREEDY, 12, on_prefill))) == []
    assert engine.finish_reason == "cancelled" and engine.statistics().n_token == 0
    n_prompt = engine.statistics().n_prompt
    assert progress == [(n, n_prompt) for n in (0, 16, 32, 48)]
    assert tokens_with_reuse(engine) == expected  # the passes are the same: 16 tokens each
    assert engine.statistics().n_reused == 48


@pytest.mark.parametrize("n_stop", [2, pytest.param(10, marks=pytest.mark.night)])
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "qwen3next"])
@pytest.mark.parametrize("method", ["promoe", "lru"])
def test_a_stop_within_a_pass(
    arch: str, method: str, n_stop: int, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """Whatever the state of the cache, the next answer is that of a new engine."""
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf")
    expected = tokens(open_engine(path))
    engine = open_engine(path, method=method)
    for _ in range(n_stop):
        stopper: list[threading.Thread] = []

        def on_prefill(done: int, _total: int, stopper: Any = stopper) -> None:
            if done == 0:
                stopper.append(threading.Thread(target=stop_when_busy))
                stopper[0].start()

        def stop_when_busy() -> None:
            for _ in range(10**6):
                if any(byte & 2 for byte in engine.residency()):  # a copy is in flight
                    break
            engine.stop()

        engine.set_cache_rate(0.0)  # nothing is resident
        engine.forget()
        n_token = len(list(engine.answer(of_text(PROMPT, GREEDY, -1, on_prefill))))
        stopper[0].join()
        assert engine.finish_reason in ("cancelled", "stop", "context")
        assert engine.finish_reason != "cancelled" or engine.statistics().n_token <= n_token
        assert tokens(engine) == expected


@pytest.mark.parametrize("arch", ["dense", "qwen3moe"])
def test_a_stop_within_a_pass_of_plain_llama_cpp(
    arch: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """The prompt is one pass of many nodes. The stop ends it early."""
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf", n_layer=16, n_ctx=4096)
    engine = open_engine(path, cache_rate=1.0, context_length=4096, n_ubatch=4096)
    prompt = PROMPT * 12
    expected = tokens(engine, prompt, 3)
    passes_ended: list[int] = []
    for _ in range(4):
        engine.forget()
        stopper = threading.Timer(0.01, engine.stop)

        def on_prefill(done: int, total: int, stopper: threading.Timer = stopper) -> None:
            if done == 0:
                stopper.start()
            elif done == total:
                passes_ended.append(done)

        list(engine.answer(of_text(prompt, GREEDY, 10**6, on_prefill)))
        stopper.join()
        assert engine.finish_reason == "cancelled"
    assert len(passes_ended) < 4  # on a busy machine, one may end before the stop
    assert tokens(engine, prompt, 3) == expected


def test_a_stop_without_an_answer_is_forgotten(open_engine: OpenEngine, endless: Path) -> None:
    engine = open_engine(endless)
    engine.stop()
    assert len(tokens(engine, "\n", 5)) == 5
    engine.stop()
    assert len(tokens(engine, "\n", 5)) == 5


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("is_text", [False, True])
def test_a_request_may_be_cancelled_before_the_engine_takes_it(
    is_text: bool, rate: float, open_engine: OpenEngine, tiny: Path
) -> None:
    """Nothing is computed or said for it, and the answer before can still be continued."""
    engine = open_engine(tiny, cache_rate=rate)
    asked = [{"role": "user", "content": "hello"}]
    said = "".join(piece.text for piece in engine.answer(of_chat(asked, GREEDY, 4)))
    progress: list[int] = []
    handle = Calls(lambda done, _: progress.append(done))
    chat, text = () if is_text else asked, "hello" if is_text else None
    request = Request(0, GREEDY, 4, chat, text, handle=handle)
    handle.cancel()
    assert list(engine.answer(request)) == []
    assert (engine.finish_reason, engine.last, progress) == ("cancelled", None, [])
    assert engine.statistics().n_token == 0
    more = [*asked, {"role": "assistant", "content": said}]
    list(engine.answer(of_chat(more, GREEDY, 1)))
    assert engine.statistics().n_reused == engine.statistics().n_prompt - 1


@pytest.mark.parametrize("is_text", [False, True])
def test_a_request_is_cancelled_while_its_prompt_is_split(
    is_text: bool, open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine waits for no call of llama.cpp that goes on."""
    engine, may_end, real = open_engine(tiny), threading.Event(), llama_cpp.llama_tokenize
    said, n_call = "a word " * 1000, 0
    chat = () if is_text else [{"role": "user", "content": said}]
    request = Request(0, GREEDY, 4, chat, said if is_text else None, handle=(handle := Handle()))

    def slow(*args: Any) -> int:
        nonlocal n_call
        if len(args[1]) > 4096:
            n_call += 1
            handle.cancel()
            assert may_end.wait(WAIT_S), "the engine waits"
        return int(real(*args))

    monkeypatch.setattr(llama_cpp, "llama_tokenize", slow)
    try:
        assert list(engine.answer(request)) == []
        assert (engine.finish_reason, n_call) == ("cancelled", 1)
        handle = Handle()  # of a question
        with pytest.raises(GivenUp), engine.prompts.serves(handle):
            engine.prompts.tokenize(said) if is_text else engine.prompts.count(list(chat))
        assert n_call == 2
    finally:
        may_end.set()
    assert len(tokens(engine, "\n", 3)) == 3


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_request_is_cancelled_within_a_pass_and_a_late_cancel_stops_nothing(
    rate: float, open_engine: OpenEngine, endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(endless, cache_rate=rate)
    real, request, n_pass = engine.loaded.context.decode_rows, Request(0, GREEDY, 9, prompt="\n"), 0

    def decode(*args: Any, **more: Any) -> int:
        nonlocal n_pass
        n_pass += 1
        if n_pass == 4:
            request.handle.cancel()
        return int(real(*args, **more))

    monkeypatch.setattr(engine.loaded.context, "decode_rows", decode)
    assert "".join(piece.text for piece in engine.answer(request)) == "abc"
    assert engine.finish_reason == "cancelled"
    ended, text = Request(0, GREEDY, 2, prompt="\n"), ""
    list(engine.answer(ended))
    ended.handle.cancel()
    assert not engine.passes.is_stopped
    for piece in engine.answer(Request(1, GREEDY, 9, prompt="\n")):
        ended.handle.cancel()
        request.handle.cancel()
        text += piece.text
    assert text == "abcdefgh\n" and engine.finish_reason == "length"


def test_an_answer_may_be_abandoned(open_engine: OpenEngine, endless: Path) -> None:
    engine = open_engine(endless)
    answer = engine.answer(of_text("\n", GREEDY))
    assert "".join(next(answer).text for _ in range(3)) == "abc"
    answer.close()  # type: ignore[attr-defined]
    assert engine.finish_reason == "cancelled"
    assert "".join(p.text for p in engine.answer(of_text("\n", GREEDY, 3))) == "abc"


# The cache rate.


def residents(engine: Engine) -> list[set[int]]:
    """Return the resident experts of each layer, without those that arrive."""
    n = engine.model.n_expert
    cells = engine.residency()
    layers = [cells[i : i + n] for i in range(0, len(cells), n)]
    return [{e for e, cell in enumerate(layer) if cell & 3 == 1} for layer in layers]


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "deepseek2"])
def test_every_rate_gives_the_same_answer_without_loading_again(
    arch: str, open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # F16 has only one layout, so stock llama.cpp at 1.0 computes the same.
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    engine = open_engine(path, cache_rate=0.25)
    expected = tokens(engine)
    expected_with_reuse = tokens_with_reuse(engine)
    n_expert, n_used = engine.model.n_expert, engine.model.n_expert_used
    with monkeypatch.context() as no_loading:
        no_loading.setattr("backend.engine.loading.CachedModel", None)
        for rate in (0.5, 0.0, 0.125, 0.75, 0.25):
            before = residents(engine)
            facts = engine.set_cache_rate(rate)
            assert facts == engine.cache and facts.asked_rate == rate
            assert facts.n_slot == max(int(rate * n_expert), n_used)
            assert facts.rate == facts.n_slot / n_expert and facts.min_rate == n_used / n_expert
            assert facts.bytes >= facts.n_slot * engine.model.expert_bytes
            for of_layer, kept in zip(before, residents(engine), strict=True):
                assert kept <= of_layer and len(kept) == min(len(of_layer), facts.n_slot)
            assert tokens_with_reuse(engine) == expected_with_reuse
            assert engine.statistics().n_reused > 0  # the conversation is kept
            assert engine.statistics().misses > 0
    assert engine.set_cache_rate(1.0).mode == "plain"
    assert set(engine.residency()) == {1}
    assert tokens(engine) == expected
    assert engine.statistics().misses == 0
    assert engine.set_cache_rate(0.25).mode == "cached"
    assert tokens(engine) == expected


def test_copies_that_end_after_an_answer_are_resident(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, cache_rate=0.5, method="promoe")
    n_copying = 0
    for n in range(1, 40):
        list(engine.answer(of_text(PROMPT, GREEDY, n)))
        before = engine.residency()
        keep_all(engine)
        for cell, now in zip(before, engine.residency(), strict=True):
            n_copying += cell & cells.WHERE == cells.ARRIVING
            assert now & cells.WHERE == min(cell & cells.WHERE, cells.RESIDENT)
        if n_copying:
            return
    raise AssertionError("no answer ended with a copy in flight")


def test_a_smaller_cache_keeps_what_was_used_last(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, cache_rate=0.75, method="lru")
    tokens(engine)
    n, n_used = engine.model.n_expert, engine.model.n_expert_used
    found = engine.residency()
    last = [{e for e in range(n) if found[i + e] & cells.FOUND} for i in range(0, len(found), n)]
    engine.set_cache_rate(0.0)
    assert engine.cache.n_slot == n_used and residents(engine) == last
    engine.set_cache_rate(0.75)
    assert residents(engine) == last
    for number in range(len(last) * n_used):  # their bytes are those of the file
        engine.loaded.require_right_experts(number)


def test_a_slider_moved_within_an_answer_keeps_experts_and_text(
    open_engine: OpenEngine, tiny: Path
) -> None:
    expected = tokens(open_engine(tiny, cache_rate=0.75), n=60)
    engine = open_engine(tiny, cache_rate=0.75)
    config = engine.loaded.config
    given, kept = [], []
    for piece in engine.answer(Request(None, GREEDY, 60, prompt=PROMPT)):
        given.append(piece.token_id)
        if len(given) % 10 == 0:
            before = residents(engine)
            rate = (0.25, 0.5)[len(given) // 10 % 2]
            assert engine.change_now(replace(config, cache_rate=rate))
            kept += zip(before, residents(engine), strict=True)
            for larger in ({"cache_rate": 1.0}, {"context_length": 4096}):
                assert not engine.change_now(replace(config, **larger))
    assert given == expected
    assert engine.cache.n_slot == 4 and engine.cache.asked_rate == 0.25
    assert all(after <= before or before <= after for before, after in kept)
    assert all(after for _, after in kept)
    assert engine.change(replace(config, cache_rate=1.0)).mode == "plain"


def test_a_moved_slider_keeps_the_tops_of_cut_experts(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_ff_exp=64)
    engine = open_engine(path, method="moepic-uniform", cache_rate=0.5)
    expected = tokens(engine)
    for rate in (0.75, 0.4, 0.5):
        before = residents(engine)
        engine.set_cache_rate(rate)
        layout = engine.loaded.patch.layout
        assert layout.any_cut()
        for layer, of_layer, kept in zip(layout.layers, before, residents(engine), strict=True):
            n_top = layout.pools[layer.pool[0]].n_slot
            assert kept <= of_layer and len(kept) == min(len(of_layer), n_top) > 0
        for number in range(sum(map(len, residents(engine)))):
            engine.loaded.require_right_experts(number)
        assert tokens(engine) == expected


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_rate_out_of_range_changes_nothing(
    rate: float, open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, cache_rate=0.5)
    before = engine.cache
    with pytest.raises(ValueError, match=r"^The setting cache_rate must be 0 to 1, not .+\.$"):
        engine.set_cache_rate(rate)
    assert engine.cache == before and len(tokens(engine, n=3)) == 3


def test_a_dense_model_is_plain_at_every_rate(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_tiny("dense", "Q8_0", tmp_path / "m.gguf")
    engine = open_engine(path, cache_rate=0.25)
    assert engine.cache.mode == "plain" and "dense" in engine.cache.reason
    expected = tokens(engine)
    for rate in RATES:
        facts = engine.set_cache_rate(rate)
        assert (facts.mode, facts.asked_rate, facts.rate) == ("plain", rate, 1.0)
        assert tokens(engine) == expected
    assert engine.residency() == b"" and engine.statistics().layers == []
    assert engine.model.moe_layers == () and not engine.model.is_moe


def test_what_cannot_be_cached_chats_all_the_same(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_tiny("grovemoe", "Q8_0", tmp_path / "m.gguf")
    engine = open_engine(path, cache_rate=0.25)
    assert engine.cache.mode == "plain" and engine.cache.rate == 1.0
    assert engine.cache.reason.startswith("The experts of the architecture grovemoe cannot be ")
    expected = tokens(engine)
    assert engine.set_cache_rate(0.5).mode == "plain" and tokens(engine) == expected


@pytest.mark.parametrize("method", ["unified", "layer-offload"])
def test_stock_llama_cpp_is_a_method_too(method: str, open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, method=method, cache_rate=0.25)
    assert (engine.cache.mode, engine.cache.method) == ("plain", "stock")
    assert engine.cache.reason == METHODS[method].sentence
    assert tokens(engine) == tokens(open_engine(tiny, method="lru", cache_rate=1.0))
    assert engine.set_cache_rate(0.5).mode == "plain"
    with pytest.raises(EngineError, match="through the cache"):
        engine.record(None)


@pytest.fixture(scope="module")
def expected(tiny: Path) -> list[int]:
    """Return the tokens of an answer, by one method at one rate."""
    settings = {"method": "lru", "cache_rate": 0.5, "n_thread": 1, "context_length": 512}
    with contextlib.closing(Engine.open(tiny, EngineConfig.of(**settings))) as engine:
        return tokens(engine)


@pytest.mark.parametrize("method", CACHED)
def test_every_method_gives_the_same_answer(
    method: str, expected: list[int], open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, method=method, cache_rate=0.25)
    assert engine.cache.method == method
    assert tokens(engine) == expected


# Faults.


def test_a_file_that_is_shorter_for_a_while(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    engine = open_engine(path, cache_rate=0.0)
    expected = tokens(engine)
    data, status = path.read_bytes(), path.stat()
    engine.set_cache_rate(0.25)
    with path.open("r+b") as handle:
        handle.truncate(read_model(path).expert_tensors[0][0].offset + 100)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"^m\.gguf was changed or replaced [^.]+\.$"):
            tokens(engine)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # the fault leaves no trace
    assert tokens(engine) == expected


# Opening and closing.


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_closing_twice(rate: float, tiny: Path) -> None:
    engine = Engine.open(tiny, EngineConfig(cache_rate=rate, n_thread=1, context_length=256))
    tokens(engine, n=3)
    engine.close()
    engine.close()
    engine.stop()


def test_without_settings_they_are_automatic(tiny: Path) -> None:
    engine = Engine.open(tiny)
    assert engine.loaded.config.automatic and engine.cache.mode == "plain"
    assert engine.set_cache_rate(0.25).mode == "cached"
    assert engine.loaded.config.by_hand == ("cache_rate",)
    assert engine.cache.overridden.startswith("The cache rate is 25 % by hand")
    engine.close()


def test_closing_within_an_answer(tiny: Path) -> None:
    engine = Engine.open(tiny, EngineConfig(n_thread=1, context_length=256))
    answer = engine.answer(of_text(PROMPT, GREEDY))
    next(answer)
    engine.stop()
    engine.close()
    assert list(answer) == []


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model" * 100, b"GGUF\x03\0\0\0" * 99])
def test_garbage_is_not_opened(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "garbage.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"^[^\n]+\.$"):
        Engine.open(path, EngineConfig())


def test_what_is_not_there_is_not_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.gguf"):
        with pytest.raises(ModelFileError, match=r"^[^\n]+\.$"):
            Engine.open(path, EngineConfig())


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_loading_reports_progress_and_can_be_given_up(rate: float, tiny: Path) -> None:
    config = EngineConfig(cache_rate=rate, n_thread=1, context_length=256)
    fractions: list[float] = []

    def note(fraction: float, stage: str) -> bool:
        fractions.append(fraction)
        return bool(stage)

    Engine.open(tiny, config, note).close()
    assert fractions and fractions == sorted(fractions)
    assert fractions[0] >= 0 and 0.9 < fractions[-1] <= 1
    with pytest.raises(EngineError, match=r"^Loading was cancelled\.$"):
        Engine.open(tiny, config, lambda fraction, stage: False)


def test_two_engines_on_one_file_have_caches_of_their_own(
    open_engine: OpenEngine, tiny: Path
) -> None:
    first, second = open_engine(tiny), open_engine(tiny, cache_rate=0.5)
    assert tokens(first) == tokens(second) == tokens(first)
    second.close()
    assert len(tokens(first, "of the")) > 0


# Settings.


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cache_rate": -0.01}, "cache_rate"),
        ({"cache_rate": 1.01}, "cache_rate"),
        ({"cache_rate": float("nan")}, "cache_rate"),
        ({"method": "magic"}, "method .* not 'magic'"),
        ({"context_length": 0}, "context_length"),
        ({"n_thread": -1}, "n_thread"),
        ({"n_thread": 5000}, "n_thread"),
        ({"n_ubatch": -1}, "n_ubatch"),
        ({"kv_type": "q5"}, "kv_type"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"^The [^\n]*{sentence}[^\n]*\.$"):
        EngineConfig.of(**settings)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [-0.1, 101, float("nan"), float("inf")]),
        ("top_k", [-1]),
        ("top_p", [-0.1, 1.1, float("nan")]),
        ("min_p", [-0.1, 1.1]),
        ("repeat_penalty", [0, -1, 11]),
        ("presence_penalty", [-2.1, 3, float("nan")]),
        ("frequency_penalty", [-2.1, 3]),
        ("logit_bias", [(1,), ((1, 200),), ((-1, 1),), ((True, 1),), ((1, "x"),), ((1 << 31, 1),)]),
        ("n_probs", [-1, 101]),
        ("seed", [-1, (1 << 32) - 1, 1 << 32]),
    ],
)
def test_sampling_that_makes_no_sense(name: str, values: list[float]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^The setting {name} must be .+\.$"):
            Sampling(**{name: value})  # type: ignore[arg-type]


def test_a_repeat_penalty_makes_tokens_rarer(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny)
    plain = tokens(engine, "the", 60)
    pieces = engine.answer(of_text("the", Sampling(temperature=0, repeat_penalty=10.0), 60))
    penalised = [p.token_id for p in pieces][:60]
    assert len(set(penalised)) > len(set(plain)) and penalised[0] == plain[0]


# Other settings between answers.


def test_a_method_changes_without_reading_the_weights_again(
    open_engine: OpenEngine, tiny: Path
) -> None:
    expected = tokens(open_engine(tiny, cache_rate=0.25, method="lru"))
    engine = open_engine(tiny, cache_rate=0.25, method="promoe")
    llama = engine.loaded.llama
    tokens(engine)
    for method in ("lru", "moepic", "auto", "duoserve", "outrider", "lru"):
        cache = engine.change(EngineConfig(cache_rate=0.25, method=method, n_thread=1))
        assert (cache.method, cache.asked_method) == (method, method)
        assert tokens(engine) == expected, method
    assert engine.loaded.llama is llama


def test_the_context_and_the_threads_change_without_reading_the_weights_again(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, cache_rate=0.25, context_length=512, n_thread=1)
    llama = engine.loaded.llama
    before = tokens(engine)
    cache = engine.change(EngineConfig(cache_rate=0.25, context_length=256, n_thread=2))
    assert engine.loaded.llama is llama and cache.n_thread == 2
    assert engine.n_context == engine.model.context_length == 256
    assert tokens(engine) == before
    with pytest.raises(EngineError, match="the context holds only 256"):
        engine.answer(of_text(PROMPT * 8, GREEDY))


def test_a_context_beyond_the_trained_one_is_the_same_context(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, cache_rate=0.25, context_length=1 << 15, n_thread=1)
    tokens(engine)
    context, held = engine._context, engine.residency()
    engine.change(EngineConfig(cache_rate=0.25, context_length=1 << 16, n_thread=1))
    assert engine._context is context
    assert engine.residency() == held  # resident experts stay resident


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_stock_and_back_again(rate: float, open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, cache_rate=rate, n_thread=1)
    before = tokens(engine)
    stock = engine.change(EngineConfig(cache_rate=rate, method="unified", n_thread=1))
    assert (stock.mode, stock.method, stock.asked_method) == ("plain", "stock", "unified")
    assert len(tokens(engine)) == len(before)
    again = engine.change(EngineConfig(cache_rate=rate, n_thread=1))
    assert again.mode == ("plain" if rate == 1.0 else "cached")
    assert tokens(engine) == before


def test_settings_that_cannot_be_had_leave_those_before(
    open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(tiny, cache_rate=0.25, n_thread=1)
    before, cache, made = tokens(engine), engine.cache, engine.loaded.plan

    def fail(*_arguments: object, **_options: object) -> None:
        monkeypatch.undo()
        raise LlamaError("There is no room.")

    monkeypatch.setattr("backend.llama.api.Context", fail)
    with pytest.raises(EngineError, match="no room"):
        engine.change(EngineConfig(cache_rate=0.5, context_length=256, n_thread=1))
    assert engine.cache == cache and engine.loaded.plan == made
    assert tokens(engine) == before


def test_the_automatic_settings_take_what_memory_permits(
    open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DryRun(read_model(tiny)).asked(EngineConfig().n_output)
    needs = plan(file, 0, 4096, 0)
    n_slot = needs.n_slot + 2
    room = plan(file, n_slot, min(4096, file.context_length or 4096), 0)
    free = room.total_bytes + (256 << 20) + file.expert_bytes_total // file.n_expert // 2
    monkeypatch.setattr("backend.engine.observer.available_bytes", lambda: free)
    engine = open_engine(tiny, automatic=True, n_thread=1)
    assert engine.cache.asked_method == "auto"
    assert engine.cache.n_slot == n_slot, engine.cache
    monkeypatch.setattr("backend.engine.observer.available_bytes", lambda: 64 << 30)
    roomy = engine.change(EngineConfig(automatic=True, n_thread=1))
    assert roomy.mode == "plain" and roomy.rate == 1.0


@pytest.mark.parametrize("n_lacking", [1, 32 << 20])
def test_a_dense_part_that_does_not_fit_is_paged(
    n_lacking: int,
    open_engine: OpenEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer stays the same, and the weights come into memory when there is room again."""
    path = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf", n_layer=8)
    settings = {"cache_rate": 0.25, "context_length": 512, "n_thread": 1}
    roomy = open_engine(path, **settings)
    assert not roomy.loaded.plan.mapped
    expected = tokens(roomy)
    file = DryRun(read_model(path)).asked(EngineConfig().n_output)
    free = plan(file, 0, 512, 0).total_bytes - n_lacking
    monkeypatch.setattr("backend.engine.observer.available_bytes", lambda: free)
    engine = open_engine(path, **settings)
    assert engine.loaded.plan.mapped and engine.cache.mode == "cached"
    in_layers = engine.file.layer_dense_bytes * engine.file.n_layer
    assert engine.loaded.plan.window_bytes == max(in_layers - n_lacking, 0)
    assert "is read from the file again and again" in engine.cache.reason
    assert tokens(engine) == expected
    monkeypatch.undo()
    engine.change(EngineConfig(cache_rate=0.5, context_length=512, n_thread=1))
    assert not engine.loaded.plan.mapped
    assert tokens(engine) == expected


# Memory.


class Memory:
    """A system's free memory and a clock. Each look takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes = 1 << 40
        self.now_s = 0.0
        self.n_token = 0
        monkeypatch.setattr(MemoryWatch.__init__, "__defaults__", (self.read, self.clock))

    def read(self) -> Reading:
        return Reading(self.free_bytes)

    def clock(self) -> float:
        self.now_s += 1.0
        return self.now_s


@pytest.mark.parametrize("method", ["lru", "promoe", "auto", "moepic"])
def test_an_answer_is_the_same_when_memory_is_short_and_when_it_is_back(
    method: str, open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tokens(open_engine(tiny, cache_rate=0.75, method=method), n=100)
    memory = Memory(monkeypatch)
    engine = open_engine(tiny, cache_rate=0.75, method=method)
    assert engine.cache.n_slot == 12
    sizes = []
    engine.forget()
    given: list[int] = []
    for piece in engine.answer(of_text(PROMPT, GREEDY, 100)):
        given.append(piece.token_id)
        sizes.append(engine.cache.n_slot)
        memory.free_bytes = 0 if 5 <= len(given) < 20 else 1 << 40
    assert given[: len(expected)] == expected
    assert sizes[0] == 12 and min(sizes) == 4 and sizes[-1] == 12, sizes
    short = [n for n in sizes if n < 12]
    first = sizes.index(short[0])
    assert 4 < first < 20 and sizes[first : first + len(short)] == short  # once
    assert engine.cache.reason == ""
    stats = engine.statistics()
    n_pass = stats.n_token - 1
    n_prefill = stats.n_prompt * 3 * 4  # three layers, four experts of each token
    assert stats.hits + stats.late + stats.misses >= n_pass * 3 * 4
    assert stats.hits + stats.late + stats.misses <= n_pass * 3 * 4 + n_prefill
    assert min(stats.hits, stats.late, stats.misses, stats.bytes_read) >= 0


def test_a_shortage_is_said(
    open_engine: OpenEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(monkeypatch)
    engine = open_engine(tiny, cache_rate=0.75)
    memory.free_bytes = 0
    engine.mind_memory()
    assert engine.cache.reason == (
        "Other programs need memory: 4 of 16 experts of each layer are kept instead of 12."
    )
    assert engine.cache.asked_rate == 0.75


# What the adaptive method learned.


def prefetched(engine: Engine) -> int:
    """Return how many experts the tokens of an answer fetched ahead, without its prompt."""
    pieces = engine.answer(of_text(PROMPT, GREEDY, 12))
    next(pieces)
    counts = engine.loaded.patch.counts
    before = sum(layer.prefetches for layer in counts())
    list(pieces)
    return sum(layer.prefetches for layer in counts()) - before


def test_an_engine_begins_with_what_was_learned(open_engine: OpenEngine, tiny: Path) -> None:
    settings = LearnedSettings(learned_settings_file())
    first = open_engine(tiny, cache_rate=0.25, method="auto")
    key = key_of(
        first.loaded.file.fingerprint,
        NO_EXPERIMENT,
        first.cache.predictor,
        first.loaded.plan,
        first.cache.n_slot,
    )
    counts = {}
    for prefetch in (False, True):
        settings.note(key, Learned(Setting(prefetch, 2, "lru"), {"reactive": 512}))
        counts[prefetch] = prefetched(open_engine(tiny, cache_rate=0.25, method="auto"))
    assert counts[False] == 0 < counts[True]
    # At another rate it begins with what this model had last.
    assert prefetched(open_engine(tiny, cache_rate=0.5, method="auto")) > 0


@pytest.mark.parametrize("end", [Engine.idle, Engine.close])
def test_what_was_learned_is_kept(
    end: Callable[[Engine], None], open_engine: OpenEngine, tiny: Path
) -> None:
    """Tokens take equally long whatever is tried, so the moves are refused."""
    engine = open_engine(tiny, cache_rate=0.25, method="auto")
    list(engine.answer(of_text(PROMPT, GREEDY, 1)))
    chance = random.Random(1)
    for _ in range(400):
        took_s = 0.02 * math.exp(chance.gauss(0, 0.01))
        engine.loaded.observe(
            PassCost(1, took_s, took_s / 2, took_s / 2, took_s / 4, hits=6, misses=6), 0.0
        )
    assert not learned_settings_file().exists()
    end(engine)
    (entry,) = json.loads(learned_settings_file().read_text())["settings"]
    assert entry["key"][0] == engine.loaded.file.fingerprint
    assert entry["refused"] and entry["setting"]["eviction"] == "decayed"


def test_what_was_learned_belongs_to_the_pack(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    settings = LearnedSettings(learned_settings_file())
    file = read_model(path)
    keys = []
    for packed in (False, True):
        if packed:
            write(file, "file")
        engine = open_engine(path, cache_rate=0.25, method="auto")
        plan, cache = engine.loaded.plan, engine.cache
        keys.append(key_of(file.fingerprint, NO_EXPERIMENT, cache.predictor, plan, cache.n_slot))
        settings.note(keys[-1], Learned(Setting(packed, 2, "lru"), {"reactive": 512}))
        again = open_engine(path, cache_rate=0.25, method="auto")
        assert (prefetched(again) > 0) == packed
    assert keys[0] != keys[1]
