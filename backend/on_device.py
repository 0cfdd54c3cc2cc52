"""The devices that an engine computes on: found once, planned for at every change, watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backend.devices import Device, resolve
from backend.dry_run import DryRun
from backend.headroom import note_taken
from backend.host_plan import HostPlan, plan_host
from backend.loading import ON_CPU, Placement
from backend.memory_watch import Cache, MemoryWatch
from backend.placement import DevicePlan, Measure, Wish, plan_devices, usable_bytes

if TYPE_CHECKING:
    from backend.config import EngineConfig
    from backend.gguf_file import ModelFile


class OnDevice:
    """What is where on the devices of one engine and model; without a device, nothing.

    `plan` is the one in force, or None where the CPU computes alone; `host`: the RAM that keeps
    experts behind it; `said`: why, in sentences.
    """

    def __init__(self) -> None:
        self.plan: DevicePlan | None = None
        self.host = HostPlan()
        self.said = ""
        self._devices: list[Device] = []
        self._option = ""
        self._runs: dict[bool, DryRun] = {}  # by whether llama.cpp is to run patched

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

    def usable_bytes(self, limit_bytes: int) -> int:
        """Return what may be taken of the devices' memory; 0 where the CPU computes alone."""
        free = (replace(d, free_bytes=self._free_bytes(d)) for d in self._devices)
        return sum(usable_bytes(device, limit_bytes) for device in free)

    def make_plan(
        self,
        model: ModelFile,
        config: EngineConfig,
        n_context: int,
        kept_ubatch: int,
        free_bytes: int,
        *,
        whole: bool,
        stages: bool,
    ) -> None:
        """Plan anew with the memory that is free now, and what this engine holds of it.

        n_context: tokens. kept_ubatch: as in backend.grant. free_bytes: of RAM. whole, stages: as
        in Wish.
        """
        self.host = HostPlan()
        if not self._devices:
            self.plan, self.said = None, ""
            return
        now = [replace(d, free_bytes=self._free_bytes(d)) for d in self._devices]
        wish = Wish(
            rate=config.cache_rate,
            n_context=n_context,
            n_ubatch=kept_ubatch or min(config.n_ubatch, n_context),
            kv_type=config.kv_type,
            limit_bytes=config.device_bytes,
            may_shorten=config.automatic and not kept_ubatch,
            whole=whole,
            stages=stages,
        )
        n_output = 0 if config.keeps_outputs else 1
        if not self._runs:
            self._runs = {patched: DryRun(model, patched=patched) for patched in (False, True)}
        try:
            planned = plan_devices(model, now, wish, self._measure(now, wish, n_output))
            self.plan = planned if planned.n_gpu_layers > 0 else None
            if self.plan is not None and planned.n_slot < model.n_expert:
                self.host = plan_host(
                    model,
                    planned,
                    free_bytes,
                    config.host_bytes,
                    config.kv_type,
                    self._host_compute_bytes(planned, config.kv_type, n_output),
                )
        finally:
            for dry_run in self._runs.values():
                dry_run.close()
        self.said = " ".join(filter(None, [*planned.sentences, self.host.sentence]))

    def _measure(self, devices: Sequence[Device], wish: Wish, n_output: int) -> Measure:
        pointers = tuple(d.pointer for d in devices)

        def measure(
            n_gpu_layers: int,
            shares: Sequence[float],
            n_context: int,
            n_ubatch: int,
            *,
            patched: bool,
        ) -> list[int]:
            placement = Placement(pointers, n_gpu_layers, tuple(shares))
            found = self._runs[patched].compute_bytes(
                placement, n_context, n_ubatch, wish.kv_type, n_output
            )
            return [found.get(device.memory, 0) for device in devices]

        return measure

    def _host_compute_bytes(self, planned: DevicePlan, kv_type: str, n_output: int) -> int:
        """What llama.cpp computes in beside the devices' memory."""
        found = self._runs[True].compute_bytes(
            self.placement, planned.n_context, planned.n_ubatch, kv_type, n_output
        )
        there = {device.memory for device in self._devices}
        return sum(n_bytes for memory, n_bytes in found.items() if memory not in there)

    def _free_bytes(self, device: Device) -> int:
        from backend import _native

        held = 0
        if self.plan is not None:
            held = sum(s.planned_bytes for s in self.plan.devices if s.pointer == device.pointer)
        return int(_native.device_free_bytes(device.pointer)) + held

    def stretched(self, layout: Any, shape: Any, layers: Sequence[int]) -> Any:
        """The layout with as many slots for the CPU's layers as RAM has room for.

        layers: their numbers in the model, in the layout's order.
        """
        from backend.compose import share_of, stretched

        if self.plan is None or not self.host.n_cpu_slot:
            return layout
        there = {layer for share in self.plan.devices for layer in share.layers}
        on_cpu = {index for index, layer in enumerate(layers) if layer not in there}
        times = self.host.n_cpu_slot / (share_of(layout, shape) * shape.n_expert)
        return stretched(layout, shape, on_cpu, times)

    def note_slots(self, share: float) -> None:
        """Hear which share of all experts the slots hold: a method's cache may be smaller."""
        if self.plan is not None:
            shares = tuple(
                replace(s, slot_bytes=min(s.slot_bytes, round(share * s.expert_bytes)))
                for s in self.plan.devices
            )
            self.plan = replace(self.plan, devices=shares)

    def give_back(self, n_least: int) -> int | None:
        """Where others took a device's memory, return how many experts of each layer may stay.

        None: as many as there are. Half the headroom may be taken before anything is given back.
        What was taken is remembered, and left free when the next plan is made.
        """
        from backend import _native

        plan = self.plan
        if plan is None or plan.n_slot <= n_least:
            return None
        n_slot = plan.n_slot
        for share in plan.devices:
            free_bytes = int(_native.device_free_bytes(share.pointer))
            taken_bytes = share.free_bytes - share.planned_bytes - free_bytes
            for device in self._devices:
                if device.pointer == share.pointer:
                    note_taken(device, taken_bytes)
            lacking = share.headroom_bytes - free_bytes
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

    def give_back_ram(self, watch: MemoryWatch | None) -> str:
        """Where others need RAM, let it keep fewer experts, and return why; else "".

        First of those for devices: the slots of the CPU's layers are all that those have.
        """
        host, plan = self.host, self.plan
        if watch is None or plan is None:
            return ""
        before = host.n_slot or host.n_cpu_slot
        if not before:
            return ""
        n_bytes, least = (host.bytes, 0) if host.n_slot else (host.cpu_bytes, plan.n_slot)
        cache = Cache(before, min(least, before), before, n_bytes // before)
        now = watch.look(lambda: cache)
        if now is None:
            return ""
        why = "Other programs need memory"
        if host.n_slot:
            self.host = host.less(now, host.n_cpu_slot)
            return (
                f"{why}: RAM keeps {now} experts of each layer for the device instead of {before}."
            )
        self.host = host.less(0, now)
        return f"{why}: RAM keeps {now} experts of each layer of the CPU's instead of {before}."
