"""Run tests, verification and speed on a device and write one JSON; gpu-check.sh starts this.

Each step has a time limit and its own process, so that a step that fails, hangs or crashes does
not lose the results of the others. The file is rewritten after each step. Backend imports are
inside the steps, because the starting process must survive a backend that does not load.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.gguf.model_file import read_model
from backend.memory.devices import resolve
from backend.memory.placement import Placement
from backend.protocol.settings import EngineConfig, Sampling
from backend.system.memory import physical_cores

ROOT = Path(__file__).resolve().parent.parent
EMBEDDED = ROOT / "assets" / "embedded" / "outrider-tiny.gguf"
TEXT = "The history of the world is written by those who were there. " * 12
RATES = (0.25, 0.5, 0.75, 1.0)
N_PROMPT, N_DECODE = 512, 64
ROWS = [
    (kind, rate)
    for rate in (0.5, 1.0, 0.25, 0.75)
    for kind in ("outrider", "n-cpu-moe", "hybrid")
    if kind != "hybrid" or rate < 1
]
"""Configurations to time, the most informative first: our cache without and with hybrid misses, and
llama.cpp with the experts of some layers on the device, which then hold equal memory."""
STEPS = {"device": 40, "model": 100, "verify": 60, "speed": 45, "equal": 90, "tests": 60}
"""Time limit of each step in seconds; `speed` is per row. TOTAL_S limits all together."""
TOTAL_S = 440
N_LARGE_LAYER = 8
"""Layers of the default model: 2.9 GB in the geometry of Qwen3-30B-A3B."""


def main() -> int:
    """Run every step and write the results. Return 0 if all steps succeeded."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="use a device in another process")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="auto", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step == "device":
        print(json.dumps(_device(arguments.device)))
        return 0
    if arguments.step == "equal":
        return 0 if _equal(arguments.device) else 1
    if arguments.step:
        kind, rate = arguments.step.split(":")
        print(json.dumps(_speed(arguments.model, arguments.device, kind, float(rate))))
        return 0
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")])
    )
    end_s = time.monotonic() + TOTAL_S - int(os.environ.get("GPU_CHECK_BUILD_S", 0))
    found = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "gpu": _gpu_names()},
        "build_s": int(os.environ.get("GPU_CHECK_BUILD_S", 0)),
        "dry_run": arguments.dry_run,
        "model": arguments.model.name,
    }
    large = ROOT / "build" / "gpu-check" / "large.gguf"
    is_made = arguments.model == EMBEDDED and not arguments.dry_run
    model = large if is_made else arguments.model
    with _device_option(arguments.dry_run) as device:

        def run(name: str, command: list[str], step: str) -> None:
            left_s = end_s - time.monotonic()
            if left_s < 5:
                found[name] = {"ok": False, "error": "No time was left for this step."}
            else:
                found[name] = _run(command, min(STEPS[step], left_s))
            text = json.dumps(found, indent=1) + "\n"
            arguments.out.write_text(text, encoding="utf-8")
            print(f"{name}: {'done' if found[name]['ok'] else 'failed'}", flush=True)

        own = [sys.executable, __file__, str(model), "-", "--device", device, "--step"]
        run("device", [*own, "device"], "device")
        if is_made:
            make = "import sys; from pathlib import Path; from factory import make_large; "
            make += f"make_large(Path(sys.argv[1]), n_layer={N_LARGE_LAYER})"
            run("model", [sys.executable, "-c", make, str(large)], "model")
        run("verify", _verify(arguments.model, device), "verify")
        for kind, rate in ROWS:
            run(f"{kind} {rate:.0%}", [*own, f"{kind}:{rate}"], "speed")
        run("equal", [*own, "equal"], "equal")
        run("tests", _tests(), "tests")
    steps = [step for step in found.values() if isinstance(step, dict) and "ok" in step]
    return 0 if all(step["ok"] for step in steps) else 1


@contextlib.contextmanager
def _device_option(dry_run: bool) -> Iterator[str]:
    if not dry_run:
        yield "auto"
        return
    sys.path.insert(0, str(ROOT / "tests"))
    # Only a dry run needs the tests' server.
    from loopback import server  # type: ignore[import-not-found]

    with server() as running:
        yield running.option


def _tests() -> list[str]:
    test = str(ROOT / "tests" / "live" / "test_device.py")
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]


def _verify(model: Path, device: str) -> list[str]:
    rates = ",".join(map(str, RATES))
    options = ["--device", device, "--rates", rates, "--json"]
    return [sys.executable, "-m", "backend.cli", "verify", str(model), *options]


