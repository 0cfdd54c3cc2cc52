"""The errors of a download, in one sentence each."""

from __future__ import annotations

import datetime
import email.utils
import errno
import re
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from backend.text import text

WAIT_LONGEST_S = 24 * 3600.0  # a server may ask for this wait; a longer one ends the download


class DownloadError(Exception):
    """A download failed. str() is one sentence for the user.

    is_passing: the cause may be temporary; try again after wait_s seconds. is_once: a second
    error like it, in a row, stays.
    """

    def __init__(
        self, sentence: str, is_passing: bool = False, wait_s: float = 0.0, is_once: bool = False
    ) -> None:
        super().__init__(sentence)
        self.is_passing = is_passing
        self.wait_s = wait_s
        self.is_once = is_once


class Stopped(Exception):
    """The user paused or removed the download. The received bytes are kept."""


def host_of(url: str) -> str:
    """Return the name of a server for use in sentences."""
    return urlsplit(url).hostname or url


def changed(host: str) -> DownloadError:
    """Return the error of a file that has changed on the server."""
    return DownloadError(text("download.changed", host=host))


def of_answer(
    url: str, status: int, headers: Mapping[str, str], asked: str = "", missing: str = ""
) -> DownloadError:
    """Return the error of an HTTP status.

    url: the address that answered. asked: the requested address, if it redirected to `url`.
    missing: the hub's code for a 401 or 404 without one.
    """
    host, code = host_of(url), headers.get("x-error-code", "")
    if not code and not asked and status in (401, 404):
        code = missing
    wait_s = _wait_s(status, headers)
    if wait_s is not None:
        at_s = time.time() + min(wait_s, _EPOCH_FROM_S)
        sentence = text("download.wait_until", host=host, status=status, at=at_s)
        return DownloadError(sentence, wait_s <= WAIT_LONGEST_S, wait_s)
    if status == 429:
        return DownloadError(text("download.too_many", host=host, status=status), True)
    if asked and status in _REFUSALS:  # the address may have expired: the next one is a new one
        hub = host_of(asked)
        sentence = text("download.storage_refused", host=host, hub=hub, status=status)
        return DownloadError(sentence, is_passing=True, is_once=True)
    ended_s = _signed_until_s(url) if status in _REFUSALS else None
    if ended_s is not None and ended_s < time.time():
        return DownloadError(text("download.expired", host=host, status=status, at=ended_s))
    if status >= 500 and status != 511:
        return DownloadError(text("download.out_of_order", host=host, status=status), True)
    if status == 416:
        return DownloadError(text("download.no_range", host=host, status=status), True)
    if headers.get("cf-mitigated", "") == "challenge":
        return DownloadError(text("download.challenge", host=host, status=status))
    return DownloadError(_refusal(host, status, code), status in (408, 421, 425))


def _refusal(host: str, status: int, code: str) -> str:
    """Return the sentence of a refusal that stays."""
    if code == "GatedRepo":
        return text("download.gated")
    if code == "RepoNotFound":
        return text("download.no_repository", host=host)
    if code == "RevisionNotFound":
        return text("download.no_revision", host=host)
    if code == "DisabledRepo":
        return text("download.disabled", host=host)
    if status == 401:
        return text("download.needs_token", host=host)
    if status == 402:
        return text("download.payment", host=host, status=status)
    if status == 451:
        return text("download.law", host=host, status=status)
    if status == 403:
        return text("download.forbidden", host=host, status=status)
    if status in (404, 410):
        return text("download.no_file", host=host, status=status)
    if status == 407:
        return text("download.proxy_refused", host=host)
    if status == 511:
        return text("download.network_login")
    return text("download.bad_answer", host=host, status=status)


_REFUSALS = (400, 401, 403, 404, 410)
_MAY_LIMIT = (403, 429, 503)  # answers in which the fields of a rate limit are a reason to wait
_SECONDS = re.compile(r"\s*(\d{1,15}(?:\.\d*)?)\s*(?:s|sec|seconds)?\s*(?:[;,].*)?", re.IGNORECASE)
_EPOCH_FROM_S = 1e9  # a larger number is a time since 1970, not a duration
_EPOCH_FROM_MS = 1e11  # a larger one is such a time in milliseconds
_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"(\d{1,9}(?:\.\d*)?)\s*(ms|[smhd])[a-z]*[\s,]*", re.IGNORECASE)


