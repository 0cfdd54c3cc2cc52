"""Record a trace while an engine answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backend import _native
from backend.engine.engine import Engine, Piece
from backend.gguf.model_file import ModelFile
from backend.protocol.request import Request
from backend.protocol.settings import Sampling
from backend.traces.prompts import Prompt
from backend.traces.trace import Trace


class Recording:
    """Records an engine's routing. `engine` runs `file` through an expert cache.

    Everything stays in memory until trace(). With `max_bytes` (0: no limit) recording ends before
    the first pass that would not fit. Raises EngineError where the engine runs without a cache,
    because llama.cpp then does not show its routing.
    """

    def __init__(
        self,
        engine: Engine,
        file: ModelFile,
        *,
        scores: bool,
        inputs: bool,
        max_bytes: int = 0,
    ) -> None:
        self._engine = engine
        self._file = file
        self._shape: Any = engine.shape
        width = file.key("embedding_length", 0)
        self._n_embd = width if inputs and isinstance(width, int) else 0
        self._recorder: Any = _native.Recorder(
            n_layer=file.n_moe_layer,
            n_expert=file.n_expert,
            n_expert_used=file.n_expert_used,
            n_used=file.n_used_by_moe_layer,
            n_embd=self._n_embd,
            scores=scores,
            inputs=self._n_embd > 0,
            max_bytes=max_bytes,
        )
        engine.record(self._recorder)

    def answer(
        self, prompt: Prompt, sampling: Sampling, max_tokens: int, *, raw: bool = False
    ) -> Iterator[Piece]:
        """Answer one prompt as a separate request, from its first token on.

        raw: continue the last message without the model's chat template. Raises EngineError.
        """
        self._engine.forget()
        request = (
            Request(prompt, sampling, max_tokens, prompt=prompt.text)
            if raw
            else Request(prompt, sampling, max_tokens, prompt.messages)
        )
        return self._engine.answer(request)

    @property
    def full(self) -> bool:
        """Whether the limit was reached."""
        return bool(self._recorder.full)

    @property
    def n_token(self) -> int:
        """Tokens recorded so far."""
        return int(self._recorder.n_token)

    @property
    def n_bytes(self) -> int:
        """Bytes recorded so far."""
        return int(self._recorder.bytes)

    def trace(self, about: dict[str, Any]) -> Trace:
        """Return everything recorded so far, and empty the recording."""
        self._recorder.pass_ended(False)  # an exception may have left a pass open
        arrays = self._recorder.take()
        return Trace(
            architecture=self._file.architecture,
            layers=tuple(self._file.expert_tensors),
            n_expert=self._file.n_expert,
            n_expert_used=self._file.n_expert_used,
            n_embd=self._n_embd if "inputs" in arrays else 0,
            chunk_bytes=tuple(tuple(sizes) for sizes in self._shape.chunk_bytes),
            n_cut=tuple(self._shape.n_cut),
            layer_kind=tuple(self._shape.kind),
            n_used=tuple(self._shape.n_used),
            model=self._file.fingerprint,
            about={
                "layer_dense_bytes": int(self._file.layer_dense_bytes),
                "output_bytes": self._file.output_bytes,
                **about,
            },
            **arrays,
        )

    def close(self) -> None:
        """End the recording."""
        self._engine.record(None)
