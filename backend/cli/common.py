"""What the commands share: errors in one sentence, the types of arguments, how numbers read."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, NoReturn

from backend.memory.devices import TRUST, is_remote
from backend.methods.catalogue import RUNNABLE
from backend.protocol.settings import EngineConfig, Rule, check_device


class UserError(Exception):
    """Something the user can mend; str() is one plain sentence. `status`: the exit status."""

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


def write_error(sentence: str) -> None:
    """Write one sentence to standard error, where there is one."""
    if sys.stderr is not None:
        try:
            print(f"outrider: {printable(sentence)}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            pass


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
    """Return `text` without control characters other than newline and tab.

    What a model or a file says must not steer the terminal.
    """
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))


def add_engine_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options of EngineConfig, or of the fields named; None where the user says nothing."""
    for name, rule in EngineConfig.rules().items():
        if not rule.option or (names and name not in names):
            continue
        how: dict[str, Any] = {"dest": name, "help": rule.help}
        if rule.kind == "switch":
            default = getattr(EngineConfig, name)
            how |= {"action": "store_false" if default else "store_true", "default": None}
        elif rule.kind == "choice":
            how |= {"choices": rule.choices}
        else:
            how |= {"type": _argument(rule), "metavar": rule.metavar}
        parser.add_argument(rule.option, **how)


def engine_config(args: argparse.Namespace, **fixed: Any) -> EngineConfig:
    """Return what the options of add_engine_options() ask for. Raises ValueError, one sentence.

    fixed: fields that the command decides itself, in place of the options.
    """
    given = {name: getattr(args, name, None) for name in EngineConfig.rules()}
    given = {name: value for name, value in given.items() if value is not None}
    return EngineConfig(**{**given, **fixed})


def _argument(rule: Rule) -> Callable[[str], Any]:
    """Return the type of the argument of a setting."""
    if rule.kind == "count":
        return whole_number(int(rule.lowest), int(rule.highest))
    return {"share": cache_rate, "bytes": size_or_none, "method": method, "device": device}[
        rule.kind
    ]


def device(text: str) -> str:
    """Type of an argument: what computes."""
    try:
        check_device(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None
    if is_remote(text):
        print(TRUST, file=sys.stderr)
    return text


def size(text: str) -> int:
    """Type of an argument: bytes, with K, M, G or T for powers of 1024."""
    found = re.fullmatch(r"([0-9]{1,15})([KMGT]?)i?B?", text, re.IGNORECASE)
    n_bytes = int(found[1]) << (10 * " KMGT".index(found[2].upper() or " ")) if found else 0
    if not 0 < n_bytes < 1 << 62:
        raise argparse.ArgumentTypeError(f"must be a size such as 500M or 4G, not '{text}'")
    return n_bytes


def size_or_none(text: str) -> int:
    """Type of an argument: a size, or 0."""
    return 0 if text == "0" else size(text)


def cache_rate(text: str) -> float:
    """Type of an argument: a share from 0 to 1, or a percentage such as "25%"."""
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(
            f"the cache rate must be a number from 0 to 1 or a percentage, not '{text}'"
        )
    return value


def method(text: str) -> str:
    """Type of an argument: the name of a method."""
    if text not in RUNNABLE:
        raise argparse.ArgumentTypeError(
            f"there is no method '{text}'; the methods are {', '.join(RUNNABLE)}"
        )
    return text


def whole_number(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """Return the type of an argument: a whole number from `lowest` to `highest`, both allowed."""
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
    """Type of an argument: a positive count, or -1 for no limit."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1 and value != -1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least 1, or -1 for no limit, not '{text}'"
        )
    return value


def temperature(text: str) -> float:
    """Type of an argument: a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, not '{text}'")
    return value


def bytes_text(n_bytes: int) -> str:
    """Return a size for people: "17.3 GiB"."""
    value, unit = float(n_bytes), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{n_bytes} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
