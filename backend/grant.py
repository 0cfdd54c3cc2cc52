"""What memory grants a model: how many of its experts stay, how long a prompt's pieces are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.auto import prefers_stock
from backend.engine_error import EngineError
from backend.plan import N_UBATCH, MemoryPlan, largest_ubatch, plan, slots, why_no_kv_type

if TYPE_CHECKING:
    from backend.config import EngineConfig
    from backend.gguf_file import ModelFile
    from backend.methods import Method
    from backend.on_device import OnDevice


@dataclass(frozen=True)
class Grant:
    """What a model may take, at most what was asked for."""

    rate: float
    """The cache rate."""
    reason: str
    """Why it is not the one asked for; with a device, what is where."""
    n_ubatch: int
    """Tokens of a prompt that are computed at once."""
    n_context: int
    """Tokens of conversation that are kept."""
    n_stage: int = 0
    """Slots of a device's stage (backend.placement)."""
    stock_is_faster: str = ""
    """Why an adaptive method leaves llama.cpp unpatched, or ""."""
    headroom_bytes: int | None = None
    """What the plan leaves to other programs; None where nothing has to be watched."""


def grant(
    file: ModelFile,
    config: EngineConfig,
    method: Method,
    on_device: OnDevice,
    n_context: int,
    free_bytes: int,
    kept_ubatch: int = 0,
) -> Grant:
    """Say what memory permits with free_bytes of it, planning for the devices anew.

    n_context: tokens. kept_ubatch: how long pieces are in the llama_context that stays in use; 0: a
    new one is made. Raises EngineError where the attention cache cannot be of the type asked for.
    """
    if why := why_no_kv_type(file, config.kv_type):
        raise EngineError(why)
    whole = method.kind == "stock"
    on_device.make_plan(
        file, config, n_context, kept_ubatch, free_bytes, whole=whole, stages=method.stages
    )
    if (made := on_device.plan) is not None:
        host = on_device.host
        watched = host.headroom_bytes if host.bytes or host.cpu_bytes else None
        return Grant(
            made.rate,
            on_device.said,
            made.n_ubatch,
            made.n_context,
            made.n_stage,
            headroom_bytes=watched,
        )
    n_ubatch = kept_ubatch or min(config.n_ubatch or N_UBATCH, n_context)

    def planned(rate: float) -> MemoryPlan:
        return plan(file, rate, n_context, free_bytes, n_ubatch, config.kv_type)

    rate, reason = config.cache_rate, on_device.said
    wanted = planned(rate)
    if not whole and file.is_moe and not wanted.fits:
        rate = 0.0 if wanted.best_rate is None else wanted.best_rate
        reason = (
            f"{free_bytes / (1 << 30):.1f} GiB of memory are free: {slots(file, rate)} of "
            f"{file.n_expert} experts of each layer are kept instead of {wanted.n_slot}."
        )
    if not kept_ubatch and not config.n_ubatch:
        # Experts go before larger pieces of prompts.
        n_ubatch, _ = largest_ubatch(file, planned(rate), n_context)
    faster, watched = "", None if whole else wanted.headroom_bytes
    if method.adaptive:
        faster = prefers_stock(file.file_size_bytes, file.expert_bytes_total, free_bytes, rate)
    return Grant(rate, reason, n_ubatch, n_context, stock_is_faster=faster, headroom_bytes=watched)


def held_bytes(
    file: ModelFile,
    config: EngineConfig,
    on_device: OnDevice,
    n_context: int,
    rate: float,
    n_ubatch: int,
) -> int:
    """Return what a loaded model takes of this machine's memory, and would give back."""
    if on_device.plan is not None:
        return 0  # but for what keeps experts for the device, nearly all of it is the device's
    held = plan(file, rate, n_context, 0, n_ubatch, config.kv_type)
    return held.total_bytes - held.process_bytes
