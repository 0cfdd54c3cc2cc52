"""`outrider pack`: write a second file from which a model's experts are read faster."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    bytes_text,
    say,
    show_progress,
)
from backend.gguf.model_file import ModelFile, ModelFileError, read_model
from backend.packs import write as pack
from backend.packs.benefit import offer
from backend.packs.file import (
    PackError,
    beside,
    find,
    in_data_folder,
    plan_of,
    read,
    stripes_in,
)
from backend.text import to_json


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Write a pack: a second file, about as large as the model's experts, in which "
        "each expert lies in one piece and in the layout that computes fastest. It is written "
        "beside the model, or else to the application's data folder, and is then used "
        "automatically. An interrupted pack continues where it stopped. With --to, the experts "
        "are distributed over several drives, which are then read at once."
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file, or any part of a split one")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--out", type=Path, metavar="FILE", help="write it there; it is used only where it is found"
    )
    where.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        action="append",
        default=[],
        help="put experts into this folder; named several times, with folders on different drives, "
        "each drive gets a share by its speed",
    )
    add(
        "--layout",
        choices=("file", "repacked"),
        help="layout of an expert's weights: as in the model (file), or as this processor computes "
        "fastest (repacked; the default where the processor has such a layout)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare a pack with its checksums")
    what.add_argument("--delete", action="store_true", help="delete the pack")
    what.add_argument(
        "--offer", action="store_true", help="measure the gain of a pack without writing one"
    )
    add("--json", action="store_true", help="print JSON objects, one per line, also for progress")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        return _run(args)
    except (PackError, ModelFileError) as error:
        if args.json:
            print(json.dumps({"error": to_json(str(error))}))
        raise UserError(str(error)) from None


def _run(args: argparse.Namespace) -> int:
    if args.to and (args.offer or args.delete or args.check):
        raise UserError("--to says where a new pack is written.", status=2)
    file = read_model(args.model)
    if args.offer:
        return _offer(file, as_json=args.json)
    if args.delete:
        return _delete(file, args.out)
    if args.check:
        return _check(file, args.out, as_json=args.json)
    layout = args.layout or pack.best_layout(file)
    path = args.out or pack.place_for(file)
    plan = plan_of(file, layout)
    if not args.json:
        size = bytes_text(plan.n_bytes)
        say(f"{path} will take {size}, in the layout '{layout}'.")
    written = pack.write(file, layout, path, _progress(as_json=args.json), args.to)
    found, _ = find(file)
    used = found is not None and found.path.samefile(path)
    if args.json:
        others = [str(other) for other in written.plan.stripes.others]
        print(json.dumps({"path": str(path), "others": others, "layout": layout, "used": used}))
        return 0
    say("It is complete, and will be used." if used else "It is complete.")
    if written.plan.stripes.others:
        for (each, _), n_bytes in zip(written.files, written.plan.sizes, strict=True):
            say(f"{bytes_text(n_bytes):>10}  {each}")
    if len({each.stat().st_dev for each in written.sources}) < len(written.sources):
        say("Some of these folders are on the same drive, which gains nothing.")
    return 0


def _offer(file: ModelFile, *, as_json: bool) -> int:
    offered = offer(file)
    if as_json:
        print(json.dumps(offered.to_json() if offered else None))
    elif offered is None:
        say("There is nothing to offer: it has a pack, or no experts.")
    else:
        say(
            f"{offered.path} would take {bytes_text(offered.needed_bytes)}, and "
            f"{bytes_text(offered.free_bytes)} are free. Experts would be read "
            f"{offered.read_gain:.2f} times as fast and computed {offered.compute_gain:.2f} times "
            "as fast, as measured just now."
        )
    return 0


def _check(file: ModelFile, path: Path | None, *, as_json: bool) -> int:
    if path is None:
        found, remark = find(file)
        if found is None:
            raise UserError(remark or f"{file.path.name} has no pack.")
    else:
        found = read(path, file)
    pack.check(found, _progress(as_json=as_json))
    if not as_json:
        say(f"{found.path} is what was written.")
    return 0


def _delete(file: ModelFile, path: Path | None) -> int:
    places = [path] if path is not None else [beside(file), in_data_folder(file)]
    others = [other for place in places for other in stripes_in(place).others]
    gone = [other for other in others if not other.exists()]
    freed = sum(pack.delete(place) for place in places)
    if freed == 0:
        raise UserError(f"{file.path.name} has no pack.")
    say(f"Deleted; {bytes_text(freed)} are free again.")
    for other in gone:
        say(f"{other} was not found; if its drive comes back, delete it there.")
    return 0


def _progress(*, as_json: bool) -> Any:
    """Return a function that shows progress twice a second, as JSON or on a terminal; or None."""
    if not as_json and (sys.stderr is None or not sys.stderr.isatty()):
        return None
    last_s = 0.0

    def show(done: int, total: int) -> bool:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s > 0.5 or done == total:
            last_s = now_s
            if as_json:
                print(json.dumps({"done_bytes": done, "total_bytes": total}), flush=True)
                return True
            show_progress(f"{100 * done // total} %")
        return True

    return show
