"""What is said of a server's refusals and of a drive's, and which are tried again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from backend.downloads import errors


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EROFS, "Nothing can be written"),
        (errno.EACCES, "Nothing can be written"),
        (errno.EPERM, "Nothing can be written"),
        (errno.EIO, os.strerror(errno.EIO)),
        (errno.ENODEV, os.strerror(errno.ENODEV)),
    ],
)
def test_what_a_drive_refuses(number: int, words: str) -> None:
    folder = Path("/models")
    said = str(errors.of_writing(OSError(number, os.strerror(number)), folder))
    assert words in said and str(folder) in said


@pytest.mark.parametrize(
    ("status", "is_passing"),
    [
        (400, False), (401, False), (403, False), (404, False), (408, True), (410, False),
        (416, False), (429, True), (499, False), (500, True), (503, True),
    ],
)  # fmt: skip
def test_which_answers_are_tried_again(status: int, is_passing: bool) -> None:
    assert errors.of_answer("host", status, "", "").is_passing == is_passing


def test_each_refusal_has_its_own_sentence() -> None:
    """A code of the hub says more than the status."""
    codes = ("GatedRepo", "RepoNotFound", "RevisionNotFound", "")
    said = {str(errors.of_answer("host", 401, code, "")) for code in codes}
    said |= {str(errors.of_answer("host", status, "", "")) for status in (403, 404, 416, 429, 500)}
    assert len(said) == 9
    assert str(errors.of_answer("host", 410, "", "")) == str(errors.of_answer("host", 404, "", ""))
    assert str(errors.of_answer("host", 418, "", "")).count("418") == 1


@pytest.mark.parametrize(
    ("retry_after", "wait_s"), [("17", 17), ("0", 0), ("", 0), ("soon", 0), ("-3", 0)]
)
def test_a_server_says_how_long_to_wait(retry_after: str, wait_s: float) -> None:
    assert errors.of_answer("host", 429, "", retry_after).wait_s == wait_s
