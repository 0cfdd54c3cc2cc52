"""The verdict on a model: does it fit, and how fast will it be.

The speed is a forecast by arithmetic: what a token reads from memory and from the drive, at the
speeds that were measured here. How many of the needed experts are found in memory is not known
before a model has run, so that is a guess, and every answer that was measured corrects it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from backend.library.facts import Facts
from backend.library.history import Measured
from backend.machines import DENSE_STEPS, WAVE_STEPS, Hardware
from backend.memory.plan import MemoryPlan, plan_needs
from backend.methods.slots import slots_of

_CORRECTION_MAX = 30.0  # a forecast that is off by more says nothing; tiny models are off by 10
_COPY_BYTES = 1 << 20  # about one matrix of an expert


class Kind(Enum):
    """What a model is here. The values are in the order of a sorted list, best first."""

    FITS = 0  # everything in memory
    CACHE = 1  # runs with a part of the experts in memory
    LARGE = 2  # not even the smallest cache finds room
    BROKEN = 3  # the file cannot be used


@dataclass(frozen=True)
class Speed:
    """Tokens per second. `is_measured`: of the last answer in exactly this setting.

    is_corrected: a forecast, scaled by what was measured at another cache rate.
    """

    tokens_per_s: float
    is_measured: bool = False
    is_corrected: bool = False


@dataclass(frozen=True)
class Verdict:
    """How a model would run.

    best: the plan with as many experts in memory as fit, or as few as possible where it is too
    large. asked: the plan at the cache rate that is set, never more than fits. The speeds belong
    to the plans; None where nothing was measured, neither the machine nor the model.
    """

    kind: Kind
    best: MemoryPlan
    asked: MemoryPlan
    best_speed: Speed | None
    asked_speed: Speed | None

    @property
    def short_bytes(self) -> int:
        """How much memory is missing, headroom included; 0 where it fits."""
        return max(self.best.total_bytes + self.best.headroom_bytes - self.best.available_bytes, 0)


def judge(
    facts: Facts,
    asked_rate: float,
    available_bytes: int,
    machine: Hardware | None,
    measured: Measured | None,
) -> Verdict:
    """Judge a model. available_bytes: what it may take, the model that it replaces given back."""
    asked = plan_needs(facts.needs, slots_of(asked_rate, facts.n_expert), available_bytes)
    if asked.best_n_slot is None:
        kind, best = Kind.LARGE, plan_needs(facts.needs, 0, available_bytes)
        return Verdict(kind, best, best, None, None)
    best = plan_needs(facts.needs, asked.best_n_slot, available_bytes)
    if not asked.fits:
        asked = best
    kind = Kind.FITS if best.mode == "plain" else Kind.CACHE
    return Verdict(
        kind, best, asked,
        speed(facts, best.n_slot, machine, measured),
        speed(facts, asked.n_slot, machine, measured),
    )  # fmt: skip


def hit_rate_guess(share: float) -> float:
    """Guess the share of needed experts that are in memory, where `share` of all are.

    The square root: of the two models that docs/simulator.md has figures of, a little below the
    one with the lower hit rate (at 17, 33 and 50 % in memory: 41, 57 and 71 against 39 to 44, 54
    to 62 and 71 to 77).
    """
    return math.sqrt(min(max(share, 0.0), 1.0))


def forecast(facts: Facts, n_slot: int, machine: Hardware) -> float:
    """Forecast tokens per second with n_slot experts of each layer in memory."""
    memory_bytes_per_s = machine.memory_gb_per_s * 1e9
    token_s = (facts.token_dense_bytes + facts.token_expert_bytes) / memory_bytes_per_s
    n_step = DENSE_STEPS * facts.n_layer + WAVE_STEPS * facts.n_moe_layer
    token_s += n_step * machine.step_us * 1e-6
    if facts.is_moe and n_slot < facts.n_expert:
        missed_bytes = facts.token_expert_bytes * (1 - hit_rate_guess(n_slot / facts.n_expert))
        token_s += missed_bytes / (machine.link_gb_per_s * 1e9)
        token_s += missed_bytes / _COPY_BYTES * machine.link_latency_us * 1e-6 / machine.n_link
    return 1 / max(token_s, 1e-9)


def speed(
    facts: Facts, n_slot: int, machine: Hardware | None, measured: Measured | None
) -> Speed | None:
    """Return what was measured in this setting, or a forecast, corrected where that is possible."""
    if measured is not None and measured.n_slot == n_slot:
        return Speed(measured.tokens_per_s, is_measured=True)
    if machine is None:
        return None
    tokens_per_s = forecast(facts, n_slot, machine)
    if measured is None:
        return Speed(tokens_per_s)
    factor = measured.tokens_per_s / forecast(facts, measured.n_slot, machine)
    if not 1 / _CORRECTION_MAX <= factor <= _CORRECTION_MAX:
        return Speed(tokens_per_s)
    return Speed(tokens_per_s * factor, is_corrected=True)
