"""Lists the models of a repository, or the file of an address."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import httpx2 as httpx

from backend.downloads import token
from backend.downloads.address import Address, endpoint, parse, safe_name
from backend.downloads.errors import DownloadError, host_of
from backend.downloads.offers import Listing, Offer, RemoteFile, Repository
from backend.downloads.web import opened
from backend.library.scan import NO_MODEL, PART_NAME
from backend.text import text

N_FOUND_MAX = 40
_ANSWER_BYTES_MAX = 32 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PACKED = re.compile(r"\.(?:zip|7z|rar|gz|bz2|xz|zst|tar)(?:\.\d{1,4})?$", re.IGNORECASE)
_RAW = re.compile(
    r"(.+\.gguf(?=[._-])|.+(?=\.(?:zip|7z|rar)(?:\.\d{1,4})?$))"
    r"(?:[._-](?:part|split|chunk|piece)[._-]?[0-9a-z]{1,4}(?:[._-]?of[._-]?\d+)?"
    r"|\.\d{2,4}|\.a[a-z]|\.z\d\d|\.(?:zip|7z|rar|gz|bz2|xz|zst|tar)(?:\.\d{1,4})?)",
    re.IGNORECASE,
)
"""Path of a piece of a cut GGUF file, or of an archive, with its stem."""
_VISION = re.compile(r"mmproj", re.IGNORECASE)
_VISION_TYPES = ("F16", "Q8_0", "BF16", "F32")  # the first that a repository has is fetched


def look_up(address: Address, client: httpx.Client) -> Listing:
    """Ask the server for the models at an address. Raises DownloadError."""
    return _direct(address.url, client) if address.url else _repository(address, client)


def search(words: str, client: httpx.Client) -> list[Repository]:
    """Ask the hub for repositories with GGUF files, by words in their names; the most used first.

    Raises DownloadError. Nothing here uses huggingface_hub, which tries for half a minute if there
    is no network.
    """
    asked = {"search": words, "filter": "gguf", "sort": "downloads", "limit": str(N_FOUND_MAX)}
    found = json_of(client, f"{endpoint()}/api/models?{urlencode(asked)}")
    try:
        return [_found(item) for item in found]
    except (ValueError, KeyError, TypeError, AttributeError, DownloadError) as error:
        raise DownloadError(text("download.no_sense", host=host_of(endpoint()))) from error


def owner(secret: str, client: httpx.Client) -> str:
    """Ask the hub whose token this is. Raises DownloadError, also for a token it does not know."""
    host = host_of(endpoint())
    if not token.is_possible(secret):
        raise DownloadError(text("download.token_no_form"))
    about = json_of(client, f"{endpoint()}/api/whoami-v2", tried=secret)
    name = about.get("name") if isinstance(about, dict) else None
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 100:
        raise DownloadError(text("download.no_sense", host=host))
    return name


def _found(item: dict[str, Any]) -> Repository:
    licences = [tag for tag in item.get("tags") or () if tag.startswith("license:")]
    licence = licences[0].removeprefix("license:") if licences else ""
    return Repository(
        parse(item["id"]).repository, int(item.get("downloads") or 0), licence,
        bool(item.get("gated")),
    )  # fmt: skip


def _repository(address: Address, client: httpx.Client) -> Listing:
    base = endpoint()
    page = f"{base}/api/models/{address.repository}/revision/{quote(address.revision, safe='')}"
    about = json_of(client, f"{page}?blobs=true", missing="RepoNotFound")
    try:
        commit = str(about.get("sha") or address.revision)
        siblings = list(about.get("siblings") or ())
        files = list(_files(address, base, commit, siblings))
        raw = _raw_offers(address, siblings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DownloadError(text("download.no_sense", host=host_of(base))) from error
    offers = _offers(files) + raw
    if not offers:
        where = f"{address.repository}/{address.path}".rstrip("/")
        raise DownloadError(text("download.no_model", place=where))
    return Listing(address.repository, offers, bool(about.get("gated")))


def json_of(client: httpx.Client, url: str, missing: str = "", tried: str = "") -> Any:
    """Return the JSON of an answer. Raises DownloadError."""
    data = bounded(client, url, _ANSWER_BYTES_MAX, missing, tried)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DownloadError(text("download.no_sense", host=host_of(url))) from error


def bounded(
    client: httpx.Client, url: str, n_max: int, missing: str = "", tried: str = ""
) -> bytes:
    """Return the first `n_max` bytes of an answer, or somewhat more. Raises DownloadError."""
    data = b""
    with opened(client, url, missing=missing, tried=tried) as answer:
        for piece in answer.iter_raw():
            data += piece
            if len(data) >= n_max:
                break
    return data


def _files(
    address: Address, base: str, commit: str, siblings: Iterable[dict[str, Any]]
) -> Iterable[tuple[str, RemoteFile]]:
    """Yield the wanted GGUF files with their paths.

    The URLs name a commit, whose files never change. So parts fetched at different times match.
    """
    for item in siblings:
        path, size, lfs = item["rfilename"], item.get("size"), item.get("lfs") or {}
        inside = not address.path or path == address.path or path.startswith(f"{address.path}/")
        is_vision = bool(_VISION.search(path.rpartition("/")[2]))
        if not inside and address.path.lower().endswith(".gguf"):  # take all parts of a split model
            inside = is_vision or _stem(path) == _stem(address.path)
        if not path.lower().endswith(".gguf") or not inside:
            continue
        name = safe_name(path)
        is_other = name is not None and NO_MODEL.search(name) and not is_vision
        if name is None or is_other or not isinstance(size, int) or size <= 0:
            continue
        if is_vision and not name.lower().startswith("mmproj"):
            name = f"mmproj-{name}"  # the engine finds it by this beginning
        url = f"{base}/{address.repository}/resolve/{quote(commit, safe='')}/{quote(path)}"
        sha256 = str(lfs.get("sha256", ""))
        yield path, RemoteFile(url, name, size, sha256 if _SHA256.fullmatch(sha256) else "")


def _raw_offers(address: Address, siblings: Iterable[dict[str, Any]]) -> list[Offer]:
    """Return the models that are cut into raw pieces, or packed; none can be used as it is."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for item in siblings:
        path, size = item["rfilename"], item.get("size")
        found = _RAW.fullmatch(path)
        if found is None or not path.startswith(address.path) or not isinstance(size, int):
            continue
        stem = found[1] if found[1].lower().endswith(".gguf") else f"{found[1]}.gguf"
        if safe_name(stem) is not None:
            groups.setdefault(stem, []).append((path.rpartition("/")[2], size))
    offers = []
    for stem, pieces in groups.items():
        name = stem.rpartition("/")[2]
        names = sorted(piece for piece, _ in pieces)
        shown = ", ".join(names[:2]) + (", \u2026" if len(names) > 2 else "")
        trouble = (
            text("download.packed", file=shown)
            if _PACKED.search(names[0])
            else text("download.raw_pieces", names=shown)
        )
        file = RemoteFile("", name, sum(size for _, size in pieces))
        offers.append(Offer(name[: -len(".gguf")], (file,), trouble))
    return sorted(offers, key=lambda offer: (offer.size_bytes, offer.name))


