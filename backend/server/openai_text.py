"""OpenAI's completions, which continue a text. Source: OpenAI's API reference (legacy)."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from backend.server.ask import (
    FLAG,
    MAX_CHOICES,
    TEXT,
    TEXTS,
    UP_TO_20,
    Ask,
    Begin,
    Event,
    Fields,
    Finish,
    Json,
    Part,
    RequestRefused,
    Token,
    either,
    read_options,
    read_sampling,
    read_stops,
)
from backend.server.openai_chat import error_json, finish_reason, head, read_common, usage

_DEFAULT_TOKENS = 16  # in the reference


def read_text(body: Any) -> Ask:
    """Read the body of /v1/completions. Raises RequestRefused."""
    fields = Fields(body)
    common = read_common(fields, _DEFAULT_TOKENS, "max_tokens", "n_predict")
    prompt = fields.get("prompt", either(TEXT, TEXTS), "")
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    if not 0 < len(prompts) * common["n"] <= MAX_CHOICES:
        raise fields.refusal("prompt", f"and n must ask for 1 to {MAX_CHOICES} answers")
    n_top = fields.get("logprobs", either(UP_TO_20, FLAG), False)
    n_probs = 0 if n_top is False else max(int(n_top), 1)
    fields.ignore("suffix", "best_of")
    ask = Ask(
        **common,
        prompts=prompts,
        sampling=read_sampling(fields, n_probs),
        n_top=int(n_top),
        options=read_options(
            grammar=fields.get("grammar", TEXT, ""), stops=read_stops(fields, "stop")
        ),
        echo=fields.get("echo", FLAG, False),
    )
    fields.log_others()
    return ask


class TextWriter:
    """Writes completions, whole or in pieces."""

    end = "data: [DONE]\n\n"

    def __init__(self, ask: Ask, model: str) -> None:
        self._ask = ask
        self._head = {**head("cmpl", model), "object": "text_completion"}
        self._n_char = [0] * (len(ask.prompts) * ask.n)  # sent, of each answer

    def opening(self, begin: Begin) -> list[Event]:
        """Return the prompts, if the answers begin with them."""
        if not self._ask.echo:
            return []
        prompts = [self._ask.prompts[i // self._ask.n] for i in range(len(self._n_char))]
        return [self._piece(i, prompt) for i, prompt in enumerate(prompts)]

    def part(self, part: Part) -> list[Event]:
        """Return a piece with text."""
        return [self._piece(part.choice, part.delta.content, tokens=part.tokens)]

    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the reason of each end, and the numbers of tokens if they were asked for."""
        events = [self._piece(f.choice, "", finish_reason(f)) for f in finishes]
        if self._ask.with_usage:
            events.append(("", {**self._head, "choices": [], "usage": usage(finishes)}))
        return events

    def failed(self, error: RequestRefused) -> list[Event]:
        """Return the error."""
        return [("", error_json(error))]

    def whole(self, parts: list[Part], finishes: list[Finish]) -> Json:
        """Return all answers."""
        choices = []
        for finish in finishes:
            own = [part for part in parts if part.choice == finish.choice]
            text = "".join(part.delta.content for part in own)
            tokens = tuple(token for part in own for token in part.tokens)
            prompt = self._ask.prompts[finish.choice // self._ask.n] if self._ask.echo else ""
            self._n_char[finish.choice] = len(prompt)
            choices.append(self._choice(finish.choice, text, finish_reason(finish), tokens))
            choices[-1]["text"] = prompt + text
        return {**self._head, "choices": choices, "usage": usage(finishes)}

    def _piece(
        self, choice: int, text: str, reason: str | None = None, tokens: tuple[Token, ...] = ()
    ) -> Event:
        return "", {**self._head, "choices": [self._choice(choice, text, reason, tokens)]}

    def _choice(
        self, choice: int, text: str, reason: str | None, tokens: tuple[Token, ...]
    ) -> Json:
        logprobs = self._logprobs(choice, tokens) if self._ask.sampling.n_probs else None
        self._n_char[choice] += len(text)
        return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, choice: int, tokens: tuple[Token, ...]) -> Json:
        texts = [_text(token.data) for token in tokens]
        starts = accumulate(map(len, texts), initial=self._n_char[choice])
        return {
            "tokens": texts,
            "token_logprobs": [t.logprob for t in tokens],
            "top_logprobs": [{_text(data): p for data, p in t.top} for t in tokens],
            "text_offset": [start for start, _ in zip(starts, texts, strict=False)],
        }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
