"""The statistics of an answer: written by the worker, read by clients."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import NamedTuple

from backend.protocol.status import Json, scalars

_N_PASS_MAX = 4096
"""Maximum of passes in a batch."""
N_TOKEN_KEPT = 64
"""The number of last tokens in Statistics.tokens."""


@dataclass(frozen=True)
class TokenCost:
    """One decoded token. The three times add up to the wall time since the previous token.

    A token that was accepted from a draft belongs to the pass of the token before it.
    """

    compute_s: float
    stall_s: float
    other_s: float
    hits: int = 0
    late: int = 0
    misses: int = 0

    @property
    def total_s(self) -> float:
        """The wall time."""
        return self.compute_s + self.stall_s + self.other_s


@dataclass  # not frozen: the engine makes one for each layer after every token
class LayerCost:
    """One MoE layer. layer: its number in the model. hits + late + misses = requests.

    The routing of a layer with all experts resident is not read: each of its tokens counts as
    n_expert_used hits.

    on_host: late and missed experts that the processor computed beside a device; host_rows: the
    number of their token rows.
    """

    layer: int
    hits: int
    late: int
    misses: int
    bytes_read: int
    stall_s: float
    on_host: int = 0
    host_rows: int = 0


@dataclass
class Statistics:
    """The present or last answer. bytes_read = bytes_useful + bytes_wasted + not yet decided.

    bytes_read: bytes copied into slots. With a host store, bytes_from_host of them came from RAM
    and bytes_from_file from the file; without a host store, all came from the file.

    n_drafted: tokens that were guessed and computed; n_accepted of them are tokens of the answer.
    tokens_per_s: of decoding, without the prompt. ttft_s: from the request to the first token.
    A prefetch is useful if the expert was needed before it was evicted, wasted otherwise. on_host,
    host_rows: as in LayerCost.
    """

    n_prompt: int = 0
    n_reused: int = 0
    n_token: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    ttft_s: float = 0.0
    tokens_per_s: float = 0.0
    hits: int = 0
    late: int = 0
    misses: int = 0
    on_host: int = 0
    host_rows: int = 0
    bytes_read: int = 0
    bytes_useful: int = 0
    bytes_wasted: int = 0
    bytes_from_file: int = 0
    bytes_from_host: int = 0
    prefetches_useful: int = 0
    prefetches_wasted: int = 0
    stall_s: float = 0.0
    compute_s: float = 0.0
    other_s: float = 0.0
    peak_rss_bytes: int = 0
    decisions: list[str] = field(default_factory=list)
    """The decisions of an adaptive method during this answer, each a sentence."""
    layers: list[LayerCost] = field(default_factory=list)
    tokens: list[TokenCost] = field(default_factory=list)
    """The last N_TOKEN_KEPT tokens."""

    def add_token(self, cost: TokenCost) -> None:
        """Add a decoded token and drop the oldest."""
        self.tokens.append(cost)
        del self.tokens[:-N_TOKEN_KEPT]

    @classmethod
    def from_json(cls, data: Json) -> Statistics:
        """Read the field `stats` of a message."""
        return cls(
            **scalars(cls, data),
            decisions=[str(line) for line in data.get("decisions") or ()],
            layers=[LayerCost(**scalars(LayerCost, one)) for one in data.get("layers") or ()],
            tokens=[TokenCost(**scalars(TokenCost, one)) for one in data.get("tokens") or ()],
        )

    def to_json(self) -> Json:
        """Return plain dicts and lists. Another thread may add to the statistics.

        Called several times a second during an answer. asdict() would take 3 ms, in which the
        decoding thread cannot get the GIL.
        """
        return {
            **self.__dict__,
            "decisions": list(self.decisions),
            "layers": [dict(vars(layer)) for layer in list(self.layers)],
            "tokens": [dict(vars(token)) for token in list(self.tokens)],
        }

    @property
    def layer_stall_s(self) -> dict[int, float]:
        """Seconds that each layer waited, by its number."""
        return {layer.layer: layer.stall_s for layer in self.layers}

    @property
    def layer_on_host(self) -> dict[int, int]:
        """Number of experts of each layer that the processor computed, by the layer's number."""
        return {layer.layer: layer.on_host for layer in self.layers}

    @property
    def requests(self) -> int:
        """The number of times that an expert was needed."""
        return self.hits + self.late + self.misses

    @property
    def drive_bytes(self) -> int:
        """The bytes read from the drive."""
        return self.bytes_from_file or self.bytes_read - self.bytes_from_host

    @property
    def total_s(self) -> float:
        """The time that the answer took."""
        return self.compute_s + self.stall_s + self.other_s

    @property
    def stall_share(self) -> float:
        """The share of the time spent waiting for experts."""
        return self.stall_s / self.total_s if self.total_s > 0 else 0.0


class PassFigures(NamedTuple):
    """One pass in a message "moments", whose rows have this order.

    n_token: 0 for a partial batch of the prompt. wall_us: time since the previous pass, the sum of
    computation, stall and an unexplained rest.
    """

    n_token: int
    wall_us: int
    compute_us: int
    stall_us: int
    link_busy_us: int
    hits: int
    late: int
    misses: int
    bytes_read: int
    bytes_wasted: int
    prefetches_useful: int
    prefetches_wasted: int
    on_host: int

    @property
    def other_us(self) -> int:
        """The time that is neither computation nor waiting."""
        return max(self.wall_us - self.compute_us - self.stall_us, 0)

    @property
    def requests(self) -> int:
        """The number of times that an expert was needed."""
        return self.hits + self.late + self.misses


@dataclass(frozen=True)
class Batch:
    """Consecutive passes, from a message "moments"; `blob` as in backend/engine/moments.py."""

    first: int
    figures: tuple[PassFigures, ...]
    blob: bytes

    @classmethod
    def from_json(cls, message: Json) -> Batch:
        """Read a message "moments"."""
        figures = tuple(PassFigures(*map(int, row)) for row in message["figures"])
        if not 1 <= len(figures) <= _N_PASS_MAX:
            raise ValueError("a batch has an impossible number of passes")
        return cls(int(message["first"]), figures, _from_base64(message["data"]))


@dataclass(frozen=True)
class Residency:
    """A snapshot of the cache: one byte for each expert of each MoE layer, layer by layer."""

    moe_layers: tuple[int, ...]
    n_expert: int
    data: bytes  # len(moe_layers) * n_expert

    @classmethod
    def from_json(cls, message: Json) -> Residency:
        """Read a message "residency"."""
        layers = tuple(int(layer) for layer in message["moe_layers"])
        n_expert, data = int(message["n_expert"]), _from_base64(message["data"])
        if len(data) != len(layers) * n_expert:
            raise ValueError("the residency has the wrong length")
        return cls(layers, n_expert, data)


def _from_base64(text: str) -> bytes:
    """Decode base64. Raises ValueError for other text."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("the data is not base64") from error
