"""Measure several clients of `outrider serve` at once, or try the packages that programs use.

    python tests/benchmarks/server_clients.py [MODEL] [--clients 4] [--rounds 5] [OPTIONS OF SERVE]

Rounds of one client and of several alternate. Each client sends chats one after the other, which
end at a number of tokens. Shown: medians of token/s and of the seconds to the first token, and its
99th percentile.

    python tests/benchmarks/server_clients.py --packages [NAME …] [--docs docs/server.md]

Each package of PACKAGES is installed once from PyPI, in the version that stands there, into an
environment of its own in the cache folder. It asks a server through its own functions. The server
has the embedded model, with the chat template of Qwen 2.5, which has tools, and room for 8,192
tokens, because some packages have long instructions; a copy that names a pooling makes the
embeddings. A small model calls no tool of its own will, so tool_choice demands it where the package
has it. --docs: writes the table between two marks of this document; needs all packages.

The file is also run by the Python of each environment, and imports what others lack when needed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import httpx

ROOT = Path(__file__).resolve().parents[2]
KEY = "measured"
QUESTIONS = [
    "Tell me a story about a crow and a well.",
    "Why is the sky blue in the day?",
    "Explain how bread is made at home.",
    "What do bees do in the winter?",
    "Write about a small town by the sea.",
    "How does a bicycle stay upright?",
    "Describe a market in the morning.",
    "What is a glacier, and why does it move?",
]


@contextlib.contextmanager
def serving(model: Path, *options: str, log: Path | None = None) -> Iterator[str]:
    """Serve a model, and yield its URL with /v1. log: a file for what the server says."""
    command = [sys.executable, "-m", "backend.cli", "serve", str(model.resolve()), "--port", "0"]
    command += options
    env = {**os.environ, "OUTRIDER_API_KEY": KEY}
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(log.open("w")) if log is not None else None
        server = stack.enter_context(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=ROOT
            )
        )
        stack.callback(server.terminate)
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]


# Several clients at once.


def ask(client: httpx.Client, question: str, n_token: int) -> tuple[int, float]:
    """Return the tokens of an answer and the seconds to its first text."""
    body = {
        "model": "any", "temperature": 0, "max_tokens": n_token, "stream": True,
        "stream_options": {"include_usage": True}, "logit_bias": {},
        "messages": [{"role": "user", "content": question}],
    }  # fmt: skip
    began_s, first_s, n = time.perf_counter(), 0.0, 0
    with client.stream("POST", "chat/completions", json=body) as reply:
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            data = json.loads(line[6:])
            if not first_s and data["choices"]:
                first_s = time.perf_counter() - began_s
            n = (data.get("usage") or {}).get("completion_tokens", n)
    return n, first_s


def measure(
    client: httpx.Client, n_client: int, n_token: int, i_round: int
) -> tuple[float, list[float]]:
    """Return token/s of all clients together, and the waits for the first tokens."""
    # Every round has other prompts, so that none is in the context.
    asked = [f"{i_round}. {QUESTIONS[i % len(QUESTIONS)]}" for i in range(2 * n_client)]
    began_s = time.perf_counter()
    with ThreadPoolExecutor(n_client) as pool:
        found = list(pool.map(lambda question: ask(client, question, n_token), asked))
    took_s = time.perf_counter() - began_s
    return sum(n for n, _ in found) / took_s, [first_s for _, first_s in found]


def measure_all(args: argparse.Namespace, options: list[str]) -> None:
    """Measure rounds of one client and of several, and print them."""
    import httpx  # which an environment of a package may lack

    from backend.system.paths import embedded_model

    speeds: dict[int, list[float]] = {1: [], args.clients: []}
    waits: dict[int, list[float]] = {1: [], args.clients: []}
    model = args.model or embedded_model()
    with serving(model, "--parallel", str(args.clients), *options) as url:
        # One for all: to make one takes a tenth of a second of the processor.
        headers = {"Authorization": f"Bearer {KEY}"}
        client = httpx.Client(base_url=url, headers=headers, timeout=600)
        measure(client, args.clients, 8, -1)
        for i in range(args.rounds):
            for n_client in speeds:
                speed, first_s = measure(client, n_client, args.tokens, i)
                speeds[n_client].append(speed)
                waits[n_client] += first_s
    for n_client, found in speeds.items():
        first_s = sorted(waits[n_client])
        print(
            f"{n_client} clients: {statistics.median(found):.1f} token/s "
            f"({min(found):.1f} to {max(found):.1f}); first token after "
            f"{statistics.median(first_s):.2f} s, p99 of {len(first_s)} "
            f"{first_s[-(-99 * len(first_s) // 100) - 1]:.2f} s"
        )
    one, several = (statistics.median(found) for found in speeds.values())
    print(f"{several / one:.2f} times the tokens")


# Packages: what each is asked.

MODEL, SMALL = "local", "small"
ASKED = "What is the weather in Rome?"
RESULT = "Sunny."
NAME = "weather"
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Rome"]},
        "days": {"type": "integer", "enum": [3]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
ARGUMENTS = {"city": "Rome", "days": 3}
"""The only ones that the parameters permit, so that all calls are equal, streamed or not."""
FUNCTION = {"name": NAME, "description": "The weather in a city.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}


def weather(city, days):
    """The weather in a city.

    Args:
        city: The name of the city.
        days: How many days.
    """
    return RESULT


# Some packages read annotations, and do not evaluate those that are text.
weather.__annotations__ = {"city": Literal["Rome"], "days": Literal[3], "return": str}
N_TOKEN = 200
N_ANSWER = 24
N_SEED = 24
"""Seeds that are tried until the model calls several times in each of two answers, and ends."""
FREE = "free"
"""Stands in the table where nothing makes the model call: the requests are served, and read."""


@dataclass
class Said:
    """An answer. calls: (id, name, arguments) each. native: what the package has of it."""

    text: str
    calls: list[tuple[str, str, dict[str, Any]]]
    native: Any
    n_piece: int = 1


class SameIds(Exception):
    """Two calls of a conversation have the same id."""


class Client:
    """A package that asks the server at a URL without /v1. None stands for what it has not."""

    def __init__(self, url: str) -> None:
        self.url, self.v1 = url, f"{url}/v1"
        self.loop = asyncio.new_event_loop()

    def begun(self) -> list[Any]:
        """Return the first message."""
        return [{"role": "user", "content": ASKED}]

    def say(
        self,
        talk: list[Any],
        tools: Literal["", "required", "none"] = "",
        parallel: bool = False,
        streams: bool = False,
        seed: int | None = None,
    ) -> Said:
        """Ask. tools: the tool is named, and must or must not be called."""
        raise NotImplementedError

    def answered(self, said: Said) -> list[Any]:
        """Return the messages of an answer with calls, and of their results."""
        results = [{"role": "tool", "tool_call_id": i, "content": RESULT} for i, *_ in said.calls]
        return [said.native, *results]

    def weather(self) -> Any:
        """Return an answer in the form of report()."""
        return None

    def embedding(self) -> list[float] | None:
        """Return the embedding of a text."""
        return None

    # Checks. Each returns a cell of the table, or None for "yes".

    def answer(self) -> str | None:
        """A plain answer."""
        assert self.say(self.begun()).text.strip()
        return None

    def stream(self) -> str | None:
        """The same answer in pieces."""
        said = self.say(self.begun(), streams=True)
        assert said.n_piece > 1, "one piece"
        assert said.text == self.say(self.begun()).text, "another text than at once"
        return None

    def calls(self) -> str | None:
        """A call and its result, another call and its result, an answer; whole and streamed."""
        for streams in (False, True):
            talk, calls = self._rounds(streams)
            assert len(calls) == 2, calls
            assert self.say(talk, "none", streams=streams).text.strip(), "no answer to the results"
        return None

    def at_once(self) -> str | None:
        """Several calls in an answer, their results, the same again; whole and streamed."""
        for streams in (False, True):
            for seed in range(N_SEED):
                try:
                    self._rounds(streams, seed)
                    break
                except Exception as error:  # one call, or the limit cut them
                    if isinstance(error, SameIds) or seed == N_SEED - 1:
                        raise
        return None

    def _rounds(
        self, streams: bool, seed: int | None = None
    ) -> tuple[list[Any], list[tuple[str, str, Any]]]:
        """Have the tool called in two rounds, several times in each with a seed."""
        talk, calls = self.begun(), []
        for _ in range(2):
            is_parallel = seed is not None
            said = self.say(talk, "required", is_parallel, streams, seed)
            assert (len(said.calls) > 1) is is_parallel, f"{len(said.calls)} calls"
            calls += said.calls
            talk = [*talk, *self.answered(said)]
            if len(ids := {i for i, *_ in calls}) < len(calls):
                raise SameIds(f"{len(calls)} calls with the ids {ids}")
        assert all(call[1:] == (NAME, ARGUMENTS) for call in calls), calls
        return talk, calls

    def schema(self) -> str | None:
        """An answer that a JSON schema describes."""
        if (said := self.weather()) is None:
            return "–"
        assert isinstance(said, report()), said
        return None

    def embeddings(self) -> str | None:
        """A vector of length 1."""
        if (vector := self.embedding()) is None:
            return "–"
        assert math.isclose(math.hypot(*vector), 1, abs_tol=1e-3)
        return None


CHECKS = ("answer", "stream", "calls", "at_once", "schema", "embeddings")


@functools.cache
def report() -> Any:
    """Return the form of an answer, as a model of pydantic."""
    from pydantic import BaseModel  # of the package's environment

    class Report(BaseModel):
        city: Literal["Rome", "Oslo"]
        sunny: bool

    return Report


def sampling(seed: int | None) -> dict[str, Any]:
    """Return OpenAI's fields for the most probable tokens, or for those of a seed."""
    return {"temperature": 0} if seed is None else {"temperature": 1, "seed": seed}


