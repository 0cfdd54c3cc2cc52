"""The token for the hub: entered by a person, kept in the system's keyring or for this run only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub
from secret_service import SecretService

from backend.downloads import token
from backend.downloads.errors import DownloadError
from backend.downloads.hub import owner, search
from backend.downloads.web import new_client
from backend.system import keyring, paths

SECRET = "hf_of_alice"


@pytest.fixture(scope="module")
def service() -> Iterator[SecretService]:
    with SecretService() as made:
        yield made


@pytest.fixture
def desktop(service: SecretService, monkeypatch: pytest.MonkeyPatch) -> SecretService:
    """A hub's address, and an empty keyring."""
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", service.address)
    service.items, service.fault, service.unlocks = {}, "", False
    service.asked.clear()
    return service


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY",
                 "http_proxy", "DBUS_SESSION_BUS_ADDRESS"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    restart()
    with FakeHub() as made:
        made.owners = {SECRET: "alice", "hf_of_bob": "bob"}
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made


def restart() -> None:
    """Forget what only a running program knows."""
    token._own.clear()
    token._refused.clear()


def sent(hub: FakeHub) -> list[str]:
    """Return the tokens of the requests of a search."""
    hub.requests.clear()
    with new_client() as client:
        search("x", client)
    return [request.token.removeprefix("Bearer ") for request in hub.requests]


def kept_text() -> str:
    folder = paths.states_folder().parent
    return "".join(path.read_text("utf-8", "replace") for path in folder.rglob("*.json"))


def test_a_token_is_in_the_keyring_alone(desktop: SecretService, hub: FakeHub) -> None:
    assert sent(hub) == [""] and desktop.asked == []  # nobody asks a keyring before there is one
    assert token.keep(SECRET, "alice") == ""
    ((attributes, secret),) = desktop.items.values()
    assert secret.decode() == SECRET and attributes["username"] == "alice"
    assert "alice" in kept_text() and SECRET not in kept_text()
    restart()
    assert token.known() == token.Own(token._host(), "alice", "")
    assert sent(hub) == [SECRET] and not token.remark()
    n_asked = len(desktop.asked)
    assert sent(hub) == [SECRET] and len(desktop.asked) == n_asked  # once in a run
    assert token.keep("hf_of_bob", "bob") == ""
    assert [secret for _, secret in desktop.items.values()] == [b"hf_of_bob"]
    assert token.forget() == "" and desktop.items == {}
    assert sent(hub) == [""] and token.known() is None and "bob" not in kept_text()


def test_without_a_keyring_it_is_held_for_this_run(hub: FakeHub) -> None:
    assert token.keep(SECRET, "alice") == "no keyring runs on this system"
    own = token.known()
    assert own is not None and own.trouble == "no keyring runs on this system"
    assert sent(hub) == [SECRET]
    assert SECRET not in kept_text() and "alice" not in kept_text()
    restart()
    assert sent(hub) == [""]


@pytest.mark.parametrize(
    ("fault", "said"),
    [("locked", "the keyring stayed locked"), ("broken", "the keyring failed (out of order)"),
     ("silent", "the keyring did not answer within 0 s")],
)  # fmt: skip
def test_a_keyring_that_does_not_give_it(
    desktop: SecretService, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    token.keep(SECRET, "alice")
    restart()
    desktop.fault = fault
    if fault == "silent":
        monkeypatch.setattr(keyring, "LIMIT_S", 0.2)
    assert sent(hub) == [""] and token.is_withheld()
    assert token.remark() == f"The token of alice could not be read: {said}."
    desktop.asked.clear()
    assert sent(hub) == [""] and desktop.asked == []  # nobody is asked again and again
    desktop.fault, desktop.unlocks = "locked", True
    token.ask_again()
    assert sent(hub) == [SECRET] and not token.remark()
    desktop.fault, desktop.unlocks = fault, False
    if fault != "silent":
        assert token.forget().endswith(f"the keyring still has it: {said}.")
        assert token.known() is None


def test_which_token_is_sent(
    desktop: SecretService, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = tmp_path / "token"
    login.write_text("hf_of_login")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(login))
    monkeypatch.setenv("HF_TOKEN_PATH", str(login))
    assert sent(hub) == ["hf_of_login"] and token.elsewhere() == str(login)
    monkeypatch.setenv("HF_TOKEN", "hf_of_shell")
    assert sent(hub) == ["hf_of_shell"] and token.elsewhere() == "HF_TOKEN"
    token.keep(SECRET, "alice")  # what a person enters comes first
    assert sent(hub) == [SECRET]
    hub.bad_tokens = {SECRET}
    assert sent(hub) == [SECRET, ""] and "token of alice" in token.remark()
    assert sent(hub) == ["hf_of_shell"]
    hub.bad_tokens = {SECRET, "hf_of_shell"}
    assert sent(hub) == ["hf_of_shell", ""] and sent(hub) == [""]
    assert "token of alice" in token.remark() and "token of HF_TOKEN" in token.remark()
    with FakeHub() as other:
        monkeypatch.setenv("HF_ENDPOINT", other.url)
        monkeypatch.delenv("HF_TOKEN")
        assert sent(other) == ["hf_of_login"]  # that of another hub stays there


def test_whose_token_it_is(hub: FakeHub) -> None:
    with new_client() as client:
        assert owner(SECRET, client) == "alice"
        for secret, said in (
            ("hf_none", "127.0.0.1 does not know this token (HTTP 401)."),
            ("hf_\u00fc", "This is no token"), ("", "This is no token"),
            ("hf\nX-Other: 1", "This is no token"), ("h" * 501, "This is no token"),
        ):  # fmt: skip
            with pytest.raises(DownloadError) as error:
                owner(secret, client)
            assert str(error.value).startswith(said)
        for name in ("", "a\nb", "x" * 101, 7):
            hub.owners[SECRET] = name or ""  # type: ignore[assignment]
            with pytest.raises(DownloadError):
                owner(SECRET, client)
    assert {request.token for request in hub.requests} == {f"Bearer {SECRET}", "Bearer hf_none"}


def test_a_note_that_is_damaged_asks_no_keyring(desktop: SecretService, hub: FakeHub) -> None:
    path = paths.states_folder().with_name("hub.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"host": 7, "name": []}')
    assert sent(hub) == [""] and token.known() is None and desktop.asked == []
