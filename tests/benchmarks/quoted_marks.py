"""Read random outputs that quote marks, of every template, and show those with a wrong part.

    python tests/benchmarks/quoted_marks.py [-n 10000] [--seed 1]

Each output is read whole, by characters, and cut at three random places, three times. Half of the
prompts offer tools (tests/backend/random_outputs.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))
from chat_formats import TEMPLATES, open_format
from random_outputs import faults


def main() -> int:
    """Print the faults of each template; the status is 1 where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10_000, help="outputs of all templates together")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began_s, n_fault, n = time.monotonic(), 0, max(args.n // len(TEMPLATES) // 2, 1)
    for name in TEMPLATES:
        chat_format, found = open_format(name), []
        for offered in (True, False):
            found += faults(name, chat_format, n, args.seed, offered=offered)
        chat_format.close()
        n_fault += len(found)
        print(f"{name}: {len(found)} of {2 * n}", *found[:3], sep="\n", flush=True)
    took_min = (time.monotonic() - began_s) / 60
    print(f"{n_fault} of {2 * n * len(TEMPLATES)} wrong, seed {args.seed}, {took_min:.1f} min")
    return 1 if n_fault else 0


if __name__ == "__main__":
    sys.exit(main())
