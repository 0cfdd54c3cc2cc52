"""Makes requests. Proxies come from the environment; the user's token is sent only to the hub."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2 as httpx

from backend import __version__
from backend.downloads import token
from backend.downloads.address import endpoint
from backend.downloads.errors import DownloadError, host_of, of_answer, of_connecting
from backend.text import joined, text

STALL_S = 30.0  # a connection without a byte for this time counts as broken
CONNECT_S = 15.0
_SSL_FILES = ("SSL_CERT_FILE", "SSLKEYLOGFILE")


def new_client(stall_s: float = STALL_S) -> httpx.Client:
    """Return a client; close it after use. Raises DownloadError."""
    try:
        return httpx.Client(
            follow_redirects=True,
            timeout=httpx.Timeout(stall_s, connect=CONNECT_S),
            # A compressed download could be neither resumed nor checked.
            headers={"user-agent": f"outrider/{__version__}", "accept-encoding": "identity"},
        )
    except OSError as error:  # ssl.SSLError is one
        names = [name for name in _SSL_FILES if name in os.environ]
        named = ", ".join(f"{name}={os.environ[name]}" for name in names)
        reason = error.strerror or str(error)
        sentence = text("download.certificates_unusable", named=named, reason=reason)
        raise DownloadError(sentence) from error
    except (ValueError, httpx.HTTPError) as error:
        raise DownloadError(text("download.proxy_unusable", reason=str(error))) from error


@contextlib.contextmanager
def opened(
    client: httpx.Client,
    url: str,
    start: int = 0,
    end: int | None = None,
    tag: str = "",
    missing: str = "",
    tried: str = "",
) -> Iterator[httpx.Response]:
    """Request bytes start to end - 1, and yield the answer before its body is read.

    tag: the expected ETag; if it differs, the server sends the whole file. missing: the hub's code
    for a 401 or 404 without one. tried: a token in place of the user's. Where the hub refuses the
    user's token, ask again without it.
    Raises DownloadError for any status but 200 and 206, for a page in HTML, for errors while the
    body is read, and without a request before the end of a wait that the server asked for.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise DownloadError(text("download.offline"))
    headers = {}
    if start or end is not None:
        headers["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        if tag:
            headers["if-range"] = tag
    host, secret, refusal = host_of(url), "", ""
    _check_wait(url)
    if url.startswith(f"{endpoint()}/") and (secret := tried or token.usable()):
        headers["authorization"] = f"Bearer {secret}"
    with _said(url), contextlib.ExitStack() as stack:
        answer = stack.enter_context(_sent(client, url, headers))
        is_hub = _key(str(answer.url))[0] == _key(url)[0]
        if tried and answer.status_code == 401 and is_hub:
            raise DownloadError(text("download.token_wrong", host=host))
        if secret and not tried and answer.status_code in (401, 403) and is_hub:
            first = answer
            del headers["authorization"]
            answer = stack.enter_context(_sent(client, url, headers))
            is_right = answer.status_code in (200, 206)
            refusal = token.refused(secret, host, first.status_code)
            if first.status_code == 401 and (is_right or "x-error-code" not in first.headers):
                token.leave_out(secret, refusal)
            elif not is_right:  # the token is known, but not enough
                answer, refusal = first, ""
        if answer.status_code not in (200, 206):
            raise _refused(url, answer, missing, refusal)
        if answer.headers.get("content-type", "").strip().lower().startswith("text/html"):
            raise DownloadError(text("download.page", host=host_of(str(answer.url))))
        yield answer


WAITS: dict[tuple[str, bool], tuple[float, DownloadError]] = {}
"""The end of each wait that a server asked for, in monotonic seconds, and its error.

The key is the server, and whether its API was asked: the hub limits API and files separately.
"""


def _key(url: str) -> tuple[str, bool]:
    parts = urlsplit(url)
    return parts.netloc, parts.path.startswith("/api/")


def _check_wait(url: str) -> None:
    end_s, error = WAITS.get(_key(url), (0.0, None))
    left_s = end_s - time.monotonic()
    if error is not None and left_s > 0:
        raise DownloadError(str(error), error.is_passing, left_s)


def _refused(url: str, answer: httpx.Response, missing: str, refusal: str) -> DownloadError:
    """Return the error of an answer. refusal: a sentence on the user's token, which comes first."""
    asked = url if _key(str(answer.url))[0] != _key(url)[0] else ""
    error = of_answer(str(answer.url), answer.status_code, answer.headers, asked, missing)
    if error.wait_s > 0:
        WAITS[_key(url)] = time.monotonic() + error.wait_s, error
    if refusal:
        return DownloadError(joined(refusal, str(error)), error.is_passing, error.wait_s)
    return error


@contextlib.contextmanager
def _sent(client: httpx.Client, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
    try:
        answer = client.send(client.build_request("GET", url, headers=headers), stream=True)
    except (httpx.InvalidURL, ValueError, TypeError, OverflowError) as error:
        raise DownloadError(text("download.no_address", address=url[:200])) from error
    with contextlib.closing(answer):
        yield answer


@contextlib.contextmanager
def _said(url: str) -> Iterator[None]:
    """Raise DownloadError for an error of the network."""
    host = host_of(url)
    try:
        yield
    except httpx.ProxyError as error:
        raise DownloadError(text("download.proxy_refused", host=host)) from error
    except httpx.TimeoutException as error:
        silent = text("download.silent", host=_host_of(error, host))
        raise DownloadError(silent, is_passing=True) from error
    except httpx.ConnectError as error:
        raise of_connecting(error, _host_of(error, host)) from error
    except httpx.TooManyRedirects as error:
        raise DownloadError(text("download.circle", host=host)) from error
    except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
        if "in location header" in str(error):
            raise DownloadError(text("download.bad_redirect", host=host)) from error
        broke = text("download.broke", host=_host_of(error, host))
        raise DownloadError(broke, is_passing=True) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        if isinstance(error, httpx.UnsupportedProtocol) and str(error.request.url) != url:
            raise DownloadError(text("download.bad_redirect", host=host)) from error
        raise DownloadError(text("download.no_address", address=url[:200])) from error


def _host_of(error: httpx.RequestError, host: str) -> str:
    """Return the server that failed: `host`, or the one to which it redirects."""
    try:
        return error.request.url.host or host
    except RuntimeError:  # it belongs to no request
        return host
