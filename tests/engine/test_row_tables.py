"""A table that llama.cpp reads by rows stays in its file, whatever its size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from asking import of_text
from factory import make_tiny, spoil

from backend.engine.engine import Engine
from backend.gguf.model_file import read_model
from backend.memory.plan import plan, slots
from backend.protocol.errors import EngineError
from backend.protocol.settings import Sampling

OpenEngine = Callable[..., Engine]
N_ROW = 70_000_000  # of 64 bytes: more than the 4 GiB from which on llama.cpp reads by rows
TABLE_BYTES = 64 * N_ROW
NEAR_BYTES = 256 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "m.gguf"
    make_tiny("qwen4exp", "Q8_0", path, n_table_row=N_ROW)
    if os.name == "posix":  # Windows does not count the blocks of a file
        assert path.stat().st_blocks * 512 < NEAR_BYTES < TABLE_BYTES
    return path


@pytest.mark.parametrize("settings", [{"cache_rate": 0.25}, {"cache_rate": 1.0}])
def test_only_the_rows_of_the_tokens_are_read(
    model: Path, open_engine: OpenEngine, settings: dict[str, Any]
) -> None:
    before = psutil.Process().memory_info().rss
    engine = open_engine(model, **settings)
    assert list(engine.answer(of_text("the of and", Sampling(temperature=0), 8)))
    assert engine.cache.mode == ("plain" if settings["cache_rate"] == 1 else "cached")
    assert psutil.Process().memory_info().rss - before < NEAR_BYTES


def test_the_plan_has_the_pages_that_tokens_touch(model: Path) -> None:
    file = read_model(model)
    assert [tensor.n_bytes for tensor in file.row_tensors] == [TABLE_BYTES]
    few, many = (plan(file, slots(file, 0.25), n, 1 << 40).dense_bytes for n in (256, 1024))
    n_head = 2  # rows of a token, each in a page
    assert many - few == (1024 - 256) * n_head * 4096
    assert few < NEAR_BYTES
    assert file.row_bytes(1 << 40) == TABLE_BYTES
    assert file.token_dense_bytes < file.dense_bytes < NEAR_BYTES
    small = make_tiny("qwen4exp", "Q8_0", model.with_name("small.gguf"))
    assert read_model(small).row_tensors == () and read_model(small).row_bytes(100) == 0


def test_what_is_loaded_is_checked(tmp_path: Path, open_engine: OpenEngine) -> None:
    damaged = make_tiny("qwen4exp", "Q8_0", tmp_path / "m.gguf", n_table_row=N_ROW)
    spoil(damaged, "blk.0.attn_gate.weight")
    for settings in ({"cache_rate": 0.25}, {"cache_rate": 1.0}):
        with pytest.raises(EngineError, match="attn_gate.weight. has a value that is NaN"):
            open_engine(damaged, **settings)
