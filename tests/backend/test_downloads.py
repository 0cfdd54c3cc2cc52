"""Downloads from a local server that speaks the hub's protocol, with its faults."""

import errno
import hashlib
import importlib.util
import json
import os
import re
import select
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2 as httpx
import psutil
import pytest
from factory import make_split, make_tiny
from fake_hub import FakeHub, Fault
from waiting import WAIT_S, until

from backend.cli import main
from backend.downloads import curated as curated_module
from backend.downloads import job as job_module
from backend.downloads import token
from backend.downloads import transfer as transfer_module
from backend.downloads.address import Address, parse, safe_name
from backend.downloads.curated import curated
from backend.downloads.errors import DownloadError, Stopped
from backend.downloads.headers import read_facts, scaled
from backend.downloads.hub import look_up, search
from backend.downloads.job import INCOMPLETE, Job
from backend.downloads.manager import Download, Downloads, State
from backend.downloads.offers import Listing, Offer, RemoteFile, Repository
from backend.downloads.transfer import Transfer
from backend.downloads.web import WAITS, new_client, opened
from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import read_model
from backend.gguf.tables import ARCHITECTURES
from backend.library.digests import Digests
from backend.library.estimate import Kind, judge
from backend.library.facts import Facts, FactsCache
from backend.library.scan import scan
from backend.system import surroundings
from backend.system.paths import digests_file

