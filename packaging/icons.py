"""Draw the application's icon into files: PNG in all sizes, for Windows or for macOS.

    python packaging/icons.py png FOLDER       FOLDER/48x48/apps/outrider.png and so on, and one SVG
    python packaging/icons.py ico FILE         python packaging/icons.py icns FILE

The window draws the same icon (app/widgets/icons.py), so the repository holds no picture of it.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from PySide6.QtCore import QBuffer, QByteArray, QRect, QSize
from PySide6.QtGui import QGuiApplication, QPainter
from PySide6.QtSvg import QSvgGenerator

from app.widgets import icons

PNG_SIZES = (16, 22, 24, 32, 48, 64, 96, 128, 256, 512)
ICO_SIZES = (16, 24, 32, 48, 64, 128, 256)
ICNS_TYPES = {b"icp4": 16, b"icp5": 32, b"icp6": 64, b"ic07": 128, b"ic08": 256, b"ic09": 512,
              b"ic10": 1024, b"ic11": 32, b"ic12": 64, b"ic13": 256, b"ic14": 512}  # fmt: skip


def main() -> int:
    """Write the files that the command line names. Return the exit status."""
    kind, place = sys.argv[1], Path(sys.argv[2])
    application = QGuiApplication(sys.argv[:1])
    if kind == "png":
        for side in PNG_SIZES:
            path = place / f"{side}x{side}" / "apps" / "outrider.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_png(side))
        _svg(place / "scalable" / "apps" / "outrider.svg")
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes({"ico": ico, "icns": icns}[kind]())
    del application
    return 0


def ico() -> bytes:
    """Return the icon for Windows: a table, then a PNG for each size."""
    images = [_png(side) for side in ICO_SIZES]
    at = 6 + 16 * len(images)
    table = struct.pack("<HHH", 0, 1, len(images))
    for side, image in zip(ICO_SIZES, images, strict=True):
        table += struct.pack("<BBBBHHII", side % 256, side % 256, 0, 0, 1, 32, len(image), at)
        at += len(image)
    return table + b"".join(images)


def icns() -> bytes:
    """Return the icon for macOS: a PNG for each type of size."""
    parts = b"".join(
        kind + struct.pack(">I", len(image) + 8) + image
        for kind, side in ICNS_TYPES.items()
        for image in (_png(side),)
    )
    return b"icns" + struct.pack(">I", len(parts) + 8) + parts


def _png(side: int) -> bytes:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    icons.application_pixmap(side).save(buffer, "PNG")
    return bytes(data.data())


def _svg(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = QSvgGenerator()
    picture.setFileName(str(path))
    picture.setSize(QSize(128, 128))
    picture.setViewBox(QRect(0, 0, 128, 128))
    picture.setTitle("Outrider")
    painter = QPainter(picture)
    icons.paint_application(painter, 128)
    painter.end()


if __name__ == "__main__":
    sys.exit(main())
