"""`outrider batch`: answer a file of requests, several at once, and go on after a kill."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from backend.cli.common import (
    Interrupts,
    UserError,
    add_engine_options,
    add_sampling_options,
    engine_config,
    max_tokens,
    sampling,
    say,
    show_loading,
    show_progress,
    whole_number,
    write_error,
)
from backend.cli.crashes import Notes
from backend.engine.engine import Engine
from backend.engine.group_plan import (
    GroupPlan,
    GroupWatch,
    cells_most,
    plan_group,
    streams_pay,
    with_streams,
)
from backend.engine.runner import Runner
from backend.engine.scheduler import n_seen
from backend.protocol.errors import EngineError, UntrustedError
from backend.protocol.request import GroupAnswer, Handle, Prompt, Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.server.ask import Ask, Finish, RequestRefused, Timings, n_chosen
from backend.server.batch_file import (
    AnswerFile,
    BatchError,
    Choice,
    Line,
    answer_line,
    error_line,
    read_lines,
    regular,
)
from backend.server.turns import token_of
from backend.system.paths import absolute

_MAX_TOKENS = 512
_MANY = 1 << 30
_N_FIRST = 4
_LOST_MOST = 4
"""Requests in a row that may fail while they are computed; after more, a drive has failed."""
_N_LOOK = 256
"""Requests whose prompts are measured before the first answer."""
_SHOW_S = 0.5
_LOG_S = 60.0
"""Seconds between two lines of progress where there is no terminal."""
_LOCK_S = 5.0
"""A process that was killed may take this long to free its memory, and then its lock."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Answer a file of requests, several at once. Every answer is appended to OUT as soon as it "
        "is complete. After a kill, the same command goes on: it repeats no request and leaves "
        "none out. Ctrl-C completes the answers that are being written; a second one drops them."
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file, or any part of a split one")
    add(
        "--prompts",
        required=True,
        type=Path,
        metavar="FILE",
        help=".jsonl (also OpenAI's batch format), .csv with a column prompt, or .txt",
    )
    add("--out", required=True, type=Path, metavar="OUT.jsonl", help="the answers, one per line")
    add(
        "--group",
        type=_group,
        default=0,
        metavar="auto|N",
        help="requests that are computed at once (default auto: as many as hide the reading)",
    )
    add(
        "--max-tokens",
        type=max_tokens,
        default=_MAX_TOKENS,
        metavar="N",
        help=f"longest answer where a request has no limit (default {_MAX_TOKENS})",
    )
    add(
        "--recent",
        type=whole_number(1),
        default=0,
        metavar="N",
        help="sparse attention, which changes answers: a token sees only the last N tokens and the "
        "first ones (default: all tokens)",
    )
    add(
        "--first",
        type=whole_number(0),
        default=_N_FIRST,
        metavar="N",
        help=f"the first tokens that --recent keeps (default {_N_FIRST})",
    )
    add("--system", metavar="TEXT", help="system prompt where a request has none")
    add_engine_options(parser, *EngineConfig.rules(), method="klotski")
    add_sampling_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        # Lock the file itself: several links may lead to it.
        lock = FileLock(f"{regular(absolute(args.out))}.lock", timeout=_LOCK_S)
        with lock:
            return _run(args)
    except Timeout:
        raise UserError(f"Another outrider batch is writing {args.out}.") from None
    except BatchError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"{args.out} cannot be written: {error.strerror}.") from None


def _run(args: argparse.Namespace) -> int:
    n_line, renamed = _check(args.prompts)
    out = AnswerFile(args.out)
    try:
        work = _Work(args, out, n_line, renamed)
        work.write_crashes()
        if work.n_open == 0:
            return work.tell_all()
        config = engine_config(args, keeps_conversations=False)
        engine = Engine.open(args.model, config, show_loading)
        try:
            show_progress("")
            return work.answer(engine)
        finally:
            engine.close()
    finally:
        out.close()


