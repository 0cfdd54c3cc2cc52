"""The library without a window: what is found in folders, and the verdicts."""

import hashlib
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from factory import make_mmproj, make_split, make_tiny
from processes import NO_FILE

from backend.engine.dry_run import DryRun
from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import read_model
from backend.library.checksum import ChecksumError, checksum, note_origin
from backend.library.digests import Digests
from backend.library.estimate import Kind, forecast, judge, speed
from backend.library.facts import Facts, FactsCache
from backend.library.history import History, Measured
from backend.library.machine import kept_machine, main
from backend.library.places import known_folders, ollama_vision
from backend.library.scan import Scan, scan
from backend.machines import Hardware
from backend.memory.plan import Needs, plan
from backend.system.paths import digests_file

GIB = 1 << 30
MACHINE = Hardware(
    name="m", sentence="A machine.", link_gb_per_s=2.0, link_latency_us=100.0, n_link=4,
    memory_gb_per_s=20.0, tflop_per_s=1.0, step_us=1.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_tiny("qwen3moe", "Q8_0", folder / "moe.gguf", n_expert=16, n_expert_used=4)
    make_tiny("dense", "Q8_0", folder / "dense.gguf")
    return folder


def look(*folders: Path, files: tuple[Path, ...] = (), cache: FactsCache | None = None) -> Scan:
    return scan(folders, files, cache or FactsCache(None, 4096))


def facts(path: Path) -> Facts:
    return Facts.of(read_model(path), 4096)


@pytest.mark.parametrize("arch", ["hy_v4", "llama4"])
def test_the_library_asks_llama_cpp_where_it_cannot_estimate(arch: str, tmp_path: Path) -> None:
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf", n_ctx=4096)
    dry_run = DryRun(read_model(path))
    (entry,) = look(tmp_path).entries
    assert entry.facts is not None
    assert entry.facts.needs == Needs.of(dry_run.asked(n_output=1), 4096)
    assert entry.facts.needs != facts(path).needs
    dry_run.close()


def qwen(models: Path) -> Facts:
    """Return facts with the sizes of Qwen3-30B-A3B in Q4_K_M."""
    tiny = facts(models / "moe.gguf")
    slot_bytes = 48 * 2_654_208
    return replace(
        tiny, n_layer=48, n_moe_layer=48, n_expert=128, n_expert_used=8,
        token_dense_bytes=GIB, token_expert_bytes=8 * slot_bytes,
        needs=replace(
            tiny.needs, n_expert=128, n_slot_min=8, slot_bytes=slot_bytes, dense_bytes=GIB,
            kv_bytes=GIB // 2, compute_bytes=GIB // 4,
        ),
    )  # fmt: skip


def test_facts_are_the_files_own(models: Path) -> None:
    model = read_model(models / "moe.gguf")
    found = facts(models / "moe.gguf")
    weights = {tensor.name: math.prod(tensor.shape) for tensor in model.tensors}
    experts = sum(n for name, n in weights.items() if "_exps." in name)
    assert found.n_parameter == sum(weights.values())
    assert found.n_parameter_active == found.n_parameter - experts + experts * 4 // 16
    assert found.token_expert_bytes == model.expert_bytes_total * 4 // 16
    assert found.is_moe and not facts(models / "dense.gguf").is_moe
    assert found.quantisation == "Q8_0"


def test_a_plan_from_facts_is_the_plan_of_the_file(models: Path) -> None:
    model = read_model(models / "moe.gguf")
    verdict = judge(facts(models / "moe.gguf"), 0.5, 2 * GIB, None, None)
    context = min(4096, model.context_length)
    assert verdict.asked == plan(model, 8, context, 2 * GIB)
    assert verdict.kind is Kind.FITS and verdict.best.n_slot == 16
    assert verdict.best_speed is None


def test_split_files_are_one_entry_and_missing_parts_are_named(
    models: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole" / "m.gguf"
    whole.parent.mkdir()
    whole.write_bytes((models / "moe.gguf").read_bytes())
    parts = make_split(whole, 3)
    whole.unlink()
    (found,) = look(tmp_path).entries
    assert found.facts is not None and found.n_part == 3
    assert found.size_bytes == sum(part.stat().st_size for part in parts)
    assert len(look(files=(parts[1],)).entries) == 1
    parts[1].unlink()
    (found,) = look(tmp_path).entries
    assert found.facts is None and found.trouble == "part 2 of 3 is missing"
    parts[0].unlink()
    assert look(tmp_path).entries[0].trouble == "the parts 1, 2 of 3 are missing"


def test_bad_files_become_entries_with_a_reason(models: Path, tmp_path: Path) -> None:
    whole = (models / "moe.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.gguf").write_bytes(b"")
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "other.txt").write_text("no model")
    names = {"cut.gguf", "empty.gguf", "text.gguf"}
    if os.name == "posix":
        (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
        os.mkfifo(tmp_path / "pipe.gguf")
        names |= {"gone.gguf", "pipe.gguf"}
    found = {entry.path.name: entry.trouble for entry in look(tmp_path).entries}
    assert set(found) == names
    assert all(found.values())
    assert "incomplete" in found["cut.gguf"] and "link" in found.get("gone.gguf", "link")
    (entry,) = look(files=(tmp_path / "never.gguf",)).entries
    assert entry.trouble == "the file is gone"


def test_the_vision_part_of_a_model_is_no_model(models: Path, tmp_path: Path) -> None:
    os.link(models / "moe.gguf", tmp_path / "moe.gguf")
    make_mmproj(tmp_path / "mmproj-moe-F16.gguf", 64)
    assert [entry.path.name for entry in look(tmp_path).entries] == ["moe.gguf"]


def test_links_and_repetitions_are_one_entry_and_loops_end(models: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.link(models / "moe.gguf", tmp_path / "a" / "m.gguf")
    if os.name == "posix":  # links need a privilege on Windows
        (tmp_path / "link.gguf").symlink_to(tmp_path / "a" / "m.gguf")
        (tmp_path / "a" / "loop").symlink_to(tmp_path)
    result = look(tmp_path, tmp_path / "a", files=(tmp_path / "a" / "m.gguf",))
    assert len(result.entries) == 1


def test_folders_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = look(tmp_path / "none", tmp_path / "file", tmp_path)
    assert [place.trouble for place in result.places] == ["is not there", "is not a folder", ""]


def test_headers_are_read_once(models: Path, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "facts.json"
    (tmp_path / "m").mkdir()
    model, broken = tmp_path / "m" / "m.gguf", tmp_path / "m" / "b.gguf"
    model.write_bytes((models / "moe.gguf").read_bytes())
    broken.write_bytes(b"GGUF")
    first = FactsCache(kept, 4096)
    before = look(tmp_path / "m", cache=first)
    first.save()
    again = FactsCache(kept, 4096)
    assert look(tmp_path / "m", cache=again) == before
    assert (first.n_read, again.n_read) == (2, 0)
    os.utime(model, ns=(1, 1))
    look(tmp_path / "m", cache=again)
    assert again.n_read == 1
    look(tmp_path / "m", cache=(other := FactsCache(kept, 2048)))
    assert other.n_read == 2


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', "{" * 100_000, '{"format": 2, "f'])
def test_a_damaged_cache_is_read_again(models: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.json").write_text(text)
    cache = FactsCache(tmp_path / "facts.json", 4096)
    assert all(entry.facts for entry in look(models, cache=cache).entries)


def test_a_cache_with_wrong_values_is_read_again(models: Path, tmp_path: Path) -> None:
    kept = tmp_path / "facts.json"
    cache = FactsCache(kept, 4096)
    before = look(models, cache=cache)
    cache.save()
    data = json.loads(kept.read_text())
    for entry in data["files"].values():
        entry["facts"]["n_expert"] = "many"
    kept.write_text(json.dumps(data))
    assert look(models, cache=FactsCache(kept, 4096)) == before


def test_verdicts(models: Path) -> None:
    model = qwen(models)
    roomy = judge(model, 0.25, 40 * GIB, MACHINE, None)
    tight = judge(model, 0.25, 8 * GIB, MACHINE, None)
    small = judge(model, 0.25, 2 * GIB, MACHINE, None)
    assert (roomy.kind, tight.kind, small.kind) == (Kind.FITS, Kind.CACHE, Kind.LARGE)
    assert roomy.best.n_slot == 128 and roomy.asked.n_slot == 32 and roomy.short_bytes == 0
    assert 8 <= tight.best.n_slot < 128 and tight.best.fits
    assert small.short_bytes > 0 and small.best.n_slot == 8
    assert roomy.best_speed and tight.best_speed and roomy.asked_speed
    assert roomy.best_speed.tokens_per_s > tight.best_speed.tokens_per_s
    assert roomy.best_speed.tokens_per_s > roomy.asked_speed.tokens_per_s
    # More than fits is not forecast: with all experts asked for, as many as fit.
    assert judge(model, 1.0, 8 * GIB, MACHINE, None).asked == tight.best


def test_the_forecast_is_arithmetic(models: Path) -> None:
    model = qwen(models)
    steps_s = (24 * 48 + 5 * 48) * 1e-6
    reading_s = (model.token_dense_bytes + model.token_expert_bytes) / 20e9
    assert forecast(model, 128, MACHINE) == pytest.approx(1 / (reading_s + steps_s))
    missed = model.token_expert_bytes * (1 - math.sqrt(32 / 128))
    stall_s = missed / 2e9 + missed / (1 << 20) * 100e-6 / 4
    assert forecast(model, 32, MACHINE) == pytest.approx(1 / (reading_s + steps_s + stall_s))


def test_what_was_measured_corrects_the_forecast(models: Path) -> None:
    model = qwen(models)
    guess = forecast(model, 32, MACHINE)
    measured = Measured(32, guess * 1.5, 0.0)
    here, elsewhere = (speed(model, n, MACHINE, measured) for n in (32, 64))
    assert here and here.is_measured and here.tokens_per_s == guess * 1.5
    assert elsewhere and elsewhere.is_corrected
    assert elsewhere.tokens_per_s == pytest.approx(1.5 * forecast(model, 64, MACHINE))
    wild = speed(model, 64, MACHINE, Measured(32, guess * 100, 0.0))
    assert wild and wild.tokens_per_s == forecast(model, 64, MACHINE)
    assert speed(model, 64, None, measured) is None


def test_history_lasts_and_survives_damage(tmp_path: Path) -> None:
    path = tmp_path / "library.json"
    history = History(path)
    assert history.add_folder(tmp_path) and not history.add_folder(tmp_path)
    history.remember_use(tmp_path / "m.gguf", 5.0)
    history.remember_speed("abc", 32, 12.5)
    history.remember_speed("bad", 32, math.inf)
    again = History(path)
    assert again.folders == [tmp_path] and again.used_s(tmp_path / "m.gguf") == 5.0
    measured = again.measured("abc")
    assert measured and (measured.n_slot, measured.tokens_per_s) == (32, 12.5)
    assert again.measured("bad") is None and again.trouble == ""
    path.write_text(path.read_text().replace("12.5", "-1"))
    damaged = History(path)
    assert damaged.folders == [] and "damaged" in damaged.trouble
    assert (tmp_path / "library.broken-1.json").exists()
    again.remove_folder(tmp_path)
    assert History(path).folders == []


def test_a_checksum_is_compared_with_what_was_stated(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    data = (models / "moe.gguf").read_bytes()
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    found = checksum(path)
    assert found.parts[0].sha256 == digest and not found.is_wrong
    assert found.sentence.startswith("The origin of moe.gguf is not known.")
    note_origin(path, digest, "somebody/Tiny-GGUF", "")
    assert checksum(path).sentence == (
        "moe.gguf is complete and unchanged: its SHA-256 is what somebody/Tiny-GGUF states."
    )
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = checksum(path)
    assert found.is_wrong and found.sentence == (
        "moe.gguf is damaged or was changed: its SHA-256 is not what somebody/Tiny-GGUF states. "
        "Download it again."
    )
    history = History(tmp_path / "library.json")
    history.remember_checksum(path, found)
    assert History(tmp_path / "library.json").checksum(path, found.stamp) == found
    assert history.checksum(path, ((1, 2),)) is None  # the file is another one since
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (entry,) = look(files=(path,)).entries
    assert history.checksum(path, entry.stamp) is None  # although its time was set back


def test_facts_are_read_again_from_a_file_whose_time_was_set_back(
    models: Path, tmp_path: Path
) -> None:
    path, cache = tmp_path / "moe.gguf", FactsCache(None, 4096)
    data = (models / "moe.gguf").read_bytes()
    path.write_bytes(data)
    before = path.stat()
    assert scan([], [path], cache).entries[0].facts is not None
    path.write_bytes(b"\0" * len(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scan([], [path], cache).entries[0].facts is None


def test_a_file_may_be_linked_while_it_is_checked(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    data = (models / "moe.gguf").read_bytes()
    path.write_bytes(data)
    changes = [lambda: os.link(path, tmp_path / "link.gguf")]
    found = checksum(path, lambda _: changes.pop()() if changes else None)
    assert not changes and found.parts[0].sha256 == hashlib.sha256(data).hexdigest()


def test_a_checksum_is_known_to_all(models: Path, tmp_path: Path) -> None:
    """The engine keeps states by it, and needs not read the file again."""
    (tmp_path / "moe.gguf").write_bytes((models / "moe.gguf").read_bytes())
    parts = make_split(tmp_path / "moe.gguf", 2)
    found = checksum(parts[0])
    known = Digests(digests_file())
    assert [known.of(FileIdentity.of(path)) for path in parts] == [p.sha256 for p in found.parts]


def test_a_checksum_has_all_parts(models: Path, tmp_path: Path) -> None:
    (tmp_path / "moe.gguf").write_bytes((models / "moe.gguf").read_bytes())
    parts = make_split(tmp_path / "moe.gguf", 3)
    for part in parts:
        note_origin(part, hashlib.sha256(part.read_bytes()).hexdigest(), "a/b", "")
    shares: list[float] = []
    found = checksum(parts[1], shares.append)
    assert [part.file for part in found.parts] == [part.name for part in parts]
    assert "All 3 parts are complete" in found.sentence and shares[-1] == 1.0
    assert [entry.stamp for entry in look(files=(parts[0],)).entries] == [found.stamp]
    parts[2].write_bytes(parts[2].read_bytes()[:-1])
    assert parts[2].name in checksum(parts[0]).sentence and checksum(parts[0]).is_wrong
    parts[1].unlink()
    with pytest.raises(ChecksumError, match=f"00002-of-00003.gguf could not be read: {NO_FILE}"):
        checksum(parts[0])


def test_a_checksum_that_others_keep(models: Path, tmp_path: Path) -> None:
    data = (models / "dense.gguf").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    blob = tmp_path / "hub" / "models--a--b" / "blobs" / digest
    link = tmp_path / "hub" / "models--a--b" / "snapshots" / "c0ffee" / "dense.gguf"
    pulled = tmp_path / "ollama" / "blobs" / f"sha256-{digest}"
    fetched = tmp_path / "fetched" / "Q8" / "dense.gguf"  # by hf download --local-dir fetched
    note = tmp_path / "fetched" / ".cache" / "huggingface" / "download" / "Q8"
    for path in (blob, link, pulled, fetched, note / "_"):
        path.parent.mkdir(parents=True, exist_ok=True)
    for path in (blob, pulled, fetched):
        path.write_bytes(data)
    (note / "dense.gguf.metadata").write_text(f"{40 * 'a'}\n{digest}\n1.5\n")
    known = [(pulled, "Ollama"), (fetched, "its repository")]
    if os.name == "posix":  # links need a privilege on Windows
        link.symlink_to(os.path.relpath(blob, link.parent))
        known.append((link, "a/b"))
    for path, source in known:
        assert checksum(path).sentence.endswith(f"unchanged: its SHA-256 is what {source} states.")
    for path in (blob, pulled, fetched):
        path.write_bytes(data[:-1])
    for path, _ in known:
        assert checksum(path).is_wrong


@pytest.mark.parametrize("note", [b"", b"\xff\n\n\n", b"a\n" + b"A" * 64 + b"\n1\n", b"a\n1"])
def test_a_damaged_note_states_nothing(models: Path, tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "moe.gguf"
    path.write_bytes((models / "moe.gguf").read_bytes())
    note_origin(path, 64 * "0", "a/b", "")
    (kept,) = (tmp_path / ".cache" / "huggingface" / "download").iterdir()
    assert checksum(path).is_wrong
    kept.write_bytes(note)
    assert checksum(path).parts[0].stated == ""


def test_a_checksum_that_cannot_be_made(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "moe.gguf"
    path.write_bytes((models / "moe.gguf").read_bytes())

    def write(_share: float) -> None:
        with path.open("r+b") as file:
            file.write(b"GGUF")
        os.utime(path, ns=(0, 0))  # a clock may be too coarse to show the write

    def sentence(path: Path, heard=lambda _: None, go_on=lambda: True) -> str:  # type: ignore[no-untyped-def]
        with pytest.raises(ChecksumError) as caught:
            checksum(path, heard, go_on)
        return str(caught.value)

    assert sentence(path, go_on=lambda: False) == "The check was stopped."
    assert sentence(path, write) == (
        "moe.gguf changed while it was read. Check it again when nothing writes to it."
    )
    assert sentence(tmp_path / "gone.gguf").startswith(f"gone.gguf could not be read: {NO_FILE}")
    assert "not a regular file" in sentence(tmp_path)
    if os.name == "posix":
        os.mkfifo(tmp_path / "pipe.gguf")  # which a reader would wait for
        assert "not a regular file" in sentence(tmp_path / "pipe.gguf")


def test_a_history_that_cannot_be_saved_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "library.json")
    history.add_folder(tmp_path)
    assert history.folders == [tmp_path] and "could not be saved" in history.trouble


@pytest.mark.parametrize(
    ("system", "environment", "places"),
    [
        (
            "linux",
            {"XDG_DATA_HOME": "{home}/data", "HUGGINGFACE_HUB_CACHE": "{home}/hf"},
            {
                "LM Studio": [".lmstudio/models"],
                "Ollama": [".ollama/models"],
                "Jan": ["data/Jan/data/llamacpp/models"],
                "Hugging Face": ["hf"],
                "llama.cpp": [".cache/llama.cpp"],
            },
        ),
        (
            "darwin",
            {"LLAMA_CACHE": "{home}/llama"},
            {
                "LM Studio": [".cache/lm-studio/models"],
                "Ollama": [".ollama/models"],
                "Jan": ["Library/Application Support/Jan/data/llamacpp/models"],
                "Hugging Face": [".cache/huggingface/hub"],
                "llama.cpp": ["llama"],
            },
        ),
        (
            "win32",
            {"LOCALAPPDATA": "{home}/Local", "OLLAMA_MODELS": "{home}/o", "HF_HOME": "{home}/h"},
            {
                "LM Studio": [".lmstudio/models"],
                "Ollama": ["o"],
                "Jan": ["AppData/Roaming/Jan/data/llamacpp/models"],
                "Hugging Face": ["h/hub"],
                "llama.cpp": ["Local/llama.cpp"],
            },
        ),
    ],
)
def test_folders_of_other_programs(
    tmp_path: Path, system: str, environment: dict[str, str], places: dict[str, list[str]]
) -> None:
    wanted = [(name, tmp_path / place) for name, given in places.items() for place in given]
    for _, folder in wanted:
        folder.mkdir(parents=True)
    given = {name: value.format(home=tmp_path) for name, value in environment.items()}
    found = known_folders(tmp_path, given, system)
    assert [item for item in found if item[1].is_relative_to(tmp_path)] == wanted


def test_folders_that_the_user_moved(tmp_path: Path) -> None:
    """LM Studio and Jan keep the place of their models in their settings."""
    for name in ("home/models", "disk/studio", "disk/jan/llamacpp/models", ".config/Jan"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{tmp_path}/home\n")
    named = {"downloadsFolder": f"{tmp_path}/disk/studio"}
    (tmp_path / "home" / "settings.json").write_text(json.dumps(named))
    named = {"data_folder": f"{tmp_path}/disk/jan"}
    (tmp_path / ".config" / "Jan" / "settings.json").write_text(json.dumps(named))
    assert known_folders(tmp_path, {}, "linux")[:3] == [
        ("LM Studio", tmp_path / "disk" / "studio"),
        ("LM Studio", tmp_path / "home" / "models"),
        ("Jan", tmp_path / "disk" / "jan" / "llamacpp" / "models"),
    ]


def test_models_of_ollama_have_their_names(models: Path, tmp_path: Path) -> None:
    store = tmp_path / "ollama"
    (store / "blobs").mkdir(parents=True)
    digest, vision = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32
    blob = store / "blobs" / digest.replace(":", "-")
    blob.write_bytes((models / "moe.gguf").read_bytes())

    def pull(name: str, text: str) -> None:
        manifest = store / "manifests" / name
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(text)

    kind = "application/vnd.ollama.image."
    layers = [
        {"mediaType": kind + "template", "digest": "sha256:" + "ee" * 32},
        {"mediaType": kind + "model", "digest": digest},
        {"mediaType": kind + "projector", "digest": vision},
    ]
    pull("registry.ollama.ai/library/tiny-moe/latest", json.dumps({"layers": layers}))
    pull("registry.ollama.ai/somebody/mine/q4", json.dumps({"layers": layers[:2]}))
    for bad in ("{", "[]", '{"layers": 3}', '{"layers": [{"mediaType": "x"}, 1]}'):
        pull(f"registry.ollama.ai/library/bad{len(bad)}/latest", bad)
    lost = {**layers[1], "digest": "sha256:" + "../../../../" * 6}
    pull("registry.ollama.ai/library/outside/latest", json.dumps({"layers": [lost]}))
    gone = {**layers[1], "digest": "sha256:" + "0f" * 32}
    pull("registry.ollama.ai/library/gone/latest", json.dumps({"layers": [gone]}))
    found = look(store)
    assert [(entry.name, entry.path.name) for entry in found.entries if entry.facts] == [
        ("tiny-moe:latest", blob.name)
    ]
    assert [e.trouble for e in found.entries if e.facts is None] == ["the file is gone"]
    assert ollama_vision(blob) == store / "blobs" / vision.replace(":", "-")
    assert ollama_vision(models / "moe.gguf") is None


def test_a_file_of_jan_is_named_by_its_folder(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "jan" / "Tiny-Q8_0"
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes((models / "moe.gguf").read_bytes())
    assert [entry.name for entry in look(tmp_path / "jan").entries] == ["Tiny-Q8_0"]


def test_the_machine_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = tmp_path / "new" / "machine.json"
    assert kept_machine(result) is None
    monkeypatch.setitem(
        sys.modules, "backend.machines.measure", type(sys)("backend.machines.measure")
    )
    sources = dict.fromkeys(("link_gb_per_s",), "a test")
    sys.modules["backend.machines.measure"].measure = (  # type: ignore[attr-defined]
        lambda file: replace(MACHINE, sources=sources)
    )
    monkeypatch.setattr(sys, "argv", ["measure", str(result)])
    assert main() == 0
    kept = kept_machine(result)
    assert kept and kept.link_gb_per_s == 2.0
