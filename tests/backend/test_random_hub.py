"""A download from a hub and a storage with a random answer for each request."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import httpx2 as httpx
import pytest

from backend.downloads import transfer as transfer_module
from backend.downloads.errors import DownloadError
from backend.downloads.offers import RemoteFile
from backend.downloads.transfer import Transfer
from backend.downloads.web import WAITS

DATA = random.Random(5).randbytes(5000)
SHA256 = hashlib.sha256(DATA).hexdigest()
HUB, STORAGE = "https://hub.example/a/b/resolve/c0ffee/x.gguf", "https://cdn.example/x?sig=1"
STATUSES = (202, 204, 301, 304, 400, 401, 402, 403, 404, 405, 408, 409, 410, 412, 416, 418, 421,
            425, 429, 429, 429, 451, 499, 500, 502, 503, 503, 504, 511, 520, 599)  # fmt: skip
WAITING = (202, 403, 408, 425, 429, 503)
FAULTS = ("status", "status", "status", "wait", "wait", "storage", "cut", "cut", "cut", "cut",
          "short", "other", "whole", "whole", "whole", "wrong", "page", "encoded", "circle",
          "scheme", "slow", "away", "broken")  # fmt: skip


class Clock(threading.Event):
    """An event whose waits end at once, as if the time had passed."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout or 0.0)
        WAITS.clear()
        return False


class Hub:
    """Answers by chance. `right`: the words of a true sentence on its last answer."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.right: tuple[str, ...] = ()
        self.asked_s = 0.0
        self.starts: list[int] = []
        self.is_well = False
        self.n_no_rest = 0  # successive answers without the rest; after three the whole is asked
        self.n_true: int | None = None  # requests before the first wrong byte, if there is one

    def limits(self) -> dict[str, str]:
        """Return a field with which a server asks to wait for self.asked_s."""
        wait_s = self.chance.choice((1, 30, 90, 300, 4000))
        self.asked_s = wait_s
        return self.chance.choice((
            {"retry-after": str(wait_s)}, {"Retry-After": f"{wait_s}.0 "},
            {"retry-after": formatdate(1.8e9 + wait_s, usegmt=True),
             "date": formatdate(1.8e9, usegmt=True)},
        ))  # fmt: skip

    def answer(self, request: httpx.Request) -> httpx.Response:
        start = int(request.headers.get("range", "bytes=0-")[6:].partition("-")[0])
        is_hub = request.url.host == "hub.example"
        if is_hub and (start or self.n_no_rest < 3):
            self.starts.append(start)
        self.right, self.asked_s = (), 0.0
        fault = "" if self.is_well or self.chance.random() < 0.1 else self.chance.choice(FAULTS)
        host = "hub.example" if is_hub else "cdn.example"
        if fault == "wait" or (fault in ("status", "storage") and is_hub == (fault == "status")):
            status = self.chance.choice(WAITING if fault == "wait" else STATUSES)
            self.right = (f"HTTP {status}",)
            self.n_no_rest = self.n_no_rest + 1 if status == 416 else 0
            return httpx.Response(status, headers=self.limits() if fault == "wait" else {})
        if fault == "circle" and is_hub:
            self.right = ("redirects again and again",)
            return httpx.Response(302, headers={"location": "?"})
        if fault == "scheme" and is_hub:
            self.right = ("redirects to an address that cannot be used",)
            return httpx.Response(302, headers={"location": "mailto:x"})
        if fault in ("slow", "away", "broken"):
            self.right = {
                "slow": f"{host} does not answer", "away": f"{host} cannot be reached",
                "broken": f"The connection to {host} broke",
            }[fault],  # fmt: skip
            raise {"slow": httpx.ReadTimeout, "away": httpx.ConnectError}.get(
                fault, httpx.RemoteProtocolError
            )("", request=request)
        if is_hub and self.chance.random() < 0.7:
            return httpx.Response(302, headers={"location": STORAGE})
        return self.file(start, fault, host)

    def file(self, start: int, fault: str, host: str) -> httpx.Response:
        fields, status = {"etag": '"1"'}, 206 if start else 200
        end = len(DATA)
        self.n_no_rest = self.n_no_rest + 1 if fault == "other" and start else 0
        if fault == "page":
            self.right = (f"{host} sent a web page",)
            return httpx.Response(200, headers={"content-type": "text/html"}, content=b"<p>")
        if fault == "encoded":
            fields["content-encoding"], self.right = "br", (f"{host} sends the file compressed",)
        if fault == "other" and start:
            self.right = ("sent another part",)
            start -= 1
        if fault == "whole":
            start, status = 0, 200
        if fault == "short" and status == 206:
            end = self.chance.randint(start + 1, end)
        self.right = self.right or ("broke", "arrived damaged")
        body, is_cut = DATA[start:end], fault in ("cut", "whole")
        if fault == "wrong" and len(body) > 1:
            self.n_true = len(self.starts) if self.n_true is None else self.n_true
            body = body[:-1] + bytes([body[-1] ^ 1])
        if status == 206:
            fields["content-range"] = f"bytes {start}-{end - 1}/{len(DATA)}"
        return httpx.Response(status, headers=fields, content=self.pieces(body, is_cut))

    def pieces(self, body: bytes, is_cut: bool) -> Iterator[bytes]:
        while body:
            n = self.chance.randint(1, 2000)
            yield body[:n]
            body = body[n:]
            if is_cut and self.chance.random() < 0.8:
                raise httpx.ReadError("cut")


def try_seed(seed: int, folder: Path) -> None:
    """Download until the hub is well, pressing Try again. Check waits, sentences and bytes."""
    hub, clock, part = Hub(seed), Clock(), folder / f"{seed}" / "p" / "x.part"
    file = RemoteFile(HUB, "x.gguf", len(DATA), SHA256 if seed % 4 else "", '"1"')
    waits: list[tuple[str, float]] = []

    def note(sentence: str, wait_s: float) -> None:
        if sentence:
            assert wait_s >= hub.asked_s, (seed, sentence, wait_s)
            assert not hub.right or any(word in sentence for word in hub.right), (seed, sentence)
            waits.append((sentence, wait_s))

    for n_try in range(6):
        hub.is_well = n_try == 5
        transport = httpx.MockTransport(hub.answer)
        with httpx.Client(transport=transport, follow_redirects=True) as client:
            try:
                Transfer(client, file, part, clock, lambda _n: None, note).fetch()
                break
            except DownloadError as error:
                said = str(error)
                assert any(word in said for word in hub.right), (seed, said, hub.right)
                WAITS.clear()
    assert clock.waited == [wait_s for _, wait_s in waits]
    assert part.read_bytes() == DATA or (hub.n_true is not None and not file.sha256), seed
    starts = hub.starts[: hub.n_true]
    assert starts == sorted(starts), seed  # no byte is fetched twice


@pytest.fixture(autouse=True)
def _no_hub_of_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(transfer_module, "_started_s", lambda: 0.0)


def test_each_download_ends_whole_or_in_a_true_sentence(tmp_path: Path) -> None:
    for seed in range(100):
        try_seed(seed, tmp_path)


@pytest.mark.night
def test_two_thousand_downloads(tmp_path: Path) -> None:
    for seed in range(100, 2100):
        try_seed(seed, tmp_path)
