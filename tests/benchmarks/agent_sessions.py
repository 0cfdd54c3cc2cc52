"""Replay sessions of agents of 30 steps, and say how much of each prompt was in the context.

    python tests/benchmarks/agent_sessions.py [FAMILY ...] [--rendered] [--steps] [--states FOLDER]

Each family has a small random model of its architecture, its real template and a real vocabulary.
What the model says is written here: calls with real sizes, in the form that the template shows, but
with other white space, another order of keys and some other splits into tokens, as models write
them. A client (the forms of Claude Code, Codex and opencode) sends each answer back as it received
it, with its JSON written again. The system prompt has 10,000 tokens; one step compacts the
conversation.

`share`: of the tokens of the step before (prompt and answer), those that this step reused. Where a
question follows, templates drop thoughts, and a compaction drops all but the system prompt: there
it is of the tokens with which both begin. --rendered: answers are rendered again, as without own
tokens. --steps: one line for each step. --states: keep states on the drive, after each step, which
takes --step-s; say how many bytes are written, as if a token had --token-bytes and the state that
cannot be cut --state-bytes, and how many there would be without the bound of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("", "backend", "engine")]

import factory.writing as writing
from chat_formats import template
from factory.vocabulary import Vocabulary
from gguf import GGUFReader, GGUFValueType, TokenType
from reciter import with_template
from served import KEY, Served

from backend.engine.engine import Engine
from backend.engine.kept_states import Hour, KeptStates, n_equal
from backend.engine.open_answer import OpenAnswer
from backend.protocol.settings import EngineConfig

VOCABULARY = Path(__file__).resolve().parents[3] / "shared/data/chat-formats/vocab"
N_STEP, N_COMPACTED = 30, 21
FAMILIES = {  # architecture, template, the token that ends an answer, client
    "Qwen3.5": ("qwen35moe", "Qwen3.5-4B", "<|im_end|>", "claude"),
    "Qwen3-Coder": ("qwen3moe", "Qwen3-Coder", "<|im_end|>", "opencode"),
    "gpt-oss": ("gpt-oss", "openai-gpt-oss-120b", "<|return|>", "codex"),
    "GLM-4.6": ("glm4moe", "GLM-4.6", "<|user|>", "claude"),
    "Gemma 4": ("gemma4", "google-gemma-4-31B-it", "<turn|>", "opencode"),
    "DeepSeek V3.2": ("qwen3moe", "deepseek-ai-DeepSeek-V3.2", "<｜end▁of▁sentence｜>", "codex"),
    "Kimi K2": ("qwen3moe", "Kimi-K2-Thinking", "<|im_end|>", "claude"),
    "Nemotron 3": (
        "nemotron_h_moe",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "<|im_end|>",
        "opencode",
    ),
}
ORDERED = ("GLM", "DeepSeek")  # their grammars hold arguments in the order of the schema
CONTROL = re.compile(
    r"<(?!｜DSML)[|｜][^<>|｜'\"\s{}]+[|｜]?>|<[a-z_]+[|｜]>|<(?:bos|eos)>|\[/?[A-Z_]{3,}\]|<\|\"\|>"
)
DEFINED = re.compile(r"</?(?:think|tool_call|tool_response|arg_key|arg_value)>|｜DSML｜")
TOOLS = {
    "read_file": {"path": "string", "offset": "integer", "limit": "integer"},
    "run_command": {"command": "string", "timeout_s": "integer"},
    "edit_file": {"path": "string", "old": "string", "new": "string"},
}


def vocabulary(arch: str, name: str, end: str) -> dict[str, tuple[Any, ...]]:
    """Return a real vocabulary as with_template() takes it, with the marks of a template.

    Gemma 4 has its own. The others have that of Qwen 3.5, whose file has free places for marks.
    """
    source = "gemma-4" if arch == "gemma4" else "qwen35"
    reader = GGUFReader(VOCABULARY / f"ggml-vocab-{source}.gguf")
    fields = {
        key: (field.contents(), field.types[0], field.types[-1])
        for key, field in reader.fields.items()
        if key.startswith("tokenizer.") and key != "tokenizer.chat_template"
    }
    tokens, types = fields["tokenizer.ggml.tokens"][0], fields["tokenizer.ggml.token_type"][0]
    if arch != "gemma4":
        text = template(name)
        marks = {**dict.fromkeys(DEFINED.findall(text), TokenType.USER_DEFINED)}
        marks |= dict.fromkeys([*CONTROL.findall(text), end], TokenType.CONTROL)
        if name.startswith("openai"):  # the model's own marks, of which the template has no word
            marks |= dict.fromkeys(["<|call|>", "<|constrain|>"], TokenType.CONTROL)
        free = [i for i, token in enumerate(tokens) if token.startswith("[PAD")]
        known = set(tokens)
        for place, mark in zip(free, sorted(set(marks) - known), strict=False):
            tokens[place], types[place] = mark, marks[mark]
    fields["tokenizer.ggml.eos_token_id"] = (tokens.index(end), GGUFValueType.UINT32)
    return fields


# What is said.


def lines(chance: random.Random, n_char: int) -> str:
    """Return text like a program's, of about this length."""
    words = "config reader value state token cache layer index parse write buffer result".split()
    found: list[str] = []
    while sum(map(len, found)) < n_char:
        a, b, c = (chance.choice(words) for _ in range(3))
        found.append(f"    {a}_{b} = self._{c}.{b}({chance.randrange(999)})  # {a} of the {c}\n")
    return "".join(found)


