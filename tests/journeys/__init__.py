"""Journeys: what a person does with the installed programs, from outside.

A journey starts the programs that people get, in an empty home. It sees what a screen reader sees
(AT-SPI), and acts as a hand does (mouse and keys by xdotool). Nothing here imports the product, and
the product has no hook for it. `make journeys` runs them.
"""
