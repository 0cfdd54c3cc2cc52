"""Stock llama.cpp that repeats an engine's passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backend.engine import loading
from backend.engine.engine import Engine
from backend.gguf.model_file import read_model
from backend.llama import api as llama


class Twin:
    """Repeats each completed pass and each forgetting of the engine, and compares the logits.

    A pass that was stopped must leave no trace. The last bits of logits depend on how a text is
    cut into passes, so only a twin with the same past can be compared bit by bit.
    """

    def __init__(self, path: Path, engine: Engine) -> None:
        self._model = loading.load_native(read_model(path))
        passes, real = engine.passes, engine.loaded.context
        self._context = llama.Context(
            self._model, n_context=real.n_context, n_ubatch=real.n_ubatch, n_thread=1
        )
        self.n_pass = self.n_stopped = 0
        forget, compute = real.forget_from, passes.compute

        def forget_from(position: int, sequence: int = 0) -> bool:
            done: bool = forget(position, sequence)
            if sequence:  # of a group, which the twin does not compute
                return done
            # A recurrent model cannot undo a stopped pass, which the twin has not computed.
            assert self._context.forget_from(position if done else 0) or not done
            return done

        def one_pass(tokens: list[int], *arguments: Any, **options: Any) -> bool:
            position = len(passes.tokens)
            done: bool = compute(tokens, *arguments, **options)
            if done:
                assert self._context.decode(tokens, position) == 0
                ours, stock = real.logits(1), self._context.logits(1)
                assert np.array_equal(ours.view(np.uint32), stock.view(np.uint32))
                self.n_pass += 1
            else:
                self.n_stopped += 1
            return done

        real.forget_from = forget_from
        passes.compute = one_pass  # type: ignore[method-assign]

    def close(self) -> None:
        self._context.close()
        self._model.close()