REPOSITORY = "somebody/Tiny-GGUF"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return three quantisations of one model, one of them in three parts."""
    folder = tmp_path_factory.mktemp("models")
    for kind in ("Q4_0", "Q8_0", "F16"):
        make_tiny("qwen3moe", kind, folder / f"Tiny-{kind}.gguf", n_expert=16, n_expert_used=4)
    make_split(folder / "Tiny-F16.gguf", 3)
    return folder


@pytest.fixture
def hub(models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", "/nonexistent/token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(transfer_module, "WAIT_S", 0.01)
    monkeypatch.setattr(job_module, "MARGIN_BYTES", 0)
    WAITS.clear()
    with FakeHub() as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        made.repositories[REPOSITORY] = {
            "README.md": b"# Tiny",
            "Tiny-Q4_0.gguf": (models / "Tiny-Q4_0.gguf").read_bytes(),
            "Tiny-Q8_0.gguf": (models / "Tiny-Q8_0.gguf").read_bytes(),
            "mmproj-F16.gguf": b"GGUF",
        } | {
            f"F16/{path.name}": path.read_bytes()
            for path in sorted(models.glob("Tiny-F16-0*.gguf"))
        }  # fmt: skip
        yield made


def listing(text: str = REPOSITORY) -> Listing:
    with new_client() as client:
        return look_up(parse(text), client)


def found_by(words: str) -> list[Repository]:
    with new_client() as client:
        return search(words, client)


def offer(name: str, text: str = REPOSITORY) -> Offer:
    return next(item for item in listing(text).offers if item.name == name)


def sentence(act: Callable[[], object]) -> str:
    with pytest.raises(DownloadError) as caught:
        act()
    return str(caught.value)


def fetch(job: Job, stop: threading.Event | None = None) -> list[int]:
    heard: list[int] = []
    with new_client(stall_s=1.0) as client:
        job.run(client, stop or threading.Event(), heard.append)
    return heard


# References that a user types


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unsloth/Qwen3-30B-A3B-GGUF", Address("unsloth/Qwen3-30B-A3B-GGUF")),
        (" a/b/Q4/x.gguf ", Address("a/b", path="Q4/x.gguf")),
        ("https://huggingface.co/a/b", Address("a/b")),
        ("huggingface.co/a/b/", Address("a/b")),
        ("https://hf.co/a/b/tree/v2/Q4", Address("a/b", "v2", "Q4")),
        ("https://huggingface.co/a/b/blob/main/x%20y.gguf?a=1", Address("a/b", path="x y.gguf")),
        ("https://huggingface.co/a/b/resolve/main/x.gguf", Address("a/b", path="x.gguf")),
        ("https://huggingface.co/a/b/discussions/3", Address("a/b")),
        ("https://example.org/x.gguf", Address(url="https://example.org/x.gguf")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse(text) == address


@pytest.mark.parametrize(
    "text", ["", "qwen", "a/../b", "a b/c", "ftp://x/y.gguf", "https://", "http://[::1/x.gguf",
             "https://huggingface.co/", "/etc/passwd", "../../a/b", "file:///etc/passwd"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    assert "neither a repository" in sentence(lambda: parse(text))


@pytest.mark.parametrize(
    "path", ["../x.gguf", "a/../../x.gguf", "/x.gguf", "a//x.gguf", "a\\..\\x.gguf", "C:x.gguf",
             ".x.gguf", "x.txt", "x\0.gguf", "x\n.gguf", "con.gguf", "LPT1.gguf",
             "é" * 120 + ".gguf", "", "x..gguf", "a/./x.gguf"],
)  # fmt: skip
def test_names_that_no_file_may_have(path: str) -> None:
    assert safe_name(path) is None


def test_a_name_without_its_folder() -> None:
    assert safe_name("BF16/Модель-v1.gguf") == "Модель-v1.gguf"


# Listings


def test_a_repository_is_listed(hub: FakeHub, models: Path) -> None:
    found = listing()
    assert [item.name for item in found.offers] == ["Tiny-Q4_0", "Tiny-Q8_0", "Tiny-F16"]
    assert [len(item.files) for item in found.offers] == [1, 1, 3]
    assert [item.quantisation for item in found.offers] == ["Q4_0", "Q8_0", "F16"]
    assert found.offers[0].size_bytes == (models / "Tiny-Q4_0.gguf").stat().st_size
    assert {item.vision and item.vision.name for item in found.offers} == {"mmproj-F16.gguf"}
    assert not found.is_gated
    (request,) = hub.requests  # no file was fetched, and no other request was sent
    assert request.path == f"api/models/{REPOSITORY}/revision/main"
    assert not {"torch", "agent"} & set(re.split("[/; ]+", request.agent))


PIECES = (
    "big.i1-Q6_K.gguf.part1of2", "big.i1-Q6_K.gguf.part2of2", "Q4/big.gguf-split-a",
    "Q4/big.gguf-split-b", "a.gguf.001", "a.gguf.002", "b.gguf.part-00", "c.gguf.aa", "c.gguf.ab",
    "d.zip", "e.gguf.7z", "f.gguf.zst",
)  # fmt: skip


def test_raw_pieces_are_told(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    """B41: they are there, and cannot be used as they are; the usual file can."""
    usual = hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]
    others = ("README.md", "c.gguf.md", "a.gguf.sha256", "x.part1")
    hub.repositories["a/b"] = dict.fromkeys([*PIECES, *others], b"piece")
    offers = listing("a/b").offers
    assert {item.name for item in offers} == {*"abcdef", "big", "big.i1-Q6_K"}
    told = {item.name: item.trouble for item in offers}
    assert told["big.i1-Q6_K"] == (
        "it is there in raw pieces only (big.i1-Q6_K.gguf.part1of2, big.i1-Q6_K.gguf.part2of2), "
        "which have to be joined into one file"
    )
    assert "raw pieces only (b.gguf.part-00)" in told["b"] and "packed (d.zip)" in told["d"]
    hub.repositories["a/b"]["big.i1-Q4_K_M.gguf"] = usual
    assert [item.name for item in listing("a/b").offers if not item.trouble] == ["big.i1-Q4_K_M"]
    status, out, _ = outrider("download", "a/b", capsys=capsys)
    assert (
        status == 0
        and "big.i1-Q6_K" in out
        and "cannot be used: it is there in raw pieces only" in out
    )


def test_a_part_stands_for_the_whole_model(hub: FakeHub) -> None:
    (one,) = listing(f"{hub.url}/{REPOSITORY}/blob/main/F16/Tiny-F16-00002-of-00003.gguf").offers
    assert len(one.files) == 3
    assert [item.name for item in listing(f"{REPOSITORY}/Tiny-Q8_0.gguf").offers] == ["Tiny-Q8_0"]
    del hub.repositories[REPOSITORY]["F16/Tiny-F16-00002-of-00003.gguf"]
    assert offer("Tiny-F16").trouble == "only 2 of its 3 parts are there"


def test_a_vision_model_comes_with_its_mmproj_file(hub: FakeHub, tmp_path: Path) -> None:
    model = hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]
    hub.repositories["a/b"] = {
        "Eye-Q4_0.gguf": model, "Other-Q4_0.gguf": model, "imatrix.gguf": b"GGUF",
        "mmproj-F32.gguf": b"GGUF32", "mmproj-BF16.gguf": b"GGUFB", "mmproj-F16.gguf": b"GGUF",
        "Other-it-mmproj.gguf": b"GGUF other", "other-mmproj-Other-f16.gguf": b"GGUF16",
    }  # fmt: skip
    found = {item.name: item for item in listing("a/b").offers}
    assert sorted(found) == ["Eye-Q4_0", "Other-Q4_0"]
    eye, other = found["Eye-Q4_0"].vision, found["Other-Q4_0"].vision
    assert eye is not None and eye.name == "mmproj-F16.gguf"
    assert other is not None and other.name == "mmproj-other-mmproj-Other-f16.gguf"
    assert found["Eye-Q4_0"].size_bytes == len(model)  # that of the model alone, for its verdict
    (named,) = listing("a/b/Eye-Q4_0.gguf").offers
    job = Job.of(named, "a/b", tmp_path)
    assert job.size_bytes == len(model) + len(b"GGUF")
    with new_client() as client:
        job.run(client, threading.Event(), lambda _: None)
    assert (tmp_path / "a" / "b" / "mmproj-F16.gguf").read_bytes() == b"GGUF"
    assert job.target == tmp_path / "a" / "b" / "Eye-Q4_0.gguf" and job.is_there


def test_repositories_are_found_by_words(hub: FakeHub) -> None:
    hub.repositories |= {"x/Tiny-Coder-GGUF": {"t.gguf": b"GGUF"}, "y/Large-GGUF": {}}
    hub.gated.add("x/Tiny-Coder-GGUF")
    found = found_by("tiny")
    assert [item.name for item in found] == [REPOSITORY, "x/Tiny-Coder-GGUF"]
    assert [item.is_gated for item in found] == [False, True]
    assert {item.licence for item in found} == {"mit"}
    (request,) = hub.requests
    assert request.path == "api/models"
    assert found_by("nobody has this") == []
    hub.api_status = 503
    assert "503" in sentence(lambda: found_by("tiny"))
    hub.api_status = 0
    for senseless in ("{", '{"a": 1}', "[1]", '[{"id": "../../etc"}]'):
        hub.api_text = senseless
        assert "no sense" in sentence(lambda: found_by("tiny"))


def test_the_curated_list_is_consistent() -> None:
    """The numbers of a model follow from each other, as those of a header would."""
    date, models = curated()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", date) and len(models) >= 8
    assert len({model.file for model in models}) == len(models)
    for model in models:
        facts, needs = model.facts, model.facts.needs
        assert safe_name(model.file) == model.file and parse(model.repository).repository
        assert facts.architecture in ARCHITECTURES and facts.is_moe
        of_slots = needs.slot_bytes * facts.n_expert
        assert abs(facts.expert_bytes_total - of_slots) <= facts.n_expert  # rounded
        assert needs.dense_bytes + facts.expert_bytes_total < facts.file_bytes
        # The rest is the vocabulary, and a layer for multi-token prediction.
        assert facts.file_bytes < 1.04 * (needs.dense_bytes + facts.expert_bytes_total)
        assert facts.token_dense_bytes <= needs.dense_bytes
        share = facts.n_expert_used / facts.n_expert
        assert abs(facts.token_expert_bytes - facts.expert_bytes_total * share) <= 1
        assert needs.n_slot_min == facts.n_expert_used
        assert model.good_for in ("general", "code", "images", "thinking", "small")


@pytest.mark.parametrize("machine_gb", [8, 16, 24, 32, 64])
def test_every_size_of_machine_has_models_of_the_list(machine_gb: int) -> None:
    """That fit as a whole and use most of it, beside others that run through the cache."""
    fitting, cached = [], []
    for model in curated()[1]:
        kind = judge(model.facts, 0.25, round(0.9 * machine_gb * 1e9), None, None).kind
        if kind is Kind.FITS and model.facts.file_bytes > 0.4 * machine_gb * 1e9:
            fitting.append(model)
        elif kind is Kind.CACHE:
            cached.append(model)
    assert len({model.repository for model in fitting}) >= 2
    assert len({model.repository for model in cached}) >= 2


def test_the_list_is_compared_with_the_hub(
    hub: FakeHub, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    spec = importlib.util.spec_from_file_location("check", ROOT / "packaging" / "curated.py")
    assert spec is not None and spec.loader is not None
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    facts = asdict(Facts.of(read_model(models / "Tiny-Q8_0.gguf"), 4096))
    del facts["fingerprint"]
    entry = json.loads(curated_module.PATH.read_text())["models"][0]
    entry |= {"title": "Tiny", "repository": REPOSITORY, "file": "Tiny-Q8_0.gguf"}
    entry |= {"facts": {**facts, "n_layer": 99}, "quantisations": {"Q4_0": {}, "Q2_K": {}}}
    bits = {"Q4_0": 9.0, "Q2_K": 3.0}
    path = tmp_path / "curated.json"
    path.write_text(json.dumps({"date": "2020-01-01", "bits_per_weight": bits, "models": [entry]}))
    monkeypatch.setattr(curated_module, "PATH", path)
    for arguments, status, said in (
        ([], 1, ["Tiny: n_layer 99, 3", "Tiny Q4_0: file_bytes 427716, 277280"]),
        (["--write"], 1, ["Tiny: n_layer 99, 3", "no longer has Tiny-Q2_K.gguf"]),
        ([], 1, ["Tiny: as listed", "Tiny Q4_0: expert_bytes_total", "no longer has"]),
    ):
        curated.cache_clear()
        assert check.main(arguments) == status
        printed = capsys.readouterr().out
        for words in said:
            assert words in printed, printed
    curated.cache_clear()
    date, listed = curated()
    assert [bool(model.checked) for model in listed] == [False, True, True]
    assert date > "2020" and listed[1].facts.file_bytes == len(
        hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]
    )
    curated.cache_clear()


def test_a_curated_model_is_found_in_its_repository(hub: FakeHub) -> None:
    """Under its name, or as a file of the same type and nearly the same size."""
    one = curated()[1][0]
    size = hub.repositories[REPOSITORY]["Tiny-Q8_0.gguf"]
    facts = replace(one.facts, file_bytes=len(size) + 100, quantisation="Q8_0")
    found = listing()
    for file, expected in (("Tiny-Q4_0.gguf", "Tiny-Q4_0"), ("renamed.gguf", "Tiny-Q8_0")):
        assert replace(one, file=file, facts=facts).offer_of(found).name == expected
    other = replace(one, file="renamed.gguf", facts=replace(facts, file_bytes=len(size) * 2))
    assert "no longer has renamed.gguf" in sentence(lambda: other.offer_of(found))


def test_names_from_a_hostile_server(hub: FakeHub) -> None:
    hub.repositories["a/b"] = {
        "../../evil.gguf": b"GGUF", "C:\\evil.gguf": b"GGUF", ".hidden.gguf": b"GGUF",
        "good.gguf": b"GGUF",
    }  # fmt: skip
    found = listing("a/b")
    assert [item.name for item in found.offers] == ["good"]


def test_repositories_that_cannot_be_listed(hub: FakeHub) -> None:
    assert sentence(lambda: listing("no/body")) == (
        "There is no such repository on 127.0.0.1, or it is private and needs a token (in Get "
        "models, or HF_TOKEN)."
    )
    hub.repositories["a/b"] = {"README.md": b"x"}
    assert sentence(lambda: listing("a/b")) == "There is no GGUF model in a/b."
    for status, part in ((403, "does not let you"), (500, "out of order"), (429, "asks to wait")):
        hub.api_status = status
        assert part in sentence(listing)
    hub.api_status = 0
    for text in ("<html>", "[]", '{"id": 3}', '{"id": "a/b", "siblings": [{}]}'):
        hub.api_text = text
        assert "makes no sense" in sentence(listing) or "no GGUF model" in sentence(listing)


def test_nobody_is_there_or_may_be_asked(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert sentence(listing) == "127.0.0.1 cannot be reached."
    assert sentence(lambda: listing("http://127.0.0.2:9/x.gguf")) == "127.0.0.2 cannot be reached."
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in sentence(lambda: listing(f"{hub.files_url}/x.gguf"))


def test_nobody_vouches_for_the_certificate(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a company's proxy, or without the system's list. It is not tried again."""
    certificate = ROOT / "tests" / "data" / "self_signed.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FakeHub() as safe:
        safe.repositories = hub.repositories
        safe.encrypt(context)
        monkeypatch.setenv("HF_ENDPOINT", safe.url)
        file = f"{safe.files_url}/{REPOSITORY}/Tiny-Q4_0.gguf"
        for place in (REPOSITORY, file):
            with pytest.raises(DownloadError, match="127.0.0.1 cannot be checked .self") as caught:
                listing(place)
            assert not caught.value.is_passing
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert listing(file).offers


