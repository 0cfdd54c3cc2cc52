"""Texts that a person may publish: without paths and names."""

from pathlib import Path

import pytest

from backend.system.names import without_models, without_names


def test_paths_and_names_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "annabel")
    for text, expected in (
        ("No /home/x/My models/a b.gguf", "No …/a b.gguf"),
        (
            "/home/x's y/z of home/a.gguf cannot move to /home/x y/b.gguf",
            "…/a.gguf cannot move to …/b.gguf",
        ),
        ("Lost /home/x/y: 3/4 of it", "Lost …/y: 3/4 of it"),
        ('"/mnt/x y/z.gguf" is bad', "…/z.gguf is bad"),
        (r"C:\Users\Annabel K\m.gguf", "m.gguf"),
    ):
        cut = without_names(text)
        assert cut.endswith(expected) and "home" not in cut and "mnt" not in cut, cut
    assert without_names("annabel sent 3/4 token/s") == "user sent 3/4 token/s"
    assert without_names("http://127.0.0.1:8088/v1") == "http://127.0.0.1:8088/v1"


@pytest.mark.parametrize("user", ["Zoë O'Neil", "a+b (c)", "Müller, Jörg", "名前です", ".*"])
def test_a_strange_user_leaves_no_trace(
    user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "strange homes" / user
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("USER", user)
    drive = tmp_path / "Drive of Ann" / "my models" / "m.gguf"
    for text in (
        f"{home}/models/x.gguf cannot be read",
        f"'{home}' is full",
        f"{home}: no such folder",
        f"{drive} cannot be read.",
        f"Read of {drive.parent} failed",
        f"{user} may not do that",
    ):
        cut = without_names(text, drive)
        for trace in (user if len(user) > 2 else str(home), "strange", "Drive", "my models"):
            assert trace not in cut, cut


def test_a_linked_home_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real zebedee").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real zebedee")
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "link"))
    assert "zebedee" not in without_names(f"{tmp_path}/real zebedee/x failed")


def test_the_machines_name_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "zebedees-box.example")
    cut = without_names("zebedees-box.example and zebedees-box did not answer")
    assert cut == "machine and machine did not answer"


def test_names_of_models_are_replaced_but_plain_words_stay() -> None:
    mine = Path("Zebedees-secret.gguf")
    text = without_models("Zebedees-secret.gguf, Zebedees-secret and 'other one.gguf' fail", mine)
    assert text == "model.gguf, model and 'model.gguf' fail"
    assert without_models("a dense model", Path("dense.gguf")) == "a dense model"
