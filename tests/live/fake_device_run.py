"""Run a model on the fake device. Print one JSON object.

    python fake_device_run.py LIBRARY MODEL METHOD [OPTION...]

It is a process of its own, because ggml never removes a device.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import zlib
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from equality import Runner, random_tokens

from backend import _native
from backend.engine.loaded_model import LoadedModel
from backend.engine.loading import CachedModel, load_native
from backend.evaluation.verify import compare
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.api import Context
from backend.memory.placement import Placement
from backend.methods.catalogue import METHODS
from backend.methods.compose import composition, layout
from backend.protocol.settings import EngineConfig

RATES = (0.1, 0.5, 1.0)
NO_LIMIT = 1 << 40
COUNTS = (
    *("n_backend", "n_async", "n_shared", "pinned_bytes", "n_few", "n_many", "n_cut"),
    *("n_sync", "n_upload", "n_view", "n_fused", "n_captured", "n_replayed"),
    *("n_async_bytes", "n_alone", "n_drained", "n_wait", "n_awaited"),
)
N_PROMPT = 33
N_REFUSED = 50


def counts(library: Any) -> dict[str, int]:
    """Return the counts of requests to the device so far; see fake_counts(). None: of no device."""
    if library is None:
        return {}
    into = (ctypes.c_long * len(COUNTS))()
    library.fake_counts(into)
    return dict(zip(COUNTS, into, strict=True))


def since(library: Any, before: dict[str, int]) -> dict[str, Any]:
    """Return the counts of requests since then."""
    return {name: n - before[name] for name, n in counts(library).items()}


def compared(
    library: Any, file: ModelFile, at: Placement, host_bytes: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Compare the model with stock llama.cpp. Return the requests and the results."""
    before = counts(library)
    try:
        results = list(
            compare(
                file,
                RATES,
                [options.method],
                n_token=48,
                n_thread=1,
                placement=at,
                host_bytes=host_bytes,
                hybrid=options.hybrid,
            )
        )
    except RuntimeError as error:
        return {"error": str(error)}
    found = since(library, before)
    found["n_different"] = [r.n_different for r in results]
    found["misses"] = [r.misses for r in results]
    found["on_host"] = [r.on_host for r in results]
    found["bytes_from_host"] = [r.bytes_from_host for r in results]
    return found


def open_context(model: Any, patch: Any = None) -> Context:
    hook = {"callback": patch.callback, "user_data": patch.user_data} if patch else {}
    return Context(model, n_context=256, n_ubatch=64, n_thread=1, **hook)


def token_costs(
    library: Any, context: Context, n_token: int, patch: Any = None
) -> list[dict[str, int]]:
    """What each decoded token asked of the device, and its logits; also its misses and waves."""
    context.forget_from(0)
    tokens, found = random_tokens(N_PROMPT + n_token), []
    for at, step in [
        (0, tokens[:N_PROMPT]),
        *((i, tokens[i : i + 1]) for i in range(33, len(tokens))),
    ]:
        before, missed, waves = counts(library), absent(patch), n_graph(patch)
        if patch:
            patch.begin_pass(_native.Phase.prefill if at == 0 else _native.Phase.decode, step)
        assert context.decode(step, at) == 0
        assert not patch or patch.end_pass()
        found.append(since(library, before))
        found[-1]["logits"] = zlib.crc32(context.logits(1).tobytes())
        found[-1]["n_drained"] = since(library, before)["n_drained"]  # with the wait for the logits
        found[-1] |= {"misses": absent(patch) - missed, "n_graph": n_graph(patch) - waves}
    found[-1]["state"] = zlib.crc32(context.state(0, len(tokens)))
    return found[1:]


def absent(patch: Any) -> int:
    """How many experts were late or missing so far."""
    return sum(c.misses + c.late for c in patch.counts()) if patch else 0


def n_graph(patch: Any) -> int:
    """How many graphs were computed in waves so far."""
    return int(patch.times().n_graph) if patch else 0


