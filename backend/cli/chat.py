"""`outrider chat`: one answer with -p, or a conversation in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.attachments.reading import FileReading
from backend.cli.common import (
    UserError,
    add_automatic_options,
    add_sampling_options,
    automatic_config,
    bytes_text,
    cache_rate,
    max_tokens,
    plain_sentence,
    printable,
    sampling,
    write_error,
)
from backend.cli.session import Answer, Session, Settings, notice
from backend.protocol.attachments import Attachment, content_parts
from backend.protocol.chat import ChatOptions, Delta, Json
from backend.protocol.client import RequestFailed, WorkerDied
from backend.protocol.errors import RequestError
from backend.protocol.status import CacheFacts
from backend.system.paths import embedded_model

_HELP = """\
/help     this list
/attach F attach a file to the next message
/rate R   change the share of experts kept in memory: 0 to 1, or a percentage
/think T  let the model think: on, off or auto
/effort E how much it thinks, in the words of its chat template; auto leaves it to the template
/raw      what the model saw and wrote at the last answer, with all control tokens
/stats    figures of the last answer
/new      begin a new conversation
/quit     leave (so does Ctrl-D)
Ctrl-C stops an answer; a second one leaves."""

_THINK = {"on": True, "off": False, "auto": None}
_FIGURES = (
    "ttft_s",
    "n_drafted",
    "n_accepted",
    "tokens_per_s",
    "hits",
    "late",
    "misses",
    "bytes_read",
    "bytes_from_file",
    "bytes_from_host",
    "stall_s",
    "compute_s",
    "other_s",
    "peak_rss_bytes",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = "Chat with a model in the terminal, or answer one prompt with -p."
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL", help="a GGUF file; without it the embedded model")
    add("-p", "--prompt", metavar="PROMPT", help="answer this and leave; - reads it from stdin")
    add(
        "--attach", action="append", default=[], metavar="FILE",
        help="a text, code, PDF or image file for the first message; may be given again",
    )  # fmt: skip
    add_automatic_options(parser)
    add("--max-tokens", type=max_tokens, default=-1, metavar="N", help="longest answer; -1: any")
    add_sampling_options(parser)
    add("--think", choices=("on", "off"), help="let the model think first, if it has a switch")
    add("--effort", metavar="E", help="how much it thinks, such as low or high, if it can choose")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--schema", metavar="FILE", help="answer in JSON of this JSON schema")
    answer.add_argument("--grammar", metavar="FILE", help="answer in the form of this GBNF grammar")
    add("--json", action="store_true", help="print one JSON object; needs -p")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.json and args.prompt is None:
        raise UserError("--json prints one answer and needs a prompt with -p.", status=2)
    if args.prompt is None and sys.stdin is None:
        raise UserError("There is no standard input to chat from; -p gives a prompt.", status=2)
    prompt = None if args.prompt is None else _prompt(args.prompt)
    files = [_attachment(path) for path in args.attach]
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal must not end the chat
    session = Session(_settings(args))
    try:
        session.start()
        if not args.json:
            said = (session.cache.get("overridden"), session.cache.get("remark"))
            for remark in (*said, *_thinking_remarks(session)):
                if remark:
                    notice(remark)
        if prompt is not None:
            return _answer_once(session, prompt, files, args.json)
        return _Terminal(session, files).run()
    finally:
        session.close()


def _settings(args: argparse.Namespace) -> Settings:
    """Return the settings from the options. Raises UserError for invalid ones."""
    try:
        model = embedded_model() if args.model is None else args.model
        return Settings(
            model=os.path.abspath(model),
            config=automatic_config(args),
            sampling=sampling(args),
            max_tokens=args.max_tokens,
            options=_options(args),
        )
    except (ValueError, FileNotFoundError) as error:
        raise UserError(str(error), status=2) from None


def _options(args: argparse.Namespace) -> ChatOptions:
    """Return how the conversation is rendered. Raises UserError for a file that cannot be used."""
    schema = None
    if args.schema is not None:
        try:
            schema = json.loads(_content(args.schema))
        except (ValueError, RecursionError):
            schema = None
        if not isinstance(schema, dict):
            raise UserError(f"{args.schema} is not a JSON schema.", status=2)
    return ChatOptions(
        thinking=None if args.think is None else args.think == "on",
        effort=args.effort or "",
        json_schema=schema,
        grammar="" if args.grammar is None else _content(args.grammar),
    )


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not valid UTF-8.", status=2) from None
    except OSError as error:
        raise UserError(plain_sentence(error), status=2) from None


def _thinking_remarks(session: Session) -> Iterator[str]:
    """Yield a sentence for each option of thinking that the model cannot obey."""
    options, chat = session.settings.options, session.chat
    if options.thinking is not None and chat.thinking != "switch":
        is_always = chat.thinking == "always"
        yield f"This model {'always' if is_always else 'never'} thinks; it has no switch."
    if options.effort and options.effort not in chat.efforts:
        known = ", ".join(chat.efforts)
        yield f"This model knows {f'the efforts {known}' if known else 'no efforts'}."


def _prompt(text: str) -> str:
    """Return the prompt given with -p, checked."""
    if text == "-":
        if sys.stdin is None:
            raise UserError("There is no standard input to read the prompt from.", status=2)
        try:
            text = sys.stdin.read()
        except UnicodeDecodeError:
            raise UserError("The prompt is not valid UTF-8.", status=2) from None
    _check_text(text)
    if not text.strip():
        raise UserError("The prompt is empty.", status=2)
    return text


def _attachment(path: str) -> Attachment:
    """Read an attached file. Raises UserError with one sentence."""
    try:
        return FileReading(path).run()
    except RequestError as error:
        raise UserError(str(error)) from None


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError("The prompt is not valid UTF-8.", status=2) from None


def _answer_once(session: Session, prompt: str, files: Sequence[Attachment], as_json: bool) -> int:
    """Answer one prompt and return the exit status."""
    screen = None if as_json else _Screen()
    answer = session.answer([{"role": "user", "content": content_parts(prompt, files)}], screen)
    if screen is None:
        print(json.dumps(_report(session, answer)))
    else:
        screen.end()
    if answer.fault:
        write_error(answer.fault)
        return 1
    if not as_json:
        notice(session.summary())
    return 130 if answer.reason == "cancelled" else 0


def _report(session: Session, answer: Answer) -> dict[str, Any]:
    """Return the object of --json. Figures are null where the answer did not finish."""
    report: dict[str, Any] = {
        "model": session.settings.model,
        "text": answer.text.content,
        "reasoning": answer.text.reasoning,
        "content": answer.text.content,
        "tool_calls": [call.to_json() for call in answer.text.tool_calls],
        "raw": answer.raw,
        "tokens": answer.tokens,
        "reason": answer.reason,
        "n_prompt": answer.stats.get("n_prompt"),
        "cache_rate": session.cache.get("rate"),
        "method": session.cache.get("method"),
        "predictor": session.cache.get("predictor"),
        "runs": CacheFacts.from_json(session.cache).runs,
        "remark": session.cache.get("remark"),
        "overridden": session.cache.get("overridden"),
    }
    report.update({name: answer.stats.get(name) for name in _FIGURES})
    report["layers"] = answer.stats.get("layers", [])
    if answer.fault:
        report["error"] = answer.fault
    return report


class _Screen:
    """Writes an answer to standard output, at once.

    The thought is written to a terminal only, and dim. A program that reads the output gets the
    content alone.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._is_dim = False
        self._last = "\n"

    def __call__(self, delta: Delta) -> None:
        if delta.reasoning and self._is_terminal:
            self._write(delta.reasoning, "" if self._is_dim else "\x1b[2m")
            self._is_dim = True
        if delta.content:
            self._end_thought()
            self._write(delta.content)

    def end(self) -> None:
        """End the last line."""
        self._end_thought()
        if self._last != "\n":
            self._write("\n")

    def _end_thought(self) -> None:
        if self._is_dim:
            self._write("\n" if self._last == "\n" else "\n\n", "\x1b[0m")
            self._is_dim = False

    def _write(self, text: str, style: str = "") -> None:
        if sys.stdout is not None:
            sys.stdout.write(style + (printable(text) if self._is_terminal else text))
            sys.stdout.flush()
        self._last = text[-1]


