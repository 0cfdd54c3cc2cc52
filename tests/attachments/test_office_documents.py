"""Attached documents of offices, web pages and books: their text as Markdown, and refusals."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backend.attachments import child, document_parts, web_pages
from backend.protocol.attachments import TEXT_CHARS_MAX, Attachment

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = (
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
S = (
    'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
ODF = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "text", "table", "drawing")
).replace("xmlns:drawing", "xmlns:draw")
DATA = Path(__file__).with_name("data")
RELATIONS = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'


def archive(members: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return buffer.getvalue()


def answer(tmp_path: Path, name: str, data: bytes) -> dict[str, Any]:
    (tmp_path / name).write_bytes(data)
    return child.answer({"path": str(tmp_path / name), "name": name}, lambda _: None)


def content(tmp_path: Path, name: str, data: bytes) -> str:
    made = Attachment.from_json(answer(tmp_path, name, data)["file"])
    assert made.kind == "document" and made.name == name
    return made.text


def paragraph(words: str, style: str = "", more: str = "") -> str:
    styled = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{styled}{more}</w:pPr><w:r><w:t>{words}</w:t></w:r></w:p>"


def docx(body: str, **more: str) -> bytes:
    return archive({"word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
                    **more})  # fmt: skip


def sheet(cells: str, numbers: str = "") -> dict[str, str]:
    return {
        "xl/workbook.xml": f'<workbook {S}><sheets><sheet name="Costs" sheetId="1" r:id="r1"/>'
        "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships {RELATIONS}><Relationship Id="r1" '
        'Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/sharedStrings.xml": f"<sst {S}><si><t>Item</t></si><si><r><t>Fl</t></r><r><t>our</t>"
        "</r><rPh><t>no</t></rPh></si></sst>",
        "xl/styles.xml": f'<styleSheet {S}><numFmts><numFmt numFmtId="170" formatCode="dd/mm/yy"/>'
        '<numFmt numFmtId="171" formatCode="0.0 &quot;days&quot;"/></numFmts><cellXfs>'
        '<xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/><xf numFmtId="171"/>'
        "<xf numFmtId=\"20\"/></cellXfs></styleSheet>",
        "xl/worksheets/sheet1.xml": f"<worksheet {S}><sheetData>{cells}</sheetData></worksheet>",
    }  # fmt: skip


def opendocument(kind: str, body: str) -> bytes:
    return archive({
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "content.xml": f"<office:document-content {ODF}><office:body>{body}</office:body>"
        "</office:document-content>",
    })  # fmt: skip


def test_docx(tmp_path: Path) -> None:
    cell = "<w:tc>{}</w:tc>".format
    body = (
        paragraph("Report", "Heading1") + paragraph("First &amp; last") + paragraph("")
        + paragraph("one", more="<w:numPr/>") + paragraph("two", more="<w:numPr/>")
        + "<w:tbl><w:tr>" + cell(paragraph("a|b")) + cell(paragraph("c") + paragraph("d"))
        + "</w:tr><w:tr>" + cell(paragraph("1")) + cell("<w:tbl><w:tr>" + cell(paragraph("x"))
        + cell(paragraph("y")) + "</w:tr></w:tbl>") + "</w:tr></w:tbl>"
        + "<w:p><w:r><w:t>tab</w:t><w:tab/><w:t>end</w:t><w:delText>gone</w:delText>"
        "<w:instrText>FIELD</w:instrText></w:r></w:p>"
    )  # fmt: skip
    assert content(tmp_path, "a.docx", docx(body)) == (
        "# Report\n\nFirst & last\n\n- one\n- two\n\n| a\\|b | c d |\n| --- | --- |\n"
        "| 1 | x, y |\n\ntab end"
    )


TEXT = """\
# The title

# First chapter

