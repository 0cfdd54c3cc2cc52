"""What all tests rely on."""

from __future__ import annotations

import signal

# Whoever starts the tests in the background may have them ignore Ctrl-C. Programs that the tests
# start would inherit that, and those that are told to stop by it would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)
