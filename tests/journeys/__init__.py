"""Journeys: what a person does with the installed programs, from outside.

A journey starts the programs that people get, in an empty home. It sees what a screen reader sees
(AT-SPI), and acts as a hand does (mouse and keys by xdotool). Nothing here imports the product, and
the product has no hook for it. `make journeys` runs them.

A journey is a function `journey_...` in a file `journey_*.py`. It gets

- home: an empty home folder. It starts the programs and keeps their output; no traceback may be in
  it. A variable tells the programs that the stand-in hub is the hub.
- desktop: a screen of its own. Controls are found by their accessible names. At the end, each
  control that was seen and can have the focus must have had a name.
- hub: a hub without models at first, with faults on demand (tests/fake_hub.py).

Where the folder of programs has those of Windows, they run under wine, in the prefix WINEPREFIX.
No journey can see a window there, so those with `desktop` are skipped; `screen` has the keyboard
alone, and journey_keys.py judges by files.

It waits for what is shown, or for a file, never for a time. With the mark `night` it runs with
ALL=1 only.
"""