def _wait_s(status: int, headers: Mapping[str, str]) -> float | None:
    """Return for how long a server asks to wait, in seconds; None if it does not say.

    Retry-After comes first (RFC 9110, section 10.2.3), then the fields of rate limits in their
    older and newer forms.
    """
    now_s = _time_s(headers.get("date", "")) or time.time()
    if status == 401:
        return None
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if found := _SECONDS.fullmatch(headers.get(name, "")):
            return float(found[1]) / 1000
    for name in ("retry-after", "x-retry-after"):
        if (wait_s := _duration_s(headers.get(name, ""), now_s)) is not None:
            return wait_s
    if status not in _MAY_LIMIT:
        return None
    limits = [
        (_number(item, r"r|remaining"), _number(item, r"t|reset"))
        for item in re.split(
            r",(?!\s*(?:remaining|reset)\s*=)", re.sub(r'"[^"]*"', "", headers.get("ratelimit", ""))
        )
    ]
    for start in ("ratelimit", "x-ratelimit", "x-rate-limit"):
        left = _number(f"r={headers.get(f'{start}-remaining', '')}", "r")
        for end in ("reset-after", "reset", "reset-requests", "reset-tokens"):
            limits.append((left, _duration_s(headers.get(f"{start}-{end}", ""), now_s)))
    waits = [(left, wait_s) for left, wait_s in limits if wait_s is not None]
    used_up = [wait_s for left, wait_s in waits if left == 0]
    if status == 429:  # a policy is used up, even if none says so
        used_up = used_up or [wait_s for _, wait_s in waits]
    return max(used_up, default=None)


def _number(item: str, names: str) -> float | None:
    found = re.search(rf"(?:^|[;,\s])(?:{names})\s*=\s*(\d{{1,15}})", item, re.IGNORECASE)
    return float(found[1]) if found else None


def _duration_s(value: str, now_s: float) -> float | None:
    """Return the seconds until the end of a wait.

    It is a number of seconds, a time, or amounts with units, such as 2m30s, 5 minutes and PT5M.
    """
    found = _SECONDS.fullmatch(value)
    if found and float(found[1]) < _EPOCH_FROM_S:
        return float(found[1])
    amounts = value.strip().upper().removeprefix("P").replace("T", "").lower()
    if not found and amounts and not _AMOUNT.sub("", amounts):
        return sum(float(n) * _UNITS_S[unit] for n, unit in _AMOUNT.findall(amounts))
    at_s = float(found[1]) if found else _time_s(value)
    if found and at_s is not None and at_s > _EPOCH_FROM_MS:
        at_s /= 1000
    return None if at_s is None else max(at_s - now_s, 0.0)


def _time_s(value: str) -> float | None:
    """Return a time in a form of HTTP, of ISO 8601 or of Amazon's signatures, since 1970."""
    for read in (email.utils.parsedate_to_datetime, datetime.datetime.fromisoformat):
        try:
            at = read(value.strip())
            return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


def _signed_until_s(url: str) -> float | None:
    """Return until when a signed address is valid, since 1970; None if it does not say."""
    asked = dict(parse_qsl(urlsplit(url).query))
    for name in ("X-Amz", "X-Goog"):
        start_s, length = _time_s(asked.get(f"{name}-Date", "")), asked.get(f"{name}-Expires", "")
        if start_s is not None and length.isdecimal():
            return start_s + float(length[:15])
    if asked.get("Expires", "").isdecimal():
        return float(asked["Expires"][:15])
    return _time_s(asked.get("se", "")) if "sig" in asked else None


def of_connecting(error: Exception, host: str) -> DownloadError:
    """Return the error of a connection that cannot be made. error: with the causes of httpx."""
    import ssl  # slow to load; a client has loaded it, and the window needs only DownloadError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message
            return DownloadError(text("download.untrusted", host=host, reason=reason))
        cause = cause.__cause__ or cause.__context__
    return DownloadError(text("download.unreachable", host=host), is_passing=True)


def of_writing(error: OSError, folder: Path) -> DownloadError:
    """Return the error of a failed write to a folder."""
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return DownloadError(text("download.drive_full", folder=str(folder)))
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return DownloadError(text("download.nothing_written", folder=str(folder)))
    reason = error.strerror or str(error)
    return DownloadError(text("download.write_failed", folder=str(folder), reason=reason))
