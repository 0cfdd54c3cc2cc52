"""The devices that an engine computes on: found once, planned for at every change, watched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from backend.devices import Device, resolve
from backend.loading import ON_CPU, Placement
from backend.placement import DevicePlan, plan_devices
from backend.plan import N_UBATCH

if TYPE_CHECKING:
    from backend.config import EngineConfig
    from backend.gguf_file import ModelFile


class OnDevice:
    """What is where on the devices of one engine; without a device, nothing.

    `plan` is the one in force, or None where the CPU computes alone; `said`: why, in sentences.
    """

    def __init__(self) -> None:
        self.plan: DevicePlan | None = None
        self.said = ""
        self._devices: list[Device] = []
        self._option = ""

    def take(self, option: str) -> bool:
        """Find the devices of an option; True where they are others. Raises DeviceError."""
        if option == self._option:
            return False
        found = resolve(option)
        others = [d.pointer for d in found] != [d.pointer for d in self._devices]
        self._devices, self._option = found, option
        return others

    @property
    def placement(self) -> Placement:
        """Where llama.cpp shall put the layers."""
        plan = self.plan
        if plan is None:
            return ON_CPU
        return Placement(plan.pointers, plan.n_gpu_layers, plan.shares)

    @property
    def names(self) -> str:
        """The devices in use, or "cpu"."""
        return ",".join(share.name for share in self.plan.devices) if self.plan else "cpu"

    def make_plan(
        self, model: ModelFile, rate: float, n_context: int, config: EngineConfig, *, whole: bool
    ) -> None:
        """Plan anew with the memory that is free now, and what this engine holds of it.

        whole: only with all experts of every layer that a device computes.
        """
        if not self._devices:
            self.plan, self.said = None, ""
            return
        now = [replace(d, free_bytes=self._free_bytes(d)) for d in self._devices]
        planned = plan_devices(
            model,
            now,
            rate,
            n_context,
            config.n_ubatch or min(N_UBATCH, n_context),
            config.device_bytes,
            kv_type=config.kv_type,
            whole=whole,
        )
        self.plan = planned if planned.n_gpu_layers > 0 else None
        self.said = " ".join(planned.sentences)

    def _free_bytes(self, device: Device) -> int:
        from backend import _native

        held = 0
        if self.plan is not None:
            held = sum(s.planned_bytes for s in self.plan.devices if s.pointer == device.pointer)
        return int(_native.device_free_bytes(device.pointer)) + held

    def give_back(self, n_least: int) -> int | None:
        """Where others took a device's memory, return how many experts of each layer may stay.

        None: as many as there are. Half the headroom may be taken before anything is given back.
        """
        from backend import _native

        plan = self.plan
        if plan is None or plan.n_slot <= n_least:
            return None
        n_slot = plan.n_slot
        for share in plan.devices:
            lacking = share.headroom_bytes - int(_native.device_free_bytes(share.pointer))
            if lacking > share.headroom_bytes // 2 and share.slot_bytes > 0:
                kept = (share.slot_bytes - lacking) * plan.n_slot // share.slot_bytes
                n_slot = min(n_slot, kept)
        n_slot = max(n_slot, n_least)
        if n_slot == plan.n_slot:
            return None
        shares = tuple(
            replace(s, slot_bytes=s.slot_bytes // plan.n_slot * n_slot) for s in plan.devices
        )
        self.plan = replace(plan, n_slot=n_slot, devices=shares)
        return n_slot
