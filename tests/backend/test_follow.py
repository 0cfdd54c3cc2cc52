"""The book of a request: what its handle finds in it at each call."""

from __future__ import annotations

from typing import Any

from backend.engine.answer import Piece
from backend.protocol.request import Handle


class Reads(Handle):
    """Notes the book at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, ...]] = []

    def joined(self) -> None:
        self.note("joined")

    def prefilled(self) -> None:
        self.note("prefilled")

    def began(self) -> None:
        self.note("began")

    def wrote(self, piece: Any) -> None:
        self.note(piece.text)

    def note(self, call: str) -> None:
        book = self.follow
        self.found.append((call, book.n_done, book.n_prompt, book.n_token, book.n_char))


def test_the_book_is_up_to_date_when_its_handle_is_told() -> None:
    handle = Reads()
    book = handle.follow
    assert (book.ttft_s, book.tokens_per_s) == (0.0, 0.0)
    book.submitted()
    book.joined(9, 4)
    book.prefilled(6)
    assert book.ttft_s == 0.0
    book.began()
    began_s = book.began_s
    book.began()  # as for a request that others have displaced
    book.wrote(Piece(7, "ab"))
    book.wrote(Piece(8, ""))  # within a character
    book.wrote(Piece(-1, "c"))  # what was held back
    assert handle.found == [
        ("joined", 4, 9, 0, 0), ("prefilled", 6, 9, 0, 0), ("began", 9, 9, 0, 0),
        ("ab", 9, 9, 1, 2), ("", 9, 9, 2, 2), ("c", 9, 9, 2, 3),
    ]  # fmt: skip
    assert book.n_reused == 4 and book.began_s == began_s
    assert book.ttft_s == began_s - book.submitted_s > 0.0
    assert book.tokens_per_s == 2 / (book.wrote_s - began_s)
