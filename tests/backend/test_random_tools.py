"""Each call has one result, no state is untrue and a chat can go on, whatever a server does."""

from __future__ import annotations

import pytest
from random_tools import try_seed

from backend.tools.results import read_body, read_event

ODD = b'{"jsonrpc": "2.0", "id": 1, "result": ["a", "b"]}'
MENDED = b'{"jsonrpc":"2.0","id":1,"result":{"content":["a","b"]}}'


@pytest.mark.parametrize("seed", range(5))
def test_servers_that_do_anything(seed: int) -> None:
    for each in range(10 * seed, 10 * seed + 10):
        try_seed(each)


@pytest.mark.night
def test_two_thousand_servers() -> None:
    for seed in range(50, 2050):
        try_seed(seed)


def test_messages_by_http_are_mended_as_lines_are() -> None:
    assert read_body(ODD) == MENDED and read_body(MENDED) == MENDED
    assert read_body(b"<html>") == b"<html>"
    event = b"event: message\nid: 7\ndata: " + ODD
    assert read_event(event) == b"event: message\nid: 7\ndata: " + MENDED
    assert read_event(b": a comment") == b": a comment"
