"""Attack Outrider with seeded damage, faults and kills (`make attack`).

An area (attack.area.Area) attacks one part of the program. A case of an area is a seed: equal seeds
do the same. A case returns how it ended, or raises an exception, which is a finding.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/core", "tests/engine", "tests/backend", "tests", "."):
    sys.path.insert(0, str(ROOT / folder))
