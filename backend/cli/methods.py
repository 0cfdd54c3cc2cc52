"""`outrider methods`: list the methods, their parts and their papers."""

from __future__ import annotations

import argparse
import json

from backend.cli.common import say
from backend.methods.catalogue import METHODS

_KINDS = {
    "cached": "",
    "stock": "llama.cpp unpatched",
    "bound": "only in the simulator",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "List the methods that --method takes: what each does, the parts that it is "
        "composed of, and the paper that it follows."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.json:
        print(
            json.dumps(
                {
                    name: {
                        "sentence": method.sentence,
                        "parts": method.parts,
                        "paper": method.paper,
                        "kind": method.kind,
                    }
                    for name, method in METHODS.items()
                }
            )
        )
        return 0
    for name, method in METHODS.items():
        note = f" ({_KINDS[method.kind]})" if _KINDS[method.kind] else ""
        say(f"{name}{note}")
        say(f"    {method.sentence}")
        say(f"    Parts: {method.parts}.")
        say(f"    Source: {method.paper}.")
    return 0
