"""Small PDFs, valid and hostile, written without a library."""

from __future__ import annotations


def pdf(objects: dict[int, bytes], root: int = 1, trailer: bytes = b"") -> bytes:
    """Return a file of these objects with a valid cross-reference table."""
    data, places = bytearray(b"%PDF-1.4\n"), {}
    for number, body in objects.items():
        places[number] = len(data)
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start, size = len(data), max(objects) + 1
    data += b"xref\n0 1\n0000000000 65535 f \n"
    for number, place in places.items():
        data += b"%d 1\n%010d 00000 n \n" % (number, place)
    data += b"trailer\n<< /Size %d /Root %d 0 R %s >>\n" % (size, root, trailer)
    return bytes(data + b"startxref\n%d\n%%%%EOF\n" % start)


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def pages(*contents: bytes, resources: bytes = b"") -> dict[int, bytes]:
    """Return the objects of a document whose pages have these content streams."""
    n = len(contents)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(n))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, n),
        3: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for i, content in enumerate(contents):
        objects[4 + 2 * i] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents %d 0 R "
            b"/Resources << /Font << /F 3 0 R >> %s >> >>" % (5 + 2 * i, resources)
        )
        objects[5 + 2 * i] = stream(content)
    return objects


def words(text: str) -> bytes:
    return b"BT /F 12 Tf 20 100 Td (%s) Tj ET" % text.encode("latin-1")


def document(*texts: str) -> bytes:
    """Return a valid PDF with one text on each page."""
    return pdf(pages(*map(words, texts)))
