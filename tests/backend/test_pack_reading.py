"""What of a pack's file is compared before it is used, and what an offer promises."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from factory import make_tiny
from processes import DATA_HOME

from backend.engine.observer import Observer
from backend.gguf.model_file import ModelFile, read_model
from backend.machines.drive import Drive
from backend.packs import write as pack
from backend.packs.file import find
from backend.packs.offer import PackOffer
from backend.protocol.settings import EngineConfig

AGAIN = "write the pack again."


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    """Return a model with two layers of 8 experts."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path / "data"))
    return read_model(make_tiny("qwen3moe", "Q4_0", tmp_path / "m.gguf", n_layer=2, n_expert=8))


@pytest.mark.parametrize(
    ("pack_speed", "same", "used"), [(1e9, False, False), (1.9e9, False, True), (1e9, True, True)]
)
def test_a_pack_on_a_slower_drive_is_not_used(
    file: ModelFile, monkeypatch: pytest.MonkeyPatch, pack_speed: float, same: bool, used: bool
) -> None:
    """On one drive, measurements of both differ by chance."""
    written = pack.write(file, "file")
    speeds = {written.path: pack_speed, file.path: 2e9}
    systems = "pack" if not same else "one", "one"
    monkeypatch.setattr(
        "backend.engine.observer.drive_of",
        lambda path, *, ring: Drive(bytes_per_s=speeds[path]),
    )
    monkeypatch.setattr(
        "backend.machines.drive._key", dict(zip(speeds, systems, strict=True)).__getitem__
    )
    tier = Observer(file).plan(EngineConfig(cache_rate=0.5), None, None).tier
    assert (tier.pack is not None) == used
    assert tier.drive.bytes_per_s == (pack_speed if used else 2e9)
    assert bool(tier.remark) != used


@pytest.mark.parametrize("n_byte", [-4096, -1, 1, 4096])
def test_a_pack_of_another_size_is_not_used(file: ModelFile, n_byte: int) -> None:
    """Its header is whole. What is missing would be read as an expert."""
    written = pack.write(file, "file")
    os.truncate(written.path, written.path.stat().st_size + n_byte)
    found, remark = find(file)
    assert found is None and remark.startswith("m.pack is not used: ") and remark.endswith(AGAIN)


def test_a_description_with_one_more_word_is_not_used(file: ModelFile) -> None:
    written = pack.write(file, "file")
    data = written.path.read_bytes()
    for old, new in ((b'"layers"', b'"layerz"'), (b'"stripe"', b'"strips"')):
        if old in data:
            written.path.write_bytes(data.replace(old, new, 1))
            assert find(file)[0] is None, old
    written.path.write_bytes(data)
    assert find(file)[0] is not None


def test_why_a_whole_description_is_not_used(file: ModelFile) -> None:
    written = pack.write(file, "file")
    data = written.path.read_bytes()
    fingerprint = file.fingerprint.encode()
    for old, new, words in (
        (b'"version":1', b'"version":2', "another version of Outrider made it"),
        (fingerprint, fingerprint[::-1], "it was made for another model"),
        (b'"layout":"file"', b'"layout":"fil2"', "it is no pack, or a damaged one"),
    ):
        assert data.count(old) == 1, old
        written.path.write_bytes(data.replace(old, new))
        found, remark = find(file)
        assert found is None and words in remark, (remark, words)


def test_a_file_with_a_byte_too_many_is_no_stripe(file: ModelFile, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    written = pack.write(file, "file", folders=[tmp_path, tmp_path / "b"])
    (other,) = written.plan.stripes.others
    os.truncate(other, other.stat().st_size + 1)
    found, remark = find(file)
    assert found is None and str(other) in remark


def test_sums_of_a_pack_that_ends_within_them_are_an_error(file: ModelFile) -> None:
    written = pack.write(file, "file")
    n_sum = 2 * 8
    assert sum(len(layer) for layer in written.sums()) == n_sum and all(map(all, written.sums()))
    os.truncate(written.path, len(written.plan.headers[0]) + 4 * n_sum)
    assert len(written.sums()) == 2
    os.truncate(written.path, len(written.plan.headers[0]) + 4 * n_sum - 1)
    with pytest.raises(OSError):
        written.sums()


def test_the_part_number_of_a_split_model_is_not_in_the_packs_name(file: ModelFile) -> None:
    assert pack.beside(file).name == "m.pack"
    split = replace(file, paths=(file.path.with_name("m-00001-of-00002.gguf"),))
    assert pack.beside(split).name == "m.pack"


OFFER = PackOffer("x.pack", "file", 100, 100, read_gain=4.0, compute_gain=2.0, expert_share=0.75)


def test_an_offer_fits_to_the_last_byte() -> None:
    assert OFFER.fits and OFFER.to_json()["fits"]
    assert not replace(OFFER, needed_bytes=101).fits


@pytest.mark.parametrize(
    ("cost", "gain"),
    [
        ((8.0, 0.0), 8 / 5),  # three quarters of the computing in half the time
        ((0.0, 8.0), 4.0),
        ((8.0, 8.0), 16 / 7),
        ((8.0, 8.0, 4.0), 20 / 11),  # the rest takes as long as before
        ((0.0, 0.0, 4.0), 1.0),
        ((0.0, 0.0), 1.0),
    ],
)
def test_an_offer_promises_what_its_gains_give(cost: tuple[float, ...], gain: float) -> None:
    assert OFFER.speed_gain(*cost) == pytest.approx(gain)
    assert PackOffer.from_json({**OFFER.to_json()}) == OFFER
