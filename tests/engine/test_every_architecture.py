"""Every architecture with experts: stock llama.cpp computes what a chat and a group compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from asking import jointly
from factory import CACHEABLE, make_tiny
from oracle import Oracle

from backend.engine.engine import Engine
from backend.gguf.tables import ONE_SEQUENCE
from backend.protocol.request import Request
from backend.protocol.settings import Sampling

GREEDY = Sampling(temperature=0)
CHAT = [{"role": "user", "content": "it was one of the words that they had not said"}]
N_PART = 6  # a process of stock llama.cpp for each


@pytest.mark.parametrize("part", range(N_PART))
def test_a_chat_and_a_group(
    part: int, open_engine: Callable[..., Engine], oracle: Oracle, tmp_path: Path
) -> None:
    """Three requests are computed at once where that changes nothing.

    All models have one chat template, so the process of the first engine writes the prompt.
    """
    chat = ""
    for arch in CACHEABLE[part::N_PART]:
        path = make_tiny(arch, "Q8_0", tmp_path / f"{arch}.gguf")
        engine = open_engine(path, cache_rate=0.25, n_sequence=3, context_length=768)
        assert engine.cache.mode == "cached", arch
        chat = chat or engine.prompts.format(CHAT)
        list(engine.answer(Request(None, GREEDY, 5, prompt=chat)))  # may end at once
        sizes: list[int] = []
        found = list(
            jointly(
                engine,
                [Request(i, GREEDY, 5, prompt="of the words " * (i + 1)) for i in range(3)],
                lambda group, sizes=sizes: sizes.append(group.n_running),  # type: ignore[misc]
            )
        )
        assert [answer.error for answer in found] == ["", "", ""], arch
        assert max(sizes) == (1 if arch in ONE_SEQUENCE else 3), arch
    counts = oracle.approve()
    assert counts["n_answer"] >= 3 * len(CACHEABLE[part::N_PART])
    assert counts["n_taken"] == 0
