"""Tests, verification and speed on a device, in one JSON; gpu-check.sh prepares and starts it.

Each step has a time limit and runs in a process of its own, so that one that fails, hangs or ends
the process leaves what the others found. The file is written anew after each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RATES = (0.25, 0.5, 0.75, 1.0)
N_PROMPT, N_DECODE = 512, 64
STEPS = {"device": 60, "tests": 90, "verify": 120, "speed": 150}
"""Seconds for each, at most."""


def main() -> int:
    """Run every step and write what it found."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="on a device in another process")
    parser.add_argument("--step", choices=("device", "speed"), help=argparse.SUPPRESS)
    parser.add_argument("--device", default="auto", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        found = _device(arguments.device) if arguments.step == "device" else None
        print(json.dumps(found or _speed(arguments.model, arguments.device)))
        return 0
    found = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "gpu": _gpu_names()},
        "build_s": int(os.environ.get("GPU_CHECK_BUILD_S", 0)),
        "dry_run": arguments.dry_run,
        "model": arguments.model.name,
    }
    with _device_option(arguments.dry_run) as device:
        for step, limit_s in STEPS.items():
            found[step] = _run(_command(step, arguments.model, device), limit_s)
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{step}: {'done' if found[step]['ok'] else 'failed'}", flush=True)
    return 0 if all(found[step]["ok"] for step in STEPS) else 1


@contextlib.contextmanager
def _device_option(dry_run: bool) -> Iterator[str]:
    if not dry_run:
        yield "auto"
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from loopback import server  # type: ignore[import-not-found]  # a test's

    with server() as running:
        yield running.option


def _command(step: str, model: Path, device: str) -> list[str]:
    if step == "tests":
        test = str(ROOT / "tests" / "live" / "test_device.py")
        return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    if step == "verify":
        rates = ",".join(map(str, RATES))
        options = ["--device", device, "--rates", rates, "--json"]
        return [sys.executable, "-m", "backend.cli", "verify", str(model), *options]
    own = [sys.executable, __file__, str(model), "-", "--step", step, "--device", device]
    return own


def _run(command: list[str], limit_s: int) -> dict[str, Any]:
    """What a step said: its last line as JSON where it is, or else the end of its text."""
    began_s = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"It took more than {limit_s} seconds."}
    said: dict[str, Any] = {"ok": done.returncode == 0, "took_s": time.monotonic() - began_s}
    lines = done.stdout.strip().splitlines()
    try:
        said["found"] = json.loads(lines[-1])
    except (ValueError, IndexError):
        said["text"] = "\n".join(lines)[-2000:]
    if done.returncode != 0:
        said["error"] = done.stderr[-2000:]
    return said


def _gpu_names() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv"]
        return subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    return ""


def _device(option: str) -> dict[str, Any]:
    """The devices, and how fast bytes reach them."""
    from dataclasses import asdict

    from backend.devices import resolve

    devices = resolve(option)
    if not devices:
        raise SystemExit("There is no device here but the processor.")
    return {"devices": [asdict(d) for d in devices]}


def _speed(model: Path, option: str) -> dict[str, Any]:
    """Tokens per second at each rate, and of stock llama.cpp with as many layers as fit as much."""
    from backend.config import EngineConfig, Sampling
    from backend.devices import free_bytes, resolve
    from backend.engine import Engine

    words = "The history of the world is written by those who were there. "
    rows = []
    devices = resolve(option)
    settings = [("outrider", rate, 0) for rate in RATES]
    settings += [("layer-offload", 1.0, -1)]
    device_bytes = 0
    for method, rate, limit in settings:
        config = EngineConfig(
            cache_rate=rate,
            method=method,
            device=option,
            context_length=1024,
            device_bytes=device_bytes if limit < 0 else 0,
        )
        before_bytes = sum(map(free_bytes, devices))
        engine = Engine.open(model, config)
        try:
            tokens = Sampling(temperature=0.0)
            for text in ("Warm up.", words * (N_PROMPT // 14)):
                list(engine.generate_text(text, tokens, N_DECODE))
            plan = engine.device_plan
            planned = sum(d.planned_bytes for d in plan.devices) if plan else 0
            if rate == 0.5:
                device_bytes = planned  # what layer offload is given
            rows.append(
                {
                    "method": method,
                    "asked_rate": rate,
                    "cache": engine.cache.to_json(),
                    "planned_bytes": planned,
                    "used_bytes": before_bytes
                    - sum(map(free_bytes, devices)),  # others may come and go
                    "why": list(plan.sentences) if plan else [],
                    "statistics": engine.statistics().to_json(),
                }
            )
        finally:
            engine.close()
    return {"n_prompt": N_PROMPT, "n_decode": N_DECODE, "rows": rows}


if __name__ == "__main__":
    sys.exit(main())
