"""Wait for a condition, or so long that only a failure waits to the end."""

import time
from collections.abc import Callable

WAIT_S = 120


def until(is_so: Callable[[], object], limit_s: float = WAIT_S) -> None:
    """Wait until a condition holds. Fail after the limit."""
    end_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.01)
