"""A Secret Service on a private D-Bus, as a desktop has one, with faults on demand."""

from __future__ import annotations

import shutil
import subprocess
import threading
from types import TracebackType
from typing import Any, Self

import pytest
from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    message_bus,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import open_dbus_connection

ROOT = "/org/freedesktop/secrets"
NAME = "org.freedesktop.Secret"


class SecretService:
    """Serves in a context. `items`: (attributes, secret) by path; `asked`: the methods called.

    fault: "locked" asks a person who says no; "broken" answers each call with an error; "silent"
    answers none. `unlocks`: the person says yes.
    """

    def __init__(self) -> None:
        self.items: dict[str, tuple[dict[str, str], bytes]] = {}
        self.asked: list[str] = []
        self.fault = ""
        self.unlocks = False
        self._is_open = True

    def __enter__(self) -> Self:
        program = shutil.which("dbus-daemon")
        if program is None:
            pytest.skip("This system has no dbus-daemon.")
        self._bus = subprocess.Popen(
            [program, "--session", "--nofork", "--print-address", "1"], stdout=subprocess.PIPE
        )
        assert self._bus.stdout is not None
        self.address = self._bus.stdout.readline().decode().strip()
        self._connection = open_dbus_connection(self.address)
        self._connection.send_and_get_reply(message_bus.RequestName("org.freedesktop.secrets"))
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None,
        _place: TracebackType | None,
    ) -> None:  # fmt: skip
        self._is_open = False
        self._bus.terminate()
        self._bus.wait()
        assert self._bus.stdout is not None
        self._bus.stdout.close()

    def _serve(self) -> None:
        while self._is_open:
            try:
                message = self._connection.receive()
            except (OSError, EOFError):
                return
            if message.header.message_type is MessageType.method_call:
                self._answer(message)

    def _answer(self, message: Message) -> None:
        fields = message.header.fields
        method, path = fields[HeaderFields.member], fields[HeaderFields.path]
        self.asked.append(method)
        if self.fault == "silent":
            return
        if self.fault == "broken":
            error = new_error(message, "org.example.Broken", "s", ("out of order",))
            self._connection.send(error)
            return
        said = self._said(method, path, message.body)
        if said is None:
            self._connection.send(new_error(message, "org.freedesktop.DBus.Error.NotSupported"))
            return
        self._connection.send(new_method_return(message, *said))
        if method == "Prompt":
            if self.unlocks:
                self.fault = ""
            from_path = DBusAddress(path, interface=f"{NAME}.Prompt")
            result = (not self.unlocks, ("ao", []))
            self._connection.send(new_signal(from_path, "Completed", "bv", result))

    def _said(self, method: str, path: str, body: Any) -> tuple[str, Any] | None:
        match method:
            case "OpenSession":
                is_plain = body[0] == "plain"
                return ("vo", (("s", ""), f"{ROOT}/session/1")) if is_plain else None
            case "Get":
                values = {"Label": ("s", "x"), "Locked": ("b", self.fault == "locked")}
                return "v", (values[body[1]],)
            case "SearchItems":
                found = [key for key, (has, _) in self.items.items() if {*body[0].items()} <= {
                    *has.items()}]  # fmt: skip
                return "ao", (found,)
            case "CreateItem":
                key = f"{ROOT}/collection/login/{len(self.items) + 1}"
                self.items[key] = body[0][f"{NAME}.Item.Attributes"][1], bytes(body[1][2])
                return "oo", (key, "/")
            case "GetSecret":
                return "(oayays)", ((body[0], b"", self.items[path][1], "text/plain"),)
            case "Delete":
                del self.items[path]
                return "o", ("/",)
            case "Unlock":
                return "aoo", ([], f"{ROOT}/prompt/1")
            case "Prompt":
                return "", ()
        return None
