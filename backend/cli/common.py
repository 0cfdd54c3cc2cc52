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

from backend.memory.plan import KV_TYPES
from backend.protocol.settings import HYBRID


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


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add what every command that runs a model takes; None where the user says nothing."""
    add = parser.add_argument
    add("--cache-rate", type=cache_rate, metavar="R", help="share of the experts kept in memory")
    add("--method", type=method, metavar="M", help="how experts are kept and fetched")
    add("--context", type=whole_number(1, 1 << 24), metavar="N", help="context in tokens")
    add_device_option(parser)
    add(
        "--host-memory",
        dest="host_bytes",
        type=size_or_none,
        metavar="B",
        help="RAM that keeps experts for a device, such as 8G; 0: none (default: what is free)",
    )
    add("--threads", type=whole_number(0, 1024), metavar="N", help="threads; 0 lets it choose")
    add(
        "--no-pack",
        dest="pack",
        action="store_false",
        default=None,
        help="read experts from the model even where it has a pack",
    )
    add("--kv-type", choices=list(KV_TYPES), help="type of the attention cache (default f16)")


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Add what computes."""
    parser.add_argument(
        "--device",
        type=device,
        metavar="D",
        help="what computes: auto, cpu, a device's name, or rpc://host:port for a machine that you "
        "trust, since it is sent weights and prompts unencrypted (default auto)",
    )
    parser.add_argument(
        "--hybrid",
        choices=HYBRID,
        help="experts that a device lacks are copied to it (off), copied or computed by the "
        "processor, whichever ends sooner (auto), or all computed by the processor (cpu-only); but "
        "for off the answer is llama.cpp's except for rounding (default off)",
    )


def device(text: str) -> str:
    """Type of an argument: what computes."""
    from backend.memory.devices import TRUST, check_option, is_remote

    try:
        check_option(text)
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
    from backend.methods.catalogue import RUNNABLE

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
