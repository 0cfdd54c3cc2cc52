"""Renders a model's own chat template, in llama-cpp-python's immutable Jinja sandbox.

A template comes from a model file and is not to be trusted: it is compiled and runs with limits of
time and memory, and what it yields with a limit of length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backend.llama import LlamaError, Model
from backend.system.limits import TimeLimit, TooLong, memory_limit

Message = dict[str, str]

_TIME_LIMIT_S = 1.0
_MEMORY_LIMIT_BYTES = 512 << 20
_CHARS_MAX = 16 << 20
_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_MARK = "\ue000outrider-end-of-answer\ue001"  # private-use characters: in no text


class ChatTemplate:
    """A model's template, or ChatML where the model has none."""

    def __init__(self, model: Model, template: str | None) -> None:
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        self._formatter: Any = None
        self._error = ""
        try:
            self._formatter = _limited(
                lambda: Jinja2ChatFormatter(
                    template=template or _CHATML,
                    eos_token=model.special_text(model.eos),
                    bos_token=model.special_text(model.bos),
                )
            )
        except LlamaError as error:
            self._error = str(error)

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt for an answer; for more of the last message if that is the assistant's.

        Raises LlamaError when the template fails, loops or explodes.
        """
        if self._formatter is None:
            raise LlamaError(self._error)
        if messages and messages[-1]["role"] == "assistant":
            # Whatever the template puts behind an answer comes off again.
            marked = [*messages[:-1], {**messages[-1], "content": _MARK}]
            before, found, _ = self._render(marked, add_generation_prompt=False).partition(_MARK)
            if not found:
                raise LlamaError("The model's chat template cannot go on with an answer.")
            return before + messages[-1]["content"]
        return self._render(messages, add_generation_prompt=True)

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        self._formatter.add_generation_prompt = add_generation_prompt
        text: str = _limited(lambda: self._formatter(messages=list(messages)).prompt)
        if len(text) > _CHARS_MAX:
            raise LlamaError("The model's chat template made a prompt of absurd length.")
        return text


def _limited(function: Callable[[], Any]) -> Any:
    """Run a template, or compile it, within limits; whatever it raises becomes a LlamaError."""
    try:
        with memory_limit(_MEMORY_LIMIT_BYTES), TimeLimit(_TIME_LIMIT_S):
            return function()
    except TooLong:
        raise LlamaError(
            f"The model's chat template took longer than {_TIME_LIMIT_S:g} s."
        ) from None
    except MemoryError:
        raise LlamaError("The model's chat template needs too much memory.") from None
    except Exception as error:
        raise LlamaError(f"The model's chat template failed: {_first_line(error)}.") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
