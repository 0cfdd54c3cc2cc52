"""What can be downloaded, as it is listed. Importing this loads nothing that talks to a network."""

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
    """One file on a server. name is safe to be stored; sha256 and tag are empty where unknown.

    tag: the server's own mark of these contents, a strong ETag.
    """

    url: str
    name: str
    size_bytes: int
    sha256: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Offer:
    """One model that can be downloaded, in one or several files.

    trouble is half a sentence where it cannot.
    """

    name: str
    files: tuple[RemoteFile, ...]
    trouble: str = ""

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def quantisation(self) -> str:
        """The type of the weights as the name says it, or nothing."""
        found = _QUANTISATION.search(self.name)
        return found[1].upper() if found else ""

    @property
    def family(self) -> str:
        """The name without the type of the weights: the same for all types of one model."""
        return _QUANTISATION.sub("", self.name)


@dataclass(frozen=True)
class Listing:
    """The models at an address, smallest first. source: the repository, or the address.

    n_left_out: GGUF files that are no models, or have names that no file may have. is_gated: its
    owner lets only some have it.
    """

    source: str
    offers: list[Offer] = field(default_factory=list)
    n_left_out: int = 0
    is_gated: bool = False
