"""Ollama's API: chats, texts, and facts about models.

Source: Ollama's API reference, and its types in Go and Python for what the reference leaves out. A
stream is a JSON object in each line. Names of models end in a tag: `NAME:latest` is NAME.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.protocol.chat import AnswerText
from backend.protocol.settings import Sampling
from backend.server.ask import (
    ANY,
    FLAG,
    LIST,
    NUMBER,
    TEXT,
    TEXTS,
    UP_TO_20,
    WHOLE,
    Ask,
    Conversation,
    Event,
    Fields,
    Finish,
    Json,
    Part,
    RequestRefused,
    Token,
    Writer,
    arguments_text,
    call_json,
    either,
    messages_of,
    read_answer,
    read_content,
    read_format,
    read_options,
    read_sampling,
    read_stops,
    role_of,
    shown,
)
from backend.server.model_facts import FileFacts, LoadedFacts
from backend.server.openai_chat import effort_options, logprobs
from backend.server.tools import arguments_of, read_tools

VERSION = "0.13.0"
"""The version of Ollama whose API this is. Programs compare it with the one that they need."""
_TAG = ":latest"
_NEVER = "2318-01-01T00:00:00Z"  # as Ollama says it
# How Ollama loads a model; here the command line and the window decide.
_OF_LOADING = (
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "num_keep",
    "use_mmap",
    "use_mlock",
    "low_vram",
    "f16_kv",
    "vocab_only",
    "numa",
    "penalize_newline",
)


# Requests.


def read_chat(body: Any) -> Ask:
    """Read the body of /api/chat. Raises RequestRefused. Without messages nothing is asked."""
    fields = Fields(body)
    tools, _ = read_tools(fields, "function")
    return _ask(fields, **tools, messages=_messages(fields))


def read_generate(body: Any) -> Ask:
    """Read the body of /api/generate. Raises RequestRefused. Without a prompt nothing is asked."""
    fields = Fields(body)
    prompt, images = fields.get("prompt", TEXT, ""), _images(fields)
    if fields.get("suffix", TEXT, ""):
        raise fields.refusal("suffix", "is not possible here: no model fills in a middle")
    if fields.get("context", LIST):
        raise fields.refusal("context", "is not kept here; send the conversation to /api/chat")
    if fields.get("template", TEXT, ""):
        raise fields.refusal("template", "cannot be replaced here; send a prompt with raw")
    system, is_raw = fields.get("system", TEXT, ""), fields.get("raw", FLAG, False)
    if not prompt and not images:
        return _ask(fields)
    if is_raw:
        if images:
            raise fields.refusal("images", "need a template, which raw leaves out")
        if read_format(fields)["json_schema"] is not None:
            raise fields.refusal("format", "needs a template, which raw leaves out")
        return _ask(fields, prompts=(prompt,))
    talk = Conversation()
    if system:
        talk.say("system", system)
    talk.say("user", [*images, {"type": "text", "text": prompt}] if images else prompt)
    return _ask(fields, messages=talk.done("prompt"))


def read_show(body: Any) -> str:
    """Return the model's name in the body of /api/show. Raises RequestRefused."""
    fields = Fields(body)
    old = fields.get("name", TEXT, "")
    return untagged(fields.get("model", TEXT, "") or old)


def _ask(
    fields: Fields,
    messages: tuple[Json, ...] = (),
    prompts: tuple[str, ...] = (),
    **of_options: Any,
) -> Ask:
    """Read what chats and texts share."""
    options = fields.table("options")
    options.ignore(*_OF_LOADING)
    limit = options.get("num_predict", WHOLE, -1)
    fields.get("keep_alive", either(TEXT, NUMBER))  # the server's --unload-after decides
    n_top = fields.get("top_logprobs", UP_TO_20, 0)
    has_probs = n_top or fields.get("logprobs", FLAG, False)
    ask = Ask(
        model=untagged(fields.get("model", TEXT, "")),
        max_tokens=limit if limit > 0 else -1,
        stream=fields.get("stream", FLAG, True),
        sampling=read_sampling(options, max(n_top, 1) if has_probs else 0),
        n_top=n_top,
        options=read_options(
            **of_options,
            **_thinking(fields),
            **read_format(fields),
            stops=read_stops(options, "stop"),
        ),
        messages=messages,
        prompts=prompts,
    )
    return replace(ask, ignored=fields.others())


