"""Reads and decodes images. Runs in the child process only.

libmtmd decodes PNG and JPEG, as stock llama.cpp does. Qt's readers make a PNG of other images, and
of those that are too large. They are in every package; Pillow would add 7 MB to it.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

from backend.protocol.attachments import PICTURE_BYTES_MAX, PICTURE_PIXELS_MAX, Picture
from backend.protocol.errors import RequestError
from backend.text import text

if TYPE_CHECKING:
    from PySide6.QtCore import QBuffer
    from PySide6.QtGui import QImage, QImageReader

READ_PIXELS_MAX = 128_000_000
"""Pixels of an image that is scaled down."""
SIDES = (4096, 2048, 1024)
"""Longest sides of scaled images, in pixels; the first with a small enough file is taken."""
_READ_MIB = READ_PIXELS_MAX * 4 >> 20
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)  # their lengths
_BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"hevc": "HEIC", b"heim": "HEIC", b"mif1": "HEIC",
           b"msf1": "HEIC", b"avif": "AVIF", b"avis": "AVIF"}  # fmt: skip
_STARTS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"II*\0": "TIFF",
           b"MM\0*": "TIFF", b"\xff\x0a": "JPEG XL", b"\0\0\0\x0cJXL ": "JPEG XL",
           b"\0\0\0\x0cjP  ": "JPEG 2000", b"8BPS": "Photoshop"}  # fmt: skip
_READ = ("png", "jpeg", "webp", "gif", "bmp")


def kind_of(data: bytes) -> str:
    """Return the kind of an image by its first bytes; "" if it is no image.

    The kinds that can be read are small letters, as Qt names them.
    """
    for start, kind in _STARTS.items():
        if data.startswith(start):
            return kind
    if data[:4] + data[8:12] == b"RIFFWEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "")
    if data[:2] == b"BM" and len(data) > 18 and data[6:10] == bytes(4):
        return "bmp" if struct.unpack_from("<I", data, 14)[0] in _BMP_HEADERS else ""
    return ""


def attached(data: bytes, name: str) -> tuple[bytes, bool]:
    """Return an image as a PNG or JPEG that `decoded` accepts, and whether it was scaled down.

    Raises RequestError, one sentence.
    """
    kind = kind_of(data)
    if kind not in _READ:
        raise RequestError(text("attach.save_picture", file=name, kind=kind))
    reader, _buffer = _reader(data, kind)
    size = reader.size()
    n_pixel = size.width() * size.height()
    is_small = len(data) <= PICTURE_BYTES_MAX and n_pixel <= PICTURE_PIXELS_MAX
    if kind in ("png", "jpeg") and is_small and not reader.transformation().value:
        decoded(data, name)
        return data, False
    if n_pixel > READ_PIXELS_MAX:
        most = READ_PIXELS_MAX
        raise RequestError(text("attach.many_pixels", file=name, n=n_pixel, most=most))
    image = _read(reader, name)
    whole = max(image.width(), image.height())
    for side in (whole, *SIDES):
        if side <= min(whole, SIDES[0]):
            png = _png(_scaled(image, side))
            if len(png) <= PICTURE_BYTES_MAX:
                return png, side < whole
    raise RequestError(text("attach.damaged_picture", file=name))


def preview(data: bytes, name: str, side: int) -> Picture:
    """Return an image of at most `side` pixels in each direction. Raises RequestError."""
    reader, _buffer = _reader(data, kind_of(data))
    size = reader.size()
    if size.width() * size.height() > READ_PIXELS_MAX:
        raise RequestError(text("attach.damaged_picture", file=name))
    from PySide6.QtGui import QImage

    image = _scaled(_read(reader, name), side).convertToFormat(QImage.Format.Format_RGB888)
    width, height, step = image.width(), image.height(), image.bytesPerLine()
    rows = bytes(image.constBits())
    rgb = b"".join(rows[y * step : y * step + 3 * width] for y in range(height))
    return Picture(width, height, rgb)


def _reader(data: bytes, kind: str) -> tuple[QImageReader, QBuffer]:
    """Return Qt's reader of one kind, and its data, which have to stay.

    No other plug-in of Qt sees the data.
    """
    # Takes 0.15 s, and needs an image.
    from PySide6.QtCore import QBuffer, QByteArray, QIODevice
    from PySide6.QtGui import QImageReader

    QImageReader.setAllocationLimit(_READ_MIB)
    buffer = QBuffer()
    buffer.setData(QByteArray(data))
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer, QByteArray(kind.encode()))
    reader.setDecideFormatFromContent(False)
    reader.setAutoTransform(True)
    return reader, buffer


def _read(reader: QImageReader, name: str) -> QImage:
    """Return the first frame, on white where it is transparent. Raises RequestError."""
    from PySide6.QtGui import QColor, QImage, QPainter

    image = reader.read()
    if image.isNull():
        raise RequestError(text("attach.damaged_picture", file=name))
    if image.hasAlphaChannel():
        below = QImage(image.size(), QImage.Format.Format_RGB32)
        below.fill(QColor("white"))
        painter = QPainter(below)
        painter.drawImage(0, 0, image)
        painter.end()
        image = below
    return image


def _scaled(image: QImage, side: int) -> QImage:
    from PySide6.QtCore import Qt

    if max(image.width(), image.height()) <= side:
        return image
    keep, smooth = Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
    return image.scaled(side, side, keep, smooth)


def _png(image: QImage) -> bytes:
    from PySide6.QtCore import QBuffer, QIODevice

    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]
    return bytes(buffer.data().data())


def decoded(data: bytes, name: str) -> Picture:
    """Decode an image as llama.cpp does; one that is no PNG or JPEG becomes a PNG first.

    Raises RequestError, one sentence.
    """
    if len(data) > PICTURE_BYTES_MAX:
        most = PICTURE_BYTES_MAX
        raise RequestError(text("attach.too_large", file=name, n=len(data), most=most))
    kind = kind_of(data)
    if not kind:
        raise RequestError(text("attach.other_picture", file=name))
    # libmtmd takes other data for a video or a sound and would start other programs.
    if kind not in ("png", "jpeg"):
        data, _ = attached(data, name)
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