def budget(
    library: Any,
    file: ModelFile,
    at: Placement,
    method: str,
    n_slots: list[int],
    *,
    n_token: int,
) -> list[list[dict[str, int]]]:
    """token_costs() of stock llama.cpp, then with each of these numbers of slots in every layer."""
    model = load_native(file, at)
    context = open_context(model)
    found = [token_costs(library, context, n_token)]
    context.close()
    model.close()
    cached = CachedModel(file, n_thread=1, placement=at)
    patch = cached.patch
    context = open_context(cached.model, patch)
    cached.computes_in(context)
    parts = composition(METHODS[method], patch.shape, on_device=True)
    for n_slot in n_slots:
        layout = _native.Layout.per_layer([n_slot] * patch.shape.n_layer)
        options = _native.PatchOptions(max_token=64, host_bytes=file.expert_bytes_total)
        patch.configure(layout, parts, options)
        found.append(token_costs(library, context, n_token, patch))
    cached.computes_in(None)
    context.close()
    cached.close()
    return found


def prompt_cost(library: Any, context: Context, n_token: int, patch: Any = None) -> dict[str, Any]:
    """Compute a prompt of random tokens. Return its time, its logits, and what it asked for."""
    context.forget_from(0)
    tokens = random_tokens(n_token)
    before, waves, missed, began_s = counts(library), n_graph(patch), absent(patch), monotonic()
    for at in range(0, n_token, context.n_ubatch):
        step = tokens[at : at + context.n_ubatch]
        if patch:
            patch.begin_pass(_native.Phase.prefill, step)
        assert context.decode(step, at) == 0
        assert not patch or patch.end_pass(), patch.error
    logits = context.logits(1)[-1].tolist()
    ms = 1e3 * (monotonic() - began_s)
    while patch and patch.stock([]):  # the copies in flight belong to this prompt
        sleep(0.001)
    asked = {"n_graph": n_graph(patch) - waves, "misses": absent(patch) - missed}
    return since(library, before) | asked | {"ms": ms, "logits": logits}