def _stem(path: str) -> str:
    found = PART_NAME.fullmatch(path)
    return f"{found[1]}\0{found[3]}" if found else path


def _offers(files: list[tuple[str, RemoteFile]]) -> list[Offer]:
    """Join the parts of split models."""
    groups: dict[str, list[RemoteFile]] = {}
    visions = []
    for path, file in files:
        if _VISION.search(file.name):
            visions.append((path, file))
        else:
            groups.setdefault(_stem(path), []).append(file)
    offers = []
    for stem, parts in groups.items():
        parts.sort(key=lambda file: file.name)
        found = PART_NAME.fullmatch(parts[0].name)
        name = found[1] if found else parts[0].name[: -len(".gguf")]
        offer = Offer(name, tuple(parts))
        offer = replace(offer, vision=_vision_of(offer, stem.rpartition("/")[0], visions))
        if found and len(parts) != int(found[3]):
            trouble = text("download.parts_there", n=len(parts), all=int(found[3]))
            offer = replace(offer, trouble=trouble)
        offers.append(offer)
    return sorted(offers, key=lambda offer: (offer.size_bytes, offer.name))


def _vision_of(
    offer: Offer, folder: str, visions: list[tuple[str, RemoteFile]]
) -> RemoteFile | None:
    """Return the mmproj file of a model: with its name, or in its folder, of the usual type."""

    def rank(item: tuple[str, RemoteFile]) -> tuple[bool, bool, int, str]:
        path, file = item
        kind = Offer(file.name.rpartition(".")[0], (file,)).quantisation
        order = _VISION_TYPES.index(kind) if kind in _VISION_TYPES else len(_VISION_TYPES)
        is_named = offer.family.casefold() in file.name.casefold()
        return not is_named, path.rpartition("/")[0] != folder, order, path

    return min(visions, key=rank)[1] if visions else None


def _direct(url: str, client: httpx.Client) -> Listing:
    """Ask the server for the file at an address."""
    path = unquote(urlsplit(url).path)
    with opened(client, url, 0, 4) as answer:
        about = answer.headers
        total = about.get("content-range", "").rpartition("/")[2]
        if answer.status_code == 200:
            total = about.get("content-length", "")
        magic = b""
        for piece in answer.iter_raw():
            magic += piece
            if len(magic) >= 4:
                break
    name = safe_name(path.lstrip("/"))
    if magic[:4] != b"GGUF":
        raise DownloadError(text("download.not_gguf", host=host_of(url)))
    if name is None:
        raise DownloadError(text("download.no_file_name"))
    if not total.isdecimal() or int(total) <= 0:
        raise DownloadError(text("download.no_size", host=host_of(url)))
    tag = about.get("etag", "")
    linked = about.get("x-linked-etag", "").strip('"')
    file = RemoteFile(
        url, name, int(total), linked if _SHA256.fullmatch(linked) else "",
        "" if tag.startswith("W/") else tag,
    )  # fmt: skip
    return Listing(url, _offers([(name, file)]))