def _run(command: list[str], limit_s: float) -> dict[str, Any]:
    """Run a step. Return its last line if that is JSON, otherwise the end of its output."""
    began_s = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        # stdout is bytes here, in spite of text=True.
        output = (late.stdout or b"").decode(errors="replace")
        done = subprocess.CompletedProcess(
            command, 1, output, f"It took over {limit_s:.0f} seconds."
        )
    result: dict[str, Any] = {"ok": done.returncode == 0, "took_s": time.monotonic() - began_s}
    lines = done.stdout.strip().splitlines()
    try:
        result["found"] = json.loads(lines[-1])
    except (ValueError, IndexError):
        result["text"] = "\n".join(lines)[-2000:]
    if done.returncode != 0:
        result["error"] = done.stderr[-2000:]
    return result


def _gpu_names() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv"]
        return subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    return ""


def _device(option: str) -> dict[str, Any]:
    """Return the devices as llama.cpp describes them."""
    devices = resolve(option)
    if not devices:
        raise SystemExit("There is no device here but the processor.")
    return {"devices": [asdict(d) for d in devices]}


def _equal(option: str) -> bool:
    """Return whether every architecture's logits on the device equal stock llama.cpp's bit by bit.

    After each architecture, print all results so far: per architecture, the number of different
    logits at each rate, or the error.
    """
    from factory import CACHEABLE, make_tiny  # type: ignore[import-not-found]  # of the tests

    from backend.evaluation.verify import compare

    at = Placement(tuple(d.pointer for d in resolve(option)), 999)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for arch in CACHEABLE:
            try:
                file = read_model(make_tiny(arch, "Q8_0", Path(folder) / f"{arch}.gguf"))
                rates = (0.1, 0.5, 1.0)
                results = compare(file, rates, ("promoe",), n_token=48, n_thread=2, placement=at)
                found[arch] = [result.n_different for result in results]
            except (RuntimeError, ValueError, AssertionError) as error:
                found[arch] = repr(error)[:300]
            print(json.dumps(found), flush=True)
    return not any(any(counts) for counts in found.values())


def _speed(model: Path, option: str, kind: str, rate: float) -> dict[str, Any]:
    """Return tokens per second of prefill and decode, in the second run, and counters."""
    from backend.engine.engine import Engine

    if kind == "n-cpu-moe":
        return _layer_offload(model, option, rate)
    config = EngineConfig(
        cache_rate=rate,
        method="outrider",
        device=option,
        context_length=2048,
        hybrid="auto" if kind == "hybrid" else "off",
    )
    engine = Engine.open(model, config)
    for text in ("Warm up. " * 8, TEXT):
        engine.forget()
        list(engine.generate_text(text, Sampling(temperature=0.0), N_DECODE))
    stats, decoded, plan = engine.statistics(), engine.decoded, engine.device_plan
    busy_s = decoded.link_busy_s
    found = {
        "prefill_tokens_per_s": stats.n_prompt / stats.ttft_s if stats.ttft_s else 0.0,
        "decode_tokens_per_s": stats.tokens_per_s,
        "stall_share": decoded.stall_s / max(decoded.compute_s + decoded.stall_s, 1e-9),
        "overlap": 1 - min(decoded.stall_s / busy_s, 1.0) if busy_s else None,
        "link_gb_per_s": decoded.bytes_read / busy_s / 1e9 if busy_s else None,
        "planned_bytes": sum(d.planned_bytes for d in plan.devices) if plan else 0,
        "why": engine.cache.reason,
        "cache": engine.cache.to_json(),
        "statistics": {k: v for k, v in stats.to_json().items() if k not in ("layers", "tokens")},
    }
    engine.close()
    return found


def _layer_offload(path: Path, option: str, rate: float) -> dict[str, Any]:
    """Time stock llama.cpp with all dense weights and some layers' experts on the device."""
    from backend.engine.loading import load_native
    from backend.llama.api import Context

    file = read_model(path)
    n_there = round(rate * file.n_layer)
    placement = Placement(tuple(d.pointer for d in resolve(option)), 999)
    model = load_native(file, placement, n_cpu_moe=file.n_layer - n_there)
    context = Context(
        model, n_context=2048, n_ubatch=N_PROMPT, n_thread=physical_cores(), n_output=1
    )
    tokens = model.tokenize(TEXT)[:N_PROMPT]
    times_s = []
    for _ in range(2):  # the first run warms up
        context.forget_from(0)
        began_s = time.monotonic()
        context.decode(tokens, 0)
        context.logits(1)
        prompt_s = time.monotonic() - began_s
        for i in range(N_DECODE):
            context.decode([tokens[i % len(tokens)]], len(tokens) + i)
            context.logits(1)
        times_s = [prompt_s, time.monotonic() - began_s - prompt_s]
    context.close()
    model.close()
    return {
        "layers_with_experts_there": n_there,
        "prefill_tokens_per_s": len(tokens) / times_s[0],
        "decode_tokens_per_s": N_DECODE / times_s[1],
    }


if __name__ == "__main__":
    sys.exit(main())
