"""The results of a simulation, and their charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from backend.simulation.charts import Line, Panel, line_charts


@dataclass(frozen=True)
class Phase:
    """Prefill or decode. time_s = compute_s + stall_s."""

    n_pass: int
    n_token: int
    time_s: float
    compute_s: float
    stall_s: float
    link_busy_s: float
    """Time with at least one copy in flight."""
    hits: int
    requests: int

    @property
    def tokens_per_s(self) -> float | None:
        """Speed; None without tokens, or if computing takes no time."""
        return self.n_token / self.time_s if self.n_token and self.time_s > 0 else None

    @property
    def hit_rate(self) -> float | None:
        """Share of requests that were resident; None without requests."""
        return self.hits / self.requests if self.requests else None


@dataclass(frozen=True)
class Counts:
    """Counts of one layer or of all layers. hits + late + misses = requests.

    Each part of a cut expert counts as a request.
    """

    hits: int
    late: int
    misses: int
    bytes_read: int
    bytes_useful: int
    bytes_wasted: int
    """The rest, bytes_read - bytes_useful - bytes_wasted, is resident and not used so far."""
    prefetches: int
    prefetches_useful: int
    prefetches_wasted: int
    predicted: int
    predicted_used: int
    predicted_ready: int
    stall_s: float

    @property
    def requests(self) -> int:
        """Number of needed experts, or parts of cut experts."""
        return self.hits + self.late + self.misses

    @property
    def hit_rate(self) -> float | None:
        """Share of requests that were resident; None without requests."""
        return self.hits / self.requests if self.requests else None

    @property
    def accuracy(self) -> float | None:
        """Share of predicted experts that were used (ProMoE, section 4.1)."""
        return self.predicted_used / self.predicted if self.predicted else None

    @property
    def fetch_rate(self) -> float | None:
        """Share of predicted experts that were resident when their layer was routed."""
        return self.predicted_ready / self.predicted if self.predicted else None

    @property
    def good_pred(self) -> float | None:
        """Accuracy times fetch rate."""
        if self.accuracy is None or self.fetch_rate is None:
            return None
        return self.accuracy * self.fetch_rate

    def to_json(self) -> dict[str, Any]:
        """Return all figures."""
        derived = ("requests", "hit_rate", "accuracy", "fetch_rate", "good_pred")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


@dataclass(frozen=True)
class Result:
    """One method at one cache rate. `reason`: why it was not simulated; empty if it was."""

    method: str
    asked_rate: float
    reason: str = ""
    predictor: str = ""
    """The predictor that ran; empty without prediction."""
    kind: str = "cached"
    rate: float = 0.0
    """Share of all experts' bytes that the slots hold."""
    cache_bytes: int = 0
    total: Counts | None = None
    layers: tuple[Counts, ...] = ()
    prefill: Phase | None = None
    decode: Phase | None = None
    pass_stall_us: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    """[pass]: stall of each pass of the trace, in microseconds."""
    lines: tuple[str, ...] = ()
    """Decisions of an adaptive method, a sentence each."""
    bytes_from_file: int | None = None
    """Bytes read from the drive, if RAM lies between the drive and the slots; otherwise None."""

    def to_json(self, *, layers: bool = False) -> dict[str, Any]:
        """Return all figures. `layers`: include those of each layer."""
        report: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("method", "kind", "predictor", "asked_rate", "rate", "cache_bytes")
        }
        if self.reason:
            return {**report, "reason": self.reason}
        assert self.total is not None
        report["total"] = self.total.to_json()
        if self.bytes_from_file is not None:
            report["bytes_from_file"] = self.bytes_from_file
        for name in ("prefill", "decode"):
            phase: Phase = getattr(self, name)
            speeds = {"tokens_per_s": phase.tokens_per_s, "hit_rate": phase.hit_rate}
            report[name] = {**asdict(phase), **speeds}
        if self.lines:
            report["decisions"] = list(self.lines)
        if layers:
            report["layers"] = [layer.to_json() for layer in self.layers]
        return report


Figures = TypeVar("Figures", Counts, Phase)


def summed(parts: Sequence[Figures]) -> Figures:
    """Add the parts, figure by figure."""
    kind = type(parts[0])
    return kind(**{f.name: sum(getattr(part, f.name) for part in parts) for f in fields(kind)})


def curves(results: Sequence[Result]) -> str:
    """Draw hit rate and speed over the cache rate, a line for each method, as SVG.

    Raises ValueError, a sentence, if there is nothing to draw.
    """
    done = [r for r in results if not r.reason and r.total and r.decode and r.prefill]
    names = list(dict.fromkeys(r.method for r in done))

    def lines(value: Callable[[Result], float | None]) -> list[Line]:
        drawn = []
        for name in names:
            of_method = [r for r in done if r.method == name]
            points = [(r.rate, y) for r in of_method if (y := value(r)) is not None]
            drawn.append(Line(name, points, bound=any(r.kind == "bound" for r in of_method)))
        return drawn

    def panel(title: str, y_label: str, values: list[Line], *, percent: bool) -> Panel:
        return Panel(title, "cache rate", y_label, values, x_percent=True, y_percent=percent)

    found = lines(lambda r: r.total.hit_rate if r.total else None)
    panels = [panel("Experts found in memory", "hit rate", found, percent=True)]
    for title, speeds in (
        ("Prefill", lines(lambda r: r.prefill.tokens_per_s if r.prefill else None)),
        ("Decode", lines(lambda r: r.decode.tokens_per_s if r.decode else None)),
    ):
        if any(line.points for line in speeds):
            panels.append(panel(title, "tokens per second", speeds, percent=False))
    return line_charts(panels)
