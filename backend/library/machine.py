"""This machine's speeds, measured once by a program of its own and kept.

Measuring needs the native part and keeps all cores busy for two seconds, so the window does not
do it itself: it starts `measure_command` and reads what that leaves.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from backend.machines import Hardware, MachineError, load

_LARGE_BYTES = 64 << 20


def kept_machine(path: Path) -> Hardware | None:
    """Return what was measured before, or None."""
    try:
        return load(path)
    except MachineError:
        return None


def measure_command(result: Path, model: Path | None) -> list[str] | None:
    """Return a command that measures and writes `result`; None where this copy has none.

    model: a large file on the drive that matters, or None to write a temporary one.
    """
    if getattr(sys, "frozen", False):
        return None
    root = str(Path(__file__).resolve().parents[2])
    start = (
        f"import sys; {root!r} in sys.path or sys.path.insert(0, {root!r}); "
        "from backend.library.machine import main; sys.exit(main(sys.argv[1:]))"
    )
    return [sys.executable, "-P", "-c", start, str(result), *([str(model)] if model else [])]


def is_large(path: Path) -> bool:
    """Whether a file is large enough to measure a drive with."""
    try:
        return path.stat().st_size >= _LARGE_BYTES
    except OSError:
        return False


def main(arguments: list[str]) -> int:
    """Measure, write the machine file named first; the model to read from may follow."""
    from backend.machines.measure import measure

    result = Path(arguments[0])
    try:
        machine = measure(Path(arguments[1]) if len(arguments) > 1 else None)
        result.parent.mkdir(parents=True, exist_ok=True)
        temporary = result.with_name(result.name + ".new")
        temporary.write_text(json.dumps(machine.to_json(), indent=1), encoding="utf-8")
        os.replace(temporary, result)
    except (MachineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
