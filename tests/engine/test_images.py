"""Images: what a model with an mmproj file computes of them is what llama.cpp computes."""

from __future__ import annotations

import base64
import ctypes
import re
import struct
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from asking import jointly, keep_all, of_chat
from factory import N_IMAGE_TOKEN, make_mmproj, make_png, make_tiny
from llama_cpp import mtmd_cpp as mtmd
from numpy.typing import NDArray
from oracle import Oracle

from backend.engine.engine import Engine
from backend.engine.loading import load_native, load_plain
from backend.engine.scheduler import n_place
from backend.gguf.header import read_header
from backend.gguf.model_file import read_model
from backend.llama.api import Context, log
from backend.protocol.attachments import UNREAD_IMAGE
from backend.protocol.errors import EngineError
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling

pytestmark = pytest.mark.usefixtures("known_pictures")
GREEDY = Sampling(temperature=0.0)
PROJECTORS = {"mlp": N_IMAGE_TOKEN, "gemma3": N_IMAGE_TOKEN // 4, "qwen2vl_merger": 3}
"""With the fewest positions of an image."""


def pixels(seed: int, width: int = 30, height: int = 20) -> NDArray[np.uint8]:
    """Return random pixels, shape (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def image(seed: int) -> dict[str, str]:
    """Return a part of a message."""
    return {"type": "image", "data": base64.b64encode(make_png(pixels(seed))).decode()}


def asked(*parts: dict[str, str] | str) -> list[dict[str, Any]]:
    """Return a conversation of one message."""
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return [{"role": "user", "content": content}]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model beside each kind of mmproj file, and one alone."""
    found = {}
    for projector in (*PROJECTORS, ""):
        folder = tmp_path_factory.mktemp(projector or "alone")
        name = "qwen3vlmoe" if projector == "qwen2vl_merger" else "qwen3moe"
        found[projector] = make_tiny(name, "Q4_0", folder / "model.gguf")
        if projector:
            n_embd = read_header(found[projector]).metadata[f"{name}.embedding_length"]
            make_mmproj(folder / "mmproj-tiny.gguf", int(n_embd), projector=projector)
    return found


def opened(path: Path, rate: float = 0.25, n_context: int = 256, **config: Any) -> Engine:
    sizes = {"cache_rate": rate, "context_length": n_context}
    return Engine.open(path, EngineConfig.of(**sizes, n_thread=1, device="cpu", **config))


def answered(engine: Engine, messages: list[dict[str, Any]], n: int = 1) -> list[int]:
    return [p.token_id for p in engine.answer(of_chat(messages, GREEDY, n))]


def logits(engine: Engine) -> NDArray[np.float32]:
    return engine.loaded.context.logits(1)[0]


def stock(engine: Engine, path: Path, prompt: str, seeds: list[int]) -> NDArray[np.float32]:
    """Return the last logits of a prompt with images, by llama.cpp alone."""
    llama_cpp.llama_log_set(log.callback, ctypes.c_void_p(0))
    mtmd.mtmd_helper_log_set(log.callback, ctypes.c_void_p(0))
    load = load_plain if engine.loaded.plan.is_plain else load_native
    loaded = load(read_model(path))
    model = loaded.pointer
    sizes = llama_cpp.llama_context_default_params()
    sizes.n_ctx, sizes.n_batch, sizes.n_ubatch = 256, 256, 256
    sizes.n_threads = sizes.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, sizes)
    how = mtmd.mtmd_context_params_default()
    how.use_gpu, how.n_threads = False, 1
    part = mtmd.mtmd_init_from_file(bytes(next(path.parent.glob("mmproj*"))), model, how)
    bitmaps = (mtmd.mtmd_bitmap_p_ctypes * len(seeds))()
    for i, seed in enumerate(seeds):
        data = pixels(seed)
        buffer = (ctypes.c_uint8 * data.size).from_buffer_copy(data.tobytes())
        bitmaps[i] = mtmd.mtmd_bitmap_init(data.shape[1], data.shape[0], buffer)
    chunks = mtmd.mtmd_input_chunks_init()
    text = mtmd.mtmd_input_text(prompt.encode(), len(prompt.encode()), True, True)
    assert mtmd.mtmd_tokenize(part, chunks, ctypes.byref(text), bitmaps, len(seeds)) == 0
    n_past = llama_cpp.llama_pos()
    assert (
        mtmd.mtmd_helper_eval_chunks(part, context, chunks, 0, 0, 256, True, ctypes.byref(n_past))
        == 0
    )
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    row = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), shape=(n_vocab,))
    found = np.array(row)
    mtmd.mtmd_input_chunks_free(chunks)
    for bitmap in bitmaps:
        mtmd.mtmd_bitmap_free(bitmap)
    mtmd.mtmd_free(part)
    llama_cpp.llama_free(context)
    loaded.close()
    return found


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("projector", PROJECTORS)
def test_images_give_the_logits_of_llama_cpp(
    models: dict[str, Path], projector: str, rate: float
) -> None:
    path = models[projector]
    messages = asked("Compare ", image(1), " with ", image(2), "!")
    engine = opened(path, rate)
    try:
        assert engine.model.chat.images
        assert engine.loaded.plan.is_plain == (rate == 1.0)
        prompt = engine.prompts.format(messages)
        assert prompt.count("<__media__>") == 2
        answered(engine, messages)
        ours = logits(engine)
        assert engine.statistics().n_prompt > 2 * PROJECTORS[projector]
        n_cell = n_place(engine.passes.tokens, engine.loaded.scheduler.images)
        assert engine.prompts.count(messages) == n_cell
        has_grid = projector == "qwen2vl_merger"  # then an image has fewer positions than tokens
        assert (n_cell > len(engine.passes.tokens)) == has_grid
        theirs = stock(engine, path, prompt, [1, 2])
        assert ours.tobytes() == theirs.tobytes()
        assert ours.tobytes() != stock(engine, path, prompt, [1, 3]).tobytes()
    finally:
        engine.close()