def test_a_proxy_is_used(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert "cannot be reached" in sentence(lambda: listing(f"{hub.files_url}/x.gguf"))
    assert hub.requests == []


class Socks(socketserver.StreamRequestHandler):
    """Connects as a SOCKS proxy of version 5 does (RFC 1928). It finds "hub.invalid" here."""

    def handle(self) -> None:
        self.rfile.read(self.rfile.read(2)[1])
        self.wfile.write(b"\x05\x00")
        assert self.rfile.read(4) == b"\x05\x01\x00\x03"  # connect, to a name
        assert self.rfile.read(self.rfile.read(1)[0]) == b"hub.invalid"
        port = int.from_bytes(self.rfile.read(2), "big")
        with socket.create_connection(("127.0.0.1", port)) as far:
            self.wfile.write(b"\x05\x00\x00\x01" + bytes(6))
            ends = {self.connection: far, far: self.connection}
            while ready := select.select(list(ends), [], [])[0]:
                for one in ready:
                    if not (data := one.recv(1 << 16)):
                        return
                    ends[one].sendall(data)


@pytest.mark.parametrize("scheme", ["socks", "socks5", "socks5h"])
def test_a_socks_proxy_is_used(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Desktops write "socks://"; programs such as Clash set all three variables at once."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Socks) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:{proxy.server_address[1]}/")
        monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("127.0.0.1", "hub.invalid"))
        surroundings.mend()
        assert {item.name for item in listing().offers} >= {"Tiny-Q4_0", "Tiny-Q8_0"}
        proxy.shutdown()


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSLKEYLOGFILE"])
def test_files_of_the_environment_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Environments of conda and scanners of viruses leave such names."""
    file = tmp_path / "gone" / "file"
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(name, str(file))
    assert f"({name}={file}): No such file or directory." in sentence(new_client)


def test_the_address_of_a_file(hub: FakeHub, tmp_path: Path) -> None:
    url = f"{hub.files_url}/{REPOSITORY}/Tiny-Q4_0.gguf"
    (one,) = listing(url).offers
    assert one.files[0].tag and not one.files[0].sha256
    job = Job.of(one, url, tmp_path)
    fetch(job)
    assert job.target == tmp_path / "Tiny-Q4_0.gguf" and read_model(job.target)
    readme = f"{hub.files_url}/{REPOSITORY}/README.md"
    assert "is not a GGUF file" in sentence(lambda: listing(readme))
    assert "no such file" in sentence(lambda: listing(f"{hub.files_url}/a/b/c.gguf"))


def test_the_token_goes_to_the_hub_alone(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add(REPOSITORY)
    assert listing().is_gated
    gated = sentence(lambda: fetch(Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)))
    assert gated.startswith("This repository is gated: accept its conditions")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.requests.clear()
    fetch(Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path))
    tokens = {(request.where, request.token) for request in hub.requests}
    assert tokens == {("hub", "Bearer hf_secret"), ("files", "")}


@pytest.mark.parametrize("place", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "file"])
def test_an_expired_token_stands_in_nobodys_way(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], place: str,
) -> None:  # fmt: skip
    """B37: every request is made again without it, and a sentence says where it comes from."""
    secret = f"hf_expired_{place}"
    if place == "file":
        login = tmp_path / "token"
        login.write_text(f"{secret}\n")
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(login))
        monkeypatch.setenv("HF_TOKEN_PATH", str(login))
        place = str(login)
    else:
        monkeypatch.setenv(place, secret)
    hub.bad_tokens = {secret}
    words = ("download", REPOSITORY, "Q4_0", "--folder", str(tmp_path))
    status, out, err = outrider(*words, capsys=capsys)
    assert status == 0 and read_model(Path(out.strip()))
    assert err == (
        f"127.0.0.1 refuses the token of {place} (HTTP 401), so it was asked without the token.\n"
    )
    assert [request.token for request in hub.requests][1:] == [""] * (len(hub.requests) - 1)
    assert [found.name for found in found_by("tiny")] == [REPOSITORY]


def test_what_a_refused_token_hides(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both answers are told: the token is refused, and without a token there is nothing."""
    hub.bad_tokens = {"hf_old"}
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    said = sentence(lambda: listing("no/body"))
    assert said.startswith("127.0.0.1 refuses the token of HF_TOKEN (HTTP 401), so it was asked")
    assert said.endswith("There is no such repository on 127.0.0.1, or it is private and needs a "
                         "token (in Get models, or HF_TOKEN).")  # fmt: skip
    monkeypatch.setenv("HF_TOKEN", "hf_\u00fc")
    assert listing().offers and "characters that no token has" in token.remark()
    monkeypatch.delenv("HF_TOKEN")
    assert listing().offers and not token.remark()


