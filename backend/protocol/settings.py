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
from backend.text import Text, text


def QT_TRANSLATE_NOOP(context: str, words: str) -> str:
    """Mark words for Qt's tools, which collect them by this name."""
    return words


KV_TYPES = {"f16": 16.0, "q8_0": 8.5, "q4_0": 4.5}
"""Types of the attention cache, with bits per value. The quantised ones have a scale per 32."""
DRAFTED_MAX = 8
"""Tokens of an answer that are guessed for one pass, at most (backend.engine.drafts)."""
_BACK = 4
"""The most of them where llama.cpp keeps recurrent states: each needs a copy of all states."""
_CHECKPOINTS_MAX = 6
"""Checkpoints of recurrent states in memory, at most. Each is as large as such a state."""
HYBRID = ("off", "auto", "cpu-only")
"""How missing experts of a device are handled (docs/devices.md): off: copied to the device; auto:
copied or computed by the processor, whichever ends sooner; cpu-only: computed by the processor."""
CHAIN = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
"""llama.cpp's samplers in its usual order."""
BY_HAND = ("cache_rate", "method", "context_length")
"""The settings that the automatic mode decides."""
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
            raise ValueError(text("device.empty"))
        elif part in (DEVICE_AUTO, DEVICE_CPU) and part != option:
            raise ValueError(text("device.alone", device=part))


@dataclass(frozen=True)
class Kind:
    """A kind of value: its types, and its words in the error for a value of another type."""

    types: tuple[type, ...]
    words: Text


KINDS: Mapping[str, Kind] = {
    "share": Kind((int, float), text("kind.number")),
    "number": Kind((int, float), text("kind.number")),
    "count": Kind((int,), text("kind.integer")),
    "bytes": Kind((int,), text("kind.integer")),
    "switch": Kind((bool,), text("kind.switch")),
    "choice": Kind((str,), text("kind.text")),
    "method": Kind((str,), text("kind.text")),
    "device": Kind((str,), text("kind.text")),
    "file": Kind((str,), text("kind.text")),
    "biases": Kind((tuple, list), text("kind.biases")),
    "names": Kind((tuple, list), text("kind.names")),
    "texts": Kind((tuple, list), text("kind.texts")),
}
"""share: 0 to 1. count, bytes: whole numbers. choice: one of a few texts. method: a name of
RUNNABLE. device: see check_device(). file: a path, or "". biases: pairs of a token id and a
number, see Sampling.logit_bias. names: a tuple of some of the choices. texts: a tuple of texts."""


@dataclass(frozen=True)
class Rule:
    """The valid values of a setting, and how it appears in messages and on the command line.

    above: the lowest value is excluded. may_be_none: None means that the engine decides.
    in_message: clients may send it, and the window remembers it. required: clients must send it.
    rebuilds: "cache" or "context" if a change rebuilds it; "" if the plan's other fields show what
    a change needs.

    option: its name on the command line, with metavar and help (the default is added); "": none.
    title: the caption of its control in the window; "": it has none. words: the window's words for
    each choice; of a count, for its lowest value. on_device: the window shows it only if a device
    computes. window: the range of the control, where it is narrower. Title, words and tooltip are
    marked for translation, in the context "settings".
    """

    kind: str
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
    window: tuple[float, float] | None = None
    rebuilds: str = ""

    def has_type(self, value: object) -> bool:
        """Return whether a value from JSON has the right type. A bool is not a number."""
        if value is None:
            return self.may_be_none
        types = KINDS[self.kind].types
        return isinstance(value, types) and (bool in types or not isinstance(value, bool))

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError, one sentence, for an invalid value of the right type."""
        if value is None and self.may_be_none:
            return
        low, high, given = self.lowest, self.highest, repr(value)
        if self.kind == "device":
            check_device(value)
        elif self.kind == "file":
            return
        elif self.kind == "biases":
            if not all(_is_pair(pair) and low <= pair[1] <= high for pair in value):
                raise ValueError(text("setting.biases", name=name, low=low, high=high))
        elif self.kind == "names":
            if not all(name in self.choices for name in value):
                known = ", ".join(self.choices)
                raise ValueError(text("setting.choice", name=name, known=known, value=given))
        elif self.kind == "texts":
            if not value or not all(isinstance(one, str) for one in value):
                raise ValueError(text("setting.texts", name=name))
        elif self.choices:
            if value not in self.choices:
                known = ", ".join(self.choices)
                raise ValueError(text("setting.choice", name=name, known=known, value=given))
        elif self.kind == "switch" or ((value != low or not self.above) and low <= value <= high):
            return
        elif high == math.inf:
            raise ValueError(text("setting.least", name=name, low=low, value=given))
        elif self.above:
            raise ValueError(text("setting.above", name=name, low=low, high=high, value=given))
        else:
            raise ValueError(text("setting.range", name=name, low=low, high=high, value=given))


def _is_pair(value: object) -> bool:
    """Return whether a value is a pair of a token id and a number."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    token, number = value
    is_number = isinstance(number, int | float) and number is not True
    is_token = type(token) is int and 0 <= token < 1 << 31
    return is_number and (is_token or isinstance(token, str))


