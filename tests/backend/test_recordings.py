"""Recordings of chats: what is written with consent, what is held out, and which weights stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from processes import DATA_HOME

from backend.learning import recordings as learning
from backend.learning.recordings import adopt_if_better
from backend.traces.trace import PREFILL, Trace
from backend.weights.file import PredictorWeights, write
from backend.weights.lookup import in_data_folder, sizes_of

N_LAYER, N_EXPERT, N_USED, N_EMBD = 3, 8, 2, 4
MODEL, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the part of a ModelFile that recordings use. Its routers choose experts 2 and 3."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path / "data"))
    router = np.zeros((N_EXPERT, N_EMBD), np.float32)
    router[2:4] = 1
    monkeypatch.setattr(learning, "routers", lambda *_: [router] * N_LAYER)
    return SimpleNamespace(
        path=tmp_path / "m.gguf", fingerprint=MODEL, n_moe_layer=N_LAYER, n_expert=N_EXPERT,
        n_expert_used=N_USED, key=lambda name, default=None: N_EMBD,
    )  # fmt: skip


def routed_to(*experts: int, n: int = 6, model: str = MODEL) -> Trace:
    """Return the trace of an answer of n tokens that used these two experts in every layer."""
    return Trace(
        architecture="test",
        layers=tuple(range(N_LAYER)),
        n_expert=N_EXPERT,
        n_expert_used=N_USED,
        chunk_bytes=((16,),) * N_LAYER,
        phases=np.full(1, PREFILL, np.uint8),
        requests=np.zeros(1, np.int32),
        n_token=np.full(1, n, np.int32),
        n_routed=np.full((1, N_LAYER), n, np.int32),
        tokens=np.arange(n, dtype=np.int32),
        ids=np.tile(np.array(experts, np.uint8), (n, N_LAYER, 1)),
        inputs=np.ones((n, N_LAYER, N_EMBD), np.float16),
        has_inputs=np.ones(N_LAYER, np.uint8),
        n_embd=N_EMBD,
        model=model,
    )


def predicting(*experts: int, about: str = "") -> PredictorWeights:
    """Return weights that always predict these experts, the first one best."""
    bias = np.zeros(N_EXPERT, np.float32)
    for place, expert in enumerate(experts):
        bias[expert] = N_EXPERT - place
    arrays = {f"l{layer}.s1.b2": bias for layer in range(N_LAYER)}
    file = SimpleNamespace(
        n_moe_layer=N_LAYER, n_expert=N_EXPERT, n_expert_used=N_USED, key=lambda *_: N_EMBD
    )
    return PredictorWeights("learned", sizes_of(file), arrays, {}, {"recipe": about})  # type: ignore[arg-type]


@pytest.fixture
def adopt(file: Any, tmp_path: Path) -> Callable[..., bool]:
    """Let new weights compete with present ones. Return whether they have replaced them."""

    def make(
        new: PredictorWeights | bytes,
        present: PredictorWeights | None,
        *held_out: Trace,
        model: str = MODEL,
    ) -> bool:
        place, candidate = in_data_folder(file, "learned"), tmp_path / "candidate"
        place.parent.mkdir(parents=True, exist_ok=True)
        if present is not None:
            write(place, MODEL, present)
        before = place.read_bytes() if place.exists() else b""
        if isinstance(new, bytes):
            candidate.write_bytes(new)
        else:
            write(candidate, model, new)
        given, paths = candidate.read_bytes(), []
        for number, trace in enumerate(held_out):
            paths.append(tmp_path / f"{number}.npz")
            trace.write(paths[-1])
        verdict = adopt_if_better(file, candidate, paths)
        after = place.read_bytes() if place.exists() else b""
        assert not candidate.exists() and after == (given if verdict.is_better else before)
        return verdict.is_better

    return make


def test_equal_weights_do_not_replace_the_present_ones(adopt: Callable[..., bool]) -> None:
    """With as many right predictions, the present ones are known to be good for more chats."""
    trace = routed_to(0, 1)
    assert not adopt(predicting(0, 1, about="new"), predicting(0, 1, about="old"), trace)
    assert not adopt(predicting(0, 5), predicting(1, 6), trace)  # half of them is right
    assert adopt(predicting(0, 1), predicting(1, 6), trace)