@pytest.mark.parametrize(
    ("url", "is_hub"),
    [
        ("https://huggingface.co/a/b/resolve/main/x.gguf", True),
        ("https://huggingface.co.evil.example/a/b/resolve/main/x.gguf", False),
        ("https://huggingface.company/x.gguf", False),
        ("https://huggingface.co@evil.example/x.gguf", False),
        ("https://huggingface.co:secret@evil.example/x.gguf", False),
        ("https://evil.example/https://huggingface.co/x.gguf", False),
        ("http://huggingface.co/a/b/resolve/main/x.gguf", False),
    ],
)
def test_the_token_goes_to_no_address_that_begins_like_the_hub(
    url: str, is_hub: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization", ""))
        return httpx.Response(200)

    with httpx.Client(transport=httpx.MockTransport(answer)) as client, opened(client, url):
        assert ("hf_secret" in sent[0]) == is_hub


@pytest.mark.parametrize(
    ("place", "range_", "tag"),
    [
        ({}, "", ""), ({"tag": '"a"'}, "", ""), ({"start": 5}, "bytes=5-", ""),
        ({"end": 100}, "bytes=0-99", ""), ({"start": 5, "end": 6}, "bytes=5-5", ""),
        ({"start": 5, "tag": '"a"'}, "bytes=5-", '"a"'),
    ],
)  # fmt: skip
def test_what_is_asked_of_a_server(place: dict[str, Any], range_: str, tag: str) -> None:
    """The bytes that are wanted, of one version of the file, and not compressed."""
    asked: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers)
        return httpx.Response(200)

    with (
        new_client() as kept,
        httpx.Client(transport=httpx.MockTransport(answer), headers=kept.headers) as client,
        opened(client, "https://example.org/x.gguf", **place),
    ):
        names = ("range", "if-range", "accept-encoding")
        assert [asked[0].get(name, "") for name in names] == [range_, tag, "identity"]


