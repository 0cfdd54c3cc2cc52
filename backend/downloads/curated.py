"""A dated list of models that run well through the cache, which needs no network.

curated.json says how its numbers were found.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from backend.downloads.errors import DownloadError
from backend.downloads.offers import Listing, Offer
from backend.library.facts import Facts
from backend.text import text

_PATH = Path(__file__).with_name("curated.json")
_SIZE_TOLERANCE = 0.03  # owners replace files by others of nearly the same size


@dataclass(frozen=True)
class Curated:
    """A model of the list. good_for: "general", "code", "images", "thinking" or "small".

    facts: with the numbers of the file, at a context of 4,096 tokens.
    """

    title: str
    good_for: str
    repository: str
    file: str
    licence: str
    sees_images: bool
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
    data = json.loads(_PATH.read_text(encoding="utf-8"))
    models = [
        Curated(
            **{name: item[name] for name in Curated.__annotations__ if name != "facts"},
            facts=Facts.from_json({"fingerprint": "", **item["facts"]}),
        )
        for item in data["models"]
    ]
    return data["date"], tuple(sorted(models, key=lambda model: model.facts.file_bytes))
