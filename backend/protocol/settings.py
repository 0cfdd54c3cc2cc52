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
"""How missing experts of a device are handled (docs/devices.md): off: copied to the device; auto:
copied or computed by the processor, whichever ends sooner; cpu-only: computed by the processor."""
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
    """A kind of value: its types, and its words in the error for a value of another type."""

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
    """The valid values of a setting, and how it appears in messages and on the command line.

    refusal: the sentence for an invalid value, with {value}. above: the lowest value is excluded.
    may_be_none: None means that the engine decides. in_message: clients may send it, and the window
    remembers it. required: clients must send it. option: its name on the command line, with metavar
    and help; "": none. title: the caption of its control in the window; "": it has none. words: the
    window's words for each choice; of a count, for its lowest value. on_device: the window shows it
    only if a device computes. Title, words and tooltip are marked for translation, in the context
    "settings".
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
        """Return whether a value from JSON has the right type. A bool is not a number."""
        if value is None:
            return self.may_be_none
        types = KINDS[self.kind].types
        return isinstance(value, types) and (bool in types or not isinstance(value, bool))

    def check(self, value: Any) -> None:
        """Raise ValueError, one sentence, for an invalid value of the right type."""
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
    """How to run a model. Raises ValueError, one sentence, for an invalid value."""

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
    """Resident share of the bytes of all routed experts, 0 to 1; at least what one token needs."""
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
    """Length of the context in tokens."""
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
    """The device: "auto", "cpu", a device's name or rpc://host:port (backend.memory.devices)."""
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
    """How missing experts of a device are handled, of HYBRID. With "off" the answer is exactly
    llama.cpp's; otherwise rounding differs, because the processor's kernels round differently."""
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
    """Maximum of RAM that keeps experts for devices; None: all free RAM except the headroom."""
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
    """Number of compute threads; 0: one per physical core."""
    pack: bool = setting(
        True,
        "switch",
        option="--no-pack",
        help="read experts from the model even where it has a pack",
    )
    """Read experts from the model's pack (backend.packs), where there is one."""
    automatic: bool = setting(False, "switch")
    """Whether cache rate and context follow from the free memory (backend.memory.automatic)."""
    n_ubatch: int = setting(
        0,
        "count",
        "The batch size must be 0 to 65536, not {value}.",
        lowest=0,
        highest=1 << 16,
        in_message=False,
    )
    """Tokens of a prompt in one pass; 0: as many as memory permits."""
    keeps_outputs: bool = setting(False, "switch", in_message=False)
    """Whether every layer keeps every token's output, for recordings (Engine.compute)."""
    device_bytes: int = setting(
        0,
        "bytes",
        "The device's memory must be 0 or more, not {value}.",
        lowest=0,
        in_message=False,
    )
    """Maximum of each device's memory that is used; 0: all free memory except the headroom."""


@dataclass(frozen=True)
class Sampling(_Checked):
    """How the next token is sampled. Raises ValueError, one sentence, for an invalid value."""

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
        highest=(1 << 32) - 2,  # llama.cpp takes the next number for a random seed
        may_be_none=True,
    )
    """None: a random seed."""

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Read the field `sampling` of a request. Raises RequestError."""
        for name in message.keys() - cls.rules().keys():
            raise RequestError(f"Unknown sampling setting {ascii(name[:40])}.")
        return super().from_message(message)