def _thinking(fields: Fields) -> Json:
    think = fields.get("think", either(FLAG, TEXT))
    return effort_options(think, True) if isinstance(think, str) else effort_options("", think)


def _images(fields: Fields) -> list[Json]:
    images: list[str] = fields.get("images", TEXTS, [])
    return [{"type": "image", "data": image.rpartition(",")[2]} for image in images]


def _messages(fields: Fields) -> tuple[Json, ...]:
    talk = Conversation()
    calls = _Calls()
    for message in messages_of(fields, "messages"):
        role = role_of(message, "system", "user", "assistant", "tool")
        images = _images(message)
        if role == "assistant":
            made = [calls.add(call) for call in message.tables("tool_calls")]
            text, thought = read_answer(message)
            talk.assistant(text, message.get("thinking", TEXT, thought), made)
            message.leave(*(["images"] if images else []))
            continue
        text = read_content(message, may_lack=True)
        content = [*images, {"type": "text", "text": text}] if images else text
        if role == "tool":
            name = message.get("tool_name", TEXT) or message.get("name", TEXT, "")
            given = message.get("tool_call_id", TEXT, "")
            talk.result(calls.answered(given, name), content, name)
        else:
            talk.say(role, content)
    return talk.done("messages") if talk.messages else ()


class _Calls:
    """The calls of tools in a conversation. Ollama's have no ids: results follow in their order."""

    def __init__(self) -> None:
        self._n = 0
        self._open: dict[str, str] = {}  # names of calls without a result, by their ids
        self._ids: dict[str, deque[str]] = {}  # ids of calls, by name; "": of all

    def add(self, call: Fields) -> Json:
        """Return a call in OpenAI's form."""
        function = call.table("function")
        name, arguments = function.need("name", TEXT), function.get("arguments", ANY, {})
        call_id = call.get("id", TEXT, "") or f"call_{self._n}"
        self._n += 1
        self._open[call_id] = name
        for key in {"", name}:
            self._ids.setdefault(key, deque()).append(call_id)
        return call_json(call_id, name, arguments_text(arguments))

    def answered(self, given: str, name: str) -> str:
        """Return the id of the call that a result belongs to."""
        ids = deque([given]) if given else self._ids.get(name, deque())
        while ids:
            if self._open.pop(call_id := ids.popleft(), None) is not None:
                return call_id
        return given


# Answers.


class OllamaWriter(Writer):
    """Writes the answer to a chat or to a prompt, whole or in lines."""

    def __init__(self, ask: Ask, model: str, *, is_chat: bool) -> None:
        self._ask, self._model, self._is_chat = ask, model, is_chat
        self._calls = AnswerText()

    def part(self, part: Part) -> list[Event]:
        """Return a line with what the answer gained. Calls follow at the end, where they are whole.

        Tokens of a call come with it.
        """
        delta = part.delta
        self._calls.add(type(delta)(tool_calls=delta.tool_calls))
        if not (delta.content or delta.reasoning or part.tokens):
            return []
        return [("", self._piece(AnswerText(delta.reasoning, delta.content), part.tokens))]

    def closing(self, finishes: list[Finish]) -> list[Event]:
        """Return the calls, and the end with the figures."""
        calls = [("", self._piece(self._calls))] if self._calls.tool_calls else []
        return [*calls, ("", {**self._piece(AnswerText()), **self._figures(finishes)})]

    def whole(self, parts: list[Part], finishes: list[Finish]) -> Json:
        """Return the answer."""
        answer = AnswerText()
        tokens: list[Token] = []
        for part in parts:
            answer.add(part.delta)
            tokens += part.tokens
        return {**self._piece(answer, tokens), **self._figures(finishes)}

    def loaded(self) -> Json:
        """Return the reply to a request that asks nothing and only loads the model."""
        return {**self._piece(AnswerText()), "done": True, "done_reason": "load"}

    def _piece(self, answer: AnswerText, tokens: Iterable[Token] = ()) -> Json:
        head: Json = {"model": tagged(self._model), "created_at": _time(time.time())}
        thought = {"thinking": answer.reasoning} if answer.reasoning else {}
        if self._is_chat:
            message: Json = {"role": "assistant", "content": answer.content, **thought}
            if answer.tool_calls:
                message["tool_calls"] = [
                    {"id": call.id, "function": {"index": i, **_function(call)}}
                    for i, call in enumerate(answer.tool_calls)
                ]
            head["message"] = message
        else:
            head |= {"response": answer.content, **thought}
        if self._ask.sampling.n_probs and (found := logprobs(list(tokens))):
            head["logprobs"] = found
        return {**head, "done": False}

    def _figures(self, finishes: list[Finish]) -> Json:
        (finish,) = finishes
        timings, took_s = finish.timings, time.perf_counter() - self._ask.asked_s
        return {
            "done": True,
            "done_reason": "stop" if finish.reason in ("stop", "tool_calls") else "length",
            "total_duration": _ns(took_s),
            "load_duration": _ns(took_s - timings.read_s - timings.wrote_s),
            "prompt_eval_count": finish.n_prompt,
            "prompt_eval_duration": _ns(timings.read_s),
            "eval_count": finish.n_token,
            "eval_duration": _ns(timings.wrote_s),
            "runs": timings.runs,
        }


