"""`outrider bench`: compares ways to run a model, and shows how near each comes to its bound.

Every way (`Way`) has its own child process (`child.py`), which opens the model and waits for its
turns. `turns.py` runs the turns round by round, A B C A B C. `workload.py` defines the work of a
turn and forced routing, `cap.py` limits the memory of the children, `figures.py` computes figures
from the measurements, and `tables.py` shows them.
"""
