"""Parses the user's text: a repository on the hub, a file in a repository, or another address."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from backend.downloads.errors import DownloadError
from backend.text import text

HUB = "https://huggingface.co"
_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REPOSITORY = re.compile(f"({_WORD}/{_WORD})(?:/(.+))?")
_BAD_IN_NAME = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]|\.\.')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_NAME_BYTES_MAX = 200


@dataclass(frozen=True)
class Address:
    """A repository, with a revision and a file or folder in it, or otherwise the url of a file."""

    repository: str = ""
    revision: str = "main"
    path: str = ""
    url: str = ""


def endpoint() -> str:
    """Return the hub's address, or that of a mirror from HF_ENDPOINT."""
    return (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def parse(given: str) -> Address:
    """Read `owner/name`, `owner/name/file.gguf`, a page of the hub, or the address of a file.

    Raises DownloadError.
    """
    given = given.strip()
    unclear = DownloadError(text("download.address_form", given=given[:80]))
    if re.match(r"(www\.)?(huggingface\.co|hf\.co)/", given):
        given = f"https://{given}"
    if "://" not in given:
        found = _REPOSITORY.fullmatch(given)
        if found is None or ".." in given:
            raise unclear
        return Address(found[1], path=found[2] or "")
    try:
        parts = urlsplit(given)
        host = parts.netloc.lower()
    except ValueError:
        raise unclear from None
    if parts.scheme not in ("http", "https") or not host:
        raise unclear
    if host not in (*_HOSTS, urlsplit(endpoint()).netloc.lower()):
        return Address(url=given)
    return _on_the_hub(unquote(parts.path).strip("/"), unclear)


def _on_the_hub(path: str, unclear: DownloadError) -> Address:
    found = _REPOSITORY.fullmatch(path)
    if found is None or ".." in path:
        raise unclear
    kind, _, rest = (found[2] or "").partition("/")
    if kind not in ("tree", "blob", "resolve"):
        return Address(found[1])
    revision, _, inside = rest.partition("/")
    return Address(found[1], revision or "main", inside)


def safe_name(path: str) -> str | None:
    """Return the last part of a path on a server if it is a valid file name on any system.

    Otherwise return None.
    """
    name = path.rpartition("/")[2]
    if (
        not name.lower().endswith(".gguf")
        or name.startswith(".")
        or len(name.encode("utf-8", "replace")) > _NAME_BYTES_MAX
        or _BAD_IN_NAME.search(path.replace("/", ""))
        or any(part in ("", ".", "..") for part in path.split("/"))
        or _RESERVED.fullmatch(name)
    ):
        return None
    return name