def prompts(
    library: Any,
    file: ModelFile,
    at: Placement,
    method: str,
    lengths: list[int],
    n_stage: int,
    *,
    n_ubatch: int = 512,
    n_round: int = 2,
    n_thread: int = 1,
) -> list[list[dict[str, Any]]]:
    """Compare prompts with half of the experts on the device: stock llama.cpp's, then ours.

    Stock keeps whole layers there (--n-cpu-moe), we keep slots and a stage of the same memory, and
    all experts in RAM. Each length is computed n_round times in turn, first to warm up. Return
    what the last round of each length asked for, and the shortest time of the others.
    """
    size: Any = {"n_context": 2 * max(lengths), "n_ubatch": n_ubatch, "n_thread": n_thread}
    model = load_native(file, at, n_cpu_moe=file.n_layer // 2)
    stock = Context(model, **size, n_output=1, offloads=True)
    cached = CachedModel(file, n_thread=n_thread, placement=at)
    patch, shape = cached.patch, cached.patch.shape
    hook = {"callback": patch.callback, "user_data": patch.user_data}
    context = Context(cached.model, **size, **hook, n_output=1)
    cached.computes_in(context)
    n_slot = (shape.n_layer // 2 * shape.n_expert - n_stage) // shape.n_layer
    patch.configure(
        _native.Layout.per_layer([n_slot] * shape.n_layer).staged(shape, n_stage),
        composition(METHODS[method], shape, on_device=True),
        _native.PatchOptions(
            max_token=n_ubatch, n_thread=n_thread, host_bytes=file.expert_bytes_total
        ),
    )
    found: list[list[dict[str, Any]]] = [[], []]
    for n_token in lengths:
        rounds = [
            (prompt_cost(library, stock, n_token), prompt_cost(library, context, n_token, patch))
            for _ in range(n_round)
        ]
        for side, costs in zip(found, zip(*rounds, strict=True), strict=True):
            side.append(costs[-1] | {"ms": min(cost["ms"] for cost in costs[1:])})
    cached.computes_in(None)
    context.close()
    cached.close()
    stock.close()
    model.close()
    return found


def refused(library: Any, file: ModelFile, at: Placement, method: str) -> dict[str, Any]:
    """Let the first, second, … allocation of device memory fail until nothing fails any more.

    Return what was said each time, and whether the logits then equal those before.
    """
    cached = CachedModel(file, n_thread=1, placement=at)
    runner, said, logits = Runner(cached.model, 1, cached.patch), [], []
    for n in [NO_LIMIT, *range(N_REFUSED)]:
        library.fake_refuse(n)
        try:
            cached.patch.configure(
                layout(METHODS[method], cached.patch.shape, 4),
                composition(METHODS[method], cached.patch.shape),
                _native.PatchOptions(max_token=128, host_bytes=file.expert_bytes_total),
            )
            logits.append(zlib.crc32(runner.logits(33, 4).tobytes()))
        except (RuntimeError, AssertionError) as error:
            said.append(str(error))
        if len(logits) == 2:
            break
    library.fake_refuse(-1)
    runner.close()
    cached.close()
    return {"said": said, "logits": logits}


def moved(library: Any, file: ModelFile, at: Placement, options: Any) -> list[dict[str, Any]]:
    """Change the number of slots as the engine does. Return what stayed, and what was read then.

    From the second number on the device has --room bytes more than it used with the old slots, and
    the first --fail allocations fail.
    """
    cached = CachedModel(file, n_thread=1, placement=at)
    patch, chosen, found = cached.patch, METHODS[options.method], []
    runner = None
    for n_slot in options.move:
        before = resident(patch)
        patch.configure(
            layout(chosen, patch.shape, n_slot),
            composition(chosen, patch.shape, on_device=True),
            _native.PatchOptions(max_token=128, host_bytes=options.host_bytes),
            True,
        )
        after = resident(patch)
        wrong = [n for n in range(sum(map(len, after))) if patch.find_wrong_slot(n) is not None]
        runner = runner or Runner(cached.model, 1, patch)
        logits = zlib.crc32(runner.logits(33, 4).tobytes())
        slots, host = patch.counts(), patch.host_counts()
        from_file = sum(c.bytes_read for c in slots) + sum(h.bytes_read for h in host)
        from_file -= sum(h.bytes_found + h.bytes_awaited for h in host)
        found.append({"before": before, "after": after, "wrong": wrong, "logits": logits})
        found[-1]["from_file"] = from_file
        slots_now = patch.layout
        found[-1]["n_slot"] = [slots_now.pools[la.pool[0]].n_slot for la in slots_now.layers]
        library.fake_room(options.room, options.fail)
    assert runner is not None
    library.fake_room(-1, 0)
    runner.close()
    cached.close()
    return found


def resident(patch: Any) -> list[list[int]]:
    """Return the resident experts of each layer."""
    n, cells = patch.shape.n_expert, patch.snapshot()
    layers = [cells[i : i + n] for i in range(0, len(cells), n)]
    return [[e for e, cell in enumerate(layer) if cell & 3 == 1] for layer in layers]


def loaded(file: ModelFile) -> list[dict[str, Any]]:
    """Load the model as the engine does, twice: what the plan says each time."""
    found = []
    for _ in range(2):
        config = EngineConfig.of(device="FAKE0", cache_rate=0.5, n_ubatch=64, n_thread=1)
        model = LoadedModel(file, config, None)
        assert model.plan.devices is not None
        share = model.plan.devices.devices[0]
        found.append({"headroom": share.headroom_bytes, "n_slot": model.plan.n_slot})
        found[-1]["remark"] = model.cache.remark
        model.close()
    return found


def ran(library: Any, file: ModelFile, at: Placement, options: argparse.Namespace) -> Any:
    """Run a prompt and some tokens. Return requests, slots of the store, and events in words."""
    cached = CachedModel(file, n_thread=1, placement=at)
    patch, chosen = cached.patch, METHODS[options.method]
    library.fake_limits(options.max_buffer, options.max_tensor, options.max_pinned)
    try:
        patch.record_events(True)
        for n_slot in options.slots:
            patch.configure(
                layout(chosen, patch.shape, n_slot),
                composition(chosen, patch.shape, hybrid=options.hybrid, on_device=True),
                _native.PatchOptions(max_token=128, host_bytes=options.host_bytes),
            )
        runner = Runner(cached.model, 1, patch)
        before = counts(library)
        runner.logits(*options.tokens)
        asked = since(library, before) | {"n_graph": n_graph(patch)}
        runner.close()
        log = patch.take_events()
        events = [log.describe(i)[0] for i in range(len(log))]
        held = {
            "pinned_in_all": counts(library)["pinned_bytes"],
            "lacks_pinned": patch.host_lacks_pinned,
        }
        return asked | held | {"host_slots": patch.host_slots, "events": events}
    except (RuntimeError, AssertionError) as error:
        return {"error": str(error)}
    finally:
        cached.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("model", type=Path)
    parser.add_argument("method")
    parser.add_argument("--compare", type=int, nargs="+", metavar="HOST_BYTES")
    parser.add_argument("--budget", type=int, nargs="+", metavar="N_SLOT")
    parser.add_argument("--prompts", type=int, nargs="+", metavar="N_TOKEN")
    parser.add_argument("--n-stage", type=int, default=0)
    parser.add_argument("--n-token", type=int, default=60)
    parser.add_argument("--refuse", action="store_true")
    parser.add_argument("--move", type=int, nargs="+", metavar="N_SLOT")
    parser.add_argument("--room", type=int, default=-1)
    parser.add_argument("--fail", type=int, default=0)
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--slots", type=int, nargs="+", default=[4])
    parser.add_argument("--n-gpu-layers", type=int, default=999)
    parser.add_argument("--tokens", type=int, nargs=2, default=(33, 8), metavar="N")
    parser.add_argument("--host-bytes", type=int, default=0)
    parser.add_argument("--hybrid", default="off")
    parser.add_argument("--max-buffer", type=int, default=NO_LIMIT)
    parser.add_argument("--max-tensor", type=int, default=NO_LIMIT)
    parser.add_argument("--max-pinned", type=int, default=NO_LIMIT)
    options = parser.parse_args()
    library = ctypes.CDLL(options.library)
    library.fake_device.restype = ctypes.c_void_p
    library.fake_limits.argtypes = [ctypes.c_size_t] * 3
    library.fake_refuse.argtypes = [ctypes.c_long]
    library.fake_room.argtypes = [ctypes.c_long] * 2
    library.fake_failure.restype = ctypes.c_char_p
    at = Placement((library.fake_device(),), options.n_gpu_layers)
    file = read_model(options.model)
    found: Any
    if options.compare:
        found = [compared(library, file, at, n, options) for n in options.compare]
    elif options.engine:
        library.fake_limits(NO_LIMIT, NO_LIMIT, options.max_pinned)
        found = loaded(file)
    elif options.refuse:
        found = refused(library, file, at, options.method)
    elif options.move:
        found = moved(library, file, at, options)
    elif options.prompts:
        lengths, n_stage = options.prompts, options.n_stage
        found = prompts(library, file, at, options.method, lengths, n_stage)
    elif options.budget:
        found = budget(
            library,
            file,
            at,
            options.method,
            options.budget,
            n_token=options.n_token,
        )
    else:
        found = ran(library, file, at, options)
    if failure := library.fake_failure().decode():
        sys.exit(f"The device was used wrongly: {failure}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
