"""Observes the machine for plans: free memory, devices, drives, what llama.cpp says it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backend.engine.dry_run import DryRun
from backend.machines.drive import drive_of, in_whole_blocks
from backend.machines.threads import compute_threads
from backend.memory import devices
from backend.memory.engine_plan import EnginePlan, MachineState, SlowTier, plan_engine
from backend.memory.headroom import note_taken, with_taken
from backend.packs.file import find
from backend.system.memory import available_bytes, physical_cores

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile
    from backend.memory.devices import Device
    from backend.memory.placement import DevicePlan, Placement
    from backend.protocol.settings import EngineConfig


class Observer:
    """Observes for one model. refused: why it cannot be cached, once loading has shown that."""

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.refused = ""
        self._devices: list[Device] = []
        self._option = ""
        self._n_thread = 0  # that compute fastest, once that was measured
        self._dry_run = DryRun(file)

    def plan(
        self, config: EngineConfig, before: EnginePlan | None, held_bytes: int | None
    ) -> EnginePlan:
        """Plan for the machine as it is now.

        before: the plan that was in force last. held_bytes: RAM that this model holds and would
        give back; None: it is not loaded. Raises DeviceError, and as plan_engine does.
        """
        if config.device != self._option:
            self._devices, self._option = devices.resolve(config.device), config.device

        def measure(
            placement: Placement, n_context: int, n_ubatch: int, patched: bool
        ) -> Mapping[str, int]:
            n_output = 0 if config.keeps_outputs else 1
            sizes = n_context, n_ubatch, config.kv_type, n_output
            return self._dry_run.compute_bytes(placement, patched, *sizes)

        state = MachineState(
            free_bytes=available_bytes() + (held_bytes or 0),
            n_thread=self._n_thread or physical_cores(),
            devices=tuple(
                self._observed(d, None if held_bytes is None else before) for d in self._devices
            ),
            measure=measure,
            slow_tier=self._slow_tier,
            refused=self.refused,
            before=before,
            is_loaded=held_bytes is not None,
        )
        try:
            return plan_engine(self.file, config, state)
        finally:
            self._dry_run.close()

    def free_on_devices(self, plan: DevicePlan) -> list[int]:
        """Return what is free on each device under a plan; what others took of it is noted."""
        found = []
        for share in plan.devices:
            free_bytes = devices.free_bytes(share.pointer)
            for device in self._devices:
                if device.pointer == share.pointer:
                    note_taken(device, share.free_bytes - share.planned_bytes - free_bytes)
            found.append(free_bytes)
        return found

    def _observed(self, device: Device, loaded: EnginePlan | None) -> Device:
        """Return the device as it is now, what the loaded model holds of it being free."""
        held = 0
        if loaded is not None and loaded.devices is not None:
            shares = loaded.devices.devices
            held = sum(s.planned_bytes for s in shares if s.pointer == device.pointer)
        free_bytes = devices.free_bytes(device.pointer) + held
        return replace(with_taken(device), free_bytes=free_bytes)

    def _slow_tier(self, config: EngineConfig) -> SlowTier:
        """Find the pack, and measure its drive and the threads where that was not done before."""
        pack, remark = find(self.file) if config.pack else (None, "")
        path = pack.path if pack else self.file.paths[0]
        tensors = (t for ts in self.file.expert_tensors.values() for t in ts)
        ring = pack is not None or in_whole_blocks(t.matrix_bytes for t in tensors)
        drive = drive_of(path, ring=ring)
        if not config.n_thread:
            self._n_thread = compute_threads(path, drive, ring=ring)
        return SlowTier(drive, self._n_thread, pack, remark)