Plain bold words with a link text (https://example.org/a_b) and a tab here
second line.

## Part one

- outer one
   - inner one
   - inner two
- outer two

Numbered:

1. first step
2. second step
   1. sub step

Sentence with a footnote (The footnote text.) in it, and an endnote (The endnote text.).

Commented {comment} end.

Tracked: INSERTEDWORDS and rest.

| Merged head |  | C |
| --- | --- | --- |
| tall | b2 | c2 line1 c2 line2 |
|  | b3 \\| pipe | in cell |

After table. Words in a text box.

Picture: [picture: Alt text of the picture] end.
"""
COMMENT = "[comment by Bob: Please check this figure.]"
SLIDES = """\
- bullet one
   - nested bullet
- bullet two with link (https://example.org/s)

> Speaker note one.

> Speaker note two.
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("text.docx", TEXT.replace("{comment}", f"words {COMMENT}")),
        ("text.odt", TEXT.replace("{comment}", f"{COMMENT} words")),
        ("slides.pptx", SLIDES),
        ("slides.odp", SLIDES),
        ("sheet.xlsx", "| 2026-03-01 | 12.5% | 1234.5 € | 2469 € | 13:30:00 | two lines |"),
        ("sheet.xlsx", "| 0.1 | 0.3 | 30:15:00 | #DIV/0! |"),
        ("sheet.xlsx", "## Hidden (hidden)"),
        ("sheet.ods", "| 33.3% | 0.1 | 0.3 | 30:15 | #DIV/0! |"),
        ("sheet.ods", "## Hidden (hidden)"),
    ],
)
def test_files_that_libreoffice_wrote(tmp_path: Path, name: str, words: str) -> None:
    """Lists, merged cells, notes, comments, changes, formats: as a person sees them there."""
    made = content(tmp_path, name, (DATA / name).read_bytes())
    assert words in made
    assert "DELETEDWORDS" not in made


def test_xlsx(tmp_path: Path) -> None:
    rows = (
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="D1" t="inlineStr"><is><t>When</t></is></c>'
        '</row><row r="900"><c r="A900" t="s"><v>1</v></c><c r="D900" s="1"><v>45000</v></c>'
        '<c r="XFD900"><f>1+1</f><v>2</v></c></row><row r="901"><c t="b"><v>1</v></c>'
        '<c r="D901" s="2"><v>45000.5</v></c><c r="XFD901" s="3"><v>3.5</v></c></row>'
        '<row r="902"><c r="A902" t="e"><v>#N/A</v></c><c r="D902" s="4"><v>0.25</v></c></row>'
    )
    assert content(tmp_path, "a.xlsx", archive(sheet(rows))) == (
        "## Costs\n\n| Item | When |  |\n| --- | --- | --- |\n| Flour | 2023-03-15 | 2 |\n"
        "| TRUE | 2023-03-15 12:00:00 | 3.5 |\n| #N/A | 06:00:00 |  |"
    )


def test_pptx(tmp_path: Path) -> None:
    def slide(words: str) -> str:
        return (
            f"<p:sld {A}><p:sp><p:txBody><a:p><a:r><a:t>{words}</a:t></a:r></a:p></p:txBody></p:sp>"
            '<p:sp><p:nvPr><p:ph type="sldNum"/></p:nvPr><a:p><a:t>7</a:t></a:p></p:sp></p:sld>'
        )

    relation = '<Relationship Id="{}" Target="{}"/>'.format
    members = {
        "ppt/presentation.xml": f'<p:presentation {A}><p:sldIdLst><p:sldId id="1" r:id="r2"/>'
        '<p:sldId id="2" r:id="r1"/></p:sldIdLst></p:presentation>',
        "ppt/_rels/presentation.xml.rels": f"<Relationships {RELATIONS}>"
        + relation("r1", "slides/slide1.xml") + relation("r2", "/ppt/slides/slide2.xml")
        + "</Relationships>",
        "ppt/slides/slide1.xml": slide("The end"),
        "ppt/slides/slide2.xml": slide("The begin"),
        "ppt/slides/_rels/slide2.xml.rels": f"<Relationships {RELATIONS}>"
        + relation("r1", "../notesSlides/notesSlide1.xml") + "</Relationships>",
        "ppt/notesSlides/notesSlide1.xml": slide("Say hello"),
    }  # fmt: skip
    assert content(tmp_path, "a.pptx", archive(members)) == (
        "## 1\n\nThe begin\n\n> Say hello\n\n## 2\n\nThe end"
    )


def test_opendocument(tmp_path: Path) -> None:
    body = (
        "<office:text>\n <text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
        '<text:h text:outline-level="2">Head</text:h>\n<text:p>one<text:s/>two<text:span> three'
        "</text:span><text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>"
        "a note</text:p></text:note-body></text:note></text:p><text:list><text:list-item><text:p>"
        "item</text:p></text:list-item></text:list><office:annotation><text:p>hidden</text:p>"
        "</office:annotation></office:text>"
    )
    assert content(tmp_path, "a.odt", opendocument("text", body)) == (
        "## Head\n\none two three (a note)\n\n- item\n\n[comment hidden]"
    )
    cell = "<table:table-cell{}><text:p>{}</text:p></table:table-cell>".format
    rows = (
        f"<table:table-row>{cell('', 'a')}<table:table-cell table:number-columns-repeated='2'/>"
        f"{cell('', 'b')}<table:table-cell table:number-columns-repeated='16000'/>"
        "</table:table-row><table:table-row table:number-rows-repeated='1048000'>"
        "<table:table-cell table:number-columns-repeated='16384'/></table:table-row>"
    )
    body = f'<office:spreadsheet><table:table table:name="S">{rows}</table:table>'
    made = content(tmp_path, "a.ods", opendocument("spreadsheet", body + "</office:spreadsheet>"))
    assert made == "## S\n\n| a |  |  | b |\n| --- | --- | --- | --- |"