class _Terminal:
    """The interactive chat: reads lines, shows answers, obeys commands."""

    def __init__(self, session: Session, files: Sequence[Attachment]) -> None:
        self._session = session
        self._messages: list[Json] = []
        self._asked: tuple[list[Json], ChatOptions] = ([], ChatOptions())  # for the last answer
        self._files = list(files)  # for the next message
        self._last: Answer | None = None
        self._typed = sys.stdin.isatty()
        self._has_said = False  # how the model runs
        self._status = 0
        self._prompt = "> " if self._typed and sys.stdout is not None else ""

    def run(self) -> int:
        """Chat until the user leaves. Return the exit status."""
        if self._typed:
            with contextlib.suppress(ImportError):
                # Gives input() line editing and history. Packages have none, for its licence.
                import readline  # noqa: F401
            notice(self._session.summary())
            notice("/help lists the commands.")
        leaving = False
        while True:
            try:
                line = input(self._prompt).strip()
            except EOFError:
                if self._typed:
                    notice("")
                return self._status
            except UnicodeDecodeError:
                raise UserError("The input is not valid UTF-8.") from None
            except KeyboardInterrupt:
                if leaving:
                    return 0
                leaving = True
                notice("", "(Ctrl-C again or Ctrl-D leaves.)")
                continue
            leaving = False
            if line == "/quit":
                return self._status
            try:
                if line.startswith("/"):
                    self._command(line)
                elif line:
                    self._turn(line)
            except (RequestFailed, UserError) as error:
                self._complain(str(error))
            except WorkerDied as error:
                if not self._revive(str(error)):
                    return 1

    def _turn(self, line: str) -> None:
        """Send one message, show the answer, and keep both in the conversation."""
        _check_text(line)
        content = content_parts(line, self._files)
        messages = [*self._messages, {"role": "user", "content": content}]
        screen = _Screen()
        answer = self._session.answer(messages, screen)
        screen.end()
        if answer.raw or not answer.fault:
            self._messages = [*messages, answer.text.to_message()]
            self._asked = messages, self._session.settings.options
            self._last, self._files = answer, []
        if answer.died:
            raise WorkerDied(answer.fault)
        if answer.fault:
            raise RequestFailed(answer.fault)
        if answer.reason == "length":
            notice("(Stopped at --max-tokens.)")
        elif answer.reason == "context":
            notice("(The context is full; /new begins a new conversation.)")
        if self._typed:
            notice(_one_line(answer))
        elif not self._has_said:
            self._has_said = True
            notice(self._session.summary())

    def _complain(self, sentence: str) -> None:
        """Report an error to the user, or to a script by the exit status, too."""
        if self._typed:
            notice(sentence)
        else:
            write_error(sentence)
            self._status = 1

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "/help":
            notice(*_HELP.split("\n"))
        elif name == "/new":
            self._messages = []
            notice("A new conversation.")
        elif name == "/attach":
            self._files.append(file := _attachment(os.path.expanduser(rest.strip())))
            size = "image" if file.kind == "image" else f"{len(file.text):,} characters"
            notice(f"{file.name} goes with the next message ({size}).")
        elif name == "/stats":
            notice(*_table(self._last).split("\n") if self._last else ["There is no answer yet."])
        elif name == "/raw":
            self._show_raw()
        elif name in ("/think", "/effort"):
            self._set_thinking(name, rest.strip())
        elif name == "/rate":
            try:
                rate = cache_rate(rest.strip())
            except argparse.ArgumentTypeError as error:
                raise UserError(str(error)[:1].upper() + str(error)[1:] + ".") from None
            self._session.decide(cache_rate=rate)
            notice(self._session.summary())
        else:
            raise UserError(f"There is no command {name}; /help lists them.")

    def _show_raw(self) -> None:
        """Show the prompt and the text of the last answer, with all control tokens."""
        if self._last is None:
            notice("There is no answer yet.")
        else:
            notice(*f"{self._session.prompt(*self._asked)}{self._last.raw}".split("\n"))

    def _set_thinking(self, name: str, value: str) -> None:
        session, settings = self._session, self._session.settings
        if name == "/effort":
            change: dict[str, Any] = {"effort": "" if value == "auto" else value}
        elif value in _THINK:
            change = {"thinking": _THINK[value]}
        else:
            raise UserError("/think needs on, off or auto.")
        session.settings = replace(settings, options=replace(settings.options, **change))
        remarks = list(_thinking_remarks(session))
        notice(" ".join(remarks) or "It counts from the next answer on.")

    def _revive(self, sentence: str) -> bool:
        """Report that the engine ended and offer to start it again. Return False to leave."""
        write_error(sentence)
        while self._typed:
            try:
                choice = input("Start it again? [Y/n] ").strip().lower()
            except (EOFError, KeyboardInterrupt):
                break
            if choice not in ("", "y", "yes"):
                break
            try:
                self._session.start()
            except (WorkerDied, RequestFailed) as error:
                write_error(str(error))
                continue
            notice("It runs again; the conversation goes on.")
            return True
        return False


