"""The part of a model that sees images: llama.cpp's libmtmd and the model's mmproj file.

`Vision` turns an image into chunks of the prompt. A text chunk is a list of tokens; an `ImageChunk`
is preprocessed pixels, which encode() turns into embeddings. llama.cpp's own loader, preprocessing
and encoder compute all of it, on the CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.llama.api import ERROR, LlamaError, Model, log, reason_of
from backend.llama.batch_log import BatchLog
from backend.llama.guard import MEDIA
from backend.text import text

import llama_cpp  # isort: skip  (backend.llama.api checks its version)
from llama_cpp import mtmd_cpp as mtmd  # isort: skip


@dataclass(frozen=True)
class ImageChunk:
    """An image, or a part of one, in a prompt.

    token: a negative number that stands in the prompt for each of its positions; equal for equal
    images. n_token: embeddings, each of which takes a place in the context. n_pos: positions. The
    pixels are freed with the last one who has it.
    """

    token: int
    n_token: int
    n_pos: int
    pointer: Any


Chunk = list[int] | ImageChunk


class Vision:
    """A loaded mmproj file. Use from one thread. Raises LlamaError where it does not fit the model.

    path: the file. log: receives every image, or None.
    """

    def __init__(self, path: Path, model: Model, n_thread: int) -> None:
        self.path = path
        self.log: BatchLog | None = None
        self._chunks: dict[bytes, list[Chunk]] = {}  # by the hash of the image
        self._listen()
        params = mtmd.mtmd_context_params_default()
        params.use_gpu = False
        params.print_timings = False
        params.n_threads = n_thread
        with log.captured(ERROR) as errors:
            self._pointer = mtmd.mtmd_init_from_file(os.fsencode(path), model.pointer, params)
        self._n_embd: int = llama_cpp.llama_model_n_embd_inp(model.pointer)
        if not self._pointer:
            raise LlamaError(text("vision.not_loaded", file=path.name, reason=reason_of(errors)))
        if not mtmd.mtmd_support_vision(self._pointer):
            self.close()
            raise LlamaError(text("vision.no_vision", file=path.name))
        self.is_causal = not mtmd.mtmd_decode_use_non_causal(self._pointer, None)
        self._has_mrope = bool(mtmd.mtmd_decode_use_mrope(self._pointer))

    def _listen(self) -> None:
        """Send libmtmd's messages to the log of llama.cpp's."""
        mtmd.mtmd_helper_log_set(log.callback, ctypes.c_void_p(0))

    def close(self) -> None:
        """Free the file's weights, and images as keep(). A second call does nothing."""
        self.keep(())
        if self._pointer is not None:
            mtmd.mtmd_free(self._pointer)
            self._pointer = None

    def keep(self, digests: Any) -> None:
        """Know no more images than those with these hashes. Who has another one may go on."""
        for digest in set(self._chunks) - set(digests):
            del self._chunks[digest]

    def known(self, digest: bytes) -> list[Chunk] | None:
        """Return the chunks of an image that was added and kept."""
        return self._chunks.get(digest)

    def add(self, digest: bytes, width: int, height: int, rgb: bytes) -> list[Chunk]:
        """Return the chunks of an image. digest: its hash. rgb: three bytes per pixel, in rows."""
        assert len(rgb) == width * height * 3
        self._listen()
        pixels = (ctypes.c_uint8 * len(rgb)).from_buffer_copy(rgb)
        bitmap = mtmd.mtmd_bitmap_init(width, height, pixels)
        output = mtmd.mtmd_input_chunks_init()
        try:
            marker = MEDIA.encode()
            prompt = mtmd.mtmd_input_text(marker, len(marker), False, True)
            bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
            with log.captured(ERROR) as errors:
                status = mtmd.mtmd_tokenize(self._pointer, output, ctypes.byref(prompt), bitmaps, 1)
            if status != 0:
                raise LlamaError(text("vision.not_read", reason=reason_of(errors)))
            chunks = [
                self._chunk(digest, i, mtmd.mtmd_input_chunks_get(output, i))
                for i in range(mtmd.mtmd_input_chunks_size(output))
            ]
        finally:
            mtmd.mtmd_input_chunks_free(output)
            mtmd.mtmd_bitmap_free(bitmap)
        self._chunks[digest] = chunks
        if self.log is not None:
            named = [c if isinstance(c, list) else {"token": c.token} for c in chunks]
            self.log.add_picture(width, height, rgb, named)
        return chunks

    def _chunk(self, digest: bytes, index: int, pointer: Any) -> Chunk:
        if mtmd.mtmd_input_chunk_get_tokens_image(pointer) is None:
            n = ctypes.c_size_t()
            tokens = mtmd.mtmd_input_chunk_get_tokens_text(pointer, ctypes.byref(n))
            return list(tokens[: n.value]) if tokens else []
        name = hashlib.sha256(digest + index.to_bytes(4)).digest()
        chunk = ImageChunk(
            token=-1 - int.from_bytes(name[:16]),
            n_token=mtmd.mtmd_input_chunk_get_n_tokens(pointer),
            n_pos=mtmd.mtmd_input_chunk_get_n_pos(pointer),
            pointer=mtmd.mtmd_input_chunk_copy(pointer),
        )
        weakref.finalize(chunk, mtmd.mtmd_input_chunk_free, chunk.pointer)
        return chunk

    def encode(self, chunk: ImageChunk) -> NDArray[np.float32]:
        """Return the embeddings of an image, shape (n_token, n_embd)."""
        self._listen()
        with log.captured(ERROR) as errors:
            status = mtmd.mtmd_encode_chunk(self._pointer, chunk.pointer)
        if status != 0:
            raise LlamaError(text("vision.not_read", reason=reason_of(errors)))
        found: Any = mtmd.mtmd_get_output_embd(self._pointer)
        flat = np.ctypeslib.as_array(found, shape=(chunk.n_token * self._n_embd,))
        return flat.reshape(chunk.n_token, self._n_embd).copy()

    def positions(self, chunk: ImageChunk, position: int) -> NDArray[np.int32]:
        """Return the positions of an image from `position` on, shape (4, n_token).

        Models without M-RoPE use the first row.
        """
        rows = np.zeros((4, chunk.n_token), np.int32)
        if not self._has_mrope:
            rows[0] = np.arange(position, position + chunk.n_token)
            return rows
        tokens = mtmd.mtmd_input_chunk_get_tokens_image(chunk.pointer)
        for i in range(chunk.n_token):
            at = mtmd.mtmd_image_tokens_get_decoder_pos(tokens, position, i)
            rows[:, i] = at.t, at.y, at.x, at.z
        return rows


@contextlib.contextmanager
def without_mask(context: Any, is_causal: bool) -> Iterator[None]:
    """Compute without the causal mask inside, unless `is_causal`."""
    if is_causal:
        yield
        return
    llama_cpp.llama_set_causal_attn(context.pointer, False)
    try:
        yield
    finally:
        llama_cpp.llama_set_causal_attn(context.pointer, True)