def _function(call: Any) -> Json:
    """Return a call with its arguments as an object."""
    return {"name": call.name, "arguments": arguments_of(call.arguments)}


def _ns(seconds: float) -> int:
    return max(round(seconds * 1e9), 0)


def _time(at_s: float) -> str:
    whole_s = math.floor(at_s)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole_s))
    return f"{text}.{int((at_s - whole_s) * 1e6):06}Z"


def error_json(error: RequestRefused) -> Json:
    """Return a refusal in Ollama's form."""
    return {"error": str(error)}


# Models.


def tagged(name: str) -> str:
    """Return a model's name with a tag, as Ollama's names are."""
    return name if ":" in name else name + _TAG


def untagged(name: str) -> str:
    """Return a model's name without the tag that stands for none."""
    return name.removesuffix(_TAG)


def entry(name: str, path: Path) -> Json:
    """Describe a model as /api/tags does. Reads the file's header where it is new."""
    return {"name": tagged(name), "model": tagged(name), **_facts(FileFacts.of(path))}


def running(name: str, path: Path, loaded: LoadedFacts, expires_s: float | None) -> Json:
    """Describe the loaded model as /api/ps does. expires_s: since 1970; None: it is kept."""
    return {
        **entry(name, path),
        "size": loaded.size_bytes,
        "size_vram": loaded.device_bytes,
        "context_length": loaded.model.context_length,
        "expires_at": _NEVER if expires_s is None else _time(expires_s),
    }


def show(path: Path, loaded: LoadedFacts | None = None) -> Json:
    """Describe a model as /api/show does. Reads the file's header where it is new."""
    found = FileFacts.of(path)
    facts = _facts(found)
    n_context = [f"num_ctx {loaded.model.context_length}"] if loaded is not None else []
    return {
        "template": found.template,
        "parameters": "\n".join(n_context + _parameters()),
        "details": facts["details"],
        "model_info": found.plain,
        "capabilities": loaded.capabilities if loaded is not None else found.capabilities,
        "modified_at": facts["modified_at"],
    }


def _parameters() -> list[str]:
    """Return what is in force where a request says nothing, as lines of a Modelfile."""
    usual = Sampling()
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n")
    return [f"{name} {getattr(usual, name):g}" for name in names]


def _facts(found: FileFacts) -> Json:
    file = found.file
    family = file.architecture if file is not None else ""
    return {
        "modified_at": _time(found.path.stat().st_mtime if file is not None else 0.0),
        "size": found.size_bytes,
        "digest": found.digest,
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": family,
            "families": [family] if family else [],
            "parameter_size": _size(found.n_parameter),
            "quantization_level": file.quantisation if file is not None else "",
        },
    }


def _size(n: int) -> str:
    for scale, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if n >= scale:
            return f"{n / scale:.1f}{unit}"
    return str(n)


def not_found(name: str) -> RequestRefused:
    """Return Ollama's refusal of a name."""
    return RequestRefused(f"model '{shown(name)}' not found.", status=404)
