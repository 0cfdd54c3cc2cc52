"""`outrider verify`: compare a model's logits with stock llama.cpp's, bit by bit."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    add_engine_options,
    cache_rate,
    engine_config,
    listed,
    positive,
    say,
    whole_number,
)
from backend.engine.loading import NotCacheable
from backend.evaluation.verify import Comparison, compare
from backend.gguf.model_file import ModelFile, read_model
from backend.gguf.tables import ONE_SEQUENCE
from backend.llama.batch_log import VARIABLE
from backend.memory.devices import DeviceError, resolve
from backend.memory.headroom import with_taken
from backend.memory.placement import ON_CPU, Placement, Wish, plan_devices
from backend.methods.catalogue import CACHED, METHODS
from backend.packs.file import find
from backend.system import children
from backend.system.memory import available_bytes, physical_cores
from backend.text import from_json, text, to_json
from backend.weights.lookup import load as load_learned

_N_CONTEXT = 4096
_N_STAGE = 16
"""Slots of the stage on a device, about as many as an engine would plan."""
_RATES = (0.1, 0.25, 0.5, 1.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Compare the logits of every position, in prefill and in decoding, with stock "
        "llama.cpp on the same tensor layout, bit by bit. The exit status is 1 on any difference. "
        "Where the processor computes experts of a device (--hybrid), the bound is a normalised "
        "mean square error of 1e-6 and 0.1 % of perplexity."
    )
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        type=Path,
        nargs="?",
        help="a GGUF file, or any part of a split one",
    )
    add(
        "--replay",
        metavar="LOG",
        type=Path,
        nargs="+",
        help="have stock llama.cpp, in another process, compute what an engine computed and wrote "
        "to batch logs, and compare every bit (older runs first; exit status 1: a difference, 2: a "
        f"log was not computed); {VARIABLE}=FOLDER in the environment has chat, serve, batch and "
        "the window write one, with the conversation in it",
    )
    add(
        "--rates",
        type=listed(cache_rate),
        default=_RATES,
        metavar="R,R,...",
        help="cache rates (default 0.1,0.25,0.5,1.0)",
    )
    add(
        "--methods",
        type=_methods,
        default=("promoe", "lru"),
        metavar="M,M,...",
        help=f"of {', '.join(CACHED)}, or all (default promoe,lru)",
    )
    add(
        "--tokens",
        type=whole_number(2, 1 << 16),
        default=64,
        metavar="N",
        help="tokens to compare, the last quarter one by one (default 64)",
    )
    add(
        "--sequences",
        type=listed(whole_number(1, 255)),
        default=(1,),
        metavar="N,N,...",
        help="also with this many sequences at once, such as 1,2,6,32 (default 1)",
    )
    add("--streams", action="store_true", help="with an attention cache for each of them")
    add(
        "--layout",
        choices=("file", "repacked"),
        help="layout of the experts: as in the model (file), or as the processor computes fastest, "
        "which stock llama.cpp chooses (repacked) (default: the pack's, or else file)",
    )
    add(
        "--seconds",
        type=positive("the time"),
        default=math.inf,
        metavar="S",
        help="compute no longer with stock llama.cpp, nor with each method; compare the tokens "
        "until then (default: all)",
    )
    add_engine_options(parser, "hybrid", "host_bytes", "n_thread", "pack", device="cpu")
    add("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.replay is not None:
        return _replay(args)
    if args.model is None:
        raise UserError("Name a model, or a batch log with --replay.", status=2)
    file = read_model(args.model)
    if not file.is_moe:
        raise UserError(f"{args.model.name} is a dense model: there is no expert cache to verify.")
    if file.architecture in ONE_SEQUENCE and max(args.sequences) > 1 and not args.streams:
        raise UserError(text("engine.one_sequence"))
    config = engine_config(args)
    placement = _placement(file, config.device)
    pack, why_no_pack = find(file) if config.pack and not placement.on_device else (None, "")
    in_layout = args.layout or (pack.plan.layout if pack else "file")
    results: list[Comparison] = []
    learned, remark = load_learned(file)
    if not args.json:
        for line in filter(None, [remark, why_no_pack]):
            say(line)
        where = pack.path if pack and pack.plan.layout == in_layout else file.path
        say(f"Experts are read from {where}, layout {in_layout}.")
    try:
        for result in compare(
            file,
            args.rates,
            args.methods,
            n_token=args.tokens,
            sequences=args.sequences,
            streams=args.streams,
            n_thread=config.n_thread or physical_cores(),
            learned=learned,
            in_layout=in_layout,
            pack=pack,
            placement=placement,
            n_stage=_N_STAGE if placement.on_device else 0,
            hybrid=config.hybrid,
            host_bytes=_host_bytes(config.host_bytes, file),
            limit_s=args.seconds,
        ):
            if not args.json:
                if not results:
                    say(
                        f"{'method':<16} {'rate':>6} {'experts':>7} {'sequences':>9} "
                        f"{'positions':>9}  result"
                    )
                say(_row(result))
            results.append(result)
    except NotCacheable as error:
        raise UserError(str(error)) from None
    lossless = all(result.lossless for result in results)
    if args.json:
        plain = [
            {
                **asdict(r),
                "identical": r.identical,
                "bound": r.bound,
                "nmse": r.nmse,
                "lossless": r.lossless,
            }
            for r in results
        ]
        identical = all(result.identical for result in results)
        summary = {
            "model": str(args.model),
            "identical": identical,
            "lossless": lossless,
            "remark": remark,
        }
        print(json.dumps({**summary, "results": plain}))
    return 0 if lossless else 1


def _replay(args: argparse.Namespace) -> int:
    """Have another process compute batch logs. Return the exit status."""
    command = children.command("backend.evaluation.replay", *map(str, args.replay))
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    statuses = set()
    with child:
        for log in args.replay:
            line = child.stdout.readline()
            if not line:
                status = f"(status {child.wait()})"
                raise UserError(f"The process that computes {log} ended {status}.")
            found = json.loads(line, object_hook=from_json)
            _show_replayed(log, found, as_json=args.json)
            statuses.add(1 if found["difference"] else 2 if found["obstacle"] else 0)
    return min(statuses - {0}, default=0)


def _show_replayed(log: Path, found: dict[str, Any], *, as_json: bool) -> None:
    """Print which parts of a log were compared."""
    if as_json:
        print(json.dumps(to_json({"log": str(log), **found})))
    else:
        parts = [f"{found['n_pass']} passes", f"{found['n_row']} rows of logits"]
        parts += [f"{found['n_answer']} answers with {found['n_token']} chosen tokens"]
        if found["n_void"]:
            parts.append(f"{found['n_void']} passes that were ended and taken back")
        if found["n_state"]:
            parts.append(f"{found['n_state']} states from the drive")
        if found["n_taken"]:
            parts.append(f"{found['n_taken']} states taken as they were, computed beside others")
        say(f"Compared with stock llama.cpp: {', '.join(parts)}.")
        say(found["difference"] or found["obstacle"] or "Every bit is the same.")
        if found["remark"]:
            say(found["remark"])


def _host_bytes(asked_bytes: int | None, file: ModelFile) -> int:
    """Return the RAM that keeps experts for a device: by default for all, if they fit."""
    if asked_bytes is None:
        return min(file.expert_bytes_total, available_bytes() // 2)
    return asked_bytes


def _placement(file: ModelFile, option: str) -> Placement:
    """Return a placement of the layers that fit with all their experts, as stock needs."""
    try:
        devices = [with_taken(device) for device in resolve(option)]
    except DeviceError as error:
        raise UserError(str(error)) from None
    if not devices:
        return ON_CPU
    plan = plan_devices(file, devices, Wish(file.n_expert, _N_CONTEXT, whole=True))
    if plan.n_gpu_layers <= 1:
        raise UserError("No layer finds room on the device with all its experts.")
    return plan.placement


def _row(result: Comparison) -> str:
    return (
        f"{result.method:<16} {result.rate:>6.3f} {result.n_slot:>7} "
        f"{result.n_sequence:>9} {result.n_position:>9}  {_verdict(result)}"
    )


def _verdict(result: Comparison) -> str:
    """Return the result of the comparison in words, with the bound that applies."""
    if result.bound == "hybrid":
        who = f"the processor computed {result.on_host} experts"
        if result.identical:
            return f"identical, though {who}"
        how = "equal but for rounding" if result.lossless else "too different"
        return (
            f"{how}: {who} (normalised mean square error {result.nmse:.1e} "
            f"of at most {result.hybrid_nmse:.0e}, "
            f"perplexity {100 * result.perplexity_difference:+.3f} % "
            f"of at most {100 * result.hybrid_perplexity:.1f} %)"
        )
    if result.identical:
        return "identical"
    if result.lossless:
        return (
            "equal but for rounding: experts are computed in two parts "
            f"(relative difference {result.relative_difference:.1e})"
        )
    return (
        f"{result.n_different} of {result.n_value} values differ, from position "
        f"{result.first_position} on, by up to {result.largest_difference:.3g}"
    )


def _methods(text: str) -> tuple[str, ...]:
    if text == "all":
        return CACHED
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in CACHED:
            known = ", ".join(CACHED)
            what = "runs llama.cpp unpatched or not at all" if name in METHODS else "is not known"
            raise argparse.ArgumentTypeError(
                f"the method '{name}' {what}; to verify there are {known}, or all"
            )
    return names
