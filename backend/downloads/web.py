"""Makes requests. Proxies come from the environment; the user's token is sent only to the hub."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2 as httpx

from backend import __version__
from backend.downloads.address import endpoint
from backend.downloads.errors import DownloadError, of_answer, of_connecting
from backend.text import text

STALL_S = 30.0  # a connection without a byte for this time counts as broken
CONNECT_S = 15.0


def new_client(stall_s: float = STALL_S) -> httpx.Client:
    """Return a client; close it after use. Raises DownloadError."""
    try:
        return httpx.Client(
            follow_redirects=True,
            timeout=httpx.Timeout(stall_s, connect=CONNECT_S),
            # A compressed download could be neither resumed nor checked.
            headers={"user-agent": f"outrider/{__version__}", "accept-encoding": "identity"},
        )
    except (ValueError, ImportError, httpx.HTTPError) as error:
        raise DownloadError(text("download.proxy_unusable", reason=str(error))) from error


def token() -> str | None:
    """Return the user's token for the hub: HF_TOKEN, or that of `hf auth login`."""
    from huggingface_hub import get_token

    return get_token()


def host_of(url: str) -> str:
    """Return the name of a server for use in sentences."""
    return urlsplit(url).hostname or url


@contextlib.contextmanager
def opened(
    client: httpx.Client, url: str, start: int = 0, end: int | None = None, tag: str = ""
) -> Iterator[httpx.Response]:
    """Request bytes start to end - 1, and yield the answer before its body is read.

    tag: the expected ETag; if it differs, the server sends the whole file. Raises DownloadError for
    any status but 200 and 206, and for errors while the body is read.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise DownloadError(text("download.offline"))
    headers = {}
    if start or end is not None:
        headers["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        if tag:
            headers["if-range"] = tag
    if url.startswith(f"{endpoint()}/") and (secret := token()):
        headers["authorization"] = f"Bearer {secret}"
    host = host_of(url)
    try:
        request = client.build_request("GET", url, headers=headers)
    except (httpx.InvalidURL, ValueError, TypeError) as error:
        raise DownloadError(text("download.no_address", address=url[:200])) from error
    try:
        with contextlib.closing(client.send(request, stream=True)) as answer:
            if answer.status_code not in (200, 206):
                about = answer.headers
                raise of_answer(
                    host_of(str(answer.url)), answer.status_code,
                    about.get("x-error-code", ""), about.get("retry-after", ""),
                )  # fmt: skip
            yield answer
    except httpx.ProxyError as error:
        raise DownloadError(text("download.proxy_refused", host=host)) from error
    except httpx.TimeoutException as error:
        raise DownloadError(text("download.silent", host=host), is_passing=True) from error
    except httpx.ConnectError as error:
        raise of_connecting(error, host) from error
    except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
        raise DownloadError(text("download.broke", host=host), is_passing=True) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise DownloadError(text("download.no_address", address=url[:200])) from error
