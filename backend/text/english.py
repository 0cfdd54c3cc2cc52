"""The English templates of all sentences, by id: `area.what`."""

from __future__ import annotations

from collections.abc import Mapping


def QT_TRANSLATE_NOOP(context: str, template: str) -> str:  # noqa: N802
    """Mark a template for Qt's tools, which collect them by this name."""
    return template


ENGLISH: Mapping[str, str] = {
    "memory.fewer_slots": QT_TRANSLATE_NOOP(
        "messages",
        "{free:size} of memory are free: {n} of {all} experts of each layer are kept instead of "
        "{wanted}.",
    ),
}
