"""The settings of an engine and of sampling, each defined once.

A field's default, its check, its option on the command line, its field in a message and its control
in the window all follow from one `setting(...)`. docs/howto/setting.md adds one as an example.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from backend.methods.catalogue import RUNNABLE
from backend.protocol.errors import RequestError
from backend.text import text
from backend.text.english import QT_TRANSLATE_NOOP

KV_TYPES = {"f16": 16.0, "q8_0": 8.5, "q4_0": 4.5}
"""Types of the attention cache, with bits per value. The quantised ones have a scale per 32."""
HYBRID = ("off", "auto", "cpu-only")
"""What happens to experts that a device lacks (docs/devices.md): all are copied to it; copied or
computed by the processor, whichever ends sooner; all are computed by the processor."""
DEVICE_AUTO = "auto"
DEVICE_CPU = "cpu"
REMOTE = re.compile(r"rpc://([A-Za-z0-9][A-Za-z0-9._-]*):([0-9]{1,5})")


def check_device(option: str) -> None:
    """Raise ValueError, one sentence, where `option` can never name devices."""
    for part in option.split(","):
        if part.startswith("rpc:"):
            match = REMOTE.fullmatch(part)
            if not match or not 0 < int(match[2]) < 1 << 16:
                raise ValueError(text("device.form", given=repr(part)))
        elif not part.strip():
            raise ValueError("The device must be auto, cpu, a device's name or rpc://host:port.")
        elif part in (DEVICE_AUTO, DEVICE_CPU) and part != option:
            raise ValueError(f"The device {part} cannot be combined with others.")


@dataclass(frozen=True)
class Kind:
    """A kind of value: which types it may have, and what a message says where it has another."""

    types: tuple[type, ...]
    words: str


KINDS: Mapping[str, Kind] = {
    "share": Kind((int, float), "a number"),
    "number": Kind((int, float), "a number"),
    "count": Kind((int,), "an integer"),
    "bytes": Kind((int,), "an integer"),
    "switch": Kind((bool,), "true or false"),
    "choice": Kind((str,), "text"),
    "method": Kind((str,), "text"),
    "device": Kind((str,), "text"),
}
"""share: 0 to 1. count, bytes: whole numbers. choice: one of a few texts. method: a name of
RUNNABLE. device: see check_device()."""


@dataclass(frozen=True)
class Rule:
    """What one setting may be, and how people meet it.

    refusal: the sentence for a value that does not fit, with {value}. above: the lowest value is
    excluded. may_be_none: None means that the engine decides. in_message: clients may send it, and
    the window remembers it; required: they must. option: of the command line, with metavar and
    help; empty: it has none. title: the caption of its control in the window; empty: the window
    does not show it. words: what the window calls each choice; of a count, its lowest value.
    on_device: the window shows it only if a device computes. Title, words and tooltip are marked
    for translation, in the context "settings".
    """

    kind: str
    refusal: str = ""
    lowest: float = -math.inf
    highest: float = math.inf
    above: bool = False
    choices: tuple[str, ...] = ()
    may_be_none: bool = False
    in_message: bool = True
    required: bool = False
    option: str = ""
    metavar: str = ""
    help: str = ""
    title: str = ""
    words: tuple[str, ...] = ()
    tooltip: str = ""
    on_device: bool = False

    def has_type(self, value: object) -> bool:
        """Whether a value from JSON is of the right type. A bool is no number."""
        if value is None:
            return self.may_be_none
        types = KINDS[self.kind].types
        return isinstance(value, types) and (bool in types or not isinstance(value, bool))

    def check(self, value: Any) -> None:
        """Raise ValueError, one sentence, where a value of the right type does not fit."""
        if value is None and self.may_be_none:
            return
        if self.kind == "device":
            check_device(value)
        elif self.choices:
            if value not in self.choices:
                known = ", ".join(self.choices)
                raise ValueError(self.refusal.format(known=known, value=repr(value)))
        elif self.kind != "switch":
            low = self.lowest < value if self.above else self.lowest <= value
            if not (low and value <= self.highest):
                raise ValueError(self.refusal.format(value=value))


def setting(default: Any, kind: str, refusal: str = "", **rule: Any) -> Any:
    """Return a dataclass field with its Rule."""
    return field(default=default, metadata={"rule": Rule(kind, refusal, **rule)})


class _Checked:
    """A dataclass whose fields have rules."""

    def __post_init__(self) -> None:
        for name, rule in self.rules().items():
            rule.check(getattr(self, name))

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """Return the rule of every field, by name."""
        return {item.name: item.metadata["rule"] for item in dataclasses.fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Read the fields that clients may send and ignore all others. Raises RequestError."""
        given = {}
        for name, rule in cls.rules().items():
            if rule.in_message and name in message:
                given[name] = message[name]
                if not rule.has_type(given[name]):
                    raise RequestError(f"The setting {name} must be {KINDS[rule.kind].words}.")
        try:
            return cls(**given)
        except ValueError as error:
            raise RequestError(str(error)) from None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that clients may send, by name."""
        return {name: getattr(self, name) for name, rule in self.rules().items() if rule.in_message}


@dataclass(frozen=True)
class EngineConfig(_Checked):
    """How to run a model. Raises ValueError, one sentence, on values that make no sense."""

    cache_rate: float = setting(
        0.25,
        "share",
        "The cache rate must lie between 0 and 1, not {value}.",
        lowest=0,
        highest=1,
        required=True,
        option="--cache-rate",
        metavar="R",
        help="share of the experts kept in memory (default 0.25)",
    )
    """Share of all routed-expert bytes that is resident, 0 to 1; at least what one token needs."""
    method: str = setting(
        "promoe",
        "method",
        "The method {value} is not known; known are {known}.",
        choices=tuple(RUNNABLE),
        required=True,
        option="--method",
        metavar="M",
        help="how experts are kept and fetched (default promoe)",
        title=QT_TRANSLATE_NOOP("settings", "Method"),
    )
    """A name in backend.methods.catalogue.RUNNABLE."""
    context_length: int = setting(
        4096,
        "count",
        "The context length must be positive, not {value}.",
        lowest=1,
        highest=1 << 24,
        required=True,
        option="--context",
        metavar="N",
        help="context in tokens (default 4096)",
        title=QT_TRANSLATE_NOOP("settings", "Context in tokens"),
    )
    """Tokens of conversation that are kept."""
    kv_type: str = setting(
        "f16",
        "choice",
        "The attention cache may be {known}, not {value}.",
        choices=tuple(KV_TYPES),
        option="--kv-type",
        help="type of the attention cache (default f16)",
        title=QT_TRANSLATE_NOOP("settings", "Attention cache"),
        words=(
            QT_TRANSLATE_NOOP("settings", "16 bits"),
            QT_TRANSLATE_NOOP("settings", "8 bits"),
            QT_TRANSLATE_NOOP("settings", "4 bits"),
        ),
        tooltip=QT_TRANSLATE_NOOP(
            "settings", "How the conversation is remembered: fewer bits need less memory."
        ),
    )
    """Type of the attention cache, a key of KV_TYPES."""
    device: str = setting(
        DEVICE_AUTO,
        "device",
        option="--device",
        metavar="D",
        help="what computes: auto, cpu, a device's name, or rpc://host:port for a machine that you "
        "trust, since it is sent weights and prompts unencrypted (default auto)",
        title=QT_TRANSLATE_NOOP("settings", "Device"),
    )
    """What computes: "auto", "cpu", a device's name or rpc://host:port (backend.memory.devices)."""
    hybrid: str = setting(
        "off",
        "choice",
        "Experts that a device lacks may be {known}, not {value}.",
        choices=HYBRID,
        option="--hybrid",
        help="experts that a device lacks are copied to it (off), copied or computed by the "
        "processor, whichever ends sooner (auto), or all computed by the processor (cpu-only); but "
        "for off the answer is llama.cpp's except for rounding (default off)",
        title=QT_TRANSLATE_NOOP("settings", "Missing experts"),
        words=(
            QT_TRANSLATE_NOOP("settings", "copy"),
            QT_TRANSLATE_NOOP("settings", "both"),
            QT_TRANSLATE_NOOP("settings", "compute"),
        ),
        tooltip=QT_TRANSLATE_NOOP(
            "settings",
            "Experts that the device lacks are copied to its memory, or computed by the "
            "processor where they lie.",
        ),
        on_device=True,
    )
    """What happens to experts that a device lacks, of HYBRID. Except for "off" the answer is
    llama.cpp's except for rounding: the processor's kernels round differently from a device's."""
    host_bytes: int | None = setting(
        None,
        "bytes",
        "The host's memory must be 0 or more, not {value}.",
        lowest=0,
        may_be_none=True,
        option="--host-memory",
        metavar="B",
        help="RAM that keeps experts for a device, such as 8G; 0: none (default: what is free)",
    )
    """RAM that keeps experts for devices, at most; None: what is free except for headroom."""
    n_thread: int = setting(
        0,
        "count",
        "The number of threads must be 0 to 1024, not {value}.",
        lowest=0,
        highest=1024,
        required=True,
        option="--threads",
        metavar="N",
        help="threads; 0 lets it choose",
        title=QT_TRANSLATE_NOOP("settings", "Threads"),
        words=(QT_TRANSLATE_NOOP("settings", "automatic"),),
    )
    """Threads that compute; 0: one per physical core."""
    pack: bool = setting(
        True,
        "switch",
        option="--no-pack",
        help="read experts from the model even where it has a pack",
    )
    """Read experts from the model's pack (backend.packs), where there is one."""
    automatic: bool = setting(False, "switch")
    """Whether memory decides about the cache rate and the context (backend.memory.automatic)."""
    n_ubatch: int = setting(
        0,
        "count",
        "The batch size must be 0 to 65536, not {value}.",
        lowest=0,
        highest=1 << 16,
        in_message=False,
    )
    """Tokens of a prompt that are computed at once; 0: as many as memory permits."""
    keeps_outputs: bool = setting(False, "switch", in_message=False)
    """Whether every layer may be asked for every token's output, as recordings do (compute())."""
    device_bytes: int = setting(
        0,
        "bytes",
        "The device's memory must be 0 or more, not {value}.",
        lowest=0,
        in_message=False,
    )
    """Of each device's memory at most so much is used; 0: what is free except for headroom."""