def setting(default: Any, kind: str, **rule: Any) -> Any:
    """Return a dataclass field with its Rule."""
    return field(default=default, metadata={"rule": Rule(kind, **rule)})


class _Checked:
    """A dataclass whose fields have rules."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            if "rule" in item.metadata:
                item.metadata["rule"].check(item.name, getattr(self, item.name))

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """Return the rule of every field, by name."""
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        return {item.name: item.metadata["rule"] for item in fields if "rule" in item.metadata}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Read the fields that clients may send and ignore all others. Raises RequestError."""
        given = {}
        for name, rule in cls.rules().items():
            if rule.in_message and name in message:
                given[name] = message[name]
                if not rule.has_type(given[name]):
                    kind = KINDS[rule.kind].words
                    raise RequestError(text("setting.type", name=name, kind=kind))
                if rule.kind in ("names", "texts"):
                    given[name] = tuple(given[name])
        try:
            return cls.of(**given)
        except ValueError as error:
            raise RequestError(str(error)) from None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that clients may send, by name."""
        return {name: self.value(name) for name, rule in self.rules().items() if rule.in_message}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return settings with these values. Raises ValueError, one sentence."""
        return cls(**values)

    def value(self, name: str) -> Any:
        """Return the value of a setting, by a name of rules()."""
        return getattr(self, name)


@dataclass(frozen=True)
class Setup(_Checked):
    """The settings that the program decides which opens an engine.

    These are files beside the model, how answers share the context, and what recordings,
    experiments and tests need.
    Raises ValueError, one sentence, for an invalid value.
    """

    kv_on_drive: bool = setting(
        False,
        "switch",
        in_message=False,
        option="--kv-on-drive",
        help="keep the attention cache in a file, for more requests or longer texts than memory "
        "has room for (Linux)",
        rebuilds="context",
    )
    """Whether the attention cache is a file's pages (Klotski, section 6.1)."""
    mmproj: str = setting(
        "",
        "file",
        option="--mmproj",
        metavar="FILE",
        help="the part of the model that sees images (default: the mmproj file that fits best)",
    )
    """The file with which the model sees images; "": one beside the model, where there is one."""
    embedding_model: str = setting("", "file", in_message=False)
    """The file of a small model for embeddings, for which memory is left; "": none. The engine does
    not load it: its owner does (backend.engine.embedding_model)."""
    n_ubatch: int = setting(
        0,
        "count",
        lowest=0,
        highest=1 << 16,
        in_message=False,
        rebuilds="context",
    )
    """Tokens of a prompt in one pass; 0: as many as memory permits."""
    n_sequence: int = setting(
        1,
        "count",
        lowest=1,
        highest=255,
        in_message=False,
        rebuilds="context",
    )
    """Answers that may be computed at once (Engine.submit). They share the context."""
    streams: bool = setting(False, "switch", in_message=False, rebuilds="context")
    """Whether each of them has an equal part of the context instead, which no other one uses."""
    keeps_conversations: bool = setting(True, "switch", in_message=False, rebuilds="context")
    """Whether later requests may go on with what earlier ones left; nothing of a batch is gone on
    with."""
    keeps_outputs: bool = setting(False, "switch", in_message=False, rebuilds="context")
    """Whether every layer keeps every token's output, for recordings (Engine.compute). Belongs to a
    request, not to the engine."""
    device_bytes: int = setting(
        0,
        "bytes",
        lowest=0,
        in_message=False,
    )
    """Maximum of each device's memory that is used; 0: all free memory except the headroom."""


