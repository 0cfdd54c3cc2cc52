"""`outrider bench`: measure ways to run a model, and how near each comes to its bound."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.bench.tables import chart, rewrite, terminal
from backend.bench.turns import FORMAT, VERSION, Setting, Way
from backend.bench.turns import run as measure
from backend.bench.workload import (
    Request,
    WorkloadError,
    check_trace,
    forced_rows,
    n_recorded_prompt,
)
from backend.cli.common import (
    UserError,
    add_engine_options,
    cache_rate,
    engine_config,
    listed,
    number_that,
    positive,
    say,
    whole_number,
)
from backend.gguf.model_file import ModelFile, read_model
from backend.methods.catalogue import RUNNABLE
from backend.packs.file import find
from backend.traces.prompts import read_prompts
from backend.traces.reading import read_trace
from backend.traces.trace import Trace

_BASELINES = ("stock", "fastest")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Measure methods at cache rates, and stock llama.cpp, in turn (A B C A B C), "
        "each in a separate process. The bound of each is max(compute, bytes / bandwidth), both "
        "measured in the same run. The first round is cold; medians are taken over the others."
    )
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        nargs="+",
        type=Path,
        help="a GGUF file; or results of --json, to show them again",
    )
    _add_ways(add)
    add_engine_options(parser, "hybrid", "n_thread", device="cpu")
    _add_workload(add)
    add("--json", type=Path, metavar="OUT", help="write all measurements")
    add("--charts", type=Path, metavar="FOLDER", help="draw speed over the cache rate, as SVG")
    add(
        "--docs",
        type=Path,
        metavar="FILE.md",
        help="put the tables between the marks of a Markdown file, and a chart beside it",
    )


def _add_ways(add: Callable[..., Any]) -> None:
    add(
        "--rates",
        type=listed(cache_rate),
        default=(0.25,),
        metavar="R,R,...",
        help="cache rates (default 0.25)",
    )
    add(
        "--methods",
        type=_names(RUNNABLE, "method"),
        default=("lru", "outrider"),
        metavar="M,M,...",
        help="methods, see outrider methods (default lru,outrider)",
    )
    add(
        "--baseline",
        type=_names((*_BASELINES, "none"), "baseline"),
        default=("stock",),
        metavar="B,B",
        help="stock: memory-mapped; fastest: resident, in the layout that computes fastest; "
        "none (default stock)",
    )
    add(
        "--packs",
        choices=("auto", "without", "both"),
        default="auto",
        help="read experts from the model's pack: if there is one (auto), never (without), or "
        "measure with and without it (both) (default auto)",
    )
    add(
        "--memory-cap",
        type=_bytes,
        default=0,
        metavar="BYTES",
        help="limit each process to this much memory, page cache included, as 2.5e9 or 1.5GB",
    )
    add(
        "--link",
        type=positive("the link's speed"),
        default=0.0,
        metavar="GB/s",
        help="throttle the copies of experts to this speed",
    )


def _add_workload(add: Callable[..., Any]) -> None:
    add("--prompts", type=Path, metavar="FILE", help="text to compute, instead of random tokens")
    add(
        "--forced-routing",
        type=Path,
        metavar="TRACE",
        help="let a recorded trace choose the experts, also in stock llama.cpp",
    )
    add(
        "--accuracy",
        type=_share,
        metavar="A",
        help="with forced routing: replace predictors by one with this accuracy",
    )
    add(
        "--lookahead",
        type=whole_number(1, 64),
        default=1,
        metavar="N",
        help="how many layers ahead that predictor forecasts (default 1)",
    )
    add("--prompt", type=whole_number(1, 1 << 20), metavar="N", help="tokens before decoding")
    add("--tokens", type=whole_number(1, 1 << 20), default=64, metavar="N", help="decoded (64)")
    add(
        "--prefill",
        type=listed(whole_number(1, 1 << 20)),
        default=(),
        metavar="N,N,...",
        help="also measure prompts of these lengths, without an answer",
    )
    add("--ubatch", type=whole_number(1, 1 << 16), default=512, metavar="N", help="of prompts")
    add("--rounds", type=whole_number(1, 1000), default=3, metavar="N", help="(default 3)")
    add(
        "--seconds",
        type=positive("the time"),
        default=math.inf,
        metavar="S",
        help="begin no turn after this time; keep the measurements until then",
    )
    add(
        "--limit",
        type=positive("the limit"),
        default=30.0,
        metavar="S",
        help="seconds after which a prompt or the decoding of stock llama.cpp is cut off (30)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if all(path.suffix == ".json" for path in args.model):
        results = [_read(path) for path in args.model]
    elif len(args.model) > 1:
        raise UserError("One model is measured at a time; only results can be several.", status=2)
    else:
        results = [_measure(args)]
    say(*"\n\n".join(map(terminal, results)).split("\n"))
    if args.json is not None:
        args.json.write_text(json.dumps(results[0]) + "\n", encoding="utf-8")
    svg = chart(results) if args.charts is not None else None
    if args.charts is not None:
        if svg is None:
            raise UserError("There is nothing to draw: a chart needs at least two cache rates.")
        args.charts.mkdir(parents=True, exist_ok=True)
        (args.charts / "bench.svg").write_text(svg, encoding="utf-8")
    if args.docs is not None:
        rewrite(args.docs, results)
    ways = [way for result in results for way in result["ways"]]
    return 0 if any(way["kind"] == "outrider" and not way["error"] for way in ways) else 1


def _measure(args: argparse.Namespace) -> dict[str, Any]:

    def show(line: str) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            say(line, error=True)

    return measure(_setting(args), show)


def _setting(args: argparse.Namespace) -> Setting:
    if args.accuracy is not None and args.forced_routing is None:
        raise UserError("--accuracy needs --forced-routing: it knows what will come.", status=2)
    file = read_model(args.model[0])
    if not file.is_moe:
        raise UserError(f"{file.path.name} is a dense model: there are no experts to cache.")
    remarks, n_prompt, forced = [], args.prompt or 192, None
    if args.forced_routing is not None:
        trace = read_trace(args.forced_routing)
        try:
            used = check_trace(trace, file)
            remarks = _forced_remarks(trace, file)
            n_prompt = args.prompt or n_recorded_prompt(trace)
            file = used
            requests = [Request(n_prompt, args.tokens), *(Request(n, 0) for n in args.prefill)]
            forced = forced_rows(trace, file, requests, args.rounds)
        except WorkloadError as error:
            raise UserError(str(error)) from None
    requests = [Request(n_prompt, args.tokens), *(Request(n, 0) for n in args.prefill)]
    longest = max(r.n_token for r in requests)
    if file.context_length and longest > file.context_length:
        raise UserError(
            f"{file.path.name} was made for {file.context_length} tokens, not for {longest}."
        )
    ways = [Way(kind) for kind in args.baseline if kind != "none"]
    ways += [
        Way("outrider", name, rate, pack)
        for rate in args.rates
        for name in args.methods
        for pack in _packs(args.packs, file)
    ]
    return Setting(
        file=file,
        ways=ways,
        requests=requests,
        config=engine_config(args, n_ubatch=args.ubatch),
        n_round=args.rounds,
        cap_bytes=args.memory_cap,
        tokens=_text(args.prompts),
        forced=forced,
        accuracy=args.accuracy,
        lookahead=min(args.lookahead, file.n_moe_layer),
        link_bytes_per_s=args.link * 1e9,
        limit_s=args.limit,
        max_s=args.seconds,
        remarks=remarks,
    )


def _packs(wanted: str, file: ModelFile) -> tuple[bool, ...]:
    pack, remark = find(file)
    if wanted == "both" and pack is None:
        raise UserError(remark or f"{file.path.name} has no pack; outrider pack makes one.")
    if wanted == "both":
        return (False, True)
    return (wanted == "auto" and pack is not None,)


def _forced_remarks(trace: Trace, file: ModelFile) -> list[str]:
    stride = trace.n_layer // file.n_moe_layer
    remarks = []
    if trace.n_expert_used != file.n_expert_used:
        remarks.append(
            f"The trace has {trace.n_expert_used} experts for each token, the model "
            f"{file.n_expert_used}: {trace.n_expert_used} are used."
        )
    if stride > 1:
        remarks.append(f"Layer i is routed as layer {stride} i of the trace's {trace.n_layer}.")
    return remarks


def _text(path: Path | None) -> str:
    return "" if path is None else "\n".join(prompt.text for prompt in read_prompts(path))


def _read(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError):
        raise UserError(f"{path.name} is not JSON.") from None
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise UserError(f"{path.name} is not a result of outrider bench.")
    if result.get("version") != VERSION:
        raise UserError(f"{path.name} is of another version of outrider bench.")
    return result


def _names(known: tuple[str, ...], what: str) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"there is no {what} '{name}'; there are {', '.join(known)}"
                )
        return names

    return parse


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    unit = (found[2] or "") if found else ""
    try:
        value = float(found[1]) * {**_UNITS, **_BINARY}[unit] if found else math.nan
    except ValueError:
        value = math.nan
    if not 1 <= value < 1 << 50:
        raise argparse.ArgumentTypeError(f"must be a size such as 2.5e9 or 1.5GB, not '{text}'")
    return int(value)


_share = number_that(lambda value: 0 <= value <= 1, "the accuracy must be from 0 to 1")
