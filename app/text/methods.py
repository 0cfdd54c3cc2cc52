"""The names of the methods as the window shows them."""

from __future__ import annotations

from app.text.language import translate


def title_of(method: str) -> str:
    """Return a method's name. Only two have one in words; the others are proper names."""
    names = {
        "auto": translate("methods", "Adaptive"),
        "stock": translate("methods", "stock llama.cpp"),
    }
    return names.get(method, method)
