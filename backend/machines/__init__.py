"""Machines for the simulator: the figures of a machine's hardware, and the times of a model on it.

A machine file is JSON: {"format": "outrider-machine", "version": 1, "name", "sentence", "figures"}.
Each figure is {"value": number, "source": text}. The files beside this module are presets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.system.kept_file import parse_json
from backend.system.paths import open_regular

if TYPE_CHECKING:
    from backend._native import Machine

FORMAT = "outrider-machine"
NEWEST_VERSION = 1
_FILE_BYTES_MAX = 1 << 20

DENSE_STEPS = 24
"""Steps of a layer without its experts. A step is a kernel, or a graph node with a barrier."""
WAVE_STEPS = 5
"""Steps of a wave of experts: gate, up, activation, down, weighted sum."""


class MachineError(ValueError):
    """A machine file cannot be used. str() is one sentence for the user."""


@dataclass(frozen=True)
class Hardware:
    """The speeds of a machine. A gigabyte is 10^9 bytes."""

    name: str
    sentence: str
    link_gb_per_s: float
    """Bandwidth from the place that holds all experts to the place that computes them."""
    link_latency_us: float
    """Latency of each copy, before its first byte."""
    n_link: int
    """Copies in flight at the same time, which share the link."""
    memory_gb_per_s: float
    """Bandwidth at which computing reads weights."""
    tflop_per_s: float
    step_us: float
    """Time to launch a kernel, or for all threads to meet after a node."""
    sources: dict[str, str] = field(default_factory=dict)

    def machine(
        self,
        expert_bytes: float,
        dense_bytes: float,
        output_bytes: float,
        bits_per_weight: float,
        drive: Hardware | None = None,
        stop_us: float = 0.0,
    ) -> Machine:
        """Return the simulator's machine for a model on this hardware.

        expert_bytes: bytes of one expert, the mean over the layers. dense_bytes: bytes of one layer
        without its experts. output_bytes: bytes that a pass reads outside the layers.
        bits_per_weight: mean over the weights; it gives the operations of a token. drive: the
        hardware whose link loads experts into RAM, if RAM does not hold all. stop_us: cost of a
        device's stop for a router's choice; 0: it does not stop.

        The first token of a pass reads the weights; each further token costs its operations. If
        reading takes longer than all operations, the time is too long, by a factor of 2 at most.
        """
        from backend._native import Machine  # native part: not at the window's start

        memory_bytes_per_us = self.memory_gb_per_s * 1e3
        flop_per_us = self.tflop_per_s * 1e6
        flop_per_byte = 2 * 8 / bits_per_weight  # a multiplication and an addition for each weight

        def first_us(n_bytes: float) -> float:
            return max(n_bytes / memory_bytes_per_us, n_bytes * flop_per_byte / flop_per_us)

        def further_us(n_bytes: float) -> float:
            return n_bytes * flop_per_byte / flop_per_us

        return Machine(
            link_bytes_per_us=self.link_gb_per_s * 1e3,
            link_latency_us=self.link_latency_us,
            n_link=self.n_link,
            dense_us=first_us(dense_bytes) + DENSE_STEPS * self.step_us,
            dense_token_us=further_us(dense_bytes),
            expert_us=first_us(expert_bytes),
            expert_token_us=further_us(expert_bytes),
            wave_us=WAVE_STEPS * self.step_us,
            pass_us=first_us(output_bytes),
            file_bytes_per_us=drive.link_gb_per_s * 1e3 if drive else 0.0,
            file_latency_us=drive.link_latency_us if drive else 0.0,
            n_file=drive.n_link if drive else 1,
            stop_us=stop_us,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content of a machine file."""
        return {
            "format": FORMAT,
            "version": NEWEST_VERSION,
            "name": self.name,
            "sentence": self.sentence,
            "figures": {
                name: {"value": getattr(self, name), "source": self.sources.get(name, "")}
                for name in FIGURES
            },
        }


FIGURES = tuple(f.name for f in fields(Hardware) if f.name not in ("name", "sentence", "sources"))
_MAY_BE_ZERO = ("link_latency_us", "step_us")
_LARGEST = {"n_link": 1024.0, "link_gb_per_s": 1e6, "memory_gb_per_s": 1e6, "tflop_per_s": 1e6}


def presets() -> dict[str, Path]:
    """Return the files of the presets by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.json"))}


def load(file_or_preset: str | Path) -> Hardware:
    """Read a preset of this name, or otherwise a machine file. Raises MachineError."""
    path = presets().get(str(file_or_preset), Path(file_or_preset))
    name = path.name
    try:
        with open(path, "rb", opener=open_regular) as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        known = ", ".join(presets())
        raise MachineError(
            f"There is no machine file {name}, and the presets are {known}."
        ) from None
    except OSError as error:
        raise MachineError(
            f"The machine file {name} could not be read: {error.strerror}."
        ) from None
    if len(data) > _FILE_BYTES_MAX:
        raise MachineError(f"The machine file {name} is too large to be one.")
    try:
        content = parse_json(data)
    except ValueError:
        raise MachineError(f"The machine file {name} is not JSON.") from None
    return parse(content, name)


def parse(content: Any, name: str) -> Hardware:
    """Check and convert the content of a machine file. `name`: the file's name, for messages."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise MachineError(f"{name} is not a machine file: its format is not '{FORMAT}'.")
    version = content.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise MachineError(f"The machine file {name} has no version.")
    if version > NEWEST_VERSION:
        raise MachineError(f"The machine file {name} is of a newer version of Outrider.")
    figures = content.get("figures")
    if not isinstance(figures, dict):
        raise MachineError(f"The machine file {name} has no figures.")
    for key in figures:
        if key not in FIGURES:
            raise MachineError(f"The machine file {name} has an unknown figure, '{key}'.")
    values = {key: _figure(figures, key, name) for key in FIGURES}
    n_link = values.pop("n_link")
    return Hardware(
        name=_text(content, "name", name),
        sentence=_text(content, "sentence", name),
        n_link=int(n_link),
        sources={key: figures[key].get("source", "") for key in FIGURES},
        **values,
    )


def _figure(figures: dict[str, Any], key: str, name: str) -> float:
    where = f"The machine file {name}"
    if key not in figures:
        raise MachineError(f"{where} lacks the figure {key}.")
    figure = figures[key]
    if not isinstance(figure, dict) or not isinstance(figure.get("source"), str):
        raise MachineError(f"{where} does not say a value and a source of {key}.")
    value = figure.get("value")
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 1e300:
        raise MachineError(f"{where} says for {key} what is not a number.")
    if value < 0 or (value == 0 and key not in _MAY_BE_ZERO):
        raise MachineError(f"{where} says {value:g} for {key}, which must be positive.")
    largest = _LARGEST.get(key, 1e9)
    if value > largest:
        raise MachineError(f"{where} says {value:g} for {key}, which is more than {largest:g}.")
    if key == "n_link" and value != int(value):
        raise MachineError(f"{where} says {value:g} for n_link, which must be a whole number.")
    return float(value)


def _text(content: dict[str, Any], key: str, name: str) -> str:
    text = content.get(key)
    if not isinstance(text, str) or not text or len(text) > 1000:
        raise MachineError(f"The machine file {name} has no {key}.")
    return text
