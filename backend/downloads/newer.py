"""Looks for a newer version of this application, when the user asks for it and at no other time.

The address names a small file: {"version": "0.2.0", "page": "https://..."}. packaging/release.py
writes it. Nothing of this machine is sent but what any request says.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

from backend import RELEASES_URL, __version__
from backend.downloads.errors import DownloadError, host_of
from backend.text import text

_FILE = "latest.json"
_BYTES_MAX = 65536
_STALL_S = 10.0


@dataclass(frozen=True)
class Release:
    """A published version. page: where people read about it and get it; an https address."""

    version: str
    page: str

    @property
    def is_newer(self) -> bool:
        """Whether it is newer than this copy."""
        return _numbers(self.version) > _numbers(__version__)


def releases_url() -> str:
    """Return the folder of the releases; "": this copy does not know one."""
    return os.environ.get("OUTRIDER_RELEASES", RELEASES_URL).rstrip("/")


def latest() -> Release:
    """Return the newest version that was published. Raises DownloadError."""
    from backend.downloads.web import new_client, opened  # network libraries: not at start

    if not releases_url():
        raise DownloadError(text("newer.no_address"))
    address = f"{releases_url()}/{_FILE}"
    body = b""
    with new_client(_STALL_S) as client, opened(client, address) as answer:
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _BYTES_MAX:
                break
    try:
        found = json.loads(body)
        release = Release(str(found["version"]), str(found["page"]))
        _numbers(release.version)
        if not release.page.startswith("https://"):
            raise ValueError("the page is no https address")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DownloadError(text("newer.unreadable", host=host_of(address))) from None
    return release


def _numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6}){0,3}", version):
        raise ValueError(version)
    return tuple(map(int, version.split(".")))
