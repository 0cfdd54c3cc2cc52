"""Observes the machine for plans: free memory, devices, drives, llama.cpp's compute buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from backend.engine.dry_run import DryRun
from backend.llama.api import LlamaError
from backend.machines.drive import drive_of, in_whole_blocks, jointly, on_one_drive
from backend.machines.threads import compute_threads
from backend.memory import devices
from backend.memory.engine_plan import EnginePlan, MachineState, SlowTier, plan_engine
from backend.memory.headroom import is_measured, note_taken, with_taken
from backend.packs.file import find
from backend.system.memory import available_bytes, physical_cores, processors
from backend.text import text

if TYPE_CHECKING:
    from pathlib import Path

    from backend.gguf.model_file import ModelFile
    from backend.machines.drive import Drive
    from backend.memory.devices import Device
    from backend.memory.placement import DevicePlan, Placement
    from backend.packs.file import Pack
    from backend.protocol.settings import EngineConfig

_SLOWER = 0.8
"""A pack's drives are slower below this share of the model's speed. Speeds of a drive differ by
less from one measurement to the next."""


class Observer:
    """Observes the machine for one model.

    refused: why it cannot be cached. layer_refused: why its layer for multi-token prediction is not
    used. Both are set after loading. reserved_bytes: RAM that is loaded beside the planned model.
    """

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.refused = self.layer_refused = ""
        self.reserved_bytes = 0
        self._devices: list[Device] = []
        self._option = ""
        self._n_thread = 0  # the number that computes fastest; 0 until measured
        self._dry_run = DryRun(file)

    def plan(
        self, config: EngineConfig, before: EnginePlan | None, held_bytes: int | None
    ) -> EnginePlan:
        """Plan for the present state of the machine.

        before: the plan that was in force last. held_bytes: RAM that this model would give back;
        None: it is not loaded. Raises DeviceError and the errors of plan_engine.
        """
        if config.device != self._option:
            self._devices, self._option = devices.resolve(config.device), config.device

        def measure(
            placement: Placement, n_context: int, n_ubatch: int, patched: bool
        ) -> Mapping[str, int]:
            sizes = n_context, n_ubatch, config.kv_type, config.n_output, config.n_back
            return self._dry_run.compute_bytes(placement, patched, *sizes)

        state = MachineState(
            free_bytes=available_bytes()
            + (-self.reserved_bytes if held_bytes is None else held_bytes),
            n_thread=self._n_thread or physical_cores(),
            n_thread_max=processors(),
            devices=tuple(
                self._observed(d, None if held_bytes is None else before) for d in self._devices
            ),
            measure=measure,
            slow_tier=self._slow_tier,
            refused=self.refused,
            layer_refused=self.layer_refused,
            before=before,
            is_loaded=held_bytes is not None,
        )
        try:
            return plan_engine(self._asked(config), config, state)
        finally:
            self._dry_run.close()

    def _asked(self, config: EngineConfig) -> ModelFile:
        """Return the file with llama.cpp's sizes, where it reads the file."""
        try:
            return self._dry_run.asked(config.n_output, config.n_back)
        except LlamaError:  # loading says why
            return self.file

    def free_on_devices(self, plan: DevicePlan) -> list[int]:
        """Return the free bytes of each device of a plan. Note how much others took."""
        found = []
        for share in plan.devices:
            free_bytes = devices.free_bytes(share.pointer)
            for device in self._devices:
                if device.pointer == share.pointer:
                    note_taken(device, share.free_bytes - share.planned_bytes - free_bytes)
            found.append(free_bytes)
        return found

    def is_new(self, plan: EnginePlan) -> bool:
        """Return whether the plan caches experts on a device on which no kernel has run yet."""
        if plan.devices is None or plan.is_plain:
            return False
        used = {share.pointer for share in plan.devices.devices}
        return any(d.pointer in used and not is_measured(d) for d in self._devices)

    def _observed(self, device: Device, loaded: EnginePlan | None) -> Device:
        """Return the present state of a device. Memory of the loaded model counts as free."""
        held = 0
        if loaded is not None and loaded.devices is not None:
            shares = loaded.devices.devices
            held = sum(s.planned_bytes for s in shares if s.pointer == device.pointer)
        free_bytes = devices.free_bytes(device.pointer) + held
        return replace(with_taken(device), free_bytes=free_bytes)

    def _slow_tier(self, config: EngineConfig) -> SlowTier:
        """Find the pack. Measure its drives and the threads where no measurement exists.

        A pack on drives that read more slowly than the model's is not used.
        """
        pack, remark = find(self.file) if config.pack else (None, "")
        drives = self._drives(pack)
        if pack is not None and not on_one_drive([*pack.sources, *self.file.paths]):
            speed = jointly([*drives.values()], [*pack.sources.values()]).bytes_per_s
            own = self._drives(None)
            (own_speed,) = (drive.bytes_per_s for drive in own.values())
            if 0 < speed < _SLOWER * own_speed:
                why = text("pack.slower", pack=int(speed), model=int(own_speed))
                remark = text("pack.not_used", file=pack.path.name, reason=why)
                pack, drives = None, own
        shares = [*pack.sources.values()] if pack else [1]
        if not config.n_thread:
            source, drive = next(iter(drives.items()))
            self._n_thread = compute_threads(source, drive, ring=self._by_ring(pack))
        return SlowTier(jointly([*drives.values()], shares), self._n_thread, pack, remark)

    def _drives(self, pack: Pack | None) -> dict[Path, Drive]:
        """Return how to read each file of the pack; None: the model's file."""
        sources = [*pack.sources] if pack else self.file.paths[:1]
        return {path: drive_of(path, ring=self._by_ring(pack)) for path in sources}

    def _by_ring(self, pack: Pack | None) -> bool:
        tensors = (t for ts in self.file.expert_tensors.values() for t in ts)
        return pack is not None or in_whole_blocks(t.matrix_bytes for t in tensors)
