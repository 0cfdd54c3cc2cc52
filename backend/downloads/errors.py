"""The errors of a download, in one sentence each."""

from __future__ import annotations

import errno
from pathlib import Path

from backend.text import text


class DownloadError(Exception):
    """A download failed. str() is one sentence for the user.

    is_passing: the cause may be temporary; try again after wait_s seconds.
    """

    def __init__(self, sentence: str, is_passing: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.is_passing = is_passing
        self.wait_s = wait_s


class Stopped(Exception):
    """The user paused or removed the download. The received bytes are kept."""


def changed(host: str) -> DownloadError:
    """Return the error of a file that has changed on the server."""
    return DownloadError(text("download.changed", host=host))


def of_answer(host: str, status: int, code: str, retry_after: str) -> DownloadError:
    """Return the error of an HTTP status. code: the hub's X-Error-Code."""
    if code == "GatedRepo":
        return DownloadError(text("download.gated"))
    if code == "RepoNotFound":
        return DownloadError(text("download.no_repository", host=host))
    if code == "RevisionNotFound":
        return DownloadError(text("download.no_revision", host=host))
    if status == 401:
        return DownloadError(text("download.needs_token", host=host))
    if status == 403:
        return DownloadError(text("download.forbidden", host=host))
    if status in (404, 410):
        return DownloadError(text("download.no_file", host=host))
    if status == 416:
        return changed(host)
    if status == 429:
        wait_s = float(retry_after) if retry_after.isdecimal() else 0.0
        return DownloadError(text("download.too_many", host=host), True, wait_s)
    if status == 408 or status >= 500:
        return DownloadError(text("download.out_of_order", host=host, status=status), True)
    return DownloadError(text("download.bad_answer", host=host, status=status))


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
