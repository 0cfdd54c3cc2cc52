"""Compare the curated list of models with the headers of the files on the hub (make curated).

    .venv/bin/python packaging/curated.py [--write]

prints a line for each entry. The exit status is 1 if an entry differs or could not be compared.
--write corrects the list, with the date of today. It reads some MB for each entry.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.downloads import curated
from backend.downloads.address import parse
from backend.downloads.errors import DownloadError
from backend.downloads.headers import read_facts
from backend.downloads.hub import look_up
from backend.downloads.web import new_client
from backend.library.facts import Facts

N_CONTEXT = 4096
TOLERANCE = 0.05
"""Tolerance of sizes: one ratio scales all weights to another quantisation."""
_LEFT_OUT = {"fingerprint", "name", "needs"}


def compared() -> Iterator[tuple[curated.Curated, Facts | str]]:
    """Yield each entry with the facts of its file, or with the reason why there are none."""
    with new_client() as client:
        for model in curated.curated()[1]:
            try:
                offer = model.offer_of(look_up(parse(model.repository), client))
                yield model, read_facts(offer, client, N_CONTEXT)
            except DownloadError as error:
                yield model, str(error)


def differences(model: curated.Curated, found: Facts) -> list[str]:
    """Return what an entry says otherwise than its file, as "name listed, found"."""
    said = []
    for name in (item.name for item in fields(Facts) if item.name not in _LEFT_OUT):
        old, new = getattr(model.facts, name), getattr(found, name)
        is_near = "bytes" in name and abs(old - new) <= TOLERANCE * new
        if old != new and not is_near:
            said.append(f"{name} {old}, {new}")
    return said


def corrected(text: str, model: curated.Curated, found: Facts, today: str) -> str:
    """Return the text of the list with an entry as its file says."""
    data = json.loads(text)
    for item in data["models"]:
        if item["repository"] != model.repository:
            continue
        if item["file"] == model.file:
            item["facts"] = {**asdict(found), "name": item["facts"]["name"]}
            del item["facts"]["fingerprint"]
            item["checked"] = today
        for name, of_file in item["quantisations"].items():
            if model.title == f"{item['title']} {name}":
                of_file |= {"file_bytes": found.file_bytes, "checked": today}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def main(argv: list[str]) -> int:
    """Compare, and correct where that is asked for. Return the exit status."""
    today, status = datetime.date.today().isoformat(), 0
    for model, found in compared():
        said = [found] if isinstance(found, str) else differences(model, found)
        status |= bool(said)
        print(f"{model.title}: {'; '.join(said) or 'as listed'}", flush=True)
        if isinstance(found, Facts) and "--write" in argv:
            text = curated.PATH.read_text(encoding="utf-8")
            text = corrected(text, model, found, today)
            text = re.sub(r'"date": "[^"]*"', f'"date": "{today}"', text, count=1)
            curated.PATH.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