def answer_of(step: int, chance: random.Random, is_ordered: bool) -> dict[str, Any]:
    """Return what the model says in a step: a thought, a text and calls.

    is_ordered: the grammar of the family holds arguments in the order of their schema.
    """
    thought = f"Step {step}: I look at the {chance.choice(['cache', 'reader'])} first, then decide."
    if step in (14, N_STEP - 1) or step == N_COMPACTED - 1:
        return {"thought": thought, "text": lines(chance, 200), "calls": []}
    names = [chance.choice(list(TOOLS)) for _ in range(2 if step % 5 == 3 else 1)]
    calls = []
    for name in names:
        arguments: dict[str, Any] = {
            "path": f"src/{chance.randrange(99)}/reader.py",
            "command": f"grep -n 'def read' src/*.py | head -{chance.randrange(99)}",
            "old": lines(chance, 90),
            "new": lines(chance, 120),
            "offset": chance.randrange(999),
            "limit": 200,
            "timeout_s": 60,
        }
        names_of = list(TOOLS[name]) if is_ordered else reversed(TOOLS[name])
        calls.append((name, {key: arguments[key] for key in names_of}))
    return {"thought": thought, "text": "" if step % 2 else "I look there.", "calls": calls}


def schema(name: str) -> dict[str, Any]:
    properties = {k: {"type": kind, "description": f"The {k}."} for k, kind in TOOLS[name].items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


# How a client writes it. Each has body(), which is a request, and take(), for its answer.


class Claude:
    path = "/v1/messages"

    def __init__(self, system: str) -> None:
        self.system, self.messages = system, list[dict[str, Any]]()

    def ask(self, text: str) -> None:
        self.messages.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def compact(self, text: str) -> None:
        self.messages = []
        self.ask(text)

    def body(self) -> dict[str, Any]:
        tools = [{"name": n, "description": f"Use {n}.", "input_schema": schema(n)} for n in TOOLS]
        return {
            "model": "m", "max_tokens": 4000, "messages": self.messages, "tools": tools,
            "system": [{"type": "text", "text": self.system}],
            "thinking": {"type": "enabled", "budget_tokens": 2000},
        }  # fmt: skip

    def take(self, reply: dict[str, Any], result: Callable[[], str]) -> int:
        content = json.loads(json.dumps(reply["content"], sort_keys=True))
        self.messages.append({"role": "assistant", "content": content})
        calls = [part for part in content if part["type"] == "tool_use"]
        if calls:
            results = [
                {"type": "tool_result", "tool_use_id": c["id"], "content": result()} for c in calls
            ]
            self.messages.append({"role": "user", "content": results})
        return len(calls)


class Codex:
    path = "/v1/responses"

    def __init__(self, system: str) -> None:
        self.system, self.input = system, list[dict[str, Any]]()

    def ask(self, text: str) -> None:
        part = {"type": "input_text", "text": text}
        self.input.append({"type": "message", "role": "user", "content": [part]})

    def compact(self, text: str) -> None:
        self.input = []
        self.ask(text)

    def body(self) -> dict[str, Any]:
        tools = [
            {"type": "function", "name": n, "description": f"Use {n}.", "parameters": schema(n)}
            for n in TOOLS
        ]
        return {
            "model": "m", "instructions": self.system, "input": self.input, "tools": tools,
            "store": False, "include": ["reasoning.encrypted_content"], "max_output_tokens": 4000,
        }  # fmt: skip

    def take(self, reply: dict[str, Any], result: Callable[[], str]) -> int:
        self.input += reply["output"]
        calls = [item for item in reply["output"] if item["type"] == "function_call"]
        for call in calls:
            call["arguments"] = json.dumps(json.loads(call["arguments"]), separators=(",", ":"))
            self.input.append(
                {"type": "function_call_output", "call_id": call["call_id"], "output": result()}
            )
        return len(calls)


class Opencode:
    path = "/v1/chat/completions"

    def __init__(self, system: str) -> None:
        self.system, self.messages = system, list[dict[str, Any]]()

    def ask(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def compact(self, text: str) -> None:
        self.messages = []
        self.ask(text)

    def body(self) -> dict[str, Any]:
        functions = [
            {"name": n, "description": f"Use {n}.", "parameters": schema(n)} for n in TOOLS
        ]
        return {
            "model": "m", "max_tokens": 4000,
            "messages": [{"role": "system", "content": self.system}, *self.messages],
            "tools": [{"type": "function", "function": function} for function in functions],
        }  # fmt: skip

    def take(self, reply: dict[str, Any], result: Callable[[], str]) -> int:
        message = reply["choices"][0]["message"]
        kept = {k: message[k] for k in ("role", "content", "reasoning_content") if message.get(k)}
        self.messages.append({"content": "", **kept})
        calls = message.get("tool_calls") or []
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = json.dumps(arguments, sort_keys=True)
        if calls:
            self.messages[-1]["tool_calls"] = calls
        for call in calls:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result()})
        return len(calls)


