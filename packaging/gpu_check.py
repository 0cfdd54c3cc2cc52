"""Run tests, verification and speed on a device and write one JSON; gpu-check.sh starts this.

A visit has four parts: facts, correct, speed and edges. A call runs one of them and adds to the
JSON. Each step has a time limit and its own process, so that a step that fails, hangs or crashes
does not lose the results of the others. The file is rewritten after each step. Backend imports are
inside the steps, because the starting process must survive a backend that does not load.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
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
from random import Random
from typing import Any

from backend.gguf.model_file import read_model
from backend.memory.devices import resolve
from backend.memory.placement import Placement
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.system.memory import physical_cores

ROOT = Path(__file__).resolve().parent.parent
EMBEDDED = ROOT / "assets" / "embedded" / "outrider-tiny.gguf"
TEXT = "The history of the world is written by those who were there. " * 12
RATES = (0.25, 0.5, 0.75, 1.0)
ARCHITECTURES = ("qwen3moe", "gpt-oss", "llama4", "deepseek2", "gemma4", "qwen3next")
N_PROMPT, N_DECODE = 512, 64
ALL_HITS = 0.99
"""A cache rate at which hardly an expert is missing, but the layers are not settled."""
ROWS = [
    ("outrider", 1.0),
    ("outrider", ALL_HITS),
    *(
        (kind, rate)
        for rate in (0.5, 0.9, 0.75, 0.25)
        for kind in ("outrider", "n-cpu-moe", "hybrid")
        if kind != "hybrid" or rate == 0.5
    ),
]
"""Configurations to time, the most informative first: our cache, also with hybrid misses, and
llama.cpp with the experts of some layers on the device, which then hold equal memory. At 1.0 it is
stock llama.cpp with all experts on the device."""
VARIANTS: dict[str, dict[str, str]] = {
    "": {},
    " without fusion": {"GGML_CUDA_DISABLE_FUSION": "1", "GGML_VK_DISABLE_FUSION": "1"},
    " without graphs": {"GGML_CUDA_DISABLE_GRAPHS": "1"},
    " one kernel at a time": {"CUDA_LAUNCH_BLOCKING": "1"},
}
"""Environments in which logits are compared."""
STEPS = {
    **{"device": 40, "facts": 100, "model": 200, "verify": 60, "speed": 60},
    **{"equal": 100, "tests": 120, "edges": 300},
}
"""Time limit of each step in seconds; `speed` is per row. TOTAL_S limits a call."""
TOTAL_S = 440
PARTS = ("facts", "correct", "speed", "edges")
LEAST_PINNED_GB_S = 15.0
"""Bandwidth of copies from pinned memory. A slower link is not one that a cache is made for."""
N_LARGE_LAYER = 48
"""Layers of the default model: 17 GB in the geometry of Qwen3-30B-A3B. All layers have the same
experts' bytes, which takes as long to compute."""


