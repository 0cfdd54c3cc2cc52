"""Shared by the commands: errors in one sentence, types of arguments, formats of numbers."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import signal
import sys
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import fields
from types import FrameType
from typing import Any, NoReturn, TypeVar

from backend.memory.devices import TRUST, is_remote
from backend.methods.catalogue import RUNNABLE
from backend.protocol.settings import BY_HAND, EngineConfig, Rule, Sampling, Setup, check_device

T = TypeVar("T")

_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""The classes of characters that turn the direction of those behind them."""


class UserError(Exception):
    """An error that the user can mend; str() is one plain sentence. status: the exit status."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one plain sentence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Raise UserError with argparse's message as a sentence."""
        message = re.sub(r"^argument ([^:]+): ", r"\1: ", message)
        raise UserError(f"{_capital(message).rstrip('.')}; see {self.prog} --help.", status=2)


def say(*lines: str, error: bool = False) -> None:
    """Print lines for a person, to standard output or to standard error, if there is one.

    Others chose some words in them, such as the name of a file or of a model: each line is one line
    on the terminal, and does not control it.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is not None:
        print(*map(one_line, lines), sep="\n", file=stream, flush=True)


def write_error(sentence: str) -> None:
    """Write one sentence to standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        say(f"outrider: {sentence}", error=True)


def plain_sentence(error: BaseException) -> str:
    """Return one plain sentence about any exception."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        where = f": {os.fspath(error.filename)!s}" if error.filename else ""
        return f"{error.strerror}{where}."
    if isinstance(error, MemoryError):
        return "There is not enough memory."
    if type(error).__module__.startswith("backend."):
        return text
    return (
        f"Something unexpected failed ({type(error).__name__}: {text or 'no message'}); "
        "with OUTRIDER_DEBUG=1 in the environment it shows where."
    )


def printable(text: str) -> str:
    """Return a model's text of many lines without what controls a terminal."""
    return "".join(c for c in text if c in "\n\t" or not _controls(c))


def one_line(text: str) -> str:
    """Return a name or a sentence with "?" for what controls a terminal.

    That is also what ends a line or turns the direction, which a text of many lines may have.
    """
    return "".join("?" if _controls(c) or _breaks(c) else c for c in text)


