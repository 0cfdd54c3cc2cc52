"""Recording a trace while an engine answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backend.engine.engine import Engine, Piece
from backend.gguf.model_file import ModelFile
from backend.protocol.settings import Sampling
from backend.traces.prompts import Prompt
from backend.traces.trace import Trace


class Recording:
    """What an engine routes from now on. `engine` runs `file` through an expert cache.

    Everything is kept in memory until trace(); with `max_bytes` (0: no limit) recording ends where
    the next pass would not fit. Raises EngineError where the engine runs without a cache: llama.cpp
    then shows nothing.
    """

    def __init__(
        self,
        engine: Engine,
        file: ModelFile,
        *,
        scores: bool = False,
        inputs: bool = False,
        max_bytes: int = 0,
    ) -> None:
        from backend import _native

        self._engine = engine
        self._file = file
        self._shape: Any = engine.shape
        width = file.key("embedding_length", 0)
        self._n_embd = width if inputs and isinstance(width, int) else 0
        self._recorder: Any = _native.Recorder(
            n_layer=file.n_moe_layer,
            n_expert=file.n_expert,
            n_expert_used=file.n_expert_used,
            n_embd=self._n_embd,
            scores=scores,
            inputs=self._n_embd > 0,
            max_bytes=max_bytes,
        )
        engine.record(self._recorder)

    def answer(
        self, prompt: Prompt, sampling: Sampling, max_tokens: int, *, raw: bool = False
    ) -> Iterator[Piece]:
        """Answer one prompt as a request of its own, from its first token on.

        `raw`: its last message is continued as it is, without the model's chat template. Raises
        EngineError.
        """
        self._engine.forget()
        if raw:
            return self._engine.generate_text(prompt.text, sampling, max_tokens)
        return self._engine.generate(prompt.messages, sampling, max_tokens)

    @property
    def full(self) -> bool:
        """Whether the limit was met."""
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
        """Everything recorded so far; the recording goes on with nothing."""
        self._recorder.pass_ended(False)  # what an exception may have left open
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
            model=self._file.fingerprint,
            about={
                "layer_dense_bytes": int(self._file.layer_dense_bytes),
                "output_bytes": self._file.output_bytes,
                **about,
            },
            **arrays,
        )

    def close(self) -> None:
        """The engine records no more."""
        self._engine.record(None)