def main() -> int:
    """Run every step and write the results. Return 0 if all steps succeeded."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="use a small model, and a device in another process if --device names none",
    )
    parser.add_argument("--part", choices=PARTS, default=PARTS[0])
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    if arguments.step == "equal":
        return 0 if _equal(arguments.device) else 1
    if arguments.step:
        what, _, rate = arguments.step.partition(":")
        print(json.dumps(_step(what, float(rate or 0), arguments)))
        return 0
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")])
    )
    end_s = time.monotonic() + TOTAL_S - int(os.environ.get("GPU_CHECK_BUILD_S", 0))
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "gpu": _gpu_names()},
        "build_s": int(os.environ.get("GPU_CHECK_BUILD_S", 0)),
        "dry_run": arguments.dry_run,
        "model": arguments.model.name,
    }
    if arguments.out.exists():  # an earlier part
        found = json.loads(arguments.out.read_text(encoding="utf-8")) | found
    large = ROOT / "build" / "gpu-check" / "large.gguf"
    is_made = arguments.model == EMBEDDED and not arguments.dry_run
    model = large if is_made else arguments.model
    ran = []
    with _device_option(arguments) as device:

        def run(name: str, command: list[str], step: str, **environment: str) -> None:
            left_s = end_s - time.monotonic()
            if left_s < 5:
                found[name] = {"ok": False, "error": "No time was left for this step."}
            else:
                found[name] = _run(command, min(STEPS[step], left_s), environment)
            ran.append(found[name])
            text = json.dumps(found, indent=1) + "\n"
            arguments.out.write_text(text, encoding="utf-8")
            print(f"{name}: {'done' if found[name]['ok'] else 'failed'}", flush=True)

        own = [sys.executable, __file__, str(model), "-", "--device", device]
        own += ["--dry-run"] * arguments.dry_run + ["--step"]
        run("device", [*own, "device"], "device")
        if arguments.part == "facts":
            run("facts", [*own, "facts"], "facts")
        elif arguments.part == "correct":
            run("verify", _verify(arguments.model, device), "verify")
            for name, environment in VARIANTS.items():
                run(f"equal{name}", [*own, "equal"], "equal", **environment)
            first = found["device"].get("found", {}).get("devices", [{}])[0]
            name = "" if first.get("is_remote") else first.get("name", "")
            run("tests", _tests(), "tests", OUTRIDER_TEST_DEVICE=name)
        elif is_made and not large.exists():
            make = "import sys; from pathlib import Path; from factory import make_large; "
            make += f"make_large(Path(sys.argv[1]), n_layer={N_LARGE_LAYER}, is_repeated=True)"
            run("model", [sys.executable, "-c", make, str(large)], "model")
        if arguments.part == "speed":
            for kind, rate in ROWS:
                run(f"{kind} {rate:.0%}", [*own, f"{kind}:{rate}"], "speed")
            found["stop_us"] = _stop_us(found)
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if arguments.part == "edges":
            run("edges", [*own, "edges"], "edges")
    return 0 if all(step["ok"] for step in ran) else 1


def _step(what: str, rate: float, arguments: argparse.Namespace) -> dict[str, Any]:
    if what == "device":
        return _device(arguments.device)
    if what == "facts":
        return _facts(arguments.device, may_be_slow=arguments.dry_run)
    if what == "edges":
        return _edges(arguments.model, arguments.device, 8 if arguments.dry_run else 1)
    return _speed(arguments.model, arguments.device, what, rate)


@contextlib.contextmanager
def _device_option(arguments: argparse.Namespace) -> Iterator[str]:
    if not arguments.dry_run or arguments.device != "auto":
        yield arguments.device
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


def _run(command: list[str], limit_s: float, environment: dict[str, str]) -> dict[str, Any]:
    """Run a step. Return its last line if that is JSON, otherwise the end of its output."""
    began_s = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
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


class _Backend:
    """ggml's functions for a device, through ctypes."""

    def __init__(self, device: int) -> None:
        found = importlib.util.find_spec("llama_cpp")
        assert found is not None and found.origin is not None
        folder = Path(found.origin).parent / "lib"
        suffix = "dll" if os.name == "nt" else "so"
        self._ggml = ctypes.CDLL(str(next(folder.glob(f"*ggml-base.{suffix}"))))
        self._base = self("backend_dev_init", device, None)
        self._device = device

    def __call__(self, name: str, *arguments: Any, is_size: bool = False) -> Any:
        function = getattr(self._ggml, f"ggml_{name}")
        function.restype = ctypes.c_size_t if is_size else ctypes.c_void_p
        return function(
            *(ctypes.c_void_p(a) if isinstance(a, int) and a > 1 << 31 else a for a in arguments)
        )

    def tensor(self, n_bytes: int) -> int:
        """Return a tensor of n_bytes bytes in the device's memory."""

        class Parameters(ctypes.Structure):
            _fields_ = (
                ("size", ctypes.c_size_t),
                ("memory", ctypes.c_void_p),
                ("no_alloc", ctypes.c_bool),
            )

        context = self("init", Parameters(1 << 16, None, True))
        tensor: int = self("new_tensor_1d", context, 0, ctypes.c_int64(n_bytes // 4))
        if not self("backend_alloc_ctx_tensors", context, self._base):
            raise MemoryError("The device has no memory for the measurement.")
        return tensor

    def pinned(self, n_bytes: int) -> int | None:
        """Return the address of pinned memory, or None if the driver gives none."""
        kind = self("backend_dev_host_buffer_type", self._device)
        buffer = kind and self("backend_buft_alloc_buffer", kind, ctypes.c_size_t(n_bytes))
        if not buffer or self("backend_buffer_get_type", buffer) != kind:
            return None
        address: int = self("backend_buffer_get_base", buffer)
        return address

    def wait(self) -> None:
        self("backend_synchronize", self._base)

    def send(self, tensor: int, address: int, n_bytes: int) -> None:
        self("backend_tensor_set_async", self._base, tensor, address, *_sizes(0, n_bytes))

    def read(self, tensor: int, address: int, n_bytes: int) -> None:
        self("backend_tensor_get_async", self._base, tensor, address, *_sizes(0, n_bytes))


def _sizes(*values: int) -> list[ctypes.c_size_t]:
    return [ctypes.c_size_t(v) for v in values]


def _facts(option: str, *, may_be_slow: bool) -> dict[str, Any]:
    """Measure copies from pinned and ordinary memory in GB/s, and a small read-back in us.

    Raise SystemExit if pinned copies are slower than LEAST_PINNED_GB_S.
    """
    n_bytes, n_copy, n_read = 64 << 20, 8, 200
    found: dict[str, Any] = {}
    for device in resolve(option):
        backend = _Backend(device.pointer)
        tensor = backend.tensor(n_bytes)
        ordinary = ctypes.create_string_buffer(n_bytes)
        sources = {"pageable": ctypes.addressof(ordinary), "pinned": backend.pinned(n_bytes)}
        of = found[device.name] = dict[str, Any]()
        for name, address in sources.items():
            if address is None:
                of[f"{name}_gb_per_s"] = None
                continue
            for n in (1, n_copy):  # the first warms up
                began_s = time.perf_counter()
                for _ in range(n):
                    backend.send(tensor, address, n_bytes)
                backend.wait()
                took_s = time.perf_counter() - began_s
            of[f"{name}_gb_per_s"] = n_copy * n_bytes / took_s / 1e9
        times_us = []
        for _ in range(n_read):
            began_s = time.perf_counter()
            backend.read(tensor, sources["pinned"] or sources["pageable"] or 0, 32)
            backend.wait()
            times_us.append((time.perf_counter() - began_s) * 1e6)
        of["read_back_us"] = sorted(times_us)[n_read // 2]
        of["shared_memory"] = device.shares_memory
    speeds = [of["pinned_gb_per_s"] for of in found.values()]
    if not may_be_slow and any(speed and speed < LEAST_PINNED_GB_S for speed in speeds):
        print(json.dumps(found))
        raise SystemExit(f"Copies from pinned memory are slower than {LEAST_PINNED_GB_S} GB/s.")
    return found


def _edges(model: Path, option: str, shorter: int) -> dict[str, Any]:
    """Answer at changing cache rates, after long prompts, at length, and with little memory."""
    from backend.engine.engine import Engine

    config = EngineConfig(
        cache_rate=0.5, method="outrider", device=option, context_length=8192 // shorter
    )
    engine = Engine.open(model, config)
    found: dict[str, Any] = {}

    def answer(text: str, n_token: int) -> list[int]:
        engine.forget()
        request = Request(None, Sampling(temperature=0.0), n_token, prompt=text)
        return [piece.token_id for piece in engine.answer(request)]

    for n_prompt in (512 // shorter, 4096 // shorter):
        answer(TEXT * (1 + n_prompt // 100), 4)
        stats = engine.statistics()
        found[f"prompt of about {n_prompt}"] = stats.n_prompt / stats.ttft_s
    answer(TEXT, 600 // shorter)
    found["long_answer_tokens_per_s"] = engine.statistics().tokens_per_s
    answers, slots = [], []
    for rate in (0.5, 0.25, 0.75, 0.5):
        slots.append(engine.set_cache_rate(rate).n_slot)
        answers.append(answer(TEXT, 32))
    found["slots"] = slots
    found["same_answer_at_every_rate"] = all(a == answers[0] for a in answers)
    plan = engine.loaded.plan.devices
    engine.close()
    if plan:  # half of the memory that the slots had
        share = plan.devices[0]
        less = share.planned_bytes - share.slot_bytes // 2
        engine = Engine.open(model, config.changed(device_bytes=less))
        found["slots_in_less_memory"] = engine.cache.n_slot
        found["same_answer_in_less_memory"] = answer(TEXT, 32) == answers[0]
        engine.close()
    return found


def _stop_us(found: dict[str, Any]) -> float | None:
    """Return what a layer's stop costs: the difference of all hits and stock, by layer."""
    try:
        stock, hits = (
            1e6 / found[f"outrider {rate:.0%}"]["found"]["decode_tokens_per_s"]
            for rate in (1.0, ALL_HITS)
        )
        n_layer = found["outrider 100%"]["found"]["n_layer"]
    except (KeyError, ZeroDivisionError):
        return None
    return float((hits - stock) / n_layer)


def _equal(option: str) -> bool:
    """Return whether the architectures' logits on the device equal stock llama.cpp's bit by bit.

    Half of the experts are in a store in RAM. After each architecture, print all results so far:
    per architecture, the number of different logits at each rate, or the error.
    """
    from factory import make_tiny  # type: ignore[import-not-found]  # of the tests

    from backend.evaluation.verify import compare

    at = Placement(tuple(d.pointer for d in resolve(option)), 999)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for arch in ARCHITECTURES:
            try:
                file = read_model(make_tiny(arch, "Q8_0", Path(folder) / f"{arch}.gguf"))
                half = file.expert_bytes_total // 2
                found[arch] = [
                    result.n_different
                    for result in compare(
                        file,
                        (0.1, 0.5, 1.0),
                        ("promoe",),
                        n_token=48,
                        n_thread=2,
                        placement=at,
                        host_bytes=half,
                    )
                ]
            except (RuntimeError, ValueError, AssertionError) as error:
                found[arch] = repr(error)[:300]
            print(json.dumps(found), flush=True)
    return not any(any(counts) for counts in found.values())


def _speed(model: Path, option: str, kind: str, rate: float) -> dict[str, Any]:
    """Return tokens per second of prefill and decode, in the second run, and counters.

    The decoded tokens are random ones, not the model's: it would repeat itself, and its experts.
    """
    from backend.engine.loaded_model import LoadedModel

    if kind == "n-cpu-moe":
        return _layer_offload(model, option, rate)
    config = EngineConfig(
        cache_rate=rate,
        method="outrider",
        device=option,
        context_length=2048,
        hybrid="auto" if kind == "hybrid" else "off",
    )
    loaded = LoadedModel(read_model(model), config, None)
    patch = loaded.patch
    found = _timed(loaded.context, patch, loaded.plan.n_ubatch)
    plan = loaded.plan.devices
    found |= {
        "n_layer": loaded.file.n_layer,
        "planned_bytes": sum(d.planned_bytes for d in plan.devices) if plan else 0,
        "why": loaded.cache.reason,
        "cache": loaded.cache.to_json(),
    }
    if patch is not None:
        counts, times = patch.counts(), patch.times()
        found["hits"] = sum(c.hits for c in counts)
        found["late_or_missing"] = sum(c.late + c.misses for c in counts)
        found["stall_us"], found["stops"] = times.stall_us, times.n_stop
        found["graphs_in_waves"] = times.n_graph
    loaded.close()
    return found


def _timed(context: Any, patch: Any, n_ubatch: int) -> dict[str, Any]:
    """Time a prompt and N_DECODE tokens twice; return the second run's tokens per second."""
    from backend import _native

    tokens = Random(1).choices(range(5, 300), k=N_PROMPT + N_DECODE)
    steps = [tokens[i : min(i + n_ubatch, N_PROMPT)] for i in range(0, N_PROMPT, n_ubatch)]
    steps += [[token] for token in tokens[N_PROMPT:]]
    times_s = []
    for _ in range(2):  # the first run warms up
        context.forget_from(0)
        position, began_s = 0, time.monotonic()
        for step in steps:
            if patch is not None:
                is_prompt = position < N_PROMPT
                phase = _native.Phase.prefill if is_prompt else _native.Phase.decode
                patch.begin_pass(phase, step)
            if context.decode(step, position) != 0 or (patch is not None and not patch.end_pass()):
                raise RuntimeError(f"A pass failed: {patch.error if patch else ''}")
            context.logits(1)
            position += len(step)
            if position == N_PROMPT:
                prompt_s = time.monotonic() - began_s
        times_s = [prompt_s, time.monotonic() - began_s - prompt_s]
    return {
        "prefill_tokens_per_s": N_PROMPT / times_s[0],
        "decode_tokens_per_s": N_DECODE / times_s[1],
    }


def _layer_offload(path: Path, option: str, rate: float) -> dict[str, Any]:
    """Time stock llama.cpp with all dense weights and some layers' experts on the device."""
    from backend.engine.loading import load_native
    from backend.llama.api import Context

    file = read_model(path)
    n_there = round(rate * file.n_layer)
    placement = Placement(tuple(d.pointer for d in resolve(option)), 999)
    model = load_native(file, placement, n_cpu_moe=file.n_layer - n_there)
    context = Context(
        model,
        n_context=2048,
        n_ubatch=N_PROMPT,
        n_thread=physical_cores(),
        n_output=1,
        offloads=True,
    )
    found = _timed(context, None, N_PROMPT)
    context.close()
    model.close()
    return found | {"layers_with_experts_there": n_there}


if __name__ == "__main__":
    sys.exit(main())
