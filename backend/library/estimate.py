"""Computes the verdict on a model: whether it fits memory, and its speed.

The forecast is the time to read a token's bytes from memory and from the drive, at the speeds
measured here. The hit rate is unknown before a model has run. It is therefore a guess, which each
measured answer corrects.
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
from backend.protocol.statistics import Statistics

_CORRECTION_MAX = 30.0  # a larger factor is not applied; tiny models need 10
_COPY_BYTES = 1 << 20  # about one matrix of an expert


class Kind(Enum):
    """How a model runs on this machine. The values give the order of a sorted list, best first."""

    FITS = 0  # all of it in memory
    CACHE = 1  # a part of the experts in memory
    LARGE = 2  # not even the smallest cache fits
    BROKEN = 3  # the file cannot be used


N_TOKEN_LEAST = 8
"""A shorter answer tells nothing about the speed."""


@dataclass(frozen=True)
class Speed:
    """Tokens per second. is_measured: the speed of the last answer in exactly this setting.

    is_corrected: a forecast, scaled by a measurement at another cache rate.
    """

    tokens_per_s: float
    is_measured: bool = False
    is_corrected: bool = False


@dataclass(frozen=True)
class Verdict:
    """How a model would run.

    best: the plan with the most experts in memory that fit, or the fewest if it is too large.
    asked: the plan at the user's cache rate, or `best` if that does not fit.
    The speeds belong to the plans. None: neither the machine nor the model was measured.
    """

    kind: Kind
    best: MemoryPlan
    asked: MemoryPlan
    best_speed: Speed | None
    asked_speed: Speed | None

    @property
    def short_bytes(self) -> int:
        """Bytes of memory that are missing, headroom included; 0 if the model fits."""
        return max(self.best.total_bytes + self.best.headroom_bytes - self.best.available_bytes, 0)


def judge(
    facts: Facts,
    asked_rate: float,
    available_bytes: int,
    machine: Hardware | None,
    measured: Measured | None,
) -> Verdict:
    """Return the verdict. available_bytes: free memory once the present model is unloaded."""
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
    """Guess the hit rate with a `share` of all experts in memory: the square root of the share.

    docs/simulator.md has figures of two models. The guess is a little below the lower of their hit
    rates: with 17, 33 and 50 % in memory it is 41, 57 and 71 %, against 39 to 44, 54 to 62 and 71
    to 77 %.
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


def speed_after(answer: Statistics, n_slot_then: int, n_expert: int, n_slot: int) -> Speed | None:
    """Forecast the speed with `n_slot` slots per layer from an answer with `n_slot_then`.

    The stall grows with the guessed misses. Return None for an answer that is too short.
    """
    if answer.n_token < N_TOKEN_LEAST or answer.tokens_per_s <= 0:
        return None
    misses, misses_then = (1 - hit_rate_guess(n / n_expert) for n in (n_slot, n_slot_then))
    stall = answer.stall_share * misses / max(misses_then, 1e-3)
    is_measured = n_slot == n_slot_then
    times = 1.0 if is_measured else 1 - answer.stall_share + stall
    return Speed(answer.tokens_per_s / max(times, 1e-3), is_measured, not is_measured)


def speed(
    facts: Facts, n_slot: int, machine: Hardware | None, measured: Measured | None
) -> Speed | None:
    """Return the speed measured in this setting, or a forecast, corrected if possible."""
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