def test_the_context_keeps_equal_images_and_drops_others(models: dict[str, Path]) -> None:
    engine, fresh = opened(models["mlp"]), opened(models["mlp"])
    try:
        first = asked("What is it? ", image(1), " And this? ", image(2))
        answered(engine, first, 4)
        again = [*first, {"role": "assistant", "content": "A cat."}, *asked("Sure?")]
        answered(engine, again)
        n_reused = engine.statistics().n_reused
        assert n_reused >= 2 * N_IMAGE_TOKEN
        other = asked("What is it? ", image(1), " And this? ", image(3))
        answered(engine, other)
        assert N_IMAGE_TOKEN <= engine.statistics().n_reused < 2 * N_IMAGE_TOKEN + 20
        answered(fresh, other)
        assert np.argmax(logits(engine)) == np.argmax(logits(fresh))
        engine.set_cache_rate(0.5)  # keeps the context
        engine.set_cache_rate(1.0)  # loads again, with images
        assert answered(engine, other, 3) == answered(fresh, other, 3)
    finally:
        engine.close()
        fresh.close()


def test_no_state_on_the_drive_has_an_image(models: dict[str, Path], tmp_path: Path) -> None:
    """Another worker gives the same number to another image."""
    words = "it was one of the words that they had not said " * 8
    engine = opened(models["mlp"], n_context=1024)
    try:
        engine.keep_in(tmp_path)
        messages = asked(words, image(1), words * 2)
        list(engine.answer(Request("", GREEDY, 3, messages, owner="chat-1")))
        assert min(engine.passes.tokens) < 0
        keep_all(engine)
        (kept,) = tmp_path.glob("*/*.state")  # the end, behind the image, is a piece of its own
        (tokens,) = re.findall(rb'"tokens":\[([-0-9,]+)\]', kept.read_bytes())
        assert b"-" not in tokens
    finally:
        engine.close()


