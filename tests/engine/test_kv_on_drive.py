"""The attention cache as pages of a file: same answers, nothing left behind, refusals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, of_text
from factory import make_tiny

from backend._native import LayerWindow
from backend.engine.dry_run import DryRun
from backend.engine.engine import Engine
from backend.gguf.model_file import read_model
from backend.memory.plan import KvCache, headroom_bytes, kv_bytes, kv_bytes_by_layer, plan, slots
from backend.protocol.errors import EngineError
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

OpenEngine = Callable[..., Engine]
GREEDY = Sampling(temperature=0)
PROMPT = "the of and to in is it that for was " * 20


@pytest.fixture(scope="module", params=["qwen3moe", "gpt-oss", "deepseek2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(request.param, "Q8_0", tmp_path_factory.mktemp("kv") / "m.gguf", n_layer=8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the files."""
    monkeypatch.setattr("backend.engine.loaded_model.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def files_of(folder: Path) -> int:
    """Return the bytes of this process's memory that are pages of files in a folder."""
    found = 0
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if str(folder) in line:
            begin, end = line.split()[0].split("-")
            found += int(end, 16) - int(begin, 16)
    return found


def say(engine: Engine, prompt: str) -> tuple[str, list[float]]:
    """Return a greedy answer and the log-probability of each token."""
    pieces = list(engine.answer(of_text(prompt, GREEDY, 12)))
    last = engine.loaded.context.log_probabilities(0, 4)
    return "".join(piece.text for piece in pieces), [chance for _, chance in last]


def test_answers_are_the_same_and_the_file_goes(
    model: Path, open_engine: OpenEngine, folder: Path
) -> None:
    settings = {"cache_rate": 0.25, "context_length": 4096}
    usual = open_engine(model, **settings)
    expected = [say(usual, PROMPT), say(usual, "something else"), say(usual, PROMPT)]
    engine = open_engine(model, **settings, kv_on_drive=True)
    assert files_of(folder) > 0.3 * kv_bytes(read_model(model), engine.loaded.context.n_context)
    assert list(folder.iterdir()) == []  # the file has no name
    assert [say(engine, p) for p in (PROMPT, "something else", PROMPT)] == expected
    engine.close()
    assert files_of(folder) == 0


def test_a_group_has_the_same_answers(
    open_engine: OpenEngine, folder: Path, tmp_path: Path
) -> None:
    model = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")

    def answers(**settings: bool) -> Iterator[tuple[int, str]]:
        engine = open_engine(model, n_sequence=4, context_length=2048, **settings)
        requests = [Request(i, GREEDY, 8, prompt=PROMPT[i:]) for i in range(6)]
        for answer in jointly(engine, iter(requests)):
            yield answer.request.key, answer.text.content
        assert bool(files_of(folder)) == bool(settings)
        engine.close()

    assert sorted(answers(kv_on_drive=True)) == sorted(answers())


def test_a_window_of_layers_is_kept_ahead(
    model: Path, open_engine: OpenEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for six of eight layers' cache; the answers stay the same."""
    expected = say(open_engine(model, cache_rate=0.25, context_length=1024), PROMPT * 4)
    windows = []

    def make(*given: Any) -> Any:
        windows.append(LayerWindow(*given))
        return windows[-1]

    monkeypatch.setattr("backend._native.LayerWindow", make)
    file = DryRun(read_model(model)).asked(EngineConfig().n_output)
    needed = plan(file, slots(file, 0.25), 1024, 1 << 40, KvCache(on_drive=True))
    room_bytes = 6 * max(kv_bytes_by_layer(file, 1024))
    free = needed.total_bytes - needed.kv_bytes + headroom_bytes(0) + room_bytes
    monkeypatch.setattr("backend.engine.observer.available_bytes", lambda: free)
    engine = open_engine(model, cache_rate=0.25, context_length=1024, kv_on_drive=True)
    assert engine.loaded.plan.window_bytes == room_bytes
    assert say(engine, PROMPT * 4) == expected
    (window,) = windows
    n_read, n_dropped = window.counts
    assert n_read > 0 and n_dropped > 0


def test_a_drive_without_room_is_said(model: Path, open_engine: OpenEngine, folder: Path) -> None:
    import resource  # not on Windows

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    try:
        with pytest.raises(EngineError, match="cannot hold an attention cache of .* MiB: File too"):
            open_engine(model, kv_on_drive=True, context_length=4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder.rmdir()
    folder.write_text("a file", encoding="utf-8")
    with pytest.raises(EngineError, match="cache"):
        open_engine(model, kv_on_drive=True, context_length=4096)


def test_memory_is_planned_without_it(model: Path) -> None:
    file, n = read_model(model), 1 << 20
    in_memory, on_drive = (
        plan(file, 4, n, 1 << 40, KvCache("f16", 1, 32, not place, 0, place))
        for place in (False, True)
    )
    assert in_memory.kv_bytes == kv_bytes(file, n, KvCache(n_ubatch=32))
    every = kv_bytes(file, n, KvCache(windows=False))
    assert on_drive.kv_bytes <= max(2 * every / file.n_layer, 1)
    assert in_memory.total_bytes - on_drive.total_bytes == in_memory.kv_bytes - on_drive.kv_bytes