PAGE = (
    "<html><head><title>Page</title><script>no()</script><style>no</style><body><h2>Head</h2>"
    "<p>One &amp; <b>two</b><br>three</p><ul><li>a<li><p>b</p></ul><pre>x = 1\n  y</pre>"
    "<table><tr><th>k<td>v</tr></table><img alt='A dog' src='http://x/y.png'>"
)
PAGE_TEXT = (
    "Page\n\n## Head\n\nOne & two\nthree\n\n- a\n- b\n\n```\nx = 1\n  y\n```\n\n"
    "| k | v |\n| --- | --- |\n\nA dog"
)


def test_web_pages(tmp_path: Path) -> None:
    padded = PAGE + "<!--" + "x" * web_pages.HTML_SOURCE_CHARS + "-->"
    assert content(tmp_path, "a.html", padded.encode()) == PAGE_TEXT
    short = answer(tmp_path, "b.html", PAGE.encode())["file"]
    assert short["kind"] == "code" and short["text"] == PAGE


def test_cells_and_lists_of_a_web_page(tmp_path: Path) -> None:
    page = (
        "<ol><li>a<ul><li>b</ul><li><p>c</p><p>more</p></ol><table><tr><td rowspan=2>x"
        "<td colspan=2>y<td>z<tr><td>1<td>2<td>3</table><!--" + "x" * 20_000 + "-->"
    )
    assert content(tmp_path, "a.html", page.encode()) == (
        "1. a\n   - b\n2. c\n\n   more\n\n| x | y |  | z |\n| --- | --- | --- | --- |\n"
        "|  | 1 | 2 | 3 |"
    )


def test_epub(tmp_path: Path) -> None:
    members = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OPS/b.opf"/>'
        "</rootfiles></container>",
        "OPS/b.opf": '<package xmlns:dc="d"><metadata><dc:title>Tale</dc:title></metadata>'
        '<manifest><item id="1" href="c%201.xhtml"/><item id="2" href="../x/2.xhtml"/></manifest>'
        '<spine><itemref idref="2"/><itemref idref="1"/></spine></package>',
        "OPS/c 1.xhtml": "<html><body><p>Second</p></body></html>",
        "x/2.xhtml": "<html><body><h1>First</h1></body></html>",
    }
    assert content(tmp_path, "a.epub", archive(members)) == "# Tale\n\n# First\n\nSecond"


BOMB = docx("<w:p><w:r><w:t>" + "a" * (1 << 20) + "</w:t></w:r></w:p>")
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    f"<w:document {W}><w:body>" + paragraph("&b;") + "</w:body></w:document>"
)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("bomb.docx", BOMB, "too much time or memory"),
        ("laughs.docx", archive({"word/document.xml": LAUGHS}), "damaged"),
        ("long.docx", docx(paragraph("a" * TEXT_CHARS_MAX) + paragraph("b")), "characters"),
        ("cut.docx", docx(paragraph("a"))[:-30], "damaged"),
        ("empty.docx", docx(paragraph(" ")), "no text"),
        ("xml.docx", archive({"word/document.xml": "<w:p>"}), "damaged"),
        (
            "gone.pptx",
            archive({"ppt/presentation.xml": f'<p {A}><sldId r:id="r9"/></p>'}),
            "damaged",
        ),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "old Office"),
        ("a.zip", archive({"a.txt": "a"}), "neither text"),
        ("a.odg", opendocument("graphics", ""), "neither text"),
        ("loop.xlsx", archive(sheet('<row><c r="A1" t="s"><v>99</v></c></row>')), "no text"),
    ],
)
def test_documents_that_are_refused(
    tmp_path: Path, name: str, data: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "bomb.docx":
        monkeypatch.setattr(document_parts, "MEMBER_BYTES_MAX", 1 << 20)
    sentence = answer(tmp_path, name, data)["refusal"]
    assert words in sentence and sentence.startswith(name) and sentence.endswith(".")


def test_a_damaged_byte_never_ends_without_an_answer(tmp_path: Path) -> None:
    whole = archive(sheet('<row><c r="A1" t="s"><v>0</v></c></row>'))
    for place in range(0, len(whole), 23):
        data = bytearray(whole)
        data[place] ^= 0x55
        made = answer(tmp_path, "a.xlsx", bytes(data))
        assert "file" in made or made["refusal"].endswith(".")
