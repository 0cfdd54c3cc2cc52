"""The lists of models to download. Importing this module loads no network library."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_QUANTISATION = re.compile(
    r"[-_.]((?:UD[-_])?(?:I?Q[1-8](?:_[A-Z0-9]+)*|TQ[12]_0|BF16|F16|F32|(?:MX|NV)FP4(?:_MOE)?))"
    r"(?=$|[-_.])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RemoteFile:
    """One file on a server. `name` is a valid file name on any system.

    tag: the strong ETag of these contents. sha256 and tag are empty if unknown.
    """

    url: str
    name: str
    size_bytes: int
    sha256: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Offer:
    """One model, in one or several files.

    trouble: a clause why it cannot be downloaded; empty if it can. vision: the mmproj file, with
    which the model sees images; None if it has none.
    """

    name: str
    files: tuple[RemoteFile, ...]
    trouble: str = ""
    vision: RemoteFile | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the model's own files, without its mmproj file."""
        return sum(file.size_bytes for file in self.files)

    @property
    def quantisation(self) -> str:
        """The type of the weights in the name, or "" if the name has none."""
        found = _QUANTISATION.search(self.name)
        return found[1].upper() if found else ""

    @property
    def family(self) -> str:
        """The name without the type of the weights; equal for all types of one model."""
        return _QUANTISATION.sub("", self.name)


@dataclass(frozen=True)
class Listing:
    """The models at an address, smallest first. source: the repository, or the address.

    is_gated: the owner grants access on request.
    """

    source: str
    offers: list[Offer] = field(default_factory=list)
    is_gated: bool = False


@dataclass(frozen=True)
class Repository:
    """A repository that a search has found. n_download: in the last month."""

    name: str
    n_download: int = 0
    licence: str = ""
    is_gated: bool = False