def _controls(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs")


def _breaks(letter: str) -> bool:
    turns = unicodedata.bidirectional(letter) in _TURNS
    return turns or unicodedata.category(letter) in ("Zl", "Zp")


def add_engine_options(parser: argparse.ArgumentParser, *names: str, **defaults: Any) -> None:
    """Add the options of EngineConfig, or of the fields in `names` and `defaults`.

    An option that is not given is None, or its value in `defaults`.
    """
    _add_options(parser, EngineConfig, {*names, *defaults}, defaults)


def add_automatic_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of EngineConfig for a command whose settings are automatic by default."""
    _add_options(parser, EngineConfig, set(), {}, frozenset(BY_HAND))


def add_sampling_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add the options of Sampling. An option that is not given is None, or as in `defaults`."""
    _add_options(parser, Sampling, set(), defaults)


def _add_options(
    parser: argparse.ArgumentParser,
    settings: type[EngineConfig | Sampling],
    names: set[str],
    defaults: dict[str, Any],
    are_automatic: frozenset[str] = frozenset(),
) -> None:
    owners = (settings, Setup) if settings is EngineConfig else (settings,)
    initial = {f.name: f.default for owner in owners for f in fields(owner)}
    for name, rule in settings.rules().items():
        if not rule.option or (names and name not in names):
            continue
        default = defaults.get(name, initial[name])
        how: dict[str, Any] = {"dest": name, "help": rule.help, "default": defaults.get(name)}
        if name in are_automatic:
            how["help"] = f"{rule.help} (default: automatic)"
        elif (default or name in defaults) and rule.kind != "switch":
            how["help"] = f"{rule.help} (default {default})"
        if rule.kind == "switch":
            how["action"] = "store_false" if default else "store_true"
        elif rule.kind == "choice":
            how |= {"choices": rule.choices}
        else:
            how |= {"type": _argument(rule), "metavar": rule.metavar}
        parser.add_argument(rule.option, **how)


def engine_config(args: argparse.Namespace, **fixed: Any) -> EngineConfig:
    """Return the settings of the options of add_engine_options(). Raises ValueError, one sentence.

    fixed: fields that the command sets in place of the options.
    """
    return EngineConfig.of(**{**_given(args, EngineConfig), **fixed})


def automatic_config(args: argparse.Namespace) -> EngineConfig:
    """Return the settings of the options as engine_config() does; those not given are automatic."""
    return EngineConfig(automatic=True).decided(**_given(args, EngineConfig))


def sampling(args: argparse.Namespace) -> Sampling:
    """Return the values of the options of add_sampling_options()."""
    return Sampling(**_given(args, Sampling))


def _given(args: argparse.Namespace, settings: type[EngineConfig | Sampling]) -> dict[str, Any]:
    given = {name: getattr(args, name, None) for name in settings.rules()}
    return {name: value for name, value in given.items() if value is not None}


def _argument(rule: Rule) -> Callable[[str], Any]:
    """Return the argument type of a setting."""
    if rule.kind == "count":
        return whole_number(int(rule.lowest), int(rule.highest))
    if rule.kind == "number":
        return number(rule.lowest, rule.highest)
    return {
        "share": cache_rate,
        "bytes": size_or_none,
        "method": method,
        "device": device,
        "file": os.path.abspath,  # the worker may run in another folder
    }[rule.kind]


def device(text: str) -> str:
    """Parse an argument: a device. Warn of a remote one."""
    try:
        check_device(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None
    if is_remote(text):
        say(TRUST, error=True)
    return text


def size(text: str) -> int:
    """Parse an argument: bytes, with K, M, G or T for powers of 1024."""
    found = re.fullmatch(r"([0-9]{1,15})([KMGT]?)i?B?", text, re.IGNORECASE)
    n_bytes = int(found[1]) << (10 * " KMGT".index(found[2].upper() or " ")) if found else 0
    if not 0 < n_bytes < 1 << 62:
        raise argparse.ArgumentTypeError(f"must be a size such as 500M or 4G, not '{text}'")
    return n_bytes


def size_or_none(text: str) -> int:
    """Parse an argument: a size, or 0."""
    return 0 if text == "0" else size(text)


def share(what: str) -> Callable[[str], float]:
    """Return an argument type: a share from 0 to 1, or a percentage such as "25%"."""

    def parse(text: str) -> float:
        percent = text.endswith("%")
        try:
            value = float(text.removesuffix("%")) / (100 if percent else 1)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1:
            raise argparse.ArgumentTypeError(
                f"{what} must be a number from 0 to 1 or a percentage, not '{text}'"
            )
        return value

    return parse


cache_rate = share("the cache rate")


def method(text: str) -> str:
    """Parse an argument: the name of a method."""
    if text not in RUNNABLE:
        raise argparse.ArgumentTypeError(
            f"there is no method '{text}'; the methods are {', '.join(RUNNABLE)}"
        )
    return text


def whole_number(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """Return an argument type: a whole number from `lowest` to `highest`, both included."""
    limit = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = lowest - 1
        if value < lowest or (highest is not None and value > highest):
            raise argparse.ArgumentTypeError(f"must be a whole number {limit}, not '{text}'")
        return value

    return parse


def max_tokens(text: str) -> int:
    """Parse an argument: a positive count, or -1 for no limit."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1 and value != -1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least 1, or -1 for no limit, not '{text}'"
        )
    return value


def number(lowest: float, highest: float) -> Callable[[str], float]:
    """Return an argument type: a number from `lowest` to `highest`, both included."""
    wanted = f"must be a number from {lowest:g} to {highest:g}"
    return number_that(lambda value: lowest <= value <= highest, wanted)


def positive(what: str) -> Callable[[str], float]:
    """Return an argument type: a positive number. what: it, in an error."""
    return number_that(lambda value: 0 < value < math.inf, f"{what} must be a positive number")


def listed(kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return an argument type: values of an argument type, separated by commas."""
    return lambda text: tuple(map(kind, text.split(",")))


def number_that(is_valid: Callable[[float], bool], wanted: str) -> Callable[[str], float]:
    """Return an argument type: a number that `is_valid` accepts. `wanted`: what an error says."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not is_valid(value):
            raise argparse.ArgumentTypeError(f"{wanted}, not '{text}'")
        return value

    return parse


def show_progress(text: str) -> None:
    """Show progress in one line of the terminal, if there is one."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{one_line(text)}")
        sys.stderr.flush()


def show_loading(fraction: float, stage: str) -> bool:
    """Show the progress of loading a model. Return that it shall go on."""
    show_progress(f"{stage} {100 * fraction:.0f} %")
    return True


def bytes_text(n_bytes: int) -> str:
    """Return a readable size: "17.3 GiB"."""
    value, unit = float(n_bytes), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{n_bytes} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


class Interrupts(contextlib.AbstractContextManager["Interrupts"]):
    """Lets the first Ctrl-C call `stop` and the second raise KeyboardInterrupt.

    seen: the first one came. Where Ctrl-C is ignored, or handled already, it stays so.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self.seen = False
        self._stop = stop
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
        self._stop()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
