"""The errors of a download, in one sentence each."""

from __future__ import annotations

import errno
from pathlib import Path


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
    return DownloadError(f"The file on {host} is no longer the one that was listed.")


def of_answer(host: str, status: int, code: str, retry_after: str) -> DownloadError:
    """Return the error of an HTTP status. code: the hub's X-Error-Code."""
    if code == "GatedRepo":
        return DownloadError(
            "This repository is gated: accept its conditions on its page in a browser, and set "
            "HF_TOKEN to a token of the same account."
        )
    if code == "RepoNotFound":
        return DownloadError(
            f"There is no such repository on {host}, or it is private and HF_TOKEN is needed."
        )
    if code == "RevisionNotFound":
        return DownloadError(f"The repository on {host} has no such revision.")
    if status == 401:
        return DownloadError(f"{host} asks for a token: set HF_TOKEN to yours.")
    if status == 403:
        return DownloadError(f"{host} does not let you have this.")
    if status in (404, 410):
        return DownloadError(f"There is no such file on {host}.")
    if status == 416:
        return changed(host)
    if status == 429:
        wait_s = float(retry_after) if retry_after.isdecimal() else 0.0
        return DownloadError(f"{host} asks to wait: there were too many requests.", True, wait_s)
    if status == 408 or status >= 500:
        return DownloadError(f"{host} is out of order at the moment (HTTP {status}).", True)
    return DownloadError(f"{host} gave an answer that was not expected (HTTP {status}).")


def of_writing(error: OSError, folder: Path) -> DownloadError:
    """Return the error of a failed write to a folder."""
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return DownloadError(f"The drive of {folder} is full. What has arrived is kept.")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return DownloadError(f"Nothing can be written to {folder}.")
    return DownloadError(f"Writing to {folder} failed: {error.strerror or error}.")
