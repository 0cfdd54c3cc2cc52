"""The paths of llama.cpp's own server that are no other protocol's.

Source: tools/server of llama.cpp (README.md, server-task.cpp, server-context.cpp). A slot there is
a place for one answer; here answers have none of their own, so `id_slot` is -1, and the list of
slots tells only how many answers are computed. A request for a part that this server lacks is
refused as llama.cpp's server refuses it where the part is switched off.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from backend import __version__
from backend.protocol.settings import Sampling
from backend.server.ask import (
    ANY,
    FLAG,
    LIST,
    MAX_CHOICES,
    TEXT,
    TEXTS,
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
    RequestRefused,
    Token,
    Writer,
    check_text,
    read_format,
    read_options,
    read_sampling,
    read_stops,
    shown,
)
from backend.server.model_facts import FileFacts, LoadedFacts
from backend.server.ollama import untagged
from backend.server.openai_chat import FINGERPRINT, error_kind, read_common, timed, told
from backend.server.openai_text import read_prompts
from backend.server.turns import Turns, visible

MAX_SPLIT_BYTES = 256 << 10
"""Size of the text of /tokenize. Others wait while it is split, at most 1.2 s for a MiB."""
_N_PROBS = Kind(lambda v: WHOLE.test(v) and 0 <= v <= 100, "a whole number from 0 to 100")
_RANDOM_SEED = (1 << 32) - 1  # in llama.cpp
_STOP_TYPES = {"stop": "eos", "tool_calls": "eos"}
_NOT_HERE: Mapping[str, str] = {
    "/embedding": "computes embeddings by /v1/embeddings only",
    "/infill": "does not support infill",
    "/lora-adapters": "loads no LoRA adapters",
    "/slots/{id_slot}": "does not save, restore or erase slots",
    "/props": "does not support changing global properties",
    "/v1/audio/transcriptions": "does not transcribe audio",
    "/audio/transcriptions": "does not transcribe audio",
}


def read_completion(body: Any) -> Ask:
    """Read the body of /completion. Raises RequestRefused."""
    fields = Fields(body)
    limits = "n_predict", "max_completion_tokens", "max_tokens"
    n_probs = fields.get("n_probs", _N_PROBS, 0) or fields.get("logprobs", _N_PROBS, 0)
    common = read_common(fields, -1, *limits)
    n = fields.get("n_cmpl", WHOLE, common["n"])
    if fields.get("lora", LIST, []):
        raise fields.refusal("lora", "is not possible here: no adapter is loaded")
    prompts = read_prompts(fields)
    if not 0 < len(prompts) * n <= MAX_CHOICES:
        raise fields.refusal("prompt", f"and n_cmpl must ask for 1 to {MAX_CHOICES} answers")
    if fields.get("json_schema", ANY) is not None:
        raise fields.refusal("json_schema", "is possible in a chat only; use a grammar here")
    fields.get("return_tokens", FLAG)
    fields.get("response_fields", TEXTS)
    fields.ignore("t_max_predict_ms")
    ask = Ask(
        **{**common, "n": n, "with_prompt": True},
        prompts=prompts,
        sampling=read_sampling(fields, n_probs),
        n_top=n_probs,
        options=read_options(
            grammar=read_format(fields)["grammar"],
            stops=read_stops(fields, "stop"),
        ),
    )
    return replace(ask, ignored=fields.others())


class CompletionWriter(Writer):
    """Writes answers of /completion, whole or in pieces. endings: tokens that end an answer."""

    def __init__(self, ask: Ask, model: str, body: Json, endings: Sequence[int]) -> None:
        self._ask, self._model, self._endings = ask, model, endings
        self._with_tokens = body.get("return_tokens") is True
        self._fields: list[str] = body.get("response_fields") or []
        self._n_prompt = 0
        self._n_token = [0] * (len(ask.prompts) * ask.n)
        self._has_line = [False] * len(self._n_token)

    def opening(self, begin: Begin) -> list[Event]:
        """Return no event; note the length of the prompt."""
        self._n_prompt = begin.n_prompt
        return []

    def progress(self, progress: Progress) -> list[Event]:
        """Return an event that says how much of the prompt is read."""
        self._n_prompt = progress.n_prompt
        return [told(("", self._piece(progress.choice, "", [])), progress, self._ask)]

    def part(self, part: Part) -> list[Event]:
        """Return an event with text and its tokens."""
        self._n_token[part.choice] += len(part.ids)
        self._has_line[part.choice] |= "\n" in part.delta.content
        piece = self._piece(part.choice, part.delta.content, list(part.ids))
        if part.tokens:
            piece["completion_probabilities"] = self._chances(part.tokens)
        return [timed(("", piece), part.timings)]

    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the end of each answer. Its text was sent before."""
        return [("", self._final(f, "", [])) for f in finishes]

    def whole(self, parts: list[Part], finishes: list[Finish]) -> Any:
        """Return the answer, or a list if there are several."""
        answers = []
        for finish in sorted(finishes, key=lambda f: f.choice):
            own = [part for part in parts if part.choice == finish.choice]
            text = "".join(part.delta.content for part in own)
            ids = [i for part in own for i in part.ids] if self._with_tokens else []
            self._has_line[finish.choice] = "\n" in text
            answer = self._final(finish, text, ids)
            if tokens := tuple(token for part in own for token in part.tokens):
                answer["completion_probabilities"] = self._chances(tokens)
            answers.append(_only(answer, self._fields) if self._fields else answer)
        return answers if len(answers) > 1 else answers[0]

    def _piece(self, choice: int, text: str, ids: list[int]) -> Json:
        return {
            "index": choice,
            "content": text,
            "tokens": ids,
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": self._n_token[choice],
            "tokens_evaluated": self._n_prompt,
        }

    def _final(self, finish: Finish, text: str, ids: list[int]) -> Json:
        timings = finish.timings
        n_prompt = timings.n_cached + timings.n_read
        stop_type = "word" if finish.stop else _STOP_TYPES.get(finish.reason, "limit")
        return {
            "index": finish.choice,
            "content": text,
            "tokens": ids,
            "id_slot": -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": finish.n_token,
            "tokens_evaluated": n_prompt,
            "generation_settings": settings_json(self._ask, self._endings),
            "prompt": finish.prompt,
            "has_new_line": self._has_line[finish.choice],
            "truncated": finish.reason == "context",
            "stop_type": stop_type,
            "stopping_word": finish.stop,
            "tokens_cached": n_prompt + finish.n_token,
            **timings.beside(),
        }

    def _chances(self, tokens: tuple[Token, ...]) -> list[Json]:
        is_after = self._ask.sampling.post_sampling_probs
        top = "top_probs" if is_after else "top_logprobs"
        return [
            {**_chance(token, is_after), top: [_chance(one, is_after) for one in token.top]}
            for token in tokens
        ]