def _one_line(answer: Answer) -> str:
    """Return the figures of an answer in one line."""
    stats = answer.stats
    used = stats.get("hits", 0) + stats.get("late", 0) + stats.get("misses", 0)
    parts = [f"{len(answer.tokens)} tokens"]
    if stats.get("tokens_per_s"):
        parts.append(f"{stats['tokens_per_s']:.1f} token/s")
    if used:
        parts.append(f"{100 * stats['hits'] / used:.0f} % of experts in time")
        parts.append(f"waited {stats['stall_s']:.2f} s for experts")
    return f"({', '.join(parts)})"


def _table(answer: Answer) -> str:
    """Return all figures of an answer, one line each."""
    stats = answer.stats
    lines = [
        (
            "tokens",
            f"{stats['n_prompt']} read ({stats['n_reused']} known), {stats['n_token']} made",
        ),
        ("first token after", _seconds(stats["ttft_s"])),
        ("speed", f"{stats['tokens_per_s'] or 0:.2f} token/s"),
        (
            "experts used",
            f"{stats['hits']} resident, {stats['late']} late, {stats['misses']} missed",
        ),
        ("read", _read(stats)),
        ("computing", _seconds(stats["compute_s"])),
        ("waiting", _seconds(stats["stall_s"])),
        ("the rest", _seconds(stats["other_s"])),
        ("peak memory", bytes_text(stats["peak_rss_bytes"])),
    ]
    if stats.get("n_drafted"):
        drafts = f"{stats['n_accepted']} of {stats['n_drafted']} guessed tokens were right"
        lines.insert(3, ("drafts", drafts))
    if stats.get("on_host"):
        by_cpu = f"{stats['on_host']} of those late or missed, {stats['host_rows']} rows"
        lines.insert(-5, ("by the processor", by_cpu))
    return "\n".join(f"{name:<18} {value}" for name, value in lines)


def _read(stats: dict[str, Any]) -> str:
    """Return the bytes read into the cache; with a host store, also their sources."""
    read, from_host = stats["bytes_read"], stats.get("bytes_from_host", 0)
    from_file = stats.get("bytes_from_file", read)
    text = bytes_text(read)
    if from_host or from_file != read:
        text += f", {bytes_text(from_host)} of it from RAM; {bytes_text(from_file)} from the file"
    return text


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f} s"
