"""`outrider figures`: make figures of the papers again, in the simulator."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from backend.cli.common import (
    UserError,
    say,
    whole_number,
)
from backend.evaluation.paper_figures import FIGURES, Figure, Inputs
from backend.gguf.model_file import read_model
from backend.methods.compose import Learned
from backend.simulation.charts import line_charts
from backend.simulation.model import learned, router_biases, routers
from backend.traces.reading import read_trace
from backend.weights.lookup import load as load_learned


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Simulate what a paper measured: its model's sizes on its machine, with the routing of a "
        f"trace. Figures: {', '.join(FIGURES)}."
    )
    add = parser.add_argument
    add("name", choices=FIGURES, metavar="NAME", help="a figure")
    add("model", metavar="MODEL", type=Path, help="the trace's model: its routers")
    add("trace", metavar="TRACE", type=Path, help="of outrider trace --inputs")
    add("--predictor", type=Path, action="append", default=[], metavar="FILE", help="weights")
    add("--of-paper", type=Path, metavar="FILE", help="weights of outrider train --of-paper")
    add("--requests", type=whole_number(1), default=40, metavar="N", help="of the trace, at most")
    add("--plot", metavar="FILE.svg", type=Path, help="draw the figure")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.plot is not None and args.plot.suffix.lower() != ".svg":
        raise UserError("The figure is drawn as SVG: its file must end in .svg.", status=2)
    file = read_model(args.model)
    trace = read_trace(args.trace, file.fingerprint)
    if trace.inputs is None:
        raise UserError(f"{args.trace.name} has no inputs; record it with outrider trace --inputs.")
    first = int(trace.requests[0])
    trace = trace.passes(0, int((trace.requests < first + args.requests).sum()))
    shipped, _ = load_learned(file)
    given = learned(args.predictor, trace)
    inputs = Inputs(
        trace,
        routers(file, trace.layers),
        router_biases(file, trace.layers),
        Learned({**shipped.arrays, **given.arrays}, {**shipped.numbers, **given.numbers}),
    )
    if args.of_paper is not None:
        inputs = replace(inputs, of_paper=learned([args.of_paper], trace))
    try:
        figure = FIGURES[args.name](inputs)
    except ValueError as error:
        raise UserError(str(error)) from None
    say(*_table(figure))
    if args.plot is not None:
        if not figure.panels:
            raise UserError(f"{args.name} is a table; it has no picture.")
        args.plot.write_text(line_charts(figure.panels), encoding="utf-8")
    return 0


def _table(figure: Figure) -> list[str]:
    rows = [figure.columns, ("---",) * len(figure.columns), *figure.rows]
    return ["| " + " | ".join(row) + " |" for row in rows]
