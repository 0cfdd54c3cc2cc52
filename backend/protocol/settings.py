"""What an engine is told: validated once, frozen, with units in the names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from backend.memory.devices import check_option
from backend.memory.plan import KV_TYPES
from backend.methods.catalogue import RUNNABLE

HYBRID = ("off", "auto", "cpu-only")
"""What becomes of experts that a device lacks: all are copied to it; copied or computed by the
processor, whichever ends sooner; all are computed by the processor (docs/devices.md)."""


@dataclass(frozen=True)
class EngineConfig:
    """How to run a model. Raises ValueError, one sentence, on values that make no sense."""

    cache_rate: float = 0.25
    """Share of all routed-expert bytes that is resident, 0 to 1; at least what one token needs."""
    method: str = "promoe"
    """A name in backend.methods.catalogue.RUNNABLE."""
    context_length: int = 4096
    """Tokens of conversation that are kept."""
    n_thread: int = 0
    """Threads that compute; 0: one per physical core."""
    n_ubatch: int = 0
    """Tokens of a prompt that are computed at once; 0: as many as memory permits."""
    kv_type: str = "f16"
    """Type of the attention cache, a key of backend.memory.plan.KV_TYPES."""
    keeps_outputs: bool = False
    """Whether every layer may be asked for every token's output, as recordings do (compute())."""
    automatic: bool = False
    """Whether memory decides about the cache rate and the context (backend.memory.automatic)."""
    device: str = "auto"
    """What computes: "auto", "cpu", a device's name or rpc://host:port (backend.memory.devices)."""
    device_bytes: int = 0
    """Of each device's memory at most so much is used; 0: what is free but for some headroom."""
    hybrid: str = "off"
    """What becomes of experts that a device lacks, of HYBRID. But for "off" the answer is
    llama.cpp's except for rounding: the processor's kernels round otherwise than a device's."""
    host_bytes: int | None = None
    """Of the RAM, what keeps experts for devices at most; None: what is free but for headroom."""
    pack: bool = True
    """Read experts from the model's pack (backend.packs.write), where there is one."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cache_rate) and 0 <= self.cache_rate <= 1):
            raise ValueError(f"The cache rate must lie between 0 and 1, not {self.cache_rate}.")
        if self.method not in RUNNABLE:
            known = ", ".join(RUNNABLE)
            raise ValueError(f"The method {self.method!r} is not known; known are {known}.")
        if not 1 <= self.context_length <= 1 << 24:
            raise ValueError(f"The context length must be positive, not {self.context_length}.")
        if not 0 <= self.n_thread <= 1024:
            raise ValueError(f"The number of threads must be 0 to 1024, not {self.n_thread}.")
        check_option(self.device)
        if self.hybrid not in HYBRID:
            known = ", ".join(HYBRID)
            raise ValueError(f"Experts that a device lacks may be {known}, not {self.hybrid!r}.")
        if self.device_bytes < 0:
            raise ValueError(f"The device's memory must be 0 or more, not {self.device_bytes}.")
        if self.host_bytes is not None and self.host_bytes < 0:
            raise ValueError(f"The host's memory must be 0 or more, not {self.host_bytes}.")
        if not 0 <= self.n_ubatch <= 1 << 16:
            raise ValueError(f"The batch size must be 0 to 65536, not {self.n_ubatch}.")
        if self.kv_type not in KV_TYPES:
            known = ", ".join(KV_TYPES)
            raise ValueError(f"The attention cache may be {known}, not {self.kv_type!r}.")


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. Raises ValueError, one sentence, on values out of range."""

    temperature: float = 0.7
    """0: always the most probable token."""
    top_k: int = 40
    """Only the k most probable tokens; 0: all."""
    top_p: float = 0.95
    """Only the most probable tokens that together have this probability; 1: all."""
    min_p: float = 0.05
    """Only tokens with at least this share of the best one's probability; 0: all."""
    repeat_penalty: float = 1.0
    """Divides the scores of the last 64 tokens; 1: off."""
    seed: int | None = None
    """None: another one every time."""

    def __post_init__(self) -> None:
        def check(ok: bool, name: str, value: float, rule: str) -> None:
            if not (math.isfinite(value) and ok):
                raise ValueError(f"The sampling value {name} must be {rule}, not {value}.")

        check(0 <= self.temperature <= 100, "temperature", self.temperature, "0 to 100")
        check(0 <= self.top_k <= 1 << 30, "top_k", self.top_k, "0 or more")
        check(0 <= self.top_p <= 1, "top_p", self.top_p, "0 to 1")
        check(0 <= self.min_p <= 1, "min_p", self.min_p, "0 to 1")
        check(0 < self.repeat_penalty <= 10, "repeat_penalty", self.repeat_penalty, "0 to 10")
        if self.seed is not None:
            # the last of 32 bits is llama.cpp's name for "another one every time"
            check(0 <= self.seed < (1 << 32) - 1, "seed", self.seed, "0 to 4294967294")
