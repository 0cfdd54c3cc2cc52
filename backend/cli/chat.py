"""`outrider chat`: one answer with -p, or a conversation in the terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from backend.cli.common import (
    UserError,
    add_engine_options,
    bytes_text,
    cache_rate,
    engine_config,
    max_tokens,
    printable,
    temperature,
    whole_number,
    write_error,
)
from backend.cli.session import Answer, Session, Settings, notice
from backend.protocol.client import RequestFailed, WorkerDied
from backend.protocol.settings import Sampling
from backend.system.paths import embedded_model

_HELP = """\
/help     this list
/rate R   change the share of experts kept in memory: 0 to 1, or a percentage
/stats    figures of the last answer
/new      begin a new conversation
/quit     leave (so does Ctrl-D)
Ctrl-C stops an answer; a second one leaves."""

_FIGURES = (
    "ttft_s",
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


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "chat",
        help="chat with a model in the terminal, or answer one prompt",
        description="Chat with a model in the terminal, or answer one prompt with -p.",
    )
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL", help="a GGUF file; without it the embedded model")
    add("-p", "--prompt", metavar="PROMPT", help="answer this and leave; - reads it from stdin")
    add_engine_options(parser)
    add("--max-tokens", type=max_tokens, default=-1, metavar="N", help="longest answer; -1: any")
    add("--seed", type=whole_number(0, 2**32 - 1), metavar="S", help="repeatable sampling")
    add("--temperature", type=temperature, metavar="T", help="0 always takes the likeliest token")
    add("--json", action="store_true", help="print one JSON object; needs -p")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.json and args.prompt is None:
        raise UserError("--json prints one answer and needs a prompt with -p.", status=2)
    if args.prompt is None and sys.stdin is None:
        raise UserError("There is no standard input to chat from; -p gives a prompt.", status=2)
    prompt = None if args.prompt is None else _prompt(args.prompt)
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal must not end the chat
    session = Session(_settings(args))
    try:
        session.start()
        if (remark := session.cache.get("remark")) and not args.json:
            notice(remark)
        if prompt is not None:
            return _answer_once(session, prompt, args.json)
        return _Terminal(session).run()
    finally:
        session.close()


def _settings(args: argparse.Namespace) -> Settings:
    """Return the settings asked for; raises UserError for those that make no sense."""
    given = {"temperature": args.temperature, "seed": args.seed}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        model = embedded_model() if args.model is None else args.model
        return Settings(
            model=os.path.abspath(model),
            config=engine_config(args),
            sampling=Sampling(**given),
            max_tokens=args.max_tokens,
        )
    except (ValueError, FileNotFoundError) as error:
        raise UserError(str(error), status=2) from None


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


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError("The prompt is not valid UTF-8.", status=2) from None


def _answer_once(session: Session, prompt: str, as_json: bool) -> int:
    """Answer one prompt and return the exit status."""
    show = None if as_json else _show
    answer = session.answer([{"role": "user", "content": prompt}], show)
    if as_json:
        print(json.dumps(_report(session, answer)))
    elif answer.text and not answer.text.endswith("\n"):
        _show("\n")
    if answer.fault:
        write_error(answer.fault)
        return 1
    return 130 if answer.reason == "cancelled" else 0


def _report(session: Session, answer: Answer) -> dict[str, Any]:
    """Return what --json prints. Figures are null where the answer did not come to its end."""
    report: dict[str, Any] = {
        "model": session.settings.model,
        "text": answer.text,
        "tokens": answer.tokens,
        "reason": answer.reason,
        "n_prompt": answer.stats.get("n_prompt"),
        "cache_rate": session.cache.get("rate"),
        "method": session.cache.get("method"),
        "predictor": session.cache.get("predictor"),
        "remark": session.cache.get("remark"),
    }
    report.update({name: answer.stats.get(name) for name in _FIGURES})
    report["layers"] = answer.stats.get("layers", [])
    if answer.fault:
        report["error"] = answer.fault
    return report


def _show(text: str) -> None:
    """Write text of the model to standard output, at once."""
    if sys.stdout is not None:
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


class _Terminal:
    """The interactive chat: reads lines, shows answers, obeys commands."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._messages: list[dict[str, str]] = []
        self._last: Answer | None = None
        self._typed = sys.stdin.isatty()
        self._status = 0
        self._prompt = "> " if self._typed and sys.stdout is not None else ""

    def run(self) -> int:
        """Chat until the user leaves; returns the exit status."""
        if self._typed:
            try:
                import readline  # noqa: F401  # gives input() line editing and history
            except ImportError:
                pass
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
                notice("\n(Ctrl-C again or Ctrl-D leaves.)")
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
        """Send one message and show the answer; what was said stays in the conversation."""
        _check_text(line)
        messages = [*self._messages, {"role": "user", "content": line}]
        answer = self._session.answer(messages, _show)
        if answer.text and not answer.text.endswith("\n"):
            _show("\n")
        if answer.text or not answer.fault:
            self._messages = [*messages, {"role": "assistant", "content": answer.text}]
            self._last = answer
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

    def _complain(self, sentence: str) -> None:
        """Tell the user of a mistake; a script also learns of it from the exit status."""
        if self._typed:
            notice(sentence)
        else:
            write_error(sentence)
            self._status = 1

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "/help":
            notice(_HELP)
        elif name == "/new":
            self._messages = []
            notice("A new conversation.")
        elif name == "/stats":
            notice(_table(self._last) if self._last else "There is no answer yet.")
        elif name == "/rate":
            try:
                rate = cache_rate(rest.strip())
            except argparse.ArgumentTypeError as error:
                raise UserError(str(error)[:1].upper() + str(error)[1:] + ".") from None
            self._session.set_cache_rate(rate)
            notice(self._session.summary())
        else:
            raise UserError(f"There is no command {name}; /help lists them.")

    def _revive(self, sentence: str) -> bool:
        """Say that the engine ended and offer to start it again; False: leave."""
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
    """Return all figures of an answer, a line each."""
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
    if stats.get("on_host"):
        by_cpu = f"{stats['on_host']} of those late or missed, {stats['host_rows']} rows"
        lines.insert(4, ("by the processor", by_cpu))
    return "\n".join(f"{name:<18} {value}" for name, value in lines)


def _read(stats: dict[str, Any]) -> str:
    """Return what came into the cache; where RAM keeps experts for a device, from where."""
    read, from_host = stats["bytes_read"], stats.get("bytes_from_host", 0)
    from_file = stats.get("bytes_from_file", read)
    text = bytes_text(read)
    if from_host or from_file != read:
        text += f", {bytes_text(from_host)} of it from RAM; {bytes_text(from_file)} from the file"
    return text


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f} s"