@pytest.mark.parametrize("projector", ["gemma3", "qwen2vl_merger"])
def test_every_pass_with_images_is_that_of_llama_cpp(
    models: dict[str, Path], projector: str, oracle: Oracle
) -> None:
    """Also of images that the context keeps, drops and gets again from another load."""
    engine = opened(models[projector])
    try:
        first = asked("What is it? ", image(1), " And this? ", image(2))
        answered(engine, first, 4)
        answered(engine, [*first, {"role": "assistant", "content": "Cats."}, *asked("Sure?")], 4)
        other = asked("What is it? ", image(1), " And this? ", image(3))
        answered(engine, other, 4)
        engine.set_cache_rate(1.0)  # loads again
        answered(engine, other, 4)
    finally:
        engine.close()
    counts = oracle.approve()
    assert counts["n_answer"] == 4 and counts["n_pass"] > 16


@pytest.mark.parametrize("projector", PROJECTORS)
def test_images_beside_other_answers(
    models: dict[str, Path], projector: str, oracle: Oracle
) -> None:
    """Stock llama.cpp computes the same of every pass; nobody waits for more than one image."""
    engine = opened(models[projector], n_context=1024, n_sequence=3)
    question = asked("What is it? ", image(1), " And this? ", image(2))
    requests = [
        Request(0, GREEDY, 24, prompt="the end of the words"),
        Request(1, GREEDY, 6, question),
        Request(2, GREEDY, 6, asked("Compare ", image(2), " with ", image(1), image(3), "!")),
    ]
    person = Request(3, GREEDY, 6, question, priority="person", owner="chat-1")
    kinds: list[str] = []
    decode_rows, decode_image = Context.decode_rows, Context.decode_embeddings
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                Context, "decode_rows", lambda *of: kinds.append("rows") or decode_rows(*of)
            )
            patch.setattr(
                Context, "decode_embeddings", lambda *of: kinds.append("image") or decode_image(*of)
            )
            urgent = [person]
            found = {
                given.request.key: given
                for given in jointly(
                    engine,
                    requests,
                    keeps=True,
                    urgent=lambda: (
                        urgent.pop() if urgent and engine.statistics().n_token > 12 else None
                    ),
                )
            }
        assert sorted(found) == [0, 1, 2, 3] and not any(given.error for given in found.values())
        n_image = kinds.count("image")
        assert n_image >= 5 and "image image" not in " ".join(kinds[: len(kinds) - 1])
        (again,) = jointly(engine, [person], keeps=True)  # finds its images in the context
        assert again.n_reused == again.n_prompt - 1 and kinds.count("image") == n_image
        assert [p.token_id for p in again.pieces] == [p.token_id for p in found[3].pieces]
    finally:
        engine.close()
    assert oracle.approve()["n_answer"] == 5