def _chance(token: Token, is_after: bool) -> Json:
    return {
        "id": token.id,
        "token": token.data.decode("utf-8", "replace"),
        "bytes": list(token.data),
        **({"prob": math.exp(token.logprob)} if is_after else {"logprob": token.logprob}),
    }


def _only(answer: Json, names: list[str]) -> Json:
    """Return some fields of an answer, also inner ones: "generation_settings/n_predict"."""
    found = {}
    for name in names:
        value: Any = answer
        for step in name.split("/"):
            value = value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            found[name] = value
    return found


_ABSENT = object()


def settings_json(ask: Ask, endings: Sequence[int]) -> Json:
    """Return how an answer is sampled, with llama.cpp's names."""
    options = ask.options
    return {
        **_sampling_json(ask.sampling, endings),
        "stop": list(options.stops),
        "max_tokens": ask.max_tokens,
        "n_predict": ask.max_tokens,
        "stream": ask.stream,
        "grammar": options.grammar,
        "timings_per_token": ask.with_timings,
        "chat_format": "Content-only",
        "lora": [],
    }


def _sampling_json(sampling: Sampling, endings: Sequence[int] = ()) -> Json:
    values = dict(sampling.to_json())
    pairs = list(values.pop("logit_bias"))
    if sampling.ignore_eos:
        pairs += [(token, False) for token in endings]
    biases = [{"token": t, "bias": None if b is False else b} for t, b in pairs]
    seed = _RANDOM_SEED if sampling.seed is None else sampling.seed
    return {**values, "seed": seed, "samplers": list(sampling.samplers), "logit_bias": biases}