@pytest.mark.parametrize("status", [201, 202, 204, 300, 304])
def test_what_is_no_file_is_refused(status: int) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status))
    with (
        httpx.Client(transport=transport) as client,
        pytest.raises(DownloadError, match=f"HTTP {status}"),
        opened(client, "https://example.org/x.gguf"),
    ):
        pass


@pytest.mark.parametrize("word", ["1", "ON", "yes", "True"])
def test_nothing_is_asked_offline(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any word that the hub's own programs understand."""
    monkeypatch.setenv("HF_HUB_OFFLINE", word)
    transport = httpx.MockTransport(lambda _: pytest.fail("it was asked"))
    with (
        httpx.Client(transport=transport) as client,
        pytest.raises(DownloadError, match="HF_HUB_OFFLINE"),
        opened(client, "https://example.org/x.gguf"),
    ):
        pass


# Facts from headers, before a download


def test_facts_before_anything_is_fetched(hub: FakeHub, models: Path) -> None:
    with new_client() as client:
        for name, path in (("Tiny-Q8_0", "Tiny-Q8_0.gguf"), ("Tiny-F16", "Tiny-F16.gguf")):
            found = read_facts(offer(name), client, 4096)
            assert isinstance(found, Facts)
            there = scan([], [models / path], FactsCache(None, 4096)).entries[0].facts
            assert there is not None
            if name == "Tiny-Q8_0":
                assert found == there
            assert found.n_expert == 16 and found.needs == there.needs


@pytest.mark.skipif(sys.platform == "win32", reason="it is not asked, as a hole takes room there")
def test_facts_that_only_llama_cpp_tells(hub: FakeHub, tmp_path: Path) -> None:
    """It is asked with the headers alone."""
    parts = make_split(make_tiny("hy_v4", "Q8_0", tmp_path / "Sparse-Q8_0.gguf"), 2)
    hub.repositories["a/b"] = {part.name: part.read_bytes() for part in parts}
    with new_client() as client:
        found = read_facts(listing("a/b").offers[0], client, 512)
    there = scan([], [parts[0]], FactsCache(None, 512)).entries[0].facts
    assert isinstance(found, Facts) and there is not None
    assert found.needs == there.needs != Facts.of(read_model(parts[0]), 512).needs


def test_facts_of_another_type_are_scaled(hub: FakeHub, models: Path) -> None:
    q4, q8 = offer("Tiny-Q4_0"), offer("Tiny-Q8_0")
    with new_client() as client:
        facts, true = read_facts(q4, client, 4096), read_facts(q8, client, 4096)
    assert isinstance(facts, Facts) and isinstance(true, Facts)
    guess = scaled(facts, q4, q8)
    assert guess is not None and guess.quantisation == "Q8_0"
    assert guess.expert_bytes_total == pytest.approx(true.expert_bytes_total, rel=0.25)
    assert scaled(facts, q4, replace(q8, name="Other-Q8_0")) is None


def test_what_is_no_model_is_refused(hub: FakeHub) -> None:
    hub.repositories["a/b"] = {"x.gguf": b"GGUF" + b"\xff" * 100, "y.gguf": b"MZ" + b"\0" * 100}
    with new_client() as client:
        for one in listing("a/b").offers:
            assert isinstance(read_facts(one, client, 4096), str)
        hub.faults = [Fault("cut", 20)]
        whole = offer("Tiny-Q4_0")
        assert "broke" in sentence(lambda: read_facts(whole, client, 4096))


# Fetching


def test_a_split_model_is_one_download(hub: FakeHub, tmp_path: Path) -> None:
    job = Job.of(offer("Tiny-F16"), REPOSITORY, tmp_path)
    heard = fetch(job)
    assert heard == sorted(heard) and heard[-1] == job.size_bytes
    assert job.target == tmp_path / "somebody" / "Tiny-GGUF" / "Tiny-F16-00001-of-00003.gguf"
    assert read_model(job.target).n_expert == 16 and job.is_there
    assert not (job.folder / INCOMPLETE).exists()
    n_request = len(hub.requests)
    fetch(job)
    assert len(hub.requests) == n_request  # it is complete already


_NO_REST_TWICE = [*[Fault("status", status=416)] * 3, Fault("cut", 2000)] * 2
"""It sends the whole file only; each time somewhat more of it."""


@pytest.mark.parametrize(
    "faults",
    [
        [Fault("cut", 1000)],
        [Fault("cut", 1000), Fault("cut", 1000), Fault("whole")],
        [Fault("cut", 0), Fault("status", status=503), Fault("status", status=429)],
        [Fault("status", status=429, headers={"Retry-After": "0"}), Fault("cut", 5000)],
        [Fault("hold", 3000)],  # a stall
        [Fault("cut", 1000), *(Fault("status", status=n) for n in (400, 401, 403, 404, 410))],
        [Fault("cut", 1000), Fault("status", status=416), Fault("status", status=408)],
        [Fault("cut", 1000), *_NO_REST_TWICE],
        [Fault("cut", 1000), *[Fault("headers", headers={"Content-Range": "bytes 0-9/*"})] * 3],
        [Fault("headers", headers={"Content-Encoding": ""})],
        [Fault("headers", headers={"Content-Encoding": "aws-chunked"})],
    ],
    ids=["cut", "ranges ignored", "overloaded", "asked to wait", "stalled", "expired", "no range",
         "never a rest", "another range", "empty encoding", "encoding of an upload"],
)  # fmt: skip
def test_faults_that_pass(hub: FakeHub, tmp_path: Path, faults: list[Fault]) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    hub.faults = list(faults)
    fetch(job)
    data = hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]
    assert job.target.read_bytes() == data and not hub.faults


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("status", status=418), "was not expected (HTTP 418)"),
        (Fault("status", status=429, headers={"Retry-After": "90000"}), "asks to wait until"),
        (Fault("status", status=302), "was not expected (HTTP 302)"),
        (Fault("status", status=302, headers={"Location": "ftp://x/y"}), "redirects to an address"),
        (Fault("status", status=302, headers={"Location": "mailto:x"}), "redirects to an address"),
        (Fault("status", status=302, headers={"Location": "?again"}), "redirects again and again"),
        (Fault("status", status=200, headers={"Content-Type": "text/html"}), "sent a web page"),
        (Fault("status", status=200, headers={"Content-Encoding": "br"}), "file compressed"),
        (
            Fault(
                "status", status=200, headers={"Content-Type": "application/json; charset=utf-8"}
            ),
            "was not expected (HTTP 200)",
        ),
        (Fault("wrong"), "arrived damaged"),
        (Fault("longer"), "no longer the one"),
    ],
)
def test_faults_that_stay(hub: FakeHub, tmp_path: Path, fault: Fault, said: str) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    hub.faults = [fault]
    stays = said == "redirects again and again"
    hub.faults *= 30 if stays else 1
    assert said in sentence(lambda: fetch(job))
    hub.faults.clear()
    WAITS.clear()
    assert scan([tmp_path], [], FactsCache(None, 4096)).entries == []
    fetch(job)  # a second try works
    assert read_model(job.target)


