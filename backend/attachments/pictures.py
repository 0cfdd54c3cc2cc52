"""Decodes images with the decoder of llama.cpp's libmtmd. Runs in the child process only."""

from __future__ import annotations

import ctypes
from typing import Any

from backend.protocol.attachments import PICTURE_BYTES_MAX, PICTURE_PIXELS_MAX, Picture
from backend.protocol.errors import RequestError
from backend.text import text

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


def is_picture(data: bytes) -> bool:
    """Return whether a file begins as an image of a usual kind does."""
    riff = data[:4] + data[8:12]
    return data.startswith((PNG, JPEG, b"GIF8")) or riff == b"RIFFWEBP"


def decoded(data: bytes, name: str) -> Picture:
    """Decode a PNG or a JPEG file. Raises RequestError, one sentence."""
    if len(data) > PICTURE_BYTES_MAX:
        most = PICTURE_BYTES_MAX
        raise RequestError(text("attach.too_large", file=name, n=len(data), most=most))
    # libmtmd takes other data for a video or a sound and would start other programs.
    if not data.startswith((PNG, JPEG)):
        raise RequestError(text("attach.other_picture", file=name))
    # Takes 0.3 s and is needed for an image only.
    import llama_cpp
    from llama_cpp import mtmd_cpp as mtmd

    silent = llama_cpp.llama_log_callback(lambda *_: None)
    mtmd.mtmd_helper_log_set(silent, ctypes.c_void_p(0))
    no_model: Any = None
    buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
    bitmap = mtmd.mtmd_helper_bitmap_init_from_buf(no_model, buffer, len(data), False)
    if not bitmap:
        raise RequestError(text("attach.damaged_picture", file=name))
    width, height = mtmd.mtmd_bitmap_get_nx(bitmap), mtmd.mtmd_bitmap_get_ny(bitmap)
    if width * height > PICTURE_PIXELS_MAX:
        raise RequestError(
            text("attach.many_pixels", file=name, n=width * height, most=PICTURE_PIXELS_MAX)
        )
    pixels = mtmd.mtmd_bitmap_get_data(bitmap)
    return Picture(width, height, ctypes.string_at(pixels, width * height * 3))
