"""The settings that a request asks for, checked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from backend.protocol.messages import Message, RequestError

if TYPE_CHECKING:
    from backend.protocol.settings import EngineConfig, Sampling


def engine_config(message: Message) -> EngineConfig:
    """Return how a request wants the model to run; raises RequestError."""
    from backend.protocol.settings import EngineConfig

    try:
        return EngineConfig(
            cache_rate=float(message["cache_rate"]),
            method=message["method"],
            context_length=message["context_length"],
            n_thread=message["n_thread"],
            automatic=message.get("automatic", False),
            device=message.get("device", "auto"),
            hybrid=message.get("hybrid", "off"),
            host_bytes=message.get("host_bytes"),
            pack=message.get("pack", True),
            kv_type=message.get("kv_type", "f16"),
        )
    except ValueError as error:
        raise RequestError(str(error)) from None


def checked_sampling(values: dict[str, Any]) -> Sampling:
    """Return how a request wants tokens to be drawn; raises RequestError."""
    from backend.protocol.settings import Sampling

    fields = {field.name: str(field.type) for field in dataclasses.fields(Sampling)}
    for name, value in values.items():
        if name not in fields:
            raise RequestError(f"Unknown sampling setting {ascii(name[:40])}.")
        allowed = int if "int" in fields[name] else int | float
        is_none = value is None and "None" in fields[name]
        if not is_none and (isinstance(value, bool) or not isinstance(value, allowed)):
            raise RequestError(f"The sampling setting {name} has a value of the wrong type.")
    try:
        return Sampling(**values)
    except ValueError as error:
        raise RequestError(str(error)) from None
