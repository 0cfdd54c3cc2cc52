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


URL = "https://host/x.gguf"


@pytest.mark.parametrize(
    ("status", "is_passing"),
    [
        (400, False), (401, False), (403, False), (404, False), (408, True), (410, False),
        (421, True), (451, False),
        (416, True), (429, True), (499, False), (500, True), (503, True), (511, False),
    ],
)  # fmt: skip
def test_which_answers_are_tried_again(status: int, is_passing: bool) -> None:
    assert errors.of_answer(URL, status, {}).is_passing == is_passing


def test_each_refusal_has_its_own_sentence() -> None:
    """A code of the hub says more than the status."""
    codes = ("GatedRepo", "RepoNotFound", "RevisionNotFound", "DisabledRepo", "")
    said = {str(errors.of_answer(URL, 401, {"x-error-code": code})) for code in codes}
    said |= {
        str(errors.of_answer(URL, status, {}))
        for status in (402, 403, 404, 407, 416, 429, 451, 500)
    }
    said.add(str(errors.of_answer(URL, 403, {"cf-mitigated": "challenge"})))
    assert len(said) == 14
    for status in (402, 403, 404, 410, 416, 418, 429, 500, 511):
        assert str(errors.of_answer(URL, status, {})).count(str(status)) == 1
    gone, missing = (str(errors.of_answer(URL, status, {})) for status in (410, 404))
    assert gone == missing.replace("404", "410")


DATE = "Wed, 21 Oct 2026 07:26:00 GMT"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "17"}, 17), ({"retry-after": "0"}, 0), ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "120, 120"}, 120), ({"retry-after": "30 s"}, 30),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": DATE}, 120),
        ({"retry-after": "Wednesday, 21-Oct-26 07:28:00 GMT", "date": DATE}, 120),
        ({"retry-after": "2026-10-21T07:28:00Z", "date": DATE}, 120),
        ({"retry-after": "Wed, 21 Oct 2026 07:25:00 GMT", "date": DATE}, 0),
        ({"retry-after": "soon", "ratelimit": '"resolvers";r=0;t=90'}, 90),
        ({"ratelimit": '"resolvers";r=0;t=90'}, 90), ({"ratelimit": '"a;r=0;t=7";r=0;t=90'}, 90),
        ({"ratelimit": '"api";r=499;t=200, "resolvers";r=0;t=90'}, 90),
        ({"ratelimit": '"api";r=1;t=60'}, 60), ({"ratelimit": "limit=9,remaining=0, reset=5"}, 5),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "40"}, 40),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1792567620", "date": DATE}, 60),
        ({"retry-after-ms": "2500"}, 2.5), ({"x-ratelimit-reset-after": "3.2"}, 3.2),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1792567620000", "date": DATE}, 60),
        ({"retry-after": "2m30s"}, 150), ({"retry-after": "PT5M"}, 300),
        ({"retry-after": "1h"}, 3600), ({"retry-after": "5 minutes"}, 300),
        ({"x-ratelimit-reset-requests": "1.5s"}, 1.5), ({"retry-after": "20ms"}, 0.02),
        ({}, 0), ({"retry-after": "-3"}, 0), ({"ratelimit": "nonsense;;="}, 0),
    ],
)  # fmt: skip
def test_a_server_says_how_long_to_wait(headers: dict[str, str], wait_s: float) -> None:
    error = errors.of_answer(URL, 429, headers)
    assert error.wait_s == wait_s and error.is_passing and "host asks to wait" in str(error)


@pytest.mark.parametrize(
    ("status", "headers", "is_wait"),
    [
        (503, {"retry-after": "9"}, True), (403, {"retry-after": "9"}, True),
        (202, {"retry-after": "9"}, True), (403, {"ratelimit": '"a";r=0;t=9'}, True),
        (403, {"ratelimit": '"a";r=5;t=9'}, False), (404, {"ratelimit": '"a";r=0;t=9'}, False),
        (401, {"retry-after": "9"}, False),
    ],
)  # fmt: skip
def test_which_answers_ask_to_wait(status: int, headers: dict[str, str], is_wait: bool) -> None:
    error = errors.of_answer(URL, status, headers)
    assert (error.wait_s == 9 and error.is_passing) == is_wait == ("wait until" in str(error))


def test_a_wait_of_days_ends_the_download() -> None:
    error = errors.of_answer(URL, 429, {"retry-after": "9" * 15})
    assert not error.is_passing and "host asks to wait until 20" in str(error)


@pytest.mark.parametrize(
    "signed",
    [
        "X-Amz-Date=20240101T000000Z&X-Amz-Expires=3600", "Expires=1704070800&Signature=x",
        "X-Goog-Date=20240101T000000Z&X-Goog-Expires=3600", "se=2024-01-01T01:00:00Z&sig=x",
    ],
)  # fmt: skip
def test_an_address_that_has_expired(signed: str) -> None:
    """Only an address says so itself: a refusal of a valid one has another cause."""
    refused = str(errors.of_answer(f"{URL}?{signed}", 403, {}))
    assert "host refuses the address (HTTP 403), which was valid until 20" in refused
    later = signed.replace("2024", "2999").replace("=17", "=917")
    assert "does not let you" in str(errors.of_answer(f"{URL}?{later}", 403, {}))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_storage_refuses(status: int) -> None:
    """The next try asks the hub, which gives a new address."""
    error = errors.of_answer("https://cdn/x?sig=1", status, {}, asked=URL)
    assert error.is_passing and "cdn, to which host redirects" in str(error)