def test_a_server_that_never_recovers(hub: FakeHub, tmp_path: Path) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    hub.faults = [Fault("status", status=500)] * 100
    assert "out of order" in sentence(lambda: fetch(job))
    assert len(hub.faults) == 100 - transfer_module.N_TRY_MAX
    hub.faults = [Fault("status", status=403)] * 100  # a new signature each time does not help
    assert "refuses the file (HTTP 403)" in sentence(lambda: fetch(job))
    assert len(hub.faults) == 98


def test_what_is_missing_is_fetched_and_no_more(hub: FakeHub, tmp_path: Path) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    hub.faults = [Fault("cut", 40_000), Fault("status", status=418)]
    sentence(lambda: fetch(job))
    assert job.kept_bytes == 40_000
    assert scan([tmp_path], [], FactsCache(None, 4096)).entries == []
    hub.requests.clear()
    fetch(Job.from_json(json.loads(json.dumps(job.to_json()))))
    assert hub.ranges() == ["bytes=40000-", ""] and read_model(job.target)  # then the mmproj file


def test_the_digest_of_what_was_fetched_is_known(hub: FakeHub, tmp_path: Path) -> None:
    """The digest of a file that was there before is not: nobody has compared it."""
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    job.folder.mkdir(parents=True)
    (job.folder / "mmproj-F16.gguf").write_bytes(b"mine")
    fetch(job)
    known = Digests(digests_file())
    found = {file.name: known.of(FileIdentity.of(job.folder / file.name)) for file in job.files}
    data = job.target.read_bytes()
    assert found == {job.target.name: hashlib.sha256(data).hexdigest(), "mmproj-F16.gguf": ""}


def interrupted(hub: FakeHub, job: Job) -> Path:
    """Begin a download and let it break off after 40,000 bytes. Return the partial file."""
    hub.faults = [Fault("cut", 40_000), Fault("status", status=418)]
    sentence(lambda: fetch(job))
    hub.requests.clear()
    (part,) = (job.folder / INCOMPLETE).glob("*.part")
    return part


@pytest.mark.parametrize("where", ["kept", "sent"])
def test_the_checksum_covers_all_parts(hub: FakeHub, tmp_path: Path, where: str) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    part = interrupted(hub, job)
    if where == "kept":  # as after a loss of power
        part.write_bytes(bytes(40_000))
    else:
        hub.faults = [Fault("wrong")]
    fetch(job)
    assert hub.ranges()[:2] == ["bytes=40000-", ""]  # then from the beginning
    assert job.target.read_bytes() == hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]


def test_a_resumed_file_that_stays_wrong_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    interrupted(hub, job)
    hub.faults = [Fault("wrong"), Fault("wrong")]
    assert "arrived damaged" in sentence(lambda: fetch(job))
    assert job.kept_bytes == 0 and not job.target.exists()


@pytest.mark.parametrize("start", ["later", "hidden"])
def test_a_part_without_checksum_is_kept_until_the_system_starts_again(
    hub: FakeHub, tmp_path: Path, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{hub.files_url}/{REPOSITORY}/Tiny-Q4_0.gguf"
    job = Job.of(listing(url).offers[0], url, tmp_path)
    assert job.files[0].tag and not job.files[0].sha256
    part = interrupted(hub, job)
    fetch(job)
    assert hub.ranges() == ["bytes=40000-"]
    job.target.unlink()
    part = interrupted(hub, job)
    part.write_bytes(bytes(40_000))  # what a loss of power left
    if start == "later":
        os.utime(part, (psutil.boot_time() - 60,) * 2)
    else:  # a sandbox says nothing of the start
        monkeypatch.setattr(psutil, "boot_time", Mock(side_effect=RuntimeError("no btime")))
    fetch(job)
    assert hub.ranges() == [""]
    assert job.target.read_bytes() == hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]


def test_a_file_that_changes_between_parts(hub: FakeHub, tmp_path: Path) -> None:
    url = f"{hub.files_url}/{REPOSITORY}/Tiny-Q4_0.gguf"
    job = Job.of(listing(url).offers[0], url, tmp_path)
    data = hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"]
    hub.faults = [Fault("cut", 40_000), Fault("status", status=418)]
    sentence(lambda: fetch(job))
    hub.repositories[REPOSITORY]["Tiny-Q4_0.gguf"] = data[:-1] + b"?"
    assert "no longer the one" in sentence(lambda: fetch(job))
    again = Job.of(listing(url).offers[0], url, tmp_path)
    fetch(again)
    assert again.target.read_bytes() == data[:-1] + b"?"


def test_nothing_tells_two_files_apart(hub: FakeHub, tmp_path: Path) -> None:
    hub.tag = 'W/"weak"'
    url = f"{hub.files_url}/{REPOSITORY}/Tiny-Q4_0.gguf"
    job = Job.of(listing(url).offers[0], url, tmp_path)
    assert job.files[0].tag == "" and job.files[0].sha256 == ""
    hub.faults = [Fault("cut", 40_000), Fault("status", status=418)]
    sentence(lambda: fetch(job))
    hub.requests.clear()
    fetch(job)
    assert hub.ranges() == [""]  # from the beginning


