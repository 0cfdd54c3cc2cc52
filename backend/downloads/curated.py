"""A dated list of models that run well through the cache, which needs no network.

curated.json says how its numbers were found.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.downloads.errors import DownloadError
from backend.downloads.headers import scaled
from backend.downloads.offers import Listing, Offer, RemoteFile
from backend.library.facts import Facts
from backend.text import text

PATH = Path(__file__).with_name("curated.json")
_SIZE_TOLERANCE = 0.03  # owners replace files by others of nearly the same size


@dataclass(frozen=True)
class Curated:
    """A model of the list. good_for: "general", "code", "images", "thinking" or "small".

    facts: with the numbers of the file, at a context of 4,096 tokens. checked: the date on which
    they were compared with the file's header, as YYYY-MM-DD, or "".
    """

    title: str
    good_for: str
    repository: str
    file: str
    licence: str
    sees_images: bool
    checked: str
    facts: Facts

    def offer_of(self, listing: Listing) -> Offer:
        """Return this model in its repository: the file, or one of the same type and size.

        Raises DownloadError if there is none.
        """
        name = self.file.removesuffix(".gguf").casefold()
        offers = [offer for offer in listing.offers if not offer.trouble]
        exact = [offer for offer in offers if offer.name.casefold() == name]
        n_byte = self.facts.file_bytes
        like = [
            offer
            for offer in offers
            if abs(offer.size_bytes - n_byte) <= _SIZE_TOLERANCE * n_byte
            and self.facts.quantisation in offer.quantisation
        ]
        for offer in exact + like:
            return offer
        raise DownloadError(text("download.not_there", file=self.file, place=self.repository))


@functools.cache
def curated() -> tuple[str, tuple[Curated, ...]]:
    """Return the date of the list, as YYYY-MM-DD, and its models, the smallest first."""
    data = json.loads(PATH.read_text(encoding="utf-8"))
    bits = data["bits_per_weight"]
    models = [model for item in data["models"] for model in _quantisations(item, bits)]
    # Between equal ones, the more capable one comes last, as the larger one does.
    models.sort(key=lambda model: (model.facts.file_bytes, model.good_for != "code"))
    return data["date"], tuple(models)


def _quantisations(item: dict[str, Any], bits: dict[str, float]) -> Iterator[Curated]:
    """Yield a model of the list, and then its other quantisations. bits: of a weight."""
    names = [name for name in Curated.__annotations__ if name != "facts"]
    facts = Facts.from_json({"fingerprint": "", **item["facts"]})
    whole = Curated(**{name: item[name] for name in names}, facts=facts)
    yield whole
    known = _offer(whole.file, facts.file_bytes)
    for name, found in item["quantisations"].items():
        file = f"{known.family}-{name}.gguf"
        size_bytes = found.get("file_bytes") or round(facts.n_parameter * bits[name] / 8)
        of_file = scaled(facts, known, _offer(file, size_bytes))
        assert of_file is not None
        title, checked = f"{whole.title} {name}", found.get("checked", "")
        yield replace(whole, title=title, file=file, checked=checked, facts=of_file)


def _offer(file: str, size_bytes: int) -> Offer:
    return Offer(file.removesuffix(".gguf"), (RemoteFile("", file, size_bytes),))