def _check(path: Path) -> tuple[int, frozenset[int]]:
    """Return the number of requests, and the lines without an id whose number is another's id.

    Raises BatchError, also where two requests have the same id.
    """
    known: dict[str, tuple[str, int]] = {}  # the digest, and the number if that is the id
    renamed = set[int]()
    for line in read_lines(path):
        own = line.digest, 0 if line.is_named else line.number
        other = known.setdefault(line.id, own)
        if other == own:
            continue
        if not (own[1] or other[1]):
            raise UserError(f"Two requests of {path.name} have the id {line.id!r}.")
        renamed.add(own[1] or other[1])
        if line.is_named:
            known[line.id] = own
    if not known:
        raise UserError(f"{path.name} has no requests.")
    return len(known) + len(renamed), frozenset(renamed)


@dataclass
class _Open:
    """A request that is being answered, and its choices so far."""

    line: Line
    ask: Ask
    n: int
    choices: list[Choice] = field(default_factory=list)


class _Choice(Handle):
    """The answer number `number` to a request. given: receives it with its end."""

    splits = "end"

    def __init__(self, of: _Open, number: int, given: list[tuple[_Choice, GroupAnswer]]) -> None:
        super().__init__()
        self.of, self.number, self._given = of, number, given

    def ended(self, given: GroupAnswer) -> None:
        """Keep the end of the answer."""
        self._given.append((self, given))


