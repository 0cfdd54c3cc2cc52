"""`outrider train`: train predictors on a model's routing."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import time
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    bytes_text,
    cache_rate,
    number_that,
    say,
    show_progress,
    whole_number,
)
from backend.evaluation.collect import Limits, collect, read_documents
from backend.gguf.model_file import ModelFile, read_model
from backend.methods.slots import rate_of
from backend.protocol.settings import EngineConfig
from backend.traces.reading import read_trace
from backend.traces.trace import Trace
from backend.weights.lookup import in_data_folder
from predictors.fit import fit, write

NEEDS_TORCH = "expert_mlp"
"""This method is trained with torch, which only a developer's environment has."""
METHODS = tuple(
    name
    for name in ("learned", NEEDS_TORCH, "correlation", "token_table", "eam", "popularity")
    if name != NEEDS_TORCH or importlib.util.find_spec("torch") is not None
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Record which experts a model chooses, and train predictors of them. After an "
        "interruption, the same command continues where it stopped."
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file, or any part of a split one")
    add(
        "--prompts",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="prompts or conversations; without --prompts and --texts built-in questions are used",
    )
    add("--texts", type=Path, nargs="+", default=[], metavar="FILE", help="texts, computed whole")
    add(
        "--trace",
        type=Path,
        nargs="+",
        default=[],
        metavar="TRACE",
        help="train on these instead of recording (outrider trace --inputs --scores)",
    )
    add("--method", type=_methods, default=("learned",), metavar="M,M,...", help=_METHODS_HELP)
    add("--stride", type=int, choices=(1, 2), help="how many layers ahead (default: both)")
    add(
        "--of-paper",
        action="store_true",
        help="train ProMoE's own network: two layers of about 2 M parameters, from nothing",
    )
    add("--tokens", type=whole_number(100), default=200_000, metavar="N", help="to be recorded")
    add("--minutes", type=_minutes, default=10.0, metavar="N", help="of training each (default 10)")
    add("--epochs", type=whole_number(1, 1000), default=6, metavar="N", help="at most (default 6)")
    add("--cache-rate", type=cache_rate, metavar="R", help="share of the experts kept in memory")
    add("--threads", type=whole_number(0, 1024), default=0, metavar="N", help="of recording")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="the file to write, a folder for several methods; by default the application's data "
        "folder, where engines find it",
    )
    add("--keep", action="store_true", help="keep the recorded traces")
    add("--json", action="store_true", help="print one JSON object")


_METHODS_HELP = f'{", ".join(METHODS)} or "all" (default learned)'


def _methods(text: str) -> tuple[str, ...]:
    names = METHODS if text == "all" else tuple(text.replace("expertmlp", "expert_mlp").split(","))
    for name in names:
        if name not in METHODS and name == NEEDS_TORCH:
            raise argparse.ArgumentTypeError(
                "expert_mlp is trained in a developer's environment only (CONTRIBUTING.md)"
            )
        if name not in METHODS:
            raise argparse.ArgumentTypeError(f"there is no method '{name}'; see --help")
    return names


_minutes = number_that(lambda value: 0 < value < 1e6, "must be a number of minutes above 0")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    file = read_model(args.model)
    if not file.is_moe:
        raise UserError(f"{args.model.name} is a dense model: it has no experts to predict.")
    outputs = _outputs(args, file)
    work = next(iter(outputs.values())).with_suffix(".work")
    work.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    traces = _traces(args, file, work)
    recorded_s = time.monotonic() - began_s
    reports = []
    for method, path in outputs.items():
        reports.append(_train(args, file, traces, method, path, work))
    if not args.keep:
        shutil.rmtree(work, ignore_errors=True)
    if args.json:
        print(json.dumps({"recording_s": round(recorded_s, 1), "predictors": reports}))
    else:
        say(f"{reports[0]['tokens']} tokens, recorded in {recorded_s:.0f} s")
        for report in reports:
            say(*_lines(report))
    return 0


def _outputs(args: argparse.Namespace, file: ModelFile) -> dict[str, Path]:
    """Return the file of each predictor."""
    if args.out is None:
        paths = {name: in_data_folder(file, name) for name in args.method}
    elif len(args.method) == 1 and not args.out.is_dir():
        paths = {args.method[0]: args.out}
    else:
        paths = {name: args.out / f"{file.path.stem}.{name}.predictor" for name in args.method}
    for path in paths.values():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise UserError(f"The folder {path.parent} cannot be made.") from None
    return paths


def _traces(args: argparse.Namespace, file: ModelFile, work: Path) -> list[Trace]:
    if args.trace:
        return [read_trace(path, file.fingerprint, mapped=True) for path in args.trace]
    highest = rate_of(file.n_expert - 1, file.n_expert)
    rate = highest if args.cache_rate is None else min(args.cache_rate, highest)
    config = EngineConfig(method="lru-overlapped", cache_rate=rate, n_thread=args.threads)
    documents = read_documents(args.prompts, args.texts)
    traces = collect(
        file, documents, work, Limits(args.tokens), config, _Bar("Recording").show_and_go_on
    )
    _Bar("").end()
    return traces


def _train(
    args: argparse.Namespace,
    file: ModelFile,
    traces: list[Trace],
    method: str,
    path: Path,
    work: Path,
) -> dict[str, Any]:
    began_s = time.monotonic()
    bar = _Bar(f"Training {method}")
    try:
        weights = fit(
            method,
            traces,
            file,
            strides=(1, 2) if args.stride is None else (args.stride,),
            minutes=args.minutes,
            epochs=args.epochs,
            checkpoint=work / f"{method}.npz",
            progress=bar.show,
            of_paper=args.of_paper,
        )
        write(path, file.fingerprint, weights)
    except ValueError as error:
        raise UserError(str(error)) from None
    finally:
        bar.end()
    return {
        "method": method,
        "out": str(path),
        "bytes": path.stat().st_size,
        "tokens": sum(len(trace.tokens) for trace in traces),
        "seconds": round(time.monotonic() - began_s, 1),
        "about": dict(weights.about),
    }


def _lines(report: dict[str, Any]) -> list[str]:
    """Return a readable report of one predictor."""
    head = f"{report['out']}: {report['method']}, {bytes_text(report['bytes'])}"
    lines = [f"{head}, {report['seconds']:.0f} s"]
    for stride, layers in report["about"].get("accuracy_by_stride_and_layer", {}).items():
        plain = {int(name): share for name, share in layers.items() if name.isdecimal()}
        mean = sum(plain.values()) / max(len(plain), 1)
        shares = " ".join(f"{plain[layer]:.0%}" for layer in sorted(plain))
        lines.append(f"  stride {stride}: {mean:.1%} right on held-out documents; {shares}")
    return lines


class _Bar:
    """A progress bar in one line of the terminal, if there is one."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._shown_s = 0.0

    def show(self, share: float, text: str) -> None:
        """Draw the bar, at most five times a second."""
        if time.monotonic() - self._shown_s > 0.2:
            self._shown_s = time.monotonic()
            filled = int(24 * min(share, 1.0))
            show_progress(f"{self.title} [{'=' * filled:<24}] {min(share, 1.0):.0%} {text}")

    def show_and_go_on(self, share: float, text: str) -> bool:
        """Draw the bar and return True, for callers that ask whether to continue."""
        self.show(share, text)
        return True

    def end(self) -> None:
        """Clear the line."""
        show_progress("")