def test_an_image_of_several_prompts_is_encoded_once(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their beginnings differ, so each computes it in its own positions."""
    engine = opened(models["mlp"], n_sequence=3, n_context=1024)
    vision, encoded = engine.loaded.weights.vision, []
    assert vision is not None
    real = vision.encode
    monkeypatch.setattr(vision, "encode", lambda chunk: encoded.append(chunk.token) or real(chunk))
    asks = [asked(f"{i} of ", image(1), f" and {i} of ", image(2), "!") for i in range(3)]
    try:
        whole = [Request(i, GREEDY, 3, messages) for i, messages in enumerate(asks)]
        assert all(not given.error for given in jointly(engine, whole))
        assert len(encoded) == len(set(encoded)) == 2
        list(jointly(engine, [Request(0, GREEDY, 3, asks[0])]))
        assert len(encoded) == 4, "nothing is kept that nobody waits for"
    finally:
        engine.close()


def test_a_stopped_answer_about_an_image_goes_on(models: dict[str, Path]) -> None:
    engine = opened(models["gemma3"])
    try:
        messages = asked(image(1), "What is it?")
        whole = answered(engine, messages, 8)
        engine.forget()
        begun, said = [], ""
        for piece in engine.answer(of_chat(messages, GREEDY, 4)):
            begun.append(piece.token_id)
            said += piece.text
        rest = answered(engine, [*messages, {"role": "assistant", "content": said}], 4)
        assert begun + rest == whole
    finally:
        engine.close()


def test_an_answer_about_an_image_goes_on_in_another_load_from_its_text(
    models: dict[str, Path],
) -> None:
    """What an image became is of the model before, which is freed."""
    engine, other = opened(models["gemma3"]), opened(models["gemma3"], 1.0)
    try:
        messages = asked(image(1), "What is it?")
        said = "".join(p.text for p in engine.answer(of_chat(messages, GREEDY, 4)))
        engine.change(engine.loaded.config.changed(cache_rate=1.0))
        begun = [*messages, {"role": "assistant", "content": said}]
        assert answered(engine, begun, 4) == answered(other, begun, 4)
    finally:
        engine.close()
        other.close()


def test_a_user_cannot_write_an_image(models: dict[str, Path]) -> None:
    engine = opened(models["mlp"])
    try:
        messages = [
            {"role": "system", "content": "Say <__media__>"},
            *asked("Is <__media__> a word? ", image(1)),
        ]
        answered(engine, messages)
        assert engine.statistics().n_prompt > N_IMAGE_TOKEN
    finally:
        engine.close()


def test_what_cannot_be_seen_is_one_sentence(models: dict[str, Path], tmp_path: Path) -> None:
    alone = opened(models[""])
    try:
        assert not alone.model.chat.images
        with pytest.raises(EngineError, match=r"^This model cannot see images\.$"):
            answered(alone, asked("What is it?", image(1)))
    finally:
        alone.close()
    whole = make_png(pixels(1))
    engine = opened(models[""], mmproj=str(next(models["mlp"].parent.glob("mmproj*"))))
    try:
        for data, why in (
            (whole[: len(whole) // 2], "damaged"),
            (b"RIFF....WEBP" + bytes(50), "damaged"),
            (b"ID3" + bytes(100), "PNG or JPEG"),
            (b"", "PNG or JPEG"),
            (whole.replace(struct.pack(">II", 30, 20), struct.pack(">II", 65535, 65535)), "."),
        ):
            part = {"type": "image", "data": base64.b64encode(data).decode()}
            with pytest.raises(EngineError, match=why) as caught:
                answered(engine, asked("What is it?", part))
            assert str(caught.value).startswith("An attached file ") and "\n" not in str(
                caught.value
            )
        with pytest.raises(EngineError, match="An attached file is a damaged image"):
            answered(engine, asked({"type": "image", "data": "no Base64!"}))
        assert answered(engine, asked("What is it?", image(1)))
    finally:
        engine.close()
    with pytest.raises(EngineError, match="no file with which a model sees"):
        opened(models[""], mmproj=str(models[""]))
    wide = make_mmproj(tmp_path / "mmproj-wide.gguf", 96)
    with pytest.raises(EngineError, match="cannot be used with this model"):
        opened(models[""], mmproj=str(wide))
    old = make_tiny("glm4moe", "Q4_0", tmp_path / "old.gguf")  # llama.cpp would end the process
    n_embd = int(read_header(old).metadata["glm4moe.embedding_length"])
    with pytest.raises(EngineError, match=r"^old\.gguf was converted without what images need\. "):
        opened(old, mmproj=str(make_mmproj(tmp_path / "mmproj-old.gguf", n_embd)))


def test_a_damaged_image_ends_no_conversation(models: dict[str, Path]) -> None:
    """Of an earlier message or a tool, it becomes words. The user's last one is refused."""
    damaged = {"type": "image", "data": base64.b64encode(b"\x89PNG\r\n\x1a\nno more").decode()}
    said = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
    engine = opened(models["mlp"])
    try:
        told: list[tuple[str, ...]] = []
        for before in (asked("Look", damaged, image(1)), [{"role": "tool", "content": [damaged]}]):
            request = of_chat([*before, *said], GREEDY, 1)
            request.handle.fitted = told.append  # type: ignore[method-assign]
            assert len(list(engine.answer(request))) == 1
            assert "images-left-out" in told.pop()
            assert engine.prompts.count([*before, *said]) > len(UNREAD_IMAGE) / 8
        for bad in (damaged, {"type": "image", "data": "!"}, {"type": "image", "data": ""}):
            with pytest.raises(EngineError, match="image"):
                answered(engine, asked("Look", image(1), bad))
            assert answered(engine, [*asked(bad), *said])
    finally:
        engine.close()
