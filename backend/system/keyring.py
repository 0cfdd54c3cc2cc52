"""Keeps secrets in the system's keyring, and nowhere else.

That is the Secret Service on Linux (GNOME Keyring, KWallet, KeePassXC), the Credential Manager on
Windows and the Keychain on macOS. Only these are used: the keyring package also knows places that
are plain files, and a configuration that names one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from backend.system import faults
from backend.text import text

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

LIMIT_S = 90.0  # a person may have to unlock the keyring first


class NoKeyring(Exception):
    """The keyring cannot be used. str() is a clause with the reason."""


def read(service: str, name: str) -> str:
    """Return a secret; "" if the keyring has none. Raises NoKeyring."""
    found: str | None = _asked(lambda keyring: keyring.get_password(service, name))
    return found or ""


def write(service: str, name: str, secret: str) -> None:
    """Keep a secret in place of the one with this name. Raises NoKeyring."""
    _asked(lambda keyring: keyring.set_password(service, name, secret))


def erase(service: str, name: str) -> None:
    """Remove a secret, if it is there. Raises NoKeyring."""

    def delete(keyring: KeyringBackend) -> None:
        if keyring.get_password(service, name) is not None:
            keyring.delete_password(service, name)

    _asked(delete)


def _asked(work: Callable[[KeyringBackend], Any]) -> Any:
    """Do `work` in a thread: a keyring that hangs must not hold a download for ever."""
    found: list[Any] = []
    done = threading.Event()

    def ask() -> None:
        try:
            found.append(work(_keyring()))
        except Exception as error:  # of three systems, D-Bus and a service of others
            found.append(_told(error))
        finally:
            done.set()

    faults.Thread("keyring", ask, failed=found.append).start()
    if not done.wait(LIMIT_S) or not found:
        raise NoKeyring(text("keyring.silent", seconds=round(LIMIT_S)))
    if isinstance(found[0], NoKeyring):
        raise found[0]
    return found[0]


def _keyring() -> KeyringBackend:
    """Return this system's keyring. Raises NoKeyring if there is none."""
    # Loaded when there is a secret: these packages load cryptography.
    backend: type[KeyringBackend]
    if sys.platform == "win32":
        from keyring.backends.Windows import WinVaultKeyring as backend
    elif sys.platform == "darwin":
        from keyring.backends.macOS import Keyring as backend
    else:
        from keyring.backends.SecretService import Keyring as backend
    if not backend.viable:
        raise NoKeyring(text("keyring.none"))
    return backend()


def _told(error: Exception) -> NoKeyring:
    from keyring.errors import KeyringLocked  # loaded already

    if isinstance(error, NoKeyring):
        return error
    if isinstance(error, KeyringLocked) or "ismissed" in f"{type(error).__name__} {error}":
        return NoKeyring(text("keyring.locked"))
    words = getattr(error, "data", None)  # of an answer of D-Bus
    reason = words[0] if isinstance(words, tuple) and words else error
    return NoKeyring(text("keyring.failed", reason=str(reason)[:200] or type(error).__name__))
