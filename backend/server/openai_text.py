"""OpenAI's completions, which continue a text. Source: OpenAI's API reference (legacy)."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

from backend.protocol.request import Prompt
from backend.server.ask import (
    FLAG,
    LIST,
    MAX_CHOICES,
    OBJECT,
    TEXT,
    UP_TO_20,
    WHOLE,
    Ask,
    Begin,
    Event,
    Fields,
    Finish,
    Json,
    Kind,
    Part,
    Progress,
    Token,
    Writer,
    either,
    read_format,
    read_options,
    read_sampling,
    read_stops,
)
from backend.server.openai_chat import (
    finish_reason,
    head,
    read_common,
    timed,
    told,
    usage,
    verbose,
)

_DEFAULT_TOKENS = 16  # in the reference
_TOKEN_OR_TEXT = either(
    TEXT, Kind(lambda v: WHOLE.test(v) and 0 <= v < 1 << 31, "the number of a token")
)


def read_text(body: Any) -> Ask:
    """Read the body of /v1/completions. Raises RequestRefused."""
    fields = Fields(body)
    common = read_common(fields, _DEFAULT_TOKENS, "max_tokens", "n_predict")
    prompts = read_prompts(fields)
    if not 0 < len(prompts) * common["n"] <= MAX_CHOICES:
        raise fields.refusal("prompt", f"and n must ask for 1 to {MAX_CHOICES} answers")
    n_top = fields.get("logprobs", either(UP_TO_20, FLAG), False)
    n_probs = 0 if n_top is False else max(int(n_top), 1)
    wanted = read_format(fields)
    if wanted.pop("json_schema") is not None:
        raise fields.refusal("response_format", "is possible in a chat only; send a grammar here")
    ask = Ask(
        **common,
        prompts=prompts,
        sampling=read_sampling(fields, n_probs),
        n_top=int(n_top),
        options=read_options(**wanted, stops=read_stops(fields, "stop")),
        echo=fields.get("echo", FLAG, False),
    )
    if ask.echo and not all(isinstance(prompt, str) for prompt in prompts):
        raise fields.refusal("echo", "is possible for a prompt of text only")
    if ask.echo and n_probs:
        raise fields.refusal("echo", "and logprobs do not go together: a prompt has no values here")
    return replace(ask, ignored=fields.others())


def read_prompts(fields: Fields) -> tuple[Prompt, ...]:
    """Read the prompts: one or several, each a text, a list of tokens, or of tokens and texts.

    A list that holds a number is one prompt, as in llama.cpp's server.
    """
    given = fields.get("prompt", either(TEXT, LIST, OBJECT), "")
    if isinstance(given, list) and not any(map(WHOLE.test, given)):
        return tuple(_prompt(fields, one) for one in given)
    return (_prompt(fields, given),)


def _prompt(fields: Fields, given: Any) -> Prompt:
    if isinstance(given, dict):
        inner = Fields(given, fields.path("prompt"))
        if inner.get("multimodal_data", LIST):
            raise inner.refusal("multimodal_data", "is not possible in a raw prompt here")
        return str(inner.need("prompt_string", TEXT))
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(map(_TOKEN_OR_TEXT.test, given)):
        return tuple(given)
    raise fields.refusal("prompt", "must be text, a list of tokens, or a list of these")


class TextWriter(Writer):
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
        return [self._piece(i, self._echoed(i)) for i in range(len(self._n_char))]

    def progress(self, progress: Progress) -> list[Event]:
        """Return a piece that says how much of the prompt is read."""
        return [told(self._piece(progress.choice, ""), progress, self._ask)]

    def part(self, part: Part) -> list[Event]:
        """Return a piece with text."""
        piece = self._piece(part.choice, part.delta.content, tokens=part.tokens)
        return [timed(piece, part.timings)]

    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the reason of each end, and the numbers of tokens if they were asked for."""
        events = [self._piece(f.choice, "", finish_reason(f)) for f in finishes]
        if self._ask.with_usage:
            events.append(("", {**self._head, "choices": [], "usage": usage(finishes)}))
        return [*events[:-1], timed(events[-1], finishes[0].timings)]

    def whole(self, parts: list[Part], finishes: list[Finish]) -> Json:
        """Return all answers."""
        choices = []
        for finish in finishes:
            own = [part for part in parts if part.choice == finish.choice]
            text = "".join(part.delta.content for part in own)
            tokens = tuple(token for part in own for token in part.tokens)
            prompt = self._echoed(finish.choice)
            self._n_char[finish.choice] = len(prompt)
            choices.append(self._choice(finish.choice, text, finish_reason(finish), tokens))
            choices[-1]["text"] = prompt + text
        whole = {**self._head, "choices": choices, "usage": usage(finishes)}
        whole |= finishes[0].timings.beside()
        return {**whole, **verbose(self._ask, finishes)}

    def _echoed(self, choice: int) -> str:
        """Return the prompt, if the answer begins with it."""
        prompt = self._ask.prompts[choice // self._ask.n]
        return prompt if self._ask.echo and isinstance(prompt, str) else ""

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
            "top_logprobs": [{_text(top.data): top.logprob for top in t.top} for t in tokens],
            "text_offset": [start for start, _ in zip(starts, texts, strict=False)],
        }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