def test_a_stated_checksum_that_is_wrong(hub: FakeHub, tmp_path: Path) -> None:
    hub.sha256["Tiny-Q4_0.gguf"] = hashlib.sha256(b"another").hexdigest()
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    assert "arrived damaged" in sentence(lambda: fetch(job))
    assert job.kept_bytes == 0 and not job.target.exists()


def test_drives_without_room(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path / "not" / "made")
    monkeypatch.setattr(job_module, "MARGIN_BYTES", 1 << 62)
    assert sentence(job.check_room).startswith("There is too little room on the drive of ")
    assert not (tmp_path / "not").exists()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(transfer_module, "_write_all", full)
        assert "is full. What has arrived is kept." in sentence(lambda: fetch(job))
    fetch(job)
    assert read_model(job.target)


def test_a_folder_that_cannot_be_written(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somebody").write_text("a file in the way")
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    assert "Writing to" in sentence(lambda: fetch(job))

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert "Nothing can be written to" in sentence(lambda: fetch(job))


def test_another_file_of_the_same_name(hub: FakeHub, tmp_path: Path) -> None:
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    job.folder.mkdir(parents=True)
    job.target.write_bytes(b"mine")
    assert "There is another file named Tiny-Q4_0.gguf" in sentence(job.check_room)
    assert "There is another file" in sentence(lambda: fetch(job))
    assert job.target.read_bytes() == b"mine"


def test_two_at_once(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults = [Fault("hold", 1000)]
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, tmp_path)
    stop = threading.Event()
    errors: list[BaseException] = []

    def first() -> None:
        try:
            fetch(job, stop)
        except Stopped as error:
            errors.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    until(lambda: job.kept_bytes >= 1000)
    assert "Another window or program" in sentence(lambda: fetch(job))
    stop.set()
    hub.release.set()
    thread.join(WAIT_S)
    assert len(errors) == 1


# All downloads


@pytest.fixture
def downloads(tmp_path: Path) -> Iterator[Downloads]:
    made = Downloads(tmp_path / "downloads.json", tmp_path / "models")
    yield made
    made.shut_down()


def state(downloads: Downloads, number: int) -> State:
    return next(item.state for item in downloads.all() if item.number == number)


def only(downloads: Downloads) -> Download:
    (item,) = downloads.all()
    return item


def test_two_run_and_one_waits(hub: FakeHub, downloads: Downloads) -> None:
    hub.faults = [Fault("hold", 1000)] * 2
    offers = [replace(item, vision=None) for item in listing().offers]
    jobs = [Job.of(item, REPOSITORY, downloads.folder) for item in offers]
    numbers = [downloads.add(job) for job in jobs]
    until(lambda: len(hub.ranges()) == 2)
    assert [state(downloads, n) for n in numbers] == [State.RUNNING, State.RUNNING, State.WAITING]
    hub.release.set()
    until(lambda: all(item.state is State.DONE for item in downloads.all()))
    assert all(job.is_there for job in jobs)
    assert json.loads((downloads.folder.parent / "downloads.json").read_text())["downloads"] == []


def test_downloads_with_a_common_file_run_one_by_one(hub: FakeHub, downloads: Downloads) -> None:
    hub.faults = [Fault("hold", 1000)]
    jobs = [Job.of(item, REPOSITORY, downloads.folder) for item in listing().offers]
    assert frozenset.intersection(*(job.paths for job in jobs))  # their mmproj file
    numbers = [downloads.add(job) for job in jobs]
    until(lambda: len(hub.ranges()) == 1)
    assert [state(downloads, n) for n in numbers] == [State.RUNNING, State.WAITING, State.WAITING]
    hub.release.set()
    until(lambda: all(item.state is State.DONE for item in downloads.all()))
    assert all(job.is_there for job in jobs)
    assert len(hub.ranges()) == len(frozenset.union(*(job.paths for job in jobs)))  # each once


def test_pause_and_resume(hub: FakeHub, downloads: Downloads) -> None:
    hub.faults = [Fault("hold", 50_000)]
    number = downloads.add(Job.of(offer("Tiny-F16"), REPOSITORY, downloads.folder))
    until(lambda: only(downloads).n_byte >= 50_000)
    downloads.pause(number)
    assert state(downloads, number) is State.PAUSED
    downloads.resume(number)  # before the thread has ended
    hub.release.set()
    until(lambda: state(downloads, number) is State.DONE)
    assert "bytes=50000-" in hub.ranges() and read_model(only(downloads).job.target)


def test_cancel_leaves_nothing(hub: FakeHub, downloads: Downloads) -> None:
    hub.faults = [Fault("hold", 50_000)]
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, downloads.folder)
    number = downloads.add(job)
    until(lambda: only(downloads).n_byte >= 50_000)
    downloads.remove(number)
    assert downloads.all() == []
    hub.release.set()
    until(lambda: not (job.folder / INCOMPLETE).exists())
    assert not job.target.exists()


def test_what_was_interrupted_comes_back(
    hub: FakeHub, downloads: Downloads, tmp_path: Path
) -> None:
    hub.faults = [Fault("hold", 50_000)]
    downloads.add(Job.of(offer("Tiny-Q4_0"), REPOSITORY, downloads.folder))
    until(lambda: only(downloads).n_byte >= 50_000)
    hub.release.set()
    downloads.shut_down()
    hub.requests.clear()
    again = Downloads(tmp_path / "downloads.json", tmp_path / "elsewhere")
    item = only(again)
    assert item.state is State.PAUSED and item.n_byte >= 50_000
    assert again.folder == tmp_path / "models" and hub.requests == []
    again.resume(item.number)
    until(lambda: state(again, item.number) is State.DONE)
    assert read_model(item.job.target)
    again.shut_down()


