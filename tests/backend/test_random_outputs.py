"""Outputs that quote marks of calls, roles, fences and JSON, of every template's form."""

from __future__ import annotations

import pytest
from chat_formats import TEMPLATES, open_format
from random_outputs import faults

N_OUTPUT = 2
"""tests/benchmarks/quoted_marks.py reads more."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_text_is_in_its_part(name: str) -> None:
    """Nothing is lost, and nothing that is quoted is a call."""
    chat_format = open_format(name)
    try:
        found = faults(name, chat_format, N_OUTPUT, 1, offered=True, n_cut=1)
        found += faults(name, chat_format, N_OUTPUT, 1, offered=False, n_cut=1)
    finally:
        chat_format.close()
    assert not found, found[0]