def meta_json(facts: LoadedFacts | None, file: FileFacts) -> Json:
    """Return what /v1/models tells of a model beside its name. facts: of the loaded one."""
    header = file.file
    known: Json = {"n_params": file.n_parameter, "digest": file.digest} if header else {}
    if facts is not None:
        return {
            "n_vocab": facts.vocabulary.n_token,
            "n_ctx": facts.model.context_length,
            "n_ctx_train": facts.model.trained_length,
            "size": facts.model.file_bytes,
            "runs": facts.runs,
            **known,
        }
    if header is None:
        return {}
    sizes = {"n_ctx_train": header.context_length, "size": file.size_bytes}
    return {"n_vocab": file.n_token, **sizes, **known}


def check_split(content: str) -> None:
    """Raise RequestRefused for a text that takes long to split into tokens."""
    check_text(content)
    if len(content) > MAX_SPLIT_BYTES or len(content.encode()) > MAX_SPLIT_BYTES:
        words = f"content has more than {MAX_SPLIT_BYTES >> 10} KiB; send it in parts."
        raise RequestRefused(words, status=413, param="content")


def error_json(error: RequestRefused) -> Json:
    """Return a refusal in the form of llama.cpp's server."""
    fields = {"code": error.status, "message": str(error), "type": error_kind(error)}
    return {"error": {**fields, **error.more}}


Get = Callable[[Request], Awaitable[Response]]
Post = Callable[[Request, Fields], Awaitable[Response]]