class _Work:
    """The requests that are not answered yet. n_line, renamed: as _check() returns them."""

    def __init__(
        self, args: argparse.Namespace, out: AnswerFile, n_line: int, renamed: frozenset[int]
    ) -> None:
        self._args, self._out, self._renamed = args, out, renamed
        self._defaults = _defaults(args)
        self._n_token = 0
        self._began_s = self._shown_s = time.monotonic()
        self._is_over = False
        self._notes = Notes()
        self._given: list[tuple[_Choice, GroupAnswer]] = []
        self._n_lost = 0  # requests in a row whose passes have failed
        self._alone = self._notes.alone
        for line in self._read():
            if out.done.get(line.id, line.digest) != line.digest:
                raise UserError(
                    f"{args.out} has an answer to another request of the id {line.id!r}; "
                    "give it another name."
                )
        self._n_all, self._n_failed_before = n_line, len(out.failed)
        self._n_before = n_line - self.n_open

    @property
    def n_open(self) -> int:
        """Their number."""
        return sum(1 for _ in self._lines())

    def write_crashes(self) -> None:
        """Write lines for requests that crashed alone. Raises UserError after too many in a row."""
        failed = self._notes.failed
        for line in self._lines():
            if line.number in failed:
                self._write_error(line, failed[line.number])
                _notice(f"The request {line.id!r} crashes alone, too. Its line has the error.")
        if self._notes.gives_up:
            raise UserError(
                "Several requests in a row crash alone, so this model may not run on this machine. "
                "The same command goes on with the other requests; those with an error are asked "
                f"again if their lines are removed from {self._args.out}."
            )

    def answer(self, engine: Engine) -> int:
        """Answer them. Return the exit status."""
        made = self._plan(engine)
        watch = GroupWatch(engine, made)
        _notice(engine.cache.runs)
        _notice(made.sentence)
        self._model = engine.model.name
        self._began_s = time.monotonic()

        def interrupted() -> None:
            if self._is_over:
                engine.stop()
            self._is_over = True
            _notice("The answers that are being written are completed; Ctrl-C again drops them.")

        with Interrupts(interrupted):
            if self._alone:
                self._compute(engine, made.config.changed(n_sequence=1), self._alone)
            self._compute(engine, made.config, watch=watch)
        show_progress("")
        n_done = len(self._out.done) - self._n_before
        took_s = time.monotonic() - self._began_s
        speed = f"{self._n_token / took_s:.1f} token/s" if took_s > 0 else ""
        n_failed = len(self._out.failed) - self._n_failed_before
        failed = f", {n_failed} of them with an error" if n_failed else ""
        say(f"{self._args.out}: {n_done} answers{failed} in {_duration(took_s)}, {speed}.")
        if self._is_over:
            say(f"{self._n_all - len(self._out.done)} requests are left for the next run.")
            return 128 + signal.SIGINT
        return self._status()

    def tell_all(self) -> int:
        """Tell that every request has a line. Return the exit status."""
        n_failed, out = self._count_failed(), self._args.out
        if not n_failed:
            say(f"All {self._n_all} requests are answered in {out}.")
            return 0
        say(
            f"All {self._n_all} requests have a line in {out}, {n_failed} of them with an error. "
            "These are asked again if their lines are removed."
        )
        return self._status()

    def _status(self) -> int:
        """Return the exit status: a failure if no request of the file has an answer."""
        return 1 if self._count_failed() == self._n_all else 0

    def _count_failed(self) -> int:
        """Return how many requests of the file have a line with an error."""
        return len({line.id for line in self._read()} & self._out.failed)

    def _read(self) -> Iterator[Line]:
        """Yield all requests."""
        for line in read_lines(self._args.prompts):
            is_renamed = line.number in self._renamed
            yield replace(line, id=f"line {line.number}") if is_renamed else line

    def _compute(
        self,
        engine: Engine,
        config: EngineConfig,
        only: frozenset[int] | None = None,
        watch: GroupWatch | None = None,
    ) -> None:
        """Answer the requests of these numbers, or all, with these settings."""
        engine.change(config)
        engine.keeps = False
        engine.attend(*self._attends)
        requests = self._requests(only)
        self._given.clear()
        while True:
            while engine.n_wanted and (request := next(requests, None)) is not None:
                self._submit(engine, request)
            if not engine.step():
                break
            self._show(engine.runner)
            if watch is not None:
                watch.observe(engine.runner)
            self._take(engine)
        self._take(engine)
        if watch is not None:
            watch.end()

    @property
    def _attends(self) -> tuple[int, int]:
        return (self._args.first if self._args.recent else 0), self._args.recent

    def _plan(self, engine: Engine) -> GroupPlan:
        """Measure the first prompts. Return how many requests run at once."""
        n_cell, n_answer, prompts = 0, _MANY, list[Sequence[int]]()
        most = cells_most(engine)  # a larger limit is none
        is_one_shape = not self._attends[1]
        for line, _ in zip(self._lines(), range(_N_LOOK), strict=False):
            self._notes.begin(line.number)
            try:
                ask = line.ask(self._defaults, self._args.system)
                own = 0 < ask.max_tokens < most
                limit = ask.max_tokens if own else self._args.max_tokens
                texts = list(ask.prompts)
                if ask.has_images:
                    is_one_shape = False
                    n_prompt = engine.prompts.count(ask.messages, ask.options)
                    n_cell = max(n_cell, n_prompt + 1 + max(limit, 1))
                elif ask.messages:
                    texts.append(engine.prompts.format(ask.messages, ask.options))
                for prompt in map(engine.prompts.prompt_tokens, texts):
                    n_cell = max(n_cell, len(prompt) + 1 + max(limit, 1))
                    prompts += [prompt] * ask.n
                n_answer = min(n_answer, limit)
            except (RequestRefused, RuntimeError):
                is_one_shape = False  # it is answered with this error
            self._notes.end(line.number)
        n_cell = min(n_cell, most, n_seen(self._attends) or n_cell)
        made = plan_group(engine, self._args.group, max(n_cell, 64), self.n_open)
        is_closed = self.n_open <= len(prompts) <= made.n
        if is_one_shape and is_closed and streams_pay(prompts, n_answer):
            return with_streams(engine, made, n_cell)
        return made

    def _lines(self) -> Iterator[Line]:
        """Yield the requests that are not answered."""
        seen: set[str] = set()
        for line in self._read():
            if line.id not in self._out.done and line.id not in seen:
                seen.add(line.id)
                yield line

    def _submit(self, engine: Engine, request: Request) -> None:
        try:
            engine.submit(request)
        except UntrustedError:
            raise
        except EngineError as error:
            request.handle.ended(GroupAnswer(request, fault=error))

    def _requests(self, only: frozenset[int] | None) -> Iterator[Request]:
        for line in self._lines():
            if self._is_over:
                return
            if only is not None and line.number not in only:
                continue
            try:
                ask = line.ask(self._defaults, self._args.system)
            except RequestRefused as error:
                self._write_error(line, str(error))
                continue
            prompts: tuple[Prompt | None, ...] = ask.prompts or (None,)
            found = _Open(line, ask, len(prompts) * ask.n)
            self._notes.begin(line.number)
            for choice in range(found.n):
                yield Request(
                    None,
                    ask.sampling.of_answer(choice % ask.n),
                    ask.max_tokens,
                    ask.messages,
                    prompts[choice // ask.n],
                    ask.options,
                    handle=_Choice(found, choice, self._given),
                )

    def _take(self, engine: Engine) -> None:
        """Write the answers that have ended; after a failure of all, they are asked again."""
        given, self._given[:] = list(self._given), []
        for choice, answer in given:
            self._take_one(engine, choice, answer)

    def _take_one(self, engine: Engine, handle: _Choice, given: GroupAnswer) -> None:
        """Write the answer to a request, once it has all its choices."""
        found, choice = handle.of, handle.number
        if given.finish_reason == "cancelled":
            return  # the next run answers it
        has_failed = bool(given.error and given.n_prompt)  # while it was computed
        self._n_lost = self._n_lost + 1 if has_failed else 0
        if self._n_lost > _LOST_MOST:
            raise UserError(
                f"Several requests in a row could not be computed. {given.error} The same command "
                "goes on with those that have no line."
            )
        if given.error:
            if found.line.id not in self._out.done:
                self._write_error(found.line, given.error)
            return
        self._n_token += given.n_token
        reasoning = given.text.reasoning
        is_first = choice % found.ask.n == 0
        finish = Finish(
            choice,
            given.finish_reason,
            n_prompt=given.n_prompt if is_first else 0,
            n_token=n_chosen(given.n_token, given.finish_reason, given.stop),
            n_reasoning=len(engine.prompts.tokenize(reasoning)) if reasoning else 0,
            stop=given.stop if given.stop in found.ask.options.stops else "",
            timings=Timings(runs=engine.cache.runs),
        )
        tokens = [token_of(p.chances, found.ask.n_top) for p in given.pieces if p.chances]
        found.choices.append(Choice(given.text, finish, tuple(tokens)))
        if len(found.choices) == found.n and found.line.id not in self._out.done:
            found.choices.sort(key=lambda c: c.finish.choice)
            self._write(found.line, answer_line(found.line, found.ask, self._model, found.choices))

    def _write_error(self, line: Line, reason: str) -> None:
        self._write(line, error_line(line, reason), is_failed=True)

    def _write(self, line: Line, data: Any, *, is_failed: bool = False) -> None:
        self._out.add(data)
        self._out.note(line.id, line.digest, is_failed=is_failed)
        self._notes.answered(line.number)

    def _show(self, runner: Runner) -> None:
        """Show how far it is, and the time that is left."""
        now_s = time.monotonic()
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        if now_s - self._shown_s < (_SHOW_S if is_terminal else _LOG_S):
            return
        self._shown_s = now_s
        took_s = now_s - self._began_s
        n_done = len(self._out.done) - self._n_before
        line = f"{len(self._out.done)} of {self._n_all} requests, {runner.n_running} at once"
        if runner.n_token and took_s > 0:
            line += f", {runner.n_token / took_s:.1f} token/s"
        if n_done:
            left_s = took_s / n_done * (self._n_all - len(self._out.done))
            line += f", about {_duration(left_s)} left"
        if is_terminal:
            show_progress(line)
        else:
            _notice(line + ".")


def _defaults(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that a request need not have."""
    given = {name: getattr(args, name, None) for name in Sampling.rules()}
    sampling(args)  # raises ValueError, one sentence
    return {
        **{name: value for name, value in given.items() if value is not None},
        "max_tokens": args.max_tokens,
    }


def _group(text: str) -> int:
    return 0 if text == "auto" else whole_number(1, 255)(text)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _notice(text: str) -> None:
    show_progress("")
    write_error(text)