def n_most(tools: str) -> int:
    """Return the most tokens of an answer. With tools, some packages refuse one that is cut."""
    return N_TOKEN if tools else N_ANSWER


# The packages.


@dataclass(frozen=True)
class Package:
    """Packages of PyPI with versions, the first of which is tried, and a client for each API."""

    pins: tuple[str, ...]
    clients: dict[str, Callable[[str], Client]]


PACKAGES: dict[str, Package] = {}


def package(api: str, *pins: str) -> Callable[[Callable[[str], Client]], Any]:
    """Enter a client of an API into PACKAGES."""

    def enter(client: Callable[[str], Client]) -> Any:
        name = re.split("[=[]", pins[0])[0]
        PACKAGES.setdefault(name, Package(pins, {})).clients[api] = client
        return client

    return enter


@package("chat", "openai==3.57.0")
class OpenAIChat(Client):
    """The openai package, chat completions."""

    def __init__(self, url: str) -> None:
        import openai

        super().__init__(url)
        self.client = openai.OpenAI(base_url=self.v1, api_key=KEY, max_retries=0)

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        asked = {"model": MODEL, "messages": talk, "max_tokens": n_most(tools), **sampling(seed)}
        if tools:
            asked |= {"tools": [TOOL], "tool_choice": tools, "parallel_tool_calls": parallel}
        n = 1
        if streams:
            with self.client.chat.completions.stream(**asked) as events:
                n = sum(event.type == "content.delta" for event in events)
                message = events.get_final_completion().choices[0].message
        else:
            message = self.client.chat.completions.create(**asked).choices[0].message
        return openai_said(message, n)

    def weather(self):
        asked = self.client.chat.completions.parse(
            model=MODEL, messages=self.begun(), max_tokens=N_TOKEN, response_format=report()
        )
        return asked.choices[0].message.parsed

    def embedding(self):
        return self.client.embeddings.create(model=SMALL, input=[ASKED]).data[0].embedding


