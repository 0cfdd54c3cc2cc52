"""`outrider download`: list models from Hugging Face with a forecast, and download them."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.cli.common import (
    UserError,
    bytes_text,
    say,
    show_progress,
    whole_number,
)
from backend.downloads import token
from backend.downloads.address import parse
from backend.downloads.curated import curated
from backend.downloads.headers import read_facts, scaled
from backend.downloads.hub import look_up
from backend.downloads.job import Job
from backend.downloads.offers import Listing, Offer
from backend.downloads.web import new_client
from backend.library.estimate import Verdict, judge
from backend.library.facts import Facts
from backend.library.machine import kept_machine
from backend.protocol.settings import EngineConfig
from backend.system.memory import available_bytes
from backend.system.paths import cache_folder, models_folder

if TYPE_CHECKING:
    import httpx2 as httpx


_SHOW_S = 0.5  # between two lines of progress


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "List the models of a repository with a forecast for this machine, or download "
        "one. An interrupted download continues where it stopped. Without a repository it lists "
        "models that run well through the cache, for which it needs no network. The token that "
        "was entered in the window, HF_TOKEN, HF_ENDPOINT and the proxies of the environment are "
        "honoured."
    )
    add = parser.add_argument
    add(
        "source", nargs="?", metavar="REPO_OR_URL",
        help="owner/name, a page of the hub, or a file's address; without it a list of models",
    )  # fmt: skip
    add("file", nargs="?", metavar="FILE", help="the model: its name, or its type, as Q4_K_M")
    add("--folder", type=Path, metavar="DIR", help="folder of models to write it to")
    add(
        "--context",
        type=whole_number(1, 1 << 24),
        default=EngineConfig.context_length,
        metavar="N",
        help=f"context in tokens for the forecast (default {EngineConfig.context_length})",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.source is None:
        say(*_curated_lines())
        return 0
    with new_client() as client:
        listing = look_up(parse(args.source), client)
        if token.remark():
            say(token.remark(), error=True)
        chosen = _chosen(listing, args.file)
        if chosen is None:
            say(*_lines(listing, client, args.context))
            return 0
        if chosen.trouble:
            raise UserError(f"{chosen.name} cannot be used: {chosen.trouble}.")
        folder = (args.folder or models_folder()).expanduser().absolute()
        return _fetch(Job.of(chosen, listing.source, folder), client)


def _chosen(listing: Listing, wanted: str | None) -> Offer | None:
    """Return the model with this name, or the only model; None: no name. Raises UserError."""
    if wanted is None:
        return listing.offers[0] if len(listing.offers) == 1 else None
    found = [offer for offer in listing.offers if _is_called(offer, wanted.casefold())]
    if len(found) == 1:
        return found[0]
    names = ", ".join(offer.name for offer in found or listing.offers)
    problem = "fits several models" if found else "fits no model"
    raise UserError(f"'{wanted}' {problem}: {names}.")


def _is_called(offer: Offer, wanted: str) -> bool:
    names = {offer.name, offer.quantisation, *(file.name for file in offer.files)}
    return wanted in {name.casefold() for name in names}


def _lines(listing: Listing, client: httpx.Client, n_context: int) -> list[str]:
    """Return one line for each model. Read only the header of the first usable one."""
    known = next((offer for offer in listing.offers if not offer.trouble), listing.offers[0])
    facts = read_facts(known, client, n_context)
    width = max(len(offer.name) for offer in listing.offers)
    lines = [f"The models of {listing.source}:"]
    for offer in listing.offers:
        own = facts if offer is known else None
        if own is None and isinstance(facts, Facts):
            own = scaled(facts, known, offer)
        trouble = offer.trouble or (own if isinstance(own, str) else "")
        note = f"cannot be used: {trouble}" if trouble else ""
        if isinstance(own, Facts):
            note = _verdict(own)
        lines.append(f"  {offer.name:{width}}  {bytes_text(offer.size_bytes):>10}  {note}".rstrip())
    if isinstance(facts, Facts) and len(listing.offers) > 1:
        lines.append("All but the first are judged by their size. Name one to download it.")
    return lines


def _curated_lines() -> list[str]:
    """Return one line for each model of the curated list, which needs no network."""
    date, models = curated()
    lines = [f"Models that run well through the cache, as of {date}, and what they would do here:"]
    for model in models:
        size = bytes_text(model.facts.file_bytes)
        checked = f"checked {model.checked}" if model.checked else "not checked"
        lines.append(f"  {model.title:37}  {size:>10}  {_verdict(model.facts)} ({checked})")
        lines.append(f"      outrider download {model.repository} {model.file}")
    return lines


def _verdict(facts: Any) -> str:
    machine = kept_machine(cache_folder() / "machine.json")
    verdict: Verdict = judge(facts, EngineConfig.cache_rate, available_bytes(), machine, None)
    words = {"FITS": "fits in memory", "CACHE": "runs through the cache"}.get(verdict.kind.name)
    if words is None:
        return f"too large by {bytes_text(verdict.short_bytes)}"
    if verdict.best_speed is not None:
        words += f", about {verdict.best_speed.tokens_per_s:.1f} token/s"
    return words


def _fetch(job: Job, client: httpx.Client) -> int:
    if job.is_there:
        say(f"It is there already: {job.target}")
        return 0
    job.check_room()
    progress = _Progress(job)
    try:
        job.run(client, threading.Event(), progress.show, progress.say_wait)
    finally:
        progress.end()
    say(str(job.target))
    return 0


class _Progress:
    """Progress in one line of standard error, if that is a terminal."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._start: tuple[float, int] | None = None
        self._last_s = 0.0

    def show(self, n_byte: int) -> None:
        now_s = time.monotonic()
        if self._start is None or n_byte < self._start[1]:
            self._start = (now_s, n_byte)
        if not self._shown or now_s - self._last_s < _SHOW_S:
            return
        self._last_s = now_s
        whole = self._job.size_bytes
        speed = (n_byte - self._start[1]) / max(now_s - self._start[0], 1e-3)
        line = f"{n_byte / whole:4.0%} of {bytes_text(whole)}, {bytes_text(int(speed))}/s"
        if speed > 0:
            line += f", {(whole - n_byte) / speed / 60:.0f} min left"
        show_progress(line)

    def say_wait(self, sentence: str, wait_s: float) -> None:
        if sentence:
            self.end()
            say(f"{sentence} Goes on in {wait_s:.0f} s.", error=True)

    def end(self) -> None:
        if self._shown and self._last_s:
            say("", error=True)