CLIENTS = {"claude": Claude, "codex": Codex, "opencode": Opencode}


class Voice:
    """Chooses the tokens of answers in place of a sampler."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.chance = engine, random.Random(seed)
        self.said: dict[str, Any] = {}
        self.of: OpenAnswer | None = None
        self.tokens: list[int] = []
        self.raw = self.trouble = ""

    def sample(self, sequence: OpenAnswer) -> int:
        if self.of is not sequence:
            self.of = sequence
            self.raw = self.written(sequence)
            self.tokens = [*self.split(self.raw), self.engine._llama.eos]
        return self.tokens.pop(0)

    def written(self, sequence: OpenAnswer) -> str:
        """Return the answer as this model would write it."""
        partial, said = sequence.partial, self.said
        assert partial.messages is not None
        rendered, prompts = partial.rendered, self.engine.prompts
        before = prompts.format(partial.messages, partial.options)
        start, end = rendered.thinking_start, (rendered.thinking_ends or [""])[0]
        is_closed = bool(end) and before.rstrip().endswith(end.strip())  # no thought is wanted
        if not said["calls"]:
            if is_closed:
                return str(said["text"])
            thought = said["thought"] + "\n" + end + "\n\n" if end else ""
            if start == "<|channel|>analysis<|message|>":
                final = "<|start|>assistant<|channel|>final<|message|>"
                return str(start + said["thought"] + "<|end|>" + final + said["text"])
            return str(("" if rendered.thinks else start) + thought + said["text"])
        calls = [
            {
                "id": f"functions.{name}:{i}"
                if "functions." in self.engine.file.chat_template
                and "functions" in rendered.prompt[-1:]
                else f"call00{i:03}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for i, (name, arguments) in enumerate(said["calls"])
        ]
        message = {"role": "assistant", "content": said["text"], "tool_calls": calls}
        message["reasoning_content"] = said["thought"]
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "RESULT"} for c in calls]
        behind = prompts.format([*partial.messages, message, *results], partial.options)
        n = n_equal(before, behind)  # type: ignore[arg-type]
        if n < len(before):
            self.trouble = f"{len(before) - n} characters of the prompt's end are not in the next"
        texts = [self.engine._llama.special_text(t) for t in self.engine._llama.ending_tokens]
        marks = [
            *texts,
            "<|tool_response>",
            "<|observation|>",
            "<|end|>" if "<|call|>" in behind else "RESULT",
        ]
        marks = [m for m in marks if m != "<|end|>" or not rendered.thinking_start]
        if is_closed and n < len(before):
            n_end = len(end.strip())
            n = behind.index(end.strip(), max(n - n_end, 0)) + n_end
        elif n < len(before) and behind[n - 2 : n] == "<|":
            n -= 2  # both go on with a mark
        raw = behind[n:]
        raw = raw[: min(at for m in marks if m and (at := raw.find(m)) >= 0)]
        if said["text"] not in raw:  # the template puts it behind the results
            at = raw.index("<|tool_call>")
            raw = raw[:at] + said["text"] + raw[at:]
        for _, arguments in said["calls"]:
            for form in (json.dumps(arguments), json.dumps(arguments, separators=(",", ":"))):
                raw = raw.replace(form, json.dumps(arguments, indent=1))
        if "<|call|>" in behind:  # gpt-oss itself
            raw = re.sub(
                r" to=(\S+?)<\|channel\|>commentary json",
                r"<|channel|>commentary to=\1 <|constrain|>json",
                raw,
            )
        return raw

    def split(self, raw: str) -> list[int]:
        """Return tokens of a text, in two places not those that the vocabulary splits it into."""
        letters = [i for i in range(1, len(raw)) if raw[i - 1 : i + 1].isalpha()]
        marks = [m.span() for m in CONTROL.finditer(raw)] + [
            m.span() for m in DEFINED.finditer(raw)
        ]
        letters = [i for i in letters if not any(a < i < b for a, b in marks)]
        cuts = sorted(self.chance.sample(letters, min(2, len(letters))))
        tokens: list[int] = []
        for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            tokens += self.engine._llama.tokenize(raw[a:b])
        return tokens


class RealHour(Hour):
    """Counts the bytes that a real model would write, at the times of a session's steps."""

    def __init__(self, token_bytes: int, state_bytes: int) -> None:
        super().__init__(lambda: self.now_s)
        self.now_s, self.written, self.n_token, self.unbounded = 0.0, 0, 0, 0
        self._real = token_bytes, state_bytes
        self._tiny: tuple[float, int] | None = None  # the same of the tiny model
        self._n_piece = 0
        write = KeptStates.write

        def note(states: KeptStates, piece: Any, state: bytearray, room: Any) -> None:
            n_state = piece.n_checkpoint
            self._tiny = (len(state) - 2 * n_state) / len(piece.tokens), n_state
            self._n_piece, self.n_token = len(state), piece.end
            write(states, piece, state, room)

        KeptStates.write = note  # type: ignore[method-assign]

    def real(self, n_bytes: int) -> int:
        if self._tiny is None:
            return n_bytes
        n_token = max(n_bytes - 2 * self._tiny[1], 0) / self._tiny[0]
        return self.size(int(n_token), n_bytes > 2 * self._tiny[1])

    def size(self, n_token: int, has_state: bool) -> int:
        """Return the bytes of a state. It has the part that cannot be cut twice: at two places."""
        return n_token * self._real[0] + 2 * self._real[1] * has_state

    def has_room(self, n_bytes: int, *, is_passing: bool = False) -> bool:
        return super().has_room(self.real(n_bytes), is_passing=is_passing)

    def add(self, n_bytes: int) -> None:
        n_bytes = self.real(n_bytes) if n_bytes == self._n_piece else n_bytes  # or a note
        self.written += n_bytes
        super().add(n_bytes)

    def would_write(self, before: list[int], tokens: list[int], n_piece: int) -> None:
        """Add what a conversation lacks on a drive that has the one before."""
        n_kept = n_equal(before, tokens) // n_piece * n_piece if n_piece else 0
        self.unbounded += self.size(len(tokens) - n_kept, not n_piece)