class Native:
    """Serves these paths. gets, posts: by path."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        turns.learn()
        self.gets: dict[str, Get] = {
            "/props": self.props,
            "/slots": self.slots,
            "/metrics": self.metrics,
            "/lora-adapters": self.adapters,
            "/version": self.version,
        }
        self.posts: dict[str, Post] = {
            "/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
            **{path: _refusing(words) for path, words in _NOT_HERE.items()},
        }

    async def props(self, request: Request) -> Response:
        """Describe the model and the server, or a model that is not loaded but named."""
        turns, name = self._turns, untagged(request.query_params.get("model", ""))
        if name and name not in turns.model_names:
            sentence = f"There is no model {shown(name)} here."
            refused = RequestRefused(sentence, status=404, code="model_not_found")
            return JSONResponse(error_json(refused), status_code=refused.status)
        if name and name != turns.host.model_name and (path := turns.host.path_of(name)):
            return JSONResponse(self._sleeping(name, await asyncio.to_thread(FileFacts.of, path)))
        is_freed = turns.host.model_name is None
        facts = turns.last_facts if is_freed else await turns.known()
        if facts is None:
            return JSONResponse(error_json(_LOADING), status_code=_LOADING.status)
        model, vocabulary, chat = facts.model, facts.vocabulary, facts.model.chat
        return JSONResponse(
            {
                **self._common(turns.host.model_name or model.name, model.context_length),
                "model_path": model.path,
                "runs": facts.runs,
                "modalities": {"vision": chat.images, "video": False, "audio": False},
                "chat_template": vocabulary.template,
                "chat_template_caps": {
                    "supports_tools": chat.tools,
                    "supports_tool_calls": chat.tools,
                    "supports_parallel_tool_calls": chat.parallel_tool_calls,
                    "supports_system_role": chat.system,
                },
                "bos_token": vocabulary.begin,
                "eos_token": vocabulary.end,
                "is_sleeping": is_freed,
            }
        )

    def _sleeping(self, name: str, file: FileFacts) -> Json:
        """Return what is known of a model that is not loaded; its context is 0."""
        return {
            **self._common(name, 0),
            "model_path": str(file.path),
            "modalities": {"vision": bool(file.companions), "video": False, "audio": False},
            "chat_template": file.template,
            "is_sleeping": True,
        }

    def _common(self, name: str, n_context: int) -> Json:
        usual = {**_sampling_json(Sampling()), "n_predict": -1, "max_tokens": -1}
        return {
            "default_generation_settings": {"params": usual, "n_ctx": n_context},
            "total_slots": self._turns.n_parallel,
            "model_alias": name,
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "build_info": FINGERPRINT,
        }

    async def slots(self, request: Request) -> Response:
        """Tell how many of the answers that may be computed at once are."""
        facts, n = self._turns.facts, self._turns.n_parallel
        n_ctx = facts.model.context_length if facts is not None else 0
        n_busy = min(len(self._turns.present), n)
        if n_busy == n and request.query_params.get("fail_on_no_slot"):
            error = RequestRefused("No slot is available.", status=503)
            return JSONResponse(error_json(error), status_code=error.status)
        slots = [
            {"id": i, "n_ctx": n_ctx, "speculative": False, "is_processing": i < n_busy}
            for i in range(n)
        ]
        return JSONResponse(slots)

    async def metrics(self, _request: Request) -> Response:
        """Return figures in Prometheus' form."""
        turns = self._turns
        text = turns.figures.text(len(turns.present), turns.n_waiting)
        response = PlainTextResponse(text, media_type="text/plain; version=0.0.4")
        began = str(turns.figures.began_s).encode()
        response.raw_headers.append((b"Process-Start-Time-Unix", began))
        return response

    async def adapters(self, _request: Request) -> Response:
        """Return no adapters."""
        return JSONResponse([])

    async def version(self, _request: Request) -> Response:
        """Return the version of this program."""
        return JSONResponse({"version": __version__})

    async def apply_template(self, request: Request, ask: Ask) -> Response:
        """Return the prompt that a conversation becomes."""

        def prompt(engine: Any) -> str:
            return str(engine.prompts.format(visible(engine, ask.messages), ask.options))

        prompt_of = await self._turns.ask(prompt, ask.model, _client(request))
        return JSONResponse({"prompt": prompt_of})

    async def tokenize(self, request: Request, fields: Fields) -> Response:
        """Split a text into tokens; with_pieces: with the text, or the bytes, of each."""
        content = fields.get("content", TEXT, "")
        check_split(content)
        add_bos = fields.get("add_special", FLAG, False)
        special = fields.get("parse_special", FLAG, True)
        with_pieces = fields.get("with_pieces", FLAG, False)

        def split(words: Any) -> list[Any]:
            tokens = words.tokenize(content, special=special, add_bos=add_bos)
            if not with_pieces:
                return list(tokens)
            pieces = map(_text_or_bytes, words.token_bytes(tokens))
            return [{"id": i, "piece": p} for i, p in zip(tokens, pieces, strict=True)]

        return JSONResponse({"tokens": await self._turns.words(split, _client(request))})

    async def detokenize(self, request: Request, fields: Fields) -> Response:
        """Join tokens to a text."""
        tokens = fields.get("tokens", LIST, [])
        if not all(type(token) is int for token in tokens):
            raise fields.refusal("tokens", "must be a list of whole numbers")
        join = lambda words: words.detokenize(tokens)  # noqa: E731
        return JSONResponse({"content": await self._turns.words(join, _client(request))})


def _client(request: Request) -> str:
    return request.headers.get("user-agent", "")[:200]


_LOADING = RequestRefused("The model is not loaded yet.", status=503)


def _refusing(words: str) -> Post:
    async def refuse(_request: Request, _fields: Fields) -> Response:
        raise RequestRefused(f"This server {words}.", status=501)

    return refuse


def _text_or_bytes(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
