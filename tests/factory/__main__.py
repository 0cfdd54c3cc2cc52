"""Command line of the factory. The package's docstring has examples."""

from __future__ import annotations

import argparse
from pathlib import Path

from .writing import ARCHITECTURES, QUANTS, chain, make_large, make_split, make_tiny


def main() -> None:
    """Write one model and print its path and size."""
    parser = argparse.ArgumentParser(prog="python -m factory", description=__doc__)
    parser.add_argument("what", choices=[*ARCHITECTURES, "large"], metavar="ARCH|large")
    parser.add_argument("quant_and_path", nargs="+", metavar="[QUANT] OUT")
    parser.add_argument("--layers", type=int, help="number of layers")
    parser.add_argument("--nextn", type=int, default=0, help="layers for multi-token prediction")
    parser.add_argument("--arch", default="qwen3moe", help="of a large model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chain", action="store_true", help="each token follows one other")
    parser.add_argument("--split", type=int, metavar="PARTS", help="also split the file")
    arguments = parser.parse_args()
    *quant, out = arguments.quant_and_path
    if len(quant) > 1 or (quant and quant[0] not in QUANTS):
        parser.error(f"expected one of {', '.join(QUANTS)} and a path")
    path, sizes = Path(out), {} if arguments.layers is None else {"n_layer": arguments.layers}
    sizes |= {"n_nextn": arguments.nextn}
    if arguments.what == "large":
        kind = quant[0] if quant else "Q4_0"
        make_large(path, seed=arguments.seed, quant=kind, arch=arguments.arch, **sizes)
    elif quant:
        make_tiny(arguments.what, quant[0], path, seed=arguments.seed, **sizes)
    else:
        parser.error("expected a type and a path")
    if arguments.chain:
        chain(path)
    for written in [path, *(make_split(path, arguments.split) if arguments.split else [])]:
        print(f"{written}: {written.stat().st_size} bytes")


if __name__ == "__main__":
    main()
