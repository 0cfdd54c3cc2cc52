"""The models on this machine: what they are, whether they will run here, and how fast.

`scan` looks through folders, `facts` reads one model's header, `estimate` gives the verdict from
the file's numbers and this machine's measured ones, `history` remembers what the user did. Knows
neither Qt nor the engine.
"""