def openai_said(message: Any, n_piece: int = 1) -> Said:
    """Read a message of the openai package, or of one that has the same form."""
    calls = [
        (call.id, call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls or ()
    ]
    native = message.model_dump(exclude_none=True, exclude={"parsed"})
    return Said(message.content or "", calls, native, n_piece)


@package("responses", "openai==3.57.0")
class OpenAIResponses(OpenAIChat):
    """The openai package, responses."""

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        asked = {"model": MODEL, "input": talk, "max_output_tokens": n_most(tools)}
        if tools:
            asked["tools"] = [{"type": "function", "strict": True, **FUNCTION}]
            asked |= {"tool_choice": tools, "parallel_tool_calls": parallel}
        asked["extra_body"] = sampling(seed)
        n = 1
        if streams:  # whose helper has no end for an answer that was cut
            events = list(self.client.responses.create(**asked, stream=True))
            n = sum(event.type == "response.output_text.delta" for event in events)
            response = events[-1].response
        else:
            response = self.client.responses.create(**asked)
        calls = [
            (item.call_id, item.name, json.loads(item.arguments))
            for item in response.output
            if item.type == "function_call"
        ]
        native = [item.model_dump(exclude_none=True) for item in response.output]
        return Said(response.output_text, calls, native, n)

    def answered(self, said):
        results = [
            {"type": "function_call_output", "call_id": i, "output": RESULT} for i, *_ in said.calls
        ]
        return [*said.native, *results]

    def weather(self):
        return self.client.responses.parse(
            model=MODEL, input=ASKED, max_output_tokens=N_TOKEN, text_format=report()
        ).output_parsed


@package("messages", "anthropic==2.14.0")
class Anthropic(Client):
    """The anthropic package."""

    def __init__(self, url: str) -> None:
        import anthropic

        super().__init__(url)
        self.client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        asked = {"model": MODEL, "messages": talk, "max_tokens": n_most(tools)}
        asked["extra_body"] = sampling(seed)
        if tools:
            asked["tools"] = [
                {"name": NAME, "description": FUNCTION["description"], "input_schema": PARAMETERS}
            ]
            choice = {"type": "any", "disable_parallel_tool_use": not parallel}
            asked["tool_choice"] = choice if tools == "required" else {"type": "none"}
        n = 1
        if streams:
            with self.client.messages.stream(**asked) as events:
                n = sum(1 for _ in events.text_stream)
                message = events.get_final_message()
        else:
            message = self.client.messages.create(**asked)
        calls = [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]
        text = "".join(block.text for block in message.content if block.type == "text")
        return Said(text, calls, {"role": "assistant", "content": message.content}, n)

    def answered(self, said):
        results = [
            {"type": "tool_result", "tool_use_id": i, "content": RESULT} for i, *_ in said.calls
        ]
        return [said.native, {"role": "user", "content": results}]

    def weather(self):
        return self.client.messages.parse(
            model=MODEL, messages=self.begun(), max_tokens=N_TOKEN, output_format=report()
        ).parsed_output


@package("chat", "litellm==1.110.2")
class LiteLLM(Client):
    """litellm, as the client of an OpenAI server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = {"model": f"openai/{MODEL}", "api_base": self.v1, "api_key": KEY}

    def sampling(self, seed):
        return sampling(seed)

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        import litellm

        asked = {**self.asked, "messages": talk, "max_tokens": n_most(tools)}
        asked |= self.sampling(seed)
        if tools:
            asked |= {"tools": [TOOL], "tool_choice": tools, "parallel_tool_calls": parallel}
        if not streams:
            return openai_said(litellm.completion(**asked).choices[0].message)
        pieces = list(litellm.completion(**asked, stream=True))
        whole = litellm.stream_chunk_builder(pieces, messages=talk)
        return openai_said(whole.choices[0].message, len(pieces))

    def weather(self):
        import litellm

        said = litellm.completion(
            **self.asked, messages=self.begun(), max_tokens=N_TOKEN, response_format=report()
        )
        return report().model_validate_json(said.choices[0].message.content)

    def embedding(self):
        import litellm

        made = litellm.embedding(
            model=f"openai/{SMALL}", api_base=self.v1, api_key=KEY, input=[ASKED]
        )
        return made.data[0]["embedding"]


@package("messages", "litellm==1.110.2")
class LiteLLMAnthropic(LiteLLM):
    """litellm, as the client of an Anthropic server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked |= {"model": f"anthropic/{MODEL}", "api_base": url}

    def sampling(self, seed):
        return {"temperature": 0 if seed is None else 1}  # Anthropic's API has no seed

    def embedding(self):
        return None


@package("chat", "langchain-openai==1.7.4")
class LangChain(Client):
    """langchain-openai."""

    uses_responses = False

    def __init__(self, url: str) -> None:
        from langchain_openai import ChatOpenAI

        super().__init__(url)
        self.model = lambda n: ChatOpenAI(
            model=MODEL, base_url=self.v1, api_key=KEY, max_tokens=n, max_retries=0,
            use_responses_api=self.uses_responses,
        )  # fmt: skip

    def begun(self):
        return [("human", ASKED)]

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        model = self.model(n_most(tools))
        bound = {"extra_body": sampling(seed)}
        if tools:
            model = model.bind_tools([TOOL], tool_choice=tools, parallel_tool_calls=parallel)
        model = model.bind(**bound)
        n = 1
        if streams:
            message, n = None, 0
            for piece in model.stream(talk):
                message = piece if message is None else message + piece
                n += bool(str(piece.text))
        else:
            message = model.invoke(talk)
        calls = [(call["id"], call["name"], call["args"]) for call in message.tool_calls]
        return Said(str(message.text), calls, message, n)

    def answered(self, said):
        from langchain_core.messages import ToolMessage

        return [said.native, *(ToolMessage(RESULT, tool_call_id=i) for i, *_ in said.calls)]

    def weather(self):
        model = self.model(N_TOKEN).with_structured_output(report(), method="json_schema")
        return model.invoke(ASKED)

    def embedding(self):
        from langchain_openai import OpenAIEmbeddings

        # Otherwise it sends tokens of OpenAI's, which it fetches from the network.
        return OpenAIEmbeddings(
            model=SMALL, base_url=self.v1, api_key=KEY, check_embedding_ctx_length=False
        ).embed_query(ASKED)


@package("responses", "langchain-openai==1.7.4")
class LangChainResponses(LangChain):
    """langchain-openai with OpenAI's responses."""

    uses_responses = True


@package("chat", "llama-index-llms-openai-like==0.8.1", "llama-index-embeddings-openai-like==0.4.0")
class LlamaIndex(Client):
    """llama-index."""

    def model(self, n: int, seed: int | None = None) -> Any:
        from llama_index.llms.openai_like import OpenAILike

        given = sampling(seed)
        return OpenAILike(
            model=MODEL, api_base=self.v1, api_key=KEY, max_tokens=n, max_retries=0,
            is_chat_model=True, is_function_calling_model=True, context_window=8192,
            temperature=given.pop("temperature"), additional_kwargs=given,
        )  # fmt: skip

    def begun(self):
        from llama_index.core.llms import ChatMessage

        return [ChatMessage(role="user", content=ASKED)]

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        from llama_index.core.tools import FunctionTool

        model = self.model(n_most(tools), seed)
        asked: dict[str, Any] = {}
        if tools == "required":
            asked = {"tools": [FunctionTool.from_defaults(weather)], "chat_history": talk}
            asked |= {"tool_required": True, "allow_parallel_tool_calls": parallel}
        n = 1
        if streams:
            pieces = model.stream_chat_with_tools(**asked) if asked else model.stream_chat(talk)
            found = list(pieces)
            said, n = found[-1], sum(bool(piece.delta) for piece in found)
        else:
            said = model.chat_with_tools(**asked) if asked else model.chat(talk)
        calls = model.get_tool_calls_from_response(said, error_on_no_tool_call=False)
        return Said(
            said.message.content or "",
            [(call.tool_id, call.tool_name, call.tool_kwargs) for call in calls],
            said.message,
            n,
        )

    def answered(self, said):
        from llama_index.core.llms import ChatMessage

        results = [
            ChatMessage(role="tool", content=RESULT, additional_kwargs={"tool_call_id": i})
            for i, *_ in said.calls
        ]
        return [said.native, *results]

    def weather(self):
        from llama_index.core.prompts import PromptTemplate

        return self.model(N_TOKEN).structured_predict(report(), PromptTemplate(ASKED))

    def embedding(self):
        from llama_index.embeddings.openai_like import OpenAILikeEmbedding

        model = OpenAILikeEmbedding(model_name=SMALL, api_base=self.v1, api_key=KEY)
        return model.get_text_embedding(ASKED)


@package("chat", "pydantic-ai-slim[openai]==2.68.0")
class PydanticAI(Client):
    """pydantic-ai, chat completions."""

    name = "OpenAIChatModel"

    def __init__(self, url: str) -> None:
        from pydantic_ai.models import openai
        from pydantic_ai.providers.openai import OpenAIProvider

        super().__init__(url)
        self.provider = OpenAIProvider(base_url=self.v1, api_key=KEY)
        self.model = getattr(openai, self.name)(MODEL, provider=self.provider)

    def begun(self):
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        return [ModelRequest(parts=[UserPromptPart(ASKED)])]

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        from pydantic_ai import direct
        from pydantic_ai.messages import TextPart, ToolCallPart
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        settings: dict[str, Any] = {"max_tokens": n_most(tools), "extra_body": sampling(seed)}
        if tools:
            settings |= {"tool_choice": tools, "parallel_tool_calls": parallel}
        known = ToolDefinition(
            name=NAME, description=FUNCTION["description"], parameters_json_schema=PARAMETERS
        )
        asked = {
            "model_settings": settings,
            "model_request_parameters": ModelRequestParameters(
                function_tools=[known] if tools else []
            ),
        }
        n = 1
        if streams:
            with direct.model_request_stream_sync(self.model, talk, **asked) as events:
                n = sum(1 for _ in events)
                said = events.response
        else:
            said = direct.model_request_sync(self.model, talk, **asked)
        calls = [
            (part.tool_call_id, part.tool_name, part.args_as_dict())
            for part in said.parts
            if isinstance(part, ToolCallPart)
        ]
        text = "".join(part.content for part in said.parts if isinstance(part, TextPart))
        return Said(text, calls, said, n)

    def answered(self, said):
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        results = [ToolReturnPart(NAME, RESULT, tool_call_id=i) for i, *_ in said.calls]
        return [said.native, ModelRequest(parts=results)]

    def weather(self):
        from pydantic_ai import Agent, NativeOutput

        agent = Agent(self.model, output_type=NativeOutput(report()))
        return agent.run_sync(ASKED, model_settings={"max_tokens": N_TOKEN}).output

    def embedding(self):
        from pydantic_ai.embeddings import Embedder
        from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel

        model = OpenAIEmbeddingModel(SMALL, provider=self.provider)
        return list(Embedder(model).embed_query_sync(ASKED).embeddings[0])


@package("responses", "pydantic-ai-slim[openai]==2.68.0")
class PydanticAIResponses(PydanticAI):
    """pydantic-ai, responses."""

    name = "OpenAIResponsesModel"


@package("chat", "instructor==1.17.0")
class Instructor(Client):
    """instructor. It makes objects of forced calls or of JSON, and holds no conversation."""

    modes = ("TOOLS", "JSON_SCHEMA")

    def client(self, mode: str) -> Any:
        import instructor
        import openai

        inner = openai.OpenAI(base_url=self.v1, api_key=KEY, max_retries=0)
        return instructor.from_openai(inner, mode=instructor.Mode[mode], model=MODEL)

    def made(self, mode: str, method: str = "create") -> Any:
        ask = getattr(self.client(mode), method)
        return ask(
            response_model=report(), messages=self.begun(), temperature=0,
            max_tokens=N_TOKEN, max_retries=1,
        )  # fmt: skip

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        asked = {"messages": talk, "max_tokens": N_ANSWER, **sampling(seed)}
        client = self.client("TOOLS").chat.completions
        if not streams:
            said = client.create(response_model=None, **asked)
            return openai_said(said.choices[0].message)
        pieces = [
            piece.choices[0].delta.content or ""
            for piece in client.create(response_model=None, stream=True, **asked)
            if piece.choices
        ]
        return Said("".join(pieces), [], None, len(pieces))

    def calls(self):
        (*_, streamed), whole = self.made("TOOLS", "create_partial"), self.made("TOOLS")
        assert isinstance(whole, report()), whole
        assert streamed.model_dump() == whole.model_dump(), f"streamed {streamed}, else {whole}"
        return "yes, one"

    def at_once(self):
        return "–"

    def weather(self):
        return self.made("JSON_SCHEMA")


@package("chat", "smolagents[openai]==1.26.0")
class SmolAgents(Client):
    """smolagents. It writes calls and their results as text into the conversation."""

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        from smolagents import OpenAIModel, tool
        from smolagents.models import agglomerate_stream_deltas

        model = OpenAIModel(
            MODEL, api_base=self.v1, api_key=KEY, max_tokens=n_most(tools), **sampling(seed)
        )
        asked: dict[str, Any] = {"messages": talk}
        if tools == "required":
            asked |= {"tools_to_call_from": [tool(weather)], "parallel_tool_calls": parallel}
        n = 1
        if streams:
            pieces = list(model.generate_stream(**asked))
            message, n = agglomerate_stream_deltas(pieces), len(pieces)
        else:
            message = model.generate(**asked)
        calls = []
        for call in message.tool_calls or ():
            given = call.function.arguments
            given = json.loads(given) if isinstance(given, str) else given
            calls.append((call.id, call.function.name, given))
        return Said(str(message.content or ""), calls, message, n)

    def begun(self):
        return [{"role": "user", "content": [{"type": "text", "text": ASKED}]}]

    def answered(self, said):
        calls = [{"id": i, "name": name, "arguments": given} for i, name, given in said.calls]
        texts = {"tool-call": f"Calling tools:\n{calls}", "tool-response": RESULT}
        return [
            {"role": role, "content": [{"type": "text", "text": text}]}
            for role, text in texts.items()
        ]

    def weather(self):
        from smolagents import OpenAIModel

        wanted = {**report().model_json_schema(), "additionalProperties": False}
        schema = {"name": "report", "schema": wanted, "strict": True}
        said = OpenAIModel(MODEL, api_base=self.v1, api_key=KEY, max_tokens=N_TOKEN).generate(
            self.begun(), response_format={"type": "json_schema", "json_schema": schema}
        )
        return report().model_validate_json(said.content)


@package("chat", "openai-agents==0.24.0")
class OpenAIAgents(Client):
    """openai-agents, chat completions. It refuses an answer that is cut."""

    name = "OpenAIChatCompletionsModel"

    def __init__(self, url: str) -> None:
        import agents
        import openai

        super().__init__(url)
        agents.set_tracing_disabled(True)
        client = openai.AsyncOpenAI(base_url=self.v1, api_key=KEY, max_retries=0)
        self.model = getattr(agents, self.name)(model=MODEL, openai_client=client)

    def agent(self, seed: int | None = None, **more: Any) -> Any:
        from agents import Agent, ModelSettings

        choices = {name: more.pop(name) for name in ("tool_choice", "parallel_tool_calls")
                   if name in more}  # fmt: skip
        settings = ModelSettings(max_tokens=N_TOKEN, extra_body=sampling(seed), **choices)
        return Agent(name="a", model=self.model, model_settings=settings, **more)

    def run(self, agent: Any, talk: Any, streams: bool) -> tuple[Any, int]:
        from agents import Runner

        async def ran() -> tuple[Any, int]:
            if not streams:
                return await Runner.run(agent, talk, max_turns=3), 1
            result = Runner.run_streamed(agent, talk, max_turns=3)
            kinds = [event.data.type async for event in result.stream_events()
                     if event.type == "raw_response_event"]  # fmt: skip
            return result, kinds.count("response.output_text.delta")

        return self.loop.run_until_complete(ran())

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        from agents import function_tool

        more: dict[str, Any] = {}
        if tools:
            more = {
                "tools": [function_tool(weather)],
                "tool_choice": tools,
                "parallel_tool_calls": parallel,
            }
        if tools == "required":
            more["tool_use_behavior"] = "stop_on_first_tool"
        result, n = self.run(self.agent(seed, **more), talk, streams)
        calls = [
            (item.raw_item.call_id, item.raw_item.name, json.loads(item.raw_item.arguments))
            for item in result.new_items
            if item.type == "tool_call_item"
        ]
        return Said(str(result.final_output), calls, result.to_input_list()[len(talk) :], n)

    def answered(self, said):
        return said.native

    def weather(self):
        agent = self.agent(output_type=report())
        return self.run(agent, self.begun(), False)[0].final_output


@package("responses", "openai-agents==0.24.0")
class OpenAIAgentsResponses(OpenAIAgents):
    """openai-agents, responses."""

    name = "OpenAIResponsesModel"


@package("Ollama", "ollama==0.6.3")
class Ollama(Client):
    """The ollama package. Its API has no tool_choice."""

    def __init__(self, url: str) -> None:
        import ollama

        super().__init__(url)
        self.client = ollama.Client(url, headers={"Authorization": f"Bearer {KEY}"})

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        options = {"num_predict": n_most(tools), **sampling(seed)}
        asked: dict[str, Any] = {"model": MODEL, "messages": talk, "options": options}
        if tools:
            asked["tools"] = [TOOL]
        pieces = list(self.client.chat(**asked, stream=True)) if streams else [
            self.client.chat(**asked)
        ]  # fmt: skip
        calls = [
            ("", call.function.name, dict(call.function.arguments))
            for piece in pieces
            for call in piece.message.tool_calls or ()
        ]
        text = "".join(piece.message.content or "" for piece in pieces)
        return Said(text, calls, None, len(pieces))

    def calls(self):
        call = {"function": {"name": NAME, "arguments": ARGUMENTS}}
        talk = [
            *self.begun(),
            {"role": "assistant", "content": "", "tool_calls": [call, call]},
            *[{"role": "tool", "tool_name": NAME, "content": RESULT}] * 2,
        ]
        for asked in (self.begun(), talk):
            whole, streamed = (self.say(asked, "none", streams=s) for s in (False, True))
            assert (whole.text, whole.calls) == (streamed.text, streamed.calls)
            assert whole.text or whole.calls
        return FREE

    def at_once(self):
        return FREE

    def weather(self):
        said = self.client.chat(
            MODEL,
            self.begun(),
            format=report().model_json_schema(),
            options={"num_predict": N_TOKEN},
        )
        return report().model_validate_json(said.message.content)

    def embedding(self):
        return list(self.client.embed(SMALL, [ASKED]).embeddings[0])


@package("chat", "aider-chat==0.86.2")
class Aider(Client):
    """aider. It uses neither tools nor schemas."""

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        from aider.coders import Coder
        from aider.io import InputOutput
        from aider.models import Model

        os.environ |= {"OPENAI_API_BASE": self.v1, "OPENAI_API_KEY": KEY}
        name = f"openai/{MODEL}"
        model = Model(name, weak_model=name, editor_model=name)
        model.extra_params = {"max_tokens": N_ANSWER}
        coder = Coder.create(
            main_model=model, edit_format="ask", io=InputOutput(yes=True, pretty=False),
            stream=streams, use_git=False, map_tokens=0, suggest_shell_commands=False,
        )  # fmt: skip
        return Said(coder.run(ASKED) or "", [], None, 2 if streams else 1)

    def calls(self):
        return "–"

    at_once = calls


@package("chat", "haystack-ai==3.4.1")
class Haystack(Client):
    """haystack."""

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        from haystack.components.generators.chat import OpenAIChatGenerator
        from haystack.tools import Tool
        from haystack.utils import Secret

        pieces: list[Any] = []
        more = {"max_tokens": n_most(tools), **sampling(seed)}
        if tools:
            more |= {"tool_choice": tools, "parallel_tool_calls": parallel}
        known = Tool(NAME, FUNCTION["description"], PARAMETERS, function=lambda **_: RESULT)
        model = OpenAIChatGenerator(
            api_key=Secret.from_token(KEY), model=MODEL, api_base_url=self.v1, max_retries=0
        )
        (said,) = model.run(
            messages=talk, tools=[known] if tools else None, generation_kwargs=more,
            streaming_callback=pieces.append if streams else None,
        )["replies"]  # fmt: skip
        calls = [(call.id, call.tool_name, call.arguments) for call in said.tool_calls]
        return Said(said.text or "", calls, said, len(pieces))

    def begun(self):
        from haystack.dataclasses import ChatMessage

        return [ChatMessage.from_user(ASKED)]

    def answered(self, said):
        from haystack.dataclasses import ChatMessage

        results = [ChatMessage.from_tool(RESULT, origin=call) for call in said.native.tool_calls]
        return [said.native, *results]

    def weather(self):
        from haystack.components.generators.chat import OpenAIChatGenerator
        from haystack.utils import Secret

        model = OpenAIChatGenerator(
            api_key=Secret.from_token(KEY), model=MODEL, api_base_url=self.v1, max_retries=0
        )
        given = {"max_tokens": N_TOKEN, "response_format": report()}
        (said,) = model.run(messages=self.begun(), generation_kwargs=given)["replies"]
        return report().model_validate_json(said.text)

    def embedding(self):
        from haystack.components.embedders import OpenAITextEmbedder
        from haystack.utils import Secret

        model = OpenAITextEmbedder(
            api_key=Secret.from_token(KEY), model=SMALL, api_base_url=self.v1
        )
        return model.run(ASKED)["embedding"]


@package("chat", "autogen-ext[openai]==0.7.5")
class AutoGen(Client):
    """autogen."""

    def model(self, n: int) -> Any:
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        facts = ("vision", "function_calling", "json_output", "structured_output")
        return OpenAIChatCompletionClient(
            model=MODEL, base_url=self.v1, api_key=KEY, max_tokens=n, max_retries=0,
            model_info={**dict.fromkeys(facts, True), "family": "unknown"},
        )  # fmt: skip

    def begun(self):
        from autogen_core.models import UserMessage

        return [UserMessage(content=ASKED, source="user")]

    def say(self, talk, tools="", parallel=False, streams=False, seed=None):
        from autogen_core.models import AssistantMessage
        from autogen_core.tools import FunctionTool

        asked: dict[str, Any] = {"extra_create_args": sampling(seed)}
        if tools:
            known = FunctionTool(weather, description=FUNCTION["description"], strict=True)
            asked |= {"tools": [known], "tool_choice": tools}
            asked["extra_create_args"]["parallel_tool_calls"] = parallel

        async def run() -> tuple[Any, int]:
            model = self.model(n_most(tools))
            if not streams:
                return await model.create(talk, **asked), 1
            *pieces, last = [piece async for piece in model.create_stream(talk, **asked)]
            return last, len(pieces)

        result, n = self.loop.run_until_complete(run())
        found = result.content
        native = AssistantMessage(content=found, source="assistant")
        if isinstance(found, str):
            return Said(found, [], native, n)
        calls = [(call.id, call.name, json.loads(call.arguments)) for call in found]
        return Said("", calls, native, n)

    def answered(self, said):
        from autogen_core.models import FunctionExecutionResult, FunctionExecutionResultMessage

        results = [
            FunctionExecutionResult(content=RESULT, name=name, call_id=i, is_error=False)
            for i, name, _ in said.calls
        ]
        return [said.native, FunctionExecutionResultMessage(content=results)]

    def weather(self):
        made = self.model(N_TOKEN).create(self.begun(), json_output=report())
        said = self.loop.run_until_complete(made)
        return report().model_validate_json(said.content)


# Packages: trying them.

BEGIN = (
    "<!-- packages: made by tests/benchmarks/server_clients.py --packages --docs docs/server.md -->"
)
END = "<!-- end of packages -->"
_N_CONTEXT = 8192


def drive(name: str, api: str, url: str, result: Path) -> None:
    """Have a package ask the server at a URL, and write what came of each check as JSON."""
    client, found = PACKAGES[name].clients[api](url), {}
    for column in CHECKS:
        try:
            found[column] = getattr(client, column)() or "yes"
        except Exception as error:
            traceback.print_exc()
            found[column] = f"no: {type(error).__name__}: {error}"[:300]
    result.write_text(json.dumps(found))


def environment(name: str, cache: Path) -> Path:
    """Return the Python of a package's environment, installed if it has other versions."""
    home, pins = cache / name, "\n".join(PACKAGES[name].pins)
    stamp, python = home / "pins.txt", home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != pins:
        subprocess.run(["nice", sys.executable, "-m", "venv", "--clear", home], check=True)
        install = ["nice", python, "-m", "pip", "install", "-q", "--no-cache-dir"]
        subprocess.run([*install, *PACKAGES[name].pins], check=True)
        stamp.write_text(pins)
    return python


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the embedded model with tools, a longer context and embeddings. Yield the URL."""
    # Of the checkout, which the environments of the packages do not have.
    sys.path += [str(ROOT / "tests" / name) for name in ("", "backend", "engine")]
    from chat_formats import template
    from gguf import GGUFReader
    from reciter import with_template

    from backend.system.paths import embedded_model

    model, small = folder / f"{MODEL}.gguf", folder / f"{SMALL}.gguf"
    with_template(embedded_model(), model, template("Qwen-Qwen2.5-7B-Instruct"))
    field = GGUFReader(model, "r+").fields["qwen3moe.context_length"]
    field.parts[field.data[0]][0] = _N_CONTEXT
    with_template(embedded_model(), small, None, pooling=1)
    options = ["--context", str(_N_CONTEXT), "--keep-states", "0", "--embedding-model", str(small)]
    log = folder / "server.log"
    try:
        with serving(model, *options, log=log) as url:
            yield url.removesuffix("/v1")
    finally:
        print(log.read_text(), file=sys.stderr)


def try_packages(names: list[str], cache: Path, docs: Path | None) -> int:
    """Try packages, all if none is named. Print the table, and write its rows into a document."""
    rows: dict[tuple[str, str], list[str]] = {}
    with tempfile.TemporaryDirectory() as temporary, served(Path(temporary)) as url:
        result = Path(temporary) / "result.json"
        for name in names or PACKAGES:
            python = environment(name, cache)
            for api in PACKAGES[name].clients:
                result.unlink(missing_ok=True)
                work = Path(temporary) / f"{name}-{api}"
                work.mkdir()
                command = [python, __file__, "--drive", name, api, url, result]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run(
                        command, cwd=work, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=600
                    )
                found = json.loads(result.read_text()) if result.exists() else {}
                rows[name, api] = [found.get(column, "no: it ended") for column in CHECKS]
                for column, cell in zip(CHECKS, rows[name, api], strict=True):
                    if cell.startswith("no: "):
                        print(f"{name}, {api}, {column}: {cell[4:]}", file=sys.stderr)
    print(table(rows))
    if docs is not None:
        text = docs.read_text(encoding="utf-8")
        between = re.compile(f"{re.escape(BEGIN)}(.*?){re.escape(END)}", re.S)
        match = between.search(text)
        assert match is not None, f"{docs} has no place for the table."
        for line in match[1].strip().splitlines()[2:]:  # rows of others stay
            title, api, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            if (name := title.split()[0]) in PACKAGES and title == titled(name):
                rows.setdefault((name, api), cells)
        text = between.sub(lambda _: f"{BEGIN}\n\n{table(rows)}\n\n{END}", text)
        docs.write_text(text, encoding="utf-8")
    return 0


def titled(name: str) -> str:
    """Return the name and the version of a package."""
    return f"{name} {PACKAGES[name].pins[0].partition('==')[2]}"


def table(rows: dict[tuple[str, str], list[str]]) -> str:
    """Return the table as Markdown. rows: cells by package and API."""
    head = ["package", "API", *(column.replace("_", " ") for column in CHECKS)]
    lines = [head, ["---"] * len(head)]
    for name, package_ in PACKAGES.items():
        for api in package_.clients:
            if cells := rows.get((name, api)):
                lines.append([titled(name), api, *(c.partition(":")[0] for c in cells)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Measure, or try packages, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--packages", nargs="*", choices=[*PACKAGES], metavar="NAME")
    parser.add_argument("--docs", type=Path, help="with --packages: a document for the table")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/outrider-packages")
    parser.add_argument("--drive", nargs=4, help=argparse.SUPPRESS)
    args, options = parser.parse_known_args()
    if args.drive:
        name, api, url, result = args.drive
        drive(name, api, url, Path(result))
        return 0
    if args.packages is not None:
        return try_packages(args.packages, args.cache, args.docs)
    measure_all(args, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
