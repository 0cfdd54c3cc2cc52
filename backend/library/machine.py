"""The speeds of this machine: measured once in a separate process, and kept.

The measurement needs the native part and keeps all cores busy for two seconds. So the window starts
`measure_command` and reads the file that it writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from backend.machines import Hardware, MachineError, load
from backend.system import children
from backend.system.kept_file import write_json

_LARGE_BYTES = 64 << 20


def kept_machine(path: Path) -> Hardware | None:
    """Return the kept measurement, or None."""
    try:
        return load(path)
    except MachineError:
        return None


def measure_command(result: Path, model: Path | None) -> list[str]:
    """Return a command that measures and writes `result`.

    model: a large file on the drive of the models, or None to write a temporary one.
    """
    paths = [result, model] if model else [result]
    return children.command("backend.library.machine", *map(str, paths))


def is_large(path: Path) -> bool:
    """Whether a file is large enough to measure a drive with."""
    try:
        return path.stat().st_size >= _LARGE_BYTES
    except OSError:
        return False


def main() -> int:
    """Measure. Arguments: the machine file to write, then optionally a model to read from."""
    from backend.machines.measure import measure  # native part: not at the window's start

    arguments = sys.argv[1:]
    result = Path(arguments[0])
    try:
        machine = measure(Path(arguments[1]) if len(arguments) > 1 else None)
        write_json(result, machine.to_json())
    except (MachineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