def session(family: str, folder: Path, arguments: argparse.Namespace) -> tuple[float, str]:
    """Print the figures of a session. Return the least share, and what went wrong."""
    arch, name, end, client_name = FAMILIES[family]
    client_name = arguments.client or client_name
    real = vocabulary(arch, name, end)
    tokens = tuple(real["tokenizer.ggml.tokens"][0])
    made = Vocabulary(tokens, (1,) * len(tokens), (), 0, 0, 0)  # as large
    writing.tiny_vocabulary = lambda: made
    path = writing.make_tiny(arch, "Q8_0", folder / "t.gguf", n_ctx=65536)
    path = with_template(path, folder / "m.gguf", template(name), vocabulary=real)
    config = EngineConfig(cache_rate=1.0, context_length=arguments.context, n_thread=1)
    engine = Engine.open(path, config)
    hour = RealHour(arguments.token_bytes, arguments.state_bytes)
    if arguments.states:
        engine.keep_in(arguments.states, hour)
    if arguments.rendered:
        engine.prompts.remember = lambda *_: None  # type: ignore[method-assign]
    voice, chance = Voice(engine, 1), random.Random(2)
    OpenAnswer.sample = lambda self, row=-1: voice.sample(self)  # type: ignore[method-assign]
    system = lines(chance, 100)
    while engine.prompts.count([{"role": "system", "content": system}, USER]) < 10_000:
        system += lines(chance, 4000)
    client = CLIENTS[client_name](system)
    served = Served(engine, n_parallel=arguments.parallel)
    shares, faults, began_s = [], list[str](), time.perf_counter()
    n_result = 0

    def result() -> str:
        nonlocal n_result
        n_result += 1
        return lines(chance, (300, 900, 2400, 1500)[n_result % 4])

    before: list[int] = []  # what was in the context after the step before
    goes_on = False  # the step before was a call, whose thought templates keep
    client.ask("Find out why the reader loses its state, and mend it.\n" + lines(chance, 2000))
    for step in range(arguments.n_step):
        if step == N_COMPACTED:
            client.compact("A summary of what was done so far:\n" + lines(chance, 3000))
        voice.said = answer_of(step, chance, family.startswith(ORDERED))
        reply = httpx.post(
            served.url + client.path, json=client.body(), headers={"x-api-key": KEY}, timeout=900
        )
        if reply.status_code != 200:
            faults.append(f"step {step}: {reply.status_code} {reply.text[:200]}")
            break
        if left_out := reply.headers.get("x-ignored-fields"):
            faults.append(f"step {step}: x-ignored-fields {left_out[:80]}")
        sequence = voice.of
        assert sequence is not None
        n_prompt, reused = sequence.partial.n_prompt, sequence.n_reused
        prompt = sequence.tokens[:n_prompt]
        common = len(before) if goes_on else n_equal(before, prompt)
        share = min(reused / common, 1.0) if step else 1.0
        n_calls = client.take(reply.json(), result)
        if n_calls != len(voice.said["calls"]):
            faults.append(
                f"step {step}: {n_calls} calls of {len(voice.said['calls'])} {voice.raw!r}"
            )
        why = ""
        is_low = step > 0 and goes_on and share < 0.95
        if is_low or (arguments.steps and n_equal(before, prompt) < len(before)):
            n = n_equal(before, prompt)
            old, new = (engine.prompts.detokenize(t[n - 8 : n + 12]) for t in (before, prompt))
            why = f"{len(before) - n} of {len(before)}: {old!r} / {new!r}"
        shares.append(share)
        if arguments.steps:
            print(f"  {step:2} {n_prompt:6} {reused:6} {share:.3f} {why}", flush=True)
        elif why:
            faults.append(f"step {step}: {share:.3f} {why}")
        if arguments.states:
            kept = threading.Event()
            served.host.submit(lambda engine: (keep_all(engine), kept.set()))
            kept.wait()
            hour.would_write(before, sequence.tokens[:-1], engine.loaded.context.n_piece)
            if arguments.steps:
                print(f"     {hour.written / 1e9:.2f} GB written, the last up to {hour.n_token}")
            hour.now_s += arguments.step_s
        before, goes_on = list(sequence.tokens), bool(voice.said["calls"])
        if not goes_on:
            client.ask("Go on with the next part.\n" + lines(chance, 800))
    written = ""
    if arguments.states:
        written = (
            f", {hour.written / 1e9:.2f} GB written in {hour.now_s:.0f} s, the last up to "
            f"{hour.n_token}, without a bound {hour.unbounded / 1e9:.2f}"
        )
    served.close()
    engine.close()
    rest = [*shares[1:]]
    low = sum(s < 0.95 for s in rest)
    print(
        f"{family:14} {client_name:9} {arch:15} steps {len(shares)}, share least {min(rest):.3f} "
        f"mean {np.mean(rest):.3f}, {low} below 0.95, {time.perf_counter() - began_s:.0f} s"
        + written
        + (f"; {voice.trouble}" if voice.trouble else ""),
        flush=True,
    )
    for fault in faults[: arguments.faults]:
        print(f"    {fault}")
    return min(rest), "; ".join(faults)


USER = {"role": "user", "content": "a"}


def keep_all(engine: Engine) -> None:
    while engine.keep():
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--rendered", action="store_true")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--n-step", type=int, default=N_STEP)
    parser.add_argument("--faults", type=int, default=3)
    parser.add_argument("--client", choices=[*CLIENTS], default="")
    parser.add_argument("--context", type=int, default=49152)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--states", type=Path)
    parser.add_argument("--step-s", type=float, default=40.0)
    parser.add_argument("--token-bytes", type=int, default=200_000)
    parser.add_argument("--state-bytes", type=int, default=0)
    arguments = parser.parse_args()
    os.environ.setdefault("OUTRIDER_STATES", tempfile.mkdtemp())
    for family in arguments.families or FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            session(family, Path(folder), arguments)


if __name__ == "__main__":
    main()
