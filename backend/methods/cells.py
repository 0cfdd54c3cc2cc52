"""A cell: the byte that says what is known of one expert, as Patch.snapshot() gives it.

The values are those of Cell in backend/native/core/types.h. A cell is one value of each group, plus
flags.
"""

from __future__ import annotations

ABSENT, RESIDENT, ARRIVING = 0, 1, 2
WHERE = 3
"""Mask of these."""
HIT, LATE, MISS = 4, 8, 12
"""How the layer found the expert in its last pass, if it needed it."""
FOUND = 12
"""Mask of these; 0: not needed."""
PINNED = 16
"""The layer in progress needs the expert."""
ON_HOST = 32
"""The processor computed what a device lacked."""