@dataclass(frozen=True)
class Sampling(_Checked):
    """How the next token is drawn. Raises ValueError, one sentence, on values out of range."""

    temperature: float = setting(
        0.7,
        "number",
        "The sampling value temperature must be 0 to 100, not {value}.",
        lowest=0,
        highest=100,
    )
    """0: always the most probable token."""
    top_k: int = setting(
        40,
        "count",
        "The sampling value top_k must be 0 or more, not {value}.",
        lowest=0,
        highest=1 << 30,
    )
    """Only the k most probable tokens; 0: all."""
    top_p: float = setting(
        0.95,
        "number",
        "The sampling value top_p must be 0 to 1, not {value}.",
        lowest=0,
        highest=1,
    )
    """Only the most probable tokens that together have this probability; 1: all."""
    min_p: float = setting(
        0.05,
        "number",
        "The sampling value min_p must be 0 to 1, not {value}.",
        lowest=0,
        highest=1,
    )
    """Only tokens with at least this share of the best one's probability; 0: all."""
    repeat_penalty: float = setting(
        1.0,
        "number",
        "The sampling value repeat_penalty must be 0 to 10, not {value}.",
        lowest=0,
        highest=10,
        above=True,
    )
    """Divides the scores of the last 64 tokens; 1: off."""
    seed: int | None = setting(
        None,
        "count",
        "The sampling value seed must be 0 to 4294967294, not {value}.",
        lowest=0,
        highest=(1 << 32) - 2,  # llama.cpp's name for "another one every time" is the next number
        may_be_none=True,
    )
    """None: another one every time."""

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Read the field `sampling` of a request; raises RequestError."""
        for name in message.keys() - cls.rules().keys():
            raise RequestError(f"Unknown sampling setting {ascii(name[:40])}.")
        return super().from_message(message)
