"""`outrider simulate`: replay a trace in virtual time, with any method on any machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    bytes_text,
    cache_rate,
    listed,
    say,
    share,
    whole_number,
)
from backend.gguf.model_file import read_model
from backend.machines import Hardware, load
from backend.machines.measure import measure
from backend.methods.catalogue import METHODS, Method
from backend.simulation.model import learned, router_biases, routers, token_experts, with_model
from backend.simulation.results import Phase, Result, curves
from backend.simulation.run import (
    Setting,
    eviction_method,
    eviction_names,
    stock_results,
    with_references,
)
from backend.simulation.run import run as simulate
from backend.traces.reading import read_trace
from backend.traces.trace import Trace

_RATES = (0.06, 0.17, 0.33, 0.5)
_METHODS = ("promoe", "lru-overlapped")
_INSTANT = "instant"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Replay a trace through the cache core in virtual time. In addition to the "
        "methods asked for, it shows random, lru, lfu, static, belady and oracle."
    )
    add = parser.add_argument
    add("trace", metavar="TRACE", type=Path, help="a trace (outrider trace) or a CSV of routings")
    add(
        "--machine",
        default="laptop-ssd",
        metavar="M",
        help='a preset, a machine file, "here" to measure this machine, or "instant" for copies '
        "that take no time (default laptop-ssd)",
    )
    add(
        "--methods",
        type=_methods,
        default=_METHODS,
        metavar="M,M,...",
        help=f'names, or "all" (default {",".join(_METHODS)})',
    )
    add(
        "--evictions",
        type=lambda text: tuple(dict.fromkeys(text.split(","))),
        default=(),
        metavar="E,E,...",
        help='also simulate a reactive cache with these evictions; names, or "all"',
    )
    add(
        "--rates",
        type=listed(cache_rate),
        default=_RATES,
        metavar="R,R,...",
        help="cache rates (default 0.06,0.17,0.33,0.5)",
    )
    add("--model", metavar="MODEL", type=Path, help="the trace's model: its sizes and routers")
    add(
        "--predictor",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="weights of a predictor for this model; may be given more than once",
    )
    add(
        "--accuracy",
        type=share("the accuracy"),
        default=None,
        metavar="A",
        help="replace a predictor that lacks its inputs by one with this accuracy",
    )
    add(
        "--cuts",
        type=whole_number(1, 1 << 16),
        default=None,
        metavar="N",
        help="number of pieces that an expert may be cut into, if the trace has none",
    )
    add(
        "--configure",
        type=whole_number(1, 1 << 31),
        default=None,
        metavar="N",
        help="tokens between two runs of MoEpic's configurator (default 5000)",
    )
    add(
        "--host-memory",
        dest="host_rate",
        type=share("the share that RAM holds"),
        default=None,
        metavar="R",
        help="share of the experts in RAM, between a drive and the machine's link (default: all)",
    )
    add(
        "--drive",
        default="laptop-ssd",
        metavar="M",
        help="the machine whose link is that drive, as for --machine (default laptop-ssd)",
    )
    add(
        "--stop-us",
        type=whole_number(0, 1_000_000),
        default=0,
        metavar="US",
        help="cost of a device's stop for a router's choice, in microseconds (default: no stops)",
    )
    add(
        "--n-cpu-moe",
        action="store_true",
        help="also show stock llama.cpp with whole layers' experts on the device",
    )
    add("--seed", type=whole_number(0, 1 << 31), default=0, metavar="N", help="of random choices")
    add("--no-references", action="store_true", help="show only the methods asked for")
    add("--layers", action="store_true", help="also show every layer")
    add("--json", action="store_true", help="print one JSON object")
    add("--plot", metavar="FILE.svg", type=Path, help="draw hit rate and speed over the cache rate")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.plot is not None and args.plot.suffix.lower() != ".svg":
        raise UserError("The plot is drawn as SVG: its file must end in .svg.", status=2)
    trace = _trace(args)
    file = None if args.model is None else read_model(args.model)
    setting = Setting(
        trace,
        hardware=_hardware(args.machine, args.model),
        routers=[] if file is None else routers(file, trace.layers),
        biases=[] if file is None else router_biases(file, trace.layers),
        token_experts=[] if file is None else token_experts(file, trace.layers),
        learned=learned(args.predictor, trace),
        accuracy=args.accuracy,
        seed=args.seed,
        host_rate=args.host_rate,
        stop_us=args.stop_us,
        drive=None if args.host_rate is None else _hardware(args.drive, args.model),
    )
    if args.configure is not None:
        setting = replace(setting, configure_tokens=args.configure)
    methods = _chosen(args)
    results: list[Result] = []
    if not args.json:
        say(*_heading(setting))
        say(_COLUMNS)
    for result in _results(args, setting, methods):
        results.append(result)
        if not args.json:
            say(_row(result))
            for line in result.lines:
                say(f"  {line}")
            if args.layers and not result.reason:
                say(*_layer_rows(result))
    if args.json:
        print(json.dumps(_report(args, setting, results)))
    if args.plot is not None:
        _plot(args.plot, results)
    return 0 if any(not result.reason for result in results) else 1


def _results(
    args: argparse.Namespace, setting: Setting, methods: Sequence[Method]
) -> Iterator[Result]:
    if args.n_cpu_moe:
        try:
            yield from stock_results(setting, args.rates)
        except ValueError as error:
            raise UserError(str(error), status=2) from None
    yield from simulate(setting, methods, args.rates)


def _trace(args: argparse.Namespace) -> Trace:
    trace = read_trace(args.trace, mapped=True)
    if trace.n_pass == 0:
        raise UserError(f"{args.trace.name} holds no passes: there is nothing to simulate.")
    if args.model is not None:
        trace = with_model(args.trace, trace, read_model(args.model))
    if args.cuts is not None and not trace.n_cut:
        trace = replace(trace, n_cut=(args.cuts,) * trace.n_layer)
    return trace


def _hardware(name: str, model: Path | None) -> Hardware | None:
    if name == _INSTANT:
        return None
    if name == "here":
        return measure(model)
    return load(name)


def _chosen(args: argparse.Namespace) -> list[Method]:
    names = list(args.methods) if args.no_references else with_references(args.methods)
    chosen = [METHODS[name] for name in names]
    evictions = eviction_names() if args.evictions == ("all",) else args.evictions
    try:
        chosen += [eviction_method(name) for name in evictions if name not in names]
    except ValueError as error:
        raise UserError(str(error), status=2) from None
    return chosen


_COLUMNS = (
    f"{'method':<16} {'cache':>6} {'hits':>6} {'late':>6} {'misses':>6} {'prefill':>8} "
    f"{'decode':>8} {'stall':>8} {'read':>9} {'wasted':>6} {'GoodPred':>17}"
)


def _heading(setting: Setting) -> list[str]:
    trace, hardware = setting.trace, setting.hardware
    n_request = len(set(trace.requests.tolist()))
    return [
        f"{trace.architecture}: {trace.n_layer} MoE layers, {trace.n_expert} experts, "
        f"{trace.n_expert_used} used; {len(trace.tokens)} tokens in {trace.n_pass} passes, "
        f"{n_request} request{'s' if n_request != 1 else ''}",
        f"{hardware.name}: {hardware.sentence}" if hardware else "Copies take no time.",
        *_about_ram(setting),
        "prefill and decode: tokens per second; stall: of a decoded token; read: by a token; "
        "GoodPred: accuracy x fetch rate",
        "",
    ]


def _about_ram(setting: Setting) -> list[str]:
    if setting.host_rate is None:
        return []
    drive = setting.drive
    behind = f"the drive of {drive.name}" if drive else "a drive that takes no time"
    n_kept = setting.host_slots[0]
    return [
        f"RAM keeps {n_kept} of {setting.trace.n_expert} experts of each layer, behind it is "
        f"{behind}; file: what that read for a token"
    ]


def _row(result: Result) -> str:
    start = f"{result.method:<16} "
    if result.reason:
        return f"{start}{result.asked_rate:>6.1%} not simulated: {result.reason}"
    total, prefill, decode = result.total, result.prefill, result.decode
    assert total is not None and prefill is not None and decode is not None
    n_token = max(prefill.n_token + decode.n_token, 1)
    good = ""
    if total.good_pred is not None:
        good = f"{total.good_pred:.0%} = {total.accuracy:.0%} x {total.fetch_rate:.0%}"
    wasted = total.bytes_wasted / total.bytes_read if total.bytes_read else 0.0
    predictor = f"  {result.predictor}" if "accuracy" in result.predictor else ""
    return (
        f"{start}{result.rate:>6.1%} {_share(total.hits, total.requests)} "
        f"{_share(total.late, total.requests)} {_share(total.misses, total.requests)} "
        f"{_speed(prefill)} {_speed(decode)} "
        f"{decode.stall_s / max(decode.n_token, 1) * 1e3:>5.1f} ms "
        f"{bytes_text(total.bytes_read // n_token):>9} {wasted:>6.1%} {good:>17}{predictor}"
        f"{_from_file(result, n_token)}"
    ).rstrip()


def _from_file(result: Result, n_token: int) -> str:
    n_bytes = result.bytes_from_file
    return "" if n_bytes is None else f"  file {bytes_text(n_bytes // n_token)}"


def _layer_rows(result: Result) -> list[str]:
    return [
        f"  layer {i:<8} {'':>6} {_share(c.hits, c.requests)} {_share(c.late, c.requests)} "
        f"{_share(c.misses, c.requests)} {'':>8} {'':>8} {c.stall_s * 1e3:>5.1f} ms "
        f"{bytes_text(c.bytes_read):>9} "
        f"{c.bytes_wasted / c.bytes_read if c.bytes_read else 0.0:>6.1%}"
        for i, c in enumerate(result.layers)
    ] + ["  (stall and bytes of a layer are of the whole trace)"]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:>6.1%}" if whole else f"{'':>6}"


def _speed(phase: Phase) -> str:
    speed = phase.tokens_per_s
    return f"{'':>8}" if speed is None else f"{speed:>8.1f}"


def _report(
    args: argparse.Namespace, setting: Setting, results: Sequence[Result]
) -> dict[str, Any]:
    return {
        "trace": str(args.trace),
        "model": setting.trace.model,
        "machine": setting.hardware.to_json() if setting.hardware else _INSTANT,
        "accuracy": setting.accuracy,
        "seed": setting.seed,
        "host_rate": setting.host_rate,
        "drive": setting.drive.to_json() if setting.drive else None,
        "results": [result.to_json(layers=args.layers) for result in results],
    }


def _plot(path: Path, results: Sequence[Result]) -> None:
    try:
        drawing = curves(results)
    except ValueError as error:
        raise UserError(str(error)) from None
    path.write_text(drawing, encoding="utf-8")


def _methods(text: str) -> tuple[str, ...]:
    if text == "all":
        return tuple(name for name, method in METHODS.items() if method.kind != "stock")
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in METHODS:
            raise argparse.ArgumentTypeError(
                f"the method '{name}' is not known; known are {', '.join(METHODS)}"
            )
        if METHODS[name].kind == "stock":
            raise argparse.ArgumentTypeError(
                f"{name} is stock llama.cpp, which is not simulated: the system decides what "
                "it reads"
            )
    return names
