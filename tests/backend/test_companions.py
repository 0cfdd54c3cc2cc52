"""Files of models as people have them: mmproj files under other names, pieces, joined parts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from factory import make_mmproj, make_split, make_tiny
from gguf import GGUFReader

from backend.gguf.companions import vision_files
from backend.gguf.model_file import ModelFileError, read_model
from backend.library.facts import FactsCache
from backend.library.scan import scan
from backend.server import ollama

N_EMBD = 64


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("m") / "m.gguf")


@pytest.fixture
def model(whole: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "LLM模型 100%20 #1" / "models"
    folder.mkdir(parents=True)
    return Path(shutil.copy(whole, folder / "Seer-7B-Q4_K_M.gguf"))


def eye(path: Path, width: int = 0, name: str = "") -> Path:
    """Write an mmproj file, named inside as the last part of `name`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    make_mmproj(path, width or N_EMBD)
    if name:
        field = (reader := GGUFReader(path, "r+")).fields["general.name"]
        data = field.parts[field.data[0]]
        data[:] = list(name.encode().ljust(len(data))[: len(data)])
        reader.data.flush()
    return path


def found(model: Path) -> list[str]:
    file = read_model(model)
    assert file.key("embedding_length") == N_EMBD
    return [path.name for path in vision_files(file)]


@pytest.mark.parametrize(
    "name",
    [
        "mmproj-F16.gguf", "Seer-7B-F16-mmproj.gguf", "Seer-7B.mmproj-f16.gguf", "mmproj.gguf",
        "MMPROJ-Seer-7B.GGUF", "mmproj/mmproj-F16.gguf", "mmproj/model.gguf",
        "Seer-7B-mmproj/F16.gguf", "../mmproj-Seer-7B-BF16.gguf",
    ],
)  # fmt: skip
def test_an_mmproj_file_is_found_under_every_usual_name_and_place(name: str, model: Path) -> None:
    path = eye(model.parent / name)
    assert found(model) == [path.name]
    assert "vision" in ollama.show(model)["capabilities"]
    rows = scan((model.parent,), (), FactsCache(None, 4096)).entries
    n_row = 1 if "mmproj" in path.name.lower() else 2
    assert len(rows) == n_row


def test_an_mmproj_file_of_another_model_is_not_taken(model: Path) -> None:
    for path in (
        eye(model.parent / "mmproj-wide.gguf", 96), eye(model.parent.parent / "mmproj-F16.gguf"),
        eye(model.parent.parent / "mmproj-Other-3B.gguf"),
    ):  # fmt: skip
        assert found(model) == [], path
    shutil.copy(model, model.parent / "mmproj-no-eye.gguf")
    (model.parent / "mmproj-odd.gguf").write_bytes(b"GGUF")
    assert found(model) == [] and "vision" not in ollama.show(model)["capabilities"]


def test_the_alphabet_alone_chooses_no_mmproj_file(model: Path) -> None:
    eye(model.parent / "mmproj-Another-7B.gguf", name="Another 7B")
    assert found(model) == ["mmproj-Another-7B.gguf"]  # the only one that fits
    eye(model.parent / "mmproj-Third-7B.gguf", name="Third 7B")
    assert found(model) == []
    mine = eye(model.parent / "mmproj-Seer-7B-F16.gguf")
    assert found(model)[0] == mine.name
    eye(model.parent / "mmproj-Seer-7B-F32.gguf")
    assert found(model)[:2] == [mine.name, "mmproj-Seer-7B-F32.gguf"]  # of one model


@pytest.mark.parametrize(
    ("first", "second", "command"),
    [
        ("m.gguf.part1of2", "m.gguf.part2of2", '"m.gguf".part*'),
        ("m.gguf-split-a", "m.gguf-split-b", '"m.gguf"-split-*'),
        ("m.gguf.001", "m.gguf.002", '"m.gguf".*'), ("m.gguf.partaa", "m.gguf.partab", ".part*"),
        ("m.gguf.part1of12", "m.gguf.part2of12", "part1of12 \"m.gguf\".part2of12"),
    ],
)  # fmt: skip
def test_pieces_of_a_file_say_how_they_are_joined(
    first: str, second: str, command: str, whole: Path, tmp_path: Path
) -> None:
    data = whole.read_bytes()
    for name, piece in ((first, data[: len(data) // 2]), (second, data[len(data) // 2 :])):
        (tmp_path / name).write_bytes(piece)
        with pytest.raises(ModelFileError, match="a piece of a file that was cut") as error:
            read_model(tmp_path / name)
        assert command in str(error.value) and "download it again" not in str(error.value)
    (row,) = scan((tmp_path,), (), FactsCache(None, 4096)).entries
    assert row.path.name == first and "join all pieces" in row.trouble
    with pytest.raises(ModelFileError, match="No such file|not found|read"):
        read_model(tmp_path / "gone.gguf.part1of2")


def test_parts_that_were_put_behind_each_other_are_told_so(whole: Path, tmp_path: Path) -> None:
    parts = make_split(Path(shutil.copy(whole, tmp_path / "m.gguf")), 3)
    joined = b"".join(part.read_bytes() for part in parts)
    for name in ("joined.gguf", "j-00001-of-00003.gguf"):
        (tmp_path / name).write_bytes(joined)
        with pytest.raises(ModelFileError, match="begins as part 1 of 3, and other parts were put"):
            read_model(tmp_path / name)
    assert read_model(parts[1]).n_layer
    (tmp_path / "alone.gguf").write_bytes(parts[0].read_bytes())
    with pytest.raises(ModelFileError, match="its name has to end in -00001-of-00003"):
        read_model(tmp_path / "alone.gguf")


def set_number(path: Path, key: str, value: int) -> None:
    field = (reader := GGUFReader(path, "r+")).fields[key]
    field.parts[field.data[0]][:] = value
    reader.data.flush()


@pytest.mark.parametrize("arch", ["qwen2moe", "qwen3next"])
def test_shared_experts_without_a_width_of_their_own_have_that_of_llama_cpp(
    arch: str, tmp_path: Path
) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf")
    set_number(path, f"{arch}.expert_shared_feed_forward_length", 0)
    assert read_model(path).key("feed_forward_length") == 64  # as wide as they are: it loads
    set_number(path, f"{arch}.feed_forward_length", 128)
    match = f"{arch}.feed_forward_length makes the shared experts 128 wide, but .* is 64 wide"
    with pytest.raises(ModelFileError, match=match):
        read_model(path)


def test_a_width_of_shared_experts_that_llama_cpp_refuses_is_told(tmp_path: Path) -> None:
    path = make_tiny("ernie4_5-moe", "Q8_0", tmp_path / "m.gguf")
    assert read_model(path).n_layer
    for n in (0, 32):
        set_number(path, "ernie4_5-moe.expert_shared_feed_forward_length", n)
        with pytest.raises(ModelFileError, match=f"makes the shared experts {n} wide, but"):
            read_model(path)
