"""A fake engine for tests of the server. It answers at once, without a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stepping import Stepping
from waiting import WAIT_S

from backend.protocol.chat import ChatFacts, ChatOptions, Delta, ToolCall
from backend.protocol.errors import EngineError
from backend.protocol.request import GroupAnswer, Request
from backend.protocol.status import VocabularyFacts

Answerer = Callable[[Sequence[Any], ChatOptions], Sequence[Delta]]

RUNS = "4 experts of each layer are in memory."


def call_tool(messages: Sequence[Any], options: ChatOptions) -> Sequence[Delta]:
    """Think. Then call a tool if there is one without a result, else answer."""
    may_call = options.tools and options.tool_choice != "none"
    if may_call and messages[-1]["role"] != "tool":
        name = options.tools[0]["function"]["name"]
        return [
            Delta(reasoning="I need "),
            Delta(reasoning="a tool."),
            Delta(tool_calls={0: ToolCall("call1", name, "")}),
            Delta(tool_calls={0: ToolCall("", "", '{"place": ')}),
            Delta(tool_calls={0: ToolCall("", "", '"Oslo"}')}),
        ]
    if options.json_schema is not None:
        return [Delta(content="{"), Delta(content="}")]
    return [Delta(reasoning="Easy."), Delta(content="It is "), Delta(content="sunny.")]


class FakeEngine(Stepping):
    """Answers with `answer(messages, options)`. asked: the requests, in order.

    gate: answer() waits for it after the prompt. fault: raised before the answer.
    """

    def __init__(
        self,
        answer: Answerer = call_tool,
        name: str = "fake",
        gate: threading.Event | None = None,
        fault: Exception | None = None,
    ) -> None:
        self.model = SimpleNamespace(
            name=name, path=name, chat=ChatFacts(tools=True), context_length=100,
            trained_length=200, file_bytes=1, dense_bytes=10, expert_bytes_total=100,
        )  # fmt: skip
        self.cache = SimpleNamespace(runs=RUNS, mode="cached", bytes=20, host_bytes=0, device="cpu")
        self.vocabulary = VocabularyFacts(1000, "<s>", "</s>", (2,), "{{ messages }}")
        self.asked: list[Request] = []
        super().__init__()
        self.reason = ""
        self.fitted: tuple[str, ...] = ()
        self.n_close = 0
        self.reading = threading.Event()
        """A prompt was read."""
        self._answer, self._gate, self._fault = answer, gate, fault
        self._stopped = False
        self._stats = SimpleNamespace(n_prompt=0, n_reused=0, n_token=0)

    def make_room(self, n_sequence: int) -> None:
        """Answer one request after the other all the same."""

    def answer(self, request: Request) -> Iterator[Any]:
        self._stopped = False
        del self.asked[:-100]
        self.asked.append(request)
        messages, prompt = request.messages, request.prompt
        if prompt is not None:
            said = prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
            messages = [{"role": "user", "content": said}]
        elif self._fault is not None:
            raise self._fault
        deltas = self._answer(messages, request.options)
        text = self.format(messages, request.options)
        return self._pieces(text, deltas, request)

    def _pieces(self, prompt: str, deltas: Sequence[Delta], request: Request) -> Iterator[Any]:
        request.handle.attach(self.stop)
        try:
            yield from self._written(prompt, deltas, request)
        finally:
            request.handle.attach(None)

    def _written(self, prompt: str, deltas: Sequence[Delta], request: Request) -> Iterator[Any]:
        handle = request.handle
        n = len(self.tokenize(prompt))
        self._stats = stats = SimpleNamespace(n_prompt=n, n_reused=1, n_token=0)
        self.reason = "cancelled"
        handle.fitted(self.fitted)
        handle.follow.joined(n, 1)
        handle.follow.prefilled(n)
        self.reading.set()
        if self._gate is not None:
            self._gate.wait(WAIT_S)
        handle.follow.began()
        for delta in deltas:
            if self._stopped:
                return
            if stats.n_token == request.max_tokens:
                self.reason = "length"
                return
            stats.n_token += 1
            text = delta.content or delta.reasoning
            chance = SimpleNamespace(token_id=1, data=text.encode(), logprob=-0.5)
            n_probs = request.sampling.n_probs
            chances = (chance,) * (n_probs + 1) if n_probs else ()
            piece = SimpleNamespace(token_id=1, text=text, chances=chances)
            handle.follow.wrote(piece)
            yield piece
            if handle.splits == "live" and request.prompt is None:
                handle.delta(delta)
        called = any(delta.tool_calls for delta in deltas)
        self.reason = "tool_calls" if called else "stop"

    def end_of(self, request: Request) -> GroupAnswer:
        stats = self._stats
        return GroupAnswer(
            request, finish_reason=self.reason, n_prompt=stats.n_prompt, n_token=stats.n_token,
            n_reused=stats.n_reused,
        )  # fmt: skip

    def format(self, messages: Sequence[Any], options: ChatOptions = ChatOptions()) -> str:
        return " ".join(str(message["content"]) for message in messages)

    def tokenize(self, text: str, *, special: bool = True, add_bos: bool = False) -> list[int]:
        return [0] * add_bos + [min(len(word), 999) for word in text.split()]

    def prompt_tokens(self, prompt: Any) -> list[int]:
        pieces = [prompt] if isinstance(prompt, str) else prompt
        texts = [[p] if isinstance(p, int) else self.tokenize(p) for p in pieces]
        begins = bool(pieces) and isinstance(pieces[0], str)
        return [0] * begins + [token for text in texts for token in text]

    def count(self, messages: Any, options: ChatOptions) -> int:
        return len(self.tokenize(self.format(messages, options)))

    def token_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        return [b"x" * token for token in tokens]

    def detokenize(self, tokens: Sequence[int]) -> str:
        if any(not 0 <= token < 1000 for token in tokens):
            raise EngineError("There is no such token.")
        return " ".join("x" * token for token in tokens)

    def statistics(self) -> Any:
        return self._stats

    def stop(self) -> None:
        self._stopped = True
        if self._gate is not None:
            self._gate.set()

    def keep_in(self, folder: Path) -> None:
        pass

    is_late = False

    def keep(self) -> bool:
        return False

    def warm(self, owner: str) -> None:
        pass

    def forget_kept(self, owner: str) -> None:
        pass

    def idle(self) -> None:
        pass

    def close(self) -> None:
        self.n_close += 1
