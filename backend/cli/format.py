"""`outrider format`: show the prompt of a conversation, and how an answer to it is split."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    say,
    write_error,
)
from backend.gguf.header import ArraySummary, Header, read_header, read_string
from backend.llama.chat_format import AnswerReader, ChatFormat, Rendered
from backend.llama.fitting import REMARKS
from backend.protocol.chat import AnswerText, ChatFacts, ChatOptions, Json
from backend.protocol.errors import RequestError
from backend.text import text

_HELLO: list[Json] = [{"role": "user", "content": "Hello"}]
_N_STEP_MAX = 5000  # a longer answer is read in as many pieces
_TEMPLATE_BYTES_MAX = 1 << 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Show what a chat template can do, the prompt that it makes of a "
        "conversation, and thought, answer and tool calls in a model's output. Only the header "
        "of a model is read."
    )
    add = parser.add_argument
    add("model", metavar="MODEL|TEMPLATE", type=Path, help="a GGUF file, or a Jinja template")
    add("--messages", metavar="FILE", type=Path, help="messages in OpenAI's form, in JSON")
    add("--output", metavar="FILE", type=Path, help="a model's output, with its control tokens")
    add("--think", choices=("on", "off"), help="switch thinking; without it the template decides")
    add("--effort", metavar="WORD", default="", help="the reasoning effort, for example low")
    add("--tools", metavar="FILE", type=Path, help="tools in OpenAI's form, in JSON")
    add(
        "--continue",
        dest="continues",
        action="store_true",
        help="go on with the last message, or with the output, instead of a new answer",
    )
    add("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    messages, tools = _conversation(args)
    options: Json = {"tools": tools, "effort": args.effort}
    if args.think is not None:
        options["thinking"] = args.think == "on"
    try:
        asked = ChatOptions.from_message(options)
    except RequestError as error:
        raise UserError(str(error)) from None
    output = None if args.output is None else _text(args.output)
    chat_format = _chat_format(args.model)
    try:
        facts = chat_format.facts()
        rendered = _rendered(chat_format, messages, asked)
        answer = AnswerText() if output is None else _split(chat_format, rendered, output)
        if args.continues and messages[-1]["role"] != "assistant":
            if output is None:
                raise UserError("The last message is not the assistant's, and there is no output.")
            rendered = _rendered(chat_format, [*messages, answer.to_message()], asked)
    finally:
        chat_format.close()
    if rendered.n_left_out:
        write_error(text("template.shortened", n=rendered.n_left_out))
    if args.json:
        print(json.dumps(_report(facts, rendered, answer)))
    else:
        lines = _lines(facts, rendered, None if output is None else answer)
        say(*"\n".join(lines).split("\n"))
    return 0


def _chat_format(path: Path) -> ChatFormat:
    with open(path, "rb") as file:
        head = file.read(4)
    if head != b"GGUF":
        return ChatFormat(path.name, _text(path, _TEMPLATE_BYTES_MAX), "", "")
    header = read_header(path)
    template = header.metadata.get("tokenizer.chat_template")
    name = header.metadata.get("general.name")
    return ChatFormat(
        name if isinstance(name, str) else path.stem,
        template if isinstance(template, str) else "",
        _token(header, "bos", 1),
        _token(header, "eos", 2),
    )


def _token(header: Header, name: str, of_llama: int) -> str:
    """Return the text of a token. of_llama: its number where a vocabulary of Llama names none."""
    number = header.metadata.get(f"tokenizer.ggml.{name}_token_id")
    if number is None and header.metadata.get("tokenizer.ggml.model") == "llama":
        number = of_llama
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(number, int):
        return ""
    try:
        if isinstance(tokens, ArraySummary):
            return read_string(header.path, tokens, number)
        return str(tokens[number]) if isinstance(tokens, tuple) else ""
    except IndexError:
        return ""


def _conversation(args: argparse.Namespace) -> tuple[list[Json], list[Json]]:
    """Return messages and tools; a file of messages may hold a whole request."""
    messages: Any = _HELLO if args.messages is None else _json(args.messages)
    tools: Any = []
    if isinstance(messages, dict):
        tools, messages = messages.get("tools") or [], messages.get("messages")
    if args.tools is not None:
        tools = _json(args.tools)
        tools = tools.get("tools") if isinstance(tools, dict) else tools
    is_list = isinstance(messages, list) and messages
    if not is_list or not all(isinstance(m, dict) and _is_text(m.get("role")) for m in messages):
        raise UserError(f"{args.messages.name} is not a list of messages.")
    return messages, tools


def _rendered(chat_format: ChatFormat, messages: list[Json], options: ChatOptions) -> Rendered:
    rendered = chat_format.render(messages, options)
    assert rendered is not None  # nothing stops it
    return rendered


def _split(chat_format: ChatFormat, rendered: Rendered, output: str) -> AnswerText:
    """Return the parts of an output, read as it streams: letter by letter."""
    reader: AnswerReader = chat_format.reader(rendered)
    n_step = len(output) // _N_STEP_MAX + 1
    for i in range(0, len(output), n_step):
        reader.feed(output[i : i + n_step])
    reader.finish()
    return reader.shown


def _report(facts: ChatFacts, rendered: Rendered, answer: AnswerText) -> Json:
    return {
        "prompt": rendered.prompt,
        "thinking": False if facts.thinking == "none" else facts.thinking,
        "thinks_by_default": facts.thinks_by_default,
        "efforts": list(facts.efforts),
        "tools": facts.tools,
        "tools_described": facts.tools_described,
        "parallel_tool_calls": facts.parallel_tool_calls,
        "system": facts.system,
        "thinks": rendered.thinks,
        "left_out": rendered.n_left_out,
        "fitted": list(rendered.fitted),
        "reasoning": answer.reasoning,
        "content": answer.content,
        "tool_calls": [call.to_json() for call in answer.tool_calls],
    }


def _lines(facts: ChatFacts, rendered: Rendered, answer: AnswerText | None) -> list[str]:
    default = "on" if facts.thinks_by_default else "off"
    thinking = {
        "none": "no",
        "switch": f"can be switched; without --think it is {default}",
        "always": "always",
    }[facts.thinking]
    efforts = f"\nefforts: {', '.join(facts.efforts)}" if facts.efforts else ""
    lines = [
        f"thinking: {thinking}{efforts}",
        f"tools: {'described in the system message' if facts.tools_described else 'yes'}",
        f"system prompt: {'yes' if facts.system else 'no, it is put into the first message'}",
        *(f"fitted: {word}: {REMARKS[word]}" for word in rendered.fitted),
        *_section("prompt", rendered.prompt),
    ]
    if answer is not None:
        lines += _section("thought", answer.reasoning) if answer.reasoning else []
        lines += _section("answer", answer.content)
        for call in answer.tool_calls:
            lines += _section(f"call {call.id}", f"{call.name}({call.arguments})")
    return lines


def _section(title: str, content: str) -> list[str]:
    return ["", f"---- {title} ----", content]


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError):
        raise UserError(f"{path.name} is not valid JSON.") from None


def _text(path: Path, n_byte_max: int = -1) -> str:
    """Return a file's text, as it is. Raises UserError."""
    with open(path, "rb") as file:
        data = file.read(n_byte_max + 1 if n_byte_max >= 0 else -1)
    if 0 <= n_byte_max < len(data):
        raise UserError(f"{path.name} is too long for a chat template.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is not text in UTF-8.") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str)