def test_a_failure_says_why_and_can_be_tried_again(hub: FakeHub, downloads: Downloads) -> None:
    hub.faults = [Fault("status", status=418)]
    job = Job.of(offer("Tiny-Q4_0"), REPOSITORY, downloads.folder)
    number = downloads.add(job)
    until(lambda: state(downloads, number) is State.FAILED)
    assert "an answer that was not expected (HTTP 418)" in only(downloads).trouble
    assert downloads.add(job) == number
    until(lambda: state(downloads, number) is State.DONE)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 9}',
    '{"format": 2, "folder": "/x", "downloads": []}', '{"format": 1, '
    '"folder": "/x", "downloads": [{"source": "a/b", "name": "x", "folder": "/x", "files": '
    '[{"url": "http://x", "name": "../x.gguf", "size_bytes": 1}]}]}'])  # fmt: skip
def test_a_damaged_list(tmp_path: Path, text: str) -> None:
    path = tmp_path / "downloads.json"
    path.write_text(text)
    made = Downloads(path, tmp_path)
    assert made.all() == [] and "downloads.broken-1.json" in made.trouble


def test_a_transfer_stops_between_pieces(hub: FakeHub, tmp_path: Path) -> None:
    file: RemoteFile = offer("Tiny-Q4_0").files[0]
    stop = threading.Event()
    stop.set()
    with new_client() as client, pytest.raises(Stopped):
        Transfer(client, file, tmp_path / "p" / "x.part", stop, lambda _: None).fetch()


@pytest.mark.parametrize(
    ("headers", "asked_s"),
    [({"RateLimit": '"resolvers";r=0;t=90'}, 90), ({"Retry-After": "120"}, 120),
     ({"Retry-After": "a date"}, 150)],
    ids=["RateLimit", "seconds", "date"],
)  # fmt: skip
def test_a_download_waits_as_long_as_the_hub_asks(
    hub: FakeHub, downloads: Downloads, headers: dict[str, str], asked_s: int
) -> None:
    """B38: the row knows how long; nothing is asked before, and pause and cancel work at once."""
    if headers.get("Retry-After") == "a date":
        headers = {"Retry-After": formatdate(time.time() + asked_s, usegmt=True)}
    hub.faults = [Fault("cut", 50_000), Fault("status", status=429, headers=headers)]
    number = downloads.add(Job.of(offer("Tiny-F16"), REPOSITORY, downloads.folder))
    until(lambda: (only(downloads).wait_s or 0) > 1)
    item, n_request = only(downloads), len(hub.requests)
    assert item.state is State.RUNNING and item.n_byte == 50_000
    assert asked_s - WAIT_S < (item.wait_s or 0) <= asked_s
    assert "127.0.0.1 asks to wait until" in item.trouble and "(HTTP 429)" in item.trouble
    downloads.pause(number)
    assert (only(downloads).state, only(downloads).wait_s) == (State.PAUSED, None)
    downloads.resume(number)
    until(lambda: (only(downloads).wait_s or 0) > 1)
    assert len(hub.requests) == n_request  # before the time, nothing is asked for again
    downloads.pause(number)
    until(lambda: not (threads := threading.enumerate()) or all(
        thread.name != f"download-{number}" for thread in threads))  # fmt: skip
    WAITS.clear()  # as if the time were over
    downloads.resume(number)
    until(lambda: state(downloads, number) is State.DONE)
    assert "bytes=50000-" in hub.ranges() and read_model(only(downloads).job.target)


def test_a_wait_ends_by_itself(hub: FakeHub, downloads: Downloads) -> None:
    """More often than a server may fail, for the server says each time when to come back."""
    wait = Fault("status", status=429, headers={"Retry-After": "0.02"})
    hub.faults = [Fault("cut", 50_000), *[wait] * (2 * transfer_module.N_TRY_MAX)]
    number = downloads.add(Job.of(offer("Tiny-F16"), REPOSITORY, downloads.folder))
    until(lambda: state(downloads, number) is State.DONE)
    assert "bytes=50000-" in hub.ranges() and not only(downloads).trouble


def test_a_busy_hub(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B38, B40: one sentence says when to try again, and nothing is asked before."""
    hub.api_status, hub.api_body = 429, b"<html>" + b"x" * 20_000
    hub.api_headers = {"Content-Type": "text/html", "RateLimit": '"api";r=0;t=90'}
    for _ in range(2):
        status, out, err = outrider("download", REPOSITORY, "Q4_0", capsys=capsys)
        assert (status, out) == (1, "") and len(err) < 100
        assert err.startswith("outrider: 127.0.0.1 asks to wait until ") and "(HTTP 429)" in err
    assert len(hub.requests) == 1
    assert "asks to wait until" in sentence(lambda: found_by("tiny"))


# The command


def outrider(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(list(words))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_lists_and_fetches(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = outrider("download", REPOSITORY, capsys=capsys)
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == [
        "Tiny-Q4_0", "Tiny-Q8_0", "Tiny-F16",
    ]  # fmt: skip
    assert out.count("fits in memory") == 3
    words = ("download", REPOSITORY, "f16", "--folder", str(tmp_path))
    status, out, _ = outrider(*words, capsys=capsys)
    path = Path(out.strip())
    assert status == 0 and read_model(path).n_expert == 16
    status, out, _ = outrider("inspect", str(path), "--sha256", capsys=capsys)
    assert status == 0 and out.count(path.name[:9]) == 3
    assert out.splitlines()[-1] == (
        f"All 3 parts are complete and unchanged: their SHA-256 are what {REPOSITORY} states."
    )
    with path.open("ab") as file:
        file.write(b"\0")
    status, out, _ = outrider("inspect", str(path), "--sha256", "--json", capsys=capsys)
    first, *others = json.loads(out)["files"]
    assert status == 1 and first["stated"] != first["sha256"] and len(others) == 2
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    assert outrider(*words, capsys=capsys)[1].startswith("It is there already: ")
    for wrong, part in (("Q5_K_M", "fits no model"), ("README.md", "fits no model")):
        status, _, err = outrider("download", REPOSITORY, wrong, capsys=capsys)
        assert status == 1 and part in err
    status, _, err = outrider("download", "nonsense", capsys=capsys)
    assert status == 1 and err.startswith("outrider: 'nonsense' is neither a repository")