@dataclass(frozen=True)
class EngineConfig(_Checked):
    """How to run a model. Raises ValueError, one sentence, for an invalid value."""

    cache_rate: float = setting(
        0.25,
        "share",
        lowest=0,
        highest=1,
        required=True,
        option="--cache-rate",
        metavar="R",
        help="share of the experts kept in memory",
    )
    """Resident share of the bytes of all routed experts, 0 to 1; at least what one token needs."""
    method: str = setting(
        "promoe",
        "method",
        choices=tuple(RUNNABLE),
        required=True,
        option="--method",
        metavar="M",
        help="how experts are kept and fetched",
        title=QT_TRANSLATE_NOOP("settings", "Method"),
        rebuilds="cache",
    )
    """A name in backend.methods.catalogue.RUNNABLE."""
    context_length: int = setting(
        4096,
        "count",
        lowest=1,
        highest=1 << 24,
        required=True,
        option="--context",
        metavar="N",
        help="context in tokens",
        title=QT_TRANSLATE_NOOP("settings", "Context in tokens"),
        rebuilds="context",
    )
    """Length of the context in tokens."""
    kv_type: str = setting(
        "f16",
        "choice",
        choices=tuple(KV_TYPES),
        option="--kv-type",
        help="type of the attention cache",
        title=QT_TRANSLATE_NOOP("settings", "Attention cache"),
        words=(
            QT_TRANSLATE_NOOP("settings", "16 bits"),
            QT_TRANSLATE_NOOP("settings", "8 bits"),
            QT_TRANSLATE_NOOP("settings", "4 bits"),
        ),
        tooltip=QT_TRANSLATE_NOOP(
            "settings", "How the conversation is remembered: fewer bits need less memory."
        ),
        rebuilds="context",
    )
    """Type of the attention cache, a key of KV_TYPES."""
    device: str = setting(
        DEVICE_AUTO,
        "device",
        option="--device",
        metavar="D",
        help="what computes: auto, cpu, a device's name, or rpc://host:port for a machine that you "
        "trust, since it is sent weights and prompts unencrypted",
        title=QT_TRANSLATE_NOOP("settings", "Device"),
    )
    """The device: "auto", "cpu", a device's name or rpc://host:port (backend.memory.devices)."""
    hybrid: str = setting(
        "off",
        "choice",
        choices=HYBRID,
        option="--hybrid",
        help="experts that a device lacks are copied to it (off), copied or computed by the "
        "processor, whichever ends sooner (auto), or all computed by the processor (cpu-only); "
        "auto and cpu-only round differently from llama.cpp",
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
        rebuilds="cache",
    )
    """How missing experts of a device are handled, of HYBRID. With "off" the answer is exactly
    llama.cpp's; otherwise rounding differs, because the processor's kernels round differently."""
    drafts: str = setting(
        "off",
        "choice",
        choices=("off", "auto"),
        option="--drafts",
        help="guess the next tokens where the text repeats itself or with the model's own layer "
        "for them, and check them in one pass while that is faster (auto); a pass of several "
        "tokens rounds differently from llama.cpp's passes of one",
        title=QT_TRANSLATE_NOOP("settings", "Drafts"),
        words=(
            QT_TRANSLATE_NOOP("settings", "off"),
            QT_TRANSLATE_NOOP("settings", "automatic"),
        ),
        tooltip=QT_TRANSLATE_NOOP(
            "settings",
            "Where the text repeats itself or the model has a layer for it, the next words are "
            "guessed and checked together. An edit or a quotation is then written faster.",
        ),
        rebuilds="context",
    )
    """Whether tokens are guessed (backend.engine.drafts): off, or auto: while it is faster. Belongs
    to a request, not to the engine."""
    host_bytes: int | None = setting(
        None,
        "bytes",
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
        lowest=0,
        highest=1024,
        required=True,
        option="--threads",
        metavar="N",
        help="threads; 0 lets it choose",
        title=QT_TRANSLATE_NOOP("settings", "Threads"),
        words=(QT_TRANSLATE_NOOP("settings", "automatic"),),
        rebuilds="context",
    )
    """Number of compute threads; 0: one per physical core."""
    pack: bool = setting(
        True,
        "switch",
        option="--no-pack",
        help="read experts from the model even where it has a pack",
    )
    """Read experts from the model's pack (backend.packs), where there is one."""
    kept_mib: int = setting(
        4096,
        "count",
        lowest=0,
        highest=1 << 24,
        option="--keep-states",
        metavar="MIB",
        help="MiB of the drive on which chats and the server keep what the model has read, so that "
        "it is not read again; at most a tenth of what is free; 0: nothing is kept",
        title=QT_TRANSLATE_NOOP("settings", "Keep chats ready, in MiB"),
        words=(QT_TRANSLATE_NOOP("settings", "off"),),
        tooltip=QT_TRANSLATE_NOOP(
            "settings",
            "What the model has read of a chat stays on the drive, so that the chat goes on at "
            "once when you open it again. Never more than a tenth of the free space. A deleted "
            "chat leaves nothing.",
        ),
        window=(0, 1 << 20),
    )
    """MiB that kept states of conversations take on the drive (backend.engine.keeping); 0: none."""
    automatic: bool = setting(False, "switch")
    """Whether cache rate, method and context follow from the free memory and from measurements
    (backend.memory.automatic), except those in by_hand."""
    by_hand: tuple[str, ...] = setting((), "names", choices=BY_HAND)
    """The settings that keep their values although `automatic` is set, of BY_HAND."""
    setup: Setup = Setup()

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """Return the rule of every field and of those of Setup, by name."""
        return {**super().rules(), **Setup.rules()}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return settings with these values, also of fields of Setup. Raises ValueError."""
        return cls().changed(**values)

    def value(self, name: str) -> Any:
        """Return the value of a setting, by a name of rules()."""
        return getattr(self.setup if name in Setup.rules() else self, name)

    def changed(self, **values: Any) -> Self:
        """Return the settings with these values, also of fields of Setup. Raises ValueError."""
        of_setup = {name: values.pop(name) for name in Setup.rules() if name in values}
        setup = dataclasses.replace(self.setup, **of_setup)
        return dataclasses.replace(self, **{"setup": setup, **values})

    def decided(self, **values: Any) -> Self:
        """Return the settings with these values. In automatic mode they are then set by hand."""
        names = [name for name in BY_HAND if name in self.by_hand or name in values]
        by_hand = tuple(names) if self.automatic else self.by_hand
        return self.changed(**values, by_hand=by_hand)

    @property
    def n_output(self) -> int:
        """The most tokens of a pass whose logits are kept; 0: all."""
        return 0 if self.setup.keeps_outputs else 1 + DRAFTED_MAX * (self.drafts != "off")

    @property
    def n_back(self) -> int:
        """The last tokens whose recurrent states are kept, so that they can be taken back.

        States of several sequences would take too much (see `holds`), and on the drive they would
        be slow.
        """
        is_alone = self.setup.n_sequence == 1 and not self.setup.kv_on_drive
        return _BACK if self.drafts != "off" and is_alone else 0

    @property
    def n_checkpoint(self) -> int:
        """The recurrent states that are kept in memory, so that a conversation can go back.

        One for each sequence, and two more: an edit of an earlier question goes back further.
        """
        setup = self.setup
        if setup.streams or not setup.keeps_conversations:
            return 0
        return min(2 + setup.n_sequence, _CHECKPOINTS_MAX)

    @property
    def n_seq_max(self) -> int:
        """The sequences of a context. One more holds the beginning that prompts share."""
        n_sequence = self.setup.n_sequence
        return n_sequence + (n_sequence > 1 and not self.setup.streams)

    @property
    def windows(self) -> bool:
        """Whether layers with a sliding window keep its cells only, in memory."""
        return not (self.setup.streams or self.setup.kv_on_drive)

    @property
    def holds(self) -> bool:
        """Whether a sequence of its own may hold a recurrent state while guesses are tried.

        It is the one in which other models hold a beginning that prompts share.
        """
        setup = self.setup
        has_one_more = setup.n_sequence > 1 and not setup.streams
        return self.drafts != "off" and has_one_more and not setup.kv_on_drive

    def parts(self, rebuilds: str) -> dict[str, Any]:
        """Return the settings that "cache" or "context" is built from, by name."""
        rules = self.rules().items()
        return {name: self.value(name) for name, rule in rules if rule.rebuilds == rebuilds}


@dataclass(frozen=True)
class Sampling(_Checked):
    """How the next token is sampled. Raises ValueError, one sentence, for an invalid value."""

    temperature: float = setting(
        0.7,
        "number",
        lowest=0,
        highest=100,
        option="--temperature",
        metavar="T",
        help="0 always takes the most probable token",
        title=QT_TRANSLATE_NOOP("settings", "Temperature"),
        tooltip=QT_TRANSLATE_NOOP(
            "settings", "0 always takes the most probable token; higher is more varied."
        ),
        window=(0, 5),
    )
    """0: always the most probable token."""
    top_k: int = setting(
        40,
        "count",
        lowest=0,
        highest=1 << 30,
        title=QT_TRANSLATE_NOOP("settings", "Top k"),
        tooltip=QT_TRANSLATE_NOOP("settings", "Only the k most probable tokens; 0: all."),
        window=(0, 1000),
    )
    """Only the k most probable tokens; 0: all."""
    top_p: float = setting(
        0.95,
        "number",
        lowest=0,
        highest=1,
        title=QT_TRANSLATE_NOOP("settings", "Top p"),
        tooltip=QT_TRANSLATE_NOOP(
            "settings", "Only the most probable tokens that together have this probability; 1: all."
        ),
        window=(0, 1),
    )
    """Only the most probable tokens that together have this probability; 1: all."""
    min_p: float = setting(
        0.05,
        "number",
        lowest=0,
        highest=1,
        title=QT_TRANSLATE_NOOP("settings", "Min p"),
        tooltip=QT_TRANSLATE_NOOP(
            "settings",
            "Only tokens with at least this share of the best one's probability; 0: all.",
        ),
        window=(0, 1),
    )
    """Only tokens with at least this share of the best one's probability; 0: all."""
    repeat_penalty: float = setting(
        1.0,
        "number",
        lowest=0,
        highest=10,
        above=True,
        title=QT_TRANSLATE_NOOP("settings", "Repeat penalty"),
        tooltip=QT_TRANSLATE_NOOP("settings", "Above 1, recent tokens become less probable."),
        window=(0.5, 2),
    )
    """Divides the scores of the last `repeat_last_n` tokens; 1: off."""
    presence_penalty: float = setting(
        0.0,
        "number",
        lowest=-2,
        highest=2,
    )
    """Subtracted from the score of each of the last `repeat_last_n` tokens; 0: off."""
    frequency_penalty: float = setting(
        0.0,
        "number",
        lowest=-2,
        highest=2,
    )
    """Subtracted from a token's score for each time it is among these tokens; 0: off."""
    logit_bias: tuple[tuple[int | str, float], ...] = setting(
        (),
        "biases",
        lowest=-100,
        highest=100,
    )
    """Pairs of a token, or a text, and a number that is added to its score, or to those of the
    text's tokens; -100 nearly excludes it. False in place of a number excludes it."""
    n_probs: int = setting(
        0,
        "count",
        lowest=0,
        highest=100,
    )
    """Report the probabilities of this number of most probable tokens at each place; 0: none."""
    seed: int | None = setting(
        None,
        "count",
        lowest=0,
        highest=(1 << 32) - 2,  # llama.cpp takes the next number for a random seed
        may_be_none=True,
        option="--seed",
        metavar="S",
        help="repeatable sampling",
        window=(0, 1 << 31),
    )
    """None: a random seed."""
    repeat_last_n: int = setting(64, "count", lowest=-1, highest=1 << 30)
    """The number of last tokens, also of the prompt, that the penalties see; -1: all."""
    min_keep: int = setting(0, "count", lowest=0, highest=1 << 30)
    """The number of tokens that a sampler leaves at least."""
    typical_p: float = setting(1.0, "number", lowest=0, highest=1)
    """Only locally typical tokens that together have this probability; 1: all."""
    top_n_sigma: float = setting(-1.0, "number", lowest=-1, highest=1000)
    """Only tokens whose score is within n standard deviations of the best; below 0: all."""
    xtc_probability: float = setting(0.0, "number", lowest=0, highest=1)
    """How often all tokens above `xtc_threshold` but the last one are removed; 0: never."""
    xtc_threshold: float = setting(0.1, "number", lowest=0, highest=1)
    """The least probability of a token that XTC removes; above 0.5: off."""
    dry_multiplier: float = setting(0.0, "number", lowest=0, highest=1000)
    """The penalty of a token that would repeat a sequence (DRY); 0: off."""
    dry_base: float = setting(1.75, "number", lowest=0, highest=1000)
    """The growth of the penalty of DRY by the length of the sequence; below 1: the default."""
    dry_allowed_length: int = setting(2, "count", lowest=0, highest=1 << 30)
    """The longest sequence that may be repeated."""
    dry_penalty_last_n: int = setting(64, "count", lowest=-1, highest=1 << 30)
    """The number of last tokens that DRY searches; 0: off; -1: all."""
    dry_sequence_breakers: tuple[str, ...] = setting(("\n", ":", '"', "*"), "texts")
    """Texts that end a sequence of DRY."""
    dynatemp_range: float = setting(0.0, "number", lowest=0, highest=100)
    """The temperature is chosen by the entropy, from `temperature` less to more this; 0: off."""
    dynatemp_exponent: float = setting(1.0, "number", lowest=0, highest=100)
    """The exponent of the normalised entropy that chooses the temperature."""
    mirostat: int = setting(0, "count", lowest=0, highest=2)
    """1 or 2: Mirostat of this version in place of all samplers but the temperature; 0: off."""
    mirostat_tau: float = setting(5.0, "number", lowest=0, highest=1000)
    """The surprise that Mirostat aims at."""
    mirostat_eta: float = setting(0.1, "number", lowest=0, highest=1000)
    """The learning rate of Mirostat."""
    adaptive_target: float = setting(-1.0, "number", lowest=-1, highest=1)
    """The probability that the sampler adaptive_p aims at; below 0: off."""
    adaptive_decay: float = setting(0.9, "number", lowest=0, highest=0.99)
    """How slowly adaptive_p forgets."""
    samplers: tuple[str, ...] = setting(CHAIN, "names", choices=(*CHAIN, "infill", "adaptive_p"))
    """The samplers in their order, as llama.cpp calls them. One that is not named is off."""
    ignore_eos: bool = setting(False, "switch")
    """Whether the tokens that end an answer are excluded."""
    post_sampling_probs: bool = setting(False, "switch")
    """Whether the probabilities of `n_probs` are those after the samplers."""

    @property
    def takes_best(self) -> bool:
        """Whether the chain, after penalties and biases, takes the token with the best score."""
        return (
            self.temperature == 0
            and "temperature" in self.samplers
            and "adaptive_p" not in self.samplers
            and not (self.dynatemp_range or self.mirostat or self.xtc_probability)
            and self.typical_p == 1
        )

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the scores."""
        penalties = self.frequency_penalty, self.presence_penalty, self.repeat_penalty - 1
        repeats = "penalties" in self.samplers and self.repeat_last_n != 0 and any(penalties)
        return not self.mirostat and (repeats or self.has_dry)

    @property
    def has_dry(self) -> bool:
        """Whether DRY is in force."""
        return "dry" in self.samplers and self.dry_multiplier > 0 and self.dry_penalty_last_n != 0

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the most probable one, without a penalty or a bias."""
        return self.takes_best and not (self.has_penalties or self.logit_bias or self.ignore_eos)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Read the field `sampling` of a request. Raises RequestError."""
        for name in message.keys() - cls.rules().keys():
            raise RequestError(text("setting.unknown", name=ascii(name[:40])))
        read = super().from_message(message)
        return dataclasses.replace(read, logit_bias=tuple((t, b) for t, b in read.logit_bias))

    def of_answer(self, i: int) -> Self:
        """Return the sampling of the answer number i to one request: each has a seed of its own."""
        if self.seed is None or not i:
            return self
        return dataclasses.replace(
            self, seed=(self.seed + i) % (int(self.rules()["seed"].highest) + 1)
        )
